//! What of a volume outlives the agent: enough that a restart neither forgets a trouble nor tells it twice.
//!
//! Nothing in it makes a volume healthy: what was in order before the restart is looked at like a new one. What was
//! sick stays so until a look decides. What is about one mount counts only for that very mount.

use alloc::collections::BTreeSet;
use alloc::{string::String, sync::Arc, vec::Vec};
use core::time::Duration;

use crate::health::loss::{Damage, Loss};
use crate::id::{MountId, SuperblockId, VolumeId};
use crate::path::BytePath;
use crate::remediation::consumers::Holding;
use crate::time::Monotonic;
use crate::topology::{Mount, Options};
use crate::verdict::{HealthState, Reason};
use crate::volume::Identity;

/// What is remembered of one volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Which.
    pub volume: VolumeId,
    /// Where it was; a volume elsewhere is another one.
    pub mountpoint: BytePath,
    /// Whether the configuration names it.
    pub named: bool,
    /// What is mounted there, or was when it was seen last. `None` for a volume that was seen to be unmounted.
    pub known: Option<Arc<Known>>,
    /// What was learnt of it.
    pub learnt: Option<Learnt>,
    /// What was wrong, if anything was.
    pub trouble: Option<Trouble>,
    /// When it fell, within the flap window.
    pub falls: Vec<Monotonic>,
    /// Attempts at repair within the last hour.
    pub attempts: Vec<Monotonic>,
    /// Failed attempts since the last success.
    pub failed: u32,
    /// The end of the last attempt.
    pub ended: Option<Monotonic>,
    /// The next attempt is not before this time.
    pub not_before: Option<Monotonic>,
    /// What its hook has said of the repair that is due.
    pub asked: Option<HookMemory>,
    /// The same of consumers alone.
    pub asked_of_consumers: Option<HookMemory>,
    /// Whether a look was ever allowed: a refusal is news after that, and advice before.
    pub was_readable: bool,
    /// Whether a write of a look ever worked, likewise.
    pub was_written: bool,
    /// The path of the sentinel that was read last, likewise.
    pub sentinel_read: Option<BytePath>,
    /// Whether a repair that failed has shown its device again, read-only, and it was not well since.
    pub put_back: bool,
    /// What is known of the mount that was there; only of this boot.
    pub mount: Option<MountMemory>,
    /// What it showed before and others may still hold; only of this boot.
    pub left: Vec<LeftMemory>,
}

/// What a look has found that tells a file system from others. It says nothing about what comes from elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Learnt {
    /// At least one of the two.
    pub identity: Identity,
    /// What was mounted then: as the configuration named it, else as the table did.
    pub source: Vec<u8>,
}

/// What a hook has said of a repair that is still due, so that a restart begins nothing anew.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HookMemory {
    /// Which hook, as it is shown: what one has said does not count for another.
    pub hook: String,
    /// How often it has put the repair off, one time after the other.
    pub put_off: u32,
    /// It is asked again then.
    pub not_before: Option<Monotonic>,
    /// A person must act, because of this.
    pub given_up: Option<String>,
}

/// A superblock that was replaced because it was sick.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftMemory {
    /// Which.
    pub superblock: SuperblockId,
    /// What its mounts look like; `None`: guards that stand for it.
    pub holding: Option<Holding>,
    /// The mounts that were known, by their ids.
    pub ids: BTreeSet<MountId>,
}

/// A mount as the table showed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// The type.
    pub fstype: String,
    /// The source.
    pub source: Vec<u8>,
    /// The directory of the superblock that is shown.
    pub root: BytePath,
    /// Options of the mount, in order.
    pub options: Options,
    /// Options of the superblock, in order.
    pub super_options: Options,
}

impl Known {
    /// What a line of the table says.
    #[must_use]
    pub fn of(mount: &Mount) -> Self {
        Self {
            fstype: mount.fstype.clone(),
            source: mount.source.clone(),
            root: mount.root.clone(),
            options: mount.options.clone(),
            super_options: mount.super_options.clone(),
        }
    }

    /// Whether a line says the same.
    #[must_use]
    pub fn is(&self, mount: &Mount) -> bool {
        self.fstype == mount.fstype
            && self.source == mount.source
            && self.root == mount.root
            && self.options == mount.options
            && self.super_options == mount.super_options
    }
}

/// A condition that was not over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    /// `Degraded`, `Recovering`, `Quarantined` or `Probation`; any other is no trouble.
    pub state: HealthState,
    /// Why.
    pub reason: Reason,
    /// Since when, as far as this boot goes back.
    pub since: Monotonic,
    /// Since when on the wall clock, where it began before this boot.
    pub since_wall: Option<Duration>,
    /// Whether errors decided that no look tries: then a good look does not end it at once.
    pub by_errors: bool,
    /// Whether the mount table alone told of it: then it ends with what the table tells, also where nobody may look.
    pub by_table: bool,
    /// The sentence that was shown.
    pub message: String,
}

/// What is known of one mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountMemory {
    /// Its superblock.
    pub superblock: SuperblockId,
    /// Its id in the table.
    pub mount_id: MountId,
    /// Its id that is never used again, where the table tells it.
    pub unique: Option<u64>,
    /// When it was first seen.
    pub since: Monotonic,
    /// It was writable last, or for longer than a mount is in the making.
    pub was_rw: bool,
    /// Storage reported errors.
    pub storage_errors: bool,
    /// When the file system reported that it has shut down.
    pub shutdown: Option<Monotonic>,
    /// When the file system found an error in itself that ended all writing.
    pub writes_ended: Option<Monotonic>,
    /// How many errors the file system had found in itself, behind what tells it from others (`OwnErrors`).
    pub own_errors: Option<(u64, u64)>,
    /// What tells its file system from others with the same number, where something does.
    pub instance: Option<u64>,
    /// Data that was lost on it.
    pub loss: Option<Loss>,
    /// Damage that the file system found in itself.
    pub damage: Option<Damage>,
}
