//! The mount table: watch and read.
//!
//! One thread waits to be told of a change, looks at the table when the pace allows it, and sends a snapshot when
//! it differs from the last. What the modules do:
//! * [`by_id`] asks the kernel for single mounts by unique id, where it can; `reading` says whether it can;
//! * else `sys::mountinfo` cuts the text into lines within bounded memory and understands each, [`source`] is the
//!   file, and [`snapshot`] makes snapshots that can be trusted out of readings that cannot;
//! * `requests` is what others leave for the thread;
//! * [`pace`] keeps the cost within its share of one processor.
//!
//! The order matters for "no change is lost": the report is taken first and the table is read after, so that a
//! change during the reading makes a new report. Reports during a rest stay with the kernel until the thread
//! looks again.
//!
//! What costs what, with mount events and ids: a mount or unmount costs the question about that mount. A remount
//! sends no event, it only wakes who polls mountinfo; that, and an error that a file system reports, costs a
//! refresh: the options of the volumes, and the list of ids. So does the passing of [`REFRESH`], because an ext4
//! that turns read-only after an error tells nobody. Everything is read at the start, after lost events, and now
//! and then.
//!
//! The table is a view of the namespace, not of any file system: reading it cannot hang on a dead mount.
//! (Option printers of some file systems take locks of their superblock; none waits for storage.)

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_core::time::Monotonic;
use nix::poll::PollFlags;
use thiserror::Error;
use tokio::sync::mpsc::Sender;

use self::pace::{BACKSTOP, BACKSTOP_PER_MILLE, BACKSTOP_PER_MILLE_BY_ID, Pace};
use self::reading::{Look, Reading};
use self::requests::{Requests, Work};
use self::source::{ProcFile, TableSource};
use crate::error_chain::chain;
use crate::sensor::wake::{Outbox, Running, Wake, Woken};
use crate::sensor::{MountChange, ScanStats, SensorEvent, SourceName, SourceState};
use crate::sys::clock;
use crate::sys::mount_limit::mount_limit;

pub mod by_id;
pub mod pace;
mod reading;
mod requests;
pub mod snapshot;
pub mod source;

/// Between attempts to read a table that cannot be read.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The share of one processor that reacting to changes may cost while the kernel only says that something has
/// changed. A little below the budget of ten percent for the whole agent.
pub const PERCENT_BY_POLLING: u32 = 9;

/// The share where mount events are delivered as well. The budget is five percent then, and the threads that
/// take the events need a part of it.
pub const PERCENT_WITH_EVENTS: u32 = 3;

/// The options of the volumes are asked for this often, where that costs one call each.
pub const REFRESH: Duration = Duration::from_secs(1);

/// … and at most this share of the time, in tenths of a percent, but never less often than [`BACKSTOP`]: one
/// look that was expensive by chance must not put off the next.
const REFRESH_PER_MILLE: u32 = 2;

/// What the watcher has to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `/proc/self/mountinfo`, or that of a process in the watched namespace.
    pub mountinfo: PathBuf,
    /// The file of the watched namespace; `None` for the agent's own.
    pub namespace: Option<PathBuf>,
    /// The share of one processor that reacting to changes may cost, 1 to 100.
    pub processor_percent: u32,
}

impl Settings {
    /// With the default share, for the thread's own namespace.
    #[must_use]
    pub fn new(mountinfo: PathBuf) -> Self {
        Self { mountinfo, namespace: None, processor_percent: PERCENT_BY_POLLING }
    }
}

