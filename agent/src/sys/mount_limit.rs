//! How full a mount namespace may become.

/// How many mounts one mount namespace may have; `None` where the kernel does not say.
///
/// kernel: `sysctl_mount_max` and `count_mounts`, fs/namespace.c, since 4.9.
#[must_use]
pub fn mount_limit() -> Option<u64> {
    std::fs::read_to_string("/proc/sys/fs/mount-max").ok()?.trim().parse().ok()
}

/// Whether so many mounts are near the limit: more than half of it. What mounts again and again tends to double its
/// mounts each time (a bind of a tree that is shared into itself), and the next time would fill the table.
#[must_use]
pub const fn is_near(count: u64, limit: u64) -> bool {
    count.saturating_mul(2) > limit
}

/// Whether it was said that a table is near its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Approach {
    is_told: bool,
}

impl Approach {
    /// Whether it is to be said now: once, and again only after the table has become a good deal smaller.
    pub const fn is_news(&mut self, count: u64, limit: u64) -> bool {
        let was_told = self.is_told;
        let is_small_again = count.saturating_mul(5) <= limit.saturating_mul(2);
        self.is_told = is_near(count, limit) || (was_told && !is_small_again);
        self.is_told && !was_told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_half_of_the_limit_is_near() {
        assert!(!is_near(50_000, 100_000) && is_near(50_001, 100_000) && is_near(u64::MAX, 100_000));
    }

    #[test]
    fn a_table_that_goes_up_and_down_near_its_limit_is_told_once() {
        let mut approach = Approach::default();
        let counts = [10, 60, 90, 50, 41, 60, 40, 45, 60];
        let told = counts.map(|count| approach.is_news(count, 100));
        assert_eq!(told, [false, true, false, false, false, false, false, false, true]);
    }

    #[test]
    fn this_kernel_has_a_limit() {
        assert!(mount_limit().is_some_and(|limit| limit > 0));
    }
}
