//! What the kernel side could not keep or send, by cause, and whether that goes on.
//!
//! Names beyond the budget are special: most processes that fail on names in a loop do so on something that is not
//! tracked at all (a read-only root of a container, say), and nothing is lost with those. Which ones they were can
//! be told only from the names that were sent: a share of the budget counts as losing when one of its names was
//! placed on a tracked mount lately. Of the others it is told, and not counted, that they may have been somebody's.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_common::key::NameWindow;
use agent_common::settings::{NAME_SHARES, NAMES_PER_INTERVAL, RECORD_INTERVAL_NANOS, dropped};
use agent_core::time::Monotonic;
use aya::maps::{MapData, MapError, PerCpuArray};

use super::programs::{ProgramFamily, ProgramRow};
use crate::sensor::LossCause;

/// A loss is told for this long.
const TOLD_FOR: Duration = Duration::from_mins(1);
/// A share is taken for one of tracked mounts for this long after a name that was.
const SHARE_COUNTS_FOR: Duration = Duration::from_secs(10);

/// What is told, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Told {
    /// Something is lost.
    Lost(LossCause),
    /// Names that were not sent belong to processes of which nothing is known.
    Crowded,
    /// Programs were skipped by the kernel: whether anything is lost by it nobody knows.
    Skipped,
}

/// A cause, for people.
fn text(cause: LossCause) -> String {
    match cause {
        LossCause::Counters => "failed calls are not counted: the map of counters is full".to_owned(),
        LossCause::Ring => format!("records are lost: the ring buffer is full ({ONLY_NAMES})"),
        LossCause::Names => format!(
            "failed calls on names are not counted: processes send more than {NAMES_PER_INTERVAL} names in {} ms, or \
             more than the agent can look up, or end before it has",
            RECORD_INTERVAL_NANOS / 1_000_000
        ),
        LossCause::Refused => "failed calls on names are not counted: the kernel does not let the agent see where \
                               processes have their directories and mounts (CAP_SYS_PTRACE, or a security policy)"
            .to_owned(),
        LossCause::Faults => {
            "page faults that storage fails are not counted: another program, of a second agent for \
                              instance, or another thread holds what looks at mappings"
                .to_owned()
        }
        LossCause::Agent => format!("records are lost: the agent is too slow ({ONLY_NAMES})"),
        LossCause::Fanotify => "reports of file systems are lost".to_owned(),
    }
}

/// What a lost record costs: the kernel counts calls on descriptors itself, calls on names are counted here.
const ONLY_NAMES: &str = "counters are complete but for calls on names";
/// What it means that names of others were not sent.
const CROWDED: &str = "failed calls on names may be missing: processes that fail elsewhere all the time use up the room for \
                       names of others";
/// What it means that programs were skipped.
const SKIPPED: &str = "failed calls may be missing: the kernel skips a program while another task is stopped in it on the \
                       same processor";

/// What was lost so far, and when last.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    last: BTreeMap<Told, Monotonic>,
    /// Kernel totals as far as they are known, by row.
    known: BTreeMap<u32, u64>,
    shares: Vec<u64>,
    /// When a name of a share was last placed on a tracked mount.
    placed: BTreeMap<u32, Monotonic>,
    /// Not passed on yet.
    pending: BTreeMap<LossCause, u64>,
    /// The last program that was skipped.
    skipped: Option<&'static ProgramRow>,
}

impl Ledger {
    /// A name of this process was on a tracked mount.
    pub(super) fn placed(&mut self, tgid: u32, now: Monotonic) {
        self.placed.insert(tgid & (NAME_SHARES - 1), now);
    }

    /// A name of this process cannot be placed any more. Whether that is a loss is told by the others of its share.
    pub(super) fn gone(&mut self, tgid: u32, now: Monotonic) {
        if self.counts(tgid & (NAME_SHARES - 1), now) {
            self.add(LossCause::Names, 1, now);
        }
    }

    /// Whether a share of the budget is one of tracked mounts.
    fn counts(&self, share: u32, now: Monotonic) -> bool {
        self.placed.get(&share).is_some_and(|at| now.since(*at) < SHARE_COUNTS_FOR)
    }

    /// Adds a loss.
    pub(super) fn add(&mut self, cause: LossCause, count: u64, now: Monotonic) {
        if count > 0 {
            let pending = self.pending.entry(cause).or_default();
            *pending = pending.saturating_add(count);
            self.last.insert(Told::Lost(cause), now);
        }
    }

    /// The kernel has skipped a program. What it would have seen is not known to be a failure, so it is no lost
    /// record.
    pub(super) fn skipped(&mut self, program: &'static ProgramRow, now: Monotonic) {
        self.skipped = Some(program);
        self.last.insert(Told::Skipped, now);
    }

