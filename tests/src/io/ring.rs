//! I/O that completes outside of system calls: io_uring and Linux AIO.
#![expect(unsafe_code, reason = "the kernel uses the buffers until the completion is there")]

use io_uring::{IoUring, opcode, squeue, types};
use nix::errno::Errno;

use super::raw::{Arg, call};
use super::row::Returned;

/// One operation on a descriptor, at the beginning of the file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Reads into the buffer.
    Read,
    /// Writes the buffer.
    Write,
    /// Makes data durable.
    Sync,
}

/// `IOCB_CMD_PREAD`, `IOCB_CMD_PWRITE`, `IOCB_CMD_FSYNC`. kernel: include/uapi/linux/aio_abi.h, since 2.6; the
/// last one works since 4.18.
const AIO_READ: u16 = 0;
const AIO_WRITE: u16 = 1;
const AIO_SYNC: u16 = 2;

/// `struct iocb` and `struct io_event`. kernel: include/uapi/linux/aio_abi.h, since 2.6.
const AIO_BLOCK: usize = 64;
const AIO_EVENT: usize = 32;

/// Does one operation through a ring and waits for its completion.
pub(super) fn through_ring(ring: &mut IoUring, work: Work, file: i32, buffer: &mut [u8]) -> Returned {
    let file = types::Fd(file);
    let length = u32::try_from(buffer.len()).map_err(|_| Errno::EINVAL)?;
    let entry: squeue::Entry = match work {
        Work::Read => opcode::Read::new(file, buffer.as_mut_ptr(), length).build(),
        Work::Write => opcode::Write::new(file, buffer.as_ptr(), length).build(),
        Work::Sync => opcode::Fsync::new(file).build(),
    };
    // SAFETY: the buffer is borrowed until this function returns, and it returns after the completion.
    unsafe { ring.submission().push(&entry) }.map_err(|_| Errno::EBUSY)?;
    let submitted = ring.submit_and_wait(1);
    submitted.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
    let completion = ring.completion().next().ok_or(Errno::EAGAIN)?;
    usize::try_from(completion.result()).map_err(|_| Errno::from_raw(-completion.result()))
}

/// Sets up a context for Linux AIO.
pub(super) fn aio_context() -> Result<u64, Errno> {
    let mut context = [0; 8];
    call(libc::SYS_io_setup, &mut [Arg::Number(1), Arg::Buffer(&mut context)])?;
    Ok(u64::from_ne_bytes(context))
}

/// Does one operation through Linux AIO and waits for its completion.
pub(super) fn through_aio(context: u64, work: Work, file: i32, buffer: &mut [u8]) -> Returned {
    let command = match work {
        Work::Read => AIO_READ,
        Work::Write => AIO_WRITE,
        Work::Sync => AIO_SYNC,
    };
    // fsync takes no buffer.
    let (address, length) = match work {
        Work::Sync => (0, 0),
        Work::Read | Work::Write => (buffer.as_mut_ptr() as u64, buffer.len() as u64),
    };
    let mut block = [0u8; AIO_BLOCK];
    let command = command.to_ne_bytes();
    let file = file.to_ne_bytes();
    for (offset, bytes) in [
        (16, command.as_slice()),
        (20, file.as_slice()),
        (24, address.to_ne_bytes().as_slice()),
        (32, length.to_ne_bytes().as_slice()),
    ] {
        let field = block.get_mut(offset..offset + bytes.len()).ok_or(Errno::EINVAL)?;
        field.copy_from_slice(bytes);
    }
    let mut list = (block.as_mut_ptr() as u64).to_ne_bytes();
    let context = context as i64;
    call(libc::SYS_io_submit, &mut [Arg::Number(context), Arg::Number(1), Arg::Buffer(&mut list)])?;
    let mut event = [0u8; AIO_EVENT];
    let events = &mut [Arg::Number(context), Arg::Number(1), Arg::Number(1), Arg::Buffer(&mut event)];
    call(libc::SYS_io_getevents, events)?;
    let result = event.get(16..24).and_then(|bytes| bytes.try_into().ok()).map_or(0, i64::from_ne_bytes);
    usize::try_from(result).map_err(|_| Errno::from_raw(i32::try_from(-result).unwrap_or(0)))
}
