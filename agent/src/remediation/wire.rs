//! What the executor and its children say to each other: one JSON document in, lines of JSON out.
//!
//! Paths are arrays of bytes, so that none is lost. The shapes live between two copies of one binary and need no
//! version.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent_core::errno::Errno;
use agent_core::id::{MountId, SuperblockId};
use agent_core::path::BytePath;
use agent_core::remediation::consumers::Holding;
use agent_core::remediation::{Action, Marks, Outcome, Plan, Refusal};
use agent_core::time::Monotonic;
use agent_core::verdict::Reason;
use agent_core::volume::{Identity, Method, Reach, Sentinel};
use serde::{Deserialize, Serialize};

use super::attributes::Former;

/// One action, with all that a child needs to carry it out.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Request {
    /// Process id of the executor. The child ends when that does.
    pub(super) parent: u32,
    /// When the child is killed, in nanoseconds on the clock that both read.
    pub(super) deadline: u64,
    pub(super) volume: String,
    pub(super) stage_root: Vec<u8>,
    pub(super) mountpoint: Vec<u8>,
    pub(super) stage: Vec<u8>,
    /// Device number, in the kernel's encoding.
    pub(super) old: Option<u32>,
    /// What tells the old superblock's mounts from those of another one with its number.
    pub(super) marks: Option<WireMarks>,
    /// Device numbers of what else is dead and may be held by somebody; see [`Plan::dead`].
    pub(super) dead: Option<BTreeSet<u32>>,
    /// An earlier step made sure that the old superblock is gone, so that its number may name a new one; or
    /// repaired in place, so that only the answers count.
    pub(super) number_proves_nothing: bool,
    /// An earlier step has looked at what is staged, and it is what it should be.
    pub(super) staged_is_good: bool,
    pub(super) repairs_readonly: bool,
    /// The old mount, where an earlier step took it away.
    pub(super) former: Option<Former>,
    /// See [`Known::related`].
    pub(super) related: Related,
    pub(super) rest: Rest,
    /// The sentinel of the volume, where the plan reads it.
    pub(super) sentinel: Option<WireSentinel>,
    pub(super) action: WireAction,
}

/// What the plan does besides, as far as that can refuse.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub(super) struct Rest {
    /// It shows a new mount in place of the old one.
    pub(super) swaps: bool,
    /// It restarts this unit, if this process is what the unit starts.
    pub(super) restarts: Option<(String, Option<u32>)>,
}

impl Rest {
    fn of(plan: &Plan) -> Self {
        let restarts = plan.actions.iter().find_map(|action| match action {
            Action::RestartUnit { unit, daemon } => Some((unit.clone(), *daemon)),
            _ => None,
        });
        Self { swaps: plan.actions.iter().any(|action| matches!(action, Action::Swap { .. })), restarts }
    }
}

/// What earlier steps of a plan have found out for those that follow.
#[derive(Clone, Default, Debug)]
pub(super) struct Known {
    /// See [`Request::number_proves_nothing`].
    pub(super) number_proves_nothing: bool,
    /// See [`Request::staged_is_good`].
    pub(super) staged_is_good: bool,
    /// See [`Request::former`].
    pub(super) former: Option<Former>,
    /// The consumers that had peers or a master, while the old mount was there: without it a slave has none.
    ///
    /// kernel: `umount_tree`, fs/namespace.c, takes what goes from its peers and slaves.
    pub(super) related: Related,
}

/// Peer groups of mounts, by their ids: their own, and that of their master.
pub(super) type Related = BTreeMap<u32, (Option<u32>, Option<u32>)>;

/// [`Action`] on the wire.
#[derive(Serialize, Deserialize, Debug)]
pub(super) enum WireAction {
    Stage {
        method: WireMethod,
        source: Vec<u8>,
        fstype: String,
        options: Vec<String>,
        environment_file: Option<Vec<u8>>,
    },
    CheckStaged {
        sentinel: Option<WireSentinel>,
        uuid: Option<String>,
        fsid: Option<String>,
        source: Option<Vec<u8>>,
        fstype: Option<String>,
    },
    CheckSource {
        method: WireMethod,
        source: Vec<u8>,
        readonly: bool,
        uuid: Option<String>,
        fsid: Option<String>,
    },
    MountAgain,
    UnmountOld,
    Swap {
        readonly: bool,
    },
    RunInPlace {
        argv: Vec<String>,
        environment_file: Option<Vec<u8>>,
    },
    AbortConnection {
        daemon: Option<u32>,
        is_proven: bool,
    },
    RestartUnit {
        unit: String,
        daemon: Option<u32>,
    },
    Verify {
        sentinel: Option<WireSentinel>,
        uuid: Option<String>,
        fsid: Option<String>,
        source: Option<Vec<u8>>,
        fstype: Option<String>,
    },
    DetachTop,
    Unstage,
    /// Which other mount namespaces have something of what is wanted.
    FindConsumers(WireWanted),
    /// The same, if the mount point shows the old superblock.
    FindShown(WireWanted),
    /// Whether all of them could be taken away; takes none.
    MayCover(WireWanted),
    CoverConsumers(WireWanted),
    SwapConsumers(WireWanted),
}

