//! What the evidence means, and what is exported of it.

use alloc::{collections::BTreeSet, string::String};
use core::time::Duration;

use crate::time::Monotonic;

/// Why a volume is sick.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// Nothing is mounted where the volume should be.
    Missing,
    /// Something else is mounted there.
    WrongMount,
    /// Something is mounted over the volume.
    Covered,
    /// The other end of the connection is gone.
    Disconnected,
    /// The handle or export is no longer what it was.
    Stale,
    /// The file system has shut itself down.
    FsShutdown,
    /// Storage answers with errors.
    IoError,
    /// Read-only although it should not be.
    Readonly,
    /// The server cannot be reached.
    HostDown,
    /// Refused, although it was allowed before; or a key is missing or expired.
    Auth,
    /// An access does not return.
    Hung,
    /// Dirty data was lost.
    WritebackLost,
    /// Containers still sit on the dead superblock.
    ConsumerStale,
}

impl Reason {
    /// Every reason, strongest evidence first.
    pub const ALL: [Self; 13] = [
        Self::Missing,
        Self::WrongMount,
        Self::Covered,
        Self::Disconnected,
        Self::Stale,
        Self::FsShutdown,
        Self::IoError,
        Self::Readonly,
        Self::HostDown,
        Self::Auth,
        Self::Hung,
        Self::WritebackLost,
        Self::ConsumerStale,
    ];

    /// The bounded label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::WrongMount => "wrong_mount",
            Self::Covered => "covered",
            Self::Disconnected => "disconnected",
            Self::Stale => "stale",
            Self::FsShutdown => "fs_shutdown",
            Self::IoError => "io_error",
            Self::Readonly => "readonly",
            Self::HostDown => "host_down",
            Self::Auth => "auth",
            Self::Hung => "hung",
            Self::WritebackLost => "writeback_lost",
            Self::ConsumerStale => "consumer_stale",
        }
    }

    /// The word of the Kubernetes volume-health vocabulary (KEP-1432).
    #[must_use]
    pub const fn kubernetes_status(self) -> &'static str {
        match self {
            Self::WritebackLost => "DataLoss",
            Self::Readonly | Self::ConsumerStale => "Degraded",
            _ => "Inaccessible",
        }
    }
}

/// Worth telling, never a reason to repair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Advice {
    /// Storage answers, but there is no space or quota.
    Full,
    /// The agent itself may not look.
    Inaccessible,
    /// Answers, but late.
    Slow,
    /// An automount trap with nothing mounted: not a fault.
    Idle,
    /// Falls and recovers again and again: repair and belief are slowed, sight is not.
    Flapping,
    /// The file system has found damage in itself, and nobody has acknowledged it: it needs a check.
    Damaged,
}

impl Advice {
    /// Every advice.
    pub const ALL: [Self; 6] =
        [Self::Full, Self::Inaccessible, Self::Slow, Self::Idle, Self::Flapping, Self::Damaged];

    /// The bounded label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Inaccessible => "inaccessible",
            Self::Slow => "slow",
            Self::Idle => "idle",
            Self::Flapping => "flapping",
            Self::Damaged => "damaged",
        }
    }
}

/// A classification of current evidence. No history, no pacing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No evidence either way.
    Unknown,
    /// The last look was good and nothing speaks against it.
    Healthy,
    /// Something speaks against it, not enough to act on.
    Suspect(Reason),
    /// Sick, by the named rule.
    Sick(Reason),
}

/// Evidence plus history: what is exported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HealthState {
    /// Not looked at yet. Not the same as healthy.
    Unknown,
    /// In order.
    Healthy,
    /// One piece of evidence, below the threshold. No action.
    Suspect,
    /// Sick.
    Degraded,
    /// Sick, and a plan is running.
    Recovering,
    /// Good again, not yet believed.
    Probation,
    /// Sick, and the budget for repairs is spent: a person must act.
    Quarantined,
}

impl HealthState {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Unknown,
        Self::Healthy,
        Self::Suspect,
        Self::Degraded,
        Self::Recovering,
        Self::Probation,
        Self::Quarantined,
    ];

    /// The bounded label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Healthy => "healthy",
            Self::Suspect => "suspect",
            Self::Degraded => "degraded",
            Self::Recovering => "recovering",
            Self::Probation => "probation",
            Self::Quarantined => "quarantined",
        }
    }

    /// Whether `mountie` exits with "found sick" because of it.
    #[must_use]
    pub const fn is_sick(self) -> bool {
        match self {
            Self::Degraded | Self::Recovering | Self::Quarantined => true,
            Self::Unknown | Self::Healthy | Self::Suspect | Self::Probation => false,
        }
    }
}

/// The lasting exported state of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// The state.
    pub state: HealthState,
    /// Why, unless healthy or unknown.
    pub reason: Option<Reason>,
    /// Since when the state and the reason are what they are, as far as this boot goes back.
    pub since: Monotonic,
    /// The same on the wall clock, since the epoch, where it was before this boot.
    pub since_wall: Option<Duration>,
    /// It is what was known before the agent started: nothing has decided since then.
    pub is_recalled: bool,
    /// One sentence for people: what was seen, by which rule, and what would clear it.
    pub message: String,
    /// What else is worth knowing.
    pub advice: BTreeSet<Advice>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_unique_and_every_reason_has_its_kubernetes_word() {
        let reasons: BTreeSet<_> = Reason::ALL.into_iter().map(Reason::label).collect();
        let states: BTreeSet<_> = HealthState::ALL.into_iter().map(HealthState::label).collect();
        let advice: BTreeSet<_> = Advice::ALL.into_iter().map(Advice::label).collect();
        assert_eq!((reasons.len(), states.len(), advice.len()), (13, 7, 6));
        for reason in Reason::ALL {
            assert!(["DataLoss", "Degraded", "Inaccessible"].contains(&reason.kubernetes_status()));
        }
        assert!(HealthState::Quarantined.is_sick() && !HealthState::Probation.is_sick());
    }
}
