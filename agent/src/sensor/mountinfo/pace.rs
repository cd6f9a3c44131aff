//! How often the table may be read: in proportion to what reading it costs.
//!
//! After work of cost `c` the watcher rests for `c × (100 / percent − 1)`, so that it never uses more than that
//! share of one processor, however many changes are reported. A request that arrives during the rest is kept
//! and served when it ends, so the last change is never lost. Without any request the table is read now and
//! then all the same, because some changes are reported to nobody (ext4 turns read-only after an error without
//! waking a poller); that backstop has a share of its own, a twentieth as large, and less where the options of the
//! volumes are asked for one by one.

use std::time::Duration;

use agent_core::time::Monotonic;

/// Without any report the table is read again after this time.
pub const BACKSTOP: Duration = Duration::from_secs(10);

/// The backstop's share of one processor, in tenths of a percent.
pub const BACKSTOP_PER_MILLE: u32 = 5;
/// … where calls look at the volumes every few seconds, so that it has nothing left to find.
pub const BACKSTOP_PER_MILLE_BY_ID: u32 = 1;

/// Says when the next reading may begin, and when it must.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    percent: u32,
    earliest: Monotonic,
    latest: Monotonic,
}

impl Pace {
    /// A reading may begin, and is due, at once. `percent` is the share of one processor, 1 to 100.
    #[must_use]
    pub fn new(percent: u32) -> Self {
        let mut pace = Self { percent: 0, earliest: Monotonic::default(), latest: Monotonic::default() };
        pace.set_percent(percent);
        pace
    }

    /// Changes the share, from the next reading on.
    pub fn set_percent(&mut self, percent: u32) {
        self.percent = percent.clamp(1, 100);
    }

    /// A reading that ended at `now` has cost this much processor time. The backstop may take `per_mille` of one
    /// processor.
    pub fn finished(&mut self, now: Monotonic, cost: Duration, per_mille: u32) {
        let rest = cost.saturating_mul(100 - self.percent) / self.percent;
        let per_mille = per_mille.clamp(1, 1000);
        let backstop = cost.saturating_mul(1000 - per_mille) / per_mille;
        self.earliest = now + rest;
        self.latest = now + backstop.max(BACKSTOP);
    }

    /// Something else than a whole reading has cost this much processor time: it is rested for as well.
    pub fn spent(&mut self, now: Monotonic, cost: Duration) {
        let rest = cost.saturating_mul(100 - self.percent) / self.percent;
        self.earliest = self.earliest.max(now) + rest;
    }

    /// A reading that ended at `now` has failed: the next attempt is after this pause.
    pub fn failed(&mut self, now: Monotonic, pause: Duration) {
        self.earliest = now + pause;
        self.latest = now + pause;
    }

    /// How long a wanted reading still has to wait.
    #[must_use]
    pub fn until_allowed(&self, now: Monotonic) -> Duration {
        self.earliest.since(now)
    }

    /// How long until a reading is due without being wanted.
    #[must_use]
    pub fn until_due(&self, now: Monotonic) -> Duration {
        self.latest.since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Monotonic {
        Monotonic::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn the_first_reading_is_due_at_once() {
        let pace = Pace::new(10);
        assert_eq!(pace.until_allowed(at(1)), Duration::ZERO);
        assert_eq!(pace.until_due(at(1)), Duration::ZERO);
    }

    #[test]
    fn a_rest_is_nine_times_the_cost_at_ten_percent() {
        let mut pace = Pace::new(10);
        pace.finished(at(1000), Duration::from_millis(20), BACKSTOP_PER_MILLE);
        assert_eq!(pace.until_allowed(at(1000)), Duration::from_millis(180));
        assert_eq!(pace.until_allowed(at(1180)), Duration::ZERO);
        assert_eq!(pace.until_due(at(1000)), BACKSTOP);
    }

    #[test]
    fn a_storm_of_requests_stays_within_the_share() {
        for percent in [1, 5, 10, 50] {
            let mut pace = Pace::new(percent);
            let cost = Duration::from_millis(7);
            let (mut now, mut used) = (at(0), Duration::ZERO);
            while now < at(600_000) {
                now = now + pace.until_allowed(now) + cost;
                used += cost;
                pace.finished(now, cost, BACKSTOP_PER_MILLE);
            }
            assert!(used.as_millis() * 100 <= u128::from(percent) * 600_000 + 1400, "{percent}: {used:?}");
        }
    }

    #[test]
    fn a_share_of_nothing_is_still_one_percent() {
        let mut pace = Pace::new(0);
        pace.finished(at(0), Duration::from_millis(1), BACKSTOP_PER_MILLE);
        assert_eq!(pace.until_allowed(at(0)), Duration::from_millis(99));
        pace.set_percent(500);
        pace.finished(at(0), Duration::from_millis(1), BACKSTOP_PER_MILLE);
        assert_eq!(pace.until_allowed(at(0)), Duration::ZERO);
    }

    #[test]
    fn what_others_spend_is_rested_for_too() {
        let mut pace = Pace::new(10);
        pace.finished(at(0), Duration::from_millis(1), BACKSTOP_PER_MILLE);
        pace.spent(at(0), Duration::from_millis(2));
        assert_eq!(pace.until_allowed(at(0)), Duration::from_millis(27));
        pace.spent(at(1000), Duration::from_millis(1));
        assert_eq!(pace.until_allowed(at(1000)), Duration::from_millis(9));
        assert_eq!(pace.until_due(at(1000)), BACKSTOP - Duration::from_secs(1));
    }

    #[test]
    fn the_backstop_of_a_very_large_table_comes_less_often() {
        let mut pace = Pace::new(10);
        pace.finished(at(0), Duration::from_millis(100), BACKSTOP_PER_MILLE);
        assert_eq!(pace.until_due(at(0)), Duration::from_millis(19_900));
        pace.finished(at(0), Duration::from_millis(100), BACKSTOP_PER_MILLE_BY_ID);
        assert_eq!(pace.until_due(at(0)), Duration::from_millis(99_900));
    }
}
