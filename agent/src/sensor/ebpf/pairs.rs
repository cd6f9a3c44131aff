//! Calls on two names: what becomes of one failed call when it is known where each of them leads.
//!
//! The kernel side sends the one after the other where it cannot place both. On one mount the call is counted as what
//! it is. On two nobody can tell which of them failed: each that is tracked gets a hint.

use std::collections::BTreeMap;

use agent_common::key::CounterKey;
use agent_common::record::{NameRecord, part};
use agent_common::settings::op;

use super::names::Place;

/// First names that wait for their second.
const WAITING: usize = 256;
/// Both are sent by one call, the one right after the other. A first name that is older than this has lost its second,
/// and the number of its thread may be another's by now.
const TOGETHER_NANOS: u64 = 1_000_000_000;

/// First names whose second has not come yet, by thread, with the time at which they were sent.
#[derive(Debug, Default)]
pub(super) struct Pairs(BTreeMap<u32, (u64, Place)>);

impl Pairs {
    /// Takes in where one name of a call leads; what is to be counted now. Which part of its call the name is says
    /// the record.
    pub(super) fn take(&mut self, record: &NameRecord, place: Place) -> [Place; 2] {
        let (thread, sent) = (record.who.pid, record.header.ktime);
        let belongs = |first: u64| sent.saturating_sub(first) < TOGETHER_NANOS;
        match record.part {
            part::FIRST => {
                if self.0.len() >= WAITING {
                    self.0.retain(|_, (first, _)| belongs(*first));
                }
                // The others go on waiting: each of them may be half of a call.
                if self.0.len() < WAITING || self.0.contains_key(&thread) {
                    self.0.insert(thread, (sent, place));
                }
                [Place::Elsewhere; 2]
            }
            // Without the first, the other one may have been anywhere.
            part::SECOND => {
                let first = self.0.remove(&thread).filter(|(first, _)| belongs(*first));
                both(first.map_or(Place::Elsewhere, |(_, place)| place), place)
            }
            _ => [place, Place::Elsewhere],
        }
    }
}

fn both(first: Place, second: Place) -> [Place; 2] {
    if first == second {
        return [first, Place::Elsewhere];
    }
    let hint = |place| match place {
        Place::Tracked(key) => Place::Tracked(CounterKey { op: op::EITHER, ..key }),
        Place::Elsewhere | Place::NotLookedUp | Place::Refused | Place::Gone => place,
    };
    [hint(first), hint(second)]
}

#[cfg(test)]
mod tests {
    use agent_common::key::NAME_BYTES;
    use agent_common::record::{Header, Who};

    use super::*;

    const fn at(s_dev: u32, op: u8) -> Place {
        Place::Tracked(CounterKey { root_ino: 0, s_dev, errno: 5, op, by_name: 1 })
    }

    const NOTHING: [Place; 2] = [Place::Elsewhere; 2];

    /// A name that a thread has sent at that time.
    fn sent(thread: u32, part: u8, millis: u64) -> NameRecord {
        NameRecord {
            header: Header { ktime: millis * 1_000_000, ..Header::default() },
            who: Who { pid: thread, ..Who::default() },
            dir: 0,
            errno: 5,
            op: op::CHANGE,
            part,
            path_len: 0,
            base_dev: 0,
            path: [0; NAME_BYTES],
        }
    }

    #[test]
    fn two_names_on_one_mount_are_one_call_and_on_two_a_hint_for_each() {
        let mut pairs = Pairs::default();
        let own = op::CHANGE;
        for (first, second, expected) in [
            (at(1, own), at(1, own), [at(1, own), Place::Elsewhere]),
            (at(1, own), at(2, own), [at(1, op::EITHER), at(2, op::EITHER)]),
            (Place::Elsewhere, at(2, own), [Place::Elsewhere, at(2, op::EITHER)]),
            (at(1, own), Place::Elsewhere, [at(1, op::EITHER), Place::Elsewhere]),
            (Place::NotLookedUp, at(2, own), [Place::NotLookedUp, at(2, op::EITHER)]),
            (Place::Elsewhere, Place::Elsewhere, NOTHING),
        ] {
            assert_eq!(pairs.take(&sent(7, part::FIRST, 1), first), NOTHING);
            // Somebody else's call in between.
            assert_eq!(pairs.take(&sent(8, part::ALONE, 1), at(9, own)), [at(9, own), Place::Elsewhere]);
            assert_eq!(pairs.take(&sent(7, part::SECOND, 1), second), expected);
        }
    }

    #[test]
    fn a_second_name_whose_first_was_lost_condemns_nobody() {
        let mut pairs = Pairs::default();
        let (first, second) = (at(2, op::CHANGE), at(1, op::CHANGE));
        let alone = [Place::Elsewhere, at(1, op::EITHER)];
        assert_eq!(pairs.take(&sent(7, part::SECOND, 1), second), alone);
        // Another thread of that number, of whose call this is the second name.
        pairs.take(&sent(7, part::FIRST, 1), first);
        assert_eq!(pairs.take(&sent(7, part::SECOND, 1001), second), alone);
    }

    #[test]
    fn first_names_without_a_second_are_bounded_and_push_out_none_that_has_one() {
        let mut pairs = Pairs::default();
        let own = at(1, op::CHANGE);
        let many = 10 * u32::try_from(WAITING).unwrap();
        for thread in 0..many {
            pairs.take(&sent(thread, part::FIRST, 1), own);
        }
        assert!(pairs.0.len() <= WAITING);
        assert_eq!(pairs.take(&sent(0, part::SECOND, 1), own), [own, Place::Elsewhere]);
        // Those that are left make room once they are old.
        pairs.take(&sent(many, part::FIRST, 2000), own);
        pairs.take(&sent(many + 1, part::FIRST, 2000), own);
        assert_eq!(pairs.0.len(), 2);
    }
}
