//! Who waits on the volumes: the last census, divided among them.
//!
//! A census is the whole truth of its moment: whoever is not in it does not wait any more. A wait becomes evidence
//! when it is longer than the volume's deadline, the time that a probe is given as well.

use alloc::collections::BTreeMap;
use alloc::{string::String, vec::Vec};

use crate::engine::Engine;
use crate::engine::volume::Volume;
use crate::health::evidence::Waiting;
use crate::health::window::Span;
use crate::id::VolumeId;
use crate::observation::{BlockedOn, BlockedTask, Census};
use crate::time::Monotonic;

/// The most tasks that are shown of a volume.
const SHOWN: usize = 16;
/// The most that a sentence names.
const NAMED: usize = 2;

/// The tasks that wait on one volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Blocked {
    /// How many.
    pub(super) count: u64,
    /// How many of them wait here for certain: not those of which only a name says so.
    certain: u64,
    /// Those that have waited longest.
    pub(super) tasks: Vec<BlockedTask>,
    /// When the first of those began that wait on this very volume, and on no other of its superblock.
    here: Option<Monotonic>,
}

impl Blocked {
    fn add(&mut self, more: BlockedOn, is_here: bool) {
        let is_certain = |blocked: &&BlockedTask| !blocked.is_by_name;
        let first = more.tasks.iter().filter(is_certain).map(|blocked| blocked.since).min();
        if first.is_some() {
            self.certain = self.certain.saturating_add(more.count);
        }
        let first = first.filter(|_| is_here);
        self.here = self.here.into_iter().chain(first).min();
        self.count = self.count.saturating_add(more.count);
        self.tasks.extend(more.tasks);
    }
}

impl Engine {
    /// Takes a census. Tasks on a superblock that is no volume's any more are nobody's.
    pub(super) fn take_census(&mut self, census: Census, now: Monotonic) {
        let mut found: BTreeMap<VolumeId, Blocked> = BTreeMap::new();
        for blocked in census.blocked {
            let owners = self.owners(blocked.superblock, blocked.root_inode);
            let is_here = owners.len() == 1;
            for id in owners {
                found.entry(id).or_default().add(blocked.clone(), is_here);
            }
        }
        let window = self.policy.thresholds.evidence_window;
        let at = census.at.min(now);
        for (id, volume) in &mut self.volumes {
            let blocked = found.remove(id).unwrap_or_default();
            if blocked.count == 0 && volume.blocked.count == 0 {
                continue;
            }
            volume.wait_for(blocked, Span { now: at, window });
            self.touched.insert(id.clone());
        }
    }
}

impl Volume {
    /// Takes who waits on it. Waits that are too long, and that no good look has answered, ask for a look at once. Those
    /// of which only a name says that they are here ask for a look, and are no evidence.
    fn wait_for(&mut self, mut blocked: Blocked, span: Span) {
        blocked.tasks.sort_by_key(|blocked| (blocked.since, blocked.task.tid));
        let deadline = self.watch.deadline;
        let last_due = |is_by_name: bool| {
            let of_kind = blocked.tasks.iter().filter(|task| task.is_by_name == is_by_name);
            of_kind.map(|task| task.since + deadline).filter(|due| *due <= span.now).max()
        };
        self.evidence.waiting = last_due(false).map(|due| Waiting {
            due,
            seen: span.now,
            count: blocked.certain,
            is_here: blocked.here.is_some_and(|since| since + deadline <= span.now),
        });
        let is_answered = |due: Monotonic| self.evidence.good.is_some_and(|good| good.started >= due);
        let is_hinted = last_due(true).is_some_and(|due| !is_answered(due));
        blocked.tasks.truncate(SHOWN);
        self.blocked = blocked;
        if is_hinted || self.evidence.waits_unanswered(span) {
            self.probes.hint(span.now, self.watch.interval, span.window);
        }
    }

    /// Who waits, in a few words; nothing when nobody does.
    pub(super) fn who_waits(&self, now: Monotonic) -> Option<String> {
        let named: Vec<String> = self
            .blocked
            .tasks
            .iter()
            .take(NAMED)
            .map(|blocked| {
                let seconds = now.since(blocked.since).as_secs();
                let task = &blocked.task;
                alloc::format!("{} (process {}) in {} for {seconds} s", task.comm, task.pid, blocked.call)
            })
            .collect();
        let more = self.blocked.count.saturating_sub(u64::try_from(named.len()).unwrap_or(u64::MAX));
        match (named.is_empty(), more) {
            (true, _) => None,
            (false, 0) => Some(alloc::format!("waiting: {}", named.join(", "))),
            (false, more) => Some(alloc::format!("waiting: {}, and {more} more", named.join(", "))),
        }
    }
}
