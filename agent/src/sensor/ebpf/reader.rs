//! The thread that reads: records at once, counters after a record and every second.
//!
//! A record wakes it; the counters carry the truth. What the event loop has no room for is kept: a counter's
//! growth is passed on at the next reading, a record is counted as lost.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use agent_common::decode::{Record, decode};
use agent_common::record::NameRecord;
use agent_common::settings::LOWER_SUPERBLOCKS;
use agent_core::id::SuperblockId;
use agent_core::incident::Device;
use agent_core::time::Monotonic;
use aya::maps::{MapData, MapError, RingBuf};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use super::counters::Counters;
use super::loader::attacher::Attacher;
use super::loader::{Loaded, how_far};
use super::losses::Losses;
use super::maps::{KernelLower, KernelPlaces, Maps};
use super::names::{Names, Place};
use super::pairs::Pairs;
use super::places::Places;
use super::stacks::Stacks;
use super::{Command, Watched, decode as observations};
use crate::sensor::{LossCause, ProgramStatus, SensorEvent, SourceName, SourceState};
use crate::sys::{bpf, clock};

/// Counters are read at least this often.
const IDLE: Duration = Duration::from_secs(1);
/// And at most this often, however many records come.
const BUSY: Duration = Duration::from_millis(20);
/// With very many counters less often: between two readings so many times what one costs. Records tell what is new
/// meanwhile.
const REST: u32 = 20;
/// Modules and stacks of devices are looked at again after this, also when nothing else has changed.
const SLOW: Duration = Duration::from_mins(1);
/// Records taken before looking at anything else.
const BATCH: usize = 256;

/// What is wrong, by where it comes from: each part clears by itself.
#[derive(Debug)]
struct Condition {
    /// As the programs are attached, also those of modules that came later.
    attached: SourceState,
    /// What could not be put into the maps at the last change.
    places: Option<String>,
    /// What of the devices below could not.
    lower: Option<String>,
    /// What could not be read the last time.
    reading: Option<String>,
    /// What goes on being lost.
    losing: Option<String>,
}

impl Condition {
    /// The worst of it.
    fn state(&self) -> SourceState {
        let worst =
            [&self.reading, &self.losing, &self.places, &self.lower].into_iter().find_map(Option::as_ref);
        match worst {
            Some(reason) => SourceState::Degraded(reason.clone()),
            None => self.attached.clone(),
        }
    }
}

/// Everything the thread owns.
pub(super) struct Reader {
    /// Keeps programs and links alive, and attaches those of modules when these are loaded.
    attacher: Attacher,
    records: RingBuf<MapData>,
    losses: Losses,
    counters: Counters,
    kernel_places: KernelPlaces,
    kernel_lower: KernelLower,
    places: Places,
    watched: Watched,
    /// Whether a set was ever told: the first one is answered also when it is empty.
    has_tracked: bool,
    stacks: Stacks,
    told_devices: BTreeMap<SuperblockId, Vec<Device>>,
    names: Names,
    pairs: Pairs,
    events: Sender<SensorEvent>,
    commands: Receiver<Command>,
    wake: Arc<EventFd>,
    condition: Condition,
    /// What was last said about this source; at first by its start.
    reported: Option<SourceState>,
    untold: Untold,
    /// Runs of programs that were skipped and that nobody was told of.
    skipped: BTreeMap<&'static str, u64>,
    read_at: Monotonic,
    /// Between two readings while records come.
    pause: Duration,
    slow_at: Monotonic,
    closed: bool,
}

impl Reader {
    /// Puts it together; nothing runs yet.
    pub(super) fn new(
        (maps, loaded): (Maps, Loaded),
        names: Names,
        events: Sender<SensorEvent>,
        link: Link,
    ) -> Self {
        let state = loaded.state;
        Self {
            attacher: loaded.attacher,
            records: maps.records,
            losses: maps.losses,
            counters: maps.counters,
            kernel_places: maps.places,
            kernel_lower: maps.lower,
            places: Places::default(),
            watched: Watched::default(),
            has_tracked: false,
            stacks: Stacks::default(),
            told_devices: BTreeMap::new(),
            names,
            pairs: Pairs::default(),
            events,
            commands: link.commands,
            wake: link.wake,
            reported: Some(state.clone()),
            untold: Untold::default(),
            skipped: BTreeMap::new(),
            condition: Condition { attached: state, places: None, lower: None, reading: None, losing: None },
            read_at: Monotonic::default(),
            pause: BUSY,
            slow_at: clock::now(),
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
            if age >= IDLE || (counters_due && age >= self.pause) {
                self.read_counters();
                counters_due = false;
            }
            if clock::now().since(self.slow_at) >= SLOW {
                self.slow_at = clock::now();
                self.look_below(Stacks::follow_all);
            }
        }
        self.take_records();
        self.read_counters();
    }

