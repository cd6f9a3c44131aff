//! Ties the life of a child process to its parent's: nothing acts on mounts that nobody waits for.
#![expect(unsafe_code, reason = "a child is prepared between fork and exec")]

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid};

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
