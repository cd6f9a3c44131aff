//! The question which file system an open directory lies on, answered by the kernel's own copy of its UUID.
#![expect(unsafe_code, reason = "ioctls without a safe wrapper in the crates used here")]

use std::fmt::Write;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::ioctl;

use super::{btrfs, xfs};

/// kernel: `struct fsuuid2`, include/uapi/linux/fs.h: a length and room for 16 bytes.
#[repr(C)]
struct FsUuid([u8; 17]);

/// kernel: `FS_IOC_GETFSUUID`, include/uapi/linux/fs.h, since 6.9.
const GET_FS_UUID: ioctl::Opcode = ioctl::opcode::read::<FsUuid>(0x15, 0);

/// The UUID of the file system that an open directory lies on, as `blkid` prints it. Answered from memory.
///
/// # Errors
/// ENOTTY when the file system has none or the kernel is older; otherwise what it answered.
pub fn uuid(directory: BorrowedFd<'_>) -> Result<String, Errno> {
    // Older kernels tell it by calls of each file system's own.
    ask(directory).or_else(|_| btrfs::uuid(directory)).or_else(|_| xfs::uuid(directory))
}

fn ask(directory: BorrowedFd<'_>) -> Result<String, Errno> {
    // SAFETY: the kernel fills exactly the 17 bytes whose size the opcode encodes; any bytes are a valid
    // `FsUuid`.
    let question = unsafe { ioctl::Getter::<GET_FS_UUID, FsUuid>::new() };
    // SAFETY: the opcode only reads from the file system, and belongs to the type of the answer.
    let FsUuid([length, uuid @ ..]) = unsafe { ioctl::ioctl(directory, question) }?;
    // Zeros stand for none.
    match (usize::from(length), uuid) {
        (_, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]) => Err(Errno::NOTTY),
        (16, uuid) => Ok(text(uuid)),
        (4, [a, b, c, d, ..]) => Ok(volume_id(u32::from_ne_bytes([a, b, c, d]))),
        _ => Err(Errno::NOTTY),
    }
}

/// The number that FAT has in place of one, as `blkid` prints it.
///
/// kernel: `fat_fill_super`, fs/fat/inode.c, since 6.9.
fn volume_id(number: u32) -> String {
    format!("{:04X}-{:04X}", number >> 16, number & 0xffff)
}

/// Lower case, 8-4-4-4-12.
pub(super) fn text(uuid: impl IntoIterator<Item = u8>) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.into_iter().enumerate() {
        if [4, 6, 8, 10].contains(&index) {
            text.push('-');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_text_is_that_of_blkid() {
        let uuid = *b"\x01\x23\x45\x67\x89\xAB\xCD\xEF\x00\x11\x22\x33\x44\x55\x66\x77";
        assert_eq!(text(uuid), "01234567-89ab-cdef-0011-223344556677");
    }

    #[test]
    fn the_number_of_fat_has_its_own_form() {
        assert_eq!(volume_id(0x0a1b_2c3d), "0A1B-2C3D");
    }

    #[test]
    fn a_file_system_without_one_is_an_error() {
        assert!(uuid(std::fs::File::open("/proc").unwrap().as_fd()).is_err());
    }
}
