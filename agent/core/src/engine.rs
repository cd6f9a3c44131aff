//! The engine: inputs in, outputs out. The only owner of health state.

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use crate::id::{Generation, MountId, PlanId, ProbeId, SuperblockId, VolumeId};
use crate::observation::{KernelErrors, PlanReport, ProbeReport, Unfinished};
use crate::path::BytePath;
use crate::policy::Policy;
use crate::remediation::Plan;
use crate::status::VolumeStatus;
use crate::time::Monotonic;
use crate::topology::MountTable;
use crate::verdict::{HealthState, Reason};
use crate::volume::Sentinel;

/// Everything that can reach the engine.
#[derive(Clone, Debug)]
pub enum Input {
    /// The settings, at the start and after a reload.
    Policy(Policy),
    /// Plans without an outcome, from the journal, before the first table.
    Unfinished(Vec<Unfinished>),
    /// A new snapshot of the mount table.
    MountTable(MountTable),
    /// Errors met by others.
    Kernel(KernelErrors),
    /// The answer to a probe (the first one: a timed-out probe answers with `TimedOut`).
    Probe(ProbeReport),
    /// An abandoned worker came back or died: its superblock may be probed again.
    ProbeReturned(ProbeId),
    /// A plan ended.
    PlanFinished(PlanReport),
    /// A person asks for a look now.
    ProbeNow(VolumeId),
    /// The time that `next_deadline` named has come.
    Deadline,
}

/// Everything the engine wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Look at a volume.
    Probe(ProbeOrder),
    /// Carry out a plan, after writing it to the journal.
    Execute(Plan),
    /// A plan that mode `dry-run` only tells about.
    WouldExecute(Plan),
    /// A condition changed: log it, count it, tell it.
    Transition(Transition),
    /// The set of superblocks and mount points that the kernel should count for: replaces the last set.
    Track(Vec<Tracked>),
    /// Odd or notable, for the log.
    Note(Note),
}

/// One look at one volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeOrder {
    /// Unique in this run.
    pub id: ProbeId,
    /// For whom.
    pub volume: VolumeId,
    /// Which mount is meant.
    pub generation: Generation,
    /// Where.
    pub mountpoint: BytePath,
    /// What must be found there.
    pub superblock: SuperblockId,
    /// What must be found there.
    pub mount_id: MountId,
    /// The type, for the choice of steps.
    pub fstype: String,
    /// The sentinel to read. Without one, `.mountie` in the root is read if it is there.
    pub sentinel: Option<Sentinel>,
    /// Whether to write a file of the agent's own.
    pub write: bool,
    /// The whole probe must be done by then.
    pub deadline: Duration,
}

/// One mount that the kernel should count for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Tracked {
    /// The superblock.
    pub superblock: SuperblockId,
    /// Inode of the mount's root, once a probe has learnt it.
    pub root_inode: Option<u64>,
    /// Where it is mounted, for errors on names.
    pub mountpoint: BytePath,
}

/// A change of condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transition {
    /// Of which volume.
    pub volume: VolumeId,
    /// From.
    pub from: HealthState,
    /// To.
    pub to: HealthState,
    /// Why, unless healthy or unknown.
    pub reason: Option<Reason>,
    /// When.
    pub at: Monotonic,
    /// When the first kernel evidence for it was seen, for the detection time.
    pub evidence_at: Option<Monotonic>,
    /// One sentence for people.
    pub message: String,
}

/// Odd or notable, for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// About which volume, if one.
    pub volume: Option<VolumeId>,
    /// One sentence for people.
    pub text: String,
}

/// The engine.
#[derive(Debug)]
pub struct Engine {}

impl Engine {
    /// An engine that knows nothing yet. `first_plan` must be above every plan id in the journal.
    #[must_use]
    pub fn new(policy: Policy, first_plan: PlanId) -> Self {
        let _ = (policy, first_plan);
        Self {}
    }

    /// Takes one input and returns what follows from it, in a fixed order. Never fails: odd input becomes a note.
    pub fn handle(&mut self, now: Monotonic, input: Input) -> Vec<Output> {
        let _ = (now, input);
        Vec::new()
    }

    /// When `Input::Deadline` is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        None
    }

    /// What is known about every volume, by name: what exporters show.
    pub fn volumes(&self) -> Vec<VolumeStatus> {
        Vec::new()
    }
}
