//! Rows of the table of what works on which kernel. A case says what it found; whoever collects the rows names
//! a file in the environment, one JSON object a line is added to it. Nobody collects by default.

use std::fs::OpenOptions;
use std::io::Write as _;

use anyhow::{Context, Result};
use serde_json::json;

/// Names the file that rows are added to.
pub const FILE: &str = "MOUNTIE_MATRIX";

/// Names the family of hooks that a case is to configure: `auto` when it is not set.
pub const FAMILY: &str = "MOUNTIE_FAMILY";

/// One cell of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row<'a> {
    /// Which part of the table: `programs`, `refusals`, `io`, `faults` or `repairs`.
    pub table: &'a str,
    /// What was tried, as the reader of the table sees it.
    pub row: &'a str,
    /// What came of it, in a word or two: `counted`, `not counted`, `detected in 12 ms`, `healed in 12 ms, gap 0 ms`,
    /// `missed`, `programs run`, or why it could not be tried.
    pub result: &'a str,
    /// More, for the log.
    pub detail: &'a str,
}

/// The family of hooks that the caller asks for.
#[must_use]
pub fn family() -> String {
    std::env::var(FAMILY).unwrap_or_else(|_| "auto".to_owned())
}

/// Adds a row, when somebody collects.
///
/// # Errors
/// When the file cannot be written.
pub fn add(row: &Row<'_>) -> Result<()> {
    let Some(path) = std::env::var_os(FILE) else { return Ok(()) };
    let line = json!({
        "table": row.table,
        "family": family(),
        "row": row.row,
        "result": row.result,
        "detail": row.detail,
    });
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    writeln!(file, "{line}").with_context(|| format!("cannot write {}", path.display()))
}