/// What of the consumers a child is to see to.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(super) struct WireWanted {
    pub(super) holding: Option<WireHolding>,
    /// Also what is the kubelet's.
    pub(super) all: bool,
    /// The only mounts that can be of it; `None`: its number alone tells.
    pub(super) ids: Option<BTreeSet<u32>>,
    /// In which namespace; `None`: where the plan acts.
    pub(super) namespace: Option<WireNamespace>,
}

/// [`Holding`] on the wire.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(super) struct WireHolding {
    pub(super) root: Vec<u8>,
    pub(super) fstype: String,
    pub(super) source: Vec<u8>,
}

impl From<WireHolding> for Holding {
    fn from(WireHolding { root, fstype, source }: WireHolding) -> Self {
        Self { root: BytePath::new(root), fstype, source }
    }
}

/// [`Marks`] on the wire.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(super) struct WireMarks {
    holding: WireHolding,
    unique: BTreeSet<u64>,
    others: BTreeSet<u32>,
    own: BTreeSet<u32>,
}

impl From<&Marks> for WireMarks {
    fn from(Marks { holding, unique, here: _, others, own }: &Marks) -> Self {
        let numbers = |ids: &BTreeSet<MountId>| ids.iter().map(|id| id.0).collect();
        let (others, own) = (numbers(others), numbers(own));
        Self { holding: WireHolding::from(holding), unique: unique.clone(), others, own }
    }
}

impl From<WireMarks> for Marks {
    fn from(WireMarks { holding, unique, others, own }: WireMarks) -> Self {
        let ids = |numbers: BTreeSet<u32>| numbers.into_iter().map(MountId).collect();
        let (others, own) = (ids(others), ids(own));
        Self { holding: holding.into(), unique, here: BTreeSet::new(), others, own }
    }
}

/// A mount namespace, by a process in it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(super) struct WireNamespace {
    pub(super) number: u32,
    pub(super) process: u32,
}

impl WireWanted {
    pub(super) fn new(holding: Option<&Holding>, ids: Option<&BTreeSet<MountId>>, reach: Reach) -> Self {
        let ids = ids.map(|ids| ids.iter().map(|id| id.0).collect());
        let holding = holding.map(WireHolding::from);
        Self { holding, all: reach == Reach::All, ids, namespace: None }
    }
}

impl From<&Holding> for WireHolding {
    fn from(Holding { root, fstype, source }: &Holding) -> Self {
        Self { root: root.as_bytes().to_vec(), fstype: fstype.clone(), source: source.clone() }
    }
}

/// [`Method`] on the wire.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(super) enum WireMethod {
    Mount,
    Fstab,
    Systemd(String),
    Command(Vec<String>),
}

/// [`Sentinel`] on the wire.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(super) struct WireSentinel {
    path: Vec<u8>,
    content: Option<Vec<u8>>,
}

/// One line from the child.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) enum Line {
    /// What it is about to do: shown when it never comes back.
    Progress(String),
    /// The end. The process may take longer to go: the kernel then lets go of the old file system.
    Done(Box<WireReport>),
}

/// What became of one action.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct WireReport {
    outcome: WireOutcome,
    pub(super) text: String,
    gap: Option<u64>,
    gone_at: Option<u64>,
    shown_at: Option<u64>,
    pub(super) number_proves_nothing: bool,
    former: Option<Former>,
    #[serde(default)]
    namespaces: Vec<WireNamespace>,
    #[serde(default)]
    found: BTreeSet<u32>,
    #[serde(default)]
    related: Related,
    #[serde(default)]
    detached: Vec<u32>,
}

#[derive(Serialize, Deserialize, Debug)]
enum WireOutcome {
    Changed,
    AlreadySo,
    Refused(String),
    Failed(u16),
    HelperFailed(i32),
}

