//! What one census says beside the one before it: which calls still wait. Pure.
//!
//! A task is in the same call when thread, call, arguments and place are the same, no call of its that reads or writes
//! data has ended meanwhile, and it has hardly run. "Hardly", because the kernel wakes a waiter now and then to try
//! again (CIFS does, every ten seconds); a program that makes the same call over and over runs more often than that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent_common::record::{BlockedRecord, SLEEPS_DEEP};
use agent_core::id::SuperblockId;
use agent_core::observation::{BlockedOn, BlockedTask, Task};
use agent_core::path::escape;
use agent_core::time::Monotonic;

use super::calls;

/// A task that runs no more often than this while it waits is in the same call; once more is forgiven.
const RUNS_EVERY: Duration = Duration::from_secs(4);
/// A wait that no census could look at for so long is not believed any more. Long enough for a process at which looking
/// hangs each time, and which is left out for a minute then.
const BELIEVED: Duration = Duration::from_secs(300);

/// The call that a thread is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Call {
    tid: u32,
    started: u64,
    syscall: u32,
    arguments: [u64; 6],
    s_dev: u32,
    by_text: bool,
}

impl Call {
    const fn of(record: &BlockedRecord) -> Self {
        Self {
            tid: record.who.pid,
            started: record.started,
            syscall: record.syscall,
            arguments: record.arguments,
            s_dev: record.s_dev,
            by_text: record.by_text != 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    record: BlockedRecord,
    since: Monotonic,
    /// When it was told last.
    seen: Monotonic,
    /// How often it had run, and how many calls it had ended, when it was first seen.
    switches: u64,
    calls: u64,
    /// Where the text of its name leads, once that was looked at.
    text: Option<u32>,
}

impl Wait {
    /// Whether this is the same call, later.
    fn goes_on(&self, record: &BlockedRecord, at: Monotonic) -> bool {
        let forgiven = at.since(self.since).as_secs() / RUNS_EVERY.as_secs();
        record.calls == self.calls
            && record.switches.wrapping_sub(self.switches) <= forgiven.saturating_add(1)
    }

    /// Whether nothing but the text of a name says where.
    const fn is_by_name(&self) -> bool {
        self.record.by_text != 0 || self.record.by_name != 0
    }

    const fn superblock(&self) -> u32 {
        match self.text {
            Some(s_dev) => s_dev,
            None => self.record.s_dev,
        }
    }
}

/// The calls of the last census.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    at: Monotonic,
    waits: BTreeMap<Call, Wait>,
}

impl Ledger {
    /// Takes what waits at a moment. Of processes that were not looked at, what waited before is taken to wait still.
    pub(super) fn take(
        &mut self,
        at: Monotonic,
        records: &[BlockedRecord],
        is_unknown: impl Fn(u32) -> bool,
    ) {
        let old = std::mem::take(&mut self.waits);
        self.at = at;
        for record in records {
            let call = Call::of(record);
            let known = old.get(&call).filter(|wait| wait.goes_on(record, at));
            let new = Wait {
                record: *record,
                since: at,
                seen: at,
                switches: record.switches,
                calls: record.calls,
                text: None,
            };
            self.waits.insert(call, known.map_or(new, |wait| Wait { record: *record, seen: at, ..*wait }));
        }
        let told: BTreeSet<u32> = records.iter().map(|record| record.who.pid).collect();
        let kept = |(call, wait): &(Call, Wait)| {
            let is_open = is_unknown(wait.record.who.tgid) && !told.contains(&call.tid);
            is_open && at.since(wait.seen) < BELIEVED
        };
        self.waits.extend(old.into_iter().filter(kept));
    }

    /// The threads whose place only a text can tell, and which have waited since an earlier census, each with its
    /// process; none of those that are avoided.
    pub(super) fn unplaced(&self, most: usize, is_avoided: impl Fn(u32) -> bool) -> BTreeSet<(u32, u32)> {
        let unplaced = |(call, wait): (&Call, &Wait)| {
            let process = wait.record.who.tgid;
            let is_asked = call.by_text && wait.text.is_none() && wait.since < self.at;
            (is_asked && !is_avoided(process)).then_some((process, call.tid))
        };
        self.waits.iter().filter_map(unplaced).take(most).collect()
    }

    /// The text of this thread's name leads to this superblock (0: to none that is known).
    pub(super) fn place(&mut self, tid: u32, s_dev: u32) {
        for (call, wait) in &mut self.waits {
            if call.tid == tid && call.by_text {
                wait.text = Some(s_dev);
            }
        }
    }

    /// Whether anything at all waits there, also since this census only.
    pub(super) fn has_any(&self, tracked: impl Fn(u32) -> bool) -> bool {
        self.waits.values().any(|wait| tracked(wait.superblock()))
    }

    /// What has waited there since an earlier census, by superblock and root, longest first; apart, what only a name
    /// places there.
    pub(super) fn blocked(&self, tracked: impl Fn(u32) -> bool) -> Vec<BlockedOn> {
        let mut places: BTreeMap<(u32, u64, bool), Vec<&Wait>> = BTreeMap::new();
        for (call, wait) in &self.waits {
            let is_placed = !call.by_text || wait.text.is_some();
            if is_placed && wait.since < self.at && tracked(wait.superblock()) {
                // The root belongs to the directory that the name starts from.
                let root = if wait.superblock() == call.s_dev { wait.record.root_ino } else { 0 };
                places.entry((wait.superblock(), root, wait.is_by_name())).or_default().push(wait);
            }
        }
        let blocked_on = |((s_dev, root, _), mut waits): ((u32, u64, bool), Vec<&Wait>)| {
            waits.sort_by_key(|wait| (wait.since, wait.record.who.pid));
            BlockedOn {
                superblock: SuperblockId::from_kernel(s_dev),
                root_inode: (root != 0).then_some(root),
                count: u64::try_from(waits.len()).unwrap_or(u64::MAX),
                tasks: waits.into_iter().take(BlockedOn::MOST).map(task).collect(),
            }
        };
        places.into_iter().map(blocked_on).collect()
    }
}

fn task(wait: &Wait) -> BlockedTask {
    let who = &wait.record.who;
    BlockedTask {
        task: Task {
            tid: who.pid,
            pid: who.tgid,
            comm: escape(who.comm.split(|byte| *byte == 0).next().unwrap_or_default()),
            cgroup: who.cgroup,
            mnt_ns: who.mnt_ns,
        },
        call: calls::name(wait.record.syscall),
        since: wait.since,
        is_deep: wait.record.state == SLEEPS_DEEP,
        is_by_name: wait.is_by_name(),
    }
}

#[cfg(test)]
mod tests;
