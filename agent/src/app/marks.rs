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
        let new = Mark { attempts: 0, again: Some(now), is_given_up: false };
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
        mark.again
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
mod tests {
    use super::*;

    const KEY: MarkKey = (SuperblockId { major: 7, minor: 1 }, MountId(30), Some(1));

    fn at(seconds: u64) -> Monotonic {
        Monotonic::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_refusal_is_tried_again_at_growing_pauses_and_not_for_ever() {
        let (mut marks, mut now, mut pauses) = (Marks::default(), at(0), Vec::new());
        while marks.ask(KEY, now) {
            assert!(!marks.ask(KEY, now), "one at a time");
            let Some(again) = marks.refused(KEY, &MarkRefused::TimedOut, now) else { break };
            assert!(!marks.ask(KEY, now) && marks.next() == Some(again));
            pauses.push(again.since(now).as_secs());
            now = again;
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320]);
        assert_eq!((marks.next(), marks.ask(KEY, at(1_000_000))), (None, false));
    }

    #[test]
    fn what_another_try_cannot_change_is_not_tried_again() {
        use crate::sensor::fanotify::MarkStep;
        let refused = |step, errno| MarkRefused::Refused { step, errno: agent_core::errno::Errno(errno) };
        let mut marks = Marks::default();
        assert!(marks.ask(KEY, at(0)));
        assert_eq!(marks.refused(KEY, &refused(MarkStep::Mark, 95), at(0)), None);
        let other = (KEY.0, KEY.1, Some(2));
        assert!(marks.ask(other, at(0)));
        assert_eq!(marks.refused(other, &refused(MarkStep::Open, 5), at(0)), Some(at(5)));
    }

    #[test]
    fn a_superblock_that_was_renewed_unseen_by_the_table_gets_a_new_mark() {
        let other = (SuperblockId { major: 7, minor: 2 }, KEY.1, None);
        let mut marks = Marks::default();
        assert!(marks.ask(KEY, at(0)) && marks.ask(other, at(0)));
        marks.renew(KEY.0);
        assert!(marks.ask(KEY, at(1)) && !marks.ask(other, at(1)));
    }

    #[test]
    fn of_the_mounts_that_show_a_superblock_one_is_asked_for() {
        use crate::sensor::fanotify::MarkStep;
        let binds: Vec<MarkKey> = (30..33).map(|id| (KEY.0, MountId(id), Some(u64::from(id)))).collect();
        let mut marks = Marks::default();
        let ask = |marks: &mut Marks, of: &[MarkKey], seconds| {
            marks.ask_one(of.iter().copied(), at(seconds)).map(|key| key.1.0)
        };
        assert_eq!(ask(&mut marks, &binds, 0), Some(30));
        assert_eq!(ask(&mut marks, &binds, 0), None, "it is under way");
        marks.refused(binds[0], &MarkRefused::Busy, at(0));
        assert_eq!(ask(&mut marks, &binds, 4), None, "the pause is the superblock's");
        assert_eq!(ask(&mut marks, &binds, 5), Some(30));
        // A subvolume cannot be marked, the mount of the whole file system can.
        let subvolume = MarkRefused::Refused { step: MarkStep::Mark, errno: agent_core::errno::Errno(18) };
        marks.refused(binds[0], &subvolume, at(5));
        assert_eq!(ask(&mut marks, &binds, 5), Some(31));
        assert_eq!(ask(&mut marks, &binds, 6), None, "it is set");
        // The one through which it was set is gone: a superblock of the same number may be another.
        marks.keep(&[binds[0], binds[2]].into());
        assert_eq!(ask(&mut marks, &[binds[0], binds[2]], 7), Some(32));
        marks.refused(binds[2], &subvolume, at(7));
        assert_eq!(ask(&mut marks, &[binds[0], binds[2]], 8), None);
    }

    #[test]
    fn a_mount_that_is_not_tracked_any_more_is_not_waited_for() {
        let mut marks = Marks::default();
        assert!(marks.ask(KEY, at(0)));
        marks.refused(KEY, &MarkRefused::Busy, at(0));
        marks.drop_due(at(4));
        assert_eq!(marks.next(), Some(at(5)));
        marks.drop_due(at(5));
        assert_eq!(marks.next(), None);
        assert!(marks.ask(KEY, at(6)), "tracked again");
    }

    #[test]
    fn a_new_mount_with_old_numbers_gets_its_own_mark() {
        let mut marks = Marks::default();
        let again = (KEY.0, KEY.1, Some(2));
        assert!(marks.ask(KEY, at(0)));
        assert!(marks.keep(&[again].into()).is_empty(), "the superblock is still shown");
        assert!(marks.ask(again, at(1)));
        assert_eq!(marks.keep(&BTreeSet::new()), [KEY.0].into());
        // The end of an attempt on a mount that is gone.
        assert_eq!(marks.refused(KEY, &MarkRefused::NoAnswer, at(2)), None);
    }
}
