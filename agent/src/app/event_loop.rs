//! One loop over one closed set of events. It owns the engine; everybody else sends facts and carries out orders.
//!
//! Fair: of the sides that have something to say, each is as likely to be heard as the others, so that a storm on
//! one of them (errors by the thousand) keeps neither the end of a plan nor a signal waiting.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use agent_core::engine::{Engine, Input, Output, ProbeOrder};
use agent_core::id::{PlanId, VolumeId};
use agent_core::observation::PlanReport;
use agent_core::path::BytePath;
use agent_core::policy::Policy;
use agent_core::remediation::Plan;
use agent_core::status::VolumeStatus;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tracing::{info, warn};

use super::asks::Asks;
use super::changes::{Changes, PULSE};
use super::doubt::is_in_doubt;
use super::facts::Facts;
use super::plantings::{self, Plantings};
use super::ready::Ready;
use super::service_manager::ServiceManager;
use super::sources::{Ended, Sources};
use crate::config::{Config, ConfigErrors};
use crate::error_chain::chain;
use crate::exit_code::ExitCode;
use crate::export::chronicle::Chronicle;
use crate::export::metrics::{Metrics, Suppression};
use crate::export::{Command, Snapshot, events};
use crate::probe::{Pool, ProbeEvent};
use crate::remediation::{Executor, Stop};
use crate::sensor::SensorEvent;
use crate::store::{Opened, PinFile, Store, StoreError};
use crate::sys::clock;

mod orders;
mod pins;
mod plans;
mod reading;
mod sensors;
mod signals;

use reading::{Reading, Reload};
use signals::Signals;

/// What the loop is made of.
pub(super) struct Parts {
    pub(super) policy: Policy,
    /// The mount namespace that is watched, where it is known.
    pub(super) namespace: Option<u32>,
    pub(super) opened: Opened,
    pub(super) metrics: Metrics,
    pub(super) chronicle: Arc<Chronicle>,
    pub(super) facts: Facts,
    pub(super) snapshots: watch::Sender<Arc<Snapshot>>,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) sensors: mpsc::Receiver<SensorEvent>,
    pub(super) sources: Sources,
    pub(super) probes: mpsc::Receiver<ProbeEvent>,
    pub(super) pool: Pool,
    pub(super) plantings: Plantings,
    pub(super) pin_file: PinFile,
    pub(super) executor: Executor,
    pub(super) asks: Asks,
    pub(super) reload: Reload,
}

/// The loop.
pub(super) struct EventLoop {
    engine: Engine,
    store: Arc<Store>,
    executor: Arc<Executor>,
    metrics: Metrics,
    chronicle: Arc<Chronicle>,
    log: events::Log,
    facts: Facts,
    snapshots: watch::Sender<Arc<Snapshot>>,
    commands: mpsc::Receiver<Command>,
    sensors: mpsc::Receiver<SensorEvent>,
    sources: Sources,
    probes: mpsc::Receiver<ProbeEvent>,
    pool: Pool,
    plantings: Plantings,
    pin_file: PinFile,
    /// Plans that are carried out.
    plans: JoinSet<PlanReport>,
    /// Which task carries out which plan.
    carriers: HashMap<Id, (Plan, Stop)>,
    /// Plans that are about to change their volume's place say so first.
    shows: (mpsc::UnboundedSender<PlanId>, mpsc::UnboundedReceiver<PlanId>),
    asks: Asks,
    manager: ServiceManager,
    reading: Reading,
    /// Where the executor makes its mounts, whatever a new configuration says.
    stage_root: BytePath,
    /// People who wait for a probe.
    waiting: BTreeMap<VolumeId, Vec<Waiting>>,
    /// Their answers, which the next snapshot must hold first.
    answers: Vec<(Waiting, Option<VolumeStatus>)>,
    /// The first table was taken in.
    table_seen: bool,
    ready: Ready,
    changes: Changes,
}

type Waiting = oneshot::Sender<Option<VolumeStatus>>;

