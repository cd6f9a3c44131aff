//! Which sick volumes get a plan now, and what the end of a plan means.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::consumer::Dead;
use crate::discovery::Presence;
use crate::engine::causes::Below;
use crate::engine::gates::Gate;
use crate::engine::settling::Settled;
use crate::engine::volume::Volume;
use crate::engine::{Engine, Note, Output};
use crate::fstype::{FsClass, is_same_type};
use crate::health::Event;
use crate::health::loss::Actor;
use crate::health::rules::Test;
use crate::id::{Generation, PlanId, SuperblockId, VolumeId};
use crate::observation::PlanReport;
use crate::order::Refused;
use crate::path::BytePath;
use crate::remediation::asking::{Asking, Standing};
use crate::remediation::budget::{Budget, Pace, Permit};
use crate::remediation::ladder::{Rung, rung_for};
use crate::remediation::plan::{Patient, can_repair, class_of, plan, server_of};
use crate::remediation::{Action, Outcome, Plan, Refusal};
use crate::status::{HeldUp, Hold};
use crate::time::Monotonic;
use crate::topology::{Mount, MountTable};
use crate::verdict::{HealthState, Reason, Verdict};
use crate::volume::{Identity, Mode, VolumeSpec};

/// The table is given this long to show what a plan has done.
const TABLE_PATIENCE: Duration = Duration::from_secs(1);

/// A change that the table shows this long after the end of a plan may be its work.
pub(super) const OWN_CHANGE: Duration = Duration::from_secs(2);

/// Storage that failed this long before a volume turned read-only is taken for the cause. Nothing wakes the reader of
/// the table then: it may see the turn only with its next reading.
const CAUSE: Duration = Duration::from_secs(30);

/// File systems whose fsid is made from their UUID; elsewhere it is made from the device number, which another mount
/// may not have. There the UUID itself tells them.
///
/// kernel: `ext4_statfs`, fs/ext4/super.c; `btrfs_statfs`, fs/btrfs/super.c; since 5.x unchanged.
const FSID_OUTLIVES_MOUNT: [&str; 4] = ["ext2", "ext3", "ext4", "btrfs"];

/// A plan that is being carried out.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) plan: Plan,
    /// Of the volume, when it began.
    pub(super) generation: Generation,
    pub(super) superblock: Option<SuperblockId>,
    pub(super) server: Option<Vec<u8>>,
    /// What it settles; `None` for a repair.
    pub(super) settles: Option<Settled>,
    /// Who ordered it; `None` for what the agent decided.
    pub(super) by: Option<Actor>,
    /// From now on it may be the plan itself that changes the place.
    pub(super) shows: bool,
    /// It was told to stop.
    pub(super) is_stopped: bool,
}

impl Running {
    /// Whether it may have ended between the two halves of its swap.
    fn may_be_cut_off(&self, outcome: &Outcome) -> bool {
        let swaps = |action: &Action| matches!(action, Action::Swap { .. });
        let is_cut_off = match outcome {
            Outcome::Failed(_)
            | Outcome::HelperFailed(_)
            | Outcome::TimedOut
            | Outcome::Refused(Refusal::TableChanged) => true,
            // One that is lost comes back as an intent without an outcome.
            Outcome::Changed | Outcome::AlreadySo | Outcome::Refused(_) | Outcome::Interrupted => false,
        };
        is_cut_off && self.shows && self.plan.actions.iter().any(swaps)
    }
}

/// What stands in the way of a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Repairs {
    /// Nothing: make the plan.
    Now(Reason),
    /// Only time.
    At(Monotonic),
    /// The attempts are used up.
    Spent,
    /// It is not repaired.
    No,
}

