//! What the agent tells the kernel programs, and numbers that both sides agree on.

/// Between two records of one counter on one processor.
pub const RECORD_INTERVAL_NANOS: u64 = 100_000_000;
/// Names that the processes of one share may send on one processor in one interval. More are counted as lost.
pub const NAMES_PER_INTERVAL: u64 = 8;
/// Shares of the budget for names; a process belongs to one by its id, so that one that fails in a loop leaves
/// room for others. A power of two.
pub const NAME_SHARES: u32 = 64;
/// Rows for names in the making on one processor; a thread uses one by its id. A power of two.
pub const SCRATCH_ROWS: u32 = 16;
/// Words of an errno bitmap: numbers up to 191; the highest counted one is 129.
pub const ERRNO_WORDS: usize = 3;
/// Rows of the table of system calls. The highest number so far is about 470.
pub const SYSCALL_ROWS: u32 = 512;
/// Most counters: kinds of failures, each on a root of a superblock.
pub const MAX_COUNTERS: u32 = 8192;
/// Most superblocks that can be tracked: the size of the map.
pub const MAX_TRACKED: u32 = 8192;
/// Most mount points in the trie.
pub const MAX_NAMES: u32 = 32_768;

/// Flag of a tracked superblock: other mounts lie below it, so a relative name may lead elsewhere.
pub const TRACKED_NESTED: u32 = 1;
/// Flag of a tracked superblock: subvolumes may be mounted from it, whose roots have one inode number.
pub const TRACKED_SUBVOLUMES: u32 = 2;

/// Stands for the errno of a failure that tells none. No error has this number.
pub const UNKNOWN_ERRNO: u16 = u16::MAX;

/// Stands in the map of the agent's process id when the offsets are not those of the running kernel. No process
/// has this number.
pub const WRONG_OFFSETS: u32 = u32::MAX;

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
    /// Requests to the block device underneath.
    pub const DEVICE: u8 = 10;
    /// The file system's own report.
    pub const FILESYSTEM: u8 = 11;
    /// Requests to a user-space file system.
    pub const REQUEST: u8 = 12;
    /// A call on two files of which only one need have failed.
    pub const EITHER: u8 = 13;
}

/// Rows of the map of lost things.
pub mod dropped {
    /// No room in the ring buffer.
    pub const RING: u32 = 0;
    /// No room in the map of counters: a failed call was not counted.
    pub const COUNTERS: u32 = 1;
    /// Names beyond the rate.
    pub const NAMES: u32 = 2;
    /// A fault whose mapping could not be looked at.
    pub const FAULTS: u32 = 3;
    /// How many rows.
    pub const ROWS: u32 = 4;
}

/// Bits of a task's flags. kernel: include/linux/sched.h; the file `stat` of procfs shows them as they are.
pub mod task_flag {
    /// The kernel's own thread. kernel: `PF_KTHREAD`, since 2.6.27.
    pub const KERNEL: u32 = 0x0020_0000;
    /// A worker of io_uring. kernel: `PF_IO_WORKER`, since 5.12; before, those were the kernel's own threads, and the
    /// bit was `PF_VCPU`, which nobody has while it waits.
    pub const IO_WORKER: u32 = 0x10;
    /// Another thread that the kernel has made in a program, as vhost does. kernel: `PF_USER_WORKER`, since 6.4. Until
    /// 5.17 the bit was `PF_USED_ASYNC`, which loaders of modules have and little else.
    pub const USER_WORKER: u32 = 0x4000;
    /// Those that make no system calls: what their registers say of one means nothing.
    pub const NO_PROGRAM: u32 = KERNEL | IO_WORKER | USER_WORKER;
}

/// How a system call says which file it is about.
pub mod kind {
    /// Not watched.
    pub const NONE: u8 = 0;
    /// By one or two descriptors.
    pub const DESCRIPTOR: u8 = 1;
    /// By one or two names.
    pub const NAME: u8 = 2;
    /// By an address: only what functions inside the call have noted says where it was.
    pub const NOTED: u8 = 3;
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
    /// What a failure on the second file counts as: one call may read there and write here.
    pub second_op: u8,
    /// Always zero.
    pub reserved: u8,
}

/// The bounded list of errnos, and whose namespace names are in.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// One bit for every errno that is counted.
    pub counted: [u64; ERRNO_WORDS],
    /// One bit for every errno that is worth sending a name for.
    pub hard: [u64; ERRNO_WORDS],
    /// One bit for every errno with which a socket answers as well.
    pub of_sockets: [u64; ERRNO_WORDS],
    /// Inode number of the host's mount namespace.
    pub host_mnt_ns: u32,
    /// Always zero.
    pub reserved: u32,
}

