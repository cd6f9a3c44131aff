//! Totals of the kernel's counters, and what they went up by since they were last passed on.

use std::collections::{BTreeMap, BTreeSet};

use agent_common::key::{CounterKey, CounterValue};
use agent_core::observation::KernelErrors;
use aya::maps::{MapData, MapError, PerCpuHashMap};

use super::decode;

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
        }
        Ok(())
    }

    /// Removes counters of superblocks that are not tracked any more: their numbers may come back for others.
    ///
    /// # Errors
    /// When the map cannot be changed.
    pub(super) fn retain(&mut self, tracked: &BTreeSet<u32>) -> Result<(), MapError> {
        let keys: Vec<CounterKey> = self.map.keys().collect::<Result<_, _>>()?;
        for key in keys.iter().filter(|key| !tracked.contains(&key.s_dev)) {
            match self.map.remove(key) {
                Ok(()) | Err(MapError::KeyNotFound) => {}
                Err(error) => return Err(error),
            }
        }
        self.passed_on.retain(|key, _| tracked.contains(&key.s_dev));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_the_sum_and_the_latest() {
        let share = |count, last_ktime| CounterValue { count, last_ktime, last_record: 0 };
        let shares = [share(2, 50), share(0, 0), share(3, 20)];
        assert_eq!(Total::of(shares.iter()), Total { count: 5, last_ktime: 50 });
    }
}
