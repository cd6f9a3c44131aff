//! What is repaired at all: reason by file system, as one table.
//!
//! Not in the table, on purpose: `wrong_mount` and `covered` (somebody mounted that, and may mean it), `auth` (a
//! new mount meets the same refusal), `writeback_lost` (the data is gone; a person must know). A block device carries
//! one live superblock, so a hung one cannot be replaced. With `consumer_stale` the host's mount is in order: its
//! consumers follow it, and nothing is mounted anew.

use core::time::Duration;

use crate::fstype::FsClass;
use crate::verdict::Reason;

/// What can be healed below a mount, before or beside a new one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Below {
    /// End the FUSE connection: the daemon that should answer does not, and whoever waits for it cannot be ended.
    AbortConnection,
    /// Restart the unit that owns the daemon: a second daemon beside it would be nobody's.
    RestartUnit,
}

/// One row: a reason, the file systems for which a new mount can help, how long to wait first, and what lies below
/// and is healed first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rung {
    /// Why the volume is sick.
    pub reason: Reason,
    /// For which file systems.
    pub classes: &'static [FsClass],
    /// Only where storage itself failed: a person may have set what looks the same.
    pub needs_cause: bool,
    /// How long a volume may be sick before the first attempt: a server that is merely away comes back by
    /// itself, and a hard mount holds data that is not written yet.
    pub patience: Duration,
    /// What is healed below the mount, where the operator leaves that on.
    pub below: &'static [Below],
}

const AT_ONCE: Duration = Duration::ZERO;
const SERVER_MAY_RETURN: Duration = Duration::from_secs(10);
/// What has hung stays hung for at least this long before it is replaced, or for twice its deadline: a slow volume
/// answers in the end, and its programs keep their files.
const SLOW_MAY_ANSWER: Duration = Duration::from_secs(5);
const NETWORK: &[FsClass] = &[FsClass::Network];
const FUSE: &[FsClass] = &[FsClass::Fuse];
const ANY: &[FsClass] = &FsClass::ALL;
const NOT_FUSE: &[FsClass] = &[
    FsClass::Network,
    FsClass::Block,
    FsClass::Autofs,
    FsClass::Overlay,
    FsClass::Memory,
    FsClass::Pseudo,
    FsClass::Other,
];

const fn rung(reason: Reason, classes: &'static [FsClass], patience: Duration) -> Rung {
    Rung { reason, classes, needs_cause: false, patience, below: &[] }
}

impl Rung {
    const fn after(self, below: &'static [Below]) -> Self {
        Self { below, ..self }
    }
}

/// Every case in which a plan is made.
pub const LADDER: &[Rung] = &[
    rung(Reason::Missing, ANY, AT_ONCE),
    // The daemon is dead already: nothing is lost by starting it again.
    rung(Reason::Disconnected, FUSE, AT_ONCE).after(&[Below::RestartUnit]),
    rung(Reason::Disconnected, NOT_FUSE, AT_ONCE),
    rung(Reason::Stale, ANY, AT_ONCE),
    rung(Reason::FsShutdown, ANY, AT_ONCE),
    rung(Reason::IoError, ANY, AT_ONCE),
    Rung { reason: Reason::Readonly, classes: ANY, needs_cause: true, patience: AT_ONCE, below: &[] },
    rung(Reason::Hung, FUSE, SLOW_MAY_ANSWER).after(&[Below::AbortConnection, Below::RestartUnit]),
    rung(Reason::Hung, NETWORK, SERVER_MAY_RETURN),
    rung(Reason::HostDown, NETWORK, SERVER_MAY_RETURN),
    rung(Reason::HostDown, FUSE, SERVER_MAY_RETURN),
    rung(Reason::ConsumerStale, ANY, AT_ONCE),
];

impl Rung {
    /// How long to wait for a volume whose probes have this deadline.
    #[must_use]
    pub fn patience_with(&self, deadline: Duration) -> Duration {
        if self.reason != Reason::Hung {
            return self.patience;
        }
        self.patience.max(SLOW_MAY_ANSWER).max(deadline.saturating_mul(2))
    }
}

/// The row for a case, if it is repaired at all.
#[must_use]
pub fn rung_for(reason: Reason, class: FsClass) -> Option<&'static Rung> {
    LADDER.iter().find(|rung| rung.reason == reason && rung.classes.contains(&class))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rung_is_reached_and_no_case_has_two() {
        let mut reached = alloc::vec![false; LADDER.len()];
        for reason in Reason::ALL {
            for class in FsClass::ALL {
                let fitting: alloc::vec::Vec<usize> = (0..LADDER.len())
                    .filter(|n| LADDER[*n].reason == reason && LADDER[*n].classes.contains(&class))
                    .collect();
                assert!(fitting.len() < 2, "{reason:?} {class:?}");
                fitting.iter().for_each(|n| reached[*n] = true);
                assert_eq!(rung_for(reason, class).is_some(), !fitting.is_empty());
            }
        }
        assert!(reached.iter().all(|hit| *hit));
    }

    #[test]
    fn every_class_is_repaired_when_it_is_disconnected_and_fuse_alone_has_something_below() {
        for class in FsClass::ALL {
            let below = rung_for(Reason::Disconnected, class).unwrap().below;
            assert_eq!(!below.is_empty(), class == FsClass::Fuse, "{class:?}");
        }
        let below: alloc::vec::Vec<Reason> =
            LADDER.iter().filter(|rung| !rung.below.is_empty()).map(|rung| rung.reason).collect();
        assert_eq!(below, [Reason::Disconnected, Reason::Hung]);
        for rung in LADDER.iter().filter(|rung| rung.below.contains(&Below::AbortConnection)) {
            assert_eq!((rung.reason, rung.classes), (Reason::Hung, FUSE));
        }
    }

    #[test]
    fn what_has_hung_is_given_twice_its_deadline_at_least() {
        let wait = |class, seconds| {
            let rung = rung_for(Reason::Hung, class).unwrap();
            rung.patience_with(Duration::from_secs(seconds)).as_secs()
        };
        assert_eq!([1, 3, 8].map(|deadline| wait(FsClass::Fuse, deadline)), [5, 6, 16]);
        assert_eq!([1, 3, 8].map(|deadline| wait(FsClass::Network, deadline)), [10, 10, 16]);
        let stale = rung_for(Reason::Stale, FsClass::Network).unwrap();
        assert_eq!(stale.patience_with(Duration::from_secs(60)), Duration::ZERO);
    }

    #[test]
    fn what_a_new_mount_cannot_help_is_not_repaired() {
        use Reason::{Auth, Covered, WritebackLost, WrongMount};
        for reason in [WrongMount, Covered, Auth, WritebackLost] {
            for class in FsClass::ALL {
                assert_eq!(rung_for(reason, class), None);
            }
        }
        assert_eq!(rung_for(Reason::Hung, FsClass::Block), None);
        assert_eq!(rung_for(Reason::HostDown, FsClass::Block), None);
    }
}