impl Volume {
    /// Whether and when this volume wants a plan, as far as it alone decides.
    pub(super) fn wants_repair(&self, now: Monotonic) -> Repairs {
        let Some((rung, reason)) = self.rung() else { return Repairs::No };
        let Some(since) = self.wrong_since(reason) else { return Repairs::No };
        let own = since + rung.patience_with(self.watch.deadline);
        let healers = self.others.healer.map(|healer| since + healer.patience());
        let patience =
            [Some(own), healers, self.others.first_until].into_iter().flatten().max().unwrap_or(own);
        if patience > now {
            return Repairs::At(patience);
        }
        if self.watch.mode == Mode::DryRun {
            let is_made = self.due_plan.as_ref().is_some_and(|plan| plan.reason == Some(reason));
            return if is_made { Repairs::No } else { Repairs::Now(reason) };
        }
        let allowed = self.spec.as_ref().map_or(0, |spec| spec.repair.max_attempts);
        let is_for_consumers = reason == Reason::ConsumerStale;
        let budget = if is_for_consumers { &self.consumer_budget } else { &self.budget };
        match (budget.permit(now, allowed), self.asking_for(reason).stand(now, reason)) {
            // The volume itself is good: it is told, and not given up.
            (Permit::Spent, _) | (_, Standing::GivenUp) if is_for_consumers => Repairs::No,
            (Permit::Spent, _) | (_, Standing::GivenUp) => Repairs::Spent,
            (Permit::NotBefore(time), Standing::Waits(until)) => Repairs::At(time.max(until)),
            (Permit::NotBefore(time), _) | (Permit::Now, Standing::Waits(time)) => Repairs::At(time),
            (Permit::Now, Standing::Clear | Standing::Ask | Standing::Out) => Repairs::Now(reason),
        }
    }

    /// Since when the patience of the ladder counts. What has hung is replaced only while a probe is still out: once
    /// that came back with something good the volume is slow, and the next look says more.
    pub(super) fn wrong_since(&self, reason: Reason) -> Option<Monotonic> {
        if reason != Reason::Hung || self.probes.fails_late {
            return Some(self.sick_since);
        }
        self.probes
            .stuck_since
            .or_else(|| self.hangs_as_well())
            .map(|began| self.sick_since.max(began + self.watch.deadline))
    }

    /// Since when it hangs behind the look of another volume on its superblock, if more than that look says so: it
    /// may hang in a directory that this volume does not show. Tasks that wait here are proof. Where the other volume
    /// has left the superblock, nobody will ever look at this one, and it follows.
    fn hangs_as_well(&self) -> Option<Monotonic> {
        let ahead = self.behind.filter(|_| self.evidence.overdue)?;
        let is_waited_for =
            self.evidence.waiting.is_some_and(|waiting| waiting.is_here && waiting.seen >= ahead.since);
        (is_waited_for || ahead.has_left).then_some(ahead.since)
    }

    fn budget_for(&mut self, reason: Reason) -> &mut Budget {
        if reason == Reason::ConsumerStale { &mut self.consumer_budget } else { &mut self.budget }
    }

    /// What a hook says of the consumers does not keep the volume itself from its repair.
    pub(super) const fn asking_for(&self, reason: Reason) -> &Asking {
        if matches!(reason, Reason::ConsumerStale) { &self.consumer_asking } else { &self.asking }
    }

    pub(super) const fn asking_for_mut(&mut self, reason: Reason) -> &mut Asking {
        if matches!(reason, Reason::ConsumerStale) { &mut self.consumer_asking } else { &mut self.asking }
    }

    /// The row of the ladder that applies.
    pub(super) fn rung(&self) -> Option<(&'static Rung, Reason)> {
        let may_act = matches!(self.watch.mode, Mode::Act | Mode::DryRun);
        let is_waiting = self.plan.is_some() || self.hold_until.is_some();
        if !may_act || is_waiting || self.way.is_some() || self.condition.state != HealthState::Degraded {
            return None;
        }
        let Verdict::Sick(reason) = self.judgement.verdict else { return None };
        self.spec.as_ref().filter(|spec| can_repair(spec, reason))?;
        let rung = rung_for(reason, self.class())?;
        (!rung.needs_cause || self.has_cause()).then_some((rung, reason))
    }

    /// Whether the plan that mode `dry-run` tells about is what would be done now.
    fn is_due_still(&self) -> bool {
        let reason = self.rung().map(|(_, reason)| reason);
        self.watch.mode == Mode::DryRun && self.due_plan.as_ref().is_some_and(|plan| plan.reason == reason)
    }

