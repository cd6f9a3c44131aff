//! What the kernel side could not keep or send, by cause, and whether that goes on.
//!
//! Names beyond the budget are special: most processes that fail on names in a loop do so on something that is not
//! tracked at all (a read-only root of a container, say), and nothing is lost with those. Which ones they were can
//! be told only from the names that were sent: a share of the budget counts as losing when one of its names was
//! placed on a tracked mount lately.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_common::key::NameWindow;
use agent_common::settings::{NAME_SHARES, NAMES_PER_INTERVAL, RECORD_INTERVAL_NANOS, dropped};
use agent_core::time::Monotonic;
use aya::maps::{MapData, MapError, PerCpuArray};

use super::programs::{ProgramFamily, ProgramRow};

/// A loss is told for this long.
const TOLD_FOR: Duration = Duration::from_mins(1);
/// A share is taken for one of tracked mounts for this long after a name that was.
const SHARE_COUNTS_FOR: Duration = Duration::from_secs(10);

/// The causes, in the order in which they are told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Cause {
    /// No room in the map of counters.
    Counters,
    /// No room in the ring buffer.
    Ring,
    /// Names beyond the budget of the kernel side or of the agent.
    Names,
    /// Programs were skipped by the kernel.
    Skipped,
    /// The event loop had no room, or a record could not be read.
    Here,
}

impl Cause {
    fn text(self) -> String {
        match self {
            Self::Counters => "failed calls are not counted: the map of counters is full".to_owned(),
            Self::Ring => "records are lost: the ring buffer is full (counters are complete)".to_owned(),
            Self::Names => format!(
                "failed calls on names are not counted: there are more than {NAMES_PER_INTERVAL} in {} ms of some \
                 processes, or more than the agent can look up",
                RECORD_INTERVAL_NANOS / 1_000_000
            ),
            Self::Skipped => {
                "failed calls may be missing: the kernel skips a program while another task is stopped \
                              in it on the same processor"
                    .to_owned()
            }
            Self::Here => "records are lost: the agent is too slow (counters are complete)".to_owned(),
        }
    }
}

/// What was lost so far, and when last.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    last: BTreeMap<Cause, Monotonic>,
    /// Kernel totals as far as they are known, by row.
    known: BTreeMap<u32, u64>,
    shares: Vec<u64>,
    /// When a name of a share was last placed on a tracked mount.
    placed: BTreeMap<u32, Monotonic>,
    /// Not passed on yet.
    pending: u64,
    /// The last program that was skipped.
    skipped: Option<&'static ProgramRow>,
}

impl Ledger {
    /// A name of this process was on a tracked mount.
    pub(super) fn placed(&mut self, tgid: u32, now: Monotonic) {
        self.placed.insert(tgid & (NAME_SHARES - 1), now);
    }

    /// Adds a loss.
    pub(super) fn add(&mut self, cause: Cause, count: u64, now: Monotonic) {
        if count > 0 {
            self.pending = self.pending.saturating_add(count);
            self.last.insert(cause, now);
        }
    }

    /// The kernel has skipped a program. What it would have seen is not known to be a failure, so it is no lost
    /// record.
    pub(super) fn skipped(&mut self, program: &'static ProgramRow, now: Monotonic) {
        self.skipped = Some(program);
        self.last.insert(Cause::Skipped, now);
    }

    /// Takes in the total of a row; what it went up by.
    fn grown(&mut self, row: u32, total: u64) -> u64 {
        let known = self.known.insert(row, total).unwrap_or(0);
        total.saturating_sub(known)
    }

    /// Takes in what each share has lost; what of it was on tracked mounts, as far as can be told.
    fn shares(&mut self, totals: Vec<u64>, now: Monotonic) -> u64 {
        let counts = |share: u32, placed: &BTreeMap<u32, Monotonic>| {
            placed.get(&share).is_some_and(|at| now.since(*at) < SHARE_COUNTS_FOR)
        };
        let known = self.shares.iter().copied().chain(std::iter::repeat(0));
        let lost = (0u32..)
            .zip(totals.iter().zip(known))
            .filter(|(share, _)| counts(*share, &self.placed))
            .map(|(_, (total, known))| total.saturating_sub(known))
            .sum();
        self.shares = totals;
        lost
    }

    /// What is lost and not passed on.
    pub(super) const fn pending(&self) -> u64 {
        self.pending
    }

    /// It is passed on.
    pub(super) const fn passed_on(&mut self) {
        self.pending = 0;
    }

