//! A disposable child of the agent's own that reads procfs: it is asked on its standard input and answers on its
//! standard output.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use super::{environment, parent_death};

/// Starts it. `program`: the agent's executable and the hidden subcommand. Its life is tied to the thread that calls.
///
/// # Errors
/// When the program is empty or cannot be started.
pub fn start(program: &[OsString]) -> io::Result<Child> {
    let none = || io::Error::from(io::ErrorKind::InvalidInput);
    let (executable, arguments) = program.split_first().ok_or_else(none)?;
    let mut command = Command::new(executable);
    environment::clear(&mut command);
    command
        .arg0("mountie")
        .args(arguments)
        .args(["--parent", &std::process::id().to_string()])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    parent_death::bind(&mut command);
    command.spawn()
}
