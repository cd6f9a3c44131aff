//! What came of the guests: told as they end, and kept in the table. A run replaces its own cells.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::command::step;

use super::cache;
use super::guest::{Ending, Outcome};
use super::kernel::Kernel;
use super::kernels;
use super::suite::{self, Planned};
use super::table::{self, Key, Row, Table};

/// Where the table is kept.
pub(super) const FILE: &str = "tests/KERNELS.md";

const HEAD: &str = "\
# Kernels

What works on which kernel, seen in emulated guests with distributions' own kernels.
Written by `cargo xtask vm`: a run replaces the cells that it comes to, one without arguments begins anew.
`–` means that nothing was said about the row on that kernel.

";

/// The table under way.
pub(super) struct Report {
    failed: Vec<String>,
    file: PathBuf,
    /// Every row that there is.
    known: Vec<Key>,
}

impl Report {
    /// Goes on with what the file says, or begins `anew`.
    pub(super) fn new(file: PathBuf, known: Vec<Key>, anew: bool) -> Result<Self> {
        let report = Self { failed: Vec::new(), file, known };
        if anew {
            fs::write(&report.file, HEAD)
                .with_context(|| format!("cannot write {}", report.file.display()))?;
        }
        Ok(report)
    }

    /// Takes what came of one guest; tells a failure in full.
    pub(super) fn take(&mut self, kernel: &Kernel, planned: &Planned, outcome: &Outcome) -> Result<()> {
        let how = ending(outcome, planned.job.deadline);
        let has_passed = outcome.ending == Ending::Exited(0);
        let title = format!("{}: {}", kernel.name, planned.job.name);
        if !has_passed {
            println!("── {title}: what it printed\n{}", outcome.output.trim_end());
            if let Some(console) = outcome.ending.console() {
                println!("── {title}: the end of its console\n{console}");
            }
            self.failed.push(title.clone());
        }
        let counts = suite::counts(&outcome.output);
        let words = counts.clone().map_or(String::new(), |counts| format!(", {counts}"));
        step(&format!("{title}: {how}{words}, {:.0} s", outcome.took.as_secs_f64()));
        let mut rows = table::parse_rows(&outcome.rows)?;
        for row in &rows {
            println!("   {}: {}{}", row.row, row.result, row.beside());
        }
        if planned.part.is_row && planned.rows.contains(&planned.part.key(planned.family)) {
            let result = match (&outcome.ending, counts) {
                (Ending::Exited(_), Some(counts)) => counts,
                _ => how,
            };
            rows.push(Row::of_suite(planned.family.label(), planned.part.name, result));
        }
        if !planned.is_kept {
            return Ok(());
        }
        // A run takes long: what was seen is kept when it is ended. Another run may write as well.
        let cells = cells(planned, &rows, &outcome.ending);
        self.change(|table| {
            table.release(kernel.name, &kernel.release);
            for (key, result) in &cells {
                table.set(kernel.name, key, result.as_deref());
            }
        })
    }

    /// Says where the table is, and fails when a guest failed.
    pub(super) fn finish(self) -> Result<()> {
        step(&format!("the table is in {FILE}"));
        if self.failed.is_empty() {
            return Ok(());
        }
        bail!("{} of the guests failed:\n  {}", self.failed.len(), self.failed.join("\n  "));
    }

    fn change(&self, change: impl FnOnce(&mut Table)) -> Result<()> {
        let _lock = cache::lock(&cache::folder(), "table")?;
        let text =
            fs::read_to_string(&self.file).with_context(|| format!("cannot read {}", self.file.display()))?;
        let mut table = Table::new(kernels::ALL.iter().map(|series| series.name), &self.known);
        table.read(&text);
        change(&mut table);
        fs::write(&self.file, format!("{HEAD}{}", table.render()))
            .with_context(|| format!("cannot write {}", self.file.display()))
    }
}

/// The cells that a guest changes. A row that it should have come to and did not has no old result either.
fn cells(planned: &Planned, rows: &[Row], ending: &Ending) -> Vec<(Key, Option<String>)> {
    let missing = match ending {
        // Its case was skipped.
        Ending::Exited(0) => None,
        Ending::Exited(_) => Some("not come to: its case failed before"),
        Ending::TimedOut(_) | Ending::Silent(_) => Some("guest ended by time"),
        Ending::Died(_) => Some("guest died"),
    };
    let begin = planned.rows.iter().map(|key| (key.clone(), missing.map(str::to_owned)));
    let told = rows.iter().map(|row| (row.key(), Some(row.result.clone())));
    // The last word counts.
    begin.chain(told).collect()
}

/// How a guest ended, in a few words.
pub(super) fn ending(outcome: &Outcome, deadline: Duration) -> String {
    match &outcome.ending {
        Ending::Exited(0) => "passed".to_owned(),
        Ending::Exited(code) => format!("exit code {code}"),
        Ending::TimedOut(_) => format!("not done in {} s, ended", deadline.as_secs()),
        Ending::Silent(_) => format!("silent for too long, ended after {} s", outcome.took.as_secs()),
        Ending::Died(_) => "the guest died".to_owned(),
    }
}
