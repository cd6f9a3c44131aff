//! How a mark is asked for and answered: the words that the agent and its disposable child exchange.
//!
//! The child gets the group as its standard input, and what to do as arguments:
//! ```text
//! <mount id> <namespace to enter, or -> <automount, or -> <mount point>
//! ```
//! It answers with one line on standard output:
//! ```text
//! mountie-mark set <fsid, hexadecimal>
//! mountie-mark other <mount id that is there>
//! mountie-mark refused <step> <errno>
//! ```

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use agent_core::errno::Errno;
use agent_core::id::MountId;
use agent_core::topology::Mount;
use thiserror::Error;
use tokio::process::Command;

use super::decode::Fsid;
use crate::sys::environment;

/// The name of the hidden subcommand. Its arguments go to [`super::mark_child::run_mark_child`].
pub const MARK_SUBCOMMAND: &str = "mark-fs";

const ANSWER: &str = "mountie-mark";
const STAY: &str = "-";
/// Stands where a mount lies on an automount trap.
const AUTOMOUNT: &str = "automount";
const PLAIN: &str = "-";

/// What the child was doing when it was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarkStep {
    /// Entering the mount namespace.
    Enter,
    /// Opening the mount point.
    Open,
    /// Comparing the mount id.
    Identity,
    /// Setting the mark.
    Mark,
    /// Asking for the fsid.
    Fsid,
}

impl MarkStep {
    pub(crate) const ALL: [Self; 5] = [Self::Enter, Self::Open, Self::Identity, Self::Mark, Self::Fsid];

    const fn word(self) -> &'static str {
        match self {
            Self::Enter => "enter",
            Self::Open => "open",
            Self::Identity => "identity",
            Self::Mark => "mark",
            Self::Fsid => "fsid",
        }
    }
}

/// Why a file system has no mark. It concerns this volume only.
#[derive(Debug, Error)]
pub enum MarkRefused {
    /// An earlier attempt on this superblock has not returned.
    #[error("an earlier attempt to set the mark still hangs")]
    Busy,
    /// Too many attempts have not returned.
    #[error("too many attempts to set marks hang")]
    TooMany,
    /// The child could not be started.
    #[error("the child that sets the mark cannot be started")]
    Start(#[source] io::Error),
    /// The deadline passed. The child is left behind, killed as far as the kernel allows.
    #[error("setting the mark did not return in time")]
    TimedOut,
    /// Another mount is at the path: covered, or replaced meanwhile.
    #[error("another mount (id {found}) is at the path")]
    OtherMount {
        /// What is there.
        found: u64,
    },
    /// The kernel refused.
    #[error("{} ({errno})", explained(*step, *errno))]
    Refused {
        /// Doing what.
        step: MarkStep,
        /// How.
        errno: Errno,
    },
    /// The child ended without an answer.
    #[error("the child that sets the mark gave no answer")]
    NoAnswer,
}

impl MarkRefused {
    /// Whether another try on the same mount would end the same way: the kernel has looked at the file system
    /// and at the caller, and refused.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Refused { step: MarkStep::Mark, errno } if [1, 18, 19, 22, 95].contains(&errno.0))
    }

    /// Whether no file system of this type has anything to report on this kernel.
    #[must_use]
    pub fn is_of_type(&self) -> bool {
        matches!(self, Self::Refused { step: MarkStep::Mark, errno } if [19, 22, 95].contains(&errno.0))
    }
}

/// kernel: answers of `fanotify_mark`, fs/notify/fanotify/fanotify_user.c, as seen on 6.18.
fn explained(step: MarkStep, errno: Errno) -> &'static str {
    match (step, errno.0) {
        (MarkStep::Enter, _) => "the mount namespace cannot be entered",
        (MarkStep::Open, _) => "the mount point cannot be opened",
        (MarkStep::Identity, _) => "the mount cannot be identified",
        (MarkStep::Fsid, _) => "the file system does not tell its id",
        (MarkStep::Mark, 18) => "a subvolume cannot be marked, only the whole file system",
        (MarkStep::Mark, 19) => "this file system has no id for events",
        (MarkStep::Mark, 22) => "the kernel does not know error events",
        (MarkStep::Mark, 95) => "this file system does not support error events",
        (MarkStep::Mark, 1) => "CAP_SYS_ADMIN is missing",
        (MarkStep::Mark, _) => "the mark was refused",
    }
}

/// What the child has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) mount: MountId,
    pub(super) enter: Option<PathBuf>,
    /// Whether the mount lies on an automount trap, which a walk to it springs once it has expired.
    pub(super) is_automount: bool,
    pub(super) mountpoint: PathBuf,
}

