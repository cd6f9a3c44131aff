//! The clocks. Nothing else in the agent reads one.

use agent_core::time::Monotonic;
use nix::time::{ClockId, clock_gettime};

/// The kernel's monotonic clock: the one `bpf_ktime_get_ns` reads.
#[must_use]
pub fn now() -> Monotonic {
    // CLOCK_MONOTONIC exists on every Linux; a failure would be a bug of the C library.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Monotonic::default(), |time| {
        let nanos = i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec());
        Monotonic::from_nanos(u64::try_from(nanos).unwrap_or(0))
    })
}

/// Wall-clock time since the epoch, for what people read. Never for decisions.
#[must_use]
pub fn wall() -> std::time::Duration {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(std::time::Duration::ZERO, std::time::Duration::from)
}

/// The processor time that a process has used, with all its threads. `None`: there is no such process.
#[must_use]
pub fn processor_time_of(process: u32) -> Option<std::time::Duration> {
    let process = nix::unistd::Pid::from_raw(i32::try_from(process).ok()?);
    let clock = nix::time::clock_getcpuclockid(process).ok()?;
    clock_gettime(clock).ok().map(std::time::Duration::from)
}

/// The processor time that the calling thread has used: what work costs, however busy the machine is.
#[must_use]
pub fn thread_processor_time() -> std::time::Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(std::time::Duration::ZERO, std::time::Duration::from)
}
