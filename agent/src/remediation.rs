//! The executor: the only interpreter of `agent_core::remediation::Action`.
//!
//! Invariant: the agent's own process touches no watched path. Each action is carried out by a child
//! (`mountie act [--namespace PATH]`, [`run_act`]) that can be killed or abandoned; the executor starts it,
//! listens, and writes down what came of it. It decides nothing: the plan says what to do, and what to undo.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_core::errno::Errno;
use agent_core::id::{MountId, PlanId};
use agent_core::observation::PlanReport;
use agent_core::path::BytePath;
use agent_core::remediation::{Action, Outcome, Plan, Refusal};
use agent_core::source::server;
use agent_core::time::Monotonic;
use tokio::time::timeout;

mod abort;
mod absences;
mod act;
mod arguments;
mod attributes;
mod check;
mod child;
mod consumers;
mod control;
mod environment;
mod everywhere;
mod fstab;
mod helper;
mod in_place;
mod kinship;
pub mod needs;
mod redact;
mod restart;
mod scene;
mod servers;
mod source;
mod stage;
mod swap;
mod unmount;
mod verify;
pub(crate) mod wire;

pub use act::run_act;
pub use control::{Control, Stop};

use crate::sys::clock;
use absences::Absences;
use child::{ChildError, Ending, Launcher};
use servers::{Permit, Servers};
use wire::{Known, Related, Request, Step, WireAction};

/// The time an undo step gets at least: the plan's own may be used up.
const UNDO_LIMIT: Duration = Duration::from_secs(10);
/// The time that the move of the new mount, and each step after it, get at least: the plan's own may be nearly used
/// up by then, and what is cut off between its halves leaves two mounts, or none.
const SHOW_LIMIT: Duration = Duration::from_secs(5);
/// How often a swap is begun whose child is killed.
const SWAPS: u32 = 3;
/// How long the last helper of a volume, or of a server, may take to be gone: it has ended, or was killed.
const LINGER: Duration = Duration::from_secs(2);
/// Looking through all mount tables of a node, which reads procfs alone.
const FIND_LIMIT: Duration = Duration::from_secs(10);
/// EAGAIN: no child could be started.
const NO_CHILD: Errno = Errno(11);

/// Who holds what a plan is about to replace.
#[derive(Clone, Debug)]
pub struct Holders {
    /// When the search began: the plan's time runs from then on.
    begun: Monotonic,
    /// Their mounts, by their ids.
    found: BTreeSet<u32>,
    /// Those with peers or a master.
    related: Related,
}

impl Holders {
    /// The mounts in other places than the plan's own.
    #[must_use]
    pub fn elsewhere(&self, plan: &Plan) -> BTreeSet<MountId> {
        let is_here = |id: &MountId| plan.marks.as_ref().is_some_and(|marks| marks.here.contains(id));
        self.found.iter().copied().map(MountId).filter(|id| !is_here(id)).collect()
    }
}

/// What the executor needs to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The binary whose `act` command calls [`run_act`].
    pub exe: PathBuf,
    /// The mount namespace to act in; `None`: the agent's own.
    pub namespace: Option<PathBuf>,
    /// The directory under which all private places lie. Each plan's `stage` is one plain name below it.
    pub stage_root: BytePath,
}

/// Carries out plans. Several may run at once; each is one future.
///
/// To be used on one thread that lives as long as the agent: the kernel kills the children when the thread that
/// started them ends.
#[derive(Debug)]
pub struct Executor {
    launcher: Launcher,
    stage_root: BytePath,
    servers: Servers,
    absences: Absences,
    /// What running plans have done, one line a step.
    progress: Mutex<BTreeMap<PlanId, Vec<String>>>,
}

