//! Runs one helper program to its end, in a child of the agent. Nothing here has a deadline of its own: the
//! executor kills the whole process group when the plan's is over.
//!
//! Helpers of FUSE file systems leave a daemon behind. It must live on, must hold nothing of ours, and must not
//! die of a closed pipe: output therefore goes to memory that is sealed once the helper has ended.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::arguments::Invocation;
use super::redact::Secrets;
use crate::sys::parent_death;

/// The most that is kept of a helper's output.
const OUTPUT_LIMIT: u64 = 4 * 1024;
/// The most that a helper may write before its output is cut off.
const WRITE_LIMIT: u64 = 1024 * 1024;
/// How often the size of the output is looked at.
const LOOK_AGAIN: u16 = 250;
/// Where programs are looked for. The agent's own environment never reaches a helper.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How a helper ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ended {
    /// Exit code; negative: the signal.
    pub(super) code: i32,
    /// What it said, cut to a limit, without secrets.
    pub(super) output: String,
}

impl Ended {
    /// The line that says most: the first that is not empty.
    pub(super) fn first_line(&self) -> &str {
        self.output.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing")
    }
}

/// Why a helper did not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum HelperError {
    /// The program could not be started.
    #[error("failed to start the helper: {0}")]
    Start(#[source] std::io::Error),
    /// Its end could not be waited for.
    #[error("failed to wait for the helper: {0}")]
    Wait(#[source] std::io::Error),
    /// No memory for its output.
    #[error("failed to capture the helper's output: {0}")]
    Capture(#[source] std::io::Error),
}

impl HelperError {
    pub(super) fn io(&self) -> &std::io::Error {
        match self {
            Self::Start(error) | Self::Wait(error) | Self::Capture(error) => error,
        }
    }
}

/// Something that is watched while the helper runs.
pub(super) trait Watch {
    /// A file whose POLLPRI means "look".
    fn file(&self) -> Option<BorrowedFd<'_>>;
    /// Called at each POLLPRI, and once after the end.
    fn look(&mut self);
}

/// Watches nothing.
pub(super) struct NoWatch;

impl Watch for NoWatch {
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn look(&mut self) {}
}

/// Runs the helper and waits for its end (not for the end of what it leaves behind).
pub(super) fn run(
    invocation: &Invocation,
    secrets: &Secrets,
    watch: &mut impl Watch,
) -> Result<Ended, HelperError> {
    let mut output = capture_file()?;
    let mut child = start(invocation, &output)?;
    let status = wait(&mut child, &output, watch)?;
    watch.look();
    // From here on a daemon that still writes gets EPERM, and no memory grows behind anybody's back.
    let _ = fcntl_add_seals(&output, SealFlags::WRITE | SealFlags::GROW);
    let mut text = Vec::new();
    output
        .seek(SeekFrom::Start(0))
        .and_then(|_| Read::by_ref(&mut output).take(OUTPUT_LIMIT).read_to_end(&mut text))
        .map_err(HelperError::Capture)?;
    let text = String::from_utf8_lossy(&text);
    Ok(Ended { code: code(status), output: secrets.hide(&text) })
}

fn capture_file() -> Result<File, HelperError> {
    memfd_create("helper-output", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map(File::from)
        .map_err(|errno| HelperError::Capture(errno.into()))
}

fn start(invocation: &Invocation, output: &File) -> Result<Child, HelperError> {
    let mut argv = invocation.argv.iter().map(|argument| OsStr::from_bytes(argument));
    let program = argv.next().unwrap_or_default();
    let stdout = output.try_clone().map_err(HelperError::Capture)?;
    let stderr = output.try_clone().map_err(HelperError::Capture)?;
    let mut command = Command::new(program);
    command
        .args(argv)
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .env("LANG", "C")
        .envs(invocation.environment.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr);
    parent_death::bind(&mut command);
    command.spawn().map_err(HelperError::Start)
}

fn wait(child: &mut Child, output: &File, watch: &mut impl Watch) -> Result<ExitStatus, HelperError> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let handle = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())).transpose();
    let Ok(Some(handle)) = handle else { return child.wait().map_err(HelperError::Wait) };
    let mut is_cut_off = false;
    loop {
        let mut files = vec![PollFd::new(handle.as_fd(), PollFlags::POLLIN)];
        files.extend(watch.file().map(|file| PollFd::new(file, PollFlags::POLLPRI)));
        // A signal or a time-out only means another round.
        let _ = poll(&mut files, PollTimeout::from(LOOK_AGAIN));
        let has_news = files.get(1).and_then(PollFd::any).unwrap_or(false);
        drop(files);
        if has_news {
            watch.look();
        }
        if let Some(status) = child.try_wait().map_err(HelperError::Wait)? {
            return Ok(status);
        }
        let size = output.metadata().map(|metadata| metadata.len()).unwrap_or(0);
        if size > WRITE_LIMIT && !is_cut_off {
            is_cut_off = fcntl_add_seals(output, SealFlags::GROW).is_ok();
        }
    }
}

fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| -signal)).unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Invocation {
        let argv = ["sh", "-c", script].map(|word| word.as_bytes().to_vec()).to_vec();
        Invocation { argv, environment: vec![("PASSWD".into(), "Zx9".into())] }
    }

    #[test]
    fn code_and_output_come_back_without_secrets() {
        let secrets = Secrets::learn(["pass=Zx9"]);
        let ended = run(&shell("echo; echo \"sent $PASSWD\" >&2; exit 32"), &secrets, &mut NoWatch).unwrap();
        assert_eq!((ended.code, ended.first_line()), (32, "sent ***"));
    }

    #[test]
    fn a_signal_is_a_negative_code() {
        let ended = run(&shell("kill -9 $$"), &Secrets::default(), &mut NoWatch).unwrap();
        assert_eq!(ended.code, -9);
    }

    #[test]
    fn the_agents_environment_does_not_reach_the_helper() {
        let ended = run(&shell("env"), &Secrets::default(), &mut NoWatch).unwrap();
        let mut names: Vec<_> = ended.output.lines().filter_map(|line| line.split('=').next()).collect();
        names.sort_unstable();
        names.retain(|name| !matches!(*name, "_" | "PWD" | "SHLVL" | "OLDPWD"));
        assert_eq!(names, ["LANG", "PASSWD", "PATH"]);
    }

    #[test]
    fn a_daemon_that_keeps_the_output_open_does_not_hold_up_the_end() {
        let ended = run(&shell("sleep 30 & echo $!"), &Secrets::default(), &mut NoWatch).unwrap();
        let pid: i32 = ended.first_line().parse().unwrap();
        let alive =
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        assert_eq!((ended.code, alive), (0, Ok(())));
    }

    #[test]
    fn output_without_end_is_cut_off() {
        let ended = run(&shell("yes 2>/dev/null; exit 3"), &Secrets::default(), &mut NoWatch).unwrap();
        assert_eq!((ended.code, ended.output.len() as u64), (3, OUTPUT_LIMIT));
    }
}
