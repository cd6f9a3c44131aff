//! Building and running the agent.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{cargo, must, root, step};
use crate::setup;

/// Builds the kernel programs and the agent; returns the binary.
pub(crate) fn build(release: bool) -> Result<PathBuf> {
    let profile = if release { "release" } else { "debug" };
    step(&format!("building the agent ({profile})"));
    let mut build = cargo();
    build.args(["build", "--package", "agent"]);
    if release {
        build.arg("--release");
    }
    must(&mut build)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join(profile).join("mountie"))
}

/// Sets up, builds, and becomes `mountie run`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    setup::run()?;
    let binary = build(true)?;
    step(&format!("{} run {}", binary.display(), args.join(" ")));
    let error = Command::new(&binary).arg("run").args(args).exec();
    Err(error).with_context(|| format!("failed to run {}", binary.display()))
}
