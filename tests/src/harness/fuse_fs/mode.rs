//! How the injector answers, as one line of text.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;

/// How requests are answered. Empty lists of operations mean all; `read:data3` means reads of that file alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mode {
    /// As a sound file system.
    Ok,
    /// With an error.
    Fail(Errno, Vec<String>),
    /// Not at all, until the mode changes; then as it says.
    Hang(Vec<String>),
    /// As a sound file system, but late.
    Slow(Duration, Vec<String>),
    /// The daemon ends at once, and stays ended.
    Die,
}

/// The names of the operations.
pub(super) const OPERATIONS: &[&str] = &[
    "lookup",
    "getattr",
    "setattr",
    "open",
    "read",
    "write",
    "flush",
    "fsync",
    "opendir",
    "readdir",
    "statfs",
    "create",
    "unlink",
    "fsyncdir",
    "readlink",
    "mknod",
    "mkdir",
    "rmdir",
    "symlink",
    "link",
    "rename",
    "access",
    "getxattr",
    "listxattr",
    "setxattr",
    "removexattr",
    "setlk",
    "ioctl",
    "fallocate",
    "copy_file_range",
];

/// What to do with one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Treatment {
    Answer,
    Fail(i32),
    Hold,
    Delay(Duration),
    Die,
}

impl Mode {
    /// Every operation fails with this error.
    #[must_use]
    pub fn fail_all(errno: Errno) -> Self {
        Self::Fail(errno, Vec::new())
    }

    /// These operations fail with this error.
    #[must_use]
    pub fn fail(errno: Errno, operations: &[&str]) -> Self {
        Self::Fail(errno, operations.iter().map(|name| (*name).to_owned()).collect())
    }

    /// No request is answered.
    #[must_use]
    pub fn hang_all() -> Self {
        Self::Hang(Vec::new())
    }

    pub(super) fn treat(&self, operation: &str, file: &str) -> Treatment {
        let names = |name: &String| match name.split_once(':') {
            Some((named, one)) => named == operation && one == file,
            None => name == operation,
        };
        let meant = |list: &[String]| list.is_empty() || list.iter().any(names);
        match self {
            Self::Fail(errno, list) if meant(list) => Treatment::Fail(*errno as i32),
            Self::Hang(list) if meant(list) => Treatment::Hold,
            Self::Slow(time, list) if meant(list) => Treatment::Delay(*time),
            Self::Die => Treatment::Die,
            Self::Ok | Self::Fail(..) | Self::Hang(_) | Self::Slow(..) => Treatment::Answer,
        }
    }
}

/// Only reads know which file they are for.
fn is_operation(name: &str) -> bool {
    OPERATIONS.contains(&name) || name.strip_prefix("read:").is_some_and(|file| !file.is_empty())
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::Fail(errno, list) => write!(f, "err {} {}", *errno as i32, list.join(",")),
            Self::Hang(list) => write!(f, "hang {}", list.join(",")),
            Self::Slow(time, list) => write!(f, "slow {} {}", time.as_millis(), list.join(",")),
            Self::Die => f.write_str("die"),
        }
    }
}

impl FromStr for Mode {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut words = text.split_whitespace();
        let kind = words.next().unwrap_or_default();
        let number = match kind {
            "err" | "slow" => {
                let word = words.next().context("a number is missing")?;
                word.parse::<u64>().with_context(|| format!("{word} is not a number"))?
            }
            _ => 0,
        };
        let list: Vec<String> =
            words.next().map(|list| list.split(',').map(str::to_owned).collect()).unwrap_or_default();
        if let Some(odd) = list.iter().find(|name| !is_operation(name)) {
            bail!("no operation is called {odd}; there are {}", OPERATIONS.join(", "));
        }
        Ok(match kind {
            "ok" => Self::Ok,
            "err" => Self::Fail(Errno::from_raw(i32::try_from(number).context("too large")?), list),
            "hang" => Self::Hang(list),
            "slow" => Self::Slow(Duration::from_millis(number), list),
            "die" => Self::Die,
            odd => bail!("no mode is called {odd}; there are ok, err, hang, slow, die"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Mode, Treatment};
    use nix::errno::Errno;
    use std::time::Duration;

    #[test]
    fn a_mode_reads_back_as_it_was_written() {
        for mode in [
            Mode::Ok,
            Mode::fail(Errno::ESTALE, &["read", "open"]),
            Mode::fail_all(Errno::EIO),
            Mode::hang_all(),
            Mode::Slow(Duration::from_millis(50), vec!["read".to_owned()]),
            Mode::Die,
        ] {
            assert_eq!(mode.to_string().parse::<Mode>().unwrap(), mode);
        }
        assert!("err 5 reed".parse::<Mode>().is_err());
        assert!("".parse::<Mode>().is_err());
    }

    #[test]
    fn only_the_operations_that_were_named_are_treated() {
        let mode = Mode::fail(Errno::EIO, &["read"]);
        assert_eq!(mode.treat("read", "data1"), Treatment::Fail(5));
        assert_eq!(mode.treat("open", ""), Treatment::Answer);
        let mode = Mode::fail(Errno::EIO, &["read:data3"]);
        assert_eq!(mode.treat("read", "data3"), Treatment::Fail(5));
        assert_eq!(mode.treat("read", "data1"), Treatment::Answer);
        assert_eq!(Mode::fail_all(Errno::EIO).treat("open", ""), Treatment::Fail(5));
    }
}