/// What became of one action, in the words of the core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    pub(crate) outcome: Outcome,
    /// For people, without secrets.
    pub(super) text: String,
    /// How long the mount point showed nothing, where this step alone knows.
    pub(super) gap: Option<Duration>,
    /// When this step took the old mount away and left nothing.
    pub(super) gone_at: Option<Monotonic>,
    /// When this step showed the new mount where nothing was.
    pub(super) shown_at: Option<Monotonic>,
    /// From now on the old device number is no sign of the old superblock.
    pub(super) number_proves_nothing: bool,
    /// The mount that this step took away and that has to be replaced.
    pub(super) former: Option<Former>,
    /// Other mount namespaces that have something of what was looked for.
    pub(super) namespaces: Vec<WireNamespace>,
    /// The mounts that were looked for, in all of them, by their ids.
    pub(super) found: BTreeSet<u32>,
    /// Those of them that have peers or a master.
    pub(super) related: Related,
    /// Mounts that this step took out of the tables, by their ids.
    pub(super) detached: Vec<u32>,
    /// Its child was killed and has not ended: the call that it waits in may still be carried out.
    pub(super) lives_on: bool,
}

impl Step {
    pub(super) fn new(outcome: Outcome, text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            outcome,
            text,
            gap: None,
            gone_at: None,
            shown_at: None,
            number_proves_nothing: false,
            former: None,
            namespaces: Vec::new(),
            found: BTreeSet::new(),
            related: Related::new(),
            detached: Vec::new(),
            lives_on: false,
        }
    }
}

impl Request {
    pub(super) fn new(
        plan: &Plan,
        action: WireAction,
        stage_root: &BytePath,
        known: Known,
        deadline: Monotonic,
    ) -> Self {
        Self {
            parent: std::process::id(),
            deadline: nanos(deadline.since_boot()),
            volume: plan.volume.as_str().to_owned(),
            stage_root: stage_root.as_bytes().to_vec(),
            mountpoint: plan.mountpoint.as_bytes().to_vec(),
            stage: plan.stage.as_bytes().to_vec(),
            old: plan.old.map(SuperblockId::to_kernel),
            marks: plan.marks.as_ref().map(WireMarks::from),
            dead: plan.dead.as_ref().map(|dead| dead.iter().map(|dead| dead.to_kernel()).collect()),
            number_proves_nothing: known.number_proves_nothing,
            staged_is_good: known.staged_is_good,
            former: known.former,
            related: known.related,
            sentinel: plan.actions.iter().find_map(|action| match action {
                Action::CheckStaged { sentinel, .. } | Action::Verify { sentinel, .. } => {
                    sentinel.as_ref().map(WireSentinel::from)
                }
                _ => None,
            }),
            repairs_readonly: plan.reason == Some(Reason::Readonly),
            rest: Rest::of(plan),
            action,
        }
    }
}

impl From<&Action> for WireAction {
    fn from(action: &Action) -> Self {
        match action {
            Action::Stage { method, source, fstype, options, environment_file } => Self::Stage {
                method: method.into(),
                source: source.clone(),
                fstype: fstype.clone(),
                options: options.clone(),
                environment_file: bytes(environment_file.as_ref()),
            },
            Action::CheckStaged { sentinel, identity: Identity { uuid, fsid }, source, fstype } => {
                Self::CheckStaged {
                    sentinel: sentinel.as_ref().map(WireSentinel::from),
                    uuid: uuid.clone(),
                    fsid: fsid.clone(),
                    source: source.clone(),
                    fstype: fstype.clone(),
                }
            }
            Action::CheckSource { method, source, readonly, identity: Identity { uuid, fsid } } => {
                Self::CheckSource {
                    method: method.into(),
                    source: source.clone(),
                    readonly: *readonly,
                    uuid: uuid.clone(),
                    fsid: fsid.clone(),
                }
            }
            Action::MountAgain => Self::MountAgain,
            Action::UnmountOld => Self::UnmountOld,
            Action::Swap { readonly } => Self::Swap { readonly: *readonly },
            Action::RunInPlace { argv, environment_file } => {
                Self::RunInPlace { argv: argv.clone(), environment_file: bytes(environment_file.as_ref()) }
            }
            Action::AbortConnection { daemon, is_proven } => {
                Self::AbortConnection { daemon: *daemon, is_proven: *is_proven }
            }
            Action::RestartUnit { unit, daemon } => Self::RestartUnit { unit: unit.clone(), daemon: *daemon },
            Action::Verify { sentinel, identity: Identity { uuid, fsid }, source, fstype } => Self::Verify {
                sentinel: sentinel.as_ref().map(WireSentinel::from),
                uuid: uuid.clone(),
                fsid: fsid.clone(),
                source: source.clone(),
                fstype: fstype.clone(),
            },
            Action::DetachTop => Self::DetachTop,
            Action::Unstage => Self::Unstage,
            Action::CoverConsumers { holding, reach } => {
                Self::CoverConsumers(WireWanted::new(Some(holding), None, *reach))
            }
            Action::SwapConsumers { holding, ids, reach } => {
                Self::SwapConsumers(WireWanted::new(holding.as_ref(), ids.as_ref(), *reach))
            }
        }
    }
}

