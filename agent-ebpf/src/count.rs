//! The counting core that every hook shares.

use agent_common::key::{CounterKey, CounterValue};
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

/// Whose failure it was.
#[derive(Clone, Copy)]
enum Whose {
    Current(Address),
    Waiter(Address),
    Nobody,
}

/// Adds one failed call of the current task.
///
/// A function of its own, like the two below: what it needs of the stack is then not needed while the place of the
/// call is looked for.
#[inline(never)]
pub fn add(key: &CounterKey, task: Address) {
    add_for(key, Whose::Current(task));
}

/// Adds one failed request. `waiter` is who waits for it, on whatever task this runs; 0 when nobody does.
#[inline(never)]
pub fn add_waited(key: &CounterKey, waiter: Address) {
    add_for(key, if waiter == 0 { Whose::Nobody } else { Whose::Waiter(waiter) });
}

/// Adds one failure that was nobody's call.
#[inline(never)]
pub fn add_unowned(key: &CounterKey) {
    add_for(key, Whose::Nobody);
}

/// Adds a report that is nobody's call: of a device or of the file system itself.
#[inline(always)]
pub fn add_report(s_dev: u32, errno: u16, op: u8) {
    add_unowned(&CounterKey { root_ino: 0, s_dev, errno, op, by_name: 0 });
}

#[inline(always)]
fn add_for(key: &CounterKey, whose: Whose) {
    // SAFETY: takes nothing, returns a number.
    let now = unsafe { bpf_ktime_get_ns() };
    if bump(now, key) {
        // SAFETY: `error` passes a place within its record.
        emit::error(now, key, |who| unsafe {
            match whose {
                Whose::Current(task) => task::describe(task, who),
                Whose::Waiter(task) => task::describe_other(task, who),
                Whose::Nobody => task::describe_nobody(who),
            }
        });
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
