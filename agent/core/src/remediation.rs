//! Repair as data. The core plans, one executor acts, the journal is written in between.

use alloc::collections::BTreeSet;
use alloc::{string::String, vec::Vec};
use core::time::Duration;

use crate::errno::Errno;
use crate::id::{MountId, PlanId, SuperblockId, VolumeId};
use crate::path::BytePath;
use crate::remediation::consumers::Holding;
use crate::topology::{Mount, MountTable};
use crate::verdict::Reason;
use crate::volume::{Identity, Method, Reach, Sentinel};

pub mod asking;
pub mod budget;
pub mod consumers;
pub mod healers;
pub mod kubelet;
pub mod ladder;
pub mod plan;
pub mod service;
pub mod settle;
pub mod unit;

/// Ordered actions for one volume, made before anything is touched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Unique across restarts.
    pub id: PlanId,
    /// The volume.
    pub volume: VolumeId,
    /// Why.
    pub reason: Option<Reason>,
    /// The mount point that is repaired.
    pub mountpoint: BytePath,
    /// The private place where the new mount is made.
    pub stage: BytePath,
    /// The superblock that is to be replaced; `None` when nothing is mounted.
    pub old: Option<SuperblockId>,
    /// What tells mounts of it from those of another one that has its number by now.
    pub marks: Option<Marks>,
    /// What was replaced before because it was sick, and is held by somebody still, also where nothing is mounted
    /// now: the kernel would find it again for the same source. These are known to be held; `None` where nothing can
    /// be.
    pub dead: Option<BTreeSet<SuperblockId>>,
    /// The server that it concerns, where its source names one: at most one helper at a time works with it.
    pub server: Option<Vec<u8>>,
    /// What to do, in order. The first failure ends the plan.
    pub actions: Vec<Action>,
    /// What to do after a failure, in order, whatever was reached. Each is safe to do twice.
    pub undo: Vec<Action>,
    /// The whole plan must be done by then.
    pub timeout: Duration,
    /// A helper must be done by then. What the plan has beyond it is for the looks.
    pub helper_timeout: Duration,
}

/// What the mounts of a superblock are known by, when its number may have been given out again.
///
/// kernel: `get_anon_bdev`, fs/super.c, since 2.6.26: the lowest number that is free.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Marks {
    /// What they look like.
    pub holding: Holding,
    /// Their ids that are never used again; none where the kernel does not tell them.
    pub unique: BTreeSet<u64>,
    /// Their ids as long as they are in the table; not kept across restarts.
    pub here: BTreeSet<MountId>,
    /// What else was mounted at the place when the plan was made, by ids: whatever lies beneath the old one later,
    /// and is none of these, is the plan's own.
    pub others: BTreeSet<MountId>,
    /// Mounts beneath the old one that an earlier swap of the agent's left there when it was cut off: they go with
    /// it. Not kept across restarts.
    pub own: BTreeSet<MountId>,
}

impl Marks {
    /// Those of the mounts of a superblock at one place; nothing where it is not mounted there.
    #[must_use]
    pub fn of(table: &MountTable, place: &BytePath, superblock: SuperblockId) -> Option<Self> {
        let stack = table.stack_at(place);
        let (mounts, others): (Vec<&Mount>, Vec<&Mount>) =
            stack.into_iter().rev().partition(|mount| mount.superblock == superblock);
        let holding = Holding::of(mounts.first()?);
        let unique = mounts.iter().filter_map(|mount| mount.unique).collect();
        let ids = |mounts: &[&Mount]| mounts.iter().map(|mount| mount.id).collect();
        Some(Self { holding, unique, here: ids(&mounts), others: ids(&others), own: BTreeSet::new() })
    }

    /// Takes what lies there besides, and did not when these marks were made, for the agent's own.
    #[must_use]
    pub fn with_own_since(mut self, earlier: &Self) -> Self {
        let (others, own) = self.others.into_iter().partition(|id| earlier.others.contains(id));
        (self.others, self.own) = (others, own);
        self
    }

    /// Whether a mount with the number is of that superblock still: as long as one of its mounts is there, nothing else
    /// can have the number. Where no ids are told, by what the mount looks like.
    #[must_use]
    pub fn prove(&self, table: &MountTable, mount: &Mount) -> bool {
        if self.unique.is_empty() || mount.unique.is_none() {
            return self.holding.fits(mount);
        }
        let is_known = |mount: &Mount| mount.unique.is_some_and(|unique| self.unique.contains(&unique));
        table.showing(mount.superblock).any(is_known)
    }
}

