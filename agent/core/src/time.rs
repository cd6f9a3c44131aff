//! A point in time, handed in from outside.

use core::ops::{Add, Sub};
use core::time::Duration;

/// Time since boot on the kernel's monotonic clock: the same clock as `bpf_ktime_get_ns`, so that the time
/// of a kernel record and the time of the event loop can be subtracted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Monotonic(Duration);

impl Monotonic {
    /// From nanoseconds, as the kernel gives them.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }

    /// The time passed since `earlier`; zero when `earlier` is later (records of several CPUs may race).
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The last whole tick before it.
    #[must_use]
    pub fn floor(self, tick: Duration) -> Self {
        let over = self.0.as_nanos().checked_rem(tick.as_nanos()).unwrap_or_default();
        Self(self.0.saturating_sub(Duration::from_nanos(u64::try_from(over).unwrap_or_default())))
    }

    /// Time since boot.
    #[must_use]
    pub const fn since_boot(self) -> Duration {
        self.0
    }
}

impl Add<Duration> for Monotonic {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
    }
}

impl Sub<Duration> for Monotonic {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(rhs))
    }
}
