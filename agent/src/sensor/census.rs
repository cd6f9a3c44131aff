//! The census of waiting tasks: who has been in one call on a tracked superblock since the census before.
//!
//! Whoever waits there may wait for a server that does not answer. A census finds it without touching anything of the
//! volume, and names the programs that suffer. Two ways lead to the same records:
//! * an iterator in the kernel, which reads nothing that could wait; where a name can only be placed by its text, the
//!   child of the other way looks at that one thread;
//! * procfs, read by a disposable child ([`child`]), where the kernel has no such iterator or refuses it.
//!
//! Rest and haste: a census every five seconds, every second while a volume is in doubt or somebody waits, and never
//! so often that it costs more than one percent of a processor at rest, and five in haste (but every ten seconds then).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::engine::Tracked;
use agent_core::observation::Census;
use agent_core::time::Monotonic;
use tokio::sync::mpsc::Sender;

use self::ledger::Ledger;
use self::scout::{Found, Scout};
use crate::error_chain::chain;
use crate::sensor::ebpf::TaskIterator;
use crate::sensor::wake::{Outbox, Running, Wake, no_thread};
use crate::sensor::{SensorEvent, SourceName, SourceState, lock};
use crate::sys::clock;

mod calls;
pub mod child;
mod ledger;
pub(crate) mod procfs;
mod scout;
pub(crate) mod wire;

pub use self::child::run_census_child;

/// The name of the hidden subcommand.
pub const CENSUS_SUBCOMMAND: &str = "census";

/// Between two censuses at rest.
const REST: Duration = Duration::from_secs(5);
/// Between two while something is in doubt.
const HASTE: Duration = Duration::from_secs(1);
/// After a census comes a pause of so many times the processor time that it cost.
const PAUSE_AT_REST: u32 = 100;
/// The same while something is in doubt.
const PAUSE_IN_HASTE: u32 = 20;
/// In haste the pause is never longer than this: people want to know who waits, also where looking is dear.
const LONGEST_IN_HASTE: Duration = Duration::from_secs(10);
/// Names that are placed by their text in one census.
const TEXTS: usize = 64;
/// An iterator that fails so often in a row is not tried again.
const FAILURES: u32 = 5;

/// What the census has to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The agent's executable and the hidden subcommand ([`CENSUS_SUBCOMMAND`]).
    pub program: Vec<OsString>,
}

/// The running census. It ends when this is dropped.
#[derive(Debug)]
pub struct Handle {
    shared: Arc<Shared>,
    wake: Arc<Wake>,
    /// Kept for its end alone.
    _thread: Running,
}

#[derive(Debug, Default)]
struct Shared {
    /// Superblocks, in the kernel's encoding. Replaced as a whole, read by the thread before each census.
    tracked: Mutex<Arc<BTreeSet<u32>>>,
    /// Something is in doubt. Read by the thread before it rests.
    is_in_haste: AtomicBool,
}

impl Handle {
    /// Sets what is watched; replaces the last set.
    pub fn track(&self, tracked: &[Tracked]) {
        let set: BTreeSet<u32> = tracked.iter().map(|row| row.superblock.to_kernel()).collect();
        *lock(&self.shared.tracked) = Arc::new(set);
    }

    /// Whether a volume is in doubt.
    pub fn set_haste(&self, is_in_haste: bool) {
        if !self.shared.is_in_haste.swap(is_in_haste, Ordering::AcqRel) && is_in_haste {
            self.wake.request();
        }
    }
}

/// Starts to take censuses: by the iterator, or for the reason given without it.
#[must_use]
pub fn start(
    settings: Settings,
    iterator: Result<TaskIterator, String>,
    events: Sender<SensorEvent>,
) -> (Option<Handle>, SourceState) {
    let wake = match Wake::for_thread() {
        Ok(wake) => wake,
        Err(why) => return (None, SourceState::Off(why)),
    };
    let state = match &iterator {
        Ok(_) => SourceState::Running,
        Err(reason) => by_procfs(reason),
    };
    let shared = Arc::new(Shared::default());
    let outbox = Outbox::new(events, Arc::clone(&wake));
    let taker = Taker {
        iterator,
        failures: 0,
        scout: Scout::new(settings.program, Arc::clone(&wake)),
        ledger: Ledger::default(),
        shared: Arc::clone(&shared),
        outbox: outbox.clone(),
        wake: Arc::clone(&wake),
        begun: clock::now(),
        cost: Duration::ZERO,
        has_found: false,
        has_told: false,
        reported: state.clone(),
    };
    match Running::start("census", SourceName::Census, &outbox, move || taker.run()) {
        Ok(thread) => (Some(Handle { shared, wake, _thread: thread }), state),
        Err(error) => (None, SourceState::Off(no_thread(error))),
    }
}

fn by_procfs(reason: &str) -> SourceState {
    SourceState::Degraded(format!("by procfs, which costs more and sees less: {reason}"))
}

/// Nothing of what waits is unknown.
const fn all_known(_process: u32) -> bool {
    false
}

/// The thread's own state.
struct Taker {
    iterator: Result<TaskIterator, String>,
    /// Of the iterator, in a row.
    failures: u32,
    scout: Scout,
    ledger: Ledger,
    shared: Arc<Shared>,
    outbox: Outbox,
    wake: Arc<Wake>,
    /// When the last census began, and the processor time that it used here and in the child.
    begun: Monotonic,
    cost: Duration,
    /// It found somebody, perhaps for a moment only.
    has_found: bool,
    /// The event loop believes that somebody waits.
    has_told: bool,
    reported: SourceState,
}

