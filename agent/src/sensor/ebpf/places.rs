//! Mount points as the kernel side looks names up: what to put into its maps, and the same lookup in here.

use std::collections::{BTreeMap, BTreeSet};

use agent_common::key::{NAME_BYTES, NameBytes, NameValue, RootKey};
use agent_common::settings::{TRACKED_NESTED, TRACKED_SUBVOLUMES};

use super::Watched;

/// What is wanted in the kernel's maps.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Places {
    /// Tracked superblocks and their flags.
    pub superblocks: BTreeMap<u32, u32>,
    /// Roots that are known.
    pub roots: BTreeSet<RootKey>,
    /// Mount points with a slash at their end: tracked ones, and untracked ones below them.
    pub names: BTreeMap<Vec<u8>, NameValue>,
    /// The directories of superblocks that tracked mounts show, with a slash at their end, and their inodes; 0 while
    /// one is not known. The kernel's maps have nothing of them.
    pub directories: BTreeMap<u32, BTreeMap<Vec<u8>, u64>>,
}

impl Places {
    /// Works out what to put where.
    #[must_use]
    pub(super) fn new(watched: &Watched) -> Self {
        let Watched { tracked, shadows, subvolumes, directories, .. } = watched;
        let mut places = Self::default();
        for row in tracked {
            let s_dev = row.superblock.to_kernel();
            if let Some(directory) = directories.get(&row.mountpoint) {
                let root = row.root_inode.unwrap_or(0);
                places.directories.entry(s_dev).or_default().insert(with_slash(directory), root);
            }
            let flags = if subvolumes.contains(&row.superblock) { TRACKED_SUBVOLUMES } else { 0 };
            places.superblocks.insert(s_dev, flags);
            let root = row.root_inode.filter(|root| *root != 0);
            places.roots.extend(root.map(|root_ino| RootKey { root_ino, s_dev, reserved: 0 }));
            let value = NameValue { root_ino: row.root_inode.unwrap_or(0), s_dev, reserved: 0 };
            places.names.insert(with_slash(row.mountpoint.as_bytes()), value);
        }
        let all: BTreeSet<Vec<u8>> = shadows
            .iter()
            .map(|shadow| with_slash(shadow.as_bytes()))
            .chain(places.names.keys().cloned())
            .collect();
        for row in tracked {
            let base = with_slash(row.mountpoint.as_bytes());
            for below in all.range(base.clone()..).take_while(|name| name.starts_with(&base)) {
                if *below != base {
                    *places.superblocks.entry(row.superblock.to_kernel()).or_default() |= TRACKED_NESTED;
                    places.names.entry(below.clone()).or_default();
                }
            }
        }
        places
    }

    /// The root of the tracked mount whose directory holds this one of the same superblock; 0 when there is none, or it
    /// is not known.
    #[must_use]
    pub(super) fn root_of(&self, s_dev: u32, directory: &[u8]) -> u64 {
        if directory.is_empty() {
            return 0;
        }
        let directory = with_slash(directory);
        let find = |known: &BTreeMap<Vec<u8>, u64>| {
            prefixes(&directory).find_map(|prefix| known.get(prefix)).copied()
        };
        self.directories.get(&s_dev).and_then(find).unwrap_or(0)
    }

    /// The place of an absolute name without `.` and `..`: superblock and root inode.
    #[must_use]
    pub(super) fn find(&self, path: &[u8]) -> Option<(u32, u64)> {
        let path = with_slash(path);
        let found = prefixes(&path).find_map(|prefix| self.names.get(prefix))?;
        (found.s_dev != 0).then_some((found.s_dev, found.root_ino))
    }
}

/// Every prefix that ends with a slash, the longest first.
pub(in crate::sensor) fn prefixes(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    (1..=path.len()).rev().filter_map(|end| path.get(..end)).filter(|prefix| prefix.ends_with(b"/"))
}

/// The name with exactly one slash at its end.
#[must_use]
pub(in crate::sensor) fn with_slash(path: &[u8]) -> Vec<u8> {
    let mut bytes = path.to_vec();
    while bytes.ends_with(b"/") {
        bytes.pop();
    }
    bytes.push(b'/');
    bytes
}

/// The key of the trie: the bytes and how many bits of them count. `None` for names that are too long.
#[must_use]
pub(super) fn trie_key(name: &[u8]) -> Option<(u32, NameBytes)> {
    let mut bytes = [0; NAME_BYTES];
    bytes.get_mut(..name.len())?.copy_from_slice(name);
    Some((u32::try_from(name.len()).ok()?.checked_mul(8)?, bytes))
}

#[cfg(test)]
mod tests {
    use agent_core::engine::Tracked;
    use agent_core::id::SuperblockId;
    use agent_core::path::BytePath;

