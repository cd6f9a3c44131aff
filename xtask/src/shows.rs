//! What is shown or measured on real mounts: parts of the test bench, run with a release build of the agent.

use anyhow::Result;

use crate::command::{cargo, must, need_root};
use crate::{agent, setup};

/// Runs one show in namespaces of its own, before the user's eyes.
pub(crate) fn run(name: &str, count: usize) -> Result<()> {
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
    must(bench.env("MOUNTIE_BIN", &binary).env("SHOW_COUNT", count.to_string()))
}
