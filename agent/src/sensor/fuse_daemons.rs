//! The processes that serve FUSE file systems, and their ends: a file system whose daemon has died answers nobody,
//! and nothing else says so until somebody asks it.
//!
//! Reads procfs alone, never a path on a file system. An end is a hint: the probe that follows says whether the
//! file system is dead.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::id::SuperblockId;
use agent_core::incident::Daemon;
use agent_core::time::Monotonic;
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use tokio::sync::mpsc::Sender;

use self::holders::{Holders, NewHolder};
use crate::sensor::wake::{Outbox, Running, Wake, Woken, no_thread};
use crate::sensor::{SensorEvent, SourceName, SourceState, lock};
use crate::sys::clock;

mod holders;

/// Processes are looked through again after this long: a daemon may have handed its work to another process.
const IDLE: Duration = Duration::from_secs(60);
/// And at most this often, for a daemon that has just started may go into the background.
const PAUSE: Duration = Duration::from_secs(1);
/// Times what it cost: a node with ten thousand processes is not looked through for more than one percent.
const PAUSE_PER_COST: u32 = 100;
/// Ends that are taken at a time.
const BATCH: usize = 64;

/// The running sensor. It ends when this is dropped.
#[derive(Debug)]
pub struct FuseDaemons {
    wake: Arc<Wake>,
    tracked: Arc<Mutex<BTreeSet<SuperblockId>>>,
    /// Kept for its end alone.
    _thread: Running,
}

impl FuseDaemons {
    /// Watches the processes that `proc` shows. Nothing is read until something is tracked.
    #[must_use]
    pub fn start(proc: PathBuf, events: Sender<SensorEvent>) -> (Option<Self>, SourceState) {
        match Self::try_start(proc, events) {
            Ok(running) => (Some(running), SourceState::Running),
            Err(why) => (None, SourceState::Off(why)),
        }
    }

    fn try_start(proc: PathBuf, events: Sender<SensorEvent>) -> Result<Self, String> {
        let no_descriptor = |errno: Errno| format!("no descriptor for the thread: {errno}");
        std::fs::read_dir(&proc)
            .map_err(|error| format!("cannot read the processes in `{}`: {error}", proc.display()))?;
        let wake = Wake::for_thread()?;
        let ends = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(no_descriptor)?;
        let tracked = Arc::new(Mutex::new(BTreeSet::new()));
        let outbox = Outbox::new(events, Arc::clone(&wake));
        let watcher = Watcher {
            holders: Holders::new(proc),
            ends,
            outbox: outbox.clone(),
            wake: Arc::clone(&wake),
            wanted: Arc::clone(&tracked),
            tracked: BTreeSet::new(),
            served: BTreeSet::new(),
            told: BTreeMap::new(),
            due: None,
            not_before: Monotonic::default(),
            state: SourceState::Running,
        };
        let thread = Running::start("fuse-daemons", SourceName::FuseDaemons, &outbox, move || watcher.run())
            .map_err(no_thread)?;
        Ok(Self { wake, tracked, _thread: thread })
    }

    /// These FUSE file systems are tracked from now on.
    pub fn track(&self, superblocks: BTreeSet<SuperblockId>) {
        let mut tracked = lock(&self.tracked);
        if *tracked != superblocks {
            *tracked = superblocks;
            self.wake.request();
        }
    }
}

struct Watcher {
    holders: Holders,
    /// Every holder's end, by process id.
    ends: Epoll,
    outbox: Outbox,
    wake: Arc<Wake>,
    wanted: Arc<Mutex<BTreeSet<SuperblockId>>>,
    tracked: BTreeSet<SuperblockId>,
    /// Tracked ones whose daemon was seen at some time.
    served: BTreeSet<SuperblockId>,
    /// Which processes serve which of them, as it was told last.
    told: BTreeMap<SuperblockId, Daemon>,
    /// When processes are looked through next; never while nothing is tracked.
    due: Option<Monotonic>,
    not_before: Monotonic,
    state: SourceState,
}

