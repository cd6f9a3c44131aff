//! The power goes at any moment of a random history of the store. Whatever part of the unfinished writes has come to
//! the disk, the next start reads everything, and misses at most what nobody was told is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use agent_core::hash::hash;
use agent_core::health::loss::Actor;
use agent_core::id::{PlanId, VolumeId};
use agent_core::memory::Memory;
use agent_core::path::BytePath;
use agent_core::pause::{Pause, Pauses};
use agent_core::remediation::{Outcome, Plan};
use agent_core::time::Monotonic;
use agent_core::volume::Sentinel;

use super::disk::Disk;
use super::disk::tape::{Moment, Tape, Torn, clear};
use super::journal::{Journal, StoreError};
use super::pauses::PauseFile;
use super::pins::{self, Pin, Pins};
use super::record::Record;
use super::shelf::Shelf;

/// Random, and the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = hash(&self.0.to_le_bytes());
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// What a change is about, and its value: for a plan, whether it is open; for all else a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Key {
    Plan(u64),
    Volume(usize),
    Pauses,
    Pins,
}

#[derive(Clone, Debug)]
struct Written {
    key: Key,
    value: Option<u64>,
    /// How many changes there were before it, and when somebody was told that it is kept.
    begun: usize,
    told: Option<usize>,
}

/// The store of a running agent.
struct Running {
    journal: Journal,
    shelf: Shelf,
    pauses: PauseFile,
    pins: pins::PinFile,
}

impl Running {
    fn open(disk: &Disk, dir: &Path) -> (Self, Found) {
        let (journal, replay, journal_defects) = Journal::open(disk, dir);
        let (shelf, memories, mut defects) = Shelf::open(disk, dir, false);
        let (pauses, paused, more) = PauseFile::open(disk, dir, false);
        defects.extend(more);
        let pinned = pins::read(disk, dir, Arc::new(OnceLock::from(true)));
        defects.extend(pinned.defects);
        let found = Found {
            values: values(&replay.unfinished, &memories, &paused, &pinned.pins),
            next_plan: replay.next_plan.0,
            journal_defects,
            defects,
        };
        (Self { journal, shelf, pauses, pins: pinned.file }, found)
    }
}

/// What a start reads.
struct Found {
    values: BTreeMap<Key, u64>,
    next_plan: u64,
    journal_defects: Vec<StoreError>,
    defects: Vec<StoreError>,
}

const VOLUMES: [&str; 3] = ["models", "/mnt/caf\\xe9", "b"];

fn values(
    unfinished: &[agent_core::observation::Unfinished],
    memories: &[Memory],
    paused: &Pauses,
    pins: &Pins,
) -> BTreeMap<Key, u64> {
    let mut values = BTreeMap::new();
    values.extend(unfinished.iter().map(|plan| (Key::Plan(plan.plan.0), 1)));
    for memory in memories {
        let number = VOLUMES.iter().position(|name| *name == memory.volume.as_str()).unwrap();
        values.insert(Key::Volume(number), memory.failed.into());
    }
    let number = |text: &str| text.parse().unwrap();
    // Where the file is damaged the agent pauses all, in words of its own: that is a value that was never written.
    let reason = |text: &str| text.parse().unwrap_or(u64::MAX);
    values.extend(paused.node.iter().map(|pause| (Key::Pauses, reason(pause.reason.as_ref().unwrap()))));
    for pin in pins.values() {
        let content = String::from_utf8(pin.sentinel.content.clone().unwrap()).unwrap();
        values.insert(Key::Pins, number(&content));
    }
    values
}

fn plan(id: u64) -> Plan {
    Plan {
        id: PlanId(id),
        volume: VolumeId::new("models"),
        server: None,
        dead: None,
        reason: None,
        mountpoint: "/mnt/models".into(),
        stage: "/run/mountie/stage/1".into(),
        old: None,
        marks: None,
        actions: Vec::new(),
        undo: Vec::new(),
        timeout: std::time::Duration::ZERO,
        helper_timeout: std::time::Duration::ZERO,
    }
}

