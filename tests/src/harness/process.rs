//! Processes of the bench: programs run to their end, background processes ended with their owner, and what
//! `/proc` says about others.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::wait::{now, wait_for, wait_for_some};

/// Runs a program to its end and returns what it printed.
///
/// # Errors
/// When it cannot be started, or ends with anything but 0.
pub fn run(program: &str, arguments: &[&OsStr]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("{program} {arguments:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// This program under another name, which the kernel then shows as the name of its processes.
///
/// # Errors
/// When the link cannot be made.
pub fn this_program_as(directory: &Path, name: &str) -> Result<PathBuf> {
    let link = directory.join(name);
    let this_program = std::env::current_exe().context("cannot find this program")?;
    match std::os::unix::fs::symlink(&this_program, &link) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot make {}", link.display()))
        }
        _ => Ok(link),
    }
}

/// What a program printed and how it ended, if it ended within the time. Its output must be small.
///
/// # Errors
/// When it cannot be started, or has not ended in time; it is killed then.
pub fn run_within(command: &mut Command, within: Duration) -> Result<Output> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut background = Background(child.with_context(|| format!("cannot start {command:?}"))?);
    background.ended_within(within).with_context(|| format!("{command:?}"))?;
    background.output()
}

/// A process that is killed when its owner is dropped.
#[derive(Debug)]
pub struct Background(pub Child);

impl Background {
    /// Its id, in the case's process namespace where it has one.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        send(self.id(), signal)
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.0.try_wait().context("cannot wait for a process")
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it has not ended in time.
    pub fn ended_within(&mut self, within: Duration) -> Result<ExitStatus> {
        let id = self.id();
        wait_for_some(&format!("process {id} ends"), within, || self.ended())
    }

    /// What it printed, after its end.
    fn output(mut self) -> Result<Output> {
        use std::io::Read;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        if let Some(pipe) = self.0.stdout.as_mut() {
            pipe.read_to_end(&mut stdout).context("cannot read the output")?;
        }
        if let Some(pipe) = self.0.stderr.as_mut() {
            pipe.read_to_end(&mut stderr).context("cannot read the output")?;
        }
        let status = self.0.wait().context("cannot wait for a process")?;
        Ok(Output { status, stdout, stderr })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Not waited for: one that hangs in the kernel would hold the case up.
        let _ = self.0.kill();
    }
}

/// Sends a signal to a process that this case started.
///
/// # Errors
/// When it is gone.
pub fn send(process: u32, signal: Signal) -> Result<()> {
    let id = i32::try_from(process).context("not a process id")?;
    kill(Pid::from_raw(id), signal).with_context(|| format!("cannot signal process {process}"))
}

/// The processes that this one can see: those of the case's process namespace, where it has one.
#[must_use]
pub fn all() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Whether a process still runs, or any thread of it still holds its descriptors.
///
/// kernel: `do_exit`, kernel/exit.c: descriptors are closed before the state becomes Z, for each thread by itself.
#[must_use]
pub fn is_running(process: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    let threads = fs::read_dir(format!("/proc/{process}/task")).map(Iterator::count).unwrap_or(0);
    !matches!(state, Some('Z' | 'X')) || threads > 1
}

/// Waits until processes are gone, with all that they held.
///
/// # Errors
/// When one is still there after ten seconds.
pub fn wait_gone(processes: &[u32]) -> Result<()> {
    let what = format!("the processes {processes:?} are gone");
    wait_for(&what, Duration::from_secs(10), || !processes.iter().any(|id| is_running(*id)))
}

/// The arguments of a process. Empty for one that has ended.
#[must_use]
pub fn arguments(process: u32) -> Vec<Vec<u8>> {
    let bytes = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty()).map(<[u8]>::to_vec).collect()
}

/// A number from `/proc/PID/status`.
#[must_use]
pub fn status_number(process: u32, field: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The children of a process that have not ended.
#[must_use]
pub fn children(process: u32) -> Vec<u32> {
    all()
        .into_iter()
        .filter(|one| status_number(*one, "PPid") == Some(u64::from(process)) && !arguments(*one).is_empty())
        .collect()
}

/// Everything below a process, however deep.
#[must_use]
pub fn descendants(process: u32) -> Vec<u32> {
    let with_parents = all().into_iter().filter_map(|id| Some((id, parent(id)?)));
    let pairs: Vec<(u32, u32)> = with_parents.collect();
    let (mut found, mut next) = (Vec::new(), vec![process]);
    while let Some(above) = next.pop() {
        let below = pairs.iter().filter(|(id, parent)| *parent == above && !found.contains(id));
        let below: Vec<u32> = below.map(|(id, _)| *id).collect();
        next.extend(&below);
        found.extend(below);
    }
    found
}

/// kernel: `do_task_stat`, fs/proc/array.c: the parent's id is the second field behind the name.
fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

/// What people call a process: its number and its first arguments.
#[must_use]
pub fn shown(process: u32) -> String {
    let words: Vec<_> =
        arguments(process).iter().take(3).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    format!("{process} ({})", words.join(" "))
}

/// The inode number of the first process namespace of every kernel.
///
/// kernel: `PROC_PID_INIT_INO`, include/linux/proc_ns.h, since 3.8.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// Whether this process is in the first process namespace: then the ids that the kernel tells are those in `/proc`.
#[must_use]
pub fn is_among_all() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link == Path::new(FIRST_NAMESPACE))
}

/// How many descriptors a process has open.
#[must_use]
pub fn open_descriptors(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).map(Iterator::count).unwrap_or(0)
}

/// How long `work` took, beside what it returned.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begin = now();
    let result = work();
    (result, now().saturating_sub(begin))
}
