//! Brings a map of the kernel from what is in it to what is wanted.

use std::collections::BTreeMap;

use agent_common::key::{NameBytes, NameValue};
use aya::Pod;
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{HashMap, MapData, MapError};

use super::loader::os_error;
use super::places::trie_key;

/// A map of the kernel, as far as it is written.
pub(super) trait Rows<K, V> {
    /// Inserts a row, or replaces it.
    fn put(&mut self, key: &K, value: &V) -> Result<(), MapError>;
    /// Takes a row out.
    fn take(&mut self, key: &K) -> Result<(), MapError>;
}

impl<K: Pod, V: Pod> Rows<K, V> for HashMap<MapData, K, V> {
    fn put(&mut self, key: &K, value: &V) -> Result<(), MapError> {
        self.insert(key, value, 0)
    }

    fn take(&mut self, key: &K) -> Result<(), MapError> {
        self.remove(key)
    }
}

/// A name that is too long has no row.
impl Rows<Vec<u8>, NameValue> for LpmTrie<MapData, NameBytes, NameValue> {
    fn put(&mut self, name: &Vec<u8>, value: &NameValue) -> Result<(), MapError> {
        trie_key(name).map_or(Ok(()), |(bits, bytes)| self.insert(&Key::new(bits, bytes), value, 0))
    }

    fn take(&mut self, name: &Vec<u8>) -> Result<(), MapError> {
        trie_key(name).map_or(Ok(()), |(bits, bytes)| self.remove(&Key::new(bits, bytes)))
    }
}

/// Changes what differs, and says what is in the map then: also a row that could not be taken out or replaced, so that
/// it is tried again the next time.
pub(super) fn apply<K: Ord + Clone, V: PartialEq + Clone>(
    map: &mut impl Rows<K, V>,
    before: &BTreeMap<K, V>,
    wanted: &BTreeMap<K, V>,
    mut note: impl FnMut(&MapError),
) -> BTreeMap<K, V> {
    let mut now = BTreeMap::new();
    // Out first, so that there is room.
    for (key, value) in before.iter().filter(|(key, _)| !wanted.contains_key(*key)) {
        if let Err(error) = map.take(key)
            && os_error(&error) != Some(libc::ENOENT)
        {
            note(&error);
            now.insert(key.clone(), value.clone());
        }
    }
    for (key, value) in wanted {
        let mut left = before.get(key);
        if left == Some(value) {
            now.insert(key.clone(), value.clone());
            continue;
        }
        let mut put = map.put(key, value);
        // kernel: `trie_update_elem`, kernel/bpf/lpm_trie.c: until 6.13 a full trie refuses to replace a row as well.
        if put.is_err() && left.is_some() && map.take(key).is_ok() {
            left = None;
            put = map.put(key, value);
        }
        let stays = match put {
            Ok(()) => Some(value),
            Err(error) => {
                note(&error);
                left
            }
        };
        now.extend(stays.map(|value| (key.clone(), value.clone())));
    }
    now
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// A map that has room for so many rows, also while one is replaced, and refuses to let go of some.
    #[derive(Default)]
    struct Narrow {
        rows: BTreeMap<u32, u32>,
        room: usize,
        stuck: Vec<u32>,
    }

    fn refused(number: i32) -> MapError {
        MapError::IoError(io::Error::from_raw_os_error(number))
    }

    impl Rows<u32, u32> for Narrow {
        fn put(&mut self, key: &u32, value: &u32) -> Result<(), MapError> {
            if self.rows.len() >= self.room {
                return Err(refused(libc::ENOSPC));
            }
            self.rows.insert(*key, *value);
            Ok(())
        }

        fn take(&mut self, key: &u32) -> Result<(), MapError> {
            if self.stuck.contains(key) {
                return Err(refused(libc::ENOMEM));
            }
            self.rows.remove(key).map(drop).ok_or_else(|| refused(libc::ENOENT))
        }
    }

    fn changed(map: &mut Narrow, wanted: &[(u32, u32)]) -> (BTreeMap<u32, u32>, u32) {
        let (before, wanted) = (map.rows.clone(), wanted.iter().copied().collect());
        let mut notes = 0;
        let now = apply(map, &before, &wanted, |_| notes += 1);
        (now, notes)
    }

    #[test]
    fn a_full_map_takes_another_value_for_a_key_that_it_has() {
        let mut map = Narrow { room: 2, ..Narrow::default() };
        changed(&mut map, &[(1, 10), (2, 20)]);
        let wanted = [(1, 11), (2, 20)];
        assert_eq!(changed(&mut map, &wanted), (wanted.into(), 0));
        assert_eq!(map.rows, wanted.into());
    }

    #[test]
    fn what_cannot_be_replaced_or_taken_out_is_known_to_be_there() {
        let mut map = Narrow { room: 2, stuck: vec![1, 2], ..Narrow::default() };
        changed(&mut map, &[(1, 10), (2, 20)]);
        let (now, notes) = changed(&mut map, &[(1, 11)]);
        assert_eq!((&now, notes), (&[(1, 10), (2, 20)].into(), 2));
        // The next time it works.
        map.stuck.clear();
        let mut notes = 0;
        let now = apply(&mut map, &now, &[(1, 11)].into(), |_| notes += 1);
        assert_eq!((now, map.rows, notes), ([(1, 11)].into(), [(1, 11)].into(), 0));
    }

    #[test]
    fn a_row_that_is_gone_already_is_no_trouble_and_one_without_room_is_told() {
        let mut map = Narrow { room: 1, ..Narrow::default() };
        let before = [(7, 70)].into();
        let mut notes = 0;
        let now = apply(&mut map, &before, &[(1, 10), (2, 20)].into(), |_| notes += 1);
        assert_eq!((now, notes), ([(1, 10)].into(), 1));
    }
}
