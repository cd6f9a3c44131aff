//! When the next attempt may be made: back-off after failures and falls, and attempts per hour.

use alloc::vec::Vec;
use core::time::Duration;

use crate::hash::jittered;
use crate::id::VolumeId;
use crate::memory::Memory;
use crate::policy::Thresholds;
use crate::remediation::{Outcome, Refusal};
use crate::time::Monotonic;

/// The time over which attempts are counted.
const HOUR: Duration = Duration::from_secs(3600);

/// Whether an attempt may be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permit {
    /// Now.
    Now,
    /// Not before this time.
    NotBefore(Monotonic),
    /// A person must act.
    Spent,
}

/// The attempts at one volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Budget {
    /// Attempts within the last hour; never more than the operator allows.
    attempts: Vec<Monotonic>,
    /// Failed ones since the last success.
    failed: u32,
    /// The end of the last attempt.
    ended: Option<Monotonic>,
    not_before: Option<Monotonic>,
    sequence: u64,
}

impl Budget {
    /// Whether an attempt may be made now.
    #[must_use]
    pub fn permit(&self, now: Monotonic, max_attempts: u32) -> Permit {
        if self.attempts_at(now) >= max_attempts {
            return Permit::Spent;
        }
        match self.not_before {
            Some(time) if time > now => Permit::NotBefore(time),
            Some(_) | None => Permit::Now,
        }
    }

    /// Attempts within the last hour.
    #[must_use]
    pub fn attempts_at(&self, now: Monotonic) -> u32 {
        let recent = self.attempts.iter().filter(|at| now.since(**at) < HOUR).count();
        u32::try_from(recent).unwrap_or(u32::MAX)
    }

    /// The next attempt is not before this time.
    #[must_use]
    pub fn not_before(&self) -> Option<Monotonic> {
        self.not_before
    }

    /// The attempts that are known, oldest first.
    #[must_use]
    pub fn attempts(&self) -> &[Monotonic] {
        &self.attempts
    }

    /// Failed attempts since the last success, and the end of the last one.
    #[must_use]
    pub const fn record(&self) -> (u32, Option<Monotonic>) {
        (self.failed, self.ended)
    }

    /// What an earlier run had spent. Attempts that the operator allows no more are not kept: they are spent.
    pub fn recall(&mut self, memory: &Memory, max_attempts: u32) {
        let most = usize::try_from(max_attempts).unwrap_or(usize::MAX);
        let surplus = memory.attempts.len().saturating_sub(most);
        self.attempts = memory.attempts.iter().skip(surplus).copied().collect();
        self.failed = memory.failed;
        self.ended = memory.ended;
        self.not_before = memory.not_before;
        // The jitter of the next pause is another than that of the last run.
        self.sequence = u64::try_from(memory.attempts.len()).unwrap_or(u64::MAX);
    }

    /// An attempt begins.
    pub fn start(&mut self, now: Monotonic) {
        self.attempts.retain(|at| now.since(*at) < HOUR);
        self.attempts.push(now);
        self.not_before = None;
    }

    /// The attempt that began last ended.
    pub fn end(&mut self, now: Monotonic, outcome: &Outcome, pace: &Pace<'_>) {
        self.ended = Some(now);
        self.sequence = self.sequence.saturating_add(1);
        if outcome.is_success() {
            self.failed = 0;
            self.not_before = None;
            return;
        }
        let pause = match outcome {
            // Nothing was done, so nothing is used up. Whoever keeps the old mount busy, or the helper that hangs,
            // may end at any time.
            Outcome::Refused(Refusal::Busy | Refusal::HelperStuck) => {
                self.attempts.pop();
                pace.thresholds.backoff_busy
            }
            // The same again would end the same way until something else changes.
            Outcome::Refused(Refusal::SameSuperblock | Refusal::OtherVolume | Refusal::MountLimit) => {
                pace.thresholds.backoff_max
            }
            // Somebody else was at work: no failure of the method. Look again first.
            Outcome::Refused(Refusal::TableChanged | Refusal::NotAMountPoint) => pace.thresholds.backoff,
            // Nor was anything done here, and the next attempt goes another way.
            Outcome::Refused(Refusal::OtherUnit) => {
                self.attempts.pop();
                pace.thresholds.backoff
            }
            Outcome::Changed
            | Outcome::AlreadySo
            | Outcome::Refused(Refusal::StagedSick | Refusal::NotPrepared | Refusal::ConsumersLeft)
            | Outcome::Failed(_)
            | Outcome::HelperFailed(_)
            | Outcome::TimedOut
            | Outcome::Interrupted => {
                self.failed = self.failed.saturating_add(1);
                pace.pause(self.failed)
            }
        };
        self.not_before = Some(now + jittered(pause, pace.volume.as_str(), self.sequence));
    }

    /// The attempt that ended last was stopped before it had shown anything, because somebody else was at work: it is
    /// not used up. Else whoever heals often would keep the agent from healing when that one gives up.
    pub fn give_back(&mut self) {
        self.attempts.pop();
    }