    /// What goes on being lost, in words.
    pub(super) fn told(&self, now: Monotonic) -> Option<String> {
        let (cause, _) = self.last.iter().find(|(_, at)| now.since(**at) < TOLD_FOR)?;
        Some(match (cause, self.skipped) {
            (Cause::Skipped, Some(program)) => format!("{} ({})", cause.text(), remedy(program)),
            (cause, _) => cause.text(),
        })
    }
}

/// Which program it was, and what is skipped less.
fn remedy(program: &ProgramRow) -> String {
    let name = program.name;
    match program.family {
        ProgramFamily::Fexit => format!("last {name}; not with `kernel.family = \"sys_exit\"`"),
        ProgramFamily::Always | ProgramFamily::Extra | ProgramFamily::SysExit => format!("last {name}"),
    }
}

/// The kernel's side of it.
pub(super) struct Losses {
    rows: PerCpuArray<MapData, u64>,
    windows: PerCpuArray<MapData, NameWindow>,
    /// What is known.
    pub ledger: Ledger,
}

impl Losses {
    /// Takes the maps.
    pub(super) fn new(rows: PerCpuArray<MapData, u64>, windows: PerCpuArray<MapData, NameWindow>) -> Self {
        Self { rows, windows, ledger: Ledger::default() }
    }

    /// Reads what was lost since the last time.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub(super) fn read(&mut self, now: Monotonic) -> Result<(), MapError> {
        for row in 0..dropped::ROWS {
            let total = self.rows.get(&row, 0)?.iter().fold(0u64, |sum, share| sum.wrapping_add(*share));
            let grown = self.ledger.grown(row, total);
            match row {
                dropped::COUNTERS => self.ledger.add(Cause::Counters, grown, now),
                dropped::NAMES if grown > 0 => {
                    let lost = self.lost_names(now)?;
                    self.ledger.add(Cause::Names, lost, now);
                }
                dropped::RING => self.ledger.add(Cause::Ring, grown, now),
                _ => {}
            }
        }
        Ok(())
    }

    fn lost_names(&mut self, now: Monotonic) -> Result<u64, MapError> {
        let mut totals = Vec::new();
        for share in 0..NAME_SHARES {
            let windows = self.windows.get(&share, 0)?;
            totals.push(windows.iter().fold(0u64, |sum, window| sum.wrapping_add(window.lost)));
        }
        Ok(self.ledger.shares(totals, now))
    }
}

#[cfg(test)]
mod tests {
    use super::super::programs::PROGRAMS;
    use super::*;

    const fn at(seconds: u64) -> Monotonic {
        Monotonic::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_loss_is_told_while_it_goes_on_and_for_a_minute() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.told(at(1)), None);
        let grown = ledger.grown(dropped::RING, 5);
        ledger.add(Cause::Ring, grown, at(10));
        assert_eq!(ledger.pending(), 5);
        assert!(ledger.told(at(69)).unwrap().contains("ring buffer"));
        assert_eq!(ledger.grown(dropped::RING, 5), 0);
        ledger.add(Cause::Ring, 0, at(65));
        assert_eq!(ledger.told(at(70)), None);
        ledger.passed_on();
        assert_eq!(ledger.pending(), 0);
    }

    #[test]
    fn the_worst_cause_is_told() {
        let mut ledger = Ledger::default();
        ledger.add(Cause::Here, 1, at(1));
        ledger.add(Cause::Counters, 1, at(1));
        assert!(ledger.told(at(2)).unwrap().contains("map of counters"));
    }

    #[test]
    fn a_skipped_program_is_named_and_is_no_lost_record() {
        let mut ledger = Ledger::default();
        for row in PROGRAMS.iter().filter(|row| ["vfs_read", "block_rq_complete"].contains(&row.name)) {
            ledger.skipped(row, at(10));
            let told = ledger.told(at(69)).unwrap();
            let is_fexit = row.family == ProgramFamily::Fexit;
            assert!(told.contains(row.name) && told.contains("sys_exit") == is_fexit, "{told}");
        }
        assert_eq!((ledger.told(at(70)), ledger.pending()), (None, 0));
    }

    #[test]
    fn names_of_processes_that_fail_elsewhere_are_no_loss() {
        let mut ledger = Ledger::default();
        let totals = |first: u64, second: u64| {
            let mut shares = vec![0; 64];
            shares[1] = first;
            shares[2] = second;
            shares
        };
        // Process 65 belongs to share 1, and one of its names was on a tracked mount.
        ledger.placed(65, at(1));
        assert_eq!(ledger.shares(totals(10, 1000), at(2)), 10);
        assert_eq!(ledger.shares(totals(15, 2000), at(3)), 5);
        // Ten seconds later it is like any other.
        assert_eq!(ledger.shares(totals(20, 3000), at(20)), 0);
    }
}