fn memory(volume: usize, value: u32) -> Memory {
    Memory {
        volume: VolumeId::new(VOLUMES[volume]),
        mountpoint: "/mnt/models".into(),
        named: true,
        known: None,
        learnt: None,
        trouble: None,
        falls: Vec::new(),
        attempts: Vec::new(),
        failed: value,
        ended: None,
        not_before: None,
        asked: None,
        asked_of_consumers: None,
        was_readable: true,
        was_written: true,
        sentinel_read: Some(BytePath::from(".mountie")),
        put_back: true,
        left: Vec::new(),
        mount: None,
    }
}

fn pauses(value: u64) -> Pauses {
    let by = Actor { uid: 0, pid: 1, comm: "mountie".to_owned() };
    let reason = Some(value.to_string());
    let node = Pause { since: Monotonic::default(), since_wall: None, until: None, by, reason };
    Pauses { node: Some(node), ..Pauses::default() }
}

fn pins(value: u64) -> Pins {
    let content = Some(value.to_string().into_bytes());
    let sentinel = Sentinel { path: ".mountie".into(), content };
    Pins::from([(VolumeId::new("models"), Pin { sentinel, source: None })])
}

/// One history, with everything that was written in its order.
struct History {
    tape: Tape,
    written: Vec<Written>,
    value: u64,
    open: BTreeSet<u64>,
    next_plan: u64,
}

impl History {
    fn begin(&mut self, key: Key, value: Option<u64>) {
        self.written.push(Written { key, value, begun: self.tape.len(), told: None });
    }

    /// All that was begun of these is told to be kept.
    fn tell(&mut self, is_meant: impl Fn(Key) -> bool) {
        let now = self.tape.len();
        for written in
            self.written.iter_mut().filter(|written| written.told.is_none() && is_meant(written.key))
        {
            written.told = Some(now);
        }
    }

    /// One step of the agent's.
    fn step(&mut self, dice: &mut Dice, running: &mut Running) {
        self.value += 1;
        let value = self.value;
        match dice.roll(10) {
            0 | 1 => {
                let id = self.next_plan;
                self.next_plan += 1;
                self.open.insert(id);
                self.begin(Key::Plan(id), Some(1));
                running.journal.append(&Record::intent(&plan(id), &BTreeSet::new())).unwrap();
                self.tell(|key| key == Key::Plan(id));
            }
            2 | 3 => {
                let Some(id) = self.open.pop_first() else { return };
                self.begin(Key::Plan(id), None);
                running.journal.append(&Record::outcome(PlanId(id), &Outcome::Changed)).unwrap();
                self.tell(|key| key == Key::Plan(id));
            }
            4..=6 => {
                let volume = dice.roll(VOLUMES.len());
                let is_kept = dice.roll(4) > 0;
                self.begin(Key::Volume(volume), is_kept.then_some(value));
                let memory = memory(volume, u32::try_from(value).unwrap());
                running.shelf.put(&memory.volume, is_kept.then_some(&memory)).unwrap();
            }
            7 => {
                running.shelf.sync().unwrap();
                self.tell(|key| matches!(key, Key::Volume(_)));
            }
            8 => {
                self.begin(Key::Pauses, Some(value));
                running.pauses.write(&pauses(value)).unwrap();
                self.tell(|key| key == Key::Pauses);
            }
            _ => {
                self.begin(Key::Pins, Some(value));
                running.pins.replace(value, &pins(value)).unwrap();
                self.tell(|key| key == Key::Pins);
            }
        }
    }

    /// What a start after the loss of power may find of a key: what was told to be kept last, or something that was
    /// begun after that.
    fn allowed(&self, key: Key, moment: usize) -> Vec<Option<u64>> {
        let mut allowed = vec![None];
        for written in self.written.iter().filter(|written| written.key == key && written.begun < moment) {
            if written.told.is_some_and(|told| told <= moment) {
                allowed.clear();
            }
            allowed.push(written.value);
        }
        allowed
    }