impl Request {
    pub(super) fn of(mount: &Mount, is_automount: bool, enter: Option<&Path>) -> Self {
        Self {
            mount: mount.id,
            enter: enter.map(Path::to_owned),
            is_automount,
            mountpoint: PathBuf::from(OsStr::from_bytes(mount.mountpoint.as_bytes())),
        }
    }

    pub(super) fn to_arguments(&self) -> [OsString; 4] {
        let enter = self.enter.as_ref().map_or_else(|| OsString::from(STAY), |path| path.clone().into());
        let trap = if self.is_automount { AUTOMOUNT } else { PLAIN };
        [self.mount.0.to_string().into(), enter, trap.into(), self.mountpoint.clone().into()]
    }

    pub(super) fn from_arguments(arguments: &[OsString]) -> Option<Self> {
        let [mount, enter, trap, mountpoint] = arguments else {
            return None;
        };
        Some(Self {
            mount: MountId(mount.to_str()?.parse().ok()?),
            enter: (enter != STAY).then(|| PathBuf::from(enter)),
            is_automount: trap == AUTOMOUNT,
            mountpoint: PathBuf::from(mountpoint),
        })
    }
}

/// What the child found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Set(Fsid),
    Other(u64),
    Refused(MarkStep, Errno),
}

impl Answer {
    pub(crate) fn to_line(self) -> String {
        match self {
            Self::Set(fsid) => format!("{ANSWER} set {:016x}", fsid.0),
            Self::Other(found) => format!("{ANSWER} other {found}"),
            Self::Refused(step, errno) => format!("{ANSWER} refused {} {}", step.word(), errno.0),
        }
    }

    /// Finds the answer in what the child wrote.
    pub(crate) fn from_output(output: &[u8]) -> Option<Self> {
        std::str::from_utf8(output).ok()?.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().skip_while(|word| *word != ANSWER).collect();
            match words.as_slice() {
                [_, "set", fsid] => u64::from_str_radix(fsid, 16).ok().map(|fsid| Self::Set(Fsid(fsid))),
                [_, "other", found] => found.parse().ok().map(Self::Other),
                [_, "refused", step, errno] => {
                    let step = MarkStep::ALL.into_iter().find(|known| known.word() == *step)?;
                    Some(Self::Refused(step, Errno(errno.parse().ok()?)))
                }
                _ => None,
            }
        })
    }
}

/// The command that sets one mark: `program` with the hidden subcommand, and the group as its standard input.
///
/// Standard input is the one descriptor that a child gets without any unsafe step between fork and exec, and
/// all others are closed on exec.
pub(super) fn mark_command(
    program: &[OsString],
    group: OwnedFd,
    request: &Request,
) -> Result<Command, io::Error> {
    let (executable, arguments) =
        program.split_first().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut command = Command::new(executable);
    environment::clear(command.as_std_mut());
    command
        .args(arguments)
        .args(request.to_arguments())
        .current_dir("/")
        .stdin(Stdio::from(group))
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_command_line_byte_by_byte() {
        for enter in [None, Some(PathBuf::from("/proc/1/ns/mnt"))] {
            let request = Request {
                mount: MountId(u32::MAX),
                is_automount: enter.is_some(),
                enter,
                mountpoint: PathBuf::from(OsStr::from_bytes(b"/mnt/caf\xe9 -\n")),
            };
            assert_eq!(Request::from_arguments(&request.to_arguments()), Some(request));
        }
        assert_eq!(Request::from_arguments(&["x".into(), "-".into(), "-".into(), "/m".into()]), None);
        assert_eq!(Request::from_arguments(&[]), None);
    }

    #[test]
    fn answers_survive_the_pipe_and_nonsense_is_no_answer() {
        let mut answers = vec![Answer::Set(Fsid(0xfedc_ba98_0000_0001)), Answer::Other(u64::MAX)];
        answers.extend(MarkStep::ALL.map(|step| Answer::Refused(step, Errno(18))));
        for answer in answers {
            let output = format!("other words\n{}\n", answer.to_line());
            assert_eq!(Answer::from_output(output.as_bytes()), Some(answer));
        }
        for nonsense in
            [b"".as_slice(), b"mountie-mark", b"mountie-mark set", b"mountie-mark set xyz", b"\xff"]
        {
            assert_eq!(Answer::from_output(nonsense), None);
        }
    }

    #[test]
    fn a_refusal_is_explained() {
        let refused = MarkRefused::Refused { step: MarkStep::Mark, errno: Errno(18) };
        assert_eq!(
            refused.to_string(),
            "a subvolume cannot be marked, only the whole file system (errno 18)"
        );
    }
}
