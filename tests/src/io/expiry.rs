//! The ioctls with which a daemon lets an automount expire.
#![expect(unsafe_code, reason = "ioctls without a safe wrapper in the crates used here")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::errno::Errno;

/// kernel: `AUTOFS_IOC_READY`, include/uapi/linux/auto_fs.h: type 0x93, without a direction.
const READY: libc::Ioctl = 0x9360;
/// kernel: `AUTOFS_IOC_SETTIMEOUT`: a `long` in and out.
const SET_TIMEOUT: libc::Ioctl = 0xC008_9364_u32 as libc::Ioctl;
/// kernel: `AUTOFS_IOC_EXPIRE_MULTI`: an `int` in.
const EXPIRE_MULTI: libc::Ioctl = 0x4004_9366;

/// Says after how long without use the automounts of a trap expire.
pub(crate) fn set_timeout(trap: &File, after: Duration) -> Result<(), Errno> {
    let mut seconds = libc::c_ulong::from(u32::try_from(after.as_secs()).unwrap_or(u32::MAX));
    // SAFETY: the kernel reads and writes one `unsigned long`, which lives until the call returns.
    Errno::result(unsafe { libc::ioctl(trap.as_raw_fd(), SET_TIMEOUT, &raw mut seconds) }).map(drop)
}

/// Asks the kernel to let what may expire, and waits until the daemon has unmounted it. EAGAIN: nothing may.
pub(crate) fn expire(trap: &File) -> Result<(), Errno> {
    let how: libc::c_int = 0;
    // SAFETY: the kernel reads one `int`, which lives until the call returns.
    Errno::result(unsafe { libc::ioctl(trap.as_raw_fd(), EXPIRE_MULTI, &raw const how) }).map(drop)
}

/// Says that what a packet asked for is done.
pub(crate) fn ready(trap: &File, token: u32) -> Result<(), Errno> {
    // SAFETY: the argument is a number; the kernel touches no memory of this process.
    Errno::result(unsafe { libc::ioctl(trap.as_raw_fd(), READY, libc::c_ulong::from(token)) }).map(drop)
}
