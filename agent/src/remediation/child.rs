//! Starts, hears, kills and reaps the children that act.
//!
//! A child has a process group of its own, and what it runs is in that group. At the deadline the whole group is
//! killed, and so it is when nobody waits for the answer any more; what does not die of that is counted, left
//! behind and reaped when it ends.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::killpg;
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::servers::{Mark, Permit};
use super::wire::{Line, Request, Step};
use crate::sys::environment;
use crate::sys::process_group::Group;

/// How long a killed group may take to be gone before it counts as stuck.
const GRACE: Duration = Duration::from_secs(1);
/// How often the rest of a stuck group is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const LOOK_AGAIN_AT_MOST: Duration = Duration::from_secs(5);

/// How a child ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// With an answer.
    Done(Box<Step>),
    /// Killed at its deadline, while it was about to do this. Where it lives on, it may do it yet.
    TimedOut { doing: String, lives_on: bool },
    /// Killed because it was told to stop, likewise.
    Stopped(String),
    /// Without an answer; the exit code or, negative, the signal.
    Lost { code: i32, doing: String },
}

/// Why no child could be asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChildError {
    /// It could not be started.
    #[error("failed to start a child process: {0}")]
    Start(#[source] std::io::Error),
    /// The request has no form on the wire.
    #[error("failed to encode the request: {0}")]
    Encode(#[source] serde_json::Error),
}

/// What children are started with.
#[derive(Debug)]
pub(super) struct Launcher {
    pub(super) exe: PathBuf,
    pub(super) namespace: Option<PathBuf>,
    pub(super) stuck: Arc<AtomicUsize>,
}

impl Launcher {
    /// Has one child carry out one request. The permits are given back when the child and its helpers
    /// are gone.
    pub(super) async fn run(
        &self,
        request: &Request,
        (limit, stop): (Duration, impl Future<Output = ()>),
        permits: Vec<Permit>,
    ) -> Result<Ending, ChildError> {
        let text = serde_json::to_vec(request).map_err(ChildError::Encode)?;
        let mut child = self.start().map_err(ChildError::Start)?;
        // Declared after the child, so that it is dropped before: an unreaped child keeps the group's number.
        let group = Group::of(&child);
        let mut doing = "start".to_owned();
        let heard = tokio::select! {
            heard = timeout(limit, talk(&mut child, &text, &mut doing)) => heard.map(Some),
            () = stop => Ok(None),
        };
        match heard {
            Ok(None) => {
                let group = group.kill();
                self.wait_for(Leftover { child, group, permits }).await;
                Ok(Ending::Stopped(doing))
            }
            Ok(Some(Some(step))) => {
                // Its end may wait for the kernel to let go of a sick file system; nobody else waits for it.
                // The group is not killed: a program that a helper left behind may be in it.
                group.release();
                self.reap(Leftover { child, group: None, permits });
                Ok(Ending::Done(Box::new(step)))
            }
            Ok(Some(None)) => {
                // Before it is reaped: from then on the number of its group may be somebody else's. What has
                // ended keeps its exit code.
                let group = group.kill();
                let status = timeout(GRACE, child.wait()).await;
                let code = match status {
                    Ok(Ok(status)) => exit_code(status),
                    Ok(Err(_)) | Err(_) => -1,
                };
                self.wait_for(Leftover { child, group, permits }).await;
                Ok(Ending::Lost { code, doing })
            }
            Err(_) => {
                let group = group.kill();
                let lives_on = !self.wait_for(Leftover { child, group, permits }).await;
                Ok(Ending::TimedOut { doing, lives_on })
            }
        }
    }

    fn start(&self) -> std::io::Result<Child> {
        let mut command = Command::new(&self.exe);
        environment::clear(command.as_std_mut());
        command.arg("act");
        if let Some(namespace) = &self.namespace {
            command.arg("--namespace").arg(namespace);
        }
        // Standard error is the agent's own: a panic of the child must be seen. Helpers never get it.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn()
    }

    /// Waits a moment for a group that was killed, and says whether it is gone. What is then still there is stuck in
    /// the kernel.
    async fn wait_for(&self, leftover: Leftover) -> bool {
        let marks = leftover.marks();
        let mut gone = Box::pin(leftover.gone());
        let is_gone = timeout(GRACE, &mut gone).await.is_ok();
        if !is_gone {
            let stuck = Stuck::count(&self.stuck, &marks);
            tokio::spawn(async move {
                gone.await;
                drop(stuck);
            });
        }
        is_gone
    }

    /// Waits for the end in the background.
    fn reap(&self, leftover: Leftover) {
        let counter = Arc::clone(&self.stuck);
        tokio::spawn(async move {
            let marks = leftover.marks();
            let mut gone = Box::pin(leftover.gone());
            if timeout(GRACE, &mut gone).await.is_err() {
                let stuck = Stuck::count(&counter, &marks);
                gone.await;
                drop(stuck);
            }
        });
    }
}

/// A child that is no longer listened to.
struct Leftover {
    child: Child,
    /// The group that was killed, and of which nothing may be left.
    group: Option<Pid>,
    /// Held as long as anything of it lives.
    permits: Vec<Permit>,
}

impl Leftover {
    fn marks(&self) -> Vec<Mark> {
        self.permits.iter().map(Permit::mark).collect()
    }

    async fn gone(mut self) {
        // A pipe that nobody reads must not be what it waits for.
        drop(self.child.stdin.take());
        drop(self.child.stdout.take());
        // Fails only when somebody else has reaped it.
        let _ = self.child.wait().await;
        let mut pause = LOOK_AGAIN;
        while let Some(group) = self.group {
            // Goes over all processes of the node: beside the event loop. A look that failed shows nothing alive.
            if !tokio::task::spawn_blocking(move || is_alive(group)).await.unwrap_or(false) {
                break;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LOOK_AGAIN_AT_MOST);
        }
        drop(self.permits);
    }
}

/// Whether a process of the group still runs. A dead one that its new parent has not reaped yet does not.
fn is_alive(group: Pid) -> bool {
    if killpg(group, None) == Err(Errno::ESRCH) {
        return false;
    }
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    let mut stats = processes.filter_map(Result::ok).filter_map(|entry| {
        let is_process = entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        // `stat` takes no lock that a stuck process may hold, unlike `cmdline` and `maps`.
        is_process.then(|| std::fs::read(entry.path().join("stat")).ok()).flatten()
    });
    stats.any(|stat| is_running_in(&stat, group))
}

/// kernel: `do_task_stat`, fs/proc/array.c: `PID (NAME) STATE PPID PGRP …`; the name may hold anything.
fn is_running_in(stat: &[u8], group: Pid) -> bool {
    let Some(end) = stat.iter().rposition(|byte| *byte == b')') else { return false };
    let rest = String::from_utf8_lossy(stat.get(end + 1..).unwrap_or_default()).into_owned();
    let mut fields = rest.split_whitespace();
    let state = fields.next();
    let found = fields.nth(1).and_then(|field| field.parse().ok()).map(Pid::from_raw);
    found == Some(group) && !matches!(state, Some("Z" | "X"))
}

/// Counts as long as it lives.
struct Stuck(Arc<AtomicUsize>);

impl Stuck {
    fn count(counter: &Arc<AtomicUsize>, places: &[Mark]) -> Self {
        places.iter().for_each(Mark::set_stuck);
        counter.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counter))
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Hands over the request and listens until there is an answer or no more to hear.
async fn talk(child: &mut Child, request: &[u8], doing: &mut String) -> Option<Step> {
    let mut stdin = child.stdin.take()?;
    // A child that died early is noticed when it says nothing.
    let _ = stdin.write_all(request).await;
    drop(stdin);
    let mut lines = BufReader::new(child.stdout.as_mut()?).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line) {
            Ok(Line::Progress(what)) => *doing = what,
            Ok(Line::Done(report)) => return Some((*report).into()),
            Err(_) => return None,
        }
    }
    None
}

fn exit_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|signal| -signal)).unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_counts_until_it_is_dead() {
        let group = Pid::from_raw(70);
        assert!(is_running_in(b"71 (a) b) D 1 70 70 0 -1", group));
        assert!(!is_running_in(b"71 (mount) Z 1 70 70 0 -1", group));
        assert!(!is_running_in(b"71 (mount) D 70 71 70 0 -1", group));
        assert!(!is_running_in(b"", group));
    }
}
