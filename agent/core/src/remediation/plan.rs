//! From a sick volume to a plan: which actions, in which order. Whether and when is not decided here.

use alloc::collections::BTreeSet;
use alloc::{string::String, vec, vec::Vec};
use core::time::Duration;

use crate::discovery::wanted_source;
use crate::fstype::FsClass;
use crate::id::{MountId, PlanId, SuperblockId, VolumeId};
use crate::incident::Daemon;
use crate::path::BytePath;
use crate::remediation::consumers::Holding;
use crate::remediation::ladder::{Below, rung_for};
use crate::remediation::{Action, Marks, Plan};
use crate::source::server;
use crate::verdict::Reason;
use crate::volume::{Identity, Method, Reach, VolumeSpec};

/// The sick volume.
#[derive(Clone, Debug)]
pub struct Patient<'a> {
    /// What it should be.
    pub spec: &'a VolumeSpec,
    /// Why it is sick.
    pub reason: Reason,
    /// The superblock at its place; `None` when nothing is mounted.
    pub old: Option<SuperblockId>,
    /// The type in the table, if it is mounted.
    pub fstype: Option<&'a str>,
    /// The source in the table, if it is mounted.
    pub source: Option<&'a [u8]>,
    /// What the new mount must be, when known.
    pub identity: Identity,
    /// The server behind it, where its source names one.
    pub server: Option<Vec<u8>>,
    /// The process that serves it, or served it last, where that is known.
    pub daemon: Option<&'a Daemon>,
    /// The daemon's unit was restarted for this fault already, and that did not help.
    pub unit_was_tried: bool,
    /// What other mounts of the old superblock look like; without it only guards are replaced.
    pub holding: Option<Holding>,
    /// These mounts, where the volume shows another superblock by now.
    pub stale: Option<BTreeSet<MountId>>,
}

impl Patient<'_> {
    /// What stands behind the volume: by the specification where it says so.
    #[must_use]
    pub fn class(&self) -> FsClass {
        class_of(self.spec, self.fstype, self.source)
    }
}

/// What stands behind a named volume: by its specification where it says so, else by the table.
#[must_use]
pub fn class_of(spec: &VolumeSpec, fstype: Option<&str>, source: Option<&[u8]>) -> FsClass {
    let wanted = spec.fstype.as_deref().filter(|wanted| !matches!(*wanted, "auto" | "none" | "bind"));
    let source = spec.source.as_deref().or(source).unwrap_or_default();
    FsClass::of(wanted.or(fstype).unwrap_or_default(), source)
}

/// Whether the specification says enough to make the mount again.
#[must_use]
pub fn is_repairable(spec: &VolumeSpec) -> bool {
    match &spec.repair.method {
        Method::Mount => spec.source.is_some() && spec.fstype.is_some(),
        Method::Fstab => true,
        Method::Systemd(unit) => !unit.is_empty(),
        Method::Command(argv) => !argv.is_empty(),
    }
}

/// Whether it says enough for what a reason asks for: consumers only follow a mount that is there.
#[must_use]
pub fn can_repair(spec: &VolumeSpec, reason: Reason) -> bool {
    match reason {
        Reason::ConsumerStale => spec.repair.consumers != Reach::Nothing,
        _ => is_repairable(spec),
    }
}

/// The plan for one attempt; `None` when the specification does not say enough.
#[must_use]
pub fn plan(id: PlanId, patient: &Patient<'_>, stage_root: &BytePath) -> Option<Plan> {
    let spec = patient.spec;
    if !can_repair(spec, patient.reason) {
        return None;
    }
    let actions = actions(patient)?;
    Some(Plan {
        id,
        volume: spec.id.clone(),
        reason: Some(patient.reason),
        mountpoint: spec.mountpoint.clone(),
        stage: stage_path(stage_root, id),
        old: patient.old,
        marks: None,
        dead: None,
        server: patient.server.clone(),
        undo: undo(&actions),
        actions,
        // The two looks of the plan come on top of its helper, with the probe deadline each.
        timeout: spec.repair.timeout.saturating_add(spec.watch.deadline.saturating_mul(2)),
        helper_timeout: spec.repair.timeout,
    })
}

/// The private place of a plan.
#[must_use]
pub fn stage_path(stage_root: &BytePath, id: PlanId) -> BytePath {
    stage_root.join(alloc::format!("{id}").as_bytes())
}

