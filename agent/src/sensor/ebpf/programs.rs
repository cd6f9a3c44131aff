//! The table of kernel programs: hook, needs, what is lost without it, what takes its place.
//! The loader walks it, `doctor` prints it, metrics export it.

use agent_common::names;

use super::layout::Group;

/// Programs that do the same work by other means.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ProgramFamily {
    /// Used whatever the family; without one of them the source works in part.
    Always,
    /// Used whatever the family, where the kernel has the hook: each sees what no system call tells. A kernel
    /// without it is none the worse for what the others see.
    Extra,
    /// Ends of file functions, through trampolines.
    Fexit,
    /// The end of every system call.
    SysExit,
}

impl ProgramFamily {
    /// The bounded label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Extra => "extra",
            Self::Fexit => "fexit",
            Self::SysExit => "sys_exit",
        }
    }
}

/// How a program gets to its hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attachment {
    /// A raw tracepoint.
    RawTracepoint,
    /// The end of a kernel function.
    FunctionExit,
    /// The end of the function behind a system call: one program hangs on all of them.
    CallExit,
    /// The end of a function that tells where it failed by a pointer to this structure, whichever argument that
    /// is on the running kernel.
    PlaceExit(&'static str),
    /// The beginning of a kernel function.
    FunctionEntry,
    /// Nowhere: the agent runs it once.
    RunOnce,
    /// Nowhere: it runs for every task whenever the agent reads.
    Iterator,
}

impl Attachment {
    /// Whether it hangs on a kernel function, through a trampoline.
    #[must_use]
    pub const fn is_on_function(self) -> bool {
        match self {
            Self::FunctionExit | Self::CallExit | Self::PlaceExit(_) | Self::FunctionEntry => true,
            Self::RawTracepoint | Self::RunOnce | Self::Iterator => false,
        }
    }
}

/// One program.
#[derive(Debug)]
pub struct ProgramRow {
    /// Its name in the object.
    pub name: &'static str,
    /// Its family.
    pub family: ProgramFamily,
    /// How it is attached.
    pub attachment: Attachment,
    /// Tracepoint or function.
    pub hook: &'static str,
    /// Fields of kernel structures that it reads.
    pub needs: &'static [Group],
    /// What nobody sees without it.
    pub lost_without: &'static str,
    /// What stands in for it.
    pub fallback: &'static str,
    /// The module that its hook or its fields may belong to: while that is not loaded, the program waits.
    pub module: Option<&'static str>,
    /// Programs that would count the same event once more: where one of them is attached, this one is not.
    pub unless: &'static [&'static str],
    /// The program that sees exactly the same, from a hook of another name or shape: one of the two is enough, and
    /// that a kernel does not have the other one's hook is no loss. It stands before this one.
    pub equal: Option<&'static str>,
    /// Whether it counts nothing and tells only where a call has failed that is counted without it as well.
    pub only_places: bool,
    /// Whether no program of the other family sees what it sees.
    pub is_alone: bool,
}

impl ProgramRow {
    /// A row to fill in.
    const EMPTY: Self = Self {
        name: "",
        family: ProgramFamily::Extra,
        attachment: Attachment::RawTracepoint,
        hook: "",
        needs: &[],
        lost_without: "",
        fallback: "probes only",
        module: None,
        unless: &[],
        equal: None,
        only_places: false,
        is_alone: false,
    };
}

const ON_FILES: &[Group] = &[Group::Task, Group::File];
const ON_CALLS: &[Group] = &[Group::Task, Group::Registers, Group::File, Group::Descriptor, Group::Name];

const fn exit(
    attachment: Attachment,
    (name, hook): (&'static str, &'static str),
    needs: &'static [Group],
    lost_without: &'static str,
) -> ProgramRow {
    ProgramRow {
        name,
        family: ProgramFamily::Fexit,
        attachment,
        hook,
        needs,
        lost_without,
        fallback: "sys_exit",
        ..ProgramRow::EMPTY
    }
}

const fn at_exit(name: &'static str, needs: &'static [Group], lost_without: &'static str) -> ProgramRow {
    exit(Attachment::FunctionExit, (name, name), needs, lost_without)
}

