//! Requests to user-space file systems that fail, also those nobody waits for, and connections that end.

use agent_common::key::CounterKey;
use agent_common::settings::{ModuleOffsets, op};
use aya_ebpf::macros::{fentry, raw_tracepoint};
use aya_ebpf::programs::{FEntryContext, RawTracePointContext};

use crate::kernel_struct::{Address, device_of_superblock, follow, read};
use crate::maps::{MODULES, is_hard, offset};
use crate::programs::calls;
use crate::{count, task};

/// kernel: `FUSE_READ`, include/uapi/linux/fuse.h, since 2.6.14.
const READ: u32 = 15;
/// Answered with ENXIO at the end of data, as a matter of course. kernel: `FUSE_LSEEK`, include/uapi/linux/fuse.h,
/// since 4.5.
const LSEEK: u32 = 46;
/// Nobody waits for it. kernel: `FR_BACKGROUND`, fs/fuse/fuse_i.h, bit 2 since 4.2.
const BACKGROUND: u64 = 1 << 2;
/// The daemon is gone.
const ENOTCONN: u16 = 107;
/// Superblocks that one connection may have: the mount itself and a few submounts. The end of a connection with
/// more is told for these alone; the next probe of the others meets it.
const MOUNTS: u32 = 4;

/// Runs on the daemon's task, so whose request it was is read off the queue of waiters.
///
/// kernel: tracepoint `fuse_request_end(req)`, fs/fuse/fuse_trace.h, since 6.11.
#[raw_tracepoint(tracepoint = "fuse_request_end")]
pub fn fuse_request_end(ctx: RawTracePointContext) -> i32 {
    ended(ctx.arg(0));
    0
}

/// kernel: `fuse_abort_conn(fc)`, fs/fuse/dev.c, since 4.18, until 7.2. At an unmount the connection has no mounts any more
/// when it gets here.
#[fentry(function = "fuse_abort_conn")]
pub fn fuse_abort_conn(ctx: FEntryContext) -> i32 {
    if let Some(offsets) = MODULES.get(0) {
        aborted(offsets, ctx.arg(0), ctx.arg(0));
    }
    0
}

/// kernel: `fuse_chan_abort(chan, abort_with_err)`, fs/fuse/dev.c, since 7.2.
#[fentry(function = "fuse_chan_abort")]
pub fn fuse_chan_abort(ctx: FEntryContext) -> i32 {
    if let Some(offsets) = MODULES.get(0) {
        if let Some(connection) = follow(ctx.arg(0), offsets.fuse_chan_conn) {
            aborted(offsets, connection, ctx.arg(0));
        }
    }
    0
}

#[inline(always)]
fn ended(request: Address) -> Option<()> {
    let offsets = MODULES.get(0)?;
    let error: i32 = read(request, offsets.fuse_req_error)?;
    if error >= 0 {
        return None;
    }
    let errno = calls::counted_errno(i64::from(error)).filter(|errno| is_hard(*errno))?;
    let operation: u32 = read(request, offsets.fuse_req_opcode)?;
    if operation == LSEEK {
        return None;
    }
    let waiter = waiter(request.wrapping_add(u64::from(offsets.fuse_req_waitq)));
    match waiter {
        Some(task) if task::is_agent(task) => return None,
        Some(_) => {}
        // An answer that came before the caller had begun to wait: whose it was is not known, and it may be the
        // agent's. The caller gets the error from its own call.
        None if read::<u64>(request, offsets.fuse_req_flags)? & BACKGROUND == 0 => return None,
        // Reading ahead: whoever wants the data asks again, waits, and is counted then.
        None if operation == READ => return None,
        None => {}
    }
    let mount = if offsets.fuse_through_chan == 1 {
        let channel = follow(request, offsets.fuse_req_owner)?;
        let head = mounts(offsets, follow(channel, offsets.fuse_chan_conn)?);
        // A connection that has no mount any more is a list of nothing but its head.
        let first = follow(head, 0).filter(|first| *first != head)?;
        first.wrapping_sub(u64::from(offsets.fuse_mount_fc_entry))
    } else {
        follow(request, offsets.fuse_req_owner)?
    };
    let s_dev = tracked_superblock(offsets, mount)?;
    let key = CounterKey { root_ino: 0, s_dev, errno, op: op::REQUEST, by_name: 0 };
    count::add_waited(&key, waiter.unwrap_or(0));
    Some(())
}

/// The task that waits in the first place of a queue.
#[inline(always)]
fn waiter(queue: Address) -> Option<Address> {
    let head = queue.wrapping_add(u64::from(offset!(wait_queue_head_head)));
    let first = follow(head, 0).filter(|first| *first != head)?;
    let entry = first.wrapping_sub(u64::from(offset!(wait_queue_entry_entry)));
    follow(entry, offset!(wait_queue_entry_private))
}

/// Where the list of a connection's mounts begins and ends.
#[inline(always)]
fn mounts(offsets: &ModuleOffsets, connection: Address) -> Address {
    connection.wrapping_add(u64::from(offsets.fuse_conn_mounts))
}

/// The kernel aborts a connection again when its last descriptor is closed, also after an abort by hand; only the
/// first one is its end. What the agent aborts, it knows.
///
/// kernel: `connected` of `struct fuse_conn` or `struct fuse_chan`, fs/fuse/fuse_i.h, since 2.6.14; cleared by the
/// abort itself.
#[inline(always)]
fn aborted(offsets: &ModuleOffsets, connection: Address, owner: Address) -> Option<()> {
    if read::<u32>(owner, offsets.fuse_connected)? == 0 || task::is_agent(task::current()) {
        return None;
    }
    let head = mounts(offsets, connection);
    let mut entry = follow(head, 0)?;
    for _ in 0..MOUNTS {
        if entry == head {
            break;
        }
        let mount = entry.wrapping_sub(u64::from(offsets.fuse_mount_fc_entry));
        if let Some(s_dev) = tracked_superblock(offsets, mount) {
            count::add_report(s_dev, ENOTCONN, op::REQUEST);
        }
        entry = follow(entry, 0)?;
    }
    Some(())
}

#[inline(always)]
fn tracked_superblock(offsets: &ModuleOffsets, mount: Address) -> Option<u32> {
    let s_dev = device_of_superblock(follow(mount, offsets.fuse_mount_sb)?)?;
    count::tracked(s_dev).map(|_| s_dev)
}
