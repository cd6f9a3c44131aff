//! Records in the ring buffer.

use crate::key::{CounterKey, NAME_BYTES};

/// Kind of [`ErrorRecord`].
pub const KIND_ERROR: u32 = 1;
/// Kind of [`NameRecord`].
pub const KIND_NAME: u32 = 2;

/// Whether a [`NameRecord`] is all that its call names, or one of two names.
pub mod part {
    /// The only name.
    pub const ALONE: u8 = 0;
    /// The first of two; the second follows.
    pub const FIRST: u8 = 1;
    /// The second of two.
    pub const SECOND: u8 = 2;
}

/// Begins every record.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Which record follows.
    pub kind: u32,
    /// Length of the whole record with this header.
    pub len: u32,
    /// When, on the monotonic clock, in nanoseconds.
    pub ktime: u64,
}

/// The thread that met the error. All zero where the hook runs on behalf of nobody.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Who {
    /// cgroup v2 id.
    pub cgroup: u64,
    /// Thread id in the first process id namespace.
    pub pid: u32,
    /// Process id in the first process id namespace.
    pub tgid: u32,
    /// Inode number of the mount namespace, 0 when unknown.
    pub mnt_ns: u32,
    /// Always zero.
    pub reserved: u32,
    /// Name of the thread, filled up with zeros.
    pub comm: [u8; 16],
}

/// The first error of an interval for one counter. The counter carries the count.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErrorRecord {
    /// Kind [`KIND_ERROR`].
    pub header: Header,
    /// Which counter went up.
    pub key: CounterKey,
    /// Who met it.
    pub who: Who,
}

/// A failed call on a name that the kernel side cannot place: one call, not in any counter.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameRecord {
    /// Kind [`KIND_NAME`].
    pub header: Header,
    /// Who met it.
    pub who: Who,
    /// The descriptor that the name is relative to, or `AT_FDCWD`.
    pub dir: i32,
    /// The error, positive.
    pub errno: u16,
    /// The kind of operation.
    pub op: u8,
    /// See [`part`].
    pub part: u8,
    /// Bytes of `path` that count.
    pub path_len: u32,
    /// Superblock of the directory that the name starts from, if it is tracked and the name does not climb out
    /// of it with `..`; else 0.
    pub base_dev: u32,
    /// The name as the caller gave it, cut at this length.
    pub path: [u8; NAME_BYTES],
}

/// In a [`BlockedRecord`]: the task sleeps where a signal would wake it.
pub const SLEEPS: u32 = 1;
/// In a [`BlockedRecord`]: the task sleeps where only the end of its wait, or a fatal signal, wakes it.
pub const SLEEPS_DEEP: u32 = 2;

/// One task that waits inside a system call on a tracked superblock, in the order of the census. Not in the ring
/// buffer: an iterator writes one after the other, and nothing else.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockedRecord {
    /// Who waits. Its numbers are those of the process id namespace of whoever asks.
    pub who: Who,
    /// Inode number of the mount's root, 0 when unknown.
    pub root_ino: u64,
    /// Arguments of the call.
    pub arguments: [u64; 6],
    /// When the thread started, in nanoseconds (the agent counts in the ticks of procfs): tells two threads of one
    /// number apart.
    pub started: u64,
    /// How often it has been taken off a processor.
    pub switches: u64,
    /// How many calls that read or write data it has ended; 0 where the kernel does not count.
    pub calls: u64,
    /// The superblock; 0 when it is not known.
    pub s_dev: u32,
    /// Number of the system call.
    pub syscall: u32,
    /// [`SLEEPS`] or [`SLEEPS_DEEP`].
    pub state: u32,
    /// 1 when the superblock is that of the directory that a name starts from, and only the name's text could tell
    /// whether it leads elsewhere.
    pub by_text: u32,
    /// 1 when the superblock is known, by nothing but the text of a name: a symbolic link may have led elsewhere.
    pub by_name: u32,
    /// Always zero.
    pub reserved: u32,
}