/// A plan that only takes away what an earlier plan left half-made.
#[must_use]
pub fn settling(id: PlanId, place: Place, actions: Vec<Action>) -> Plan {
    Plan {
        id,
        volume: place.volume,
        reason: None,
        mountpoint: place.mountpoint,
        stage: place.stage,
        old: place.old,
        marks: place.marks,
        dead: None,
        server: None,
        actions,
        undo: Vec::new(),
        timeout: Duration::from_secs(60),
        helper_timeout: Duration::ZERO,
    }
}

/// Where an earlier plan worked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// For which volume.
    pub volume: VolumeId,
    /// The mount point it worked on.
    pub mountpoint: BytePath,
    /// The private place it used.
    pub stage: BytePath,
    /// The superblock it wanted to replace.
    pub old: Option<SuperblockId>,
    /// What that one's mounts are known by.
    pub marks: Option<Marks>,
}

fn actions(patient: &Patient<'_>) -> Option<Vec<Action>> {
    let spec = patient.spec;
    if patient.reason == Reason::ConsumerStale {
        return followed(patient);
    }
    let environment_file = spec.repair.environment_file.clone();
    Some(match (&spec.repair.method, patient.unit()) {
        (Method::Systemd(unit), _) => {
            in_place(patient, Action::RestartUnit { unit: unit.clone(), daemon: None })
        }
        (Method::Command(argv), _) if !mentions(argv, "{target}") => {
            in_place(patient, Action::RunInPlace { argv: argv.clone(), environment_file })
        }
        (Method::Mount | Method::Fstab | Method::Command(_), None) => staged(patient),
        (Method::Mount | Method::Fstab | Method::Command(_), Some(restart)) => restarted(patient, restart),
    })
}

impl Patient<'_> {
    fn heals(&self, step: Below) -> bool {
        let rung = rung_for(self.reason, self.class()).filter(|_| self.spec.repair.heal_below);
        rung.is_some_and(|rung| rung.below.contains(&step))
    }

    /// The restart of the daemon's unit, where that comes before a new mount. A command is the operator's own way, and
    /// nothing comes before it.
    fn unit(&self) -> Option<Action> {
        let is_due = matches!(self.spec.repair.method, Method::Mount | Method::Fstab)
            && !self.unit_was_tried
            && self.heals(Below::RestartUnit);
        let daemon = self.daemon.filter(|_| is_due)?;
        Some(Action::RestartUnit { unit: daemon.unit.clone()?, daemon: Some(daemon.pid) })
    }

    /// The end of the old connection, where that is what hangs.
    fn abort(&self, is_proven: bool) -> Option<Action> {
        self.old.filter(|_| self.heals(Below::AbortConnection))?;
        Some(Action::AbortConnection { daemon: self.daemon.map(|daemon| daemon.pid), is_proven })
    }
}

/// Something else mounts at the very place. What hangs there would keep it from unmounting the old one.
fn in_place(patient: &Patient<'_>, repair: Action) -> Vec<Action> {
    let mut actions: Vec<Action> = patient.abort(false).into_iter().collect();
    actions.extend(shown_in_place(patient, repair));
    actions
}

/// The repair at the place itself; who held the old one follows.
fn shown_in_place(patient: &Patient<'_>, repair: Action) -> Vec<Action> {
    let mut actions = vec![repair, verified_in_place(patient)];
    if let Some(swap) = swap_consumers(patient) {
        actions.extend([swap, Action::Unstage]);
    }
    actions
}

/// The daemon's unit mounts again. A daemon that hangs is ended only when a mount beside it has answered: else what it
/// asks is at fault, and its end would leave the place empty for nothing.
fn restarted(patient: &Patient<'_>, restart: Action) -> Vec<Action> {
    let mut actions = Vec::with_capacity(8);
    if let Some(abort) = patient.abort(true) {
        actions.extend(made_aside(patient));
        actions.push(abort);
        actions.push(Action::Unstage);
    }
    actions.extend(shown_in_place(patient, restart));
    actions
}

/// A swap that was cut off between its halves is finished, and what was unmounted comes back. Consumers come back to
/// the volume, or else to the old one, before the private place is cleared.
fn undo(actions: &[Action]) -> Vec<Action> {
    let has = |is_meant: fn(&Action) -> bool| actions.iter().any(is_meant);
    let swaps = has(|action| matches!(action, Action::Swap { .. }));
    let unmounts = has(|action| matches!(action, Action::UnmountOld));
    let covers = actions.iter().find_map(|action| match action {
        Action::CoverConsumers { reach, .. } => Some(*reach),
        _ => None,
    });
    let mut undo: Vec<Action> = swaps.then_some(Action::DetachTop).into_iter().collect();
    undo.extend(unmounts.then_some(Action::MountAgain));
    undo.extend(covers.map(|reach| Action::SwapConsumers { holding: None, ids: None, reach }));
    undo.push(Action::Unstage);
    undo
}