/// The time that a look or a move may take at least, within its plan's.
const SHORT: Duration = Duration::from_secs(10);

impl Plan {
    /// Whether it begins at a private place: until it comes to the first action that is not, nobody but itself has seen
    /// anything of it, and it can be stopped without harm.
    #[must_use]
    pub fn begins_aside(&self) -> bool {
        self.actions.first().is_some_and(Action::is_aside)
    }

    /// How long one action may take, within the time of the whole plan.
    #[must_use]
    pub fn limit(&self, action: &Action) -> Duration {
        match action {
            // A plain unmount writes back what is dirty, which takes its time as a mount does.
            Action::Stage { .. }
            | Action::RunInPlace { .. }
            | Action::RestartUnit { .. }
            | Action::UnmountOld => self.helper_timeout,
            Action::CheckSource { .. }
            | Action::CheckStaged { .. }
            | Action::MountAgain
            | Action::AbortConnection { .. }
            | Action::Swap { .. }
            | Action::CoverConsumers { .. }
            | Action::SwapConsumers { .. }
            | Action::Verify { .. }
            | Action::DetachTop
            | Action::Unstage => self.timeout.saturating_sub(self.helper_timeout).max(SHORT),
        }
    }
}

/// One effect. Each is carried out by a child process that can be abandoned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Make the new mount at the private place.
    Stage {
        /// By what.
        method: Method,
        /// `SOURCE` of mount(8).
        source: Vec<u8>,
        /// `TYPE` of mount(8).
        fstype: String,
        /// Options in order.
        options: Vec<String>,
        /// Variables for the helper.
        environment_file: Option<BytePath>,
    },
    /// Look at the staged mount: it answers, it is not `old`, it is the same volume.
    CheckStaged {
        /// What it must contain, when known.
        sentinel: Option<Sentinel>,
        /// What it must be, when known.
        identity: Identity,
        /// The source that it must show, when known.
        source: Option<Vec<u8>>,
        /// The type that it must have, when known.
        fstype: Option<String>,
    },
    /// Look at the device that the new mount is to come from, while the old one is still there: once that is gone
    /// nothing brings it back. It is there, it can be written where that is wanted, and it is the same volume.
    CheckSource {
        /// By what it is mounted.
        method: Method,
        /// `SOURCE` of mount(8).
        source: Vec<u8>,
        /// The new mount is to be read-only.
        readonly: bool,
        /// What it must be, when known.
        identity: Identity,
    },
    /// Show what was unmounted again, read-only, where no new one came: what can still be read is better than nothing.
    MountAgain,
    /// Unmount the old one first, plainly. For file systems whose device can be mounted only once at a time.
    UnmountOld,
    /// Take every other mount of the old superblock away, plainly, and leave guards in their places. All of them or
    /// none: where one is in use, the others come back. For file systems whose device can be mounted only once at a
    /// time.
    CoverConsumers {
        /// What they look like.
        holding: Holding,
        /// Which of them may be touched.
        reach: Reach,
    },
    /// Show the new file system wherever else a mount of the old superblock, or a guard in the place of one, is: on
    /// the host and in every other mount namespace, each with its own root and its own options. The new one is what
    /// is staged, or else what the mount point shows.
    SwapConsumers {
        /// What mounts of the old superblock look like; without it only guards are replaced.
        holding: Option<Holding>,
        /// Which mounts these are, by their ids. `None`: those that there are when the plan begins, as long as the
        /// volume itself shows the old superblock.
        ids: Option<BTreeSet<MountId>>,
        /// Which of them may be touched.
        reach: Reach,
    },
    /// Show the staged mount at the mount point: beneath the old one, then detach the old one. Where the
    /// kernel or the place does not allow beneath: detach and move back to back, gap measured.
    Swap {
        /// The new mount is read-only; set on the detached tree, so that it is never writable for a moment.
        readonly: bool,
    },
    /// Run a command that repairs in place (`{mountpoint}`).
    RunInPlace {
        /// Arguments; no shell.
        argv: Vec<String>,
        /// Variables for the command.
        environment_file: Option<BytePath>,
    },
    /// End the FUSE connection of `old`, if requests wait in it: whoever waits there gets an error instead. There is
    /// no way back, and nothing to undo: nothing came through it any more.
    AbortConnection {
        /// The process that serves it, where that is known.
        daemon: Option<u32>,
        /// A fresh mount of the same has just answered, so it is the daemon that hangs and not what it asks. Without
        /// that proof the connection is ended only where the daemon itself can do nothing: it is gone, stopped, or
        /// waits in the kernel.
        is_proven: bool,
    },
    /// Have systemd restart the unit that mounts here. Nothing to undo: a unit that does not come up is started again
    /// by the next attempt, or by systemd.
    RestartUnit {
        /// Its full name.
        unit: String,
        /// Only if this process is (or was) its main process; `None`: the operator named the unit.
        daemon: Option<u32>,
    },
    /// The mount point shows a superblock that is not `old`, it answers, and the stack is one deep. What was not
    /// staged and looked at there must be the same volume as well.
    Verify {
        /// What it must contain, when known.
        sentinel: Option<Sentinel>,
        /// What it must be, when known and not looked at yet.
        identity: Identity,
        /// The source that it must show, likewise.
        source: Option<Vec<u8>>,
        /// The type that it must have, likewise.
        fstype: Option<String>,
    },
    /// Detach the top mount, if it still shows `old` and another mount lies beneath it. Finishes a swap that was cut off.
    DetachTop,
    /// Unmount whatever is left at the private place and remove its directory. Part of every plan.
    Unstage,
}

