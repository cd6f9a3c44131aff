//! The one question to XFS that kernels before 6.9 answer by an ioctl of its own: which file system is this?
#![expect(unsafe_code, reason = "an ioctl without a safe wrapper in the crates used here")]

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::ioctl;

use super::fs_uuid;

/// kernel: `struct xfs_fsop_geom_v1`, fs/xfs/libxfs/xfs_fs.h: 112 bytes, the UUID after eight 32-bit and four 64-bit
/// numbers. Since 2.6.
#[repr(C, align(8))]
struct Geometry([u8; 112]);

/// kernel: `XFS_IOC_FSGEOMETRY_V1`, fs/xfs/libxfs/xfs_fs.h; answered from memory (`xfs_ioc_fsgeometry`,
/// fs/xfs/xfs_ioctl.c).
const GEOMETRY: ioctl::Opcode = ioctl::opcode::read::<Geometry>(b'X', 100);

/// The UUID of the XFS that an open directory lies on.
///
/// # Errors
/// ENOTTY when it is no XFS; otherwise what the file system answered.
pub fn uuid(directory: BorrowedFd<'_>) -> Result<String, Errno> {
    // SAFETY: the kernel fills exactly the 112 bytes whose size the opcode encodes; any bytes are a valid
    // `Geometry`.
    let question = unsafe { ioctl::Getter::<GEOMETRY, Geometry>::new() };
    // SAFETY: the opcode only reads from the file system, and belongs to the type of the answer.
    let geometry = unsafe { ioctl::ioctl(directory, question) }?;
    Ok(fs_uuid::text(geometry.0.iter().skip(64).take(16).copied()))
}
