//! What tells the subvolumes of one btrfs apart. They share a superblock and the inode number of their root, so in
//! the place of that number stands a hash of the root's name: the last component of what the mount shows. Both
//! sides compute it here.
//!
//! Two subvolumes of one name in different directories are not told apart, nor is one that was renamed since the
//! agent last read the mount table: what fails there counts for every volume that it can be of.

use crate::key::NAME_BYTES;

/// Inode number of the root of every subvolume.
///
/// kernel: `BTRFS_FIRST_FREE_OBJECTID`, include/uapi/linux/btrfs_tree.h, since 2.6.29.
pub const ROOT_INODE: u64 = 256;

/// Words of a name, filled up with zeros. A component has 255 bytes at most.
pub const NAME_WORDS: usize = NAME_BYTES / 8;

/// The name of a root as both sides hash it.
pub type NameWords = [u64; NAME_WORDS];

/// No inode number of btrfs has this bit.
const MARK: u64 = 1 << 63;

const START: u64 = 0xcbf2_9ce4_8422_2325;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// What stands for the root of this name. The top of a file system has `/` for a name, and keeps its number.
#[inline(always)]
#[must_use]
pub fn root_of_name(name: &NameWords) -> u64 {
    if name[0].to_le_bytes()[0] == b'/' {
        return ROOT_INODE;
    }
    let mut hash = START;
    for word in name {
        hash = (hash ^ *word).wrapping_mul(FACTOR);
        hash ^= hash >> 32;
    }
    hash | MARK
}

/// What stands for the root that a mount of btrfs shows, by its inode number and its path in the file system as the
/// mount table has it.
///
/// kernel: `prepend_path`, fs/d_path.c: `//deleted` behind the path of what is gone, since 2.6.38.
#[must_use]
pub fn root_of_path(inode: u64, path: &[u8]) -> u64 {
    let path = path.strip_suffix(b"//deleted").unwrap_or(path);
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if inode != ROOT_INODE || name.is_empty() {
        return inode;
    }
    let mut words = [0; NAME_WORDS];
    for (word, bytes) in words.iter_mut().zip(name.chunks(8)) {
        let mut whole = [0; 8];
        for (to, from) in whole.iter_mut().zip(bytes) {
            *to = *from;
        }
        *word = u64::from_le_bytes(whole);
    }
    root_of_name(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subvolumes_are_told_apart_by_the_last_component() {
        let root = |path: &str| root_of_path(ROOT_INODE, path.as_bytes());
        assert_ne!(root("/one"), root("/two"));
        assert_eq!(root("/one"), root("/a/one"));
        assert_ne!(root("/aaaaaaaab"), root("/aaaaaaaac"));
        assert_eq!(root("/one//deleted"), root("/one"));
        assert!([root("/one"), root("/x")].iter().all(|root| *root > u64::from(u32::MAX)));
    }

    #[test]
    fn names_that_differ_in_their_last_byte_alone_are_told_apart() {
        let name = |last: u8| [[b'/'].as_slice(), &[b'n'; 254], &[last]].concat();
        assert_ne!(root_of_path(ROOT_INODE, &name(b'a')), root_of_path(ROOT_INODE, &name(b'b')));
    }

    #[test]
    fn the_top_and_directories_keep_their_numbers() {
        assert_eq!(root_of_path(ROOT_INODE, b"/"), ROOT_INODE);
        assert_eq!(root_of_path(ROOT_INODE, b""), ROOT_INODE);
        assert_eq!(root_of_path(257, b"/one"), 257);
        let mut slash = [0; NAME_WORDS];
        slash[0] = u64::from(b'/');
        assert_eq!(root_of_name(&slash), ROOT_INODE);
    }

    #[test]
    fn the_kernel_side_sees_the_same_name_as_words() {
        let mut words = [0; NAME_WORDS];
        words[0] = u64::from_le_bytes(*b"subvolum");
        words[1] = u64::from(b'e');
        assert_eq!(root_of_name(&words), root_of_path(ROOT_INODE, b"/dir/subvolume"));
    }
}
