//! Page faults on mapped files that storage did not answer: the program gets SIGBUS. Which errno it was is not
//! known there. A load that finds nothing is counted as EIO. A store ends the same way where there is no room for it:
//! it is counted with no errno.
//!
//! Seen where the signal is made, whatever part of a fault has failed. Where the kernel gives programs no way from an
//! address to its mapping, the function that reads pages of files is watched instead.

use agent_common::settings::{UNKNOWN_ERRNO, dropped, op};
use aya_ebpf::helpers::generated::{bpf_find_vma, bpf_get_current_task_btf};
use aya_ebpf::macros::{fexit, raw_tracepoint};
use aya_ebpf::programs::{FExitContext, RawTracePointContext};

use crate::emit;
use crate::kernel_struct::{Address, follow, read};
use crate::locate::Failure;
use crate::maps::offset;
use crate::programs::calls;
use crate::task;

const SIGBUS: i32 = 7;
const EIO: i64 = 5;
const EBUSY: i64 = 16;
/// kernel: `BUS_ADRERR`, include/uapi/asm-generic/siginfo.h. Memory errors and misaligned accesses have other codes.
const BUS_ADRERR: i32 = 2;
/// kernel: `siginfo_t::si_code` and `si_addr` on 64-bit machines, include/uapi/asm-generic/siginfo.h.
const SI_CODE: u32 = 8;
const SI_ADDR: u32 = 16;
/// kernel: `enum vm_fault_reason`, include/linux/mm_types.h; the same number since 2.6.23.
const VM_FAULT_SIGBUS: u32 = 2;
/// kernel: `FAULT_FLAG_WRITE`, `FAULT_FLAG_USER`, include/linux/mm.h, since 3.12; an enum in mm_types.h since 5.13.
const FAULT_FLAG_WRITE: u32 = 1;
const FAULT_FLAG_USER: u32 = 0x40;

/// What the look at the mapping found.
struct Found {
    address: u64,
    file: Address,
    /// The page of the file.
    page: u64,
}

/// kernel: tracepoint `signal_generate(sig, info, task, group, result)`, include/trace/events/signal.h, since
/// 2.6.33; with these arguments since 3.3.
#[raw_tracepoint(tracepoint = "signal_generate")]
pub fn sigbus(ctx: RawTracePointContext) -> i32 {
    let signal: i32 = ctx.arg(0);
    if signal == SIGBUS {
        fault(ctx.arg(1), ctx.arg(2));
    }
    0
}

/// Notes what is mapped at the address. The mapping is held while this runs.
extern "C" fn note(_task: u64, vma: u64, found: *mut Found) -> i64 {
    // SAFETY: the kernel passes on the caller's own structure.
    let found = unsafe { &mut *found };
    let (Some(file), Some(start), Some(first)) = (
        follow(vma, offset!(vma_vm_file)),
        read::<u64>(vma, offset!(vma_vm_start)),
        read::<u64>(vma, offset!(vma_vm_pgoff)),
    ) else {
        return 0;
    };
    found.file = file;
    found.page = (found.address.wrapping_sub(start) >> (offset!(page_shift) & 63)).wrapping_add(first);
    0
}

#[inline(always)]
fn fault(info: Address, target: Address) -> Option<()> {
    let task = task::current();
    if task != target || read::<i32>(info, SI_CODE)? != BUS_ADRERR || task::is_agent(task) {
        return None;
    }
    let mut found = Found { address: read(info, SI_ADDR)?, file: 0, page: 0 };
    // kernel: `bpf_find_vma`, kernel/bpf/task_iter.c, since 5.17. Where the lock of the mappings is taken by
    // another thread, or another program looked at mappings at this very event (a second agent: the kernel has one
    // place for such a lock a processor), it is refused with EBUSY: that fault is counted as lost.
    // SAFETY: the task is the current one, and `found` outlives the call.
    let result = unsafe {
        let callback: extern "C" fn(u64, u64, *mut Found) -> i64 = note;
        bpf_find_vma(
            bpf_get_current_task_btf(),
            found.address,
            callback as *mut _,
            (&raw mut found).cast(),
            0,
        )
    };
    if result == -EBUSY {
        emit::drop_one(dropped::FAULTS);
    }
    if result < 0 || found.file == 0 {
        return None;
    }
    unanswered(task, found.file, found.page, is_store(task))
}

/// kernel: `filemap_fault(vmf)`, mm/filemap.c, since 2.6.23; with this argument alone since 4.11. Every disk, network and
/// FUSE file system has its pages read there, before a store as well. It gives `VM_FAULT_RETRY` where it has let go of
/// the lock meanwhile, and is called once more then.
#[fexit(function = "filemap_fault")]
pub fn filemap_fault(ctx: FExitContext) -> i32 {
    let result: u32 = ctx.arg(1);
    if result & VM_FAULT_SIGBUS != 0 {
        refused(ctx.arg(0));
    }
    0
}

#[inline(always)]
fn refused(fault: Address) -> Option<()> {
    let flags: u32 = read(fault, offset!(vm_fault_flags))?;
    let task = task::current();
    // Of faults inside of the kernel a call tells, or nobody: `MAP_POPULATE` succeeds all the same.
    if flags & FAULT_FLAG_USER == 0 || task::is_agent(task) {
        return None;
    }
    let file = follow(follow(fault, offset!(vm_fault_vma))?, offset!(vma_vm_file))?;
    unanswered(task, file, read(fault, offset!(vm_fault_pgoff))?, flags & FAULT_FLAG_WRITE != 0)
}

/// Counts a fault at a page of a file, unless that lies beyond the end: the program's own doing.
#[inline(always)]
fn unanswered(task: Address, file: Address, page: u64, is_store: bool) -> Option<()> {
    let size: u64 = read(follow(file, offset!(file_f_inode))?, offset!(inode_i_size))?;
    if size == 0 || page > (size - 1) >> (offset!(page_shift) & 63) {
        return None;
    }
    let errno = if is_store { UNKNOWN_ERRNO } else { calls::counted_errno(-EIO)? };
    calls::on_file(&Failure { task, errno, op: op::FAULT }, file);
    Some(())
}

/// Whether the fault that the current task has just met was a store, or may have been one.
///
/// kernel: `set_signal_archinfo`, arch/x86/mm/fault.c, since 5.0, writes down the processor's code before the signal is
/// made; `set_thread_esr`, arch/arm64/mm/fault.c, since 4.18.
#[inline(always)]
fn is_store(task: Address) -> bool {
    let mask = u64::from(offset!(fault_store_mask));
    mask == 0 || read::<u64>(task, offset!(task_fault_code)).is_none_or(|code| code & mask != 0)
}