/// Why there is no watcher.
#[derive(Debug, Error)]
pub enum StartError {
    /// Descriptors have run out.
    #[error("cannot create the descriptor that wakes the mount table's thread")]
    Wake(#[source] nix::errno::Errno),
    /// Threads have run out.
    #[error("cannot start the mount table's thread")]
    Thread(#[source] std::io::Error),
}

/// The running watcher. It ends when this is dropped.
#[derive(Debug)]
pub struct Handle {
    requests: Arc<Requests>,
    /// Kept for its end alone.
    _thread: Running,
}

impl Handle {
    /// Asks for a reading of everything as soon as the pace allows it. Never blocks; many requests make one.
    pub fn rescan(&self) {
        self.requests.ask_all();
    }

    /// Asks for the options of the volumes, and whether any mount came or went.
    pub fn refresh(&self) {
        self.requests.ask_refresh();
    }

    /// Takes what a sensor knows that is told of changes one by one.
    pub fn changes(&self) -> impl Fn(MountChange) + Send + Sync + 'static {
        let requests = Arc::clone(&self.requests);
        move |change| requests.take_change(change)
    }

    /// Mount events are delivered from now on, until [`MountChange::Ended`].
    pub fn has_events(&self) {
        self.requests.set_events(true, PERCENT_WITH_EVENTS);
    }

    /// The mounts whose options matter, by unique id.
    pub fn watch(&self, volumes: BTreeSet<u64>) {
        self.requests.watch(volumes);
    }

    /// Somebody has spent this much processor time on a table that was sent: part of what a change costs.
    pub fn spent(&self, cost: Duration) {
        self.requests.add_spent(cost);
    }
}

/// Starts to watch the table. The first snapshot follows at once; a table that cannot be read is reported as
/// `Source(Mountinfo, Off(…))` and tried again. `Source(Listmount, …)` says whether mounts are asked for one by one.
pub fn start(settings: Settings, events: Sender<SensorEvent>) -> Result<Handle, StartError> {
    let source = Box::new(ProcFile::new(settings.mountinfo));
    let reading = Reading::by_id(source, settings.namespace.as_deref());
    run(reading, settings.processor_percent, events)
}

/// The same with any source of the text, and by the text alone.
pub fn start_with(
    source: impl TableSource + 'static,
    processor_percent: u32,
    events: Sender<SensorEvent>,
) -> Result<Handle, StartError> {
    run(Reading::by_text(Box::new(source), "not asked for"), processor_percent, events)
}

fn run(reading: Reading, processor_percent: u32, events: Sender<SensorEvent>) -> Result<Handle, StartError> {
    let wake = Arc::new(Wake::new().map_err(StartError::Wake)?);
    let requests = Arc::new(Requests::new(Arc::clone(&wake), processor_percent));
    let outbox = Outbox::new(events, wake);
    let watcher = Watcher {
        reading,
        pace: Pace::new(processor_percent),
        outbox: outbox.clone(),
        requests: Arc::clone(&requests),
        work: Work { all: true, ..Work::default() },
        refresh_at: Monotonic::default(),
        refreshed: Monotonic::default(),
        took: Duration::ZERO,
        reported: [None, None],
    };
    let thread = Running::start("mount-table", SourceName::Mountinfo, &outbox, move || watcher.run())
        .map_err(StartError::Thread)?;
    Ok(Handle { requests, _thread: thread })
}

/// The thread's own state.
struct Watcher {
    reading: Reading,
    pace: Pace,
    outbox: Outbox,
    requests: Arc<Requests>,
    /// Reported, or asked for, and not begun.
    work: Work,
    /// The next refresh without being asked.
    refresh_at: Monotonic,
    /// When the options of the volumes were last asked for.
    refreshed: Monotonic,
    /// The last reading of everything took this long.
    took: Duration,
    /// What was last said about the two sources.
    reported: [Option<SourceState>; 2],
}

impl Watcher {
    fn run(mut self) {
        while !self.requests.wake.is_stopping() {
            self.work.merge(self.requests.take_work());
            let now = clock::now();
            self.pace.set_percent(self.requests.percent());
            let spent = self.requests.take_spent();
            if !spent.is_zero() {
                self.pace.spent(now, spent);
            }
            let rest = self.pace.until_allowed(now);
            self.work.all |= self.pace.until_due(now).is_zero();
            self.work.refresh |= self.reading.is_by_id() && self.refresh_at <= now;
            if rest.is_zero() && self.work.is_wanted() {
                if !self.look() {
                    return;
                }
            } else if rest.is_zero() {
                self.wait(now);
            } else {
                // Reports stay with the kernel during the rest; only the bell is listened to.
                self.requests.wake.wait(None, rest);
            }
        }
    }

