//! Names of the system calls that the census knows, for people.

use agent_common::settings::{SyscallRow, kind, op};

use crate::sensor::ebpf::syscalls;

macro_rules! names {
    ($($constant:ident $name:literal,)+) => {
        &[$((libc::$constant, $name)),+]
    };
}

/// Calls that every architecture has.
const GENERIC: &[(libc::c_long, &str)] = names! {
    SYS_read "read",
    SYS_readv "readv",
    SYS_pread64 "pread64",
    SYS_preadv "preadv",
    SYS_preadv2 "preadv2",
    SYS_readahead "readahead",
    SYS_sendfile "sendfile",
    SYS_splice "splice",
    SYS_write "write",
    SYS_writev "writev",
    SYS_pwrite64 "pwrite64",
    SYS_pwritev "pwritev",
    SYS_pwritev2 "pwritev2",
    SYS_vmsplice "vmsplice",
    SYS_copy_file_range "copy_file_range",
    SYS_fallocate "fallocate",
    SYS_fsync "fsync",
    SYS_fdatasync "fdatasync",
    SYS_sync_file_range "sync_file_range",
    SYS_syncfs "syncfs",
    SYS_msync "msync",
    SYS_openat "openat",
    SYS_openat2 "openat2",
    SYS_execve "execve",
    SYS_execveat "execveat",
    SYS_newfstatat "newfstatat",
    SYS_fstat "fstat",
    SYS_statx "statx",
    SYS_statfs "statfs",
    SYS_fstatfs "fstatfs",
    SYS_faccessat "faccessat",
    SYS_faccessat2 "faccessat2",
    SYS_readlinkat "readlinkat",
    SYS_name_to_handle_at "name_to_handle_at",
    SYS_getxattr "getxattr",
    SYS_lgetxattr "lgetxattr",
    SYS_fgetxattr "fgetxattr",
    SYS_listxattr "listxattr",
    SYS_llistxattr "llistxattr",
    SYS_flistxattr "flistxattr",
    SYS_chdir "chdir",
    SYS_fchdir "fchdir",
    SYS_getdents64 "getdents64",
    SYS_mkdirat "mkdirat",
    SYS_mknodat "mknodat",
    SYS_unlinkat "unlinkat",
    SYS_symlinkat "symlinkat",
    SYS_linkat "linkat",
    SYS_renameat2 "renameat2",
    SYS_truncate "truncate",
    SYS_ftruncate "ftruncate",
    SYS_fchmod "fchmod",
    SYS_fchmodat "fchmodat",
    SYS_fchown "fchown",
    SYS_fchownat "fchownat",
    SYS_utimensat "utimensat",
    SYS_setxattr "setxattr",
    SYS_lsetxattr "lsetxattr",
    SYS_fsetxattr "fsetxattr",
    SYS_removexattr "removexattr",
    SYS_lremovexattr "lremovexattr",
    SYS_fremovexattr "fremovexattr",
    SYS_flock "flock",
    SYS_ioctl "ioctl",
    SYS_fadvise64 "fadvise64",
    SYS_renameat "renameat",
};

/// Calls that are about a name and whose failures say nothing about a volume: seen while the kernel walks it.
const WALKS: &[(libc::c_long, &str)] = names! {
    SYS_mount "mount",
    SYS_umount2 "umount2",
    SYS_open_tree "open_tree",
    SYS_move_mount "move_mount",
    SYS_fspick "fspick",
    SYS_mount_setattr "mount_setattr",
    SYS_pivot_root "pivot_root",
    SYS_chroot "chroot",
    SYS_inotify_add_watch "inotify_add_watch",
    SYS_fanotify_mark "fanotify_mark",
    SYS_connect "connect",
    SYS_bind "bind",
    SYS_swapon "swapon",
    SYS_quotactl "quotactl",
    SYS_acct "acct",
};

/// Calls that the C library has no names for on every architecture.
const NEW: &[(libc::c_long, &str)] = &[
    (syscalls::SYS_FCHMODAT2, "fchmodat2"),
    (syscalls::SYS_SETXATTRAT, "setxattrat"),
    (syscalls::SYS_GETXATTRAT, "getxattrat"),
    (syscalls::SYS_LISTXATTRAT, "listxattrat"),
    (syscalls::SYS_REMOVEXATTRAT, "removexattrat"),
    (syscalls::SYS_FILE_GETATTR, "file_getattr"),
    (syscalls::SYS_FILE_SETATTR, "file_setattr"),
];

/// Calls from before the `at` ones.
#[cfg(target_arch = "x86_64")]
const OLD: &[(libc::c_long, &str)] = names! {
    SYS_open "open",
    SYS_creat "creat",
    SYS_stat "stat",
    SYS_lstat "lstat",
    SYS_access "access",
    SYS_readlink "readlink",
    SYS_getdents "getdents",
    SYS_mkdir "mkdir",
    SYS_rmdir "rmdir",
    SYS_mknod "mknod",
    SYS_unlink "unlink",
    SYS_symlink "symlink",
    SYS_link "link",
    SYS_rename "rename",
    SYS_chmod "chmod",
    SYS_chown "chown",
    SYS_lchown "lchown",
    SYS_utime "utime",
    SYS_utimes "utimes",
    SYS_futimesat "futimesat",
};
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[(libc::c_long, &str)] = &[];

/// The name of a system call.
#[must_use]
pub(super) fn name(number: u32) -> String {
    GENERIC
        .iter()
        .chain(NEW)
        .chain(WALKS)
        .chain(OLD)
        .find(|(known, _)| u32::try_from(*known) == Ok(number))
        .map_or_else(|| format!("system call {number}"), |(_, name)| (*name).to_owned())
}

/// What the census has to know about a call; `None` for one that is no news when it waits (waiting in `flock` or
/// `ioctl` is normal), and for one that names no file (`msync`).
#[must_use]
pub(super) fn row(number: u64) -> Option<&'static SyscallRow> {
    let (_, row) = syscalls::rows().find(|(known, _)| u64::try_from(*known) == Ok(number))?;
    (matches!(row.kind, kind::DESCRIPTOR | kind::NAME) && row.op != op::OTHER).then_some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_that_is_watched_has_a_name() {
        for (number, _) in syscalls::rows() {
            let number = u32::try_from(*number).unwrap();
            assert!(!name(number).starts_with("system call"), "{number}");
        }
        assert_eq!(name(100_000), "system call 100000");
    }

    #[test]
    fn waiting_in_a_lock_is_no_news() {
        let number = |call: libc::c_long| u64::try_from(call).unwrap();
        assert!(row(number(libc::SYS_flock)).is_none() && row(number(libc::SYS_ioctl)).is_none());
        assert!(row(number(libc::SYS_msync)).is_none(), "it names no file");
        assert!(row(number(libc::SYS_poll)).is_none() && row(u64::MAX).is_none());
        assert!(row(number(libc::SYS_read)).is_some() && row(number(libc::SYS_statx)).is_some());
    }
}
