//! The engine: inputs in, outputs out. The only owner of health state.
//!
//! One turn: take the input, mark the volumes it concerns, judge each of those in the order of their names, let
//! the next probes and plans follow, tell the kernel's side if the set of mounts changed. A turn costs what it
//! concerns, never the number of mounts (only a new table does) and never the number of volumes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{boxed::Box, string::String, sync::Arc, vec::Vec};
use core::time::Duration;

use crate::consumer::{Consumers, Dead};
use crate::engine::causes::Below;
use crate::engine::errands::Errands;
use crate::engine::incidents::Incidents;
use crate::engine::probing::Probing;
use crate::engine::reach::Contacts;
use crate::engine::repair::{Repairs, Running};
use crate::engine::settling::Settling;
use crate::engine::volume::Volume;
use crate::health::evidence::Look;
use crate::health::loss::Actor;
use crate::id::{Generation, MountId, PlanId, ProbeId, QuestionId, SuperblockId, VolumeId};
use crate::incident::{Daemon, Device, Incident, IncidentId, Moment};
use crate::memory::Memory;
use crate::observation::{Census, KernelErrors, OwnErrors, PlanReport, ProbeReport, ReachReport, Unfinished};
use crate::order::{Deed, Done, NodeDeed, Order, Refused};
use crate::path::BytePath;
use crate::pause::Pauses;
use crate::policy::{Policy, Thresholds};
use crate::remediation::asking::{AnswerReport, Question};
use crate::remediation::{Outcome, Plan};
use crate::status::{Hold, VolumeStatus};
use crate::time::Monotonic;
use crate::topology::MountTable;
use crate::verdict::{HealthState, Reason};
use crate::volume::{ProbeUser, Sentinel};

mod acknowledge;
mod causes;
mod census;
mod consumers;
mod controls;
mod errands;
mod gates;
mod incidents;
mod judging;
mod kernel;
mod links;
mod memory;
mod others;
mod pace;
mod place;
mod probing;
mod reach;
mod repair;
mod report;
mod settling;
mod table;
mod volume;

pub use errands::NoErrand;
pub use reach::ReachOrder;

/// Everything that can reach the engine.
#[derive(Clone, Debug)]
pub enum Input {
    /// The settings, at the start and after a reload.
    Policy(Policy),
    /// Plans without an outcome: those of an earlier run before the first table, those that were lost at any time.
    Unfinished(Vec<Unfinished>),
    /// What was remembered of an earlier run. Before the first table.
    Remembered(Vec<Memory>),
    /// A new snapshot of the mount table.
    MountTable(MountTable),
    /// The mount namespace that the table is of, by its inode number. Before the first table, where it is known.
    Namespace(u32),
    /// Errors met by others.
    Kernel(KernelErrors),
    /// How many errors a file system has found in itself.
    OwnErrors(OwnErrors),
    /// Which file system has the number of this superblock, by something that is never used again.
    Instance(SuperblockId, u64),
    /// Who waits on tracked superblocks; replaces the last census.
    Census(Census),
    /// Who holds what volumes showed before; replaces what was known of the superblocks in it.
    Consumers(Consumers),
    /// The answer to a probe (the first one: a timed-out probe answers with `TimedOut`).
    Probe(ProbeReport),
    /// The worker of a probe that timed out is gone, or an errand is over: its superblock may be probed again.
    ProbeReturned(ProbeId),
    /// A probe that had timed out has answered, and its worker is gone.
    ProbeLate(ProbeReport),
    /// A plan is about to change its volume's place itself. Before the table that shows it.
    PlanShows(PlanId),
    /// A plan ended.
    PlanFinished(PlanReport),
    /// A hook has answered, or has not.
    Answered(AnswerReport),
    /// A server was tried.
    Reached(ReachReport),
    /// Where the mount point of a volume leads over a symbolic link, as asked for; `None`: to no other path. Where nobody
    /// can tell there is no such input.
    Leads(VolumeId, Option<BytePath>),
    /// A person asks for a look now.
    ProbeNow(VolumeId),
    /// A person knows of the data that this volume has lost, or of the damage that it has found in itself.
    Acknowledge {
        /// Which volume.
        volume: VolumeId,
        /// Who.
        by: Actor,
    },
    /// A person orders something.
    Order {
        /// What.
        order: Order,
        /// Who.
        by: Actor,
    },
    /// The pauses that an earlier run left. Before the first table.
    Pauses(Pauses),
    /// Which devices lie below which superblocks, nearest first; replaces what was known.
    Devices(BTreeMap<SuperblockId, Vec<Device>>),
    /// Which processes serve which FUSE file systems. One that is not named any more stays known: when a daemon has
    /// died is when it is asked for.
    Daemons(BTreeMap<SuperblockId, Daemon>),
    /// A person wants a worker to do something else there. [`Input::ProbeReturned`] ends it.
    Errand(VolumeId),
    /// The worker of an errand, which began then, has not come back: it blocks its superblock as a look would, until
    /// [`Input::ProbeReturned`].
    ErrandHangs(ProbeId, Monotonic),
    /// Sentinels that people had put on volumes: replaces the last set. The configuration goes before them.
    Pins(BTreeMap<VolumeId, Sentinel>),
    /// Something happened to this superblock that says nothing by itself: its volumes are looked at now.
    Look(SuperblockId),
    /// The number of this superblock belongs to another one by now: it was unmounted and mounted again, perhaps so
    /// quickly that the table cannot tell the two apart. The old one was still there at that time.
    Renewed(SuperblockId, Monotonic),
    /// The time that `next_deadline` named has come.
    Deadline,
}

