//! Closing what a process inherited by accident.
#![expect(unsafe_code, reason = "no safe wrapper of close_range exists in the crates used here")]

use nix::errno::Errno;

/// Without `close_range` every number up to here is tried.
const LAST_TRIED: i32 = 4096;

/// Closes every descriptor from 3 up.
///
/// Only for the very start of a process, before it has opened anything itself: a descriptor that some Rust
/// value owns would be closed under it.
///
/// kernel: `__close_range`, fs/file.c, since 5.9.
pub fn close_inherited() {
    // SAFETY: the call takes three integers and touches no memory. The caller promises that nothing owns
    // these descriptors yet.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
    if Errno::result(result).is_ok() {
        return;
    }
    for number in 3..LAST_TRIED {
        // SAFETY: closing a number that is not open is an error without effect; see above for the rest.
        unsafe { libc::close(number) };
    }
}