impl WireAction {
    /// The file with variables for the helper that this action starts.
    pub(super) fn environment_file(&self) -> Option<BytePath> {
        match self {
            Self::Stage { environment_file, .. } | Self::RunInPlace { environment_file, .. } => {
                environment_file.clone().map(BytePath::new)
            }
            Self::CheckSource { .. }
            | Self::CheckStaged { .. }
            | Self::MountAgain
            | Self::UnmountOld
            | Self::Swap { .. }
            | Self::AbortConnection { .. }
            | Self::RestartUnit { .. }
            | Self::Verify { .. }
            | Self::DetachTop
            | Self::Unstage
            | Self::FindConsumers(_)
            | Self::FindShown(_)
            | Self::MayCover(_)
            | Self::CoverConsumers(_)
            | Self::SwapConsumers(_) => None,
        }
    }
}

fn bytes(path: Option<&BytePath>) -> Option<Vec<u8>> {
    path.map(|path| path.as_bytes().to_vec())
}

impl From<&Method> for WireMethod {
    fn from(method: &Method) -> Self {
        match method {
            Method::Mount => Self::Mount,
            Method::Fstab => Self::Fstab,
            Method::Systemd(unit) => Self::Systemd(unit.clone()),
            Method::Command(argv) => Self::Command(argv.clone()),
        }
    }
}

impl From<&Sentinel> for WireSentinel {
    fn from(sentinel: &Sentinel) -> Self {
        Self { path: sentinel.path.as_bytes().to_vec(), content: sentinel.content.clone() }
    }
}

impl From<WireSentinel> for Sentinel {
    fn from(sentinel: WireSentinel) -> Self {
        Self { path: BytePath::new(sentinel.path), content: sentinel.content }
    }
}

impl From<Step> for WireReport {
    fn from(step: Step) -> Self {
        Self {
            outcome: match step.outcome {
                Outcome::Changed => WireOutcome::Changed,
                Outcome::AlreadySo => WireOutcome::AlreadySo,
                Outcome::Refused(refusal) => WireOutcome::Refused(refusal.label().to_owned()),
                Outcome::Failed(errno) => WireOutcome::Failed(errno.0),
                Outcome::HelperFailed(code) => WireOutcome::HelperFailed(code),
                // A child never says these of itself; the executor does.
                Outcome::TimedOut | Outcome::Interrupted => WireOutcome::Failed(TIMED_OUT.0),
            },
            text: step.text,
            gap: step.gap.map(nanos),
            gone_at: step.gone_at.map(|at| nanos(at.since_boot())),
            shown_at: step.shown_at.map(|at| nanos(at.since_boot())),
            number_proves_nothing: step.number_proves_nothing,
            former: step.former,
            namespaces: step.namespaces,
            found: step.found,
            related: step.related,
            detached: step.detached,
        }
    }
}

impl From<WireReport> for Step {
    fn from(report: WireReport) -> Self {
        Self {
            outcome: match report.outcome {
                WireOutcome::Changed => Outcome::Changed,
                WireOutcome::AlreadySo => Outcome::AlreadySo,
                WireOutcome::Refused(label) => refusal(&label),
                WireOutcome::Failed(errno) => Outcome::Failed(Errno(errno)),
                WireOutcome::HelperFailed(code) => Outcome::HelperFailed(code),
            },
            text: report.text,
            gap: report.gap.map(Duration::from_nanos),
            gone_at: report.gone_at.map(Monotonic::from_nanos),
            shown_at: report.shown_at.map(Monotonic::from_nanos),
            number_proves_nothing: report.number_proves_nothing,
            former: report.former,
            namespaces: report.namespaces,
            found: report.found,
            related: report.related,
            detached: report.detached,
            lives_on: false,
        }
    }
}

/// ETIMEDOUT.
const TIMED_OUT: Errno = Errno(110);
/// EPROTO: a child that speaks another language.
const PROTOCOL: Errno = Errno(71);

fn refusal(label: &str) -> Outcome {
    let known = Refusal::ALL.into_iter().find(|refusal| refusal.label() == label);
    known.map_or(Outcome::Failed(PROTOCOL), Outcome::Refused)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
