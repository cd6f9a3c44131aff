//! Identities. Each is its own type, so that a mount id can never be taken for a volume or a plan.

use alloc::{string::String, sync::Arc};
use core::fmt;

/// A superblock, named by its device number (`s_dev`): the same in every mount namespace.
///
/// kernel: `struct super_block::s_dev`, include/linux/fs.h; field 3 of mountinfo, all versions.
/// For btrfs this is the number in mountinfo, not the one `stat` gives for a subvolume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SuperblockId {
    /// Major device number; 0 for anonymous devices (NFS, FUSE, tmpfs, …).
    pub major: u32,
    /// Minor device number.
    pub minor: u32,
}

impl SuperblockId {
    /// The kernel's own encoding (`MKDEV`): major << 20 | minor. The key of the kernel's counters.
    #[must_use]
    pub const fn to_kernel(self) -> u32 {
        (self.major << 20) | (self.minor & 0xf_ffff)
    }

    /// The inverse of [`SuperblockId::to_kernel`].
    #[must_use]
    pub const fn from_kernel(dev: u32) -> Self {
        Self { major: dev >> 20, minor: dev & 0xf_ffff }
    }
}

impl fmt::Display for SuperblockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// The reusable mount id: field 1 of mountinfo. A later mount may get the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MountId(pub u32);

/// The 64-bit mount id that is never used again (`STATX_MNT_ID_UNIQUE`, since 6.8).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UniqueMountId(pub u64);

/// A volume: the operator's name, or a stable id made from the mount point.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VolumeId(Arc<str>);

impl VolumeId {
    /// Takes any text; uniqueness is the business of [`crate::policy::Policy`].
    pub fn new(name: impl Into<String>) -> Self {
        Self(Arc::from(name.into()))
    }

    /// The text, as it stands in labels and on the command line.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Counts what has been mounted at a volume's place. An answer that carries an older generation is about an
/// older mount and is thrown away.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Generation(pub u64);

/// One probe that was ordered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProbeId(pub u64);

/// One plan. Unique across restarts of the agent: the first of a run is handed in with the policy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PlanId(pub u64);

/// One question to a hook.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QuestionId(pub u64);

impl fmt::Display for PlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
