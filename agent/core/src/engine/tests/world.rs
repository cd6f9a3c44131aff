//! A small world around the engine: mounts, answers to probes, time. It checks after every turn what must hold
//! whatever happens.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use crate::engine::{AckAnswer, Engine, Input, Output, ProbeOrder, ReachOrder, Transition};
use crate::errno::Errno;
use crate::health::loss::Actor;
use crate::id::{MountId, PlanId, ProbeId, QuestionId, SuperblockId, VolumeId};
use crate::incident::{Incident, Moment};
use crate::memory::Memory;
use crate::observation::{
    BlockedOn, BlockedTask, Census, KernelErrors, Op, PlanReport, ProbeOk, ProbeReport, ProbeResult,
    ProbeStep, Reach, ReachReport, Source, Task, Unfinished,
};
use crate::order::{Done, NodeDeed, Order, Refused};
use crate::path::BytePath;
use crate::pause::Pauses;
use crate::policy::Policy;
use crate::remediation::asking::{Answer as HookAnswer, AnswerReport, Question};
use crate::remediation::service::Service;
use crate::remediation::{Outcome, Plan, Refusal};
use crate::status::VolumeStatus;
use crate::time::Monotonic;
use crate::topology::{Mount, MountTable, Options, Propagation};
use crate::verdict::{HealthState, Reason};
use crate::volume::{Identity, Mode, Repair, VolumeSpec, Watch};

pub(in crate::engine) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(in crate::engine) fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(in crate::engine) fn device(minor: u32) -> SuperblockId {
    SuperblockId { major: 0, minor }
}

pub(in crate::engine) fn mount(id: u32, minor: u32, path: &str, fstype: &str, source: &str) -> Mount {
    Mount {
        id: MountId(id),
        unique: None,
        parent: MountId(1),
        superblock: device(minor),
        root: "/".into(),
        mountpoint: path.into(),
        options: Options::parse(b"rw"),
        propagation: Propagation::default(),
        fstype: fstype.into(),
        source: source.as_bytes().to_vec(),
        super_options: Options::parse(b"rw"),
    }
}

pub(in crate::engine) fn spec(name: &str, fstype: &str, source: &str, mode: Mode) -> VolumeSpec {
    VolumeSpec {
        id: VolumeId::new(name),
        mountpoint: BytePath::new(alloc::format!("/mnt/{name}")),
        source: Some(source.as_bytes().to_vec()),
        fstype: Some(fstype.into()),
        options: Vec::new(),
        watch: Watch { mode, ..Watch::default() },
        sentinel: None,
        write_probe: false,
        identity: Identity::default(),
        repair: Repair::default(),
    }
}

/// How a volume answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Answer {
    Now(ProbeResult),
    Hangs,
    /// The test answers by itself.
    Never,
}

pub(in crate::engine) fn good() -> ProbeResult {
    ProbeResult::Ok(ProbeOk { root_inode: 2, read_data: true, wrote_data: false, ..ProbeOk::default() })
}

pub(in crate::engine) fn fails(errno: u16) -> Answer {
    Answer::Now(ProbeResult::Failed { step: ProbeStep::Root, errno: Errno(errno) })
}

