//! The family that watches the end of system calls. Works where trampolines are refused or absent.
//!
//! Not seen: `close` (the descriptor is gone by then), page faults, and calls of 32-bit programs.

use agent_common::settings::{NO_ARGUMENT, SyscallRow, kind};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;

use crate::kernel_struct::{self, Address, read};
use crate::locate::{self, AT_FDCWD, Failure, Text};
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
    let errno = calls::counted_errno(ret)?;
    let row = *SYSCALLS.get(read::<u32>(regs, offset!(regs_number))?)?;
    if row.kind == kind::NONE {
        return None;
    }
    let task = task::current();
    if task::is_compat(task) || task::is_agent(task) {
        return None;
    }
    let failure = Failure { task, errno, op: row.op };
    if row.kind == kind::DESCRIPTOR {
        descriptors(&failure, regs, &row);
    } else if !names(&failure, regs, row.first, row.first_name) && row.second_name != NO_ARGUMENT {
        names(&failure, regs, row.second, row.second_name);
    }
    Some(())
}

#[inline(always)]
fn descriptors(failure: &Failure, regs: Address, row: &SyscallRow) {
    if !descriptor(failure, regs, row.first) && row.second != NO_ARGUMENT {
        descriptor(failure, regs, row.second);
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
    let dir = match dir {
        NO_ARGUMENT => Some(AT_FDCWD),
        number => argument(regs, number).map(|value| value as i32),
    };
    let (Some(dir), Some(text), Some(key)) = (dir, argument(regs, name), locate::scratch()) else {
        return false;
    };
    match locate::by_name(failure, dir, Text::User(text), key) {
        Some(placed) => calls::on_name(failure, dir, placed, key),
        None => false,
    }
}

/// An argument of the call, out of the saved registers.
#[inline(always)]
fn argument(regs: Address, number: u8) -> Option<u64> {
    let place = match number {
        0 => offset!(regs_arguments[0]),
        1 => offset!(regs_arguments[1]),
        2 => offset!(regs_arguments[2]),
        3 => offset!(regs_arguments[3]),
        4 => offset!(regs_arguments[4]),
        5 => offset!(regs_arguments[5]),
        _ => return None,
    };
    read(regs, place)
}
