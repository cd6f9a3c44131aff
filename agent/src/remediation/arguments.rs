//! The argument lists of helpers. Pure: what is built here is what is run, without a shell.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use agent_core::errno::Errno;
use agent_core::path::BytePath;

/// What a helper is started with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Invocation {
    /// The program and its arguments.
    pub(super) argv: Vec<Vec<u8>>,
    /// Added to the small fixed environment. Values never appear in a process list.
    pub(super) environment: Vec<(OsString, OsString)>,
}

impl Invocation {
    /// With more variables; a later one of the same name counts.
    pub(super) fn with(mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        self.environment.extend(variables);
        self
    }
}

/// What stands for the braces in a configured command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places<'a> {
    /// `{target}`: where the command must mount.
    pub(super) target: Option<&'a BytePath>,
    /// `{mountpoint}`.
    pub(super) mountpoint: &'a BytePath,
    /// `{source}`.
    pub(super) source: &'a [u8],
}

/// Why no helper can be started for a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum ArgumentError {
    /// mount(8) knows no `--` before the source.
    #[error("the source begins with a dash and would be taken for an option")]
    DashedSource,
    /// A NUL byte cannot stand in an argument.
    #[error("an argument holds a NUL byte")]
    Nul,
    /// Nothing to run.
    #[error("the command is empty")]
    Empty,
    /// A unit mounts at its own place.
    #[error("a unit cannot mount at a private place")]
    Unit,
}

impl ArgumentError {
    /// All of them are wrong arguments.
    pub(super) const ERRNO: Errno = Errno(22);
}

/// `mount -t TYPE -o OPTIONS SOURCE PLACE`.
///
/// A CIFS password among the options goes through the environment (`PASSWD`, mount.cifs(8)), so that no
/// process list shows it. Other helpers know no such way: their secrets belong into files.
pub(super) fn mount(
    fstype: &str,
    options: &[String],
    source: &[u8],
    place: &BytePath,
) -> Result<Invocation, ArgumentError> {
    if source.starts_with(b"-") {
        return Err(ArgumentError::DashedSource);
    }
    let mut environment = Vec::new();
    let mut words = Vec::new();
    for option in options {
        match option.split_once('=') {
            Some(("password" | "pass", value)) if matches!(fstype, "cifs" | "smb3") => {
                environment.push(("PASSWD".into(), value.into()));
            }
            _ => words.push(option.as_str()),
        }
    }
    let mut argv = vec![b"mount".to_vec(), b"-t".to_vec(), fstype.as_bytes().to_vec()];
    if !words.is_empty() {
        argv.push(b"-o".to_vec());
        argv.push(words.join(",").into_bytes());
    }
    argv.push(source.to_vec());
    argv.push(place.as_bytes().to_vec());
    check(Invocation { argv, environment })
}

/// Options that make the kernel set up a superblock of its own, where it would otherwise find the old one and
/// show that again: with it nothing would be repaired.
///
/// kernel: `nfs_get_tree_common` (NFS_MOUNT_UNSHARED), fs/nfs/super.c; `match_server` (nosharesock),
/// fs/smb/client/connect.c; `ceph_get_tree` (CEPH_OPT_NOSHARE), fs/ceph/super.c.
pub(super) fn with_own_superblock(fstype: &str, options: &[String]) -> Vec<String> {
    let word = match fstype {
        "nfs" | "nfs4" => "nosharecache",
        "cifs" | "smb3" => "nosharesock",
        "ceph" => "noshare",
        _ => return options.to_vec(),
    };
    let mut options: Vec<String> =
        options.iter().filter(|option| Some(option.as_str()) != word.strip_prefix("no")).cloned().collect();
    if !options.iter().any(|option| option == word) {
        options.push(word.to_owned());
    }
    options
}

/// A configured command with its braces filled in, whole arguments or parts of them.
pub(super) fn command(argv: &[String], places: Places<'_>) -> Result<Invocation, ArgumentError> {
    if argv.first().is_none_or(String::is_empty) {
        return Err(ArgumentError::Empty);
    }
    let argv = argv.iter().map(|argument| fill(argument, places)).collect();
    check(Invocation { argv, environment: Vec::new() })
}

/// One pass, so that braces inside a path or source are not filled in again.
fn fill(argument: &str, places: Places<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = argument;
    while let Some(open) = rest.find('{') {
        let (before, braced) = rest.split_at(open);
        out.extend_from_slice(before.as_bytes());
        let (name, value) = if braced.starts_with("{target}") && places.target.is_some() {
            ("{target}", places.target.map_or(&[][..], BytePath::as_bytes))
        } else if braced.starts_with("{mountpoint}") {
            ("{mountpoint}", places.mountpoint.as_bytes())
        } else if braced.starts_with("{source}") {
            ("{source}", places.source)
        } else {
            ("{", &b"{"[..])
        };
        out.extend_from_slice(value);
        rest = braced.get(name.len()..).unwrap_or_default();
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

fn check(invocation: Invocation) -> Result<Invocation, ArgumentError> {
    let nul = invocation.argv.iter().any(|argument| argument.contains(&0))
        || invocation.environment.iter().any(|(_, value)| value.as_bytes().contains(&0));
    if nul { Err(ArgumentError::Nul) } else { Ok(invocation) }
}

#[cfg(test)]
mod tests;