pub(in crate::engine) struct World {
    pub(in crate::engine) engine: Engine,
    pub(in crate::engine) policy: Policy,
    pub(in crate::engine) now: Monotonic,
    pub(in crate::engine) mounts: Vec<Mount>,
    pub(in crate::engine) answers: BTreeMap<String, Answer>,
    pub(in crate::engine) log: Vec<(Monotonic, Output)>,
    pending: Vec<(Monotonic, Input)>,
    looking: BTreeMap<ProbeId, SuperblockId>,
    running: BTreeMap<PlanId, Plan>,
    used: BTreeSet<PlanId>,
    /// What hooks say, by volume: `remount` where nothing stands here; `None`: the question is lost.
    pub(in crate::engine) hooks: BTreeMap<String, Option<HookAnswer>>,
    /// Servers that cannot be reached, by first name.
    pub(in crate::engine) away: BTreeSet<String>,
    /// Where paths lead over links.
    pub(in crate::engine) links: BTreeMap<BytePath, BytePath>,
    /// Nobody can tell where any path leads.
    pub(in crate::engine) cannot_follow: bool,
    /// The addresses that names of servers have now.
    pub(in crate::engine) resolved: Vec<IpAddr>,
    trying: BTreeSet<Service>,
    asking: BTreeSet<QuestionId>,
    /// What a store would hold.
    pub(in crate::engine) stored: BTreeMap<VolumeId, Memory>,
    pub(in crate::engine) pauses: Pauses,
    /// Volumes that somebody had mounted anew by hand.
    ordered: BTreeSet<VolumeId>,
    /// Plans whose mount stands where the old one did.
    shown: BTreeSet<PlanId>,
    /// Plans that were stopped before they had shown anything: their attempts are not used up.
    pub(in crate::engine) given_back: BTreeSet<PlanId>,
}

impl World {
    /// Named volumes, each mounted, at `/mnt/NAME`, with superblock 10, 11, ….
    pub(in crate::engine) fn new(specs: Vec<VolumeSpec>) -> Self {
        let mut mounts = vec![mount(1, 1, "/", "ext4", "/dev/sda1")];
        for (spec, number) in specs.iter().zip(10..) {
            let source = String::from_utf8(spec.source.clone().unwrap()).unwrap();
            let path = String::from_utf8(spec.mountpoint.as_bytes().to_vec()).unwrap();
            mounts.push(mount(number, number, &path, spec.fstype.as_deref().unwrap(), &source));
        }
        let mut policy = Policy { volumes: specs, ..Policy::default() };
        policy.discovery.enabled = false;
        Self::with(policy, mounts)
    }

    pub(in crate::engine) fn with(policy: Policy, mounts: Vec<Mount>) -> Self {
        Self {
            engine: Engine::new(policy.clone(), PlanId(100)),
            policy,
            now: Monotonic::from_nanos(1_000_000_000_000),
            mounts,
            answers: BTreeMap::new(),
            log: Vec::new(),
            pending: Vec::new(),
            looking: BTreeMap::new(),
            running: BTreeMap::new(),
            used: BTreeSet::new(),
            hooks: BTreeMap::new(),
            away: BTreeSet::new(),
            links: BTreeMap::new(),
            cannot_follow: false,
            resolved: Vec::new(),
            trying: BTreeSet::new(),
            asking: BTreeSet::new(),
            stored: BTreeMap::new(),
            pauses: Pauses::default(),
            ordered: BTreeSet::new(),
            shown: BTreeSet::new(),
            given_back: BTreeSet::new(),
        }
    }

    /// As `new`, with the first table taken and every volume found healthy.
    pub(in crate::engine) fn healthy(specs: Vec<VolumeSpec>) -> Self {
        let mut world = Self::new(specs);
        world.table();
        world.run(millis(500));
        for status in world.engine.volumes() {
            assert_eq!(status.condition.state, HealthState::Healthy, "{}", status.id);
        }
        world.log.clear();
        world
    }

    pub(in crate::engine) fn table(&mut self) {
        self.feed(Input::MountTable(MountTable::new(self.mounts.clone())));
    }

