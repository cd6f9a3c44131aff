//! The table of system calls that can fail because a file system does: kind of operation, and which argument
//! names the file.
//!
//! Left out on purpose: `lseek` (ENXIO is its normal answer at the end of data), `mmap` (ENODEV says what a file
//! cannot do), `fcntl`, `inotify_add_watch` (ENOSPC says that the user has too many watches), `bind` (its name is in
//! a socket address), `open_by_handle_at` (ESTALE is its normal answer for what was deleted), and `close` (its descriptor is gone when it ends). `poll` and the socket calls are no
//! file calls. io_uring and aio do not pass here. `msync` has only an address: the fexit family alone sees where.

use agent_common::settings::{NO_ARGUMENT, SyscallRow, kind, op};

// Calls that the C library has no names for on every architecture. Since 424 every architecture has the same numbers.
//
// kernel: scripts/syscall.tbl and arch/x86/entry/syscalls/syscall_64.tbl; `fchmodat2` since 6.6, `*xattrat` since 6.13, `file_*attr` since
// 6.17.
/// `fchmodat2`
pub(in crate::sensor) const SYS_FCHMODAT2: libc::c_long = 452;
/// `setxattrat`
pub(in crate::sensor) const SYS_SETXATTRAT: libc::c_long = 463;
/// `getxattrat`
pub(in crate::sensor) const SYS_GETXATTRAT: libc::c_long = 464;
/// `listxattrat`
pub(in crate::sensor) const SYS_LISTXATTRAT: libc::c_long = 465;
/// `removexattrat`
pub(in crate::sensor) const SYS_REMOVEXATTRAT: libc::c_long = 466;
/// `file_getattr`
pub(in crate::sensor) const SYS_FILE_GETATTR: libc::c_long = 468;
/// `file_setattr`
pub(in crate::sensor) const SYS_FILE_SETATTR: libc::c_long = 469;

/// A row and its system call number.
pub(in crate::sensor) type Numbered = (libc::c_long, SyscallRow);

const fn row(kind: u8, op: u8, first: (u8, u8), second: (u8, u8)) -> SyscallRow {
    SyscallRow {
        kind,
        op,
        first: first.0,
        first_name: first.1,
        second: second.0,
        second_name: second.1,
        second_op: op,
        reserved: 0,
    }
}

const NONE: (u8, u8) = (NO_ARGUMENT, NO_ARGUMENT);

/// By one descriptor.
const fn descriptor(op: u8, argument: u8) -> SyscallRow {
    row(kind::DESCRIPTOR, op, (argument, NO_ARGUMENT), NONE)
}

/// By either of two descriptors, each with its own operation, since the result does not say which of the two failed.
/// The tracked one gets the count, or, where both are of one mount, the first.
const fn descriptors(first: (u8, u8), second: (u8, u8)) -> SyscallRow {
    let row = row(kind::DESCRIPTOR, first.0, (first.1, NO_ARGUMENT), (second.1, NO_ARGUMENT));
    SyscallRow { second_op: second.0, ..row }
}

/// By a name relative to a descriptor.
const fn name_at(op: u8, dir: u8, name: u8) -> SyscallRow {
    row(kind::NAME, op, (dir, name), NONE)
}

/// By a name relative to the working directory. Only architectures with the old calls have such.
#[cfg(target_arch = "x86_64")]
const fn name(op: u8, name: u8) -> SyscallRow {
    row(kind::NAME, op, (NO_ARGUMENT, name), NONE)
}

