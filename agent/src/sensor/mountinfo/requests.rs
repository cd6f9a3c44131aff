//! What others ask of the watcher's thread: left here, taken by the thread when its pace allows.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::id::UniqueMountId;

use crate::sensor::wake::Wake;
use crate::sensor::{MountChange, lock};

/// More changed mounts than this are a reason to read everything.
const IDS_MAX: usize = 16 * 1024;

/// What there is to do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Work {
    /// Read everything.
    pub(super) all: bool,
    /// Ask for the volumes, and whether anything else came or went.
    pub(super) refresh: bool,
    /// Ask for these mounts.
    pub(super) ids: BTreeSet<u64>,
}

impl Work {
    /// Whether there is anything.
    pub(super) fn is_wanted(&self) -> bool {
        self.all || self.refresh || !self.ids.is_empty()
    }

    fn add(&mut self, ids: impl IntoIterator<Item = u64>) {
        if !self.all {
            self.ids.extend(ids);
        }
        self.all |= self.ids.len() > IDS_MAX;
    }

    /// Adds what was asked for since.
    pub(super) fn merge(&mut self, other: Self) {
        self.all |= other.all;
        self.refresh |= other.refresh;
        self.add(other.ids);
    }
}

/// Shared by the handle, the sensors that know earlier, and the thread.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) wake: Arc<Wake>,
    work: Mutex<Work>,
    /// Unique ids of the volumes' mounts.
    volumes: Mutex<BTreeSet<u64>>,
    /// The share of one processor, in percent.
    percent: AtomicU32,
    /// Mount events are delivered.
    has_events: AtomicBool,
    /// Processor time that others have spent on the last tables, in nanoseconds.
    spent: AtomicU64,
}

impl Requests {
    pub(super) fn new(wake: Arc<Wake>, percent: u32) -> Self {
        Self {
            wake,
            work: Mutex::default(),
            volumes: Mutex::default(),
            percent: AtomicU32::new(percent),
            has_events: AtomicBool::new(false),
            spent: AtomicU64::new(0),
        }
    }

    pub(super) fn ask_all(&self) {
        lock(&self.work).all = true;
        self.wake.request();
    }

    pub(super) fn ask_refresh(&self) {
        lock(&self.work).refresh = true;
        self.wake.request();
    }

    pub(super) fn take_change(&self, change: MountChange) {
        match change {
            MountChange::Mounts(ids) => {
                lock(&self.work).add(ids.into_iter().map(|UniqueMountId(id)| id));
                self.wake.request();
            }
            MountChange::Lost => self.ask_all(),
            MountChange::Ended => {
                self.set_events(false, super::PERCENT_BY_POLLING);
                self.ask_all();
            }
        }
    }

    pub(super) fn set_events(&self, has_events: bool, percent: u32) {
        self.percent.store(percent, Ordering::Relaxed);
        self.has_events.store(has_events, Ordering::Relaxed);
    }

    pub(super) fn has_events(&self) -> bool {
        self.has_events.load(Ordering::Relaxed)
    }

    pub(super) fn percent(&self) -> u32 {
        self.percent.load(Ordering::Relaxed)
    }

    pub(super) fn watch(&self, volumes: BTreeSet<u64>) {
        *lock(&self.volumes) = volumes;
    }

    pub(super) fn volumes(&self) -> BTreeSet<u64> {
        lock(&self.volumes).clone()
    }

    pub(super) fn add_spent(&self, cost: Duration) {
        let nanos = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
        self.spent.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(super) fn take_spent(&self) -> Duration {
        Duration::from_nanos(self.spent.swap(0, Ordering::Relaxed))
    }

    pub(super) fn take_work(&self) -> Work {
        self.wake.take_request();
        std::mem::take(&mut *lock(&self.work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_changed_mounts_are_a_reason_to_read_everything() {
        let requests = Requests::new(Arc::new(Wake::new().unwrap()), 1);
        requests.take_change(MountChange::Mounts((0..10).map(UniqueMountId).collect()));
        let work = requests.take_work();
        assert!(!work.all && work.ids.len() == 10);
        requests.take_change(MountChange::Mounts((0..=IDS_MAX as u64).map(UniqueMountId).collect()));
        assert!(requests.take_work().all);
        assert!(!requests.take_work().is_wanted());
    }

    #[test]
    fn the_share_grows_again_when_the_events_end() {
        let requests = Requests::new(Arc::new(Wake::new().unwrap()), 1);
        requests.set_events(true, super::super::PERCENT_WITH_EVENTS);
        requests.take_change(MountChange::Lost);
        assert!(requests.has_events() && requests.take_work().all);
        requests.take_change(MountChange::Ended);
        assert_eq!((requests.has_events(), requests.percent()), (false, super::super::PERCENT_BY_POLLING));
        assert!(requests.take_work().all);
    }
}
