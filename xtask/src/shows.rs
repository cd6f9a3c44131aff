//! What is shown or measured on real mounts: parts of the test bench, run with a release build of the agent.

use std::ffi::OsStr;

use anyhow::Result;

use crate::command::{cargo, must, need_root};
use crate::{agent, setup};

/// Runs one show in namespaces of its own, before the user's eyes.
pub(crate) fn run(name: &str, count: usize) -> Result<()> {
    run_with::<&str>(name, count, &[])
}

/// The same, with more that it is told in the environment.
pub(crate) fn run_with<V: AsRef<OsStr>>(name: &str, count: usize, settings: &[(&str, V)]) -> Result<()> {
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
    bench.envs(settings.iter().map(|(name, value)| (name, value)));
    must(bench.env("MOUNTIE_BIN", &binary).env("SHOW_COUNT", count.to_string()))
}