    /// Sleeps until there is a record, a command, or counters are due.
    fn wait(&self, counters_due: bool) {
        let interval = if counters_due { self.pause } else { IDLE };
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
        // Before the commands: one that comes meanwhile wakes the next wait. Non-blocking; an error says that it was
        // empty.
        let _ = self.wake.read();
        let mut latest: Option<Watched> = None;
        let goes_on = loop {
            match self.commands.try_recv() {
                Ok(Command::Track(watched)) => latest = Some(watched),
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => break false,
                Err(TryRecvError::Empty) => break true,
            }
        };
        if let Some(watched) = latest.filter(|watched| !self.has_tracked || *watched != self.watched) {
            self.track(watched);
        }
        goes_on
    }

    fn track(&mut self, watched: Watched) {
        let places = Places::new(&watched);
        self.watched = watched;
        self.has_tracked = true;
        // What was counted for superblocks that go away is passed on first.
        self.read_counters();
        self.condition.places = self.kernel_places.apply(&places);
        let kept = places.superblocks.keys().copied().collect();
        if let Err(error) = self.counters.retain(&kept) {
            tracing::debug!(%error, "Counters of untracked superblocks stay");
        }
        if !self.places.superblocks.keys().eq(places.superblocks.keys()) {
            self.names.tracked_others();
        }
        self.places = places;
        // Said also when nothing has changed: from here on the new set is watched.
        self.reported = None;
        self.report();
        // Afterwards, since programs of a module that has come may take seconds to verify.
        self.look_below(Stacks::follow_new);
    }

    /// Looks at what lies below the tracked mounts and tells nobody when it changes: devices, and modules.
    fn look_below(&mut self, look: Look) {
        let superblocks: BTreeSet<SuperblockId> =
            self.watched.tracked.iter().map(|tracked| tracked.superblock).collect();
        look(&mut self.stacks, Path::new("/sys"), &superblocks, &self.watched.sources);
        let (rows, left_out) = self.stacks.rows();
        self.condition.lower = self.kernel_lower.apply(&rows).or_else(|| {
            (left_out > 0).then(|| {
                format!(
                    "errors of devices are not counted for every volume: there are more than {LOWER_SUPERBLOCKS} on \
                     one device, {left_out} too many"
                )
            })
        });
        self.tell_devices();
        let changed = self.attacher.retry();
        if !changed.is_empty() {
            self.condition.attached = how_far(self.attacher.states());
        }
        self.untold.add(changed);
        self.tell_programs();
    }

    /// What has no room is told at the next look.
    fn tell_devices(&mut self) {
        let devices = self.stacks.devices();
        if devices != self.told_devices
            && try_send(&self.events, SensorEvent::Devices(devices.clone()), &mut self.closed)
        {
            self.told_devices = devices;
        }
    }

    fn tell_programs(&mut self) {
        let (events, closed) = (&self.events, &mut self.closed);
        self.untold.tell(|status| try_send(events, SensorEvent::Program(status), closed));
    }

    /// Passes on what the ring buffer holds; whether there was anything.
    fn take_records(&mut self) -> bool {
        let (mut any, mut lost, mut not_looked_up, mut refused) = (false, 0, 0, 0);
        for _ in 0..BATCH {
            let record = match self.records.next() {
                Some(item) => decode(&item),
                None => break,
            };
            any = true;
            let events = match record {
                Ok(Record::Error(record)) => vec![observations::first(&record)],
                Ok(Record::Name(record)) => {
                    let places = self.place(&record);
                    let count =
                        |wanted: Place| places.iter().filter(|place| **place == wanted).count() as u64;
                    not_looked_up += count(Place::NotLookedUp);
                    refused += count(Place::Refused);
                    if count(Place::Gone) > 0 {
                        self.losses.ledger.gone(record.who.tgid, clock::now());
                    }
                    let of = |key| observations::placed(&record.header, &record.who, &key);
                    places.into_iter().filter_map(Place::key).map(of).collect()
                }
                Ok(Record::Unknown { kind }) => {
                    tracing::debug!(kind, "Record of an unknown kind skipped");
                    Vec::new()
                }
                Err(error) => {
                    tracing::debug!(%error, "Record skipped");
                    lost += 1;
                    Vec::new()
                }
            };
            for errors in events {
                lost += u64::from(!self.send(SensorEvent::Kernel(errors)));
            }
        }
        let now = clock::now();
        self.losses.ledger.add(LossCause::Names, not_looked_up, now);
        self.losses.ledger.add(LossCause::Refused, refused, now);
        self.losses.ledger.add(LossCause::Agent, lost, now);
        any
    }

