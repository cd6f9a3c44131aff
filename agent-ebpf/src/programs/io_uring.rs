//! Completions of io_uring: what no system call returns.

use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;

use crate::kernel_struct::{Address, follow, read};
use crate::locate::Failure;
use crate::maps::{IO_OPERATIONS, offset};
use crate::programs::calls;
use crate::task;

/// Offset of the result in a completion entry.
///
/// kernel: `struct io_uring_cqe`, include/uapi/linux/io_uring.h, since 5.1.
const ENTRY_RESULT: u32 = 8;

/// kernel: tracepoint `io_uring_complete(ctx, req, user_data, res, …)`, include/trace/events/io_uring.h, since 5.17, until
/// 6.13. Before, it does not name the request.
#[raw_tracepoint(tracepoint = "io_uring_complete")]
pub fn io_uring_complete(ctx: RawTracePointContext) -> i32 {
    let result: i32 = ctx.arg(3);
    if result < 0 {
        failed(ctx.arg(1), result);
    }
    0
}

/// kernel: tracepoint `io_uring_complete(ctx, req, cqe)`, include/trace/events/io_uring.h, since 6.14.
#[raw_tracepoint(tracepoint = "io_uring_complete")]
pub fn io_uring_entry(ctx: RawTracePointContext) -> i32 {
    let result: i32 = read(ctx.arg(2), ENTRY_RESULT).unwrap_or(0);
    if result < 0 {
        failed(ctx.arg(1), result);
    }
    0
}

/// Runs on a task of the submitting process, its worker threads included, except for what a thread that polls the
/// queue of another process completes.
#[inline(always)]
fn failed(request: Address, result: i32) -> Option<()> {
    let errno = calls::counted_errno(i64::from(result))?;
    let opcode: u8 = read(request, offset!(io_kiocb_opcode))?;
    let op = IO_OPERATIONS.get(u32::from(opcode))?.checked_sub(1)? as u8;
    let task = task::current();
    if task::is_agent(task) {
        return None;
    }
    calls::on_file(&Failure { task, errno, op }, follow(request, offset!(io_kiocb_file))?);
    Some(())
}