impl Executor {
    /// Nothing is touched before the first plan.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let Settings { exe, namespace, stage_root } = settings;
        let launcher = Launcher { exe, namespace, stuck: Arc::new(AtomicUsize::new(0)) };
        let (servers, absences) = (Servers::default(), Absences::default());
        Self { launcher, stage_root, servers, absences, progress: Mutex::default() }
    }

    /// How many children (or helpers of theirs) were given up and still live.
    #[must_use]
    pub fn stuck(&self) -> usize {
        self.launcher.stuck.load(Ordering::Relaxed)
    }

    /// Carries out the actions in order, up to the first failure, and then what is to be undone.
    pub async fn execute(&self, plan: Plan) -> PlanReport {
        self.execute_under(plan, Control::none()).await
    }

    /// The same, and it can be stopped until it changes the volume's place itself.
    pub async fn execute_under(&self, plan: Plan, control: Control) -> PlanReport {
        let holders = self.find_holders(&plan, &control).await;
        self.execute_knowing(plan, holders, control).await
    }

    /// Finds who holds what a plan is about to replace. Nothing is touched: it can be written down first.
    pub async fn find_holders(&self, plan: &Plan, control: &Control) -> Holders {
        let begun = clock::now();
        let limits = Limits { wait: plan.timeout, act: FIND_LIMIT };
        let step = self.find_consumers(plan, limits, control.stopped()).await;
        Holders { begun, found: step.found, related: step.related }
    }

    /// Carries out a plan, with who holds what it replaces.
    pub async fn execute_knowing(&self, plan: Plan, holders: Holders, control: Control) -> PlanReport {
        let gone_at = self.absences.begin(&plan);
        let mut course = Course { gone_at, begun: holders.begun, ..Course::begin() };
        let mut is_aside = true;
        (course.consumers, course.known.related) = (holders.found, holders.related);
        for action in &plan.actions {
            let limits = course.limits(&plan, action);
            course.has_begun_to_swap |= matches!(action, Action::Swap { .. });
            course.has_begun_to_unmount |= matches!(action, Action::UnmountOld);
            course.actions_begun += 1;
            let step = if is_aside && control.is_stopped() {
                (stopped(name(action)), Duration::ZERO)
            } else if is_aside && action.is_aside() {
                let stop = control.stopped();
                self.carry_out(&plan, action, limits, (&mut course, stop)).await
            } else {
                if std::mem::replace(&mut is_aside, false) {
                    control.shows(plan.id);
                    self.find_again(&plan, &mut course).await;
                }
                self.carry_out(&plan, action, limits, (&mut course, pending())).await
            };
            let step = self.once_more(&plan, action, (&mut course, step)).await;
            let goes_on = course.record(name(action), step);
            course.known.staged_is_good |= goes_on && matches!(action, Action::CheckStaged { .. });
            self.note(plan.id, Some(course.steps.clone()));
            if !goes_on {
                break;
            }
        }
        if !course.outcome.is_success() {
            for action in &plan.undo {
                if !course.is_to_be_undone(action) {
                    continue;
                }
                let left = course.left(&plan).max(UNDO_LIMIT);
                let limits = Limits { wait: left, act: left };
                let (step, took) = self.carry_out(&plan, action, limits, (&mut course, pending())).await;
                course.steps.push(line(&format!("undo {}", name(action)), &step, took));
                course.put_back |= matches!(action, Action::MountAgain) && step.outcome == Outcome::Changed;
                course.take_gap(&step);
            }
        }
        self.note(plan.id, None);
        self.absences.end(&plan, course.gone_at);
        course.report(&plan)
    }

    /// What has begun to hold the old mount while the new one was made. For the last time, that one proves its number.
    async fn find_again(&self, plan: &Plan, course: &mut Course) {
        let left = course.left(plan);
        let limits = Limits { wait: left, act: FIND_LIMIT.min(left / 2) };
        let step = self.find_consumers(plan, limits, pending()).await;
        course.consumers.extend(step.found);
        // Those that were known had their peers when the plan began, too.
        for (id, group) in step.related {
            course.known.related.entry(id).or_insert(group);
        }
    }

    /// A swap whose child was killed, also at its deadline, may be done by half: the new mount lies beneath the old
    /// one, or nothing is mounted. Nothing but the rest of it puts that in order while the new one is still known,
    /// and where nothing was done it begins anew. Not beside a child that does not die: its last call may still be
    /// carried out.
    async fn once_more(
        &self,
        plan: &Plan,
        action: &Action,
        (course, mut last): (&mut Course, (Step, Duration)),
    ) -> (Step, Duration) {
        let is_cut_off = |step: &Step| match step.outcome {
            Outcome::HelperFailed(_) => true,
            Outcome::TimedOut => !step.lives_on,
            _ => false,
        };
        for _ in 1..SWAPS {
            if !matches!(action, Action::Swap { .. }) || !is_cut_off(&last.0) {
                break;
            }
            course.steps.push(line(name(action), &last.0, last.1));
            let limits = course.limits(plan, action);
            last = self.carry_out(plan, action, limits, (&mut *course, pending())).await;
        }
        last
    }

    /// What running plans have done so far.
    #[must_use]
    pub fn progress(&self) -> BTreeMap<PlanId, Vec<String>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, plan: PlanId, steps: Option<Vec<String>>) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        match steps {
            Some(steps) => drop(progress.insert(plan, steps)),
            None => drop(progress.remove(&plan)),
        }
    }

    async fn carry_out(
        &self,
        plan: &Plan,
        action: &Action,
        limits: Limits,
        (course, stop): (&mut Course, impl Future<Output = ()>),
    ) -> (Step, Duration) {
        match self.everywhere(plan, action, limits, course).await {
            Some(done) => done,
            None => self.step(plan, action, limits, (course.known.clone(), stop)).await,
        }
    }

    /// Has one child do something that needs no leave.
    async fn ask(
        &self,
        plan: &Plan,
        action: WireAction,
        limits: Limits,
        (known, stop): (Known, impl Future<Output = ()>),
    ) -> Step {
        let limit = limits.act.min(limits.wait);
        let request = Request::new(plan, action, &self.stage_root, known, clock::now() + limit);
        settle(self.launcher.run(&request, (limit, stop), Vec::new()).await)
    }

    async fn step(
        &self,
        plan: &Plan,
        action: &Action,
        limits: Limits,
        (known, stop): (Known, impl Future<Output = ()>),
    ) -> (Step, Duration) {
        let begun = clock::now();
        let Limits { wait, act } = limits;
        tokio::pin!(stop);
        let permits = tokio::select! {
            permits = self.permits(plan, action, wait) => permits,
            () = &mut stop => return (stopped("wait"), clock::now().since(begun)),
        };
        let step = match permits {
            Err(step) => step,
            Ok(permits) => {
                let now = clock::now();
                let limit = act.min(wait.saturating_sub(now.since(begun)));
                let request = Request::new(plan, action.into(), &self.stage_root, known, now + limit);
                settle(self.launcher.run(&request, (limit, stop), permits).await)
            }
        };
        (step, clock::now().since(begun))
    }

    /// Leave to run a helper for the volume, and for the server that the action names.
    async fn permits(&self, plan: &Plan, action: &Action, wait: Duration) -> Result<Vec<Permit>, Step> {
        if !runs_helper(action) {
            return Ok(Vec::new());
        }
        let stuck = |whose: &str| {
            let text = format!(
                "an earlier helper for this {whose} was killed and has not ended; no other is started"
            );
            Step::new(Outcome::Refused(Refusal::HelperStuck), text)
        };
        let volume = self.servers.of_volume(&plan.volume).take();
        let Ok(volume) = timeout(wait.min(LINGER), volume).await else { return Err(stuck("volume")) };
        let named = match action {
            Action::Stage { source, fstype, .. } => server(fstype, source),
            _ => None,
        };
        let Some(server) = named.or(plan.server.as_deref()) else { return Ok(volume.into_iter().collect()) };
        let place = self.servers.of(server);
        let mut left = wait;
        let taken = place.clone().take();
        tokio::pin!(taken);
        // One that works will end; one that was killed may never do.
        while !left.is_zero() {
            let slice = left.min(LINGER);
            match timeout(slice, &mut taken).await {
                Ok(server) => return Ok(volume.into_iter().chain(server).collect()),
                Err(_) if place.is_stuck() => return Err(stuck("server")),
                Err(_) => left = left.saturating_sub(slice),
            }
        }
        Err(Step::new(Outcome::TimedOut, "no time left: another helper for this server is at work"))
    }
}

