//! When the next snapshot is published: soon after what people wait for, less often for everything else.

use std::time::Duration;

use agent_core::time::Monotonic;

/// A new snapshot is published this often although nothing changed: `/healthz` reads it as the loop's pulse.
pub(super) const PULSE: Duration = Duration::from_secs(1);
/// Changes that come close together are published together.
const GATHER: Duration = Duration::from_millis(10);
/// A snapshot copies every volume. Changes that nobody waits for (a good look, a count) are gathered for this many
/// times what the last one cost, so that they cost a five-hundredth of a processor however many volumes there are.
const GATHER_COSTS: u32 = 500;

/// What no snapshot shows yet.
#[derive(Debug)]
pub(super) struct Changes {
    /// Since when there is something.
    since: Option<Monotonic>,
    /// Somebody waits for it, or a condition changed.
    pub(super) is_urgent: bool,
    /// How long other changes are gathered.
    pause: Duration,
}

impl Changes {
    pub(super) const fn none() -> Self {
        Self { since: None, is_urgent: false, pause: GATHER }
    }

    pub(super) fn note(&mut self, now: Monotonic) {
        self.since.get_or_insert(now);
    }

    /// When a snapshot is due.
    pub(super) fn due(&self) -> Option<Monotonic> {
        let pause = if self.is_urgent { GATHER } else { self.pause };
        self.since.map(|since| since + pause)
    }

    /// All are shown, by a snapshot that cost this much.
    pub(super) fn shown(&mut self, cost: Duration) {
        *self = Self { pause: cost.saturating_mul(GATHER_COSTS).clamp(GATHER, PULSE), ..Self::none() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Monotonic {
        Monotonic::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn what_nobody_waits_for_is_gathered_for_longer_the_more_a_snapshot_costs() {
        let mut changes = Changes::none();
        assert_eq!(changes.due(), None);
        for (cost, pause) in [(0, 10), (50, 25), (1_500, 750), (900_000, 1000)] {
            changes.shown(Duration::from_micros(cost));
            changes.note(at(5));
            changes.note(at(9));
            assert_eq!(changes.due(), Some(at(5 + pause)), "a snapshot of {cost} µs");
            changes.is_urgent = true;
            assert_eq!(changes.due(), Some(at(15)), "a condition changed");
        }
    }
}
