//! `listmount` and `statmount`: the mount table by unique id, one mount a call. No crate used here wraps them.
//!
//! Like mountinfo they show a namespace and not a file system: asking cannot hang on a dead mount. (Option
//! printers of some file systems take locks of their superblock; none waits for storage.)
//!
//! kernel: fs/namespace.c, since 6.8; `mnt_ns_id` in the request since 6.11, all fields of a line since 6.13.
#![expect(unsafe_code, reason = "the system calls take pointers to structures and buffers")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use agent_core::topology::Mount;
use nix::errno::Errno;

pub(crate) mod decode;

pub use self::decode::Incomplete;

/// The same on every architecture.
const SYS_STATMOUNT: libc::c_long = 457;
const SYS_LISTMOUNT: libc::c_long = 458;

/// Everything below the root.
const LSMT_ROOT: u64 = u64::MAX;

/// Ids a call. The kernel walks up from each to see whether it can be reached.
const BATCH: usize = 4096;

/// The first size of the buffer, and the last: as long as the longest line that is kept of mountinfo.
const BUFFER: usize = 4096;
const BUFFER_MAX: usize = super::mountinfo::lines::MAX_LINE * 2;

/// kernel: `NS_GET_MNTNS_ID`, include/uapi/linux/nsfs.h, since 6.11: `_IOR(0xb7, 5, __u64)`, whose number is
/// made differently on some architectures.
const NS_GET_MNTNS_ID: libc::Ioctl = libc::_IOR::<u64>(0xb7, 5);

/// kernel: `struct mnt_id_req`, include/uapi/linux/mount.h. A kernel that knows only the first 24 bytes takes
/// the rest when it is zero.
#[repr(C)]
struct Request {
    size: u32,
    spare: u32,
    mnt_id: u64,
    param: u64,
    mnt_ns_id: u64,
}

impl Request {
    fn new(mnt_id: u64, param: u64, namespace: u64) -> Self {
        // 32 fits any integer.
        Self { size: size_of::<Self>() as u32, spare: 0, mnt_id, param, mnt_ns_id: namespace }
    }
}

/// Why a mount could not be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StatError {
    /// The call failed.
    #[error("statmount fails: {0}")]
    Call(Errno),
    /// The kernel does not tell all that makes a line.
    #[error("statmount does not tell {0}")]
    Incomplete(Incomplete),
}

/// Asks about the mounts of one namespace.
#[derive(Debug)]
pub struct MountCalls {
    /// 0: the calling thread's own.
    namespace: u64,
    buffer: Vec<u64>,
}

impl MountCalls {
    /// For the calling thread's own namespace, as seen from its root directory.
    #[must_use]
    pub fn own() -> Self {
        Self { namespace: 0, buffer: vec![0; BUFFER / size_of::<u64>()] }
    }

    /// For the namespace whose file this is, as seen from its root.
    pub fn of(namespace: &Path) -> io::Result<Self> {
        let file = File::open(namespace)?;
        let mut id = 0_u64;
        // SAFETY: the descriptor is open, and `id` is a u64 that lives across the call, which is what the
        // kernel writes.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), NS_GET_MNTNS_ID, &raw mut id) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { namespace: id, ..Self::own() })
    }

    /// The unique ids of all mounts that can be reached, in the order of mountinfo.
    ///
    /// A mount that is there during the whole call is listed: the place to go on from is an id, not a count.
    pub fn list(&self) -> Result<Vec<u64>, Errno> {
        let mut ids: Vec<u64> = Vec::new();
        loop {
            let known = ids.len();
            let request = Request::new(LSMT_ROOT, ids.last().copied().unwrap_or(0), self.namespace);
            ids.resize(known + BATCH, 0);
            let room = ids.get_mut(known..).unwrap_or_default();
            // SAFETY: the request lives across the call and says its own size; the buffer has as many elements
            // as the kernel is told, and it writes at most those.
            let result = unsafe {
                libc::syscall(SYS_LISTMOUNT, &raw const request, room.as_mut_ptr(), room.len(), 0_u32)
            };
            let listed = usize::try_from(result).map_err(|_| Errno::last())?;
            ids.truncate(known + listed);
            if listed < BATCH {
                return Ok(ids);
            }
        }
    }

    /// The line of this mount; `None` when it is gone, or cannot be reached from the root.
    pub fn mount(&mut self, id: u64) -> Result<Option<Mount>, StatError> {
        let request = Request::new(id, decode::WANTED, self.namespace);
        loop {
            let size = self.buffer.len() * size_of::<u64>();
            // SAFETY: the request lives across the call and says its own size; the buffer has `size` bytes, is
            // aligned as the structure at its beginning, and any bytes are good values for it.
            let result = unsafe {
                libc::syscall(SYS_STATMOUNT, &raw const request, self.buffer.as_mut_ptr(), size, 0_u32)
            };
            if result == 0 {
                return decode::mount(self.bytes()).map_err(StatError::Incomplete);
            }
            match Errno::last() {
                Errno::ENOENT => return Ok(None),
                Errno::EINTR => {}
                Errno::EOVERFLOW if size < BUFFER_MAX => self.buffer.resize(self.buffer.len() * 2, 0),
                errno => return Err(StatError::Call(errno)),
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        let size = self.buffer.len() * size_of::<u64>();
        // SAFETY: the buffer is initialised, lives as long as the slice, and is as long as is said.
        unsafe { std::slice::from_raw_parts(self.buffer.as_ptr().cast(), size) }
    }
}

#[cfg(test)]
mod tests;
