//! The terminal of a command: how large its window is, and giving it back while the command is stopped.

use std::io::Stdout;

use nix::sys::signal::{Signal, raise};

/// The number of the signal by which a terminal stops a command (Ctrl-Z).
pub const STOP_BY_KEY: i32 = Signal::SIGTSTP as i32;

/// Rows and columns of the window behind standard output; `None` when it is none, or says nothing.
#[must_use]
pub fn window(stdout: &Stdout) -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(stdout).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then(|| (usize::from(size.ws_row), usize::from(size.ws_col)))
}

/// Stops this process until somebody has it go on (`fg`).
pub fn stop_here() {
    // Where it cannot be stopped it goes on, which is what comes after a stop anyway.
    let _ = raise(Signal::SIGSTOP);
}