/// Everything the engine wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Look at a volume.
    Probe(ProbeOrder),
    /// Do there what a person asked for.
    Errand(ProbeOrder),
    /// A look that hangs is of no use any more, and must not keep alive what it looks at: end its worker, if the kernel
    /// lets it go. [`Input::ProbeReturned`] follows then.
    LetGo(ProbeId),
    /// Nothing can be done there.
    NoErrand {
        /// Where.
        volume: VolumeId,
        /// Why.
        why: NoErrand,
    },
    /// Carry out a plan, after writing it to the journal.
    Execute(Plan),
    /// A plan that mode `dry-run` only tells about.
    WouldExecute(Plan),
    /// End a plan before it shows anything, and undo what it has made: somebody else is at work. Once it shows the new
    /// mount it goes on.
    Stop(PlanId),
    /// Ask a hook.
    Ask(Box<Question>),
    /// Try whether a server can be reached.
    Reach(ReachOrder),
    /// Find out where the mount point of a volume leads, at which nothing is mounted. [`Input::Leads`] follows
    /// when somebody can tell.
    Follow(VolumeId, BytePath),
    /// A repair that is due begins to wait for something.
    Held(VolumeId, Hold),
    /// A condition changed: log it, count it, tell it.
    Transition(Transition),
    /// The set of superblocks and mount points that the kernel should count for: replaces the last set.
    Track(Vec<Tracked>),
    /// An intent of an earlier run came to its end, by a settling plan or because nothing was left to do: the
    /// store writes this outcome for it.
    Settled {
        /// The plan of the earlier run.
        plan: PlanId,
        /// Always [`Outcome::Interrupted`].
        outcome: Outcome,
    },
    /// The superblocks whose mounts and open files are to be found, in all namespaces: replaces the last set.
    FindConsumers(Vec<Dead>),
    /// What became of an acknowledgement.
    Acknowledged {
        /// Of which volume.
        volume: VolumeId,
        /// Whether there was anything to acknowledge.
        answer: AckAnswer,
    },
    /// What came of an order.
    Ordered(Box<Result<Done, Refused>>),
    /// The store keeps these pauses, in the place of what it kept of them.
    Pauses(Pauses),
    /// Somebody did something that is about no volume's history.
    Deed(NodeDeed),
    /// An incident is told.
    Incident(Moment, Arc<Incident>),
    /// The store keeps this, in the place of what it kept of that volume.
    Remember(Box<Memory>),
    /// The volume is none any more: the store forgets it.
    Forget(VolumeId),
    /// Odd or notable, for the log.
    Note(Note),
}

/// What became of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckAnswer {
    /// It is acknowledged.
    Done,
    /// No loss and no damage is open.
    Nothing,
    /// There is no such volume.
    NoSuchVolume,
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
    /// The directory of the superblock that is shown there.
    pub root: BytePath,
    /// The type, for the choice of steps.
    pub fstype: String,
    /// The sentinel to read. Without one, `.mountie` in the root is read if it is there.
    pub sentinel: Option<Sentinel>,
    /// Whether to write a file of the agent's own.
    pub write: bool,
    /// As whom to look, where not as the agent.
    pub user: Option<ProbeUser>,
    /// Whether the mount lies on an automount trap, which no look may spring.
    pub is_automount: bool,
    /// The whole probe must be done by then.
    pub deadline: Duration,
}

