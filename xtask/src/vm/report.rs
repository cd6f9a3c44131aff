//! What came of the guests: told as they end, gathered in the table, written to a file after a full run.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::command::step;

use super::guest::{Ending, Outcome};
use super::kernel::Kernel;
use super::suite::{self, Planned};
use super::table::{self, Column, Row};

/// Where the table of a full run is kept.
pub(super) const FILE: &str = "tests/KERNELS.md";

const HEAD: &str = "\
# Kernels

What works on which kernel, seen in emulated guests with distributions' own kernels.
Written by `cargo xtask vm`; a run without arguments writes it anew.
`–` means that nothing was said about the row on that kernel.

";

/// The table under way.
pub(super) struct Report {
    columns: Vec<Column>,
    failed: Vec<String>,
    /// Where the table is kept; of a full run alone.
    file: Option<PathBuf>,
}

impl Report {
    pub(super) fn new(kernels: &[Kernel], file: Option<PathBuf>) -> Self {
        let column = |kernel: &Kernel| Column {
            name: kernel.name.to_owned(),
            release: kernel.release.clone(),
            rows: Vec::new(),
        };
        Self { columns: kernels.iter().map(column).collect(), failed: Vec::new(), file }
    }

    /// Takes what came of one guest; tells a failure in full.
    pub(super) fn take(&mut self, kernel: &Kernel, planned: &Planned, outcome: &Outcome) -> Result<()> {
        let how = ending(outcome, planned.job.deadline);
        let has_passed = outcome.ending == Ending::Exited(0);
        let title = format!("{}: {}", kernel.name, planned.job.name);
        if !has_passed {
            println!("── {title}: what it printed\n{}", outcome.output.trim_end());
            if let Ending::TimedOut(console) | Ending::Died(console) = &outcome.ending {
                println!("── {title}: the end of its console\n{console}");
            }
            self.failed.push(title.clone());
        }
        let counts = suite::counts(&outcome.output);
        let words = counts.clone().map_or(String::new(), |counts| format!(", {counts}"));
        step(&format!("{title}: {how}{words}, {:.0} s", outcome.took.as_secs_f64()));
        let mut rows = table::parse(&outcome.rows)?;
        if planned.part.is_row {
            let result = match (&outcome.ending, counts) {
                (Ending::Exited(_), Some(counts)) => counts,
                _ => how,
            };
            rows.push(Row {
                table: "suites".to_owned(),
                family: planned.family.label().to_owned(),
                row: planned.part.name.to_owned(),
                result,
            });
        }
        let column = self.columns.iter_mut().find(|column| column.name == kernel.name);
        column.context("a guest of an unknown kernel")?.rows.extend(rows);
        // A run takes long: what was seen is kept when it is ended.
        self.write().map(drop)
    }

    /// Prints the table, and fails when a guest failed.
    pub(super) fn finish(mut self) -> Result<()> {
        println!("\n{}", self.write()?);
        if self.file.is_some() {
            step(&format!("written to {FILE}"));
        }
        if self.failed.is_empty() {
            return Ok(());
        }
        bail!("{} of the guests failed:\n  {}", self.failed.len(), self.failed.join("\n  "));
    }

    /// The table as it is by now, also in its file.
    fn write(&mut self) -> Result<String> {
        for column in &mut self.columns {
            // Guests end in any order; the table does not change with it.
            column.rows.sort_by_key(order_of);
        }
        let text = table::render(&self.columns);
        if let Some(file) = &self.file {
            fs::write(file, format!("{HEAD}{text}"))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(text)
    }
}

/// Parts are in the order of the suite, families in that of their names.
fn order_of(row: &Row) -> (usize, String) {
    let part = suite::PARTS.iter().position(|part| part.name == row.row);
    (part.unwrap_or(0), row.family.clone())
}

/// How a guest ended, in a few words.
pub(super) fn ending(outcome: &Outcome, deadline: Duration) -> String {
    match &outcome.ending {
        Ending::Exited(0) => "passed".to_owned(),
        Ending::Exited(code) => format!("exit code {code}"),
        Ending::TimedOut(_) => format!("not done in {} s, ended", deadline.as_secs()),
        Ending::Died(_) => "the guest died".to_owned(),
    }
}