enum Event {
    Sensor(SensorEvent),
    Probe(ProbeEvent),
    Plan(Result<(Id, PlanReport), JoinError>),
    Answer(Box<Input>),
    Source(Ended),
    Planting(plantings::News),
    Command(Command),
    Deadline,
    Pulse,
    KeepAlive,
    Gathered,
    Reload,
    Configuration(Box<Result<Config, ConfigErrors>>),
    End(&'static str),
    /// A side is gone that only goes when the agent ends.
    Closed,
}

impl EventLoop {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts {
            policy,
            namespace,
            opened,
            metrics,
            chronicle,
            facts,
            snapshots,
            commands,
            sensors,
            sources,
            probes,
            pool,
            mut plantings,
            pin_file,
            executor,
            asks,
            reload,
        } = parts;
        let are_dropped = plantings.configure(&policy);
        let stage_root = policy.stage_root.clone();
        let Opened { store, next_plan, unfinished, pauses, memories, .. } = opened;
        // Before the first table: what was cut off is settled before anything else is decided.
        let known = [Input::Unfinished(unfinished), Input::Pauses(pauses), Input::Remembered(memories)];
        let known = known.into_iter().chain(namespace.map(Input::Namespace));
        let mut engine = Engine::new(policy, next_plan);
        let outputs = known.flat_map(|input| engine.handle(clock::now(), input)).collect();
        let mut this = Self {
            engine,
            store: Arc::new(store),
            executor: Arc::new(executor),
            metrics,
            chronicle,
            log: events::Log::default(),
            facts,
            snapshots,
            commands,
            sensors,
            sources,
            probes,
            pool,
            plantings,
            pin_file,
            plans: JoinSet::new(),
            carriers: HashMap::new(),
            shows: mpsc::unbounded_channel(),
            asks,
            manager: ServiceManager::of_process(),
            reading: Reading::new(reload),
            stage_root,
            waiting: BTreeMap::new(),
            answers: Vec::new(),
            table_seen: false,
            ready: Ready::default(),
            changes: Changes::none(),
        };
        this.begin(outputs, are_dropped);
        this
    }

    /// Does what was decided before anything was seen. `are_dropped`: pins of the state are no longer valid.
    fn begin(&mut self, outputs: Vec<Output>, are_dropped: bool) {
        self.carry_out(outputs);
        if are_dropped {
            self.keep_pins(None);
        }
        self.feed(Input::Pins(self.plantings.sentinels()));
        self.publish();
    }

    /// Runs until a signal comes.
    pub(super) async fn run(mut self) -> ExitCode {
        let Ok(mut signals) = Signals::new() else {
            tracing::error!("Signals cannot be received");
            return ExitCode::Internal;
        };
        let mut pulse = tokio::time::interval(PULSE);
        pulse.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.manager.ready(clock::now());
        loop {
            match self.next(&mut signals, &mut pulse).await {
                Event::End(name) => {
                    info!(signal = name, "Agent was asked to end");
                    self.manager.stopping();
                    break;
                }
                // Changes nothing that is shown.
                Event::KeepAlive => {}
                event => self.take(event),
            }
            // Also while there is always something to do, and no sleep ever ends.
            let now = clock::now();
            if self.manager.due().is_some_and(|due| due <= now) {
                self.manager.keep_alive(now);
            }
        }
        self.end_plans(&mut signals).await;
        self.end().await;
        ExitCode::Ok
    }

    async fn next(&mut self, signals: &mut Signals, pulse: &mut tokio::time::Interval) -> Event {
        let now = clock::now();
        let deadline = self.engine.next_deadline().map(|at| at.since(now));
        let gathered = self.changes.due().map(|at| at.since(now));
        let alive = self.manager.due().map(|at| at.since(now));
        tokio::select! {
            event = signals.recv() => event,
            event = self.probes.recv() => event.map_or(Event::Closed, Event::Probe),
            event = self.sensors.recv() => event.map_or(Event::Closed, Event::Sensor),
            Some(end) = self.plans.join_next_with_id() => Event::Plan(end),
            answer = self.asks.answer() => Event::Answer(Box::new(answer)),
            config = self.reading.done() => Event::Configuration(Box::new(config)),
            ended = self.sources.ended() => Event::Source(ended),
            news = self.plantings.news() => Event::Planting(news),
            Some(command) = self.commands.recv() => Event::Command(command),
            () = sleep(deadline) => Event::Deadline,
            _ = pulse.tick() => Event::Pulse,
            () = sleep(alive) => Event::KeepAlive,
            () = sleep(gathered) => Event::Gathered,
        }
    }

