//! When a volume is looked at next.
//!
//! A healthy volume has its interval, a little before or after. Doubt shortens it. A hint from the kernel asks for
//! a look at once, at most one such look every 100 ms. Hints that good looks keep answering (one bad file on a good volume)
//! double that pause each time, up to the interval: what is lost then is the quickness of the next detection on
//! that volume, what is kept is a quiet agent. A bad look that finds something new, or a window without hints, restores
//! the quickness. What a few quick looks in doubt find again and again is no news: then the interval is enough.
//!
//! Slower for automounts: every walk over a trap counts as its use, so a rhythm shorter than its time-out would keep
//! it mounted for ever. A healthy automount is looked at once in two time-outs, which delays its expiry by one at
//! most. In doubt a few quick looks settle the matter; then it is left alone for as long. Hints, mount events and
//! people are answered at once: then somebody uses it anyway.

use core::time::Duration;

use crate::hash::hastened;
use crate::id::{ProbeId, VolumeId};
use crate::time::Monotonic;
use crate::topology::automount::Automount;
use crate::verdict::HealthState;
use crate::volume::Watch;

/// The shortest time between two looks that hints ask for.
const HINT_PAUSE: Duration = Duration::from_millis(100);
/// The interval in doubt.
const CLOSE: Duration = Duration::from_millis(500);
/// The interval while sick.
const SICK: Duration = Duration::from_secs(1);
/// Answered hints after which they no longer shorten the interval.
const CHRONIC: u32 = 3;
/// Quick looks in doubt, one after the other, that find the same; or at an automount, before it is left alone for a
/// while.
const QUICK_LOOKS: u32 = 8;
/// How many of its time-outs an automount is left alone for.
const TIMEOUTS_ALONE: u32 = 2;

/// Looks of the ordinary rhythm share ticks of this length: the agent wakes once for all that fall into one, where a
/// thousand volumes would wake it a hundred times a second.
const TICK: Duration = Duration::from_millis(100);
/// … where the interval is at least this many ticks, so that nothing is looked at noticeably earlier.
const TICKS: u32 = 50;

/// How often a volume is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rhythm {
    interval: Duration,
    /// So many failures are proof.
    failures: u32,
    /// An automount must be left alone for so long.
    alone: Option<Duration>,
}

impl Rhythm {
    pub(super) fn new(watch: &Watch, automount: Option<Automount>) -> Self {
        let expires_after = automount.and_then(|automount| automount.expires_after);
        let alone = expires_after.map(|time| time.saturating_mul(TIMEOUTS_ALONE));
        Self { interval: watch.interval, failures: watch.failures, alone }
    }

    /// The longest time between two looks.
    pub(super) fn longest(self) -> Duration {
        self.alone.map_or(self.interval, |alone| alone.max(self.interval))
    }
}

/// The clock of one volume's probes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ProbeClock {
    /// A look is wanted at this time, whatever the interval.
    wanted: Option<Monotonic>,
    /// The last answer, from which the interval counts.
    answered: Option<Monotonic>,
    /// Whether a hint asked for the look that is wanted.
    wanted_by_hint: bool,
    /// The last look that a hint asked for was ordered then. A look of the ordinary rhythm does not hold up the
    /// answer to a hint.
    ordered_by_hint: Option<Monotonic>,
    sequence: u64,
    /// The probe that is out.
    pub(super) outstanding: Option<ProbeId>,
    /// It passed its deadline, and began then.
    pub(super) stuck_since: Option<Monotonic>,
    /// The last answers were late, and failures.
    pub(super) fails_late: bool,
    /// Rounds of hints that good looks answered, one after the other.
    answered_hints: u32,
    /// Looks since the last hint, or since the volume was last left alone.
    quick: u32,
    /// Bad looks, one after the other, that found what the one before had found.
    alike: u32,
    last_hint: Option<Monotonic>,
}

impl ProbeClock {
    /// A look is wanted at this time, or earlier.
    pub(super) fn want(&mut self, at: Monotonic) {
        self.wanted = Some(self.wanted.map_or(at, |wanted| wanted.min(at)));
    }