    /// What stands behind it: what is really mounted there; where nothing is, or something else, what the specification
    /// wants, or else what was there when it was seen last.
    pub(super) fn class(&self) -> FsClass {
        let is_its_own = self.shown.is_some() && self.presence != Some(Presence::WrongMount);
        match &self.spec {
            Some(spec) if !is_its_own => {
                let known = self.known.as_deref();
                let (fstype, source) =
                    (known.map(|known| known.fstype.as_str()), known.map(|known| &*known.source));
                class_of(spec, fstype, source)
            }
            Some(_) | None => self.evidence.class,
        }
    }

    /// Whether storage made the volume read-only, or a repair that failed, not a person.
    fn has_cause(&self) -> bool {
        let by_probe = matches!(self.judgement.rule.map(|rule| rule.test), Some(Test::ProbeFails(..)));
        self.evidence.table.emergency_ro || by_probe || self.readonly_by_storage() || self.past.is_put_back
    }

    /// Whether storage failed close before the volume turned read-only.
    pub(super) fn readonly_by_storage(&self) -> bool {
        self.evidence.readonly_cause.is_storage(self.judgement.evidence_at, CAUSE)
    }

    fn own_mount(&self) -> Option<&crate::engine::volume::Shown> {
        self.shown.as_ref().filter(|_| self.presence == Some(Presence::Present))
    }

    /// Where a bind comes from that could not be repaired, because the same dead superblock was there, or nothing yet
    /// but the directory below.
    fn source_awaited(&self) -> Option<BytePath> {
        let awaits = [Refusal::SameSuperblock, Refusal::OtherVolume].map(Refusal::label);
        let was_refused = self.last_outcome.as_deref().is_some_and(|outcome| awaits.contains(&outcome));
        let spec = self.spec.as_ref().filter(|_| was_refused)?;
        let is_bind = spec.options.iter().any(|option| matches!(option.as_str(), "bind" | "rbind"));
        spec.source.as_deref().filter(|source| is_bind && source.starts_with(b"/")).map(BytePath::new)
    }

    /// Whether this line lies on the way to what a bind waits for.
    pub(super) fn awaits(&self, mount: &Mount) -> bool {
        self.source_awaited().is_some_and(|source| source.is_within(&mount.mountpoint))
    }

    /// A bind that waits for its source tries at once when another file system of the type is there: whoever
    /// repaired the source must not wait for the pause of the bind. Once for each mount that comes there: it may be
    /// another volume, whatever its type. Says whether it is so.
    pub(super) fn notice_source(&mut self, table: &MountTable) -> bool {
        let Some(source) = self.source_awaited() else { return false };
        let (Some(there), Some(shown)) = (table.mount_of(&source), self.own_mount()) else { return false };
        let is_candidate = there.superblock != shown.superblock && is_same_type(&shown.fstype, &there.fstype);
        // A number is given out again: the next mount may have that of the last.
        let id = is_candidate.then_some(there.id);
        let is_new = is_candidate && self.tried.source != id;
        self.tried.source = id;
        if is_new {
            self.budget.hurry();
        }
        is_new
    }

    pub(super) fn make_plan(
        &self,
        (id, reason): (PlanId, Reason),
        below: &Below,
        stage_root: &BytePath,
    ) -> Option<Plan> {
        // What a repair brings must have the pinned sentinel as well.
        let spec = VolumeSpec { sentinel: self.sentinel(), ..self.spec.clone()? };
        let shown = self.own_mount();
        let stale = self.held.stale().filter(|_| reason == Reason::ConsumerStale);
        let (old, holding) = match (reason, shown) {
            // Guards stand for something that is gone. Its number may be that of what is to come in their places.
            (Reason::ConsumerStale, _) => {
                let stale = stale?;
                (stale.holding.is_some().then_some(stale.superblock), stale.holding.clone())
            }
            (_, Some(shown)) => (Some(shown.superblock), Some(shown.holding())),
            (_, None) => (None, None),
        };
        let patient = Patient {
            spec: &spec,
            reason,
            old,
            holding,
            stale: stale.filter(|stale| stale.holding.is_some()).map(Dead::mounts),
            fstype: shown.map(|shown| shown.fstype.as_str()),
            source: shown.map(|shown| shown.source.as_slice()),
            identity: self.identity(),
            server: self.server(),
            daemon: shown.and_then(|shown| below.daemon(shown.superblock)),
            unit_was_tried: self.tried.unit,
        };
        // A device has one superblock, and itself says whether that has given up.
        let is_found_again = reason != Reason::ConsumerStale && patient.class() != FsClass::Block;
        let dead = self.held.dead().filter(|_| is_found_again);
        plan(id, &patient, stage_root).map(|plan| Plan { dead, ..plan })
    }

