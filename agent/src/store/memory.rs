//! The shape on disk of what is known of one volume, and its conversion to and from the core.
//!
//! A moment is written twice: on the wall clock, and on the kernel's clock of that boot. During the same boot the
//! second is exact, whatever the wall clock does meanwhile; after it only the first means anything.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agent_core::errno::Errno;
use agent_core::health::loss::{Acknowledgement, Actor, Loss};
use agent_core::id::{MountId, SuperblockId, VolumeId};
use agent_core::memory::{HookMemory, LeftMemory, Memory, MountMemory, Trouble};
use agent_core::path::BytePath;
use agent_core::remediation::consumers::Holding;
use agent_core::secret::hide;
use agent_core::time::Monotonic;
use agent_core::verdict::{HealthState, Reason};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::place::{FileIdentity, FileMounted, FileOwner};
use super::record::Bytes;

/// The version and the kind of these files.
pub(super) const API_VERSION: &str = "mountie/v2";
pub(super) const KIND: &str = "Volume";
/// A time ahead of us after another boot is a pause that was still to come, or a wall clock that was set back.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// This boot, and its clocks as they are now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Clocks {
    pub(crate) boot: Option<String>,
    pub(crate) now: Monotonic,
    pub(crate) wall: Duration,
}

/// One moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Moment {
    /// Milliseconds since the epoch.
    pub(super) wall_ms: u64,
    /// Nanoseconds since the boot during which it was written.
    pub(super) boot_ns: u64,
}

/// One file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct File {
    api_version: String,
    kind: String,
    pub(super) volume: String,
    mountpoint: Bytes,
    /// Who makes the mount; told, never believed.
    #[serde(default)]
    owner: Option<FileOwner>,
    /// What is mounted there, or was when it was seen last.
    #[serde(default)]
    mounted: Option<FileMounted>,
    #[serde(default)]
    identity: FileIdentity,
    /// The boot during which it was written.
    #[serde(default)]
    boot: Option<String>,
    #[serde(default)]
    trouble: Option<FileTrouble>,
    #[serde(default)]
    falls: Vec<Moment>,
    #[serde(default)]
    attempts: Vec<Moment>,
    #[serde(default)]
    failed_attempts: u32,
    #[serde(default)]
    last_attempt: Option<Moment>,
    #[serde(default)]
    not_before: Option<Moment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<FileHook>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked_of_consumers: Option<FileHook>,
    #[serde(default)]
    was_readable: bool,
    #[serde(default)]
    was_written: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sentinel_read: Option<Bytes>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    put_back: bool,
    #[serde(default)]
    mount: Option<FileMount>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left: Vec<FileLeft>,
    /// What a newer agent wrote: it stays where it is.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileTrouble {
    state: String,
    reason: String,
    since: Moment,
    /// It began before the boot during which it was written.
    #[serde(default)]
    before_boot: bool,
    #[serde(default)]
    by_errors: bool,
    #[serde(default)]
    by_table: bool,
    message: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileMount {
    device: (u32, u32),
    mount_id: u32,
    #[serde(default)]
    unique: Option<u64>,
    since: Moment,
    #[serde(default)]
    was_writable: bool,
    #[serde(default)]
    storage_errors: bool,
    #[serde(default)]
    shutdown: Option<Moment>,
    #[serde(default)]
    writes_ended: Option<Moment>,
    /// Which file system, and how many errors.
    #[serde(default)]
    own_errors: Option<(u64, u64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instance: Option<u64>,
    #[serde(default)]
    loss: Option<FileLoss>,
    #[serde(default)]
    damage: Option<FileLoss>,
}

/// What a hook has said of a repair that is still due.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileHook {
    hook: String,
    #[serde(default)]
    put_off: u32,
    #[serde(default)]
    not_before: Option<Moment>,
    #[serde(default)]
    given_up: Option<String>,
}