    pub(in crate::engine) fn feed(&mut self, input: Input) {
        match &input {
            Input::Probe(report) if !matches!(report.result, ProbeResult::TimedOut { .. }) => {
                self.looking.remove(&report.id);
            }
            Input::ProbeReturned(id) => {
                self.looking.remove(id);
            }
            Input::ProbeLate(report) => {
                self.looking.remove(&report.id);
            }
            Input::PlanShows(id) => drop(self.shown.insert(*id)),
            Input::PlanFinished(report) => {
                let has_run = self.running.remove(&report.id).is_some();
                let is_stopped = report.outcome == Outcome::Refused(Refusal::TableChanged);
                if has_run && is_stopped && !self.shown.contains(&report.id) {
                    self.given_back.insert(report.id);
                }
            }
            Input::Reached(report) => {
                self.trying.remove(&report.service);
            }
            Input::Answered(report) => {
                self.asking.remove(&report.id);
            }
            Input::Order { order: Order::Remount(id), .. } => drop(self.ordered.insert(id.clone())),
            _ => {}
        }
        let outputs = self.engine.handle(self.now, input);
        for output in outputs {
            match &output {
                Output::Probe(order) => self.look(order),
                Output::Execute(plan) => self.check_plan(plan.clone()),
                Output::Ask(question) => self.ask(question),
                Output::Reach(order) => self.try_server(order),
                Output::Follow(id, path) => {
                    let leads = self.links.get(path).cloned();
                    if !self.cannot_follow {
                        self.later(millis(1), Input::Leads(id.clone(), leads));
                    }
                }
                Output::Stop(plan) => assert!(self.running.contains_key(plan), "{plan} does not run"),
                Output::Remember(memory) => {
                    assert!(self.engine.volume(&memory.volume).is_some(), "{} is no volume", memory.volume);
                    self.stored.insert(memory.volume.clone(), Memory::clone(memory));
                }
                Output::Forget(id) => drop(self.stored.remove(id)),
                Output::Pauses(pauses) => self.pauses = pauses.clone(),
                _ => {}
            }
            self.log.push((self.now, output));
        }
        self.check();
    }

    fn look(&mut self, order: &ProbeOrder) {
        let taken = self.looking.values().any(|other| *other == order.superblock);
        assert!(!taken, "two probes on {}", order.superblock);
        self.looking.insert(order.id, order.superblock);
        let answer = self.answers.get(order.volume.as_str()).cloned().unwrap_or(Answer::Now(good()));
        let (after, result) = match answer {
            Answer::Now(result) => (millis(1), result),
            Answer::Hangs => (order.deadline, ProbeResult::TimedOut { step: ProbeStep::Root }),
            Answer::Never => return,
        };
        let report = ProbeReport {
            id: order.id,
            volume: order.volume.clone(),
            generation: order.generation,
            started: self.now,
            took: after,
            result,
        };
        self.pending.push((self.now + after, Input::Probe(report)));
        self.pending.sort_by_key(|(time, _)| *time);
    }

    fn later(&mut self, after: Duration, input: Input) {
        self.pending.push((self.now + after, input));
        self.pending.sort_by_key(|(time, _)| *time);
    }

    fn ask(&mut self, question: &Question) {
        assert!(self.asking.insert(question.id), "{:?} twice", question.id);
        assert!(self.asking.len() <= self.policy.thresholds.plans_at_once, "{:?}", self.asking);
        let answer = self.hooks.get(question.volume.as_str()).cloned();
        let Some(answer) = answer.unwrap_or(Some(HookAnswer::Remount)) else {
            self.asking.remove(&question.id);
            return;
        };
        let (id, volume, took) = (question.id, question.volume.clone(), millis(2));
        let text = String::from("because");
        self.later(took, Input::Answered(AnswerReport { id, volume, answer, text, took }));
    }

    fn try_server(&mut self, order: &ReachOrder) {
        let service = order.service.clone();
        assert!(self.trying.insert(service.clone()), "{service} is tried twice at once");
        let is_away = self.away.contains(&service.hosts[0]);
        let reach = if is_away { Reach::No("refused".into()) } else { Reach::Yes };
        self.later(
            millis(1),
            Input::Reached(ReachReport { service, reach, addresses: self.resolved.clone() }),
        );
    }

