//! Volumes that fail together for one cause: told once, as one incident.

use alloc::{string::String, vec::Vec};
use core::fmt;

use crate::id::{SuperblockId, VolumeId};
use crate::time::Monotonic;
use crate::verdict::Reason;

/// One incident, unique in this run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IncidentId(pub u64);

impl fmt::Display for IncidentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What volumes have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CauseKind {
    /// The daemon or the connection of a FUSE file system.
    Daemon,
    /// A block device below them.
    Device,
    /// The server they are mounted from.
    Server,
}

impl CauseKind {
    /// Every kind, in label order.
    pub const ALL: [Self; 3] = [Self::Daemon, Self::Device, Self::Server];

    /// The bounded label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::Device => "device",
            Self::Server => "server",
        }
    }

    /// Whether what this kind of thing does wrong can show as this reason. A volume that somebody unmounted, or
    /// mounted over, does not fail for its server's sake.
    #[must_use]
    pub const fn explains(self, reason: Reason) -> bool {
        use Reason as R;
        match (self, reason) {
            (_, R::IoError | R::Readonly | R::Hung | R::WritebackLost) => true,
            (Self::Device, R::FsShutdown) => true,
            (Self::Daemon | Self::Server, R::Disconnected | R::Stale | R::HostDown | R::Auth) => true,
            (Self::Device, R::Disconnected | R::Stale | R::HostDown | R::Auth)
            | (Self::Daemon | Self::Server, R::FsShutdown)
            | (_, R::Missing | R::WrongMount | R::Covered | R::ConsumerStale) => false,
        }
    }
}

/// One thing that volumes may have in common.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cause {
    /// What it is.
    pub kind: CauseKind,
    /// Its name for people: a host, `sda (8:0)`, `sshfs (process 4242)`. Without secrets.
    pub name: String,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.label(), self.name)
    }
}

/// A volume that was part of an incident.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Which.
    pub volume: VolumeId,
    /// When it fell.
    pub fell: Monotonic,
    /// Why, as it was seen last.
    pub reason: Reason,
    /// When it was not sick any more.
    pub recovered: Option<Monotonic>,
}

/// Volumes that fail together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incident {
    /// Its number.
    pub id: IncidentId,
    /// What they have in common.
    pub cause: Cause,
    /// When the first of them fell.
    pub began: Monotonic,
    /// When the last of them was not sick any more; `None` while one is, or has only just ceased to be.
    pub ended: Option<Monotonic>,
    /// The volumes, in the order in which they fell; at most [`Incident::MOST`].
    pub members: Vec<Member>,
    /// How many more there were.
    pub more: u64,
}

impl Incident {
    /// The most volumes that are told one by one.
    pub const MOST: usize = 256;

    /// How many volumes it has touched.
    #[must_use]
    pub fn size(&self) -> u64 {
        u64::try_from(self.members.len()).unwrap_or(u64::MAX).saturating_add(self.more)
    }
}

/// When an incident is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// It has begun: a short time after the second volume fell, so that those that fall at the same time are named.
    Began,
    /// It is over. The list is complete.
    Ended,
}

/// A block device below a superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// Its number.
    pub number: SuperblockId,
    /// Its name in the kernel, where it is known.
    pub name: String,
}

/// The process that serves a FUSE file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Daemon {
    /// Process id.
    pub pid: u32,
    /// Its name, escaped; may be empty.
    pub comm: String,
    /// The systemd unit that it runs in, where restarting that is restarting the daemon.
    pub unit: Option<String>,
}
