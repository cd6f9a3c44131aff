//! The mount table of one namespace, as facts: which mount shows which superblock where.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{string::String, sync::Arc, vec::Vec};
use core::fmt;

use crate::fstype::names_directory_in_source;
use crate::hash::hash;
use crate::id::{MountId, SuperblockId};
use crate::path::BytePath;

pub mod automount;
pub mod diff;
pub mod walk;

use walk::Walks;

/// One line of the mount table.
///
/// kernel: `show_mountinfo`, fs/proc_namespace.c.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Field 1. Reusable.
    pub id: MountId,
    /// The id that is never used again, where the reader of the table learns it.
    ///
    /// kernel: `mount::mnt_id_unique`, fs/mount.h, since 6.8. Not part of mountinfo.
    pub unique: Option<u64>,
    /// Field 2: the mount it is attached to.
    pub parent: MountId,
    /// Field 3.
    pub superblock: SuperblockId,
    /// Field 4, unescaped: the directory of the superblock that is shown. May be free text (`mnt:[…]`), or
    /// end in `//deleted`.
    pub root: BytePath,
    /// Field 5, unescaped.
    pub mountpoint: BytePath,
    /// Field 6: options of this mount alone, in order.
    pub options: Options,
    /// The optional fields: propagation, and tags not known yet.
    pub propagation: Propagation,
    /// The file-system type, with the subtype after a dot (`fuse.sshfs`).
    pub fstype: String,
    /// The source, unescaped; may be empty or any bytes.
    pub source: Vec<u8>,
    /// The last field: options of the superblock, in order.
    pub super_options: Options,
}

impl Mount {
    /// Which directory of its superblock it shows: the same for all mounts that show this one, and no others.
    #[must_use]
    pub fn directory(&self) -> &[u8] {
        directory(&self.fstype, &self.root, &self.source)
    }
}

/// Which directory a mount of this type, with this root and this source, shows of its superblock.
#[must_use]
pub fn directory<'a>(fstype: &str, root: &'a BytePath, source: &'a [u8]) -> &'a [u8] {
    if names_directory_in_source(fstype) { source } else { root.as_bytes() }
}

/// Options in their order, as whole words. Repeated words and unknown words are kept.
///
/// Kept as one text: ten thousand mounts have some two hundred thousand words.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options(Vec<u8>);

impl Options {
    /// Splits at commas. (A comma inside a value cannot be told apart; it does not hide a whole word.)
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        Self::join(text.split(|byte| *byte == b','))
    }

    /// Takes words that were split elsewhere, in their order. For a reader that must undo escapes after the
    /// split, because an escaped comma is part of its word.
    pub fn from_words(words: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self::join(words.into_iter())
    }

    fn join(words: impl Iterator<Item = impl AsRef<[u8]>>) -> Self {
        let mut kept = Vec::new();
        for word in words {
            let word = word.as_ref();
            if !kept.is_empty() && !word.is_empty() {
                kept.push(SEPARATOR);
            }
            kept.extend_from_slice(word);
        }
        kept.shrink_to_fit();
        Self(kept)
    }

    /// Whether the whole word stands among the options: `ro` does not match `errors=remount-ro`.
    #[must_use]
    pub fn has(&self, word: &str) -> bool {
        self.iter().any(|option| option == word.as_bytes())
    }

    /// The words, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == SEPARATOR).filter(|word| !word.is_empty())
    }
}

/// Between words: the one byte that a word cannot contain, since the kernel's options are C strings.
const SEPARATOR: u8 = 0;

/// How mount events travel to and from a mount.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Propagation {
    /// Peer group of a shared mount.
    pub shared: Option<u32>,
    /// Peer group this mount receives from.
    pub master: Option<u32>,
    /// Nobody may make a bind of it; recursive ones leave it out.
    pub unbindable: bool,
}

/// One snapshot of the table, in the order in which the kernel listed it. A clone is another handle to the
/// same snapshot: tables are large, and several parts of the agent hold the last one.
#[derive(Clone, Default)]
pub struct MountTable {
    snapshot: Arc<Snapshot>,
}

/// The lines, with indexes made once: positions sorted by what they are looked up by.
#[derive(Default)]
struct Snapshot {
    /// Shared with the reader of the table, which makes the next snapshot out of the lines that stayed.
    mounts: Vec<Arc<Mount>>,
    /// By the hash of the mount point. A collision is told apart by comparing the paths.
    by_path: Vec<(u64, u32)>,
    by_superblock: Vec<(SuperblockId, u32)>,
    by_id: Vec<(MountId, u32)>,
}

impl PartialEq for MountTable {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.snapshot, &other.snapshot) || self.snapshot.mounts == other.snapshot.mounts
    }
}

impl Eq for MountTable {}

impl fmt::Debug for MountTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.mounts()).finish()
    }
}

impl MountTable {
    /// Takes the lines in the kernel's order.
    #[must_use]
    pub fn new(mounts: Vec<Mount>) -> Self {
        Self::from_shared(mounts.into_iter().map(Arc::new).collect())
    }

