//! Stands in for process 1 where a case runs among the machine's own processes: buries what others leave, and
//! when the case is over ends all that it started.
//!
//! Only for machines that belong to the tests. There the agent runs as it is deployed, in the first process
//! namespace: elsewhere old kernels let nothing hang on functions.

use std::ffi::OsStr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::{FAILED, PASSED, SKIPPED, start_case};
use crate::harness::agent::is_agent;
use crate::harness::process::{self, descendants, is_running, send};
use crate::harness::wait::{now, patiently, pause};

/// How long processes may take to go once they are killed. An agent with many programs on functions of the kernel
/// takes longest: the kernel takes them away one by one, and waits after each.
const GOING: Duration = Duration::from_secs(30);

/// How long this process may take to end everything, when it is told to.
pub(super) const END: Duration = Duration::from_secs(70);

/// Runs a case, and comes back when nothing of it runs any more.
pub fn run_reaper(name: &OsStr, directory: &OsStr) -> ExitCode {
    let code = match attend(name, directory) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:#}");
            FAILED
        }
    };
    let left = end_all();
    if left.is_empty() {
        std::process::exit(code);
    }
    let names: Vec<String> = left.iter().map(|id| process::shown(*id)).collect();
    eprintln!("nothing ends these processes of the case: {}", names.join(", "));
    std::process::exit(if code == PASSED || code == SKIPPED { FAILED } else { code })
}

/// Starts the case and buries orphans until it ends; or until this process is told to end it.
fn attend(name: &OsStr, directory: &OsStr) -> Result<i32> {
    set_child_subreaper(true).context("cannot take orphans in")?;
    set_pdeathsig(Signal::SIGTERM).context("cannot ask for a signal")?;
    let case = start_case(name, directory)?;
    // After the start: a child keeps what is blocked.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    signals.add(Signal::SIGTERM);
    signals.thread_block().context("cannot block signals")?;
    loop {
        if let Some(code) = bury(Some(case)) {
            return Ok(code);
        }
        if signals.wait().context("cannot wait for a signal")? == Signal::SIGTERM {
            return Ok(FAILED);
        }
    }
}

/// Takes the ends of all children that have ended; how the case ended, if it is among them.
fn bury(case: Option<i32>) -> Option<i32> {
    let mut ended = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(id, code)) if Some(id.as_raw()) == case => ended = Some(code),
            Ok(WaitStatus::Signaled(id, signal, _)) if Some(id.as_raw()) == case => {
                eprintln!("the case was ended by {signal}");
                ended = Some(FAILED);
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return ended,
            Ok(_) | Err(_) => {}
        }
    }
}

/// Kills everything below this process. The agents go first and by themselves: the kernel lets go of their
/// programs then, and nothing that they watch is in the way. What is still there is returned.
fn end_all() -> Vec<u32> {
    kill_until_gone(is_agent);
    kill_until_gone(|_| true)
}

fn kill_until_gone(chosen: impl Fn(u32) -> bool) -> Vec<u32> {
    let begin = now();
    loop {
        bury(None);
        let left: Vec<u32> =
            descendants(std::process::id()).into_iter().filter(|id| is_running(*id) && chosen(*id)).collect();
        if left.is_empty() || now().saturating_sub(begin) > patiently(GOING) {
            return left;
        }
        for id in &left {
            // One that has just ended is no failure.
            let _ = send(*id, Signal::SIGKILL);
        }
        pause(Duration::from_millis(10));
    }
}
