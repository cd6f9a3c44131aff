//! The family that watches the end of system calls. Works where trampolines are refused or absent.
//!
//! Not seen: `close` (the descriptor is gone by then), page faults, and calls of 32-bit programs.

use agent_common::settings::{NO_ARGUMENT, SyscallRow, kind};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;

use crate::kernel_struct::{self, Address, argument, read};
use crate::locate::{self, AT_FDCWD, Failure};
use crate::maps::{SYSCALLS, offset};
use crate::programs::calls;
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

/// Counts by what the call was given; whether that was on something tracked.
#[inline(always)]
pub fn place(failure: &Failure, regs: Address, row: &SyscallRow) -> bool {
    match row.kind {
        kind::DESCRIPTOR => {
            let second = Failure { op: row.second_op, ..*failure };
            descriptor(failure, regs, row.first)
                || row.second != NO_ARGUMENT && descriptor(&second, regs, row.second)
        }
        kind::NAME => {
            names(failure, regs, row.first, row.first_name)
                || row.second_name != NO_ARGUMENT && names(failure, regs, row.second, row.second_name)
        }
        _ => false,
    }
}

#[inline(always)]
fn descriptor(failure: &Failure, regs: Address, number: u8) -> bool {
    let file = argument(regs, number)
        .and_then(|value| kernel_struct::file_of_descriptor(failure.task, value as u32));
    match file {
        Some(file) => calls::on_file(failure, file),
        None => false,
    }
}

/// Inlined once for each name would double the program; as a function of its own it is checked once each way.
#[inline(never)]
fn names(failure: &Failure, regs: Address, dir: u8, name: u8) -> bool {
    let dir = directory(regs, dir);
    let (Some(dir), Some(text), Some(key)) = (dir, argument(regs, name), locate::scratch()) else {
        return false;
    };
    match locate::by_name(failure, dir, text, key) {
        Some(placed) => calls::on_name(failure, dir, placed, key),
        None => false,
    }
}

/// What a name is relative to.
#[inline(always)]
pub fn directory(regs: Address, dir: u8) -> Option<i32> {
    match dir {
        NO_ARGUMENT => Some(AT_FDCWD),
        number => argument(regs, number).map(|value| value as i32),
    }
}