    /// The kernel gave a hint.
    pub(super) fn hint(&mut self, now: Monotonic, interval: Duration, window: Duration) {
        if self.last_hint.is_none_or(|last| now.since(last) >= window) {
            self.answered_hints = 0;
        }
        self.last_hint = Some(now);
        self.quick = 0;
        let pause = HINT_PAUSE.saturating_mul(1 << self.answered_hints.min(16)).min(interval.max(HINT_PAUSE));
        self.want(self.ordered_by_hint.map_or(now, |ordered| now.max(ordered + pause)));
        self.wanted_by_hint = true;
    }

    /// A probe was ordered.
    pub(super) fn order(&mut self, id: ProbeId, state: HealthState, now: Monotonic) {
        self.outstanding = Some(id);
        if core::mem::take(&mut self.wanted_by_hint) {
            self.ordered_by_hint = Some(now);
        }
        self.wanted = None;
        let is_over = state == HealthState::Healthy || self.quick >= QUICK_LOOKS;
        self.quick = if is_over { 0 } else { self.quick + 1 };
        self.sequence = self.sequence.saturating_add(1);
    }

    /// It answered before its deadline.
    pub(super) fn answer_in_time(&mut self, now: Monotonic) {
        self.fails_late = false;
        self.answer(now);
    }

    /// It answered after its deadline, with a failure. The next look is an ordinary one.
    pub(super) fn failed_late(&mut self) {
        self.fails_late = true;
        self.wanted = None;
    }

    /// It answered, or is gone.
    pub(super) fn answer(&mut self, now: Monotonic) {
        self.outstanding = None;
        self.stuck_since = None;
        self.answered = Some(now);
    }

    /// A look found nothing wrong or something else than the one before, or the same again. Says whether that is news:
    /// the same is for as long as quick looks are made.
    pub(super) fn found(&mut self, is_new: bool, rhythm: &Rhythm) -> bool {
        self.alike = if is_new { 0 } else { self.alike.saturating_add(1) };
        self.is_curious(rhythm)
    }

    /// A look answered the hints that there were: it was good, or found what is known.
    pub(super) fn hints_answered(&mut self) {
        self.answered_hints = self.answered_hints.saturating_add(1);
    }

    /// A bad look: hints are to be believed again.
    pub(super) fn hints_believed(&mut self) {
        self.answered_hints = 0;
    }

    /// The mount is gone: there is nothing to look at.
    pub(super) fn stop(&mut self) {
        *self = Self { sequence: self.sequence, ordered_by_hint: self.ordered_by_hint, ..Self::default() };
    }

    /// Another mount: a first look at this time.
    pub(super) fn start_over(&mut self, first: Monotonic) {
        self.stop();
        self.wanted = Some(first);
    }

    /// When the next look is due. Never while one is out.
    pub(super) fn due(&self, volume: &VolumeId, rhythm: &Rhythm, state: HealthState) -> Option<Monotonic> {
        if self.outstanding.is_some() {
            return None;
        }
        let interval = self.interval(*rhythm, state);
        let regular = self.answered.map(|at| {
            let due = at + hastened(interval, volume.as_str(), self.sequence);
            if interval >= TICK * TICKS { due.floor(TICK) } else { due }
        });
        match (self.wanted, regular) {
            (Some(wanted), Some(regular)) => Some(wanted.min(regular)),
            (wanted, regular) => wanted.or(regular),
        }
    }

    /// Whether one more quick look may say more than the last ones.
    fn is_curious(&self, rhythm: &Rhythm) -> bool {
        self.alike < QUICK_LOOKS.max(rhythm.failures)
    }

    fn interval(&self, rhythm: Rhythm, state: HealthState) -> Duration {
        let is_rested = state == HealthState::Healthy || self.quick >= QUICK_LOOKS;
        if rhythm.alone.is_some() && is_rested {
            return rhythm.longest();
        }
        let shortest = match state {
            HealthState::Suspect if self.answered_hints < CHRONIC && self.is_curious(&rhythm) => CLOSE,
            HealthState::Probation => CLOSE,
            HealthState::Degraded | HealthState::Recovering => SICK,
            HealthState::Unknown | HealthState::Healthy | HealthState::Suspect | HealthState::Quarantined => {
                rhythm.interval
            }
        };
        shortest.min(rhythm.interval)
    }
}