    /// Takes in the total of a row; what it went up by.
    fn grown(&mut self, row: u32, total: u64) -> u64 {
        let known = self.known.insert(row, total).unwrap_or(0);
        total.saturating_sub(known)
    }

    /// Takes in what each share has lost; what of it was on tracked mounts, as far as can be told.
    fn shares(&mut self, totals: Vec<u64>, now: Monotonic) -> u64 {
        let known = self.shares.iter().copied().chain(std::iter::repeat(0));
        let grown = (0u32..).zip(totals.iter().zip(known).map(|(total, known)| total.saturating_sub(known)));
        let (own, others): (Vec<_>, Vec<_>) = grown.partition(|(share, _)| self.counts(*share, now));
        let sum = |shares: Vec<(u32, u64)>| shares.into_iter().map(|(_, lost)| lost).sum::<u64>();
        if sum(others) > 0 {
            self.last.insert(Told::Crowded, now);
        }
        self.shares = totals;
        sum(own)
    }

    /// Passes on what is lost. What finds no room is kept for the next time.
    pub(super) fn pass_on(&mut self, mut pass: impl FnMut(LossCause, u64) -> bool) {
        self.pending.retain(|cause, count| !pass(*cause, *count));
    }

    /// What goes on being lost, in words.
    pub(super) fn told(&self, now: Monotonic) -> Option<String> {
        let (cause, _) = self.last.iter().find(|(_, at)| now.since(**at) < TOLD_FOR)?;
        Some(match (cause, self.skipped) {
            (Told::Lost(cause), _) => text(*cause),
            (Told::Crowded, _) => CROWDED.to_owned(),
            (Told::Skipped, program) => format!("{SKIPPED}{}", program.map(remedy).unwrap_or_default()),
        })
    }
}

/// Which program it was, and what is skipped less.
fn remedy(program: &ProgramRow) -> String {
    let name = program.name;
    match program.family {
        ProgramFamily::Fexit => format!(" (last {name}; less often with `kernel.family = \"sys_exit\"`)"),
        ProgramFamily::Always | ProgramFamily::Extra | ProgramFamily::SysExit => format!(" (last {name})"),
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
                dropped::COUNTERS => self.ledger.add(LossCause::Counters, grown, now),
                dropped::NAMES if grown > 0 => {
                    let lost = self.lost_names(now)?;
                    self.ledger.add(LossCause::Names, lost, now);
                }
                dropped::FAULTS => self.ledger.add(LossCause::Faults, grown, now),
                dropped::RING => self.ledger.add(LossCause::Ring, grown, now),
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
        ledger.add(LossCause::Ring, grown, at(10));
        assert!(ledger.told(at(69)).unwrap().contains("ring buffer"));
        assert_eq!(ledger.grown(dropped::RING, 5), 0);
        ledger.add(LossCause::Ring, 0, at(65));
        assert_eq!(ledger.told(at(70)), None);
    }

    #[test]
    fn what_finds_no_room_is_passed_on_later_and_nothing_twice() {
        let mut ledger = Ledger::default();
        ledger.add(LossCause::Ring, 5, at(1));
        ledger.add(LossCause::Names, 2, at(1));
        ledger.add(LossCause::Ring, 1, at(2));
        let mut passed = Vec::new();
        ledger.pass_on(|cause, count| {
            passed.push((cause, count));
            cause == LossCause::Ring
        });
        assert_eq!(passed, [(LossCause::Ring, 6), (LossCause::Names, 2)]);
        passed.clear();
        ledger.pass_on(|cause, count| {
            passed.push((cause, count));
            true
        });
        assert_eq!(passed, [(LossCause::Names, 2)]);
        ledger.pass_on(|cause, _| panic!("{cause:?} twice"));
    }

    #[test]
    fn the_worst_cause_is_told() {
        let mut ledger = Ledger::default();
        ledger.add(LossCause::Agent, 1, at(1));
        ledger.add(LossCause::Counters, 1, at(1));
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
        assert_eq!(ledger.told(at(70)), None);
        ledger.pass_on(|cause, _| panic!("{cause:?}"));
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

    #[test]
    fn names_that_others_have_crowded_out_are_told_and_not_counted() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.shares(vec![0, 0, 7], at(1)), 0);
        assert!(ledger.told(at(2)).unwrap().contains("may be missing"));
        ledger.pass_on(|cause, _| panic!("{cause:?}"));
        assert_eq!(ledger.shares(vec![0, 0, 7], at(61)), 0);
        assert_eq!(ledger.told(at(61)), None);
    }

    #[test]
    fn a_process_that_is_gone_is_a_loss_where_others_of_its_share_were_on_tracked_mounts() {
        let mut ledger = Ledger::default();
        ledger.gone(65, at(1));
        assert_eq!(ledger.told(at(1)), None);
        ledger.placed(1, at(2));
        ledger.gone(65, at(3));
        assert!(ledger.told(at(4)).unwrap().contains("end before it has"));
    }
}
