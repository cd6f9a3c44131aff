//! Which user namespace a mount namespace belongs to.
#![expect(
    unsafe_code,
    reason = "an ioctl that gives a descriptor, without a safe wrapper in the crates used here"
)]

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::{Errno, Result};

/// kernel: `NS_GET_USERNS`, include/uapi/linux/nsfs.h, since 4.9: `_IO(0xb7, 0x1)`.
const NS_GET_USERNS: libc::c_ulong = 0xb701;

/// The inode number of the user namespace that a namespace belongs to. EPERM for one that is not below this process's.
///
/// kernel: `ns_ioctl`, fs/nsfs.c, since 4.9.
pub fn owner(namespace: &OwnedFd) -> Result<u64> {
    // SAFETY: the call takes no argument and gives a new descriptor or an error.
    let found = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS as _) };
    if found < 0 {
        let number = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(number));
    }
    // SAFETY: the kernel has just made it for this process, and nobody else knows it.
    let found = unsafe { OwnedFd::from_raw_fd(found) };
    Ok(statx(&found, "", AtFlags::EMPTY_PATH, StatxFlags::INO)?.stx_ino)
}
