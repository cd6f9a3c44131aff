//! What the library for kernel programs does not do: a file system that holds links, and how often the kernel has
//! skipped a program.
#![expect(unsafe_code, reason = "the library does not ask for what is asked for here")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// kernel: `enum bpf_cmd`, include/uapi/linux/bpf.h, since 4.13.
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;

/// Words of `struct bpf_prog_info` up to and with the one that is asked for. A newer kernel has more and fills these.
const INFO_WORDS: usize = 27;
/// The place of `recursion_misses` among them.
///
/// kernel: `struct bpf_prog_info`, include/uapi/linux/bpf.h, since 5.12.
const MISSES: usize = 26;

/// The part of `union bpf_attr` that the question takes.
#[repr(C)]
struct InfoQuestion {
    descriptor: u32,
    length: u32,
    info: u64,
}

/// How often the kernel has skipped a program because it was running on the same processor already; `None` where the
/// kernel does not count.
///
/// kernel: `bpf_prog_get_info_by_fd`, kernel/bpf/syscall.c, since 4.13; it says how much it has written.
///
/// # Errors
/// When the descriptor is no program's, or the kernel refuses.
pub fn recursion_misses(program: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    let mut info = [0_u64; INFO_WORDS];
    let room = size_of_val(&info);
    let mut question = InfoQuestion {
        descriptor: program.as_raw_fd().cast_unsigned(),
        length: u32::try_from(room).unwrap_or(0),
        info: info.as_mut_ptr().expose_provenance() as u64,
    };
    // SAFETY: the question lives across the call and says its own size; the kernel writes at most `length` bytes to
    // `info`, which has as many, lives across the call, and takes any bytes. All its pointers are null, so that
    // nothing else is written.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &raw mut question, size_of::<InfoQuestion>())
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let written = usize::try_from(question.length).unwrap_or(0);
    Ok(if written < room { None } else { info.get(MISSES).copied() })
}

/// A file system for links and the like that is in no mount table. It goes with its descriptor, and what only it has
/// held goes after it, in the kernel's own time.
///
/// kernel: `fsopen`, `fsmount`, since 5.2; `bpf_fs_type`, kernel/bpf/inode.c, since 4.4.
///
/// # Errors
/// Without `CAP_SYS_ADMIN`.
pub fn detached_file_system() -> io::Result<OwnedFd> {
    let context = fsopen("bpf", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn what_is_no_program_has_no_misses() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(recursion_misses(file.as_fd()).is_err());
    }

    #[test]
    fn a_detached_file_system_has_no_links_and_in_no_mount_table() {
        let root = match detached_file_system() {
            Ok(root) => root,
            Err(error) => {
                eprintln!("skipped: {error}");
                return;
            }
        };
        let table = || std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounts = |table: &str| table.lines().filter(|line| line.contains(" - bpf ")).count();
        let before = mounts(&table());
        let place = format!("/proc/self/fd/{}/", root.as_raw_fd());
        // Some kernels put iterators of their own there, whose names have a dot as no function's has.
        let names = std::fs::read_dir(place).unwrap().map(|name| name.unwrap().file_name());
        let others: Vec<_> = names.filter(|name| !name.to_string_lossy().contains('.')).collect();
        assert!(others.is_empty(), "{others:?}");
        assert_eq!(mounts(&table()), before);
    }
}