    fn wait(&mut self, now: Monotonic) {
        let due = self.pace.until_due(now);
        let changes = self.reading.text.changes().map(|file| (file, PollFlags::POLLPRI));
        if !self.reading.is_by_id() {
            self.work.all |= self.requests.wake.wait(changes, due) == Woken::Ready;
            return;
        }
        let due = due.min(self.refresh_at.since(now));
        if self.requests.has_events() {
            // Mounts come as events. What else mountinfo reports, a refresh finds.
            let deaf = deaf_for(self.refreshed, now);
            let (changes, due) = if deaf.is_zero() { (changes, due) } else { (None, due.min(deaf)) };
            self.work.refresh |= self.requests.wake.wait(changes, due) == Woken::Ready;
        } else {
            self.work.all |= self.requests.wake.wait(changes, due) == Woken::Ready;
        }
    }

    /// Does what is wanted and says what it found. `false`: nobody listens any more.
    fn look(&mut self) -> bool {
        let mut work = std::mem::take(&mut self.work);
        // The text can only be read as a whole.
        work.all |= !self.reading.is_by_id();
        let (started, used) = (clock::now(), clock::thread_processor_time());
        let result = if work.all {
            self.reading.all()
        } else if work.refresh {
            self.reading.refresh(&work.ids, &self.requests.volumes())
        } else {
            self.reading.patch(&work.ids)
        };
        let ended = clock::now();
        let cost = clock::thread_processor_time().saturating_sub(used);
        match result {
            Ok(look) => {
                self.rest(&work, cost, ended);
                if work.all {
                    self.took = ended.since(started);
                }
                self.work.all |= !look.is_settled;
                self.say(look)
            }
            Err(error) => {
                self.pace.failed(ended, RETRY_PAUSE);
                self.report(SourceName::Mountinfo, SourceState::Off(chain(&error)))
            }
        }
    }

    fn rest(&mut self, work: &Work, cost: Duration, ended: Monotonic) {
        if work.all {
            let by_id = self.reading.is_by_id();
            let share = if by_id { BACKSTOP_PER_MILLE_BY_ID } else { BACKSTOP_PER_MILLE };
            self.pace.finished(ended, cost, share);
        } else {
            self.pace.spent(ended, cost);
        }
        if work.all || work.refresh {
            let share = cost.saturating_mul(1000 - REFRESH_PER_MILLE) / REFRESH_PER_MILLE;
            self.refreshed = ended;
            self.refresh_at = ended + if work.all { REFRESH } else { share.clamp(REFRESH, BACKSTOP) };
        }
    }

    fn say(&mut self, look: Look) -> bool {
        let (entries, bad_lines) = (look.entries, look.bad_lines);
        let stats = ScanStats { entries, bad_lines, limit: mount_limit(), took: self.took };
        let by_id = self.reading.state();
        self.report(SourceName::Listmount, by_id)
            && self.report(SourceName::Mountinfo, SourceState::Running)
            && look.table.is_none_or(|table| self.outbox.send(SensorEvent::Table(table)))
            && self.outbox.send(SensorEvent::Scan(stats))
    }

    /// Says how a source does, when that has changed.
    fn report(&mut self, name: SourceName, state: SourceState) -> bool {
        let [listmount, mountinfo] = &mut self.reported;
        let reported = if name == SourceName::Listmount { listmount } else { mountinfo };
        if reported.as_ref() == Some(&state) {
            return true;
        }
        *reported = Some(state.clone());
        self.outbox.send(SensorEvent::Source(name, state))
    }
}

/// How long mountinfo's poll is not listened to: not more often than twice in the usual time, because in a storm of
/// mounts every one is reported there as well. What that may cost is the pace's affair.
fn deaf_for(refreshed: Monotonic, now: Monotonic) -> Duration {
    (REFRESH / 2).saturating_sub(now.since(refreshed))
}

#[cfg(test)]
mod tests;
