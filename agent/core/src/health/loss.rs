//! Dirty data that never reached storage, and damage that a file system found in itself. No later look brings back the
//! one or mends the other, so both stay told until the volume is mounted anew, or until a person says that they know.

use alloc::string::String;

use crate::errno::Errno;
use crate::observation::KernelErrors;
use crate::time::Monotonic;

/// Who did something by hand, as the socket's peer credentials say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Actor {
    /// User id.
    pub uid: u32,
    /// Process id; 0 when it is not known here.
    pub pid: u32,
    /// Name of the process, escaped; empty when it is not known.
    pub comm: String,
}

impl core::fmt::Display for Actor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "uid {}", self.uid)?;
        match (self.comm.as_str(), self.pid) {
            ("", 0) => Ok(()),
            ("", pid) => write!(f, " (process {pid})"),
            (comm, pid) => write!(f, " ({comm}, process {pid})"),
        }
    }
}

/// A person knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acknowledgement {
    /// Since when.
    pub at: Monotonic,
    /// Who.
    pub by: Actor,
}

/// A loss on one mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loss {
    /// When the first data was lost that nobody has acknowledged, or that the acknowledgement is about.
    pub at: Monotonic,
    /// With which error.
    pub errno: Errno,
    /// Whether a person knows.
    pub acknowledged: Option<Acknowledgement>,
}

/// Damage that a file system found in its own structures: told, kept and acknowledged as a loss is. It makes no volume
/// sick, which may work on for long; that it needs a check is nowhere else to be seen.
pub type Damage = Loss;

impl Loss {
    /// Whether a person must still be told.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.acknowledged.is_none()
    }

    /// Takes what tells of a loss. One loss is told more than once (by its record, later by counters), so what may be
    /// from before the acknowledgement is acknowledged with it.
    pub fn note(known: &mut Option<Self>, errors: &KernelErrors, now: Monotonic) {
        let is_known = match known {
            None => false,
            Some(Self { acknowledged: None, .. }) => true,
            Some(Self { acknowledged: Some(told), .. }) => !errors.is_later_than(told.at),
        };
        if !is_known {
            *known = Some(Self { at: errors.at.min(now), errno: errors.errno, acknowledged: None });
        }
    }

    /// A person says that they know. Says whether there was anything to say it to.
    pub fn acknowledge(known: &mut Option<Self>, at: Monotonic, by: Actor) -> bool {
        match known {
            Some(loss) if loss.is_open() => {
                loss.acknowledged = Some(Acknowledgement { at, by });
                true
            }
            Some(_) | None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::SuperblockId;
    use crate::observation::{Op, Source};

    fn at(seconds: u64) -> Monotonic {
        Monotonic::from_nanos(seconds * 1_000_000_000)
    }

    fn somebody() -> Actor {
        Actor { uid: 0, pid: 42, comm: "mountie".into() }
    }

    fn tells(second: u64, errno: u16) -> KernelErrors {
        KernelErrors {
            source: Source::Bpf,
            superblock: SuperblockId { major: 7, minor: 0 },
            root_inode: None,
            errno: Errno(errno),
            op: Op::Writeback,
            count: 1,
            at: at(second),
            after: None,
            task: None,
        }
    }

    fn note(loss: &mut Option<Loss>, second: u64, errno: u16) {
        Loss::note(loss, &tells(second, errno), at(second));
    }

    #[test]
    fn what_was_noticed_after_an_acknowledgement_and_may_be_older_is_acknowledged() {
        let mut loss = None;
        note(&mut loss, 2, 117);
        assert!(Loss::acknowledge(&mut loss, at(4), somebody()));
        let counted = |after| KernelErrors { source: Source::Sysfs, after: Some(at(after)), ..tells(6, 117) };
        Loss::note(&mut loss, &counted(3), at(6));
        assert!(loss.as_ref().is_some_and(|loss| !loss.is_open()), "{loss:?}");
        Loss::note(&mut loss, &counted(4), at(6));
        assert!(loss.as_ref().is_some_and(Loss::is_open), "{loss:?}");
    }

    #[test]
    fn a_loss_is_acknowledged_once_and_a_later_one_is_new() {
        let mut loss = None;
        assert!(!Loss::acknowledge(&mut loss, at(1), somebody()));
        note(&mut loss, 2, 5);
        note(&mut loss, 3, 28);
        assert_eq!(loss.as_ref().map(|loss| (loss.at, loss.errno)), Some((at(2), Errno(5))));
        assert!(Loss::acknowledge(&mut loss, at(4), somebody()));
        assert!(!Loss::acknowledge(&mut loss, at(5), somebody()));
        note(&mut loss, 3, 5);
        assert!(loss.as_ref().is_some_and(|loss| !loss.is_open()), "told again, by the counter");
        note(&mut loss, 6, 28);
        assert_eq!(loss, Some(Loss { at: at(6), errno: Errno(28), acknowledged: None }));
    }

    #[test]
    fn an_actor_is_named_as_far_as_it_is_known() {
        use alloc::string::ToString as _;
        assert_eq!(somebody().to_string(), "uid 0 (mountie, process 42)");
        assert_eq!(Actor { pid: 7, comm: String::new(), uid: 3 }.to_string(), "uid 3 (process 7)");
        assert_eq!(Actor { pid: 0, comm: String::new(), uid: 3 }.to_string(), "uid 3");
    }
}
