//! The iterator over tasks: one link and one reading for each census.

use std::io::Read as _;

use agent_common::decode::decode_blocked;
use agent_common::record::BlockedRecord;
use aya::programs::Iter;

use crate::error_chain::chain;

/// The most that one census may write: half a million tasks that all wait. Whole records: what is cut off is not half
/// of one.
const LARGEST: usize = (512 << 10) * size_of::<BlockedRecord>();

/// A tick of the clock in which procfs tells when a thread started.
///
/// kernel: `nsec_to_clock_t`, kernel/time/time.c, with a `USER_HZ` of 100 on x86 and 64-bit ARM, all versions.
const TICK: u64 = 10_000_000;

/// The loaded program. Dropping it unloads it.
#[derive(Debug)]
pub struct TaskIterator(Box<Iter>);

impl TaskIterator {
    /// Of the loaded program.
    pub(super) fn new(program: Iter) -> Self {
        Self(Box::new(program))
    }

    /// Everything that waits at this moment.
    ///
    /// kernel: an iterator is read once from its beginning to its end, and cannot be set back:
    /// `bpf_iter_fops`, kernel/bpf/bpf_iter.c, since 5.8. Hence a new link each time.
    ///
    /// # Errors
    /// When the kernel refuses, or wrote something else than records.
    pub fn read(&mut self) -> Result<Vec<BlockedRecord>, String> {
        let link = self.0.attach().map_err(|error| chain(&error))?;
        let link = self.0.take_link(link).map_err(|error| chain(&error))?;
        let file = link.into_file().map_err(|error| chain(&error))?;
        let mut bytes = Vec::new();
        let most = u64::try_from(LARGEST).unwrap_or(u64::MAX);
        file.take(most).read_to_end(&mut bytes).map_err(|error| chain(&error))?;
        let mut records = Vec::new();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (record, after) = decode_blocked(rest).map_err(|error| chain(&error))?;
            // As the child says it that stands in when the iterator fails: the same waits go on.
            records.push(BlockedRecord { started: record.started / TICK, ..record });
            rest = after;
        }
        Ok(records)
    }
}