/// The host's mount is good: only its consumers are to follow.
fn followed(patient: &Patient<'_>) -> Option<Vec<Action>> {
    // Guards are known by what they say of themselves.
    let is_known = patient.old.is_some() || patient.holding.is_none();
    let swap = swap_consumers(patient).filter(|_| is_known)?;
    // What is there now is what they are to show.
    Some(vec![verified_in_place(patient), swap, Action::Unstage])
}

/// Somebody else has mounted what is there: whether it is the volume is asked before anybody is moved to it.
fn verified_in_place(patient: &Patient<'_>) -> Action {
    let spec = patient.spec;
    Action::Verify {
        sentinel: spec.sentinel.clone(),
        identity: patient.identity.clone(),
        source: wanted_source(spec).map(<[u8]>::to_vec),
        fstype: spec.fstype.clone(),
    }
}

/// The consumers' part of a plan, where it has one.
fn swap_consumers(patient: &Patient<'_>) -> Option<Action> {
    let reach = patient.spec.repair.consumers;
    (reach != Reach::Nothing).then(|| Action::SwapConsumers {
        holding: patient.holding.clone(),
        ids: patient.stale.clone(),
        reach,
    })
}

/// Make the new mount aside, look at it, and show it in place of the old one.
fn staged(patient: &Patient<'_>) -> Vec<Action> {
    let spec = patient.spec;
    let mut actions = Vec::with_capacity(9);
    // A device that is mounted already would give the same dead superblock again.
    if patient.old.is_some() && patient.class() == FsClass::Block {
        actions.extend(checked_source(patient));
        let reach = spec.repair.consumers;
        let holding = patient.holding.clone().filter(|_| reach != Reach::Nothing);
        actions.extend(holding.map(|holding| Action::CoverConsumers { holding, reach }));
        actions.push(Action::UnmountOld);
    }
    actions.extend(made_aside(patient));
    // Before the swap: the old mount still stands in the table, so it is certain whose connection is ended.
    actions.extend(patient.abort(true));
    actions.push(Action::Swap { readonly: spec.wants_readonly() });
    actions.push(Action::Verify {
        sentinel: spec.sentinel.clone(),
        identity: Identity::default(),
        source: None,
        fstype: None,
    });
    actions.extend(swap_consumers(patient));
    actions.push(Action::Unstage);
    actions
}

/// A command knows by itself what it mounts.
fn checked_source(patient: &Patient<'_>) -> Option<Action> {
    let spec = patient.spec;
    let method = spec.repair.method.clone();
    matches!(method, Method::Mount | Method::Fstab).then(|| Action::CheckSource {
        method,
        source: source_of(patient),
        readonly: spec.wants_readonly(),
        identity: patient.identity.clone(),
    })
}

fn source_of(patient: &Patient<'_>) -> Vec<u8> {
    patient.spec.source.as_deref().or(patient.source).unwrap_or_default().to_vec()
}

fn made_aside(patient: &Patient<'_>) -> [Action; 2] {
    let spec = patient.spec;
    let stage = Action::Stage {
        method: spec.repair.method.clone(),
        source: source_of(patient),
        fstype: spec.fstype.as_deref().or(patient.fstype).map(String::from).unwrap_or_default(),
        options: spec.options.clone(),
        environment_file: spec.repair.environment_file.clone(),
    };
    let check = Action::CheckStaged {
        sentinel: spec.sentinel.clone(),
        identity: patient.identity.clone(),
        source: wanted_source(spec).map(<[u8]>::to_vec),
        fstype: spec.fstype.clone(),
    };
    [stage, check]
}

fn mentions(argv: &[String], placeholder: &str) -> bool {
    argv.iter().any(|argument| argument.contains(placeholder))
}

/// The server of a volume, for the limit of one plan per server.
#[must_use]
pub fn server_of(class: FsClass, fstype: &str, source: &[u8]) -> Option<Vec<u8>> {
    match class {
        FsClass::Network | FsClass::Fuse => server(fstype, source).map(<[u8]>::to_vec),
        FsClass::Block
        | FsClass::Autofs
        | FsClass::Overlay
        | FsClass::Memory
        | FsClass::Pseudo
        | FsClass::Other => None,
    }
}

#[cfg(test)]
mod tests;