    fn take(&mut self, event: Event) {
        self.changes.note(clock::now());
        match event {
            Event::Sensor(event) => self.take_sensor(event),
            Event::Probe(ProbeEvent::Report(report)) => {
                self.metrics.observe_probe(&report);
                let volume = report.volume.clone();
                self.feed(Input::Probe(report));
                self.answer(&volume);
                self.answer_stuck();
            }
            Event::Probe(ProbeEvent::Returned(id)) => self.feed(Input::ProbeReturned(id)),
            Event::Probe(ProbeEvent::Late(report)) => self.feed(Input::ProbeLate(report)),
            Event::Plan(end) => self.take_plan_end(end),
            Event::Answer(input) => self.feed(*input),
            Event::Source(ended) => self.sources.take(ended, &mut self.facts),
            Event::Command(Command::ProbeNow { volume, done }) => {
                self.feed(Input::ProbeNow(volume.clone()));
                self.waiting.entry(volume.clone()).or_default().push(done);
                // A look that has hung will not answer: the person gets what is known.
                if !self.engine.expects_answer(&volume) {
                    self.answer(&volume);
                }
            }
            Event::Command(Command::Acknowledge { volume, by, done }) => self.acknowledge(volume, by, done),
            Event::Command(Command::Order { order, by, done }) => self.take_order(order, by, done),
            Event::Command(Command::Preview { volume, done }) => {
                // Who stopped waiting needs no answer.
                let _ = done.send(self.engine.preview(&volume));
            }
            Event::Command(Command::PlantSentinel { volume, wish, done }) => {
                if self.plantings.ask(volume.clone(), &wish, done) {
                    self.feed(Input::Errand(volume));
                }
            }
            Event::Planting(plantings::News::Ended(ended)) => self.take_planted(*ended),
            Event::Planting(plantings::News::Gone(order)) => self.feed(Input::ProbeReturned(order)),
            Event::Deadline => self.feed(Input::Deadline),
            Event::Reload => self.reading.ask(),
            Event::Configuration(read) => self.take_configuration(*read),
            Event::Pulse => {
                self.sources.settle(&mut self.facts);
                self.publish();
                self.log.settle();
                self.facts.settle_log();
                // Also where nobody scrapes: what vanished must not stay in memory.
                self.metrics.forget_vanished(&self.snapshots.borrow());
            }
            Event::Gathered | Event::Closed | Event::End(_) | Event::KeepAlive => self.publish(),
        }
    }

    fn feed(&mut self, input: Input) {
        let outputs = self.engine.handle(clock::now(), input);
        self.carry_out(outputs);
    }

