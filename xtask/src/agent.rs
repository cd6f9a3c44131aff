//! Building and running the agent.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{cargo, must, root, step};
use crate::setup;

/// How the agent is built: a profile of the workspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Profile {
    /// For tests on this machine.
    Debug,
    /// As it is shipped.
    Release,
    /// For tests in emulated guests.
    Guest,
}

impl Profile {
    /// What cargo calls it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Debug => "dev",
            Self::Release => "release",
            Self::Guest => "guest",
        }
    }

    /// Where cargo puts what it builds, below its target.
    const fn folder(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Release | Self::Guest => self.name(),
        }
    }
}

/// Builds the kernel programs and the agent; returns the binary.
pub(crate) fn build(profile: Profile) -> Result<PathBuf> {
    step(&format!("building the agent ({})", profile.folder()));
    must(cargo().args(["build", "--profile", profile.name(), "--package", "agent"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join(profile.folder()).join("mountie"))
}

/// Sets up, builds, and becomes `mountie run`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    setup::run()?;
    let binary = build(Profile::Release)?;
    step(&format!("{} run {}", binary.display(), args.join(" ")));
    let error = Command::new(&binary).arg("run").args(args).exec();
    Err(error).with_context(|| format!("failed to run {}", binary.display()))
}