    fn check_plan(&mut self, plan: Plan) {
        assert!(self.used.insert(plan.id), "plan id {} twice", plan.id);
        for other in self.running.values() {
            assert_ne!(other.volume, plan.volume);
            assert_ne!(other.mountpoint, plan.mountpoint);
            assert!(plan.old.is_none() || other.old != plan.old, "two plans on one superblock");
        }
        let mode = self.policy.volumes.iter().find(|spec| spec.id == plan.volume).map(|spec| spec.watch.mode);
        let may_act = mode == Some(Mode::Act) || self.ordered.contains(&plan.volume);
        assert!(plan.reason.is_none() || may_act, "a repair in mode {mode:?}");
        self.running.insert(plan.id, plan);
        assert!(self.running.len() <= self.policy.thresholds.plans_at_once);
    }

    fn check(&self) {
        assert!(
            self.engine.next_deadline().is_none_or(|next| next > self.now),
            "it asks for a time that was"
        );
        for status in self.engine.volumes() {
            let spec = self.policy.volumes.iter().find(|spec| spec.id == status.id);
            assert!(status.attempts <= spec.map_or(0, |spec| spec.repair.max_attempts));
            assert!(status.history.len() <= 16 && status.culprits.len() <= 8 && status.blocked.len() <= 16);
            let is_fine = matches!(status.condition.state, HealthState::Unknown | HealthState::Healthy);
            assert_eq!(status.condition.reason.is_none(), is_fine, "{:?}", status.condition);
            assert!(!status.condition.message.is_empty());
            let incident = self.engine.incidents.of(&status.id).map(|incident| incident.id);
            assert_eq!(incident, status.incident);
        }
        self.check_incidents();
    }

    fn check_incidents(&self) {
        let incidents = self.engine.incidents();
        assert!(incidents.len() <= 16 + self.policy.volumes.len(), "{}", incidents.len());
        let mut seen = BTreeSet::new();
        for incident in incidents {
            assert!(seen.insert(incident.id), "{} twice", incident.id);
            let names: BTreeSet<&VolumeId> = incident.members.iter().map(|member| &member.volume).collect();
            assert_eq!(names.len(), incident.members.len(), "{incident:?}");
            assert!(names.len() >= 2, "one volume is no incident: {incident:?}");
            let open = incident.ended.is_none();
            assert!(open || incident.members.iter().all(|member| member.recovered.is_some()));
            for member in incident.members.iter().filter(|member| open && member.recovered.is_none()) {
                let status = self.engine.volume(&member.volume).unwrap();
                assert!(status.condition.state.is_sick(), "{} in {incident:?}", member.volume);
            }
        }
    }

    /// The agent dies and starts again: what it stored is all that is left of it.
    pub(in crate::engine) fn restart(&mut self) {
        self.pending.clear();
        self.looking.clear();
        self.trying.clear();
        self.asking.clear();
        let first = self.used.iter().map(|plan| plan.0 + 1).max().unwrap_or(100);
        self.engine = Engine::new(self.policy.clone(), PlanId(first));
        let unfinished = core::mem::take(&mut self.running).into_values().map(|plan| Unfinished {
            plan: plan.id,
            volume: plan.volume,
            mountpoint: plan.mountpoint,
            stage: plan.stage,
            old: plan.old,
            marks: plan.marks,
            holders: BTreeSet::new(),
        });
        let unfinished = unfinished.collect();
        self.feed(Input::Unfinished(unfinished));
        self.feed(Input::Pauses(self.pauses.clone()));
        self.feed(Input::Remembered(self.stored.values().cloned().collect()));
    }

    /// What a store hands out after another boot: nothing of mounts, times only as far as this boot goes back.
    pub(in crate::engine) fn reboot(&mut self, now: Monotonic) {
        let before = |at: &mut Monotonic| *at = Monotonic::default();
        for memory in self.stored.values_mut() {
            memory.mount = None;
            memory.falls.iter_mut().chain(&mut memory.attempts).for_each(before);
            memory.ended.iter_mut().chain(&mut memory.not_before).for_each(before);
            let asked = memory.asked.iter_mut().chain(&mut memory.asked_of_consumers);
            asked.filter_map(|asked| asked.not_before.as_mut()).for_each(before);
            if let Some(trouble) = &mut memory.trouble {
                trouble.since_wall = Some(Duration::from_secs(1_700_000_000) + trouble.since.since_boot());
                before(&mut trouble.since);
            }
        }
        self.now = now;
        self.restart();
    }

