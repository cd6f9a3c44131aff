//! The disposable process that becomes a hook's program. Whoever starts a program waits until it is loaded; where its
//! path hangs, this process does the waiting instead of the event loop, and is killed like the program.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::exit_code::ExitCode;
use crate::sys::{descriptors, out_of_memory, parent_death};

/// Where programs are looked for. The agent's own environment never reaches a hook.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The name of the hidden subcommand that calls [`run_ask_child`].
pub const ASK_SUBCOMMAND: &str = "ask";

/// The body of the hidden subcommand: becomes the program, or says why it cannot.
#[must_use]
pub fn run_ask_child(parent: u32, argv: &[OsString]) -> ExitCode {
    descriptors::close_inherited();
    out_of_memory::take_no_precedence();
    if !parent_death::follow(parent).unwrap_or(false) {
        return ExitCode::Internal;
    }
    eprintln!("{}", become_program(argv));
    ExitCode::NoProgram
}

/// Returns only when there is no such program.
fn become_program(argv: &[OsString]) -> io::Error {
    let program = argv.first().map_or(OsStr::new(""), OsString::as_os_str);
    Command::new(program)
        .args(argv.iter().skip(1))
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .env("LANG", "C")
        .exec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a process of its own: an `exec` that fails leaves its process without protection against closed pipes.
    #[test]
    fn what_cannot_be_started_is_said() {
        const ALONE: &str = "MOUNTIE_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let test = "asking::launch::tests::what_cannot_be_started_is_said";
            let program = std::env::current_exe().unwrap();
            let output = Command::new(program).args(["--exact", test]).env(ALONE, "1").output().unwrap();
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && told.contains("1 passed"), "{told}");
            return;
        }
        for (program, expected) in [
            ("/nonexistent/ask", io::ErrorKind::NotFound),
            ("/etc/passwd", io::ErrorKind::PermissionDenied),
            ("", io::ErrorKind::NotFound),
        ] {
            assert_eq!(become_program(&[program.into()]).kind(), expected, "{program}");
        }
        assert_eq!(become_program(&[]).kind(), io::ErrorKind::NotFound);
    }
}
