//! The thread that reads: records at once, counters after a record and every second.
//!
//! A record wakes it; the counters carry the truth. What the event loop has no room for is kept: a counter's
//! growth is passed on at the next reading, a record is counted as lost.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use agent_common::decode::{Record, decode};
use agent_common::settings::dropped;
use agent_core::path::BytePath;
use agent_core::time::Monotonic;
use aya::Ebpf;
use aya::maps::{MapData, MapError, PerCpuArray, RingBuf};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use super::counters::Counters;
use super::maps::{KernelPlaces, Maps};
use super::names::Names;
use super::places::Places;
use super::{Command, decode as observations};
use crate::sensor::{SensorEvent, SourceName, SourceState};
use crate::sys::clock;

/// Counters are read at least this often.
const IDLE: Duration = Duration::from_secs(1);
/// And at most this often, however many records come.
const BUSY: Duration = Duration::from_millis(20);
/// Records taken before looking at anything else.
const BATCH: usize = 256;

/// What is wrong, by where it comes from: each part clears by itself.
#[derive(Debug)]
struct Condition {
    /// As the programs were attached.
    attached: SourceState,
    /// What could not be put into the maps at the last change.
    places: Option<String>,
    /// What could not be read the last time.
    reading: Option<String>,
}

impl Condition {
    /// The worst of it.
    fn state(&self) -> SourceState {
        match self.reading.as_ref().or(self.places.as_ref()) {
            Some(reason) => SourceState::Degraded(reason.clone()),
            None => self.attached.clone(),
        }
    }
}

/// Everything the thread owns.
pub(super) struct Reader {
    /// Keeps programs and links alive.
    _ebpf: Ebpf,
    records: RingBuf<MapData>,
    lost: PerCpuArray<MapData, u64>,
    counters: Counters,
    kernel_places: KernelPlaces,
    places: Places,
    names: Names,
    events: Sender<SensorEvent>,
    commands: Receiver<Command>,
    wake: Arc<EventFd>,
    condition: Condition,
    /// What was last said about this source; at first by its start.
    reported: Option<SourceState>,
    /// Lost in the kernel, as far as passed on.
    lost_known: u64,
    /// Lost here, not passed on yet.
    lost_here: u64,
    read_at: Monotonic,
    closed: bool,
}

impl Reader {
    /// Puts it together; nothing runs yet.
    pub(super) fn new(
        maps: Maps,
        names: Names,
        events: Sender<SensorEvent>,
        link: Link,
        state: SourceState,
    ) -> Self {
        Self {
            _ebpf: maps.ebpf,
            records: maps.records,
            lost: maps.lost,
            counters: maps.counters,
            kernel_places: maps.places,
            places: Places::default(),
            names,
            events,
            commands: link.commands,
            wake: link.wake,
            reported: Some(state.clone()),
            condition: Condition { attached: state, places: None, reading: None },
            lost_known: 0,
            lost_here: 0,
            read_at: Monotonic::default(),
            closed: false,
        }
    }

    /// Runs until told to stop, or until nobody listens.
    pub(super) fn run(mut self) {
        let mut counters_due = false;
        while !self.closed {
            self.wait(counters_due);
            if !self.obey() {
                break;
            }
            counters_due |= self.take_records();
            let age = clock::now().since(self.read_at);
            if age >= IDLE || (counters_due && age >= BUSY) {
                self.read_counters();
                counters_due = false;
            }
        }
        self.take_records();
        self.read_counters();
    }

    /// Sleeps until there is a record, a command, or counters are due.
    fn wait(&self, counters_due: bool) {
        let interval = if counters_due { BUSY } else { IDLE };
        let left = interval.saturating_sub(clock::now().since(self.read_at));
        // Rounded up: a wait of zero would spin until the time has come.
        let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::ZERO);
        let mut sources = [
            PollFd::new(self.records.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
        ];
        // An interrupted or refused wait is an early look.
        let _ = poll(&mut sources, timeout);
    }

    /// Carries out commands; false means stop.
    fn obey(&mut self) -> bool {
        let mut latest: Option<(Vec<agent_core::engine::Tracked>, Vec<BytePath>)> = None;
        let goes_on = loop {
            match self.commands.try_recv() {
                Ok(Command::Track { tracked, shadows }) => latest = Some((tracked, shadows)),
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => break false,
                Err(TryRecvError::Empty) => break true,
            }
        };
        // Non-blocking; an error says that it was empty.
        let _ = self.wake.read();
        if let Some((tracked, shadows)) = latest {
            self.track(Places::new(&tracked, &shadows));
        }
        goes_on
    }