    pub(in crate::engine) fn acknowledge(&mut self, name: &str) -> AckAnswer {
        let by = Actor { uid: 0, pid: 42, comm: "mountie".into() };
        self.feed(Input::Acknowledge { volume: VolumeId::new(name), by });
        let answer = self.log.iter().rev().find_map(|(_, output)| match output {
            Output::Acknowledged { answer, .. } => Some(*answer),
            _ => None,
        });
        answer.unwrap()
    }

    /// A person orders something.
    pub(in crate::engine) fn order(&mut self, order: Order) -> Result<Done, Refused> {
        let by = Actor { uid: 0, pid: 42, comm: "mountie".into() };
        self.feed(Input::Order { order, by });
        let answer = self.log.iter().rev().find_map(|(_, output)| match output {
            Output::Ordered(answer) => Some(Result::clone(answer)),
            _ => None,
        });
        answer.unwrap()
    }

    /// Incidents as they were told.
    pub(in crate::engine) fn told(&self) -> Vec<(Moment, Arc<Incident>)> {
        let told = |(_, output): &(Monotonic, Output)| match output {
            Output::Incident(moment, incident) => Some((*moment, incident.clone())),
            _ => None,
        };
        self.log.iter().filter_map(told).collect()
    }

    /// How often the store was told something.
    pub(in crate::engine) fn writes(&self) -> usize {
        let is_write = |output: &Output| matches!(output, Output::Remember(_) | Output::Forget(_));
        self.log.iter().filter(|(_, output)| is_write(output)).count()
    }

