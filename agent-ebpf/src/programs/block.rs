//! Failed requests to block devices, counted for every tracked superblock on top of the device.

use agent_common::settings::{LOWER_SUPERBLOCKS, op};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;

use crate::count;
use crate::kernel_struct::{Address, follow, read};
use crate::maps::{LOWER, offset};
use crate::programs::calls;

/// Operations from here on are commands that a program sends past the file system.
///
/// kernel: `REQ_OP_DRV_IN` (34) and before 5.13 `REQ_OP_SCSI_IN` (32), include/linux/blk_types.h.
const FIRST_PASSTHROUGH: u32 = 32;
/// kernel: `REQ_OP_MASK`, include/linux/blk_types.h, since 4.8.
const OPERATION_BITS: u32 = 0xff;
/// kernel: `MINORBITS`, include/linux/kdev_t.h.
const MINOR_BITS: u32 = 20;

/// Says less than the other: nothing of requests that ask for quiet, and nothing of a disk that is gone.
///
/// kernel: tracepoint `block_rq_error(request, status, bytes)`, include/trace/events/block.h, since 5.18.
#[raw_tracepoint(tracepoint = "block_rq_error")]
pub fn block_rq_error(ctx: RawTracePointContext) -> i32 {
    failed(ctx.arg(0), ctx.arg(1));
    0
}

/// The same on older kernels, among all requests that end.
///
/// kernel: tracepoint `block_rq_complete(request, error, bytes)`, include/trace/events/block.h, since 2.6.37; with
/// a block status instead of an errno since 5.16.
#[raw_tracepoint(tracepoint = "block_rq_complete")]
pub fn block_rq_complete(ctx: RawTracePointContext) -> i32 {
    let error: i32 = ctx.arg(1);
    if error != 0 {
        failed(ctx.arg(0), error);
    }
    0
}

#[inline(always)]
fn failed(request: Address, error: i32) -> Option<()> {
    let number = if offset!(request_errno) == 1 { of_errno(error) } else { of_status(error as u32 & 0xff) };
    let errno = calls::counted_errno(-i64::from(number))?;
    if read::<u32>(request, offset!(request_cmd_flags))? & OPERATION_BITS >= FIRST_PASSTHROUGH {
        return None;
    }
    // Without a piece it is a flush of the block layer's own. Whoever asked for it has a request that fails as well.
    let bio = follow(request, offset!(request_bio))?;
    let device = device(request, bio)?;
    if count::tracked(device).is_some() {
        count::add_report(device, errno, op::DEVICE);
    }
    // SAFETY: integers only; a row that is replaced meanwhile is the old or the new, or some of both.
    let above = unsafe { LOWER.get(&device) }?;
    for index in 0..LOWER_SUPERBLOCKS {
        let superblock = above.superblocks[index];
        if superblock != 0 && count::tracked(superblock).is_some() {
            count::add_report(superblock, errno, op::DEVICE);
        }
    }
    Some(())
}

/// An errno as it is counted: what a disk says of bad sectors (ENODATA, EILSEQ) is an I/O error to programs, and
/// ENODATA is the normal answer of other calls.
#[inline(always)]
fn of_errno(error: i32) -> u16 {
    match error.wrapping_neg() {
        61 | 84 => 5,
        number @ 1..=4095 => number as u16,
        _ => 0,
    }
}

/// A block status as it is counted. Not counted: what asks for another try, and what the device cannot do.
///
/// kernel: `blk_errors`, block/blk-core.c, since 4.13; numbers from 14 on have moved, they are I/O errors here.
#[inline(always)]
fn of_status(status: u32) -> u16 {
    match status {
        // OK, NOTSUPP, RESOURCE, DM_REQUEUE, AGAIN, DEV_RESOURCE.
        0 | 1 | 9 | 11 | 12 | 13 => 0,
        // TIMEOUT: ETIMEDOUT. NOSPC: ENOSPC. TRANSPORT: ENOLINK. TARGET: EREMOTEIO.
        2 => 110,
        3 => 28,
        4 => 67,
        5 => 121,
        // MEDIUM, PROTECTION, IOERR and the rest: EIO.
        _ => 5,
    }
}

/// Number of the partition of the request's first piece. Before 5.12: of the whole disk, whose partitions all lie
/// above it.
#[inline(always)]
fn device(request: Address, bio: Address) -> Option<u32> {
    if offset!(bio_bi_bdev) == 0 {
        return disk(request);
    }
    read(follow(bio, offset!(bio_bi_bdev))?, offset!(block_device_bd_dev))
}

#[inline(always)]
fn disk(request: Address) -> Option<u32> {
    let mut disk = follow(request, offset!(request_disk))?;
    if offset!(disk_in_queue) == 1 {
        disk = follow(disk, offset!(request_queue_disk))?;
    }
    let major: u32 = read(disk, offset!(gendisk_major))?;
    Some(major << MINOR_BITS | read::<u32>(disk, offset!(gendisk_first_minor))?)
}
