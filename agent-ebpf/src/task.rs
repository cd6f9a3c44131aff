//! The current task: whether it is the agent, and how it describes itself in a record.

use agent_common::record::Who;
use aya_ebpf::helpers::generated::{bpf_get_current_comm, bpf_probe_read_kernel};
use aya_ebpf::helpers::{bpf_get_current_cgroup_id, bpf_get_current_pid_tgid, bpf_get_current_task};

use crate::kernel_struct::{self, Address, follow, read};
use crate::maps::{AGENT, offset};

/// Bytes of a thread's name.
const COMM: u32 = 16;

/// How far up the agent is looked for: a worker, its helper (`mount`), and the helper's helper (`mount.nfs`).
const GENERATIONS: u32 = 3;

/// Address of the current `task_struct`.
#[inline(always)]
pub fn current() -> Address {
    // SAFETY: takes nothing, returns a number.
    unsafe { bpf_get_current_task() }
}

/// Whether a task belongs to the agent: one of its threads, or a near descendant. Asked after an error only.
#[inline(always)]
pub fn is_agent(task: Address) -> bool {
    let Some(agent) = AGENT.get(0).copied().filter(|agent| *agent != 0) else {
        return false;
    };
    read::<u32>(task, offset!(task_tgid)) == Some(agent) || descends_from(task, agent)
}

#[inline(always)]
fn descends_from(task: Address, agent: u32) -> bool {
    let mut ancestor = task;
    for _ in 0..GENERATIONS {
        let Some(parent) = follow(ancestor, offset!(task_real_parent)) else {
            return false;
        };
        if read::<u32>(parent, offset!(task_tgid)) == Some(agent) {
            return true;
        }
        ancestor = parent;
    }
    false
}

/// Whether the current system call came through the 32-bit entry, where numbers mean other calls.
#[inline(always)]
pub fn is_compat(task: Address) -> bool {
    match read::<u32>(task, offset!(task_compat)) {
        Some(word) => word & offset!(compat_mask) != 0,
        None => true,
    }
}

/// Writes down the current task where a record has it: on the stack it would be copied there.
///
/// # Safety
/// `who` lies within a record that this program may write.
#[inline(always)]
pub unsafe fn describe(task: Address, who: *mut Who) {
    let ids = bpf_get_current_pid_tgid();
    // SAFETY: the caller's promise; the helper writes the whole name, zeros if it fails.
    unsafe {
        (*who).cgroup = bpf_get_current_cgroup_id();
        (*who).pid = ids as u32;
        (*who).tgid = (ids >> 32) as u32;
        (*who).mnt_ns = kernel_struct::mount_namespace(task).unwrap_or(0);
        (*who).reserved = 0;
        bpf_get_current_comm((&raw mut (*who).comm).cast(), COMM);
    }
}

/// Writes down a task that is not the current one. Its cgroup is not looked up.
///
/// # Safety
/// As for [`describe`].
#[inline(always)]
pub unsafe fn describe_other(task: Address, who: *mut Who) {
    let comm = task.wrapping_add(u64::from(offset!(task_comm)));
    // SAFETY: the caller's promise; the helper writes the whole name, zeros if it fails.
    unsafe {
        (*who).cgroup = 0;
        (*who).pid = read(task, offset!(task_pid)).unwrap_or(0);
        (*who).tgid = read(task, offset!(task_tgid)).unwrap_or(0);
        (*who).mnt_ns = kernel_struct::mount_namespace(task).unwrap_or(0);
        (*who).reserved = 0;
        bpf_probe_read_kernel((&raw mut (*who).comm).cast(), COMM, comm as *const _);
    }
}

/// Writes down that the record is about no task.
///
/// # Safety
/// As for [`describe`].
#[inline(always)]
pub unsafe fn describe_nobody(who: *mut Who) {
    let words: *mut u64 = who.cast();
    for word in 0..size_of::<Who>() / 8 {
        // SAFETY: the caller's promise, and `Who` is aligned to eight. Volatile, because this would become a call
        // of a function that writes bytes one by one.
        unsafe { core::ptr::write_volatile(words.add(word), 0) };
    }
}