    use super::*;

    fn places(tracked: &[Tracked], shadows: &[&str], subvolumes: &[SuperblockId]) -> Places {
        Places::new(&Watched {
            tracked: tracked.to_vec(),
            shadows: shadows.iter().map(|shadow| BytePath::from(*shadow)).collect(),
            subvolumes: subvolumes.iter().copied().collect(),
            ..Watched::default()
        })
    }

    fn tracked(minor: u32, mountpoint: &str) -> Tracked {
        Tracked {
            superblock: SuperblockId { major: 0, minor },
            root_inode: Some(u64::from(minor)),
            mountpoint: BytePath::from(mountpoint),
        }
    }

    #[test]
    fn whole_components_match_and_the_longest_wins() {
        let places = places(&[tracked(1, "/mnt/a"), tracked(2, "/mnt/a/b")], &[], &[]);
        assert_eq!(places.find(b"/mnt/a"), Some((1, 1)));
        assert_eq!(places.find(b"/mnt/a/"), Some((1, 1)));
        assert_eq!(places.find(b"/mnt/a/x"), Some((1, 1)));
        assert_eq!(places.find(b"/mnt/ab"), None);
        assert_eq!(places.find(b"/mnt/a/b/c"), Some((2, 2)));
        assert_eq!(places.superblocks, BTreeMap::from([(1, TRACKED_NESTED), (2, 0)]));
    }

    #[test]
    fn an_untracked_mount_below_is_not_its_parent() {
        let places = places(&[tracked(1, "/mnt/a")], &["/mnt/a/tmp", "/elsewhere"], &[]);
        assert_eq!(places.find(b"/mnt/a/tmp/x"), None);
        assert_eq!(places.find(b"/mnt/a/tmpx"), Some((1, 1)));
        assert!(!places.names.contains_key(b"/elsewhere/".as_slice()));
    }

    #[test]
    fn a_superblock_of_subvolumes_keeps_its_flag_when_mounts_lie_below() {
        let one = tracked(1, "/mnt/a");
        let subvolumes = [one.superblock];
        let places = places(&[one, tracked(2, "/mnt/a/b")], &[], &subvolumes);
        let both = TRACKED_NESTED | TRACKED_SUBVOLUMES;
        assert_eq!(places.superblocks, BTreeMap::from([(1, both), (2, 0)]));
    }

    #[test]
    fn of_the_volumes_of_a_superblock_the_one_with_the_nearest_directory_is_meant() {
        let directory =
            |mountpoint: &str, directory: &str| (BytePath::from(mountpoint), directory.as_bytes().to_vec());
        let mut all = [tracked(1, "/mnt/a"), tracked(1, "/mnt/b"), tracked(1, "/mnt/c")];
        for (row, root) in all.iter_mut().zip([Some(10), Some(20), None]) {
            row.root_inode = root;
        }
        let places = Places::new(&Watched {
            tracked: all.to_vec(),
            directories: BTreeMap::from([
                directory("/mnt/a", "filer:/export/a"),
                directory("/mnt/b", "filer:/export/a/b"),
                directory("/mnt/c", "filer:/export/c"),
            ]),
            ..Watched::default()
        });
        let root = |directory: &str| places.root_of(1, directory.as_bytes());
        assert_eq!(
            [root("filer:/export/a"), root("filer:/export/a/sub"), root("filer:/export/a/b/c")],
            [10, 10, 20]
        );
        assert_eq!([root("filer:/export/ab"), root("filer:/export/c/d"), root("filer:/")], [0; 3]);
        assert_eq!(places.root_of(2, b"filer:/export/a"), 0);
        let whole = [(BytePath::from("/mnt/a"), b"/".to_vec())].into();
        let places =
            Places::new(&Watched { tracked: all.to_vec(), directories: whole, ..Watched::default() });
        assert_eq!([places.root_of(1, b"/any"), places.root_of(1, b"")], [10, 0]);
    }

    #[test]
    fn the_root_matches_everything_absolute() {
        let places = places(&[tracked(1, "/")], &[], &[]);
        assert_eq!(places.find(b"/etc/passwd"), Some((1, 1)));
        assert_eq!(places.names.keys().next().unwrap(), b"/");
    }

    #[test]
    fn a_key_counts_the_bits_with_the_slash() {
        let (bits, bytes) = trie_key(&with_slash(b"/mnt/a")).unwrap();
        assert_eq!((bits, &bytes[..8]), (56, b"/mnt/a/\0".as_slice()));
        assert_eq!(trie_key(&[b'x'; 257]), None);
        assert!(trie_key(&[b'x'; 256]).is_some());
    }
}
