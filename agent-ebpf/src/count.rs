//! The counting core that every hook shares.

use agent_common::key::{CounterKey, CounterValue};
use agent_common::record::Who;
use agent_common::settings::{RECORD_INTERVAL_NANOS, dropped};
use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::helpers::bpf_ktime_get_ns;

use crate::kernel_struct::Address;
use crate::maps::{COUNTERS, TRACKED};
use crate::{emit, task};

/// The flags of a superblock, if it is tracked.
#[inline(always)]
pub fn tracked(s_dev: u32) -> Option<u32> {
    // SAFETY: the value is copied at once. A row that is taken out meanwhile may hold the flags of another
    // superblock already: one name is then placed by the wrong side, or not at all.
    unsafe { TRACKED.get(&s_dev) }.copied()
}

/// Adds one failed call. `task` is whose call it was; `None` when it was nobody's.
#[inline(always)]
pub fn add(key: &CounterKey, task: Option<Address>) {
    // SAFETY: takes nothing, returns a number.
    let now = unsafe { bpf_ktime_get_ns() };
    if bump(now, key) {
        let who = match task {
            Some(task) => task::describe(task),
            None => Who { cgroup: 0, pid: 0, tgid: 0, mnt_ns: 0, reserved: 0, comm: [0; 16] },
        };
        emit::error(now, key, who);
    }
}

/// Adds to the counter; whether a record is due.
#[inline(always)]
fn bump(now: u64, key: &CounterKey) -> bool {
    if let Some(value) = COUNTERS.get_ptr_mut(key) {
        return add_to(now, value);
    }
    let first = CounterValue { count: 1, last_ktime: now, last_record: now };
    if COUNTERS.insert(key, &first, u64::from(BPF_NOEXIST)).is_ok() {
        return true;
    }
    // Another processor was first, or the map is full.
    match COUNTERS.get_ptr_mut(key) {
        Some(value) => add_to(now, value),
        None => {
            emit::drop_one(dropped::COUNTERS);
            false
        }
    }
}

#[inline(always)]
fn add_to(now: u64, value: *mut CounterValue) -> bool {
    // SAFETY: a checked pointer to this processor's share. The target has no atomic add on released compilers.
    // Tracepoint programs run with preemption off, and the kernel lets no program interrupt itself; two programs
    // of the fexit family that count the same key and preempt one another in these lines could lose one, and so
    // could the moment in which the agent takes a row out.
    unsafe {
        (*value).count = (*value).count.wrapping_add(1);
        (*value).last_ktime = now;
        if now.wrapping_sub((*value).last_record) <= RECORD_INTERVAL_NANOS {
            return false;
        }
        (*value).last_record = now;
    }
    true
}