    fn check(&self, moment: usize, found: &Found, what: &str) {
        assert!(found.defects.is_empty(), "{what}: {:?}", found.defects);
        // The line that was being written is lost, with a word; nothing else is.
        let is_torn = |defect: &StoreError| matches!(defect, StoreError::BadLines { lines: 1, .. });
        assert!(found.journal_defects.iter().all(is_torn), "{what}: {:?}", found.journal_defects);
        assert!(found.journal_defects.len() <= 1, "{what}: {:?}", found.journal_defects);
        let keys: BTreeSet<Key> = self.written.iter().map(|written| written.key).collect();
        for key in keys {
            let value = found.values.get(&key).copied();
            let allowed = self.allowed(key, moment);
            assert!(allowed.contains(&value), "{what}: {key:?} is {value:?}, not one of {allowed:?}");
        }
        let told = self.written.iter().filter(|written| written.told.is_some_and(|told| told <= moment));
        let highest = told.filter_map(|written| match written.key {
            Key::Plan(id) => Some(id),
            Key::Volume(_) | Key::Pauses | Key::Pins => None,
        });
        assert!(highest.max().is_none_or(|id| found.next_plan > id), "{what}: a plan id is used twice");
    }
}

/// On a file system without a disk: a sync costs nothing there.
fn scratch() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    dir
}

fn lived(seed: u64, steps: usize, dir: &Path) -> History {
    let mut dice = Dice(seed);
    let tape = Tape::default();
    let disk = Disk { tape: Some(tape.clone()) };
    let mut history = History { tape, written: Vec::new(), value: 0, open: BTreeSet::new(), next_plan: 1 };
    let (mut running, _) = Running::open(&disk, dir);
    for _ in 0..steps {
        if dice.roll(12) == 0 {
            drop(running);
            running = Running::open(&disk, dir).0;
        }
        history.step(&mut dice, &mut running);
    }
    history
}

/// Which of the unsure changes of names have come to the disk: each prefix, and some of all other choices.
fn choices(unsure: usize, dice: &mut Dice) -> BTreeSet<u64> {
    let prefixes = (0..=unsure.min(63)).map(|length| (1_u64 << length) - 1);
    let others: Vec<u64> = (0..unsure.min(4)).map(|_| dice.roll(1 << unsure.min(20)) as u64).collect();
    prefixes.chain(others).collect()
}

#[test]
fn whenever_the_power_goes_everything_is_readable_and_only_what_was_not_told_is_missing() {
    let mut states = 0;
    for seed in 1..=8 {
        let home = scratch();
        let history = lived(seed, 24, home.path());
        let changes = history.tape.changes();
        let mut dice = Dice(seed << 20);
        let root = scratch();
        for moment in 0..=changes.len() {
            let disk = Moment::after(&changes[..moment]);
            let unsure = disk.unsure_names();
            let torn: &[Torn] = if disk.has_unsure_data() { &Torn::SOME } else { &[Torn::All] };
            for kept in choices(unsure, &mut dice) {
                for torn in torn {
                    clear(root.path());
                    disk.write_to((home.path(), root.path()), &|name| kept >> name.min(63) & 1 == 1, *torn);
                    let (_, found) = Running::open(&Disk::default(), root.path());
                    let what =
                        format!("seed {seed}, after {moment} changes, names {kept:b} of {unsure}, {torn:?}");
                    history.check(moment, &found, &what);
                    states += 1;
                }
            }
        }
    }
    assert!(states > 2_000, "only {states} states were tried");
}

#[test]
fn a_store_that_syncs_nothing_is_caught() {
    // The same checks on a record from which every sync was taken out: they must find something.
    let home = scratch();
    let history = lived(3, 24, home.path());
    let changes: Vec<_> = history.tape.changes();
    let root = scratch();
    let mut is_caught = false;
    for moment in 0..=changes.len() {
        let unsynced: Vec<_> = changes[..moment].iter().filter(|change| !change.is_sync()).cloned().collect();
        let disk = Moment::after(&unsynced);
        clear(root.path());
        disk.write_to((home.path(), root.path()), &|_| true, Torn::Nothing);
        let (_, found) = Running::open(&Disk::default(), root.path());
        let checked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| history.check(moment, &found, "")));
        is_caught |= checked.is_err();
    }
    assert!(is_caught);
}