/// Whether an action starts a program that is not of the agent's own making.
const fn runs_helper(action: &Action) -> bool {
    match action {
        Action::Stage { .. } | Action::RunInPlace { .. } | Action::RestartUnit { .. } => true,
        Action::CheckSource { .. }
        | Action::CheckStaged { .. }
        | Action::AbortConnection { .. }
        | Action::MountAgain
        | Action::UnmountOld
        | Action::Swap { .. }
        | Action::Verify { .. }
        | Action::DetachTop
        | Action::CoverConsumers { .. }
        | Action::SwapConsumers { .. }
        | Action::Unstage => false,
    }
}

/// How long a step may take.
#[derive(Clone, Copy)]
struct Limits {
    /// With the wait for its turn.
    wait: Duration,
    /// From its beginning.
    act: Duration,
}

/// The plan was stopped before it had shown anything: somebody else was at work, or the agent ends.
fn stopped(doing: &str) -> Step {
    let text = format!("{doing}: stopped before anything was shown");
    Step::new(Outcome::Refused(Refusal::TableChanged), text)
}

fn settle(ending: Result<Ending, ChildError>) -> Step {
    match ending {
        Ok(Ending::Done(step)) => *step,
        Ok(Ending::Stopped(doing)) => stopped(&doing),
        Ok(Ending::TimedOut { doing, lives_on }) => {
            let step = Step::new(Outcome::TimedOut, format!("{doing}: did not come back"));
            Step { lives_on, ..step }
        }
        Ok(Ending::Lost { code, doing }) => Step::new(
            Outcome::HelperFailed(code),
            format!("{doing}: the child ended without an answer ({code})"),
        ),
        Err(error) => Step::new(Outcome::Failed(NO_CHILD), error.to_string()),
    }
}

