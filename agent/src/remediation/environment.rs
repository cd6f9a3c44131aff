//! Variables for a helper, from a file that only root can read. They exist in the child that starts the helper, from
//! that moment on, and in the helper: never in the agent, its arguments, its journal or its state.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use agent_core::path::BytePath;
use agent_core::remediation::Refusal;

use super::scene::{Stop, say};

/// More than anybody needs.
const LARGEST: u64 = 64 * 1024;

/// The open file, checked and not read yet.
pub(super) struct EnvironmentFile {
    file: File,
    path: BytePath,
}

/// Names and values.
pub(super) type Variables = Vec<(OsString, OsString)>;

impl EnvironmentFile {
    /// Opens the file, if it is root's alone.
    pub(super) fn open(path: &BytePath) -> Result<Self, Stop> {
        say(format!("open the environment file {path}"));
        let refuse = |why: String| Stop::Refused(Refusal::NotPrepared, why);
        // Not blocking: what is no file must not keep anybody waiting.
        let name = std::ffi::OsStr::from_bytes(path.as_bytes());
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY)
            .open(name)
            .map_err(|error| refuse(format!("the environment file {path} cannot be opened: {error}")))?;
        let metadata = file
            .metadata()
            .map_err(|error| refuse(format!("the environment file {path} cannot be looked at: {error}")))?;
        match defect(path, &metadata) {
            None => Ok(Self { file, path: path.clone() }),
            Some(why) => Err(refuse(why)),
        }
    }

    /// Reads it, at the moment of use. What is wrong is told by line, never by content.
    pub(super) fn read(mut self) -> Result<Variables, Stop> {
        let path = &self.path;
        let refuse = |why: String| Stop::Refused(Refusal::NotPrepared, why);
        let mut text = Vec::new();
        Read::by_ref(&mut self.file)
            .take(LARGEST)
            .read_to_end(&mut text)
            .map_err(|error| refuse(format!("the environment file {path} cannot be read: {error}")))?;
        parse(&text).map_err(|line| {
            refuse(format!(
                "line {line} of the environment file {path} is no NAME=VALUE; names are letters, digits and _"
            ))
        })
    }
}

/// Why a file may not hold the variables of what root runs.
pub(super) fn defect(path: &BytePath, metadata: &Metadata) -> Option<String> {
    let mode = metadata.mode() & 0o7777;
    if !metadata.is_file() {
        return Some(format!("the environment file {path} is not a regular file"));
    }
    if metadata.uid() != 0 {
        let uid = metadata.uid();
        return Some(format!(
            "the environment file {path} belongs to uid {uid}; what root runs must be root's: chown root {path}"
        ));
    }
    if mode & 0o077 != 0 {
        return Some(format!(
            "the environment file {path} is open to others than root (mode {mode:04o}): chmod 600 {path}"
        ));
    }
    (metadata.len() > LARGEST).then(|| format!("the environment file {path} is larger than {LARGEST} bytes"))
}

/// `NAME=VALUE` a line; empty lines and those that begin with `#` are left out. A value is taken as it stands, but
/// for one pair of quotes around it; nothing in it is replaced. The error is the number of the line.
pub(super) fn parse(text: &[u8]) -> Result<Variables, usize> {
    let mut variables = Variables::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let variable = line.iter().position(|byte| *byte == b'=').and_then(|at| {
            let (name, value) = (line.get(..at)?, line.get(at + 1..)?);
            (is_name(name) && !value.contains(&0)).then(|| (name.to_vec(), unquoted(value).to_vec()))
        });
        let Some((name, value)) = variable else { return Err(number + 1) };
        variables.push((OsString::from_vec(name), OsString::from_vec(value)));
    }
    Ok(variables)
}

fn is_name(name: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    name.first().is_some_and(|first| !first.is_ascii_digit()) && name.iter().all(is_plain)
}

fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] | [b'\'', inner @ .., b'\''] => inner,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn values_are_taken_as_they_stand() {
        let text = b"# comment\n\nA=1\nB=\"x y\"\nC='$A `id`'\nD=a=b\nE=\n  F_2=\xe9\r\n";
        let variables = parse(text).unwrap();
        let shown: Vec<String> = variables
            .iter()
            .map(|(name, value)| {
                agent_core::path::escape(&[name.as_bytes(), b"=", value.as_bytes()].concat())
            })
            .collect();
        assert_eq!(shown, ["A=1", "B=x y", "C=$A `id`", "D=a=b", "E=", "F_2=\\xe9"]);
    }

    #[test]
    fn what_is_wrong_is_told_by_line() {
        for (text, line) in
            [("A=1\nexport B=2", 2), ("A", 1), ("=x", 1), ("1A=x", 1), ("A-B=x", 1), ("\n\nA=\0", 3)]
        {
            assert_eq!(parse(text.as_bytes()), Err(line), "{text:?}");
        }
    }

    #[test]
    fn only_roots_own_file_is_taken() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("env");
        let path = BytePath::new(name.as_os_str().as_bytes());
        let told = || match EnvironmentFile::open(&path) {
            Ok(file) => file.read().map(|variables| variables.len()).map_err(|_| "unreadable".to_owned()),
            Err(Stop::Refused(Refusal::NotPrepared, text)) => Err(text),
            Err(stop) => Err(format!("{stop:?}")),
        };
        assert!(told().unwrap_err().contains("cannot be opened"));
        std::fs::write(&name, "A=Zx9\nB=2\n").unwrap();
        let set = |mode| std::fs::set_permissions(&name, std::fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o644, 0o640, 0o602, 0o601] {
            set(mode);
            let text = told().unwrap_err();
            assert!(text.contains(&format!("mode {mode:04o}")) && text.contains("chmod 600"), "{text}");
        }
        for mode in [0o600, 0o400] {
            set(mode);
            assert_eq!(told(), Ok(2));
        }
        std::os::unix::fs::chown(&name, Some(65534), None).unwrap();
        assert!(told().unwrap_err().contains("chown root"));
        std::fs::remove_file(&name).unwrap();
        std::fs::create_dir(&name).unwrap();
        assert!(told().unwrap_err().contains("not a regular file"));
    }
}
