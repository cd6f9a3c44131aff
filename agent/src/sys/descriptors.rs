//! Closing what a process inherited by accident, and room for many descriptors.
#![expect(unsafe_code, reason = "no safe wrapper of close_range exists in the crates used here")]

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Without `close_range` every number up to here is tried.
const LAST_TRIED: i32 = 4096;

/// As many descriptors as a node of thousands of volumes needs: each daemon that serves a file system has one, and each
/// look that hangs has three.
const MANY: u64 = 65_536;

/// Raises the soft limit of open descriptors, which is 1,024 on most nodes, as far as the hard one lets it.
pub fn allow_many() {
    let raised =
        getrlimit(Resource::RLIMIT_NOFILE).map(|(soft, hard)| (soft, hard.min(MANY), hard)).and_then(
            |(soft, wanted, hard)| {
                if soft < wanted { setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) } else { Ok(()) }
            },
        );
    if let Err(error) = raised {
        tracing::warn!(%error, "Cannot raise the limit of open descriptors");
    }
}

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