    /// What of a failed call is to be counted now, by where its name leads, or its two names.
    fn place(&mut self, record: &NameRecord) -> [Place; 2] {
        let now = clock::now();
        let place = self.names.place(now, record, &self.places);
        if matches!(place, Place::Tracked(_)) {
            self.losses.ledger.placed(record.who.tgid, now);
        }
        self.pairs.take(record, place)
    }

    fn read_counters(&mut self) {
        self.read_at = clock::now();
        let used = clock::thread_processor_time();
        let (events, closed) = (&self.events, &mut self.closed);
        let counters = self.counters.read(|errors| try_send(events, SensorEvent::Kernel(errors), closed));
        let lost = self.losses.read(self.read_at);
        self.read_skipped();
        let (events, closed) = (&self.events, &mut self.closed);
        self.losses
            .ledger
            .pass_on(|cause, count| try_send(events, SensorEvent::Dropped(cause, count), closed));
        self.condition.losing = self.losses.ledger.told(self.read_at);
        let unreadable = |what: &str, error: MapError| format!("{what} cannot be read: {error}");
        self.condition.reading = counters
            .map_err(|error| unreadable("the counters", error))
            .and(lost.map_err(|error| unreadable("the count of lost records", error)))
            .err();
        self.report();
        self.tell_programs();
        self.pause = pause(clock::thread_processor_time().saturating_sub(used));
    }

    fn read_skipped(&mut self) {
        for (row, runs) in self.attacher.skipped.grown(self.read_at, bpf::recursion_misses) {
            self.losses.ledger.skipped(row, self.read_at);
            *self.skipped.entry(row.name).or_default() += runs;
        }
        let (events, closed) = (&self.events, &mut self.closed);
        self.skipped
            .retain(|program, runs| !try_send(events, SensorEvent::Skipped { program, runs: *runs }, closed));
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

/// How long to wait after a reading that has cost so much processor time.
fn pause(cost: Duration) -> Duration {
    cost.saturating_mul(REST).clamp(BUSY, IDLE)
}

/// A way to look below tracked superblocks.
type Look = fn(&mut Stacks, &Path, &BTreeSet<SuperblockId>, &BTreeMap<SuperblockId, Vec<u8>>);

/// States of programs that have not been told yet, the latest of each.
#[derive(Debug, Default)]
struct Untold(BTreeMap<&'static str, ProgramStatus>);

impl Untold {
    fn add(&mut self, statuses: Vec<ProgramStatus>) {
        self.0.extend(statuses.into_iter().map(|status| (status.program, status)));
    }

    /// Tells as many as find room; the others stay.
    fn tell(&mut self, mut send: impl FnMut(ProgramStatus) -> bool) {
        while let Some(first) = self.0.first_entry()
            && send(first.get().clone())
        {
            first.remove();
        }
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
    use crate::sensor::ProgramState;

    #[test]
    fn a_program_that_found_no_room_is_told_the_next_time() {
        let status = |program, state| ProgramStatus {
            program,
            family: "extra",
            hook: program,
            lost_without: "",
            fallback: "probes only",
            state,
        };
        let (sender, mut events) = tokio::sync::mpsc::channel(1);
        let mut closed = false;
        let mut untold = Untold::default();
        untold.add(vec![
            status("a", ProgramState::Attached),
            status("b", ProgramState::Waits("for module b".to_owned())),
        ]);
        untold.tell(|status| try_send(&sender, SensorEvent::Program(status), &mut closed));
        // Another state meanwhile takes the place of the one that was not told.
        untold.add(vec![status("b", ProgramState::Attached)]);
        let mut told = Vec::new();
        while let Ok(SensorEvent::Program(status)) = events.try_recv() {
            told.push((status.program, status.state));
            untold.tell(|status| try_send(&sender, SensorEvent::Program(status), &mut closed));
        }
        assert_eq!(told, [("a", ProgramState::Attached), ("b", ProgramState::Attached)]);
    }

    #[test]
    fn the_dearer_a_reading_the_rarer_it_is_and_never_rarer_than_at_rest() {
        let millis = Duration::from_millis;
        assert_eq!([0, 1, 8, 900].map(|cost| pause(millis(cost))), [BUSY, BUSY, millis(160), IDLE]);
    }

    #[test]
    fn a_trouble_that_has_passed_is_no_longer_told() {
        let attached = SourceState::Running;
        let mut condition = Condition { attached, places: None, lower: None, reading: None, losing: None };
        condition.places = Some("not every mount point".to_owned());
        condition.reading = Some("the counters".to_owned());
        assert_eq!(condition.state(), SourceState::Degraded("the counters".to_owned()));
        condition.reading = None;
        assert_eq!(condition.state(), SourceState::Degraded("not every mount point".to_owned()));
        condition.places = None;
        assert_eq!(condition.state(), SourceState::Running);
    }
}
