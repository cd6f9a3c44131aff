//! The current task: whether it is the agent, and how it describes itself in a record.

use agent_common::record::Who;
use aya_ebpf::helpers::{
    bpf_get_current_cgroup_id, bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_get_current_task,
};

use crate::kernel_struct::{self, Address, follow, read};
use crate::maps::{AGENT, offset};

/// How far up the agent is looked for: a worker, its helper (`mount`), and the helper's helper (`mount.nfs`).
const GENERATIONS: u32 = 3;

/// Address of the current `task_struct`.
#[inline(always)]
pub fn current() -> Address {
    // SAFETY: takes nothing, returns a number.
    unsafe { bpf_get_current_task() }
}

/// Whether the current task belongs to the agent: itself or a near descendant. Asked after an error only.
#[inline(always)]
pub fn is_agent(task: Address) -> bool {
    let Some(agent) = AGENT.get(0).copied().filter(|agent| *agent != 0) else {
        return false;
    };
    if (bpf_get_current_pid_tgid() >> 32) as u32 == agent {
        return true;
    }
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

/// The current task as it stands in a record.
#[inline(always)]
pub fn describe(task: Address) -> Who {
    let ids = bpf_get_current_pid_tgid();
    Who {
        // SAFETY: takes nothing, returns a number.
        cgroup: unsafe { bpf_get_current_cgroup_id() },
        pid: ids as u32,
        tgid: (ids >> 32) as u32,
        mnt_ns: kernel_struct::mount_namespace(task).unwrap_or(0),
        reserved: 0,
        comm: bpf_get_current_comm().unwrap_or([0; 16]),
    }
}
