//! Names of maps, programs and globals. They exist once, here.
//!
//! The kernel side cannot use a constant as the name of a symbol; a test of the agent compares these with
//! the built object.

/// Counters: per-processor hash of `CounterKey` to `CounterValue`.
pub const COUNTERS: &str = "COUNTERS";
/// Tracked superblocks: hash of `s_dev` to flags.
pub const TRACKED: &str = "TRACKED";
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
/// Program: end of `vfs_open`.
pub const PROGRAM_OPEN: &str = "vfs_open";
/// Program: end of `vfs_getattr`.
pub const PROGRAM_GETATTR: &str = "vfs_getattr";
/// Program: end of `vfs_fsync_range`.
pub const PROGRAM_FSYNC: &str = "vfs_fsync_range";
/// Program: end of `iterate_dir`.
pub const PROGRAM_LIST: &str = "iterate_dir";
/// Program: end of `filename_lookup`, the walker of paths.
pub const PROGRAM_LOOKUP: &str = "filename_lookup";
/// Program: end of `do_filp_open`, the walker of paths that are opened.
pub const PROGRAM_FILP_OPEN: &str = "do_filp_open";