/// A function inside of calls that knows better than they where they failed.
const fn place(
    name: &'static str,
    structure: &'static str,
    needs: &'static [Group],
    lost_without: &'static str,
) -> ProgramRow {
    let row = exit(Attachment::PlaceExit(structure), (name, name), needs, lost_without);
    ProgramRow { only_places: true, ..row }
}

/// A function inside of calls without which some of their failures are on nothing that is watched.
const fn inside(name: &'static str, lost_without: &'static str) -> ProgramRow {
    ProgramRow { only_places: false, ..place(name, "file", ON_FILES, lost_without) }.alone("probes")
}

/// What the names of the functions behind system calls begin with.
#[cfg(not(target_arch = "aarch64"))]
macro_rules! behind {
    ($name:literal) => {
        concat!("__x64_sys_", $name)
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! behind {
    ($name:literal) => {
        concat!("__arm64_sys_", $name)
    };
}

/// The end of a system call, by the kernel's name for it.
macro_rules! call {
    ($name:literal) => {
        exit(
            Attachment::CallExit,
            (concat!("sys_", $name), behind!($name)),
            ON_CALLS,
            concat!("failed calls of ", $name),
        )
    };
}

/// A call that every kernel has: without its function, calls have other names on this kernel.
pub(super) const ANY_CALL: &str = behind!("openat");

const ENTRY: &[Group] = &[Group::File, Group::Entry];
const RENAME: &[Group] = &[Group::File, Group::Entry, Group::Rename];
/// A raw tracepoint of the program's own name.
const fn at_tracepoint(
    name: &'static str,
    needs: &'static [Group],
    lost_without: &'static str,
    fallback: &'static str,
) -> ProgramRow {
    ProgramRow { name, hook: name, needs, lost_without, fallback, ..ProgramRow::EMPTY }
}

/// The beginning of a function of the program's own name.
const fn at_entry(
    name: &'static str,
    needs: &'static [Group],
    lost_without: &'static str,
    fallback: &'static str,
) -> ProgramRow {
    let attachment = Attachment::FunctionEntry;
    ProgramRow { attachment, ..at_tracepoint(name, needs, lost_without, fallback) }
}

impl ProgramRow {
    const fn at(self, hook: &'static str) -> Self {
        Self { hook, ..self }
    }

    const fn of_module(self, module: &'static str) -> Self {
        Self { module: Some(module), ..self }
    }

    /// Of its family alone. What is left without it is told.
    const fn alone(self, fallback: &'static str) -> Self {
        Self { is_alone: true, fallback, ..self }
    }

    const fn equal_to(self, other: &'static str) -> Self {
        Self { equal: Some(other), ..self }
    }

    /// Whether two programs see exactly the same.
    pub(super) fn equals(&self, other: &Self) -> bool {
        self.equal == Some(other.name) || other.equal == Some(self.name)
    }

    /// Whether a failure that it does not see is counted by nobody.
    pub(super) const fn loses_calls(&self) -> bool {
        match self.attachment {
            Attachment::RunOnce | Attachment::Iterator => false,
            Attachment::RawTracepoint
            | Attachment::FunctionExit
            | Attachment::CallExit
            | Attachment::PlaceExit(_)
            | Attachment::FunctionEntry => !self.only_places,
        }
    }

    const fn unless(self, unless: &'static [&'static str]) -> Self {
        Self { unless, ..self }
    }
}

const ON_SYNC: &str = "write-back errors, and probes";
const AT_DEVICE: &str = "failing calls on the file system above";
const ON_COMPLETION: &[Group] = &[Group::Task, Group::File, Group::Kiocb];
const OF_REQUEST: &[Group] = &[Group::Task, Group::File, Group::Waiter, Group::Fuse];
const OWN_REPORT: &str = "fanotify's file-system errors, and failing calls";

/// Every program, in the order in which they are attached.
pub const PROGRAMS: &[ProgramRow] = &[
    ProgramRow {
        name: names::PROGRAM_WHOAMI,
        family: ProgramFamily::Always,
        attachment: Attachment::RunOnce,
        hook: "BPF_PROG_TEST_RUN",
        needs: &[],
        lost_without: "in a nested process id namespace the agent's own failed calls are counted as others'",
        fallback: "the process id as the agent sees it",
        ..ProgramRow::EMPTY
    },
    ProgramRow {
        name: names::PROGRAM_WRITEBACK,
        family: ProgramFamily::Always,
        attachment: Attachment::RawTracepoint,
        hook: "filemap_set_wb_err",
        needs: &[Group::Task, Group::Mapping],
        lost_without: "write-back errors that no program asks about",
        fallback: "fanotify's file-system errors, and fsync by the program itself",
        ..ProgramRow::EMPTY
    },
    ProgramRow {
        name: names::PROGRAM_BLOCKED_TASKS,
        family: ProgramFamily::Always,
        attachment: Attachment::Iterator,
        hook: "iter/task",
        needs: &[Group::Task, Group::Registers, Group::File, Group::Descriptor, Group::Name, Group::Wait],
        lost_without: "a cheap census of tasks that wait on volumes",
        fallback: "procfs, read by a child process",
        ..ProgramRow::EMPTY
    },
    at_tracepoint(
        names::PROGRAM_SIGBUS,
        &[Group::Task, Group::File, Group::Fault, Group::Vma],
        "page faults on mapped files that storage did not answer",
        "filemap_fault, which does not see stores that the file system refuses",
    )
    .at("signal_generate"),
    ProgramRow {
        name: names::PROGRAM_FILEMAP_FAULT,
        attachment: Attachment::FunctionExit,
        hook: "filemap_fault",
        needs: &[Group::Task, Group::File, Group::Fault, Group::VmFault],
        lost_without: "page faults on mapped files that storage did not answer",
        unless: &[names::PROGRAM_SIGBUS],
        ..ProgramRow::EMPTY
    },
    at_tracepoint(
        names::PROGRAM_IO_URING_ENTRY,
        &[Group::Task, Group::File, Group::IoUring, Group::IoEntry],
        "failed requests of io_uring",
        names::PROGRAM_IO_URING,
    )
    .at("io_uring_complete"),
    at_tracepoint(
        names::PROGRAM_IO_URING,
        &[Group::Task, Group::File, Group::IoUring, Group::IoResult],
        "failed requests of io_uring",
        "reads and writes by io_complete_rw",
    )
    .equal_to(names::PROGRAM_IO_URING_ENTRY),
    at_entry(names::PROGRAM_IO_URING_RW, ON_COMPLETION, "failed reads and writes of io_uring", "probes only")
        .unless(&[names::PROGRAM_IO_URING_ENTRY, names::PROGRAM_IO_URING]),
    at_entry(names::PROGRAM_AIO, ON_COMPLETION, "failed reads and writes of Linux AIO", "probes only"),
    at_tracepoint(names::PROGRAM_BLOCK_ERROR, &[Group::Block], "failed requests to block devices", AT_DEVICE),
    at_tracepoint(
        names::PROGRAM_BLOCK_COMPLETE,
        &[Group::Block],
        "failed requests to block devices",
        AT_DEVICE,
    )
    .equal_to(names::PROGRAM_BLOCK_ERROR),
    at_entry(
        names::PROGRAM_FSERROR,
        &[Group::Task, Group::File],
        "errors that file systems report about themselves",
        "ext4_error, ext4_shutdown, xfs_force_shutdown and fanotify",
    ),
    at_tracepoint(
        names::PROGRAM_EXT4_ERROR,
        &[Group::File],
        "errors that ext4 reports about itself",
        OWN_REPORT,
    )
    .of_module("ext4")
    .unless(&[names::PROGRAM_FSERROR]),
    at_tracepoint(
        names::PROGRAM_EXT4_SHUTDOWN,
        &[Group::File],
        "shutdowns of ext4 that no call meets",
        OWN_REPORT,
    )
    .of_module("ext4")
    .unless(&[names::PROGRAM_FSERROR]),
    at_tracepoint(
        names::PROGRAM_XFS_SHUTDOWN,
        &[Group::File, Group::Xfs],
        "shutdowns of XFS that no call meets: the mount table never tells",
        OWN_REPORT,
    )
    .of_module("xfs")
    .unless(&[names::PROGRAM_FSERROR]),
    at_tracepoint(
        names::PROGRAM_FUSE_REQUEST,
        OF_REQUEST,
        "failed requests to user-space file systems that nobody waits for",
        "failing calls, and write-back errors",
    )
    .of_module("fuse"),
    at_entry(
        names::PROGRAM_FUSE_ABORT,
        OF_REQUEST,
        "the end of a user-space file system that nobody uses",
        "the next call or probe",
    )
    .of_module("fuse"),
    at_entry(
        names::PROGRAM_FUSE_CHAN_ABORT,
        OF_REQUEST,
        "the end of a user-space file system that nobody uses",
        "the next call or probe",
    )
    .of_module("fuse")
    .equal_to(names::PROGRAM_FUSE_ABORT),
    at_exit(names::PROGRAM_READ, ON_FILES, "failed reads"),
    at_exit(names::PROGRAM_WRITE, ON_FILES, "failed writes"),
    // Functions inside of calls, by kernel: where they take other arguments, or none that helps, the agent finds
    // out from the kernel's own description; where one is missing, its calls are placed by what they were given.
    // kernel: `vfs_open`, fs/open.c, since 3.18; `vfs_getattr`, fs/stat.c, `struct path` since 3.9.
    place("vfs_open", "path", ON_FILES, "the exact place of failed opens"),
    // kernel: fs/namei.c, since 2.6.25; with the mount's idmapping first since 5.12. Once for each open, where the walk
    // is over: writing to a superblock that is read-only comes no further.
    place("may_open", "path", ON_FILES, "the exact place of opens that are refused"),
    place("vfs_getattr", "path", ON_FILES, "the exact place of failed reads of attributes"),
    // kernel: fs/statfs.c, since 2.6.36; not always in the kernel's description of itself since 6.12.
    place("vfs_statfs", "path", ON_FILES, "the exact place of failed statfs"),
    // kernel: fs/namespace.c, since 2.6.26. All changes on what is read-only.
    place("mnt_want_write", "vfsmount", ON_FILES, "the exact place of changes refused as read-only"),
    // kernel: fs/attr.c, since 2.6. Mode, owner, times and size, also while opening.
    place("notify_change", "dentry", ENTRY, "the exact place of failed changes of attributes"),
    // kernel: fs/namei.c, since 2.6; with the mount's idmapping before the rest since 5.12.
    place("vfs_create", "dentry", ENTRY, "the exact place of failed creations"),
    place("vfs_mkdir", "dentry", ENTRY, "the exact place of failed mkdir"),
    place("vfs_mknod", "dentry", ENTRY, "the exact place of failed mknod"),
    place("vfs_symlink", "dentry", ENTRY, "the exact place of failed symlink"),
    place("vfs_link", "dentry", ENTRY, "the exact place of failed link"),
    place("vfs_unlink", "dentry", ENTRY, "the exact place of failed unlink"),
    place("vfs_rmdir", "dentry", ENTRY, "the exact place of failed rmdir"),
    // kernel: `struct renamedata`, include/linux/fs.h, since 5.12.
    place("vfs_rename", "renamedata", RENAME, "the exact place of failed renames"),
    // kernel: fs/xattr.c, since 2.6; `vfs_readlink`, fs/namei.c, since 2.6.
    place("vfs_getxattr", "dentry", ENTRY, "the exact place of failed getxattr"),
    place("vfs_setxattr", "dentry", ENTRY, "the exact place of failed setxattr"),
    place("vfs_listxattr", "dentry", ENTRY, "the exact place of failed listxattr"),
    place("vfs_removexattr", "dentry", ENTRY, "the exact place of failed removexattr"),
    place("vfs_readlink", "dentry", ENTRY, "the exact place of failed readlink"),
    // kernel: fs/sync.c, since 2.6.33.
    inside("vfs_fsync_range", "failed msync").alone(ON_SYNC),
    // What file systems on top of others call. kernel: fs/read_write.c, since 4.13; fs/readdir.c, since 3.11.
    inside("vfs_iter_read", "failed reads below an overlay"),
    inside("vfs_iter_write", "failed writes below an overlay"),
    inside("iterate_dir", "failed directory reads below an overlay"),
    // Every row of the table of system calls, but for those that are `vfs_read` and `vfs_write`.
    call!("readv"),
    call!("preadv"),
    call!("preadv2"),
    call!("readahead"),
    call!("sendfile64"),
    call!("splice"),
    call!("writev"),
    call!("pwritev"),
    call!("pwritev2"),
    call!("vmsplice"),
    call!("copy_file_range"),
    call!("fallocate"),
    call!("fsync"),
    call!("fdatasync"),
    call!("sync_file_range"),
    call!("syncfs"),
    // It has an address and nothing that names a file.
    call!("msync").alone(ON_SYNC),
    call!("openat"),
    call!("openat2"),
    call!("execve"),
    call!("execveat"),
    call!("newfstatat"),
    call!("newfstat"),
    call!("statx"),
    call!("statfs"),
    call!("fstatfs"),
    call!("faccessat"),
    call!("faccessat2"),
    call!("readlinkat"),
    call!("name_to_handle_at"),
    call!("getxattr"),
    call!("lgetxattr"),
    call!("fgetxattr"),
    call!("listxattr"),
    call!("llistxattr"),
    call!("flistxattr"),
    call!("chdir"),
    call!("fchdir"),
    call!("getdents64"),
    call!("mkdirat"),
    call!("mknodat"),
    call!("unlinkat"),
    call!("symlinkat"),
    call!("linkat"),
    call!("renameat"),
    call!("renameat2"),
    call!("truncate"),
    call!("ftruncate"),
    call!("fchmod"),
    call!("fchmodat"),
    call!("fchmodat2"),
    call!("fchown"),
    call!("fchownat"),
    call!("utimensat"),
    call!("setxattr"),
    call!("lsetxattr"),
    call!("fsetxattr"),
    call!("removexattr"),
    call!("lremovexattr"),
    call!("fremovexattr"),
    call!("setxattrat"),
    call!("getxattrat"),
    call!("listxattrat"),
    call!("removexattrat"),
    call!("file_getattr"),
    call!("file_setattr"),
    call!("flock"),
    call!("ioctl"),
    #[cfg(not(target_arch = "aarch64"))]
    call!("fadvise64"),
    #[cfg(target_arch = "aarch64")]
    call!("fadvise64_64"),
    #[cfg(target_arch = "x86_64")]
    call!("open"),
    #[cfg(target_arch = "x86_64")]
    call!("creat"),
    #[cfg(target_arch = "x86_64")]
    call!("newstat"),
    #[cfg(target_arch = "x86_64")]
    call!("newlstat"),
    #[cfg(target_arch = "x86_64")]
    call!("access"),
    #[cfg(target_arch = "x86_64")]
    call!("readlink"),
    #[cfg(target_arch = "x86_64")]
    call!("getdents"),
    #[cfg(target_arch = "x86_64")]
    call!("mkdir"),
    #[cfg(target_arch = "x86_64")]
    call!("rmdir"),
    #[cfg(target_arch = "x86_64")]
    call!("mknod"),
    #[cfg(target_arch = "x86_64")]
    call!("unlink"),
    #[cfg(target_arch = "x86_64")]
    call!("symlink"),
    #[cfg(target_arch = "x86_64")]
    call!("link"),
    #[cfg(target_arch = "x86_64")]
    call!("rename"),
    #[cfg(target_arch = "x86_64")]
    call!("chmod"),
    #[cfg(target_arch = "x86_64")]
    call!("chown"),
    #[cfg(target_arch = "x86_64")]
    call!("lchown"),
    #[cfg(target_arch = "x86_64")]
    call!("utime"),
    #[cfg(target_arch = "x86_64")]
    call!("utimes"),
    #[cfg(target_arch = "x86_64")]
    call!("futimesat"),
    ProgramRow {
        name: names::PROGRAM_SYS_EXIT,
        family: ProgramFamily::SysExit,
        attachment: Attachment::RawTracepoint,
        hook: "sys_exit",
        needs: &[Group::Task, Group::Registers, Group::File, Group::Descriptor, Group::Name],
        lost_without: "all failed system calls on files and names",
        ..ProgramRow::EMPTY
    },
];