    fn track(&mut self, places: Places) {
        if places == self.places {
            return;
        }
        // What was counted for superblocks that go away is passed on first.
        self.read_counters();
        self.condition.places = self.kernel_places.apply(&places);
        let kept = places.superblocks.keys().copied().collect();
        if let Err(error) = self.counters.retain(&kept) {
            tracing::debug!(%error, "Counters of untracked superblocks stay");
        }
        self.places = places;
        // Said also when nothing has changed: from here on the new set is watched.
        self.reported = None;
        self.report();
    }

    /// Passes on what the ring buffer holds; whether there was anything.
    fn take_records(&mut self) -> bool {
        let mut any = false;
        for _ in 0..BATCH {
            let record = match self.records.next() {
                Some(item) => decode(&item),
                None => break,
            };
            any = true;
            let event = match record {
                Ok(Record::Error(record)) => Some(observations::first(&record)),
                Ok(Record::Name(record)) => self
                    .names
                    .place(clock::now(), &record, &self.places)
                    .map(|key| observations::placed(&record.header, &record.who, &key)),
                Ok(Record::Unknown { kind }) => {
                    tracing::debug!(kind, "Record of an unknown kind skipped");
                    None
                }
                Err(error) => {
                    tracing::debug!(%error, "Record skipped");
                    self.lost_here += 1;
                    None
                }
            };
            if let Some(errors) = event
                && !self.send(SensorEvent::Kernel(errors))
            {
                self.lost_here += 1;
            }
        }
        any
    }

    fn read_counters(&mut self) {
        self.read_at = clock::now();
        let (events, closed) = (&self.events, &mut self.closed);
        let counters = self.counters.read(|errors| try_send(events, SensorEvent::Kernel(errors), closed));
        let lost = self.lost_in_kernel();
        if let Ok(total) = lost {
            let records = total.saturating_sub(self.lost_known) + self.lost_here;
            if records > 0 && self.send(SensorEvent::Dropped { records, mount_events: 0 }) {
                self.lost_known = total;
                self.lost_here = 0;
            }
        }
        let unreadable = |what: &str, error: MapError| format!("{what} cannot be read: {error}");
        self.condition.reading = counters
            .map_err(|error| unreadable("the counters", error))
            .and(lost.map_err(|error| unreadable("the count of lost records", error)))
            .err();
        self.report();
    }

    fn lost_in_kernel(&self) -> Result<u64, MapError> {
        let mut total = 0u64;
        for row in 0..dropped::ROWS {
            total = self.lost.get(&row, 0)?.iter().fold(total, |sum, share| sum.wrapping_add(*share));
        }
        Ok(total)
    }

    /// Says how this source does, when that has changed. What finds no room is said at the next reading.
    fn report(&mut self) {
        let state = self.condition.state();
        if self.reported.as_ref() != Some(&state)
            && self.send(SensorEvent::Source(SourceName::Bpf, state.clone()))
        {
            self.reported = Some(state);
        }
    }

    fn send(&mut self, event: SensorEvent) -> bool {
        try_send(&self.events, event, &mut self.closed)
    }
}

/// Never waits: the event loop may be waiting for this thread.
fn try_send(events: &Sender<SensorEvent>, event: SensorEvent, closed: &mut bool) -> bool {
    match events.try_send(event) {
        Ok(()) => true,
        Err(TrySendError::Full(_)) => false,
        Err(TrySendError::Closed(_)) => {
            *closed = true;
            false
        }
    }
}

/// The thread's end of the handle.
#[derive(Debug)]
pub(super) struct Link {
    /// What to do.
    pub commands: Receiver<Command>,
    /// Readable when there is a command.
    pub wake: Arc<EventFd>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_that_has_passed_is_no_longer_told() {
        let mut condition = Condition { attached: SourceState::Running, places: None, reading: None };
        condition.places = Some("not every mount point".to_owned());
        condition.reading = Some("the counters".to_owned());
        assert_eq!(condition.state(), SourceState::Degraded("the counters".to_owned()));
        condition.reading = None;
        assert_eq!(condition.state(), SourceState::Degraded("not every mount point".to_owned()));
        condition.places = None;
        assert_eq!(condition.state(), SourceState::Running);
    }
}
