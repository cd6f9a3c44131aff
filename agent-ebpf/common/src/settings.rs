//! What the agent tells the kernel programs, and numbers that both sides agree on.

/// Between two records of one counter on one processor.
pub const RECORD_INTERVAL_NANOS: u64 = 100_000_000;
/// Names that the processes of one share may send on one processor in one interval. More are counted as lost.
pub const NAMES_PER_INTERVAL: u64 = 8;
/// Shares of the budget for names; a process belongs to one by its id, so that one that fails in a loop leaves
/// room for others. A power of two.
pub const NAME_SHARES: u32 = 64;
/// Words of an errno bitmap: numbers up to 191; the highest counted one is 129.
pub const ERRNO_WORDS: usize = 3;
/// Rows of the table of system calls. The highest number so far is about 470.
pub const SYSCALL_ROWS: u32 = 512;
/// Most superblocks that can be tracked: the size of the map.
pub const MAX_TRACKED: u32 = 8192;
/// Most mount points in the trie.
pub const MAX_NAMES: u32 = 32_768;

/// Flag of a tracked superblock: other mounts lie below it, so a relative name may lead elsewhere.
pub const TRACKED_NESTED: u32 = 1;

/// Kinds of operation, in the order of the agent's own list.
pub mod op {
    /// Reading data.
    pub const READ: u8 = 0;
    /// Writing data.
    pub const WRITE: u8 = 1;
    /// Making data durable.
    pub const SYNC: u8 = 2;
    /// Opening.
    pub const OPEN: u8 = 3;
    /// Reading attributes.
    pub const STAT: u8 = 4;
    /// Reading directories.
    pub const LIST: u8 = 5;
    /// Changing names or attributes.
    pub const CHANGE: u8 = 6;
    /// Page faults.
    pub const FAULT: u8 = 7;
    /// Write-back.
    pub const WRITEBACK: u8 = 8;
    /// Anything else.
    pub const OTHER: u8 = 9;
}

/// Rows of the map of lost things.
pub mod dropped {
    /// No room in the ring buffer.
    pub const RING: u32 = 0;
    /// No room in the map of counters: a failed call was not counted.
    pub const COUNTERS: u32 = 1;
    /// Names beyond the rate.
    pub const NAMES: u32 = 2;
    /// How many rows.
    pub const ROWS: u32 = 3;
}

/// How a system call says which file it is about.
pub mod kind {
    /// Not watched.
    pub const NONE: u8 = 0;
    /// By one or two descriptors.
    pub const DESCRIPTOR: u8 = 1;
    /// By one or two names.
    pub const NAME: u8 = 2;
}

/// In a [`SyscallRow`]: there is no such argument. As a directory: the working directory.
pub const NO_ARGUMENT: u8 = 0xff;

/// What to know about one system call. Numbers are those of arguments, from 0.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SyscallRow {
    /// See [`kind`].
    pub kind: u8,
    /// See [`op`].
    pub op: u8,
    /// The descriptor, or the directory of the name.
    pub first: u8,
    /// The name.
    pub first_name: u8,
    /// The second descriptor, or the directory of the second name.
    pub second: u8,
    /// The second name.
    pub second_name: u8,
    /// Always zero.
    pub reserved: [u8; 2],
}

/// The bounded list of errnos, and whose namespace names are in.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// One bit for every errno that is counted.
    pub counted: [u64; ERRNO_WORDS],
    /// One bit for every errno that is worth sending a name for.
    pub hard: [u64; ERRNO_WORDS],
    /// Inode number of the host's mount namespace.
    pub host_mnt_ns: u32,
    /// Always zero.
    pub reserved: u32,
}

impl Filter {
    /// All bits off: nothing is counted.
    pub const EMPTY: Self =
        Self { counted: [0; ERRNO_WORDS], hard: [0; ERRNO_WORDS], host_mnt_ns: 0, reserved: 0 };
}

/// Offsets of fields in the running kernel's structures, in bytes. No structure of the kernel is compiled in.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "each field is named after the structure and the member it is the offset of")]
pub struct Offsets {
    /// Arguments of a system call in the saved registers.
    pub regs_arguments: [u32; 6],
    /// Number of the system call in the saved registers.
    pub regs_number: u32,
    /// The word of `task_struct` whose bits tell a 32-bit system call.
    pub task_compat: u32,
    /// Those bits.
    pub compat_mask: u32,
    pub task_tgid: u32,
    pub task_real_parent: u32,
    pub task_nsproxy: u32,
    pub task_files: u32,
    pub task_fs: u32,
    pub nsproxy_mnt_ns: u32,
    pub mnt_namespace_inum: u32,
    pub files_struct_fdt: u32,
    pub fdtable_max_fds: u32,
    pub fdtable_fd: u32,
    pub file_f_path: u32,
    pub path_mnt: u32,
    pub path_dentry: u32,
    pub vfsmount_mnt_root: u32,
    pub vfsmount_mnt_sb: u32,
    pub super_block_s_dev: u32,
    pub dentry_d_inode: u32,
    pub inode_i_ino: u32,
    pub inode_i_sb: u32,
    pub inode_i_rdev: u32,
    pub address_space_host: u32,
    pub fs_struct_pwd: u32,
    pub fs_struct_root: u32,
    pub mount_mnt: u32,
    pub mount_mnt_parent: u32,
    pub mount_mnt_mountpoint: u32,
    pub filename_name: u32,
}
