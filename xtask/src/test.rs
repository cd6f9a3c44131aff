//! All tests, in one command.

use anyhow::Result;

use crate::command::{cargo, must, need_root, step};
use crate::{agent, setup};

/// Sets up, then runs unit, property and integration tests.
pub(crate) fn run(filter: Option<&str>) -> Result<()> {
    need_root("test")?;
    setup::run()?;
    let binary = agent::build(agent::Profile::Debug)?;
    if filter.is_none() {
        step("unit and property tests");
        must(cargo().args(["test", "--workspace", "--exclude", "integration-tests"]))?;
        must(cargo().args(["test", "--package", "integration-tests", "--lib"]))?;
    }
    step("the agent against real mounts");
    let mut cases = cargo();
    cases
        .args(["test", "--package", "integration-tests", "--test", "cases", "--"])
        .env("MOUNTIE_BIN", &binary);
    must(cases.args(filter))
}
