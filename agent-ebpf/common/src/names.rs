//! Names of maps, programs and globals. They exist once, here.
//!
//! The kernel side cannot use a constant as the name of a symbol; a test of the agent compares these with
//! the built object.

/// Counters: per-processor hash of `CounterKey` to `CounterValue`.
pub const COUNTERS: &str = "COUNTERS";
/// Tracked superblocks: hash of `s_dev` to flags.
pub const TRACKED: &str = "TRACKED";
/// Roots that count by themselves: hash of `RootKey` to nothing that matters.
pub const ROOTS: &str = "ROOTS";
/// Mount points: trie of names to `NameValue`.
pub const NAMES: &str = "NAMES";
/// System calls: array of `SyscallRow`.
pub const SYSCALLS: &str = "SYSCALLS";
/// Records.
pub const RECORDS: &str = "RECORDS";
/// What was lost: per-processor array, see `settings::dropped`.
pub const DROPPED: &str = "DROPPED";
/// The agent's process id, as the first process id namespace has it.
pub const AGENT: &str = "AGENT";
/// The program that counts a failed system call, for those that only see its end.
pub const FAILED_CALLS: &str = "FAILED_CALLS";
/// Budgets of names: per-processor array of `NameWindow`.
pub const WINDOW: &str = "WINDOW";
/// io_uring operations: array of `op` + 1, 0 for what is not counted.
pub const IO_OPERATIONS: &str = "IO_OPERATIONS";
/// Devices below tracked superblocks: hash of device numbers to `LowerDevice`.
pub const LOWER: &str = "LOWER";
/// One row of `ModuleOffsets`.
pub const MODULES: &str = "MODULES";

/// Global: field offsets.
pub const OFFSETS: &str = "OFFSETS";
/// Global: the bounded list of errnos.
pub const FILTER: &str = "FILTER";

/// Program: writes down the agent's process id.
pub const PROGRAM_WHOAMI: &str = "whoami";
/// Program: end of a system call.
pub const PROGRAM_SYS_EXIT: &str = "sys_exit";
/// Program: write-back errors.
pub const PROGRAM_WRITEBACK: &str = "filemap_set_wb_err";
/// Program: end of `vfs_read`.
pub const PROGRAM_READ: &str = "vfs_read";
/// Program: end of `vfs_write`.
pub const PROGRAM_WRITE: &str = "vfs_write";
/// Program: end of the function of any system call; hands failures to the next one.
pub const PROGRAM_CALL_END: &str = "call_end";
/// Program: counts a system call that failed.
pub const PROGRAM_CALL_FAILED: &str = "call_failed";
/// Program: a signal is sent; those for page faults that storage did not answer.
pub const PROGRAM_SIGBUS: &str = "sigbus";
/// Page faults again, where the other one cannot find the mapped file.
pub const PROGRAM_FILEMAP_FAULT: &str = "filemap_fault";
/// Program: an io_uring request completes.
pub const PROGRAM_IO_URING: &str = "io_uring_complete";
/// Program: an io_uring request completes, where the tracepoint passes a completion entry.
pub const PROGRAM_IO_URING_ENTRY: &str = "io_uring_entry";
/// Program: a read or write of an io_uring completes, where the tracepoint does not name the request.
pub const PROGRAM_IO_URING_RW: &str = "io_complete_rw";
/// Program: a request of Linux AIO completes.
pub const PROGRAM_AIO: &str = "aio_complete_rw";
/// Program: a request to a block device fails.
pub const PROGRAM_BLOCK_ERROR: &str = "block_rq_error";
/// Program: a request to a block device ends.
pub const PROGRAM_BLOCK_COMPLETE: &str = "block_rq_complete";
/// Program: file systems report errors.
pub const PROGRAM_FSERROR: &str = "fserror_report";
/// Program: ext4 reports an error.
pub const PROGRAM_EXT4_ERROR: &str = "ext4_error";
/// Program: ext4 shuts down.
pub const PROGRAM_EXT4_SHUTDOWN: &str = "ext4_shutdown";
/// Program: XFS shuts down.
pub const PROGRAM_XFS_SHUTDOWN: &str = "xfs_force_shutdown";
/// Program: a request to a user-space file system ends.
pub const PROGRAM_FUSE_REQUEST: &str = "fuse_request_end";
/// Program: the connection to a user-space file system is aborted.
pub const PROGRAM_FUSE_ABORT: &str = "fuse_abort_conn";
/// Program: the same, since channels stand between requests and connections.
pub const PROGRAM_FUSE_CHAN_ABORT: &str = "fuse_chan_abort";
/// Program: the census of tasks that wait in a file call.
pub const PROGRAM_BLOCKED_TASKS: &str = "blocked_tasks";