/// One mount that the kernel should count for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Tracked {
    /// The superblock.
    pub superblock: SuperblockId,
    /// Inode of the mount's root, or what stands for it, once a probe has learnt it.
    pub root_inode: Option<u64>,
    /// Where it is mounted, for errors on names.
    pub mountpoint: BytePath,
}

/// A change of condition, or what a person said about one.
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
    /// The incident that the volume was part of.
    pub incident: Option<IncidentId>,
    /// Something that a person did; the state is the same before and after then.
    pub deed: Option<Deed>,
    /// The person.
    pub by: Option<Actor>,
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
pub struct Engine {
    policy: Policy,
    table: Option<MountTable>,
    /// The mount namespace that it is of.
    namespace: Option<u32>,
    volumes: BTreeMap<VolumeId, Volume>,
    /// The volumes on each superblock, for the kernel's counts.
    by_superblock: BTreeMap<SuperblockId, Vec<VolumeId>>,
    probing: Probing,
    errands: Errands,
    pins: BTreeMap<VolumeId, Sentinel>,
    /// Superblocks on which a probe ended in this turn.
    freed: Vec<SuperblockId>,
    running: BTreeMap<PlanId, Running>,
    next_plan: PlanId,
    /// Questions that are out, and when each counts as lost.
    questions: BTreeMap<QuestionId, Monotonic>,
    last_question: u64,
    contacts: Contacts,
    /// Volumes that want a plan and wait for another to end.
    wanting: BTreeSet<VolumeId>,
    settling: Settling,
    settling_due: bool,
    /// What an earlier run knew of volumes that have not been seen in this one.
    remembered: BTreeMap<VolumeId, Memory>,
    /// Until when it is kept; `None` before the first table.
    remembered_until: Option<Monotonic>,
    /// Volumes that an earlier run had found, and that the first table did not show.
    absent: BTreeSet<VolumeId>,
    pauses: Pauses,
    /// What lies below the volumes.
    below: Below,
    incidents: Incidents,
    tracked: Vec<Tracked>,
    /// What was last asked about.
    dead: Vec<Dead>,
    /// What is to be asked about may have changed.
    dead_changed: bool,
    /// A volume came, went, or moved: the kernel's side is told at once.
    track_changed: bool,
    /// A probe learnt a root: the kernel's side is told when some more may have come together.
    track_learnt: bool,
    track_not_before: Option<Monotonic>,
    /// When each volume is looked at without being asked, soonest first.
    wakes: BTreeSet<(Monotonic, VolumeId)>,
    /// Volumes that this turn concerns.
    touched: BTreeSet<VolumeId>,
    now: Monotonic,
}

impl Engine {
    /// An engine that knows nothing yet. `first_plan` must be above every plan id in the journal.
    #[must_use]
    pub fn new(policy: Policy, first_plan: PlanId) -> Self {
        let mut engine = Self {
            policy: Policy::default(),
            table: None,
            namespace: None,
            volumes: BTreeMap::new(),
            by_superblock: BTreeMap::new(),
            probing: Probing::default(),
            errands: Errands::default(),
            pins: BTreeMap::new(),
            freed: Vec::new(),
            running: BTreeMap::new(),
            next_plan: first_plan,
            questions: BTreeMap::new(),
            last_question: 0,
            contacts: Contacts::default(),
            wanting: BTreeSet::new(),
            settling: Settling::default(),
            settling_due: false,
            remembered: BTreeMap::new(),
            remembered_until: None,
            absent: BTreeSet::new(),
            pauses: Pauses::default(),
            below: Below::default(),
            incidents: Incidents::default(),
            tracked: Vec::new(),
            dead: Vec::new(),
            dead_changed: false,
            track_changed: false,
            track_learnt: false,
            track_not_before: None,
            wakes: BTreeSet::new(),
            touched: BTreeSet::new(),
            now: Monotonic::default(),
        };
        // A fresh volume changes no state by being told its settings.
        engine.take_policy(policy, Monotonic::default(), &mut Vec::new());
        engine
    }