    /// What the operator configured, else what was learnt where it outlives a mount.
    fn identity(&self) -> Identity {
        let Some(spec) = &self.spec else { return Identity::default() };
        let shown = self.own_mount().map(|shown| shown.fstype.as_str());
        // What is not there was seen before, perhaps in an earlier run.
        let fstype = shown.or(self.known.as_deref().map(|known| known.fstype.as_str()));
        if spec.identity != Identity::default() {
            return spec.identity.clone();
        }
        let Some((learnt, fstype)) = self.learnt().zip(fstype) else { return Identity::default() };
        match &learnt.fsid {
            Some(fsid) if FSID_OUTLIVES_MOUNT.contains(&fstype) => {
                Identity { uuid: None, fsid: Some(fsid.clone()) }
            }
            Some(_) | None => Identity { uuid: learnt.uuid.clone(), fsid: None },
        }
    }

    fn end_plan(&mut self, report: &PlanReport, running: &Running, now: Monotonic) -> Option<Event> {
        let plan = &running.plan;
        self.plan = None;
        self.ordered = false;
        // Whatever comes next goes another way, until something has helped. A plan that failed before it came to the
        // restart has not tried it.
        let restarts = |action: &Action| matches!(action, Action::RestartUnit { daemon: Some(_), .. });
        let has_restarted = plan.actions.iter().take(report.actions_begun).any(restarts)
            || report.outcome == Outcome::Refused(Refusal::OtherUnit);
        self.tried.unit = !report.outcome.is_success() && (self.tried.unit || has_restarted);
        self.consumers_followed(plan, report, now);
        self.last_repair = Some((now, report.clone()));
        self.past.is_put_back = !report.outcome.is_success() && (self.past.is_put_back || report.put_back);
        self.probes.want(now);
        if !report.outcome.is_success() {
            self.last_outcome = Some(String::from(report.outcome.label()));
            return Some(Event::PlanFailed);
        }
        self.last_outcome = None;
        self.tried.source = None;
        self.evidence.forget_looks(now);
        // What the table says is from before: the old mount, or none while a device is mounted afresh.
        let shown = self.own_mount().map(|shown| shown.superblock);
        let is_from_before = shown.is_none() || shown == plan.old;
        let is_unseen = is_from_before && self.generation == running.generation;
        self.hold_until = is_unseen.then_some(now + TABLE_PATIENCE);
        None
    }
}

impl Engine {
    /// Makes a plan for a volume if it is due one and nothing stands in the way.
    pub(super) fn consider_repair(&mut self, id: &VolumeId, now: Monotonic, outputs: &mut Vec<Output>) {
        self.wanting.remove(id);
        self.miss_lost(id, now, outputs);
        let is_paused = self.is_paused(id);
        let Some(volume) = self.volumes.get_mut(id) else { return };
        if !volume.condition.state.is_sick() {
            volume.forget_asked();
        }
        if is_paused && volume.watch.mode == Mode::Act {
            self.contacts.leave(id, None);
            return self.hold(id, None, now, outputs);
        }
        let mut held = volume.held_for_a_time(now);
        let wants = volume.wants_repair(now);
        if !matches!(wants, Repairs::Now(_)) || volume.watch.mode == Mode::DryRun {
            self.contacts.leave(id, None);
        }
        match wants {
            Repairs::No | Repairs::At(_) if !volume.is_due_still() => volume.due_plan = None,
            Repairs::No | Repairs::At(_) => {}
            Repairs::Spent => {
                let message = volume.condition.message.clone();
                outputs.extend(volume.apply(Event::BudgetSpent, message, now).map(Output::Transition));
            }
            Repairs::Now(reason) if volume.watch.mode == Mode::DryRun => {
                volume.due_plan =
                    volume.make_plan((self.next_plan, reason), &self.below, &self.policy.stage_root);
                if !core::mem::replace(&mut volume.told_plan, true) {
                    outputs.extend(volume.due_plan.clone().map(Output::WouldExecute));
                }
                self.next_plan = PlanId(self.next_plan.0.saturating_add(1));
            }
            Repairs::Now(reason) => {
                // While a look is out it still waits for a server that is away.
                let waits =
                    |held: &HeldUp| held.hold == Hold::Server && held.until.is_none_or(|until| until > now);
                held = volume.held_up.clone().filter(waits);
                if self.is_repair_blocked(id) {
                    self.wanting.insert(id.clone());
                } else {
                    match self.gate(id, reason, now, outputs) {
                        Gate::Open => {
                            held = None;
                            self.start_repair(id, reason, now, outputs);
                        }
                        Gate::Shut(by) => held = by,
                    }
                }
            }
        }
        self.hold(id, held, now, outputs);
    }

