//! Pages that are made of tables in the code. The test that holds a page to its table writes it when it is told to.
//! Manual pages are made by the agent itself, of its command line.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::agent::{self, Profile};
use crate::command::{cargo, must, root, step};

/// Tells those tests to write.
const WRITE: &str = "MOUNTIE_WRITE_DOCS";

/// The tests, by the end of their names.
const PAGES: &str = "the_page_is_what_the_tables_give";

/// Writes every such page, and the manual pages into a directory.
pub(crate) fn run(man: &Path) -> Result<()> {
    step("docs/METRICS.md, docs/CONFIGURATION.md, docs/VERDICTS.md");
    must(cargo().args(["test", "--quiet", "--package", "agent", "--lib", PAGES]).env(WRITE, "1"))?;
    let binary = agent::build(Profile::Debug)?;
    let man = root().join(man);
    step(&format!("manual pages in {}", man.display()));
    must(Command::new(binary).args(["man", "--dir"]).arg(man))
}
