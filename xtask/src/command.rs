//! Running programs so that a person sees what runs and what failed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    // The manifest directory is `xtask/`, one below the root.
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// `cargo`, in the root of the workspace.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // What cargo told this program is about xtask, not about what it starts.
    for (key, _) in std::env::vars_os() {
        if key.to_str().is_some_and(|key| key.starts_with("CARGO_PKG_") || key == "CARGO_MANIFEST_DIR") {
            command.env_remove(key);
        }
    }
    command
}

/// Runs to the end, with output going to the terminal; fails with the command line when it fails.
pub(crate) fn must(command: &mut Command) -> Result<()> {
    let line = show(command);
    let status = command.status().with_context(|| format!("failed to start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Says what comes next, so that nothing takes long in silence.
pub(crate) fn step(text: &str) {
    eprintln!("── {text}");
}

/// Fails with a clear sentence unless run as root.
pub(crate) fn need_root(task: &str) -> Result<()> {
    if !is_root() {
        bail!("`cargo xtask {task}` must be run as root: it mounts file systems and loads kernel programs");
    }
    Ok(())
}

/// Whether this process is root, by what procfs says.
pub(crate) fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t0")))
}

fn show(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}
