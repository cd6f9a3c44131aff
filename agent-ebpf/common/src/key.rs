//! Keys and values of the maps.

/// Longest name in the trie of mount points, in bytes: the most that the kernel's trie takes.
///
/// kernel: `LPM_DATA_SIZE_MAX`, kernel/bpf/lpm_trie.c, since 4.11.
pub const NAME_BYTES: usize = 256;

/// Stands for every root that the agent has not named. Anybody can bind a thousand directories of his own; a counter
/// for each of them would fill the map.
pub const OTHER_ROOT: u64 = u64::MAX;

/// A root that counts by itself.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RootKey {
    /// Inode number of the mount's root, or what stands for it.
    pub root_ino: u64,
    /// `s_dev` of the superblock, in the kernel's encoding.
    pub s_dev: u32,
    /// Always zero.
    pub reserved: u32,
}

/// What one counter counts.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CounterKey {
    /// Inode number of the mount's root; 0 when the hook knows only the superblock, [`OTHER_ROOT`] for a root that
    /// the agent has not named.
    pub root_ino: u64,
    /// `s_dev` of the superblock, in the kernel's encoding.
    pub s_dev: u32,
    /// The error, positive.
    pub errno: u16,
    /// The kind of operation, see `settings::op`.
    pub op: u8,
    /// 1 where nothing but the text of a name says that it was here: a symbolic link may have led elsewhere. Else 0.
    pub by_name: u8,
}

/// One processor's share of a counter.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CounterValue {
    /// Failed calls.
    pub count: u64,
    /// When the last of them ended, on the monotonic clock, in nanoseconds.
    pub last_ktime: u64,
    /// When this processor last sent a record for the key.
    pub last_record: u64,
}

/// A mount point in the trie of names, with a slash at its end, so that `/mnt/a/` never matches `/mnt/ab`.
pub type NameBytes = [u8; NAME_BYTES];

/// What a mount point in the trie stands for.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NameValue {
    /// Inode number of the mount's root, 0 when not known yet.
    pub root_ino: u64,
    /// The superblock; 0 for a mount point that is not tracked but lies below one that is.
    pub s_dev: u32,
    /// Always zero.
    pub reserved: u32,
}

/// How many names one share of processes has sent on this processor in the current interval.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NameWindow {
    /// When the interval began.
    pub started: u64,
    /// Names sent since.
    pub sent: u64,
    /// Names beyond the budget, ever.
    pub lost: u64,
}
