//! Pages that are made of tables in the code. The test that holds a page to its table writes it when it is told to.

use anyhow::Result;

use crate::command::{cargo, must, step};

/// Tells that test to write.
const WRITE: &str = "MOUNTIE_WRITE_DOCS";

/// Writes every such page.
pub(crate) fn run() -> Result<()> {
    step("docs/METRICS.md");
    must(
        cargo()
            .args(["test", "--quiet", "--package", "agent", "--lib", "the_page_is_what_the_tables_give"])
            .env(WRITE, "1"),
    )
}