    /// Takes one input and returns what follows from it, in a fixed order. Never fails: odd input becomes a note.
    pub fn handle(&mut self, now: Monotonic, input: Input) -> Vec<Output> {
        // Records of several CPUs and several tasks race; the engine's own time only goes forward.
        self.now = self.now.max(now);
        let now = self.now;
        let mut outputs = Vec::new();
        let may_leave = probing::may_leave_looks_behind(&input);
        match input {
            Input::Policy(policy) => self.take_policy(policy, now, &mut outputs),
            Input::Unfinished(unfinished) => self.take_unfinished(unfinished, now),
            Input::Remembered(memories) => self.take_remembered(memories, now),
            Input::MountTable(table) => self.take_table(table, now, &mut outputs),
            Input::Namespace(own) => self.namespace = Some(own),
            Input::Kernel(errors) => self.take_errors(&errors, now, &mut outputs),
            Input::Census(census) => self.take_census(census, now),
            Input::Consumers(consumers) => self.take_consumers(&consumers),
            Input::Probe(report) => self.take_probe(&report, now, &mut outputs),
            Input::ProbeReturned(id) => self.probe_returned(id, now),
            Input::ProbeLate(report) => self.probe_late(&report, now),
            Input::PlanShows(id) => self.plan_shows(id),
            Input::PlanFinished(report) => self.plan_finished(&report, now, &mut outputs),
            Input::Answered(report) => self.take_answer(&report, now, &mut outputs),
            Input::Reached(report) => self.take_reach(&report, now),
            Input::Leads(id, path) => self.take_link(&id, path, &mut outputs),
            Input::ProbeNow(id) => self.probe_now(id, now, &mut outputs),
            Input::Acknowledge { volume, by } => self.acknowledge(volume, by, now, &mut outputs),
            Input::Order { order, by } => self.take_order(order, by, now, &mut outputs),
            Input::Pauses(pauses) => self.take_pauses(pauses),
            Input::Devices(devices) => self.take_devices(devices),
            Input::Daemons(daemons) => self.take_daemons(daemons),
            Input::Errand(id) => self.take_errand(id, &mut outputs),
            Input::ErrandHangs(id, began) => self.errand_hangs(id, began.min(now)),
            Input::Pins(pins) => self.take_pins(pins),
            Input::Look(superblock) => self.look_at(superblock, now),
            Input::OwnErrors(own) => self.take_own_errors(&own, now, &mut outputs),
            Input::Instance(superblock, instance) => {
                self.take_instance(superblock, instance, now, &mut outputs);
            }
            Input::Renewed(superblock, seen) => self.renewed(superblock, (seen, now), &mut outputs),
            Input::Deadline => {}
        }
        self.expire_pauses(now, &mut outputs);
        self.settle(now, &mut outputs);
        self.wake(now);
        self.wake_held(now);
        for id in core::mem::take(&mut self.touched) {
            self.process(&id, now, &mut outputs);
        }
        self.serve_waiting(now, &mut outputs);
        self.try_servers(now, &mut outputs);
        self.track(now, &mut outputs);
        let has_moved = outputs.iter().any(|output| matches!(output, Output::Transition(_)));
        if core::mem::take(&mut self.dead_changed) || has_moved {
            self.ask_consumers(&mut outputs);
        }
        self.forget_unclaimed(now, &mut outputs);
        self.incidents.tick(now, &mut outputs);
        if may_leave || outputs.iter().any(|output| matches!(output, Output::Execute(_))) {
            self.let_go(&mut outputs);
        }
        outputs
    }

    /// When `Input::Deadline` is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        let volume = self.wakes.first().map(|(time, _)| *time);
        let settling = self.settling.next_due().filter(|due| *due > self.now);
        let track = self.track_not_before.filter(|_| self.track_learnt);
        let unclaimed =
            self.remembered_until.filter(|_| !self.remembered.is_empty() || !self.absent.is_empty());
        let (held, pause) = (self.next_held(), self.pauses.next_end());
        [volume, settling, track, unclaimed, held, pause, self.incidents.next_due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// What is known about every volume, by name: what exporters show.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeStatus> {
        self.volumes.values().map(|volume| self.status(volume)).collect()
    }

    /// What is known about one volume.
    #[must_use]
    pub fn volume(&self, id: &VolumeId) -> Option<VolumeStatus> {
        self.volumes.get(id).map(|volume| self.status(volume))
    }

    /// A person asks for a look now.
    fn probe_now(&mut self, id: VolumeId, now: Monotonic, outputs: &mut Vec<Output>) {
        match self.volumes.get_mut(&id) {
            Some(volume) => {
                // However many ask at the same time, one look answers them all: also one that is out.
                if volume.probes.outstanding.is_none() {
                    volume.probes.want(now);
                }
                self.touched.insert(id);
            }
            None => {
                let text = String::from("a look was asked for at a volume that is not known");
                outputs.push(Output::Note(Note { volume: Some(id), text }));
            }
        }
    }

