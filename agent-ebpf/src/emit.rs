//! Records into the ring buffer. What finds no room is counted.

use agent_common::key::{CounterKey, NAME_BYTES, NameBytes, NameWindow};
use agent_common::record::{ErrorRecord, Header, KIND_ERROR, KIND_NAME, NameRecord, Who};
use agent_common::settings::{NAME_SHARES, NAMES_PER_INTERVAL, RECORD_INTERVAL_NANOS, dropped};
use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use aya_ebpf::maps::lpm_trie::Key;

use crate::locate::{Failure, scratch_row};
use crate::maps::{DROPPED, NAME_RECORD, RECORDS, WINDOW};
use crate::task;

/// Adds one to a row of the lost things.
#[inline(always)]
pub fn drop_one(row: u32) {
    if let Some(count) = DROPPED.get_ptr_mut(row) {
        // SAFETY: a checked pointer into this processor's own row.
        unsafe { *count = (*count).wrapping_add(1) };
    }
}

/// Sends the first error of an interval. `describe` writes down whose it was, every byte.
#[inline(always)]
pub fn error(ktime: u64, key: &CounterKey, describe: impl FnOnce(*mut Who)) {
    let Some(mut entry) = RECORDS.reserve::<ErrorRecord>(0) else {
        drop_one(dropped::RING);
        return;
    };
    let record = entry.as_mut_ptr();
    // SAFETY: the kernel has reserved room for the whole record, aligned to eight.
    unsafe {
        (*record).header = Header { kind: KIND_ERROR, len: size_of::<ErrorRecord>() as u32, ktime };
        (*record).key = *key;
        describe(&raw mut (*record).who);
    }
    entry.submit(0);
}

/// A failed call on a name that only the agent can place.
pub struct Name {
    /// The descriptor that the name is relative to.
    pub dir: i32,
    /// Bytes of the name.
    pub len: u32,
    /// Superblock of the directory it starts from, or 0.
    pub base_dev: u32,
    /// Whether it is the only one of its call, see `record::part`.
    pub part: u8,
}

/// Whether the names of one more call may be sent: within the budget of the caller's share.
#[inline(always)]
pub fn may_send_names() -> bool {
    // SAFETY: takes nothing, returns a number.
    let ktime = unsafe { bpf_ktime_get_ns() };
    let may = within_budget(ktime, (bpf_get_current_pid_tgid() >> 32) as u32);
    if !may {
        drop_one(dropped::NAMES);
    }
    may
}

/// Sends a name.
#[inline(always)]
pub fn name(failure: &Failure, name: &Name, key: *const Key<NameBytes>) {
    // SAFETY: takes nothing, returns a number.
    let ktime = unsafe { bpf_ktime_get_ns() };
    let Some(record) = NAME_RECORD.get_ptr_mut(scratch_row()) else {
        return;
    };
    // SAFETY: both are checked pointers into this processor's own rows. Two threads of the fexit family that
    // share rows (`scratch_row`), of which one preempts the other just here, may mix their names: integers and
    // bytes either way, and such a record is a hint at the wrong place, which a probe sets right.
    unsafe {
        (*record).header = Header { kind: KIND_NAME, len: size_of::<NameRecord>() as u32, ktime };
        task::describe(failure.task, &raw mut (*record).who);
        (*record).dir = name.dir;
        (*record).errno = failure.errno;
        (*record).op = failure.op;
        (*record).part = name.part;
        (*record).path_len = name.len;
        (*record).base_dev = name.base_dev;
        // One call instead of 256 instructions.
        let (to, from) = (&raw mut (*record).path, &raw const (*key).data);
        bpf_probe_read_kernel(to.cast(), NAME_BYTES as u32, from.cast());
        if RECORDS.output::<NameRecord>(&*record, 0).is_err() {
            drop_one(dropped::RING);
        }
    }
}

#[inline(always)]
fn within_budget(ktime: u64, tgid: u32) -> bool {
    let Some(window) = WINDOW.get_ptr_mut(tgid & (NAME_SHARES - 1)) else {
        return false;
    };
    // SAFETY: a checked pointer into this processor's own row.
    let window: &mut NameWindow = unsafe { &mut *window };
    if ktime.wrapping_sub(window.started) > RECORD_INTERVAL_NANOS {
        window.started = ktime;
        window.sent = 1;
        return true;
    }
    window.sent = window.sent.wrapping_add(1);
    if window.sent <= NAMES_PER_INTERVAL {
        return true;
    }
    window.lost = window.lost.wrapping_add(1);
    false
}
