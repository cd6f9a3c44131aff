//! The one question to btrfs that has no other way than an ioctl: which file system is this?
#![expect(unsafe_code, reason = "an ioctl without a safe wrapper in the crates used here")]

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::ioctl;

use super::fs_uuid;

/// kernel: `struct btrfs_ioctl_fs_info_args`, include/uapi/linux/btrfs.h: 1024 bytes, the UUID after two
/// 64-bit numbers. Since 2.6.39.
#[repr(C, align(8))]
struct FsInfo([u8; 1024]);

/// kernel: `BTRFS_IOC_FS_INFO`, include/uapi/linux/btrfs.h.
const FS_INFO: ioctl::Opcode = ioctl::opcode::read::<FsInfo>(0x94, 31);

/// The UUID of the btrfs that an open directory lies on: the name of its directory in `/sys/fs/btrfs`.
///
/// # Errors
/// ENOTTY when it is no btrfs; otherwise what the file system answered.
pub fn uuid(directory: BorrowedFd<'_>) -> Result<String, Errno> {
    // SAFETY: the kernel fills exactly the 1024 bytes whose size the opcode encodes; any bytes are a valid
    // `FsInfo`.
    let question = unsafe { ioctl::Getter::<FS_INFO, FsInfo>::new() };
    // SAFETY: the opcode only reads from the file system, and belongs to the type of the answer.
    let info = unsafe { ioctl::ioctl(directory, question) }?;
    Ok(fs_uuid::text(info.0.iter().skip(16).take(16).copied()))
}