    /// Lets time pass, with every deadline and every answer in its order.
    pub(in crate::engine) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let answer = self.pending.first().map(|(time, _)| *time);
            let deadline = self.engine.next_deadline();
            let Some(next) = [answer, deadline].into_iter().flatten().min().filter(|next| *next <= end)
            else {
                break;
            };
            self.now = self.now.max(next);
            if answer == Some(next) {
                let (_, input) = self.pending.remove(0);
                self.feed(input);
            } else {
                self.feed(Input::Deadline);
            }
        }
        self.now = end;
    }

    pub(in crate::engine) fn answer(&mut self, name: &str, answer: Answer) {
        self.answers.insert(name.into(), answer);
    }

    pub(in crate::engine) fn hint(&mut self, minor: u32, root: Option<u64>, errno: u16, op: Op) {
        self.error(minor, (root, None), (errno, op));
    }

    /// A program of this name and number meets an error on the volume.
    pub(in crate::engine) fn meets(&mut self, comm: &str, pid: u32, errno: u16, op: Op) {
        let task = Task { tid: pid, pid, comm: comm.into(), cgroup: 0, mnt_ns: 0 };
        self.error(10, (None, Some(task)), (errno, op));
    }

    fn error(&mut self, minor: u32, (root_inode, task): (Option<u64>, Option<Task>), (errno, op): (u16, Op)) {
        let errors = KernelErrors {
            source: Source::Bpf,
            superblock: device(minor),
            root_inode,
            errno: Errno(errno),
            op,
            count: 1,
            at: self.now,
            after: None,
            task,
        };
        self.feed(Input::Kernel(errors));
    }

    /// Two tasks wait there since so many seconds.
    pub(in crate::engine) fn census(&mut self, minor: u32, root_inode: Option<u64>, waited: u64) {
        let blocked = |pid| BlockedTask {
            task: Task { tid: pid, pid, comm: "cat".into(), cgroup: 7, mnt_ns: 1 },
            call: "read".into(),
            since: self.now - seconds(waited),
            is_deep: false,
            is_by_name: false,
        };
        let tasks = vec![blocked(71), blocked(70)];
        let blocked = vec![BlockedOn { superblock: device(minor), root_inode, count: 2, tasks }];
        self.feed(Input::Census(Census { at: self.now, blocked }));
    }

    pub(in crate::engine) fn finish(&mut self, id: PlanId, outcome: Outcome) {
        self.feed(Input::PlanFinished(PlanReport::of(id, outcome, millis(50))));
    }

    /// A repair took the device's mount away, failed, and showed the device again, read-only.
    pub(in crate::engine) fn put_back(&mut self, id: PlanId, path: &str, minor: u32) {
        self.feed(Input::PlanShows(id));
        let report = PlanReport::of(id, Outcome::HelperFailed(-9), millis(50));
        self.feed(Input::PlanFinished(PlanReport { put_back: true, ..report }));
        self.replaced_by_others(path, minor);
        self.mounts.last_mut().unwrap().super_options = Options::parse(b"ro");
        self.table();
    }

    /// Another superblock at the place of a volume, as by a repair.
    pub(in crate::engine) fn replace(&mut self, path: &str, minor: u32) {
        let own = self.running.values().find(|plan| plan.mountpoint == BytePath::from(path));
        if let Some(id) = own.map(|plan| plan.id) {
            self.feed(Input::PlanShows(id));
        }
        self.replaced_by_others(path, minor);
    }

    /// The same by somebody else.
    pub(in crate::engine) fn replaced_by_others(&mut self, path: &str, minor: u32) {
        for mount in self.mounts.iter_mut().filter(|mount| mount.mountpoint == BytePath::from(path)) {
            mount.superblock = device(minor);
            mount.id = MountId(minor);
        }
        self.table();
    }

    pub(in crate::engine) fn unmount(&mut self, path: &str) {
        self.mounts.retain(|mount| mount.mountpoint != BytePath::from(path));
        self.table();
    }

    pub(in crate::engine) fn status(&self, name: &str) -> VolumeStatus {
        self.engine.volumes().into_iter().find(|status| status.id.as_str() == name).unwrap()
    }

    pub(in crate::engine) fn state(&self, name: &str) -> (HealthState, Option<Reason>) {
        let condition = self.status(name).condition;
        (condition.state, condition.reason)
    }

    pub(in crate::engine) fn running(&self) -> Vec<Plan> {
        self.running.values().cloned().collect()
    }

    pub(in crate::engine) fn probes(&self) -> usize {
        self.log.iter().filter(|(_, output)| matches!(output, Output::Probe(_))).count()
    }

    pub(in crate::engine) fn transitions(&self) -> Vec<Transition> {
        let transition = |(_, output): &(Monotonic, Output)| match output {
            Output::Transition(transition) => Some(transition.clone()),
            _ => None,
        };
        self.log.iter().filter_map(transition).collect()
    }

    /// What was done that is about no volume's history, newest first.
    pub(in crate::engine) fn deeds(&self) -> Vec<NodeDeed> {
        let deed = |(_, output): &(Monotonic, Output)| match output {
            Output::Deed(deed) => Some(deed.clone()),
            _ => None,
        };
        self.log.iter().rev().filter_map(deed).collect()
    }

    pub(in crate::engine) fn notes(&self) -> usize {
        self.log.iter().filter(|(_, output)| matches!(output, Output::Note(_))).count()
    }

    pub(in crate::engine) fn last_track(&self) -> Option<Vec<crate::engine::Tracked>> {
        let track = |(_, output): &(Monotonic, Output)| match output {
            Output::Track(tracked) => Some(tracked.clone()),
            _ => None,
        };
        self.log.iter().rev().find_map(track)
    }

    pub(in crate::engine) fn settled(&self) -> Vec<PlanId> {
        let settled = |(_, output): &(Monotonic, Output)| match output {
            Output::Settled { plan, outcome: Outcome::Interrupted } => Some(*plan),
            _ => None,
        };
        self.log.iter().filter_map(settled).collect()
    }
}
