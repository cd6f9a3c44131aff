//! A program that starts another one under a filter that refuses the `bpf` system call, as runtimes of containers do.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// The first argument that makes this program such a one: ERRNO PROGRAM ARGUMENTS.
pub const FLAG: &str = "--without-bpf";

/// The command line that starts a program so.
///
/// # Errors
/// When this program cannot be found.
pub fn wrapper(errno: Errno) -> Result<Vec<String>> {
    let this_program = std::env::current_exe().context("cannot find this program")?;
    Ok(vec![this_program.display().to_string(), FLAG.to_owned(), (errno as i32).to_string()])
}

/// The command line behind [`FLAG`].
#[must_use]
pub fn main(arguments: &[OsString]) -> ExitCode {
    match become_other(arguments) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("without bpf: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn become_other(arguments: &[OsString]) -> Result<std::convert::Infallible> {
    let [errno, program, rest @ ..] = arguments else { bail!("ERRNO PROGRAM ARGUMENTS") };
    let errno: u32 = errno.to_str().and_then(|text| text.parse().ok()).context("not an errno")?;
    // No conditions: every call of that number.
    let filter = SeccompFilter::new(
        BTreeMap::from([(libc::SYS_bpf, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(errno),
        std::env::consts::ARCH.try_into().context("no filters for this machine")?,
    );
    let filter: BpfProgram = filter.and_then(TryInto::try_into).context("cannot make the filter")?;
    apply_filter(&filter).context("cannot set the filter")?;
    Err(Command::new(program).args(rest).exec())
        .with_context(|| format!("cannot start {}", program.display()))
}
