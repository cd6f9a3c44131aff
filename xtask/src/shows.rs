//! What is shown or measured on real mounts: parts of the test bench, run with a release build of the agent.

use std::path::Path;

use anyhow::Result;

use crate::command::{cargo, must, need_root};
use crate::{agent, setup};

/// Runs one show in namespaces of its own, before the user's eyes.
pub(crate) fn run(name: &str, count: usize) -> Result<()> {
    run_with(name, count, &[])
}

/// The same, with paths that it is told in the environment.
pub(crate) fn run_with(name: &str, count: usize, settings: &[(&str, &Path)]) -> Result<()> {
    need_root(name)?;
    setup::run()?;
    let binary = agent::build(agent::Profile::Release)?;
    let mut bench = cargo();
    bench.args([
        "test",
        "--quiet",
        "--package",
        "integration-tests",
        "--test",
        "cases",
        "--",
        "--show",
        name,
    ]);
    bench.envs(settings.iter().copied());
    must(bench.env("MOUNTIE_BIN", &binary).env("SHOW_COUNT", count.to_string()))
}
