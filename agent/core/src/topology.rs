//! The mount table of one namespace, as facts: which mount shows which superblock where.

use alloc::{string::String, vec::Vec};

use crate::id::{MountId, SuperblockId};
use crate::path::BytePath;

/// One line of the mount table.
///
/// kernel: `show_mountinfo`, fs/proc_namespace.c.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Field 1. Reusable.
    pub id: MountId,
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

/// Options in their order, as whole words. Repeated words and unknown words are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options(Vec<Vec<u8>>);

impl Options {
    /// Splits at commas. (A comma inside a value cannot be told apart; it does not hide a whole word.)
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        Self(text.split(|byte| *byte == b',').filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect())
    }

    /// Whether the whole word stands among the options: `ro` does not match `errors=remount-ro`.
    #[must_use]
    pub fn has(&self, word: &str) -> bool {
        self.0.iter().any(|option| option == word.as_bytes())
    }

    /// The words, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Vec::as_slice)
    }
}

/// How mount events travel to and from a mount.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Propagation {
    /// Peer group of a shared mount.
    pub shared: Option<u32>,
    /// Peer group this mount receives from.
    pub master: Option<u32>,
}

/// One snapshot of the table, in the order in which the kernel listed it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MountTable {
    mounts: Vec<Mount>,
}

impl MountTable {
    /// Takes the lines in the kernel's order.
    #[must_use]
    pub fn new(mounts: Vec<Mount>) -> Self {
        Self { mounts }
    }

    /// All mounts.
    #[must_use]
    pub fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// The mounts at exactly this path, bottom first: each later one covers the one before it. Ordered by
    /// parent, not by line: a mount moved beneath another comes later in the table.
    #[must_use]
    pub fn stack_at(&self, path: &BytePath) -> Vec<&Mount> {
        let here: Vec<&Mount> = self.mounts.iter().filter(|mount| mount.mountpoint == *path).collect();
        let mut stack: Vec<&Mount> = here
            .iter()
            .copied()
            .filter(|mount| !here.iter().any(|other| other.id == mount.parent && other.id != mount.id))
            .collect();
        // Every mount has one parent, so each round appends what sits on something already in the stack.
        let mut next = 0;
        while let Some(below) = stack.get(next).map(|mount| mount.id) {
            stack.extend(here.iter().copied().filter(|mount| mount.parent == below && mount.id != below));
            next += 1;
        }
        stack
    }

    /// The mount that a path walk ends on at exactly this path.
    #[must_use]
    pub fn top_at(&self, path: &BytePath) -> Option<&Mount> {
        self.stack_at(path).pop()
    }

    /// All mounts that show this superblock.
    pub fn showing(&self, superblock: SuperblockId) -> impl Iterator<Item = &Mount> {
        self.mounts.iter().filter(move |mount| mount.superblock == superblock)
    }
}