impl Filter {
    /// All bits off: nothing is counted.
    pub const EMPTY: Self = Self {
        counted: [0; ERRNO_WORDS],
        hard: [0; ERRNO_WORDS],
        of_sockets: [0; ERRNO_WORDS],
        host_mnt_ns: 0,
        reserved: 0,
    };
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
    pub dentry_d_parent: u32,
    /// From a directory entry to the pointer to its name.
    pub dentry_name: u32,
    pub inode_i_ino: u32,
    pub inode_i_sb: u32,
    pub inode_i_rdev: u32,
    pub address_space_host: u32,
    pub fs_struct_pwd: u32,
    pub fs_struct_root: u32,
    pub mount_mnt: u32,
    pub mount_mnt_parent: u32,
    pub mount_mnt_mountpoint: u32,
    pub dentry_d_sb: u32,
    pub renamedata_new_dentry: u32,
    pub file_f_inode: u32,
    pub inode_i_size: u32,
    pub vma_vm_start: u32,
    pub vma_vm_pgoff: u32,
    pub vma_vm_file: u32,
    pub vm_fault_vma: u32,
    pub vm_fault_flags: u32,
    pub vm_fault_pgoff: u32,
    /// What the processor said of a task's last page fault.
    pub task_fault_code: u32,
    /// Not an offset: the bit of it that tells a store. 0 where nobody tells.
    pub fault_store_mask: u32,
    /// Not an offset: the binary logarithm of the page size.
    pub page_shift: u32,
    pub task_pid: u32,
    pub task_comm: u32,
    pub wait_queue_head_head: u32,
    pub wait_queue_entry_entry: u32,
    pub wait_queue_entry_private: u32,
    pub io_kiocb_file: u32,
    pub io_kiocb_opcode: u32,
    pub kiocb_ki_filp: u32,
    pub kiocb_ki_flags: u32,
    pub request_bio: u32,
    pub request_cmd_flags: u32,
    /// The disk of a request: out of the request, or out of its queue.
    pub request_disk: u32,
    /// Not an offset: 1 where the disk is found through the queue.
    pub disk_in_queue: u32,
    pub request_queue_disk: u32,
    pub gendisk_major: u32,
    pub gendisk_first_minor: u32,
    /// 0 where what a bio says of its device is of no use once it is completed.
    pub bio_bi_bdev: u32,
    pub block_device_bd_dev: u32,
    /// Not an offset: 1 where the tracepoints of requests give an errno instead of a block status.
    pub request_errno: u32,
    pub inode_i_mode: u32,
    pub task_state: u32,
    pub task_flags: u32,
    pub task_start_boottime: u32,
    pub task_nvcsw: u32,
    pub task_nivcsw: u32,
    /// Calls that read data and that write data; 0 where the kernel does not count them.
    pub task_reads: u32,
    pub task_writes: u32,
    pub task_thread_pid: u32,
    pub task_group_leader: u32,
    pub task_cgroups: u32,
    pub task_nameidata: u32,
    pub pid_level: u32,
    pub pid_numbers: u32,
    pub css_set_dfl_cgrp: u32,
    pub cgroup_kn: u32,
    pub kernfs_node_id: u32,
    pub nameidata_path: u32,
}

/// Offsets of fields in structures that may belong to a module. They stand in a map, because a module may be
/// loaded long after the programs; each is read after an error only.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "each field is named after the structure and the member it is the offset of")]
pub struct ModuleOffsets {
    pub xfs_mount_m_super: u32,
    pub fuse_req_opcode: u32,
    pub fuse_req_waitq: u32,
    /// The mount or, where `fuse_through_chan` is 1, the channel of a request.
    pub fuse_req_owner: u32,
    pub fuse_through_chan: u32,
    pub fuse_chan_conn: u32,
    /// Of the connection or, where `fuse_through_chan` is 1, of the channel.
    pub fuse_connected: u32,
    pub fuse_conn_mounts: u32,
    pub fuse_mount_fc_entry: u32,
    pub fuse_mount_sb: u32,
    pub fuse_req_error: u32,
    pub fuse_req_flags: u32,
}

/// Rows of the table of io_uring operations. The highest number so far is about 65.
pub const IO_ROWS: u32 = 128;
/// Most devices below tracked superblocks: disks, partitions, and what is stacked between.
pub const MAX_LOWER: u32 = 4096;
/// Most superblocks that one lower device counts for. A disk with more tracked volumes on it counts for the first
/// ones; the others are seen by their own failing calls.
pub const LOWER_SUPERBLOCKS: usize = 32;

/// The superblocks on top of a device, unused places 0.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LowerDevice {
    /// `s_dev` of each.
    pub superblocks: [u32; LOWER_SUPERBLOCKS],
}