    /// What the last attempt was refused for has changed: the next one need not wait.
    pub fn hurry(&mut self) {
        self.not_before = None;
    }

    /// The volume fell again after an attempt that had worked: the next one waits, longer each time.
    pub fn fell(&mut self, pace: &Pace<'_>) {
        let Some(ended) = self.ended.filter(|_| pace.flaps > 0) else { return };
        self.sequence = self.sequence.saturating_add(1);
        let pause = jittered(pace.pause(self.failed), pace.volume.as_str(), self.sequence);
        self.not_before = self.not_before.max(Some(ended + pause));
    }
}

/// What the length of a pause depends on.
#[derive(Clone, Copy, Debug)]
pub struct Pace<'a> {
    /// The volume, for the jitter.
    pub volume: &'a VolumeId,
    /// Falls within the flap window, beyond the first.
    pub flaps: u32,
    /// The operator's limits.
    pub thresholds: &'a Thresholds,
}

impl Pace<'_> {
    /// Doubles with every failed attempt and every flap, up to the longest pause.
    fn pause(&self, failed: u32) -> Duration {
        let heat = failed.saturating_add(self.flaps).saturating_sub(1).min(31);
        self.thresholds.backoff.saturating_mul(1 << heat).min(self.thresholds.backoff_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let (volume, thresholds) = (VolumeId::new("v"), Thresholds::default());
        let pace = Pace { volume: &volume, flaps: 0, thresholds: &thresholds };
        let mut budget = Budget::default();
        let mut last = Duration::ZERO;
        for _ in 0..8 {
            budget.start(at(1000));
            budget.end(at(1000), &Outcome::TimedOut, &pace);
            let pause = budget.not_before().unwrap().since(at(1000));
            assert!(pause > last, "{pause:?} after {last:?}");
            last = pause;
        }
        assert!(Pace { flaps: 90, ..pace }.pause(90) == thresholds.backoff_max);
        budget.end(at(1000), &Outcome::Changed, &pace);
        assert_eq!(budget.not_before(), None);
    }

    #[test]
    fn attempts_leave_the_hour() {
        let mut budget = Budget::default();
        assert_eq!(budget.permit(at(0), 0), Permit::Spent);
        budget.start(at(10));
        budget.start(at(20));
        assert_eq!(budget.permit(at(30), 2), Permit::Spent);
        assert_eq!(budget.permit(at(3609), 2), Permit::Spent);
        assert_eq!(budget.permit(at(3610), 2), Permit::Now);
        assert_eq!(budget.attempts_at(at(3620)), 0);
    }

    #[test]
    fn some_refusals_wait_long_and_some_only_for_another_look() {
        let (volume, thresholds) = (VolumeId::new("v"), Thresholds::default());
        let pace = Pace { volume: &volume, flaps: 0, thresholds: &thresholds };
        let pause = |refusal| {
            let mut budget = Budget::default();
            budget.end(at(0), &Outcome::Refused(refusal), &pace);
            budget.not_before().unwrap().since(at(0))
        };
        for refusal in [Refusal::SameSuperblock, Refusal::OtherVolume, Refusal::MountLimit] {
            assert!(pause(refusal) > Duration::from_secs(200));
        }
        for refusal in [Refusal::TableChanged, Refusal::NotAMountPoint, Refusal::StagedSick] {
            assert!(pause(refusal) < Duration::from_secs(2));
        }
    }

    #[test]
    fn what_is_busy_is_tried_again_evenly_and_costs_no_attempt() {
        let (volume, thresholds) = (VolumeId::new("v"), Thresholds::default());
        let pace = Pace { volume: &volume, flaps: 9, thresholds: &thresholds };
        let mut budget = Budget::default();
        budget.start(at(10));
        budget.end(at(10), &Outcome::TimedOut, &pace);
        for round in 1..20 {
            let now = at(1000 + 60 * round);
            budget.start(now);
            assert_eq!(budget.attempts_at(now), 2);
            budget.end(now, &Outcome::Refused(Refusal::Busy), &pace);
            assert_eq!(budget.attempts_at(now), 1);
            let pause = budget.not_before().unwrap().since(now).as_secs();
            assert!((27..=33).contains(&pause), "{pause} s");
        }
    }

    #[test]
    fn a_fall_after_a_success_waits() {
        let (volume, thresholds) = (VolumeId::new("v"), Thresholds::default());
        let mut budget = Budget::default();
        let pace = |flaps| Pace { volume: &volume, flaps, thresholds: &thresholds };
        budget.fell(&pace(3));
        assert_eq!(budget.not_before(), None, "nothing was attempted yet");
        budget.end(at(100), &Outcome::Changed, &pace(0));
        budget.fell(&pace(0));
        assert_eq!(budget.not_before(), None);
        budget.fell(&pace(4));
        assert!(budget.not_before().unwrap().since(at(100)) >= Duration::from_secs(7));
    }
}