/// Calls that every architecture has.
const GENERIC: &[Numbered] = &[
    (libc::SYS_read, descriptor(op::READ, 0)),
    (libc::SYS_readv, descriptor(op::READ, 0)),
    (libc::SYS_pread64, descriptor(op::READ, 0)),
    (libc::SYS_preadv, descriptor(op::READ, 0)),
    (libc::SYS_preadv2, descriptor(op::READ, 0)),
    (libc::SYS_readahead, descriptor(op::READ, 0)),
    (libc::SYS_sendfile, descriptors((op::READ, 1), (op::WRITE, 0))),
    (libc::SYS_splice, descriptors((op::READ, 0), (op::WRITE, 2))),
    (libc::SYS_write, descriptor(op::WRITE, 0)),
    (libc::SYS_writev, descriptor(op::WRITE, 0)),
    (libc::SYS_pwrite64, descriptor(op::WRITE, 0)),
    (libc::SYS_pwritev, descriptor(op::WRITE, 0)),
    (libc::SYS_pwritev2, descriptor(op::WRITE, 0)),
    (libc::SYS_vmsplice, descriptor(op::WRITE, 0)),
    (libc::SYS_copy_file_range, descriptors((op::WRITE, 2), (op::READ, 0))),
    (libc::SYS_fallocate, descriptor(op::WRITE, 0)),
    (libc::SYS_fsync, descriptor(op::SYNC, 0)),
    (libc::SYS_fdatasync, descriptor(op::SYNC, 0)),
    (libc::SYS_sync_file_range, descriptor(op::SYNC, 0)),
    (libc::SYS_syncfs, descriptor(op::SYNC, 0)),
    (libc::SYS_msync, row(kind::NOTED, op::SYNC, NONE, NONE)),
    (libc::SYS_openat, name_at(op::OPEN, 0, 1)),
    (libc::SYS_openat2, name_at(op::OPEN, 0, 1)),
    (libc::SYS_execve, row(kind::NAME, op::OPEN, (NO_ARGUMENT, 0), NONE)),
    (libc::SYS_execveat, name_at(op::OPEN, 0, 1)),
    (libc::SYS_newfstatat, name_at(op::STAT, 0, 1)),
    (libc::SYS_fstat, descriptor(op::STAT, 0)),
    (libc::SYS_statx, name_at(op::STAT, 0, 1)),
    (libc::SYS_statfs, row(kind::NAME, op::STAT, (NO_ARGUMENT, 0), NONE)),
    (libc::SYS_fstatfs, descriptor(op::STAT, 0)),
    (libc::SYS_faccessat, name_at(op::STAT, 0, 1)),
    (libc::SYS_faccessat2, name_at(op::STAT, 0, 1)),
    (libc::SYS_readlinkat, name_at(op::STAT, 0, 1)),
    (libc::SYS_name_to_handle_at, name_at(op::STAT, 0, 1)),
    (libc::SYS_getxattr, row(kind::NAME, op::STAT, (NO_ARGUMENT, 0), NONE)),
    (libc::SYS_lgetxattr, row(kind::NAME, op::STAT, (NO_ARGUMENT, 0), NONE)),
    (libc::SYS_fgetxattr, descriptor(op::STAT, 0)),
    (libc::SYS_listxattr, row(kind::NAME, op::STAT, (NO_ARGUMENT, 0), NONE)),
    (libc::SYS_llistxattr, row(kind::NAME, op::STAT, (NO_ARGUMENT, 0), NONE)),
    (libc::SYS_flistxattr, descriptor(op::STAT, 0)),
    (libc::SYS_chdir, row(kind::NAME, op::STAT, (NO_ARGUMENT, 0), NONE)),
    (libc::SYS_fchdir, descriptor(op::STAT, 0)),
    (libc::SYS_getdents64, descriptor(op::LIST, 0)),
    (libc::SYS_mkdirat, name_at(op::CHANGE, 0, 1)),
    (libc::SYS_mknodat, name_at(op::CHANGE, 0, 1)),
    (libc::SYS_unlinkat, name_at(op::CHANGE, 0, 1)),
    (libc::SYS_symlinkat, name_at(op::CHANGE, 1, 2)),
    (libc::SYS_linkat, row(kind::NAME, op::CHANGE, (0, 1), (2, 3))),
    (libc::SYS_renameat2, row(kind::NAME, op::CHANGE, (0, 1), (2, 3))),
    (libc::SYS_truncate, row(kind::NAME, op::CHANGE, (NO_ARGUMENT, 0), NONE)),
    (libc::SYS_ftruncate, descriptor(op::CHANGE, 0)),
    (libc::SYS_fchmod, descriptor(op::CHANGE, 0)),
    (libc::SYS_fchmodat, name_at(op::CHANGE, 0, 1)),
    (SYS_FCHMODAT2, name_at(op::CHANGE, 0, 1)),
    (libc::SYS_fchown, descriptor(op::CHANGE, 0)),
    (libc::SYS_fchownat, name_at(op::CHANGE, 0, 1)),
    (libc::SYS_utimensat, name_at(op::CHANGE, 0, 1)),
    (libc::SYS_setxattr, row(kind::NAME, op::CHANGE, (NO_ARGUMENT, 0), NONE)),
    (libc::SYS_lsetxattr, row(kind::NAME, op::CHANGE, (NO_ARGUMENT, 0), NONE)),
    (libc::SYS_fsetxattr, descriptor(op::CHANGE, 0)),
    (libc::SYS_removexattr, row(kind::NAME, op::CHANGE, (NO_ARGUMENT, 0), NONE)),
    (libc::SYS_lremovexattr, row(kind::NAME, op::CHANGE, (NO_ARGUMENT, 0), NONE)),
    (libc::SYS_fremovexattr, descriptor(op::CHANGE, 0)),
    (SYS_SETXATTRAT, name_at(op::CHANGE, 0, 1)),
    (SYS_GETXATTRAT, name_at(op::STAT, 0, 1)),
    (SYS_LISTXATTRAT, name_at(op::STAT, 0, 1)),
    (SYS_REMOVEXATTRAT, name_at(op::CHANGE, 0, 1)),
    (SYS_FILE_GETATTR, name_at(op::STAT, 0, 1)),
    (SYS_FILE_SETATTR, name_at(op::CHANGE, 0, 1)),
    (libc::SYS_flock, descriptor(op::OTHER, 0)),
    (libc::SYS_ioctl, descriptor(op::OTHER, 0)),
    (libc::SYS_fadvise64, descriptor(op::OTHER, 0)),
];

