//! Ends the connection of a FUSE file system that hangs.
//!
//! Requests that the daemon has taken and does not answer keep their callers in a wait that no signal ends, also when
//! the mount is detached. Ending the connection gives each of them an error. It cannot be taken back, so it is done to
//! the one superblock that the plan is about, which must still be on top at the mount point, and only where the daemon
//! is at fault. What can refuse a later step of the plan is asked before: a daemon that is slow answers in the end, and
//! is not to be cut off for a plan that then does nothing.

use std::os::fd::AsFd;

use agent_core::remediation::{Outcome, Refusal};
use agent_core::topology::Mount;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::restart::may_restart;
use super::scene::{Scene, Stop, say};
use super::swap::refuse_mounts_below;
use super::wire::{Rest, Step};
use crate::sys::fuse_control::Connection;
use crate::sys::mount_table::Proc;

/// Between two looks at the daemon, in milliseconds: what waits for a disk in one of them may not in the other.
const PAUSE: u16 = 300;

pub(super) fn abort(scene: &Scene, daemon: Option<u32>, is_proven: bool) -> Result<Step, Stop> {
    let place = &scene.mountpoint;
    let stack = scene.stack(place)?;
    let Some(top) = stack.last().filter(|top| scene.is_old(top.superblock)) else {
        let text = format!("{place} does not show the superblock whose connection hangs");
        return Err(Stop::Refused(Refusal::TableChanged, text));
    };
    let number = top.superblock;
    let left =
        |why: &str| Ok(Step::new(Outcome::AlreadySo, format!("left connection {number} alone: {why}")));
    if top.fstype != "fuse" && top.fstype != "fuseblk" && !top.fstype.starts_with("fuse.") {
        return left("it is none of FUSE");
    }
    // From here on the number is this superblock's, whatever others unmount.
    scene.pin_top(top)?;
    say(format!("look at the FUSE connection {number}"));
    let call = |errno| Stop::call(format!("look at the FUSE connection {number}"), errno);
    let connection = match Connection::of(number) {
        Ok(connection) => connection,
        Err(Errno::NOENT) => return left("it has ended"),
        Err(errno) => return Err(call(errno)),
    };
    let waiting = match connection.waiting() {
        Ok(0) => return left("no request waits in it"),
        Ok(waiting) => waiting,
        // Its files say nothing any more once it is taken apart (`fuse_ctl_file_conn_get`, fs/fuse/control.c).
        Err(Errno::PROTO) => return left("it has ended"),
        Err(errno) => return Err(call(errno)),
    };
    let why = if is_proven {
        "a fresh mount answers".to_owned()
    } else {
        match fault_of(&scene.proc, daemon) {
            Ok(fault) => fault,
            Err(why) => return left(&why),
        }
    };
    expect_the_rest(scene, &stack)?;
    say(format!("end the FUSE connection {number}"));
    connection.abort().map_err(|errno| Stop::call(format!("end the FUSE connection {number}"), errno))?;
    let text = format!("ended the FUSE connection {number}, in which {waiting} requests waited: {why}");
    Ok(Step::new(Outcome::Changed, text))
}

/// Refuses what would keep the plan from what the connection is ended for.
fn expect_the_rest(scene: &Scene, stack: &[Mount]) -> Result<(), Stop> {
    let Rest { swaps, restarts } = &scene.rest;
    if *swaps {
        refuse_mounts_below(scene, &scene.table()?, stack)?;
    }
    match restarts {
        Some((unit, daemon)) => may_restart(scene, unit, *daemon),
        None => Ok(()),
    }
}

/// Why the daemon can answer nobody; the error is why it may still do so.
fn fault_of(proc: &Proc, daemon: Option<u32>) -> Result<String, String> {
    let Some(pid) = daemon else {
        return Err(
            "it is not known which process serves it, and nothing else says that it is at fault".into()
        );
    };
    let first = state_of(proc, pid);
    if matches!(first, State::Works) {
        return Err(format!("process {pid}, which serves it, runs or waits for something itself"));
    }
    wait_for_end(pid);
    match (first, state_of(proc, pid)) {
        (State::Gone, State::Gone) => Ok(format!("process {pid}, which served it, is gone")),
        (State::Stopped | State::InKernel, State::Stopped) => {
            Ok(format!("process {pid}, which serves it, is stopped"))
        }
        (State::Stopped | State::InKernel, State::InKernel) => {
            Ok(format!("all threads of process {pid}, which serves it, wait in the kernel"))
        }
        _ => Err(format!("process {pid}, which serves it, has just changed")),
    }
}

/// Waits for the end of a process, for a moment.
fn wait_for_end(pid: u32) {
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let Some(Ok(end)) = id.map(|id| pidfd_open(id, PidfdFlags::empty())) else { return };
    // A signal only shortens the moment.
    let _ = poll(&mut [PollFd::new(end.as_fd(), PollFlags::POLLIN)], PollTimeout::from(PAUSE));
}

/// What a process does, by all of its threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It has ended.
    Gone,
    /// A signal or a tracer has stopped it.
    Stopped,
    /// Every thread is stopped or waits where no signal reaches it.
    InKernel,
    /// Some thread runs, or sleeps until something comes.
    Works,
}

fn state_of(proc: &Proc, pid: u32) -> State {
    let Ok(threads) = proc.threads(pid) else { return State::Gone };
    let stats = threads.iter().filter_map(|thread| proc.read(&format!("{pid}/task/{thread}/stat")).ok());
    state(stats.filter_map(|stat| letter(&stat)))
}

/// kernel: `task_state_array`, fs/proc/array.c, since 4.14: the letters.
fn state(letters: impl Iterator<Item = u8>) -> State {
    let mut state = State::Gone;
    for letter in letters {
        state = match (letter, state) {
            (b'Z' | b'X', state) => state,
            (b'T' | b't', State::Gone | State::Stopped) => State::Stopped,
            (b'T' | b't' | b'D', State::Gone | State::Stopped | State::InKernel) => State::InKernel,
            _ => return State::Works,
        };
    }
    state
}

/// kernel: `do_task_stat`, fs/proc/array.c: `PID (NAME) STATE …`; the name may hold anything.
fn letter(stat: &[u8]) -> Option<u8> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(end + 1..)?.trim_ascii_start().first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_at_fault_only_when_none_of_its_threads_can_answer() {
        let of = |letters: &[u8]| state(letters.iter().copied());
        assert_eq!([of(b""), of(b"Z"), of(b"ZX")], [State::Gone; 3]);
        assert_eq!([of(b"T"), of(b"TtZ")], [State::Stopped; 2]);
        assert_eq!([of(b"D"), of(b"DT"), of(b"TD"), of(b"DZ")], [State::InKernel; 4]);
        assert_eq!([of(b"S"), of(b"DS"), of(b"TR"), of(b"DDI")], [State::Works; 4]);
        assert_eq!(letter(b"71 (a) b) D 1 70"), Some(b'D'));
        assert_eq!(letter(b"71"), None);
    }

    #[test]
    fn a_process_that_works_is_left_alone_and_one_that_is_gone_is_not() {
        let proc = Proc::open().unwrap();
        assert!(fault_of(&proc, Some(std::process::id())).unwrap_err().contains("runs or waits"));
        assert!(fault_of(&proc, None).unwrap_err().contains("not known"));
        assert!(fault_of(&proc, Some(u32::MAX)).unwrap().contains("is gone"));
    }
}