    fn carry_out(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Probe(order) => self.probe(order),
                Output::LetGo(probe) => self.pool.let_go(probe),
                Output::Errand(order) => {
                    if let Some(over) = self.plantings.begin(order) {
                        self.feed(Input::ProbeReturned(over));
                    }
                }
                Output::NoErrand { volume, why } => self.plantings.refuse(&volume, why),
                Output::Execute(plan) => self.execute(plan),
                Output::Stop(plan) => self.stop(plan),
                Output::Ask(question) => self.ask(*question),
                Output::Reach(order) => self.asks.reach(order),
                Output::Follow(volume, path) => self.asks.follow(volume, path),
                Output::Held(_, hold) => self.metrics.suppressed(Suppression::of(hold)),
                Output::WouldExecute(plan) => {
                    self.metrics.suppressed(Suppression::DryRun);
                    self.log.plan_would_run(&plan);
                    self.chronicle.repair_due(&plan);
                }
                Output::Transition(transition) => {
                    self.changes.is_urgent = true;
                    self.metrics.observe_transition(&transition);
                    if let Some(cause) = self.held_back_by(&transition) {
                        self.metrics.suppressed(cause);
                    }
                    self.log.transition(&transition);
                    self.chronicle.transition(&transition);
                }
                Output::Track(tracked) => self.sources.track(tracked),
                Output::FindConsumers(dead) => self.sources.find_consumers(dead),
                Output::Note(note) => self.log.note(&note),
                Output::Incident(moment, incident) => {
                    self.changes.is_urgent = true;
                    self.log.incident(moment, &incident);
                    self.chronicle.incident(moment, &incident);
                }
                Output::Remember(memory) => self.store.remember(*memory),
                Output::Forget(volume) => self.store.forget(volume),
                // Whoever asked looks for it among the outputs.
                Output::Acknowledged { .. } | Output::Ordered(_) => {}
                Output::Pauses(pauses) => self.keep_pauses(pauses),
                Output::Deed(deed) => {
                    self.changes.is_urgent = true;
                    events::log_deed(&deed);
                    self.chronicle.deed(&deed);
                }
                Output::Settled { plan, outcome } => {
                    let store = Arc::clone(&self.store);
                    tokio::spawn(async move { told(store.outcome(plan, &outcome).await) });
                }
            }
        }
    }

    fn probe(&self, order: ProbeOrder) {
        self.pool.start(order);
    }

    /// A new configuration is taken as a whole, a bad one not at all.
    fn take_configuration(&mut self, read: Result<Config, ConfigErrors>) {
        match read {
            Ok(config) => {
                info!("Configuration was read again; [agent] and [kernel] take effect at the next start");
                let stage_root = self.stage_root.clone();
                self.facts.check_deadline = super::check_deadline(&config.policy);
                let policy = Policy { stage_root, ..config.policy };
                if self.plantings.configure(&policy) {
                    self.keep_pins(None);
                }
                self.feed(Input::Pins(self.plantings.sentinels()));
                self.feed(Input::Policy(policy));
            }
            Err(errors) => warn!(%errors, "The new configuration is wrong, continuing with the old one"),
        }
    }

    /// Answers everybody who waits for a look at this volume, as soon as a snapshot shows it.
    fn answer(&mut self, volume: &VolumeId) {
        let Some(waiting) = self.waiting.remove(volume) else { return };
        let status = self.engine.volume(volume);
        self.answers.extend(waiting.into_iter().map(|done| (done, status.clone())));
        self.changes.is_urgent = true;
    }

    /// Answers those who wait behind a look that has hung, perhaps one for another volume on the same superblock.
    fn answer_stuck(&mut self) {
        let stuck = self.waiting.keys().filter(|volume| !self.engine.expects_answer(volume));
        for volume in stuck.cloned().collect::<Vec<_>>() {
            self.answer(&volume);
        }
    }

    fn publish(&mut self) {
        let begun = clock::now();
        let probes = self.pool.stats();
        self.facts.take_probes(&probes);
        self.facts.persist_errors = self.store.failures();
        self.facts.take_stuck_helpers(self.executor.stuck());
        let volumes = self.engine.volumes();
        self.sources.haste(volumes.iter().any(|volume| is_in_doubt(volume, begun)));
        let has_started = self.table_seen && self.sources.is_watching();
        let ready = self.ready.update(has_started, &volumes);
        self.manager.tell(&volumes, ready);
        let mut snapshot = self.facts.snapshot(volumes, self.engine.incidents(), ready);
        snapshot.progress = self.executor.progress();
        self.snapshots.send_replace(Arc::new(snapshot));
        // Not before: who hears of something and then asks finds it so.
        self.chronicle.show();
        // Who has left waits for nothing, also where the look never comes.
        self.waiting.retain(|_, waiting| {
            waiting.retain(|done| !done.is_closed());
            !waiting.is_empty()
        });
        for (done, status) in std::mem::take(&mut self.answers) {
            // Who stopped waiting needs no answer.
            let _ = done.send(status);
        }
        self.changes.shown(clock::now().since(begun));
    }

    /// Ends what can be ended at once. A worker or helper that cannot be killed is left behind: it holds nothing
    /// of the agent's.
    async fn end(mut self) {
        self.log.finish();
        self.facts.finish_log();
        self.asks.end();
        if !self.store.is_kept().await {
            warn!("Not all that is known of volumes is on disk");
        }
        self.pool.shutdown().await;
        self.sources.stop();
    }
}

/// Says that a write failed. The store has counted it.
fn told(written: Result<(), StoreError>) {
    if let Err(error) = written {
        warn!(error = %chain(&error), "State could not be written, continuing from memory");
    }
}

async fn sleep(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
