//! Totals of the kernel's counters, and what they went up by since they were last passed on.
//!
//! Counters are kept while their superblock is tracked. A daemon of a user's own may answer anything to anything, so
//! a few of his mounts would fill the map, and the first error of another volume would find no room. So before the
//! map is full those go whose last failure is the longest ago: what they counted was passed on, and the next failure
//! of their kind makes a new one.

use std::collections::{BTreeMap, BTreeSet};

use agent_common::key::{CounterKey, CounterValue};
use agent_common::settings::MAX_COUNTERS;
use agent_core::observation::KernelErrors;
use aya::maps::{MapData, MapError, PerCpuHashMap};

use super::decode;

/// From so many counters on the stalest go …
const CROWDED: usize = MAX_COUNTERS as usize / 4 * 3;
/// … until so many are left.
const ROOMY: usize = MAX_COUNTERS as usize / 2;

/// The sum over processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Total {
    count: u64,
    last_ktime: u64,
}

impl Total {
    fn of<'a>(shares: impl Iterator<Item = &'a CounterValue>) -> Self {
        shares.fold(Self::default(), |total, share| Self {
            count: total.count.wrapping_add(share.count),
            last_ktime: total.last_ktime.max(share.last_ktime),
        })
    }
}

/// The counters, and what of them is known already.
pub(super) struct Counters {
    map: PerCpuHashMap<MapData, CounterKey, CounterValue>,
    passed_on: BTreeMap<CounterKey, u64>,
}

impl Counters {
    /// Takes the map; nothing is passed on yet.
    pub(super) fn new(map: PerCpuHashMap<MapData, CounterKey, CounterValue>) -> Self {
        Self { map, passed_on: BTreeMap::new() }
    }

    /// Reads every counter and gives what is new to `pass_on`. What it does not take stays new.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub(super) fn read(&mut self, mut pass_on: impl FnMut(KernelErrors) -> bool) -> Result<(), MapError> {
        // Keys first: the walk must not be disturbed, and a key that vanishes meanwhile is none.
        let keys: Vec<CounterKey> = self.map.keys().collect::<Result<_, _>>()?;
        let (all, mut settled) = (keys.len(), Vec::new());
        for key in keys {
            let shares = match self.map.get(&key, 0) {
                Ok(shares) => shares,
                Err(MapError::KeyNotFound) => continue,
                Err(error) => return Err(error),
            };
            let total = Total::of(shares.iter());
            let known = self.passed_on.get(&key).copied().unwrap_or(0);
            let fresh = total.count.saturating_sub(known);
            if fresh > 0 && pass_on(decode::counted(&key, fresh, total.last_ktime)) {
                self.passed_on.insert(key, total.count);
            }
            if self.passed_on.get(&key) == Some(&total.count) {
                settled.push((total.last_ktime, key));
            }
        }
        self.make_room(all, settled)
    }

    /// Removes the stalest counters when there are many. One that goes up in just this moment loses that.
    fn make_room(&mut self, all: usize, settled: Vec<(u64, CounterKey)>) -> Result<(), MapError> {
        for key in stalest(all, settled) {
            self.remove(&key)?;
            self.passed_on.remove(&key);
        }
        Ok(())
    }

    fn remove(&mut self, key: &CounterKey) -> Result<(), MapError> {
        match self.map.remove(key) {
            Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes counters of superblocks that are not tracked any more: their numbers may come back for others.
    ///
    /// # Errors
    /// When the map cannot be changed.
    pub(super) fn retain(&mut self, tracked: &BTreeSet<u32>) -> Result<(), MapError> {
        let keys: Vec<CounterKey> = self.map.keys().collect::<Result<_, _>>()?;
        for key in keys.iter().filter(|key| !tracked.contains(&key.s_dev)) {
            self.remove(key)?;
        }
        self.passed_on.retain(|key, _| tracked.contains(&key.s_dev));
        Ok(())
    }
}

/// Which of the counters that were passed on, each with its last failure, have to make room.
fn stalest(all: usize, mut settled: Vec<(u64, CounterKey)>) -> impl Iterator<Item = CounterKey> {
    let too_many = if all < CROWDED { 0 } else { all - ROOMY };
    settled.sort_unstable();
    settled.into_iter().take(too_many).map(|(_, key)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stalest_counters_make_room_before_the_map_is_full_and_none_that_is_not_passed_on() {
        let settled = |count: usize| -> Vec<(u64, CounterKey)> {
            let key = |number| CounterKey { root_ino: number, ..CounterKey::default() };
            // The later in the order of keys the longer ago.
            (0..count as u64).map(|number| (10_000 - number, key(number))).collect()
        };
        assert_eq!(stalest(CROWDED - 1, settled(CROWDED - 1)).count(), 0);
        let gone: Vec<u64> = stalest(CROWDED, settled(CROWDED)).map(|key| key.root_ino).collect();
        assert_eq!((gone.len(), gone.first()), (CROWDED - ROOMY, Some(&(CROWDED as u64 - 1))));
        assert_eq!(stalest(CROWDED, settled(3)).count(), 3);
    }

    #[test]
    fn a_total_is_the_sum_and_the_latest() {
        let share = |count, last_ktime| CounterValue { count, last_ktime, last_record: 0 };
        let shares = [share(2, 50), share(0, 0), share(3, 20)];
        assert_eq!(Total::of(shares.iter()), Total { count: 5, last_ktime: 50 });
    }
}
