//! Programs that the kernel has skipped.
//!
//! A program never runs on top of itself: while a task is taken off a processor in the middle of one, the kernel skips
//! that program for every other task there. What fails then is seen by nobody. Ends of functions are where that
//! happens, on kernels that take tasks off processors inside the kernel; elsewhere an interrupt in the middle of
//! another can do it. Since 7.0 tracepoints are such a place too: the end of system calls has lost its advantage there.
//!
//! kernel: `__bpf_prog_enter_recur`, kernel/bpf/trampoline.c, and `bpf_prog_inc_misses_counter`, since 5.12;
//! `__bpf_trace_run`, kernel/trace/bpf_trace.c, below `__DO_TRACE_CALL`, include/linux/tracepoint.h, which holds off
//! nobody since 7.0.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use agent_core::time::Monotonic;
use aya::programs::ProgramFd;

use super::programs::ProgramRow;

/// Between two questions. There are a hundred programs to ask about, and nobody waits for the answer.
const INTERVAL: Duration = Duration::from_secs(1);

/// Attached programs without which failed calls are lost, and how often each was skipped.
#[derive(Debug)]
pub(super) struct Skipped<D = ProgramFd> {
    programs: Vec<(&'static ProgramRow, D)>,
    known: BTreeMap<&'static str, u64>,
    read_at: Monotonic,
}

impl<D> Default for Skipped<D> {
    fn default() -> Self {
        Self { programs: Vec::new(), known: BTreeMap::new(), read_at: Monotonic::default() }
    }
}

impl<D: AsFd> Skipped<D> {
    /// One more program is attached.
    pub(super) fn watch(&mut self, row: &'static ProgramRow, program: D) {
        if row.loses_calls() {
            self.programs.push((row, program));
        }
    }

    /// What was skipped since the last time, when it is time to ask.
    pub(super) fn grown(
        &mut self,
        now: Monotonic,
        misses: impl Fn(BorrowedFd<'_>) -> io::Result<Option<u64>>,
    ) -> Vec<(&'static ProgramRow, u64)> {
        if now.since(self.read_at) < INTERVAL {
            return Vec::new();
        }
        self.read_at = now;
        let mut grown = Vec::new();
        for (row, program) in &self.programs {
            match misses(program.as_fd()) {
                Ok(Some(total)) => {
                    let before = self.known.insert(row.name, total).unwrap_or(0);
                    grown.push((*row, total.saturating_sub(before)));
                }
                // This kernel does not count.
                Ok(None) => {
                    self.programs.clear();
                    break;
                }
                Err(error) => {
                    tracing::debug!(program = row.name, %error, "How often it was skipped cannot be read");
                }
            }
        }
        grown.retain(|(_, runs)| *runs > 0);
        grown
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::File;

    use super::super::programs::PROGRAMS;
    use super::*;

    fn watched() -> Skipped<File> {
        let mut skipped = Skipped::default();
        for row in PROGRAMS {
            skipped.watch(row, File::open("/dev/null").unwrap());
        }
        skipped
    }

    const fn at(millis: u64) -> Monotonic {
        Monotonic::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn only_what_loses_calls_is_asked_about() {
        let names: Vec<_> = watched().programs.iter().map(|(row, _)| row.name).collect();
        for name in ["vfs_read", "sys_openat", "sys_exit", "block_rq_complete", "vfs_fsync_range"] {
            assert!(names.contains(&name), "{name}");
        }
        for name in ["vfs_open", "mnt_want_write", "whoami", "blocked_tasks"] {
            assert!(!names.contains(&name), "{name}");
        }
    }

    #[test]
    fn growth_is_told_once_and_not_more_often_than_every_second() {
        let (mut skipped, asked) = (watched(), Cell::new(0_u64));
        // Every program is skipped once more each time that one is asked about.
        let misses = |_: BorrowedFd<'_>| {
            asked.set(asked.get() + 1);
            Ok(Some(asked.get()))
        };
        let count = skipped.programs.len();
        assert_eq!(skipped.grown(at(1000), misses).len(), count);
        assert!(skipped.grown(at(1999), misses).is_empty());
        let grown = skipped.grown(at(2000), misses);
        assert!(grown.iter().all(|(_, runs)| *runs == count as u64), "{grown:?}");
        assert!(skipped.grown(at(3000), |_| Ok(Some(1))).is_empty());
    }

    #[test]
    fn a_kernel_that_does_not_count_is_asked_once() {
        let mut skipped = watched();
        assert!(skipped.grown(at(1000), |_| Ok(None)).is_empty());
        assert!(skipped.grown(at(2000), |_| panic!("asked again")).is_empty());
        let mut skipped = watched();
        assert!(skipped.grown(at(1000), |_| Err(io::Error::from_raw_os_error(9))).is_empty());
        assert!(!skipped.grown(at(2000), |_| Ok(Some(1))).is_empty());
    }
}