/// Calls from before the `at` ones.
#[cfg(target_arch = "x86_64")]
const OLD: &[Numbered] = &[
    (libc::SYS_open, name(op::OPEN, 0)),
    (libc::SYS_creat, name(op::OPEN, 0)),
    (libc::SYS_stat, name(op::STAT, 0)),
    (libc::SYS_lstat, name(op::STAT, 0)),
    (libc::SYS_access, name(op::STAT, 0)),
    (libc::SYS_readlink, name(op::STAT, 0)),
    (libc::SYS_getdents, descriptor(op::LIST, 0)),
    (libc::SYS_mkdir, name(op::CHANGE, 0)),
    (libc::SYS_rmdir, name(op::CHANGE, 0)),
    (libc::SYS_mknod, name(op::CHANGE, 0)),
    (libc::SYS_unlink, name(op::CHANGE, 0)),
    (libc::SYS_symlink, name(op::CHANGE, 1)),
    (libc::SYS_link, row(kind::NAME, op::CHANGE, (NO_ARGUMENT, 0), (NO_ARGUMENT, 1))),
    (libc::SYS_rename, row(kind::NAME, op::CHANGE, (NO_ARGUMENT, 0), (NO_ARGUMENT, 1))),
    (libc::SYS_renameat, row(kind::NAME, op::CHANGE, (0, 1), (2, 3))),
    (libc::SYS_chmod, name(op::CHANGE, 0)),
    (libc::SYS_chown, name(op::CHANGE, 0)),
    (libc::SYS_lchown, name(op::CHANGE, 0)),
    (libc::SYS_utime, name(op::CHANGE, 0)),
    (libc::SYS_utimes, name(op::CHANGE, 0)),
    (libc::SYS_futimesat, name_at(op::CHANGE, 0, 1)),
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[Numbered] = &[(libc::SYS_renameat, row(kind::NAME, op::CHANGE, (0, 1), (2, 3)))];

/// Every row for this architecture.
pub(in crate::sensor) fn rows() -> impl Iterator<Item = &'static Numbered> {
    GENERIC.iter().chain(OLD)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use agent_common::settings::SYSCALL_ROWS;

    use super::*;

    #[test]
    fn every_number_is_in_the_map_and_stands_once() {
        let mut seen = BTreeSet::new();
        for (number, row) in rows() {
            assert!(u32::try_from(*number).unwrap() < SYSCALL_ROWS);
            assert!(seen.insert(*number), "{number} stands twice");
            assert_ne!(row.kind, kind::NONE);
        }
        assert!(seen.len() > 60);
    }

    /// kernel: arch/x86/entry/syscalls/syscall_64.tbl; scripts/syscall.tbl (the generic table), before 6.11
    /// include/uapi/asm-generic/unistd.h.
    #[test]
    fn numbers_are_those_of_this_architecture() {
        // open (on x86-64 alone), openat, read, renameat, statx.
        let (old, expected): (Option<libc::c_long>, [libc::c_long; 4]) = match std::env::consts::ARCH {
            "x86_64" => (Some(2), [257, 0, 264, 332]),
            "aarch64" => (None, [56, 63, 38, 291]),
            other => panic!("nobody has said which numbers {other} has"),
        };
        let numbers: BTreeSet<libc::c_long> = rows().map(|(number, _)| *number).collect();
        assert!(expected.iter().all(|number| numbers.contains(number)));
        let calls = [libc::SYS_openat, libc::SYS_read, libc::SYS_renameat, libc::SYS_statx];
        assert_eq!(calls, expected);
        // Number 2 of the generic table is `io_submit`, which is not about one file.
        assert_eq!(numbers.contains(&2), old.is_some());
    }

    #[test]
    fn arguments_are_among_the_six() {
        for (number, row) in rows() {
            let arguments = [row.first, row.first_name, row.second, row.second_name];
            assert!(arguments.iter().all(|argument| *argument < 6 || *argument == NO_ARGUMENT), "{number}");
            let has_name = row.first_name != NO_ARGUMENT;
            assert_eq!(row.kind == kind::NAME, has_name, "{number}");
            assert!(has_name || row.first != NO_ARGUMENT || row.kind == kind::NOTED, "{number}");
        }
    }
}
