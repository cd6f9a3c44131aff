//! Process 1 of a test guest. Starts in the initramfs, moves to the root image, makes a system of it, runs the
//! one command that the host left in `/work`, says there how it ended, and powers off.
//!
//! What goes wrong before the command runs is printed to the console and ends the guest without an exit code:
//! the host shows the console then.
#![forbid(unsafe_code)]

mod command;
mod root;
mod system;

use std::process::ExitCode;

use nix::sys::reboot::{RebootMode, reboot};

fn main() -> ExitCode {
    if std::process::id() != 1 {
        eprintln!("vm-init is process 1 of a test guest and does nothing elsewhere");
        return ExitCode::from(64);
    }
    let done = root::enter().and_then(|()| system::set_up()).and_then(|()| command::run());
    if let Err(error) = done {
        eprintln!("vm-init: {error:#}");
    }
    // Only the share must be on disk, and the command's end has written it there. A `sync` of everything would
    // wait for ever for the devices that the command has broken.
    let refused = reboot(RebootMode::RB_POWER_OFF);
    eprintln!("vm-init: cannot power off: {refused:?}");
    // Process 1 must not end: the kernel panics then, which ends the guest as well.
    ExitCode::FAILURE
}
