//! Ties the life of a child process to its parent's: nothing acts on mounts that nobody waits for.
#![expect(unsafe_code, reason = "a child is prepared between fork and exec")]

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{Pid, getpgrp, getpid, getppid};

/// Has the kernel kill this process when the thread that started it ends. False when that parent, the process
/// `parent`, is already gone.
///
/// # Errors
/// When the kernel refuses `PR_SET_PDEATHSIG`.
pub fn follow(parent: u32) -> nix::Result<bool> {
    set_pdeathsig(Signal::SIGKILL)?;
    // The parent may have ended before the call; then nobody sends the signal any more.
    Ok(u32::try_from(getppid().as_raw()) == Ok(parent))
}

/// As [`follow`], for a process that leads a group of its own: the whole group ends with the parent, also what a
/// helper has started, which no setting of the helper reaches. What left the group lives on.
///
/// The kernel sends SIGTERM, and the group is killed by the handler. A process that waits where no signal reaches it
/// is not ended by SIGKILL either.
///
/// # Errors
/// When the kernel refuses one of the settings.
pub fn follow_with_group(parent: u32) -> nix::Result<bool> {
    if getpgrp() != getpid() {
        return follow(parent);
    }
    let action = SigAction::new(SigHandler::Handler(end_group), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler makes one system call and touches nothing else.
    unsafe { sigaction(Signal::SIGTERM, &action) }?;
    SigSet::from(Signal::SIGTERM).thread_unblock()?;
    set_pdeathsig(Signal::SIGTERM)?;
    Ok(u32::try_from(getppid().as_raw()) == Ok(parent))
}

extern "C" fn end_group(_: libc::c_int) {
    // SAFETY: kill(2) may be called in a handler; 0 names the own group, this process included.
    unsafe {
        libc::kill(0, libc::SIGKILL);
    }
}

/// Has the kernel kill the command's process when this thread ends. A daemon that the command forks is not
/// bound: the setting is cleared in a forked child.
pub fn bind(command: &mut Command) {
    let parent = getpid();
    // SAFETY: the closure makes two system calls, allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || prepare(parent));
    }
}

fn prepare(parent: Pid) -> std::io::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    if getppid() == parent { Ok(()) } else { Err(std::io::Error::from_raw_os_error(libc::ESRCH)) }
}
