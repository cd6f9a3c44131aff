//! Judges the rows of a group, one by one, by what the agent's counters say.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};
use integration_tests::harness::agent::{Agent, Setup, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::matrix;
use integration_tests::harness::process::is_among_all;
use nix::errno::Errno;

use super::actor::{Actor, MOST_CALLS};
use super::marks::{Counts, Marks, TRIES, counts, difference, has_skipped_since, key, runs_skipped};
use super::row::{CALL, Row};
use crate::cases::kernel_programs::lost_with;

/// How often a row's call is made while it fails, and then while all is well.
const FAILING: usize = 5;
const GOOD: usize = 3;

/// Names the rows to judge, by parts of their names with semicolons between. All of them when it is not set.
const ONLY: &str = "MOUNTIE_IO";

/// Operations that other hooks count under: another side of the same fault.
pub(super) const OTHER_SIDES: &[&str] = &["request", "device", "filesystem"];

/// What came of one row.
enum Finding {
    Counted,
    NotCounted(String),
}

/// Fewer calls were counted than failed.
struct Short {
    counted: u64,
    failed: u64,
}

/// One volume, one agent, one row after the other.
struct Judge<'a> {
    bench: &'a Bench,
    injector: Injector,
    agent: Agent,
    attached: BTreeSet<String>,
    /// The programs that doctor says are missed.
    lost: BTreeSet<String>,
    marks: Marks,
}

/// The case of a group.
pub(super) fn group(bench: &mut Bench, rows: &[Row]) -> Result<()> {
    all(bench, rows.iter())
}

/// Judges all these rows with one agent.
pub(super) fn all<'a>(bench: &mut Bench, rows: impl Iterator<Item = &'a Row>) -> Result<()> {
    let mut judge = Judge::start(bench)?;
    let (mut wrong, mut tried) = (Vec::new(), 0);
    let only = std::env::var(ONLY).unwrap_or_default();
    for row in rows.filter(|row| only.split(';').any(|part| row.name.contains(part))) {
        tried += 1;
        let found = judge.until_exact(row);
        let (result, detail) = match &found {
            Ok(Finding::Counted) if row.counts => ("counted", String::new()),
            Ok(Finding::Counted) => ("rightly not counted", String::new()),
            Ok(Finding::NotCounted(reason)) => ("not counted", reason.clone()),
            Err(error) => ("wrong", format!("{error:#}")),
        };
        matrix::add(&matrix::Row { table: "io", row: row.name, result, detail: &detail })?;
        if let Err(error) = found {
            wrong.push(format!("{}: {error:#}", row.name));
        }
    }
    judge.agent.must_run()?;
    ensure!(wrong.is_empty(), "{} of {tried} rows:\n  {}", wrong.len(), wrong.join("\n  "));
    Ok(())
}

impl<'a> Judge<'a> {
    fn start(bench: &'a Bench) -> Result<Self> {
        let injector = Injector::start(bench, "volume", "here")?;
        let volume = Volume::at("v", injector.mountpoint()).sentinel("here");
        let kernel = format!("[kernel]\nfamily = \"{}\"\n", matrix::family());
        let agent = Agent::start_with(bench, &Setup::new(bench, &(kernel + &volume.to_toml()))?)?;
        agent.wait_state("v", "healthy")?;
        let up = [("source", "bpf")];
        let scrape = agent.wait_scrape("the kernel programs are attached", |scrape| {
            Ok(scrape.value("mountie_source_up", &up)? > 0.0)
        })?;
        let programs = scrape.matching("mountie_program_attached", &[]);
        let attached = programs.filter(|(_, value)| *value > 0.0);
        let attached = attached.filter_map(|(labels, _)| labels.get("program").cloned()).collect();
        let lost = lost_with(&matrix::family())?;
        Ok(Self { bench, injector, agent, attached, lost, marks: Marks::new() })
    }

