//! Which superblocks have a mark for their errors, through which mount, which were refused one, and when to ask again.
//!
//! A mark belongs to the superblock: of the mounts that show it one is asked for, another only where that one was
//! refused for good or is gone. A mark dies with its superblock, so where a mount is new it is set anew. A refusal
//! that another try cannot change is final for its mount; any other is tried again, at growing pauses and a bounded
//! number of times: a mount that hangs for an hour must not cost a child every few seconds, and one that was busy at
//! the first try must not stay without.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent_core::id::{MountId, SuperblockId};
use agent_core::time::Monotonic;
use agent_core::topology::Mount;

use crate::sensor::fanotify::MarkRefused;

/// The pause after the first refusal. It doubles with each.
const PAUSE: Duration = Duration::from_secs(5);

/// Attempts a mount. The last one is ten minutes after the first.
const ATTEMPTS: u32 = 8;

/// One mount of one superblock. Device numbers and mount ids are used again; unique ids are not.
pub(super) type MarkKey = (SuperblockId, MountId, Option<u64>);

/// The key of a mount.
pub(super) fn key_of(mount: &Mount) -> MarkKey {
    (mount.superblock, mount.id, mount.unique)
}

/// What is known of one mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    attempts: u32,
    /// When it is to be asked for again. `None`: it is asked for now, it is set, or it is given up.
    again: Option<Monotonic>,
    is_given_up: bool,
    /// Whether its file system could report, so that something is lost where it is given up.
    could_report: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Marks {
    known: BTreeMap<MarkKey, Mark>,
}

impl Marks {
    /// Forgets mounts that are not there any more, and returns the superblocks that went with them.
    pub(super) fn keep(&mut self, current: &BTreeSet<MarkKey>) -> BTreeSet<SuperblockId> {
        let shown: BTreeSet<SuperblockId> = current.iter().map(|key| key.0).collect();
        let gone =
            self.known.keys().map(|key| key.0).filter(|superblock| !shown.contains(superblock)).collect();
        self.known.retain(|key, _| current.contains(key));
        gone
    }

    /// Forgets the marks of a superblock: another one has its number.
    pub(super) fn renew(&mut self, superblock: SuperblockId) {
        self.known.retain(|key, _| key.0 != superblock);
    }

    /// Through which of the mounts that show one superblock a mark is to be asked for now, if through any. The caller
    /// does it.
    pub(super) fn ask_one(
        &mut self,
        mounts: impl Iterator<Item = MarkKey> + Clone,
        now: Monotonic,
    ) -> Option<MarkKey> {
        let known = |key: &MarkKey| self.known.get(key);
        let chosen = mounts.clone().find(|key| known(key).is_some_and(|mark| !mark.is_given_up));
        let key = chosen.or_else(|| mounts.clone().find(|key| known(key).is_none()))?;
        self.ask(key, now).then_some(key)
    }

    fn ask(&mut self, key: MarkKey, now: Monotonic) -> bool {
        let new = Mark { attempts: 0, again: Some(now), is_given_up: false, could_report: true };
        let mark = self.known.entry(key).or_insert(new);
        if mark.again.is_none_or(|again| again > now) {
            return false;
        }
        mark.attempts += 1;
        mark.again = None;
        true
    }

    /// Takes the end of an attempt. Says when the next one is, if there is one.
    pub(super) fn refused(&mut self, key: MarkKey, why: &MarkRefused, now: Monotonic) -> Option<Monotonic> {
        let mark = self.known.get_mut(&key)?;
        if !why.is_final() && mark.attempts < ATTEMPTS {
            let doublings = mark.attempts.saturating_sub(1);
            mark.again = Some(now + PAUSE.saturating_mul(1 << doublings));
        }
        mark.is_given_up = mark.again.is_none();
        mark.could_report = !why.is_of_type();
        mark.again
    }

    /// Whether nothing is reported of a superblock, although others of its kind do: every mount of it that was asked
    /// for was given up.
    pub(super) fn is_silent(&self, superblock: SuperblockId) -> bool {
        let from = (superblock, MountId(0), None);
        let of_it =
            || self.known.range(from..).take_while(|(key, _)| key.0 == superblock).map(|(_, mark)| mark);
        of_it().all(|mark| mark.is_given_up) && of_it().any(|mark| mark.could_report)
    }

    /// Forgets what is due and was not asked for: the mount is there, and not tracked any more. If it is again,
    /// it begins anew.
    pub(super) fn drop_due(&mut self, now: Monotonic) {
        self.known.retain(|_, mark| mark.again.is_none_or(|again| again > now));
    }

    /// When the next attempt is due.
    pub(super) fn next(&self) -> Option<Monotonic> {
        self.known.values().filter_map(|mark| mark.again).min()
    }
}

#[cfg(test)]
mod tests;