/// What children read of the node: its fstab, a file of variables, what systemd says. For the fuzz targets.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn read_node_files(input: &[u8]) {
    if let Ok(entry) = fstab::find(input, &[&BytePath::from("/v")]) {
        assert!(!entry.fstype.is_empty() && entry.options.iter().all(|option| !option.is_empty()));
    }
    if let Ok(variables) = environment::parse(input) {
        assert!(variables.iter().all(|(name, _)| !name.is_empty()));
    }
    let _ = restart::Asked::parse(&String::from_utf8_lossy(input));
}

/// What is known of a plan while it runs.
struct Course {
    begun: Monotonic,
    outcome: Outcome,
    steps: Vec<String>,
    gap: Option<Duration>,
    /// Since when the volume's file system is gone, and no new one in its place.
    gone_at: Option<Monotonic>,
    known: Known,
    /// Other mounts of the old superblock, when the plan began.
    consumers: BTreeSet<u32>,
    /// Mounts that consumers lost, by their ids.
    left_behind: BTreeSet<u32>,
    /// Whatever the swap has done may be done by half.
    has_begun_to_swap: bool,
    /// The old file system may be gone, also where nobody said so.
    has_begun_to_unmount: bool,
    /// A child was given up, and is in a call that may still be carried out.
    lives_on: bool,
    /// What was taken away is shown again, read-only.
    put_back: bool,
    actions_begun: usize,
}

impl Course {
    /// What is left of the plan's time.
    fn left(&self, plan: &Plan) -> Duration {
        plan.timeout.saturating_sub(clock::now().since(self.begun))
    }