    fn take_pins(&mut self, pins: BTreeMap<VolumeId, Sentinel>) {
        self.pins = pins;
        for volume in self.volumes.values_mut() {
            volume.pin = self.pins.get(&volume.id).cloned();
        }
    }

    /// A look at every volume on a superblock. Asked for like a hint, so that a superblock to which something
    /// happens all the time is not looked at all the time.
    fn look_at(&mut self, superblock: SuperblockId, now: Monotonic) {
        let window = self.policy.thresholds.evidence_window;
        for id in self.by_superblock.get(&superblock).into_iter().flatten() {
            if let Some(volume) = self.volumes.get_mut(id) {
                volume.probes.hint(now, volume.watch.interval, window);
                self.touched.insert(id.clone());
            }
        }
    }

    /// Marks the volumes whose time has come.
    fn wake(&mut self, now: Monotonic) {
        while let Some((time, id)) = self.wakes.first().cloned().filter(|(time, _)| *time <= now) {
            self.wakes.remove(&(time, id.clone()));
            self.touched.insert(id);
        }
    }

    /// Judges one volume, and lets follow what must: a step, a plan, a probe, and the time to look again.
    fn process(&mut self, id: &VolumeId, now: Monotonic, outputs: &mut Vec<Output>) {
        if self.forget(id, now) {
            self.track_changed = true;
            self.incidents.recovered(id, now);
            outputs.push(Output::Forget(id.clone()));
            return;
        }
        self.follow_link(id, now, outputs);
        let shown = self.volumes.get(id).and_then(|volume| volume.shown.as_ref());
        let ahead = shown.and_then(|shown| self.hangs_on(shown.superblock));
        let way = self.way_to(id);
        let Some(volume) = self.volumes.get_mut(id) else { return };
        volume.way = way;
        volume.stand_behind(ahead, now);
        let first = outputs.len();
        outputs.extend(volume.refresh(&self.policy.thresholds, now).into_iter().map(Output::Transition));
        // Before the repair: that makes nothing sick, and nothing well.
        self.correlate(id, now);
        self.consider_repair(id, now, outputs);
        self.name_incident(outputs.iter_mut().skip(first));
        self.consider_probe(id, now, outputs);
        self.remember(id, outputs);
        self.set_wake(id, now);
    }

    /// The next time at which this volume changes without any input. What waits for an input (a probe that is
    /// out, a busy superblock, another plan) is not a time.
    fn set_wake(&mut self, id: &VolumeId, now: Monotonic) {
        let Some(volume) = self.volumes.get_mut(id) else { return };
        let next = volume.next_change(&self.policy.thresholds, now).filter(|time| *time > now);
        if next == volume.wake && next.is_none_or(|time| self.wakes.contains(&(time, id.clone()))) {
            return;
        }
        if let Some(old) = volume.wake.take() {
            self.wakes.remove(&(old, id.clone()));
        }
        volume.wake = next;
        self.wakes.extend(next.map(|time| (time, id.clone())));
    }
}

impl Volume {
    fn next_change(&self, thresholds: &Thresholds, now: Monotonic) -> Option<Monotonic> {
        let window = thresholds.evidence_window;
        let repair = match self.wants_repair(now) {
            Repairs::At(time) => Some(time),
            Repairs::Now(_) | Repairs::Spent | Repairs::No => None,
        };
        let is_good = self.evidence.look == Look::Good;
        [
            self.probe_due(),
            self.overdue_at(),
            repair,
            self.evidence.kernel.next_expiry(window),
            self.evidence.full.map(|at| at + window),
            self.evidence.waiting.map(|waiting| waiting.seen + window),
            self.evidence.good.filter(|_| is_good).map(|good| good.at + self.good_for()),
            self.settles_at(thresholds),
            self.doubted_until(thresholds),
            self.flaps_until(thresholds),
            self.errors_until,
            self.hold_until,
            self.link.awaited(now),
            self.link_due(),
            self.returned_until,
            self.forgotten_at(thresholds.forget_after),
            self.asking.next_change(),
            self.consumer_asking.next_change(),
        ]
        .into_iter()
        .flatten()
        .filter(|time| *time > now)
        .min()
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