    /// Judges a row, again where runs of programs were skipped.
    fn until_exact(&mut self, row: &Row) -> Result<Finding> {
        for tries in 1..=TRIES {
            let skipped = runs_skipped(&self.agent.scrape()?);
            match self.row(row)? {
                Ok(found) => return Ok(found),
                Err(_) if tries < TRIES && has_skipped_since(&self.agent, skipped) => {}
                Err(Short { counted, failed }) => bail!("{counted} counted as {}, {failed} made", row.op),
            }
        }
        bail!("no try was made")
    }

    fn row(&mut self, row: &Row) -> Result<Result<Finding, Short>> {
        let mut actor = Actor::start(self.bench, row, self.injector.mountpoint())?;
        ensure!(FAILING + GOOD <= MOST_CALLS, "more calls than a row is prepared for");
        self.settle(&mut actor)?;
        let before = self.counts()?;

        if let Some(answer) = row.answer {
            self.injector.set(&Mode::fail(answer, row.refused))?;
        }
        let failing = actor.calls(FAILING)?;
        self.injector.set(&Mode::Ok)?;
        let good = actor.calls(GOOD)?;
        let failed = failed(row, &failing, &good)?;

        let marks = self.settle(&mut actor)?;
        let mut risen = difference(&before, &self.counts()?);
        for mark in marks {
            risen.remove(&key(mark, "read"));
        }
        risen.retain(|(_, op), _| !OTHER_SIDES.contains(&op.as_str()) && !row.also.contains(&op.as_str()));
        self.judge(row, risen, failed)
    }

    fn judge(&self, row: &Row, mut risen: Counts, failed: u64) -> Result<Result<Finding, Short>> {
        let key = row.answer.map(|errno| match row.counted_as {
            Some(label) => (label.to_owned(), row.op.to_owned()),
            None => key(errno, row.op),
        });
        let counted = key.filter(|_| row.counts).and_then(|key| risen.remove(&key)).unwrap_or(0);
        ensure!(risen.is_empty(), "also counted: {risen:?}");
        if !row.counts {
            return Ok(Ok(Finding::Counted));
        }
        let has = |programs: &[&str]| programs.iter().any(|program| self.attached.contains(*program));
        let seen = has(row.seen_by) || (row.by_process && is_among_all() && has(CALL));
        match counted {
            counted if counted == failed => Ok(Ok(Finding::Counted)),
            0 if row.seen_by.is_empty() => Ok(Ok(Finding::NotCounted("no hook sees it".to_owned()))),
            0 if !seen => {
                let is_told =
                    row.by_process || row.seen_by.iter().any(|program| self.lost.contains(*program));
                ensure!(is_told, "not counted, and doctor misses none of {}", row.seen_by.join(", "));
                Ok(Ok(Finding::NotCounted(format!("without {}", row.seen_by.join(", ")))))
            }
            counted if counted < failed => Ok(Err(Short { counted, failed })),
            counted => bail!("{counted} counted as {}, {failed} made", row.op),
        }
    }

    /// Waits until everything so far is counted.
    fn settle(&mut self, actor: &mut Actor) -> Result<[Errno; 2]> {
        self.marks.settle(&self.injector, (&self.agent, "v"), || actor.mark())
    }

    fn counts(&self) -> Result<Counts> {
        Ok(counts(&self.agent.scrape()?, "v"))
    }
}

/// How many calls failed as the row says. No other error may be met, and where errors are told at once each call
/// meets its own.
fn failed(row: &Row, failing: &[i32], good: &[i32]) -> Result<u64> {
    let expected = row.answer.map_or(0, |errno| errno as i32);
    let count = |met: &[i32]| met.iter().filter(|errno| **errno != 0 && **errno == expected).count();
    if row.late {
        let other = failing.iter().chain(good).find(|errno| **errno != 0 && **errno != expected);
        ensure!(other.is_none() && count(failing) > 0, "the calls met {failing:?}, then {good:?}");
        return Ok((count(failing) + count(good)) as u64);
    }
    ensure!(failing == [expected; FAILING], "the calls met {failing:?}, not {expected}");
    ensure!(good == [0; GOOD], "calls on a sound volume met {good:?}");
    Ok(count(failing) as u64)
}
