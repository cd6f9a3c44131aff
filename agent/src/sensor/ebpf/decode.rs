//! Kernel records and keys into observations. Pure.

use agent_common::key::CounterKey;
use agent_common::record::{ErrorRecord, Header, Who};
use agent_core::errno::Errno;
use agent_core::id::SuperblockId;
use agent_core::observation::{KernelErrors, Op, Source, Task};
use agent_core::path::escape;
use agent_core::time::Monotonic;

/// The kind of operation behind its number.
#[must_use]
pub(super) fn op(number: u8) -> Op {
    Op::ALL.get(usize::from(number)).copied().unwrap_or(Op::Other)
}

/// What a counter went up by.
#[must_use]
pub(super) fn counted(key: &CounterKey, count: u64, last_ktime: u64) -> KernelErrors {
    KernelErrors {
        source: if key.by_name == 0 { Source::Bpf } else { Source::BpfName },
        superblock: SuperblockId::from_kernel(key.s_dev),
        root_inode: (key.root_ino != 0).then_some(key.root_ino),
        errno: Errno(key.errno),
        op: op(key.op),
        count,
        at: Monotonic::from_nanos(last_ktime),
        after: None,
        task: None,
    }
}

/// The first error of an interval. Its count is zero: the counter carries it.
#[must_use]
pub(crate) fn first(record: &ErrorRecord) -> KernelErrors {
    KernelErrors { task: task(&record.who), ..counted(&record.key, 0, record.header.ktime) }
}

/// A name that found its place: one call that no counter has.
#[must_use]
pub(crate) fn placed(header: &Header, who: &Who, key: &CounterKey) -> KernelErrors {
    KernelErrors { task: task(who), ..counted(key, 1, header.ktime) }
}

fn task(who: &Who) -> Option<Task> {
    // Process 0 is nobody: hooks that run on behalf of no one leave it at zero.
    (who.tgid != 0).then(|| Task {
        tid: who.pid,
        pid: who.tgid,
        comm: escape(who.comm.split(|byte| *byte == 0).next().unwrap_or_default()),
        cgroup: who.cgroup,
        mnt_ns: who.mnt_ns,
    })
}

#[cfg(test)]
mod tests;
