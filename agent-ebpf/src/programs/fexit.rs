//! The family that watches the ends of functions through trampolines: no cost for system calls that are no file
//! calls. Each call is counted at its own end, so once by construction. Where it was: what it was given, or what
//! the functions inside it have noted (`fexit_notes`), which see through symbolic links, other mount namespaces
//! and file systems on top of others.
//!
//! Not seen: what `sys_exit` does not see, but for reads and writes of 32-bit programs and `msync`; and a call
//! that ends while the same program is preempted on the same processor: the kernel skips it there, and counts
//! that. (Without preemption inside the program the task would be preempted where that ends: `bpf_preempt_enable`
//! is still inside, and the kernel skips as much.)

use agent_common::settings::{SyscallRow, kind, op};
use aya_ebpf::macros::fexit;
use aya_ebpf::programs::FExitContext;

use crate::kernel_struct::Address;
use crate::locate::Failure;
use crate::maps::FAILED_CALLS;
use crate::note::{self, Note};
use crate::programs::{calls, names, sys_exit};
use crate::{count, task};

/// kernel: `vfs_read(file, buf, count, pos)`, fs/read_write.c, since 2.6; trampolines since 5.5.
#[fexit(function = "vfs_read")]
pub fn vfs_read(ctx: FExitContext) -> i32 {
    let ret: i64 = ctx.arg(4);
    if ret < 0 {
        on_file(ret, ctx.arg(0), op::READ);
    }
    0
}

/// kernel: `vfs_write(file, buf, count, pos)`, fs/read_write.c, since 2.6.
#[fexit(function = "vfs_write")]
pub fn vfs_write(ctx: FExitContext) -> i32 {
    let ret: i64 = ctx.arg(4);
    if ret < 0 {
        on_file(ret, ctx.arg(0), op::WRITE);
    }
    0
}

/// Attached to many calls, so it is small: what to do after an error is loaded once.
///
/// kernel: `__x64_sys_NAME(regs)`, arch/x86/include/asm/syscall_wrapper.h, since 4.17; `__arm64_sys_NAME(regs)`,
/// arch/arm64/include/asm/syscall_wrapper.h, since 4.19. Tail calls need equal prototypes since 6.12.
#[fexit]
pub fn call_end(ctx: FExitContext) -> i32 {
    let ret: i64 = ctx.arg(1);
    if ret < 0 && calls::counted_errno(ret).is_some() {
        // SAFETY: the map holds `call_failed` or nothing; a program that is not there is not called.
        unsafe { FAILED_CALLS.tail_call(&ctx, 0) };
    }
    0
}

/// Also attached itself, to calls whose prototype differs from that of the others.
///
/// kernel: as above, since 4.17.
#[fexit]
pub fn call_failed(ctx: FExitContext) -> i32 {
    let ret: i64 = ctx.arg(1);
    if ret < 0 {
        on_call(ctx.arg(0), ret);
    }
    0
}

#[inline(always)]
fn on_file(ret: i64, file: Address, op: u8) -> Option<()> {
    let errno = calls::counted_errno(ret)?;
    let task = task::current();
    if task::is_agent(task) {
        return None;
    }
    let failure = Failure { task, errno, op };
    let counted = calls::on_file(&failure, file);
    counted_or_noted(&failure, counted);
    Some(())
}

/// Counts by the note what was not counted already. The note goes in any case: it must not speak for a later call.
///
/// Last of all, because an optional note that is kept meanwhile is read from the stack also where there is none.
#[inline(always)]
fn counted_or_noted(failure: &Failure, counted: bool) {
    if let Some(note) = note::take(failure.errno).filter(|_| !counted) {
        on_note(failure, note);
    }
}

#[inline(always)]
fn on_note(failure: &Failure, note: Note) {
    count::add(&failure.key(note.s_dev, note.root_ino), failure.task);
}

#[inline(always)]
fn on_call(regs: Address, ret: i64) -> Option<()> {
    let (failure, row) = sys_exit::begin(regs, ret)?;
    if row.kind == kind::DESCRIPTOR {
        let counted = names::descriptors(&failure, regs, row);
        counted_or_noted(&failure, counted);
        return Some(());
    }
    let Some(mut note) = note::take(failure.errno) else {
        if row.kind == kind::NAME {
            names::by_names(&failure, regs, row);
        }
        return Some(());
    };
    if note.root_ino == 0 && row.kind == kind::NAME {
        note.root_ino = root_by_name(&failure, regs, row, note.s_dev);
    }
    on_note(&failure, note);
    Some(())
}

/// The mount's root for a superblock that is known, when the name leads to it at a glance.
#[inline(always)]
fn root_by_name(failure: &Failure, regs: Address, row: &SyscallRow, s_dev: u32) -> u64 {
    let Some([spot, _]) = names::spots() else { return 0 };
    names::glance(failure, regs, row.first, row.first_name, spot);
    if spot.is_known() && spot.s_dev == s_dev { spot.root_ino } else { 0 }
}