/// What was replaced and may still be held.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct FileLeft {
    device: (u32, u32),
    #[serde(default)]
    holding: Option<FileHolding>,
    /// Ids of the mounts that were known.
    #[serde(default)]
    mounts: BTreeSet<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct FileHolding {
    root: Bytes,
    fstype: String,
    source: Bytes,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileLoss {
    at: Moment,
    errno: u16,
    #[serde(default)]
    acknowledged: Option<FileAcknowledgement>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileAcknowledgement {
    at: Moment,
    #[serde(flatten)]
    by: FileActor,
}

/// A person.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct FileActor {
    uid: u32,
    pid: u32,
    comm: String,
}

impl From<&Actor> for FileActor {
    fn from(by: &Actor) -> Self {
        Self { uid: by.uid, pid: by.pid, comm: by.comm.clone() }
    }
}

impl From<FileActor> for Actor {
    fn from(by: FileActor) -> Self {
        Self { uid: by.uid, pid: by.pid, comm: by.comm }
    }
}

impl Clocks {
    pub(super) fn of_now() -> Self {
        let (now, wall) = (crate::sys::clock::now(), crate::sys::clock::wall());
        Self { boot: super::record::current_boot(), now, wall }
    }

    /// A moment of this boot.
    pub(super) fn write(&self, at: Monotonic) -> Moment {
        let wall = if at <= self.now {
            self.wall.saturating_sub(self.now.since(at))
        } else {
            self.wall.saturating_add(at.since(self.now))
        };
        let boot_ns = u64::try_from(at.since_boot().as_nanos()).unwrap_or(u64::MAX);
        Moment { wall_ms: millis(wall), boot_ns }
    }

    /// A moment as this boot sees it. What was before it was at its beginning.
    pub(super) fn read(&self, moment: Moment, is_same_boot: bool) -> Monotonic {
        if is_same_boot {
            return Monotonic::from_nanos(moment.boot_ns);
        }
        let then = Duration::from_millis(moment.wall_ms);
        match self.wall.checked_sub(then) {
            Some(ago) => self.now - ago,
            None => self.now + then.saturating_sub(self.wall).min(LONGEST_PAUSE),
        }
    }

    pub(super) fn is_boot(&self, other: Option<&String>) -> bool {
        self.boot.is_some() && self.boot.as_ref() == other
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl File {
    /// The file for a memory, with what a newer agent had written into it.
    pub(crate) fn new(memory: &Memory, other: Map<String, Value>, clocks: &Clocks) -> Self {
        let all = |times: &[Monotonic]| times.iter().map(|at| clocks.write(*at)).collect();
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            volume: memory.volume.as_str().to_owned(),
            mountpoint: Bytes::from(&memory.mountpoint),
            owner: Some(FileOwner::of(memory)),
            mounted: memory.known.as_deref().map(FileMounted::of),
            identity: FileIdentity::of(memory),
            boot: clocks.boot.clone(),
            trouble: memory.trouble.as_ref().map(|trouble| FileTrouble::new(trouble, clocks)),
            falls: all(&memory.falls),
            attempts: all(&memory.attempts),
            failed_attempts: memory.failed,
            last_attempt: memory.ended.map(|at| clocks.write(at)),
            not_before: memory.not_before.map(|at| clocks.write(at)),
            asked: memory.asked.as_ref().map(|asked| FileHook::new(asked, clocks)),
            asked_of_consumers: memory.asked_of_consumers.as_ref().map(|asked| FileHook::new(asked, clocks)),
            was_readable: memory.was_readable,
            was_written: memory.was_written,
            sentinel_read: memory.sentinel_read.as_ref().map(Bytes::from),
            put_back: memory.put_back,
            mount: memory.mount.as_ref().map(|mount| FileMount::new(mount, clocks)),
            left: memory.left.iter().map(FileLeft::from).collect(),
            other,
        }
    }

    /// What it says, as far as it counts now. Device numbers and mount ids mean nothing after their boot.
    pub(crate) fn into_memory(self, clocks: &Clocks) -> Memory {
        let same = clocks.is_boot(self.boot.as_ref());
        let all = |times: Vec<Moment>| {
            let mut times: Vec<Monotonic> =
                times.into_iter().map(|at| clocks.read(at, same).min(clocks.now)).collect();
            times.sort();
            times
        };
        let known = self.mounted.map(FileMounted::into_known);
        Memory {
            volume: VolumeId::new(self.volume),
            mountpoint: self.mountpoint.into(),
            named: self.owner.is_some_and(|owner| owner.is_configuration()),
            learnt: self.identity.into_learnt(known.as_ref()),
            known: known.map(Arc::new),
            trouble: self.trouble.and_then(|trouble| trouble.into_trouble(clocks, same)),
            falls: all(self.falls),
            attempts: all(self.attempts),
            failed: self.failed_attempts,
            ended: self.last_attempt.map(|at| clocks.read(at, same).min(clocks.now)),
            not_before: self.not_before.map(|at| clocks.read(at, same)),
            asked: self.asked.map(|asked| asked.into_memory(clocks, same)),
            asked_of_consumers: self.asked_of_consumers.map(|asked| asked.into_memory(clocks, same)),
            was_readable: self.was_readable,
            was_written: self.was_written,
            sentinel_read: self.sentinel_read.map(BytePath::from),
            put_back: self.put_back,
            mount: self.mount.filter(|_| same).map(|mount| mount.into_mount(clocks)),
            left: self.left.into_iter().filter(|_| same).map(LeftMemory::from).collect(),
        }
    }
}

impl FileHook {
    fn new(asked: &HookMemory, clocks: &Clocks) -> Self {
        Self {
            hook: hide(&asked.hook),
            put_off: asked.put_off,
            not_before: asked.not_before.map(|at| clocks.write(at)),
            given_up: asked.given_up.as_deref().map(hide),
        }
    }

    fn into_memory(self, clocks: &Clocks, same: bool) -> HookMemory {
        HookMemory {
            hook: self.hook,
            put_off: self.put_off,
            not_before: self.not_before.map(|at| clocks.read(at, same)),
            given_up: self.given_up,
        }
    }
}

impl From<&LeftMemory> for FileLeft {
    fn from(left: &LeftMemory) -> Self {
        let holding = left.holding.as_ref().map(|holding| FileHolding {
            root: Bytes::from(&holding.root),
            fstype: holding.fstype.clone(),
            // A source with a secret in it is not recognised after a restart, and is not written.
            source: Bytes::from(&BytePath::new(shown(&holding.source))),
        });
        let mounts = left.ids.iter().map(|id| id.0).collect();
        Self { device: (left.superblock.major, left.superblock.minor), holding, mounts }
    }
}

fn shown(source: &[u8]) -> Vec<u8> {
    match str::from_utf8(source) {
        Ok(text) => hide(text).into_bytes(),
        Err(_) => source.to_vec(),
    }
}

impl From<FileLeft> for LeftMemory {
    fn from(left: FileLeft) -> Self {
        let (major, minor) = left.device;
        let holding = left.holding.map(|holding| Holding {
            root: holding.root.into(),
            fstype: holding.fstype,
            source: BytePath::from(holding.source).as_bytes().to_vec(),
        });
        let ids = left.mounts.into_iter().map(MountId).collect();
        Self { superblock: SuperblockId { major, minor }, holding, ids }
    }
}

impl FileTrouble {
    fn new(trouble: &Trouble, clocks: &Clocks) -> Self {
        let mut since = clocks.write(trouble.since);
        if let Some(wall) = trouble.since_wall {
            since.wall_ms = millis(wall);
        }
        Self {
            state: trouble.state.label().to_owned(),
            reason: trouble.reason.label().to_owned(),
            since,
            before_boot: trouble.since_wall.is_some(),
            by_errors: trouble.by_errors,
            by_table: trouble.by_table,
            message: hide(&trouble.message),
        }
    }

    /// A word of a newer agent is no trouble that this one knows.
    fn into_trouble(self, clocks: &Clocks, same: bool) -> Option<Trouble> {
        let is_older = self.before_boot || !same;
        Some(Trouble {
            state: HealthState::ALL.into_iter().find(|state| state.label() == self.state)?,
            reason: Reason::ALL.into_iter().find(|reason| reason.label() == self.reason)?,
            since: clocks.read(self.since, same).min(clocks.now),
            since_wall: is_older.then(|| Duration::from_millis(self.since.wall_ms)),
            by_errors: self.by_errors,
            by_table: self.by_table,
            message: self.message,
        })
    }
}

impl FileMount {
    fn new(mount: &MountMemory, clocks: &Clocks) -> Self {
        Self {
            device: (mount.superblock.major, mount.superblock.minor),
            mount_id: mount.mount_id.0,
            unique: mount.unique,
            since: clocks.write(mount.since),
            was_writable: mount.was_rw,
            storage_errors: mount.storage_errors,
            shutdown: mount.shutdown.map(|at| clocks.write(at)),
            writes_ended: mount.writes_ended.map(|at| clocks.write(at)),
            own_errors: mount.own_errors,
            instance: mount.instance,
            loss: mount.loss.as_ref().map(|loss| FileLoss::new(loss, clocks)),
            damage: mount.damage.as_ref().map(|damage| FileLoss::new(damage, clocks)),
        }
    }

    fn into_mount(self, clocks: &Clocks) -> MountMemory {
        let read = |at| clocks.read(at, true);
        let (major, minor) = self.device;
        MountMemory {
            superblock: SuperblockId { major, minor },
            mount_id: MountId(self.mount_id),
            unique: self.unique,
            since: read(self.since),
            was_rw: self.was_writable,
            storage_errors: self.storage_errors,
            shutdown: self.shutdown.map(read),
            writes_ended: self.writes_ended.map(read),
            own_errors: self.own_errors,
            instance: self.instance,
            loss: self.loss.map(|loss| loss.into_loss(clocks)),
            damage: self.damage.map(|damage| damage.into_loss(clocks)),
        }
    }
}

impl FileLoss {
    fn new(loss: &Loss, clocks: &Clocks) -> Self {
        Self {
            at: clocks.write(loss.at),
            errno: loss.errno.0,
            acknowledged: loss
                .acknowledged
                .as_ref()
                .map(|told| FileAcknowledgement { at: clocks.write(told.at), by: FileActor::from(&told.by) }),
        }
    }

    /// Of a mount of this boot.
    fn into_loss(self, clocks: &Clocks) -> Loss {
        Loss {
            at: clocks.read(self.at, true),
            errno: Errno(self.errno),
            acknowledged: self
                .acknowledged
                .map(|told| Acknowledgement { at: clocks.read(told.at, true), by: told.by.into() }),
        }
    }
}