    /// Whether the plan came to what this would put in order.
    fn is_to_be_undone(&self, action: &Action) -> bool {
        match action {
            // The last call of a child that lives on may still be carried out: what goes by the place alone waits.
            Action::DetachTop | Action::MountAgain if self.lives_on => false,
            Action::DetachTop => self.has_begun_to_swap,
            // Another device is by now where the old one was.
            Action::MountAgain => {
                let may_be_gone = self.gone_at.is_some() || self.has_begun_to_unmount;
                may_be_gone && self.outcome != Outcome::Refused(Refusal::OtherVolume)
            }
            _ => true,
        }
    }

    /// The time that an action has, if it begins now.
    fn limits(&self, plan: &Plan, action: &Action) -> Limits {
        // What comes after a swap is no less needed where that has used up the time.
        let shows = matches!(action, Action::Swap { .. } | Action::Verify { .. });
        let left =
            if shows || self.has_begun_to_swap { self.left(plan).max(SHOW_LIMIT) } else { self.left(plan) };
        Limits { wait: left, act: left.min(plan.limit(action)) }
    }

    fn begin() -> Self {
        Self {
            begun: clock::now(),
            outcome: Outcome::AlreadySo,
            steps: Vec::new(),
            gap: None,
            gone_at: None,
            known: Known::default(),
            consumers: BTreeSet::new(),
            left_behind: BTreeSet::new(),
            has_begun_to_swap: false,
            has_begun_to_unmount: false,
            lives_on: false,
            put_back: false,
            actions_begun: 0,
        }
    }

    /// Writes a step down. False when the plan ends here.
    fn record(&mut self, name: &str, (step, took): (Step, Duration)) -> bool {
        self.steps.push(line(name, &step, took));
        self.known.number_proves_nothing |= step.number_proves_nothing;
        self.lives_on |= step.lives_on;
        self.take_gap(&step);
        self.known.former = step.former.or_else(|| self.known.former.take());
        let goes_on = step.outcome.is_success();
        // One change makes the plan one that changed something.
        if step.outcome != Outcome::AlreadySo {
            self.outcome = step.outcome;
        }
        goes_on
    }

    /// For how long the place has shown nothing, as far as this step tells of it.
    fn take_gap(&mut self, step: &Step) {
        self.gone_at = step.gone_at.or(self.gone_at);
        self.gap = match (self.gone_at, step.shown_at) {
            (Some(gone), Some(shown)) => {
                self.gone_at = None;
                Some(shown.since(gone))
            }
            (Some(_), None) | (None, _) => step.gap.or(self.gap),
        };
    }

    fn report(self, plan: &Plan) -> PlanReport {
        let took = clock::now().since(self.begun);
        PlanReport {
            id: plan.id,
            outcome: self.outcome,
            steps: self.steps,
            gap: self.gap,
            took,
            left_behind: self.left_behind.into_iter().map(MountId).collect(),
            consumers: self.consumers.into_iter().map(MountId).collect(),
            put_back: self.put_back,
            actions_begun: self.actions_begun,
        }
    }
}

fn line(name: &str, step: &Step, took: Duration) -> String {
    let label =
        if step.outcome.is_success() { String::new() } else { format!(" [{}]", step.outcome.label()) };
    format!("{name}:{label} {} — {} ms", step.text, took.as_millis())
}

#[cfg(test)]
mod tests;

const fn name(action: &Action) -> &'static str {
    match action {
        Action::CheckSource { .. } => "source",
        Action::Stage { .. } => "stage",
        Action::MountAgain => "mount again",
        Action::CheckStaged { .. } => "check",
        Action::AbortConnection { .. } => "abort",
        Action::RestartUnit { .. } => "restart",
        Action::UnmountOld => "unmount",
        Action::Swap { .. } => "swap",
        Action::RunInPlace { .. } => "run",
        Action::Verify { .. } => "verify",
        Action::DetachTop => "detach",
        Action::Unstage => "unstage",
        Action::CoverConsumers { .. } => "cover",
        Action::SwapConsumers { .. } => "consumers",
    }
}