impl Taker {
    fn run(mut self) {
        while !self.wake.is_stopping() {
            self.wake.take_request();
            let rest = self.rest(clock::now());
            if !rest.is_zero() {
                self.wake.wait(None, rest);
            } else if !self.census() {
                return;
            }
        }
    }

    fn rest(&self, now: Monotonic) -> Duration {
        let is_in_haste = self.has_found || self.shared.is_in_haste.load(Ordering::Acquire);
        let pause = if is_in_haste {
            HASTE.max(self.cost.saturating_mul(PAUSE_IN_HASTE).min(LONGEST_IN_HASTE))
        } else {
            REST.max(self.cost.saturating_mul(PAUSE_AT_REST))
        };
        pause.saturating_sub(now.since(self.begun))
    }

    /// Takes one census and tells it. False: nobody listens any more.
    fn census(&mut self) -> bool {
        let tracked = Arc::clone(&lock(&self.shared.tracked));
        self.begun = clock::now();
        self.cost = Duration::ZERO;
        let used = clock::thread_processor_time();
        let is_tracked = |s_dev: u32| tracked.contains(&s_dev);
        let state = if tracked.is_empty() {
            // Nobody can wait on nothing, and looking would cost something.
            self.ledger.take(self.begun, &[], all_known);
            self.reported.clone()
        } else {
            self.look(&tracked)
        };
        self.cost += clock::thread_processor_time().saturating_sub(used);
        self.has_found = self.ledger.has_any(is_tracked);
        let blocked = self.ledger.blocked(is_tracked);
        tracing::trace!(cost = ?self.cost, took = ?clock::now().since(self.begun), places = blocked.len(), "Census was taken");
        let (had_told, at) = (self.has_told, self.begun);
        self.has_told = !blocked.is_empty();
        self.report(state)
            && (!(self.has_told || had_told)
                || self.outbox.send(SensorEvent::Blocked(Census { at, blocked })))
    }

    /// Fills the ledger; how this source does.
    fn look(&mut self, tracked: &BTreeSet<u32>) -> SourceState {
        let reason = match read(&mut self.iterator, &mut self.failures, TaskIterator::read) {
            Ok(records) => {
                self.ledger.take(self.begun, &records, all_known);
                return self.place_names(tracked);
            }
            Err(reason) => reason,
        };
        match self.scout.all(tracked) {
            Ok(Found { looked, refused, .. }) if refused > 0 && refused >= looked / 2 => {
                self.ledger.take(self.begun, &[], all_known);
                SourceState::Off(format!("{reason}; procfs shows no system calls: CAP_SYS_PTRACE is missing"))
            }
            Ok(found) => {
                self.cost += found.cost;
                self.ledger.take(self.begun, &found.records, |process| found.is_unknown(process));
                match self.scout.gap() {
                    Some(gap) => by_procfs(&format!("{reason}; {gap}")),
                    None => by_procfs(&reason),
                }
            }
            Err(error) => {
                self.ledger.take(self.begun, &[], all_known);
                SourceState::Off(format!("{reason}; {}", chain(&error)))
            }
        }
    }

    /// Has those names placed that only their text can place. Rare: most waits on a name are on the way to it, and
    /// there the iterator sees the place.
    fn place_names(&mut self, tracked: &BTreeSet<u32>) -> SourceState {
        self.scout.forget();
        let threads = self.ledger.unplaced(TEXTS, |process| self.scout.avoids(process));
        let missing = if threads.is_empty() {
            self.scout.gap()
        } else {
            match self.scout.texts(tracked, threads) {
                Ok(found) => {
                    self.cost += found.cost;
                    // Those that are not told are asked for again.
                    found.texts.iter().for_each(|(thread, s_dev)| self.ledger.place(*thread, *s_dev));
                    self.scout.gap()
                }
                Err(error) => Some(chain(&error)),
            }
        };
        match missing {
            None => SourceState::Running,
            Some(why) => SourceState::Degraded(format!("some names are not placed: {why}")),
        }
    }

    fn report(&mut self, state: SourceState) -> bool {
        if self.reported == state {
            return true;
        }
        self.reported = state.clone();
        self.outbox.send(SensorEvent::Source(SourceName::Census, state))
    }
}

/// Reads the iterator, or says why there is none for this census. One that fails again and again is given up.
fn read<I, T>(
    iterator: &mut Result<I, String>,
    failures: &mut u32,
    read: impl FnOnce(&mut I) -> Result<T, String>,
) -> Result<T, String> {
    let working = match iterator {
        Ok(working) => working,
        Err(reason) => return Err(reason.clone()),
    };
    let reason = match read(working) {
        Ok(records) => {
            *failures = 0;
            return Ok(records);
        }
        Err(reason) => format!("the iterator failed: {reason}"),
    };
    *failures = failures.saturating_add(1);
    if *failures >= FAILURES {
        *iterator = Err(reason.clone());
    }
    Err(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iterator_is_given_up_only_when_it_fails_again_and_again() {
        let (mut iterator, mut failures) = (Ok(()), 0);
        for round in 0..3 * FAILURES {
            let works = round % FAILURES == 0;
            let answer =
                read(&mut iterator, &mut failures, |()| if works { Ok(1) } else { Err("no".to_owned()) });
            assert_eq!((answer.is_ok(), iterator.is_ok()), (works, true), "{round}");
        }
        let fails = |iterator: &mut Result<(), String>, failures: &mut u32| {
            read::<(), u32>(iterator, failures, |()| Err("no".to_owned())).unwrap_err()
        };
        assert_eq!(fails(&mut iterator, &mut failures), "the iterator failed: no");
        assert!(iterator.is_err());
        assert_eq!(read(&mut iterator, &mut failures, |()| Ok(1)).unwrap_err(), "the iterator failed: no");
    }
}
