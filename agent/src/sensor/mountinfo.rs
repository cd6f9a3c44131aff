//! The mount table: watch and read.
//!
//! One thread waits for the kernel to report a change, reads the table when the pace allows it, and sends a
//! snapshot when it differs from the last. What the modules do:
//! * `sys::mountinfo` cuts the text into lines within bounded memory and understands each;
//! * [`source`] is the file, [`snapshot`] makes snapshots that can be trusted out of readings that cannot;
//! * [`pace`] keeps the cost within its share of one processor.
//!
//! The order matters for "no change is lost": the report is taken first and the table is read after, so that a
//! change during the reading makes a new report. Reports during a rest stay with the kernel until the thread
//! looks again.
//!
//! The file is a view of the namespace, not of any file system: reading it cannot hang on a dead mount.
//! (Option printers of some file systems take locks of their superblock; none waits for storage.)

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::PollFlags;
use thiserror::Error;
use tokio::sync::mpsc::Sender;

use self::pace::Pace;
use self::snapshot::Scanner;
use self::source::{ProcFile, TableSource};
use crate::error_chain::chain;
use crate::sensor::wake::{Outbox, Wake, Woken, wait_for_end};
use crate::sensor::{ScanStats, SensorEvent, SourceName, SourceState};
use crate::sys::clock;

pub mod pace;
pub mod snapshot;
pub mod source;

/// Between attempts to read a table that cannot be read.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The share of one processor that reading may cost while the kernel only says that something has changed. A
/// little below the budget of ten percent for the whole agent.
pub const PERCENT_BY_POLLING: u32 = 9;

/// The share where mount events are delivered as well. The budget is five percent then, and the threads that
/// take the events need a part of it.
pub const PERCENT_WITH_EVENTS: u32 = 4;

/// What the watcher has to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `/proc/self/mountinfo`, or that of a process in the watched namespace.
    pub mountinfo: PathBuf,
    /// The share of one processor that reading may cost while changes are reported, 1 to 100.
    pub processor_percent: u32,
}

impl Settings {
    /// With the default share.
    #[must_use]
    pub fn new(mountinfo: PathBuf) -> Self {
        Self { mountinfo, processor_percent: PERCENT_BY_POLLING }
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
    wake: Arc<Wake>,
    /// Written here, read by the thread before it rests.
    percent: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    /// Asks for a scan as soon as the pace allows it. Never blocks; many requests make one scan.
    pub fn rescan(&self) {
        self.wake.request();
    }

    /// The same as a function of its own, for a sensor that knows earlier.
    pub fn rescanner(&self) -> impl Fn() + Send + Sync + 'static {
        let wake = Arc::clone(&self.wake);
        move || wake.request()
    }

    /// Changes the share of one processor, from the next scan on: [`PERCENT_WITH_EVENTS`] once mount events are
    /// delivered, [`PERCENT_BY_POLLING`] without them.
    pub fn set_processor_percent(&self, percent: u32) {
        self.percent.store(percent, Ordering::Relaxed);
    }

    /// Ends the thread and waits for it, at most for a second.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.wake.stop();
        if let Some(thread) = self.thread.take() {
            wait_for_end(thread);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts to watch the table. The first snapshot follows at once; a table that cannot be read is reported as
/// `Source(Mountinfo, Off(…))` and tried again.
pub fn start(settings: Settings, events: Sender<SensorEvent>) -> Result<Handle, StartError> {
    start_with(ProcFile::new(settings.mountinfo), settings.processor_percent, events)
}

/// The same with any source of the text.
pub fn start_with(
    source: impl TableSource + 'static,
    processor_percent: u32,
    events: Sender<SensorEvent>,
) -> Result<Handle, StartError> {
    let wake = Arc::new(Wake::new().map_err(StartError::Wake)?);
    let percent = Arc::new(AtomicU32::new(processor_percent));
    let watcher = Watcher {
        source: Box::new(source),
        scanner: Scanner::default(),
        pace: Pace::new(processor_percent),
        outbox: Outbox::new(events, Arc::clone(&wake)),
        wake: Arc::clone(&wake),
        percent: Arc::clone(&percent),
        wanted: true,
        reported: None,
    };
    let thread = std::thread::Builder::new()
        .name("mount-table".into())
        .spawn(move || watcher.run())
        .map_err(StartError::Thread)?;
    Ok(Handle { wake, percent, thread: Some(thread) })
}

/// The thread's own state.
struct Watcher {
    source: Box<dyn TableSource>,
    scanner: Scanner,
    pace: Pace,
    outbox: Outbox,
    wake: Arc<Wake>,
    percent: Arc<AtomicU32>,
    /// A change was reported, or asked for, and no scan has begun since.
    wanted: bool,
    /// What was last said about this source.
    reported: Option<SourceState>,
}

impl Watcher {
    fn run(mut self) {
        while !self.wake.is_stopping() {
            self.wanted |= self.wake.take_request();
            let now = clock::now();
            let rest = self.pace.until_allowed(now);
            let due = self.pace.until_due(now);
            if rest.is_zero() && (self.wanted || due.is_zero()) {
                if !self.scan() {
                    return;
                }
            } else if rest.is_zero() {
                let changes = self.source.changes().map(|file| (file, PollFlags::POLLPRI));
                self.wanted |= self.wake.wait(changes, due) == Woken::Ready;
            } else {
                // Reports stay with the kernel during the rest; only the bell is listened to.
                self.wake.wait(None, rest);
            }
        }
    }

    /// Reads once and says what it found. `false`: nobody listens any more.
    fn scan(&mut self) -> bool {
        self.wanted = false;
        self.wake.take_request();
        let (started, used) = (clock::now(), clock::thread_processor_time());
        let result = self.scanner.scan(self.source.as_mut());
        let ended = clock::now();
        match result {
            Ok(scan) => {
                self.pace.set_percent(self.percent.load(Ordering::Relaxed));
                self.pace.finished(ended, clock::thread_processor_time().saturating_sub(used));
                self.wanted = !scan.is_settled;
                let stats = ScanStats {
                    entries: scan.entries,
                    bad_lines: scan.bad_lines,
                    took: ended.since(started),
                };
                self.report(SourceState::Running)
                    && scan.table.is_none_or(|table| self.outbox.send(SensorEvent::Table(table)))
                    && self.outbox.send(SensorEvent::Scan(stats))
            }
            Err(error) => {
                self.pace.failed(ended, RETRY_PAUSE);
                self.report(SourceState::Off(chain(&error)))
            }
        }
    }

    /// Says how this source does, when that has changed.
    fn report(&mut self, state: SourceState) -> bool {
        if self.reported.as_ref() == Some(&state) {
            return true;
        }
        self.reported = Some(state.clone());
        self.outbox.send(SensorEvent::Source(SourceName::Mountinfo, state))
    }
}

#[cfg(test)]
mod tests;
