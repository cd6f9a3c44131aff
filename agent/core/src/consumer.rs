//! Who still holds a file system that a volume showed and shows no more: other mounts of it, in any namespace, and
//! open files.

use alloc::collections::BTreeSet;
use alloc::{string::String, vec::Vec};

use crate::id::{MountId, SuperblockId, VolumeId};
use crate::path::BytePath;
use crate::remediation::consumers::Holding;
use crate::time::Monotonic;

/// A file system that is asked about: one that is sick, or that was replaced because it was; or the guards that a
/// repair may have left in its place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Dead {
    /// Whose it is.
    pub volume: VolumeId,
    /// Its superblock.
    pub superblock: SuperblockId,
    /// What its mounts look like; `None`: only guards of the volume are looked for.
    pub holding: Option<Holding>,
    /// Mounts of it that are known by their ids, also those that are in no table any more: whoever opened a file
    /// through one of them still holds it.
    pub ids: BTreeSet<MountId>,
    /// Those of them that were taken out of every table. One of these numbers in a table is another mount's.
    pub gone: BTreeSet<MountId>,
    /// The volume shows it still, so that nothing else can have its number. Without that a mount of this number counts
    /// only beside one that is known by its id: that one has kept the number from being used again.
    ///
    /// kernel: `get_anon_bdev`, fs/super.c, since 2.6.26: the lowest number that is free.
    pub is_shown: bool,
}

impl Dead {
    /// Whether a mount in a table is known to be of it.
    #[must_use]
    pub fn knows(&self, id: MountId) -> bool {
        self.ids.contains(&id) && !self.gone.contains(&id)
    }

    /// The mounts of it that may be in a table.
    #[must_use]
    pub fn mounts(&self) -> BTreeSet<MountId> {
        self.ids.difference(&self.gone).copied().collect()
    }
}

/// A look at all namespaces and all open files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Consumers {
    /// When it began.
    pub at: Monotonic,
    /// What it found, one for each file system that was asked about.
    pub found: Vec<Found>,
}

/// Who holds one file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Of which volume.
    pub volume: VolumeId,
    /// Which.
    pub superblock: SuperblockId,
    /// Whether mounts of it were looked for, or only guards.
    pub has_holding: bool,
    /// How many mounts, in all namespaces.
    pub mounts: u64,
    /// The first of them.
    pub shown: Vec<StaleMount>,
    /// The ids of all of them, and of those through which files are open still.
    pub ids: BTreeSet<MountId>,
    /// How many open files.
    pub files: u64,
    /// The processes with most of them.
    pub holders: Vec<FileHolder>,
}

/// One mount of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StaleMount {
    /// The number of the mount namespace.
    pub namespace: u32,
    /// A process in that namespace.
    pub process: u32,
    /// Its name.
    pub comm: String,
    /// Where, as that namespace sees it.
    pub mountpoint: BytePath,
    /// The directory of the file system that it shows.
    pub root: BytePath,
}

/// A process with open files of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FileHolder {
    /// The process.
    pub process: u32,
    /// Its name.
    pub comm: String,
    /// How many files.
    pub count: u64,
    /// One of them, as the kernel names it.
    pub path: BytePath,
}
