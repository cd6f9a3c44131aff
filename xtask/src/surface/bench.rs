//! The test bench, whose shows are looked at.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::built;
use crate::command::{cargo, step};

/// Builds it.
pub(super) fn build() -> Result<PathBuf> {
    step("building the bench");
    let mut tests =
        built::tests(cargo().args(["test", "--package", "integration-tests", "--test", "cases"]))?;
    tests.remove("cases").context("cargo has built no test binary `cases`")
}
