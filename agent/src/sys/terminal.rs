//! The terminal of a command: how large its window is, and giving it back while the command is stopped.
#![expect(unsafe_code, reason = "what a signal does is changed, for which there is no safe wrapper")]

use std::io::Stdout;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};

/// The number of the signal by which a terminal stops a command (Ctrl-Z).
pub const STOP_BY_KEY: i32 = Signal::SIGTSTP as i32;

/// Rows and columns of the window behind standard output; `None` when it is none, or says nothing.
#[must_use]
pub fn window(stdout: &Stdout) -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(stdout).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then(|| (usize::from(size.ws_row), usize::from(size.ws_col)))
}

/// Whether this process is the one that has the terminal: not one that goes on behind a shell (`bg`). Where it cannot be
/// told, nobody else is known to have it.
#[must_use]
pub fn is_ours(stdout: &Stdout) -> bool {
    let has_it = rustix::termios::tcgetpgrp(stdout).ok();
    has_it.is_none_or(|group| group == rustix::process::getpgrp())
}

/// Stops this process as Ctrl-Z does where nobody listens for it, until somebody has it go on (`fg`). Where no shell
/// could do that, the kernel does not stop it.
///
/// kernel: `get_signal`, kernel/signal.c: nothing stops in an orphaned process group, since 2.6.12.
pub fn stop_here() {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of this process.
    let before = unsafe { sigaction(Signal::SIGTSTP, &default) };
    // A stop that does not come about needs nothing done.
    let _ = raise(Signal::SIGTSTP);
    if let Ok(before) = before {
        // SAFETY: it is what was in force a moment ago.
        let _ = unsafe { sigaction(Signal::SIGTSTP, &before) };
    }
}