impl Watcher {
    fn run(mut self) {
        while !self.wake.is_stopping() {
            let timeout = self.due.map_or(IDLE, |due| due.since(clock::now()));
            let ends = (self.ends.0.as_fd(), PollFlags::POLLIN);
            if self.wake.wait(Some(ends), timeout) == Woken::Ready && !self.take_ends() {
                return;
            }
            if self.wake.take_request() {
                self.tracked = lock(&self.wanted).clone();
                if !self.look_again(clock::now()) {
                    return;
                }
            }
            if self.due.is_some_and(|due| due <= clock::now()) && !self.look() {
                return;
            }
        }
    }

    /// Processes are to be looked through as soon as the pace allows. `false`: the thread has to end.
    fn look_again(&mut self, now: Monotonic) -> bool {
        self.due = (!self.tracked.is_empty()).then(|| self.not_before.max(now));
        if !self.tracked.is_empty() {
            return true;
        }
        self.holders.clear();
        self.served.clear();
        // Nothing is missed where there is nothing to miss.
        self.say(SourceState::Running)
    }

    /// Takes in the ends of holders. `false`: the thread has to end.
    fn take_ends(&mut self) -> bool {
        let mut events = [EpollEvent::empty(); BATCH];
        let count = self.ends.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        let mut orphans = BTreeSet::new();
        for event in events.iter().take(count) {
            orphans.extend(self.holders.end(event.data(), &self.tracked));
        }
        // Another process may have taken over; if not, nothing is lost by having looked.
        if !self.look_again(clock::now()) {
            return false;
        }
        orphans.is_empty() || self.outbox.send(SensorEvent::Look(orphans))
    }

    /// Looks through the processes. `false`: the thread has to end.
    fn look(&mut self) -> bool {
        let used = clock::thread_processor_time();
        let looked = self.holders.look();
        let cost = clock::thread_processor_time().saturating_sub(used);
        let now = clock::now();
        self.not_before = now + PAUSE.max(cost.saturating_mul(PAUSE_PER_COST));
        self.due = Some(self.not_before.max(now + IDLE));
        let new = self.holders.take_new();
        let unwatched = self.watch(new);
        self.served.retain(|superblock| self.tracked.contains(superblock));
        self.served.extend(self.holders.served(&self.tracked));
        let daemons = self.holders.daemons(&self.tracked);
        if daemons != self.told {
            self.told.clone_from(&daemons);
            if !self.outbox.send(SensorEvent::Daemons(daemons)) {
                return false;
            }
        }
        let unseen = self.tracked.len() - self.served.len();
        self.say(match looked {
            Err(error) => SourceState::Degraded(format!("cannot read the processes: {error}")),
            Ok(()) if let Some(errno) = unwatched => {
                SourceState::Degraded(format!("a daemon cannot be watched: {errno}"))
            }
            Ok(()) if unseen > 0 => SourceState::Degraded(format!(
                "the daemons of {unseen} file systems are not among the processes that are seen here; \
                 their ends are found by probes"
            )),
            Ok(()) => SourceState::Running,
        })
    }

    /// Waits for the ends of these from now on. One that cannot be waited for is forgotten, so that the next look
    /// tries it again; the last reason is returned.
    fn watch(&mut self, new: Vec<NewHolder>) -> Option<Errno> {
        let mut refused = None;
        for holder in new {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, holder.id);
            if let Err(errno) = self.ends.add(&holder.end, event) {
                self.holders.forget(holder.id);
                refused = Some(errno);
            }
        }
        refused
    }

    fn say(&mut self, state: SourceState) -> bool {
        if self.state == state {
            return true;
        }
        self.state = state.clone();
        self.outbox.send(SensorEvent::Source(SourceName::FuseDaemons, state))
    }
}

#[cfg(test)]
mod tests;
