//! Records into the ring buffer. What finds no room is counted.

use agent_common::key::{CounterKey, NAME_BYTES, NameBytes, NameWindow};
use agent_common::record::{ErrorRecord, Header, KIND_ERROR, KIND_NAME, NameRecord, Who};
use agent_common::settings::{NAME_SHARES, NAMES_PER_INTERVAL, RECORD_INTERVAL_NANOS, dropped};
use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use aya_ebpf::maps::lpm_trie::Key;

use crate::maps::{DROPPED, NAME_RECORD, RECORDS, WINDOW};

/// Adds one to a row of the lost things.
#[inline(always)]
pub fn drop_one(row: u32) {
    if let Some(count) = DROPPED.get_ptr_mut(row) {
        // SAFETY: a checked pointer into this processor's own row.
        unsafe { *count = (*count).wrapping_add(1) };
    }
}

/// Sends the first error of an interval.
#[inline(always)]
pub fn error(ktime: u64, key: &CounterKey, who: Who) {
    let Some(mut entry) = RECORDS.reserve::<ErrorRecord>(0) else {
        drop_one(dropped::RING);
        return;
    };
    let header = Header { kind: KIND_ERROR, len: size_of::<ErrorRecord>() as u32, ktime };
    entry.write(ErrorRecord { header, key: *key, who });
    entry.submit(0);
}

/// A failed call on a name that only the agent can place.
pub struct Name {
    /// The error.
    pub errno: u16,
    /// The kind of operation.
    pub op: u8,
    /// The descriptor that the name is relative to.
    pub dir: i32,
    /// Bytes of the name.
    pub len: u32,
    /// Superblock of the directory it starts from, or 0.
    pub base_dev: u32,
}

/// Sends a name, within the budget of the caller's share.
#[inline(always)]
pub fn name(ktime: u64, name: &Name, key: *const Key<NameBytes>, who: Who) {
    if !within_budget(ktime, who.tgid) {
        drop_one(dropped::NAMES);
        return;
    }
    let Some(record) = NAME_RECORD.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: both are checked pointers into this processor's own rows. A program of the fexit family that
    // preempts another one here may write another name into them: integers and bytes either way, and such a
    // record is a hint at the wrong place, which a probe sets right.
    unsafe {
        (*record).header = Header { kind: KIND_NAME, len: size_of::<NameRecord>() as u32, ktime };
        (*record).who = who;
        (*record).dir = name.dir;
        (*record).errno = name.errno;
        (*record).op = name.op;
        (*record).reserved = 0;
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
        *window = NameWindow { started: ktime, sent: 1 };
        return true;
    }
    window.sent = window.sent.wrapping_add(1);
    window.sent <= NAMES_PER_INTERVAL
}