    /// One plan for a volume, a superblock, a server and a place; only so many on the node; none while a worker
    /// is out that would hold the old mount, and none before what a dead run left is settled.
    fn is_repair_blocked(&self, id: &VolumeId) -> bool {
        let Some(volume) = self.volumes.get(id) else { return true };
        self.in_the_way(volume, self.plan_in_the_way(volume)).is_some() || self.is_worked_on(volume)
    }

    /// What keeps an order or a repair from its volume: this plan, or what a dead run left there.
    pub(super) fn in_the_way(&self, volume: &Volume, plan: Option<PlanId>) -> Option<Refused> {
        let is_unsettled = || self.settling.concerns(&volume.id, &volume.mountpoint);
        plan.map(Refused::Busy).or_else(|| is_unsettled().then_some(Refused::Unsettled))
    }

    /// Whether a look at the volume is out, or an errand for it or on its superblock. Not one that hangs.
    pub(super) fn is_worked_on(&self, volume: &Volume) -> bool {
        let superblock = volume.shown.as_ref().map(|shown| shown.superblock);
        let is_looking = volume.probes.outstanding.is_some() && volume.probes.stuck_since.is_none();
        is_looking || self.probing.is_on_errand(&volume.id, superblock)
    }

    /// A running plan that none for this volume may run beside.
    pub(super) fn plan_in_the_way(&self, volume: &Volume) -> Option<PlanId> {
        let superblock = volume.shown.as_ref().map(|shown| shown.superblock);
        let server = volume.server();
        let conflicts = |running: &&Running| {
            running.plan.volume == volume.id
                || running.plan.mountpoint == volume.mountpoint
                || (superblock.is_some() && running.superblock == superblock)
                || (server.is_some() && running.server == server)
        };
        let is_full = self.running.len() >= self.policy.thresholds.plans_at_once;
        let any = self.running.values().next().filter(|_| is_full);
        self.running.values().find(conflicts).or(any).map(|running| running.plan.id)
    }

    fn start_repair(&mut self, id: &VolumeId, reason: Reason, now: Monotonic, outputs: &mut Vec<Output>) {
        let Some(volume) = self.volumes.get_mut(id) else { return };
        let stage_root = &self.policy.stage_root;
        let Some(plan) = volume.make_plan((self.next_plan, reason), &self.below, stage_root) else { return };
        volume.budget_for(reason).start(now);
        volume.asking_for_mut(reason).used();
        self.begin_plan(plan, None, now, outputs);
    }

    /// Hands a plan for one volume out.
    pub(super) fn begin_plan(
        &mut self,
        plan: Plan,
        by: Option<Actor>,
        now: Monotonic,
        outputs: &mut Vec<Output>,
    ) {
        let plan = Plan { marks: self.marks_for(&plan), ..plan };
        let Some(volume) = self.volumes.get_mut(&plan.volume) else { return };
        self.next_plan = PlanId(self.next_plan.0.max(plan.id.0).saturating_add(1));
        outputs.extend(volume.plan_started(plan.id, now).map(Output::Transition));
        let running = Running {
            plan: plan.clone(),
            generation: volume.generation,
            superblock: volume.shown.as_ref().map(|shown| shown.superblock),
            server: volume.server(),
            settles: None,
            by,
            shows: !plan.begins_aside(),
            is_stopped: false,
        };
        self.running.insert(plan.id, running);
        outputs.push(Output::Execute(plan));
    }

