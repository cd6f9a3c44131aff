//! Calls on two names: what becomes of one failed call when it is known where each of them leads.
//!
//! The kernel side sends the one after the other where it cannot place both. On one mount the call is counted as what
//! it is. On two nobody can tell which of them failed: each that is tracked gets a hint.

use std::collections::BTreeMap;

use agent_common::key::CounterKey;
use agent_common::record::part;
use agent_common::settings::op;

use super::names::Place;

/// First names that wait for their second. One waits for long only when the ring had no room for that one.
const WAITING: usize = 256;

/// First names whose second has not come yet, by thread.
#[derive(Debug, Default)]
pub(super) struct Pairs(BTreeMap<u32, Place>);

impl Pairs {
    /// Takes in where one name of a call leads; what is to be counted now. Which part of its call the name is says
    /// the record.
    pub(super) fn take(&mut self, thread: u32, which: u8, place: Place) -> [Place; 2] {
        match which {
            part::FIRST => {
                if self.0.len() >= WAITING {
                    self.0.clear();
                }
                self.0.insert(thread, place);
                [Place::Elsewhere; 2]
            }
            // Without the first, the other one may have been anywhere.
            part::SECOND => both(self.0.remove(&thread).unwrap_or(Place::Elsewhere), place),
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
        Place::Elsewhere | Place::NotLookedUp => place,
    };
    [hint(first), hint(second)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(s_dev: u32, op: u8) -> Place {
        Place::Tracked(CounterKey { root_ino: 0, s_dev, errno: 5, op, reserved: 0 })
    }

    const NOTHING: [Place; 2] = [Place::Elsewhere; 2];

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
            assert_eq!(pairs.take(7, part::FIRST, first), NOTHING);
            // Somebody else's call in between.
            assert_eq!(pairs.take(8, part::ALONE, at(9, own)), [at(9, own), Place::Elsewhere]);
            assert_eq!(pairs.take(7, part::SECOND, second), expected);
        }
    }

    #[test]
    fn a_second_name_whose_first_was_lost_condemns_nobody() {
        let mut pairs = Pairs::default();
        assert_eq!(pairs.take(7, part::SECOND, at(1, op::CHANGE)), [Place::Elsewhere, at(1, op::EITHER)]);
        for thread in 0..10 * u32::try_from(WAITING).unwrap() {
            pairs.take(thread, part::FIRST, at(1, op::CHANGE));
        }
        assert!(pairs.0.len() <= WAITING);
    }
}
