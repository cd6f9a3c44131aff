//! Completions of Linux AIO: the program is told by an event that no system call returns.

use agent_common::settings::op;
use aya_ebpf::macros::fentry;
use aya_ebpf::programs::FEntryContext;

use crate::kernel_struct::{Address, follow, read};
use crate::locate::Failure;
use crate::maps::offset;
use crate::programs::calls;
use crate::task;

/// The request writes. kernel: `IOCB_WRITE`, include/linux/fs.h, this bit since 5.10.
pub const IOCB_WRITE: u32 = 1 << 18;

/// Only failures go on to the slow part; short reads and retries are positive or not counted.
///
/// kernel: `aio_complete_rw(kiocb, res, …)`, fs/aio.c, since 4.18; trampolines since 5.5.
#[fentry(function = "aio_complete_rw")]
pub fn aio_complete_rw(ctx: FEntryContext) -> i32 {
    let result: i64 = ctx.arg(1);
    if result < 0 {
        failed(ctx.arg(0), result);
    }
    0
}

/// Reads and writes of an io_uring on kernels whose tracepoint does not name the request. Failures end here
/// whichever way they came.
///
/// kernel: `io_complete_rw(kiocb, res, …)`, fs/io_uring.c, since 5.1; io_uring/rw.c, since 6.0.
#[fentry(function = "io_complete_rw")]
pub fn io_complete_rw(ctx: FEntryContext) -> i32 {
    let result: i64 = ctx.arg(1);
    if result < 0 {
        failed(ctx.arg(0), result);
    }
    0
}

/// May run in the context of a device's interrupt: whose the request was is then not known, and the current task
/// is not the agent's unless its probes use AIO, which they do not.
#[inline(always)]
fn failed(kiocb: Address, result: i64) -> Option<()> {
    let errno = calls::counted_errno(result)?;
    let file = follow(kiocb, offset!(kiocb_ki_filp))?;
    let writes = read::<u32>(kiocb, offset!(kiocb_ki_flags))? & IOCB_WRITE != 0;
    let op = if writes { op::WRITE } else { op::READ };
    calls::on_file_of_nobody(&Failure { task: task::current(), errno, op }, file)
}