    /// The same for lines that are kept elsewhere too: only the indexes are made anew.
    #[must_use]
    pub fn from_shared(mounts: Vec<Arc<Mount>>) -> Self {
        let by_path = index(&mounts, |mount| hash(mount.mountpoint.as_bytes()));
        let by_superblock = index(&mounts, |mount| mount.superblock);
        let by_id = index(&mounts, |mount| mount.id);
        Self { snapshot: Arc::new(Snapshot { mounts, by_path, by_superblock, by_id }) }
    }

    /// All mounts.
    #[must_use]
    pub fn mounts(&self) -> &[Arc<Mount>] {
        &self.snapshot.mounts
    }

    /// The mounts at exactly this path, bottom first: each later one covers the one before it. Ordered by
    /// parent, not by line: a mount moved beneath another comes later in the table.
    #[must_use]
    pub fn stack_at(&self, path: &BytePath) -> Vec<&Mount> {
        self.in_order_of_standing(self.lines_at(path.as_bytes()))
    }

    /// The lines of one place, each on what it stands on.
    fn in_order_of_standing<'a>(&self, here: Vec<&'a Mount>) -> Vec<&'a Mount> {
        if here.len() < 2 {
            return here;
        }
        let ids: BTreeSet<MountId> = here.iter().map(|mount| mount.id).collect();
        let mut above: BTreeMap<MountId, Vec<&Mount>> = BTreeMap::new();
        let mut stack: Vec<&Mount> = Vec::with_capacity(here.len());
        for mount in &here {
            if mount.parent == mount.id || !ids.contains(&mount.parent) {
                stack.push(mount);
            } else {
                above.entry(mount.parent).or_default().push(mount);
            }
        }
        // Every mount has one parent, so each round appends what sits on something already in the stack.
        let mut next = 0;
        while let Some(below) = stack.get(next).map(|mount| mount.id) {
            stack.extend(above.remove(&below).unwrap_or_default());
            next += 1;
        }
        // Parents in a ring cannot come from the kernel; the lines are still there.
        if stack.is_empty() { here } else { stack }
    }

    /// The uppermost mount at exactly this path. See [`MountTable::visible_at`] for what a path walk finds.
    #[must_use]
    pub fn top_at(&self, path: &BytePath) -> Option<&Mount> {
        self.stack_at(path).pop()
    }

    /// The mount whose root a path walk to exactly this path ends on; [`Walks`] for many paths.
    #[must_use]
    pub fn visible_at(&self, path: &BytePath) -> Option<&Mount> {
        Walks::new(self).visible_at(path)
    }

    /// The mount on which a path walk ends: the one at this path, else the one that the path lies in.
    #[must_use]
    pub fn mount_of(&self, path: &BytePath) -> Option<&Mount> {
        Walks::new(self).mount_of(path)
    }

    /// What a walk that stands on `current` comes to when it crosses the mounts of one place.
    fn crossed<'a>(&self, stack: &[&'a Mount], current: Option<&Mount>) -> Option<&'a Mount> {
        let mut top: Option<&'a Mount> = None;
        for mount in stack {
            let attached = match (top, current) {
                (Some(below), _) if mount.parent == below.id => true,
                (_, Some(current)) => mount.parent == current.id || !self.has_id(mount.parent),
                // The table of a changed root: its own root is not listed.
                (None, None) => true,
                (Some(_), None) => false,
            };
            if attached {
                top = Some(mount);
            }
        }
        top
    }

    /// All mounts that show this superblock.
    pub fn showing(&self, superblock: SuperblockId) -> impl Iterator<Item = &Mount> {
        self.run(&self.snapshot.by_superblock, superblock)
    }

    /// All mounts, by id.
    fn in_id_order(&self) -> impl Iterator<Item = &Mount> {
        let position = |(_, position): &(MountId, u32)| usize::try_from(*position).ok();
        self.snapshot
            .by_id
            .iter()
            .filter_map(position)
            .filter_map(|position| self.snapshot.mounts.get(position).map(Arc::as_ref))
    }

    fn lines_at(&self, path: &[u8]) -> Vec<&Mount> {
        let same_hash = self.run(&self.snapshot.by_path, hash(path));
        same_hash.filter(|mount| mount.mountpoint.as_bytes() == path).collect()
    }

    fn has_id(&self, id: MountId) -> bool {
        self.run(&self.snapshot.by_id, id).next().is_some()
    }

    /// The lines with this key, in the kernel's order.
    fn run<'a, K: Ord + Copy>(&'a self, index: &'a [(K, u32)], key: K) -> impl Iterator<Item = &'a Mount> {
        let start = index.partition_point(|(other, _)| *other < key);
        index
            .get(start..)
            .unwrap_or_default()
            .iter()
            .take_while(move |(other, _)| *other == key)
            .filter_map(|(_, position)| self.snapshot.mounts.get(usize::try_from(*position).ok()?))
            .map(Arc::as_ref)
    }
}

fn index<K: Ord>(mounts: &[Arc<Mount>], key: impl Fn(&Mount) -> K) -> Vec<(K, u32)> {
    let mut index: Vec<(K, u32)> =
        mounts.iter().zip(0..).map(|(mount, position)| (key(mount), position)).collect();
    index.sort_unstable();
    index
}

#[cfg(test)]
mod tests;
