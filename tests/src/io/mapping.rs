//! A file in memory: loads and stores that the kernel turns into I/O.
#![expect(unsafe_code, reason = "mapped memory has no safe wrapper")]

use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MsFlags, ProtFlags, mmap, msync, munmap};
use nix::sys::signal::{SigHandler, Signal, signal};

use super::row::Returned;

/// A shared mapping of a file's beginning.
#[derive(Debug)]
pub(super) struct Mapping {
    address: NonNull<libc::c_void>,
    length: NonZeroUsize,
}

impl Mapping {
    /// Maps the first `length` bytes of a file.
    pub(super) fn shared(file: BorrowedFd<'_>, length: NonZeroUsize) -> nix::Result<Self> {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, over nothing that is in use.
        let address = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, file, 0) }?;
        Ok(Self { address, length })
    }

    /// Reads one byte. Ends the process where the file cannot be read.
    pub(super) fn load(&self, offset: usize) -> u8 {
        let offset = offset.min(self.length.get() - 1);
        // SAFETY: within the mapping, which lives as long as `self`; volatile, since others may write to the file.
        unsafe { self.address.cast::<u8>().add(offset).read_volatile() }
    }

    /// Writes one byte. Ends the process where the file cannot be read or written.
    pub(super) fn store(&self, offset: usize, byte: u8) {
        let offset = offset.min(self.length.get() - 1);
        // SAFETY: as for reading; the mapping is writable.
        unsafe { self.address.cast::<u8>().add(offset).write_volatile(byte) }
    }

    /// Makes what was stored durable.
    pub(super) fn sync(&self) -> Returned {
        // SAFETY: exactly this mapping.
        unsafe { msync(self.address, self.length.get(), MsFlags::MS_SYNC) }.map(|()| 0)
    }
}

/// Has SIGBUS end this process at once. The standard library's handler goes back to the instruction first, to fault
/// once more.
pub(super) fn die_of_bus_errors() -> nix::Result<()> {
    // SAFETY: no handler of this program's own runs for it.
    unsafe { signal(Signal::SIGBUS, SigHandler::SigDfl) }.map(drop)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly this mapping, which nobody uses any more.
        let _ = unsafe { munmap(self.address, self.length.get()) };
    }
}
