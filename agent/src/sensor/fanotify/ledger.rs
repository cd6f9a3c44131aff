//! Who owns an fsid. Events name a file system by its fsid; everything else in the agent by its superblock.
//!
//! An fsid may have several owners: two images with one UUID (a clone, a snapshot). Nothing in the event tells
//! them apart, so the errors are reported for each. That is a hint too many, which costs a probe; one too few
//! would be a fault that nobody sees.
//!
//! An event may arrive before the answer of the child that set its mark. It is held for a while, in bounded
//! number, and given out when the fsid is claimed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use agent_core::id::SuperblockId;
use agent_core::time::Monotonic;

use super::decode::{FsError, Fsid};

const HELD_MAX: usize = 64;
const HELD_FOR: Duration = Duration::from_secs(60);

/// Errors that were read at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Errors {
    /// What.
    pub(super) error: FsError,
    /// When it was read.
    pub(super) at: Monotonic,
}

/// What was held for an fsid that has an owner now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Claimed {
    /// Its errors.
    pub(super) held: Vec<Errors>,
    /// How many events of anybody's were held for too long, and are thrown away.
    pub(super) lost: u64,
}

/// The map and what waits for it.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    owners: BTreeMap<Fsid, BTreeSet<SuperblockId>>,
    held: VecDeque<(Fsid, Errors)>,
}

impl Ledger {
    /// `superblock` answers to `fsid`, and to no other from now on. Returns what was held for it.
    pub(super) fn claim(&mut self, fsid: Fsid, superblock: SuperblockId, now: Monotonic) -> Claimed {
        self.forget(superblock);
        self.owners.entry(fsid).or_default().insert(superblock);
        let lost = self.drop_old(now);
        let (claimed, held) = self.held.drain(..).partition(|(name, _)| *name == fsid);
        self.held = held;
        let claimed: VecDeque<(Fsid, Errors)> = claimed;
        Claimed { held: claimed.into_iter().map(|(_, errors)| errors).collect(), lost }
    }

    /// The superblock is gone or no longer of interest.
    pub(super) fn forget(&mut self, superblock: SuperblockId) {
        self.owners.retain(|_, owners| {
            owners.remove(&superblock);
            !owners.is_empty()
        });
    }

    /// Every superblock that has a mark.
    pub(super) fn all(&self) -> BTreeSet<SuperblockId> {
        self.owners.values().flatten().copied().collect()
    }

    /// Whose errors these are. Without an owner they are held; the second value counts what was thrown away
    /// for that.
    pub(super) fn attribute(&mut self, fsid: Fsid, errors: Errors) -> (Vec<SuperblockId>, u64) {
        if let Some(owners) = self.owners.get(&fsid) {
            return (owners.iter().copied().collect(), 0);
        }
        let mut lost = self.drop_old(errors.at);
        self.held.push_back((fsid, errors));
        if self.held.len() > HELD_MAX {
            self.held.pop_front();
            lost += 1;
        }
        (Vec::new(), lost)
    }

    fn drop_old(&mut self, now: Monotonic) -> u64 {
        let before = self.held.len();
        self.held.retain(|(_, errors)| now.since(errors.at) < HELD_FOR);
        (before - self.held.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use agent_core::errno::Errno;

    use super::*;

    const A: SuperblockId = SuperblockId { major: 7, minor: 1 };
    const B: SuperblockId = SuperblockId { major: 7, minor: 2 };

    fn errors(seconds: u64, count: u32) -> Errors {
        Errors {
            error: FsError { errno: Errno(117), count },
            at: Monotonic::from_nanos(seconds * 1_000_000_000),
        }
    }

    #[test]
    fn errors_before_the_claim_are_held_and_given_out_once() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.attribute(Fsid(1), errors(1, 3)), (vec![], 0));
        assert_eq!(ledger.attribute(Fsid(2), errors(1, 9)), (vec![], 0));
        let now = errors(2, 0).at;
        assert_eq!(ledger.claim(Fsid(1), A, now), Claimed { held: vec![errors(1, 3)], lost: 0 });
        assert_eq!(ledger.claim(Fsid(1), A, now), Claimed { held: vec![], lost: 0 });
        assert_eq!(ledger.attribute(Fsid(1), errors(2, 1)), (vec![A], 0));
    }

    #[test]
    fn a_superblock_answers_to_its_last_fsid_only() {
        let mut ledger = Ledger::default();
        ledger.claim(Fsid(1), A, errors(0, 0).at);
        ledger.claim(Fsid(2), A, errors(0, 0).at);
        assert_eq!(ledger.attribute(Fsid(1), errors(1, 1)).0, []);
        assert_eq!(ledger.attribute(Fsid(2), errors(1, 1)).0, [A]);
    }

    #[test]
    fn clones_with_one_fsid_are_both_told() {
        let mut ledger = Ledger::default();
        ledger.claim(Fsid(1), A, errors(0, 0).at);
        ledger.claim(Fsid(1), B, errors(0, 0).at);
        assert_eq!(ledger.attribute(Fsid(1), errors(1, 1)).0, [A, B]);
        assert_eq!(ledger.all(), [A, B].into());
        ledger.forget(A);
        assert_eq!(ledger.attribute(Fsid(1), errors(1, 1)).0, [B]);
    }

    #[test]
    fn what_nobody_claims_is_bounded_in_number_and_time() {
        let mut ledger = Ledger::default();
        let lost: u64 = (0..100).map(|name| ledger.attribute(Fsid(name), errors(1, 1)).1).sum();
        assert_eq!(lost, 100 - HELD_MAX as u64);
        assert_eq!(ledger.attribute(Fsid(500), errors(100, 1)).1, HELD_MAX as u64);
        assert_eq!(ledger.claim(Fsid(99), A, errors(100, 0).at), Claimed { held: vec![], lost: 0 });
    }

    #[test]
    fn what_was_held_for_too_long_is_counted_as_lost_also_by_a_claim() {
        let mut ledger = Ledger::default();
        ledger.attribute(Fsid(1), errors(1, 3));
        ledger.attribute(Fsid(2), errors(1, 3));
        ledger.attribute(Fsid(3), errors(50, 3));
        let claimed = ledger.claim(Fsid(3), A, errors(70, 0).at);
        assert_eq!(claimed, Claimed { held: vec![errors(50, 3)], lost: 2 });
    }
}