impl Action {
    /// Whether it changes nothing but the private place.
    #[must_use]
    pub const fn is_aside(&self) -> bool {
        match self {
            Self::CheckSource { .. } | Self::Stage { .. } | Self::CheckStaged { .. } => true,
            Self::UnmountOld
            | Self::MountAgain
            | Self::Swap { .. }
            | Self::RunInPlace { .. }
            | Self::AbortConnection { .. }
            | Self::RestartUnit { .. }
            | Self::Verify { .. }
            | Self::DetachTop
            | Self::Unstage
            | Self::CoverConsumers { .. }
            | Self::SwapConsumers { .. } => false,
        }
    }
}

/// What became of an action or a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Done.
    Changed,
    /// Nothing was left to do.
    AlreadySo,
    /// Not done, on purpose.
    Refused(Refusal),
    /// Tried, and failed with an errno.
    Failed(Errno),
    /// A helper ended with this exit code (negative: by this signal).
    HelperFailed(i32),
    /// The deadline passed.
    TimedOut,
    /// Cut off by an end of the agent and settled after the next start.
    Interrupted,
}

/// Why an action was not done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Refusal {
    /// The new mount shows the same dead superblock.
    SameSuperblock,
    /// The new mount is another file system than the one that was there.
    OtherVolume,
    /// The old mount is in use and may not be detached lazily.
    Busy,
    /// The mount table changed under the plan: somebody else is at work.
    TableChanged,
    /// The staged mount does not answer.
    StagedSick,
    /// The place is not what the plan was made for.
    NotAMountPoint,
    /// `mount` reached the kernel's limit on mounts, not the disk's on space.
    MountLimit,
    /// An earlier helper for this volume was killed and has not ended: another would wait beside it.
    HelperStuck,
    /// The unit in which the daemon runs is not what serves this file system.
    OtherUnit,
    /// What the helper needs is missing, or others could have written or read it: `/etc/fstab` has no entry, systemd
    /// does not know the unit, the file of variables is not root's alone, the device is not there or write-protected.
    NotPrepared,
    /// Other mounts of the old superblock could not be replaced.
    ConsumersLeft,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::SameSuperblock,
        Self::OtherVolume,
        Self::Busy,
        Self::TableChanged,
        Self::StagedSick,
        Self::NotAMountPoint,
        Self::MountLimit,
        Self::HelperStuck,
        Self::OtherUnit,
        Self::NotPrepared,
        Self::ConsumersLeft,
    ];

    /// The bounded label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::SameSuperblock => "same_superblock",
            Self::OtherVolume => "other_volume",
            Self::Busy => "busy",
            Self::TableChanged => "table_changed",
            Self::StagedSick => "staged_sick",
            Self::NotAMountPoint => "not_a_mount_point",
            Self::MountLimit => "mount_limit",
            Self::HelperStuck => "helper_stuck",
            Self::OtherUnit => "other_unit",
            Self::NotPrepared => "not_prepared",
            Self::ConsumersLeft => "consumers_left",
        }
    }
}

impl Outcome {
    /// Whether the world is now as the plan wanted it.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Changed | Self::AlreadySo)
    }

    /// The bounded label.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::AlreadySo => "already_so",
            Self::Refused(refusal) => refusal.label(),
            Self::Failed(_) => "failed",
            Self::HelperFailed(_) => "helper_failed",
            Self::TimedOut => "timed_out",
            Self::Interrupted => "interrupted",
        }
    }
}
