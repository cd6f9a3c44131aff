//! The family that watches the end of system calls. Works where trampolines are refused or absent.
//!
//! Not seen: `close` (the descriptor is gone by then), page faults, and calls of 32-bit programs.

use agent_common::settings::{SyscallRow, kind};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;

use crate::kernel_struct::{Address, read};
use crate::locate::Failure;
use crate::maps::{SYSCALLS, offset};
use crate::programs::{calls, names};
use crate::task;

/// kernel: tracepoint `sys_exit`, include/trace/events/syscalls.h, since 2.6.33; raw since 4.17.
#[raw_tracepoint(tracepoint = "sys_exit")]
pub fn sys_exit(ctx: RawTracePointContext) -> i32 {
    let ret: i64 = ctx.arg(1);
    if ret < 0 {
        failed(ctx.arg(0), ret);
    }
    0
}

#[inline(always)]
fn failed(regs: Address, ret: i64) -> Option<()> {
    let (failure, row) = begin(regs, ret)?;
    place(&failure, regs, row);
    Some(())
}

/// A call that has failed with an error that counts, if it is watched and not the agent's own.
#[inline(always)]
pub fn begin(regs: Address, ret: i64) -> Option<(Failure, &'static SyscallRow)> {
    let errno = calls::counted_errno(ret)?;
    let row = SYSCALLS.get(read::<u32>(regs, offset!(regs_number))?)?;
    if row.kind == kind::NONE {
        return None;
    }
    let task = task::current();
    if task::is_compat(task) || task::is_agent(task) {
        return None;
    }
    Some((Failure { task, errno, op: row.op }, row))
}

/// Counts by what the call was given.
#[inline(always)]
fn place(failure: &Failure, regs: Address, row: &SyscallRow) {
    match row.kind {
        kind::DESCRIPTOR => {
            names::descriptors(failure, regs, row);
        }
        kind::NAME => names::by_names(failure, regs, row),
        _ => {}
    }
}