    /// Takes the end of a plan.
    pub(super) fn plan_finished(&mut self, report: &PlanReport, now: Monotonic, outputs: &mut Vec<Output>) {
        let Some(running) = self.running.remove(&report.id) else {
            let text = format!("plan {} ended ({}), which is not running", report.id, report.outcome.label());
            outputs.push(Output::Note(Note { volume: None, text }));
            return;
        };
        let id = running.plan.volume.clone();
        self.touched.append(&mut self.wanting);
        self.dead_changed = true;
        self.settling_due = true;
        let Some(settled) = running.settles.clone() else {
            if let Some(volume) = self.volumes.get_mut(&id).filter(|_| running.shows) {
                volume.others.own_until = Some(now + OWN_CHANGE);
            }
            if running.may_be_cut_off(&report.outcome) {
                self.take_failed_swap(&running.plan, now);
            }
            self.repair_finished(report, &running, now, outputs);
            if let Some(by) = running.by {
                self.remount_finished((&id, report.id), (by, &outcome_text(&report.outcome)), now, outputs);
            }
            // What it waits for may have come while it ran.
            if let (Some(table), Some(volume)) = (&self.table, self.volumes.get_mut(&id))
                && volume.notice_source(table)
            {
                self.touched.insert(id);
            }
            return;
        };
        if let Some(volume) = self.volumes.get_mut(&id).filter(|volume| volume.plan == Some(report.id)) {
            volume.plan = None;
            volume.others.own_until = Some(now + OWN_CHANGE);
            volume.probes.want(now);
            self.touched.insert(id);
        }
        self.settling_finished(settled, &report.outcome, now, outputs);
    }

    fn repair_finished(
        &mut self,
        report: &PlanReport,
        running: &Running,
        now: Monotonic,
        outputs: &mut Vec<Output>,
    ) {
        let (plan, thresholds) = (&running.plan, &self.policy.thresholds);
        let id = &plan.volume;
        let Some(volume) = self.volumes.get_mut(id).filter(|volume| volume.plan == Some(report.id)) else {
            return;
        };
        // What a person orders is no attempt of the agent's.
        let is_stopped = report.outcome == Outcome::Refused(Refusal::TableChanged) && !running.shows;
        if running.by.is_none() {
            let pace = Pace { volume: id, flaps: volume.flaps(thresholds, now), thresholds };
            let budget = volume.budget_for(plan.reason.unwrap_or(Reason::Missing));
            budget.end(now, &report.outcome, &pace);
            if is_stopped {
                budget.give_back();
            }
        }
        if report.outcome == Outcome::Refused(Refusal::TableChanged) {
            volume.others.first_until = Some(now + thresholds.others_first);
        }
        if let Some(event) = volume.end_plan(report, running, now) {
            let message = format!("plan {} ended: {}", report.id, outcome_text(&report.outcome));
            outputs.extend(volume.apply(event, message, now).map(Output::Transition));
        }
        self.touched.insert(id.clone());
    }
}

impl Volume {
    fn server(&self) -> Option<Vec<u8>> {
        let source = self.spec.as_ref().and_then(|spec| spec.source.as_deref());
        let source = source.or(self.own_mount().map(|shown| shown.source.as_slice()));
        // What mounts it by itself mounts what was there before.
        let source = source.or(self.known.as_deref().map(|known| known.source.as_slice()))?;
        let known = self.known.as_deref().map(|known| known.fstype.as_str());
        let fstype = self.fstype().or(known).unwrap_or_default();
        server_of(self.class(), fstype, source)
    }
}

fn outcome_text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Failed(errno) => format!("failed with {errno}"),
        Outcome::HelperFailed(code) => format!("the helper ended with {code}"),
        Outcome::Refused(Refusal::TableChanged) => {
            String::from("somebody else changed what is mounted there; it is looked at anew")
        }
        Outcome::Changed
        | Outcome::AlreadySo
        | Outcome::Refused(_)
        | Outcome::TimedOut
        | Outcome::Interrupted => String::from(outcome.label()),
    }
}
