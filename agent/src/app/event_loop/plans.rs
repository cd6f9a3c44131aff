//! Plans: what is asked before one, the intent on disk before it acts, the outcome after; and what is lost between is
//! settled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agent_core::engine::{Input, Output, Transition};
use agent_core::id::PlanId;
use agent_core::observation::{PlanReport, Unfinished};
use agent_core::remediation::asking::Question;
use agent_core::remediation::{Outcome, Plan};
use agent_core::verdict::{Advice, HealthState};
use agent_core::volume::Mode;
use tokio::task::{Id, JoinError};
use tracing::{info, warn};

use super::signals::Signals;
use super::{Event, EventLoop, told};
use crate::export::metrics::Suppression;
use crate::export::view::QuestionView;
use crate::remediation::Control;
use crate::sys::clock;

/// A plan that has shown its new mount needs no longer to bring it to containers. The unit of the service manager must
/// leave the agent more than this.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

type PlanEnd = Result<(Id, PlanReport), JoinError>;

impl EventLoop {
    pub(super) fn execute(&mut self, plan: Plan) {
        self.log.plan_started(&plan);
        self.chronicle.repair_began(&plan);
        let (stop, control) = Control::new(self.shows.0.clone());
        let (store, executor, order) = (Arc::clone(&self.store), Arc::clone(&self.executor), plan.clone());
        let carrier = self.plans.spawn(async move {
            let holders = executor.find_holders(&order, &control).await;
            // Whoever finds the plan cut off must know whom it has not come to.
            told(store.intent(&order, holders.elsewhere(&order)).await);
            let (id, report) = (order.id, executor.execute_knowing(order, holders, control).await);
            told(store.outcome(id, &report.outcome).await);
            report
        });
        self.carriers.insert(carrier.id(), (plan, stop));
    }

    /// Plans that were about to change a place before what is taken next could show it.
    pub(super) fn take_shows(&mut self) {
        while let Ok(plan) = self.shows.1.try_recv() {
            self.feed(Input::PlanShows(plan));
        }
    }

    /// Asks a hook, with all that is shown of the volume.
    pub(super) fn ask(&mut self, question: Question) {
        let Some(status) = self.engine.volume(&question.volume) else { return };
        let evidence = QuestionView::new(&question, &status, &self.snapshots.borrow()).to_json();
        self.asks.ask(question, evidence);
    }

    pub(super) fn take_plan_end(&mut self, end: PlanEnd) {
        self.take_shows();
        let Some((plan, report)) = self.tell_plan_end(end) else { return };
        self.sources.rescan();
        let is_cut_off = report.outcome == Outcome::Interrupted;
        if is_cut_off {
            let Plan { id, volume, mountpoint, stage, old, marks, .. } = plan;
            // They went with the task.
            let holders = BTreeSet::new();
            let unfinished = Unfinished { plan: id, volume, mountpoint, stage, old, marks, holders };
            self.feed(Input::Unfinished(vec![unfinished]));
        }
        self.feed(Input::PlanFinished(report));
    }

    fn tell_plan_end(&mut self, end: PlanEnd) -> Option<(Plan, PlanReport)> {
        let (id, report) = match end {
            Ok((id, report)) => (id, Some(report)),
            Err(error) => (error.id(), None),
        };
        let (plan, _) = self.carriers.remove(&id)?;
        let report = report.unwrap_or_else(|| {
            tracing::error!(plan = plan.id.0, "A repair was lost by a fault of the agent, it is settled now");
            PlanReport::of(plan.id, Outcome::Interrupted, Duration::ZERO)
        });
        self.metrics.observe_plan(&plan, &report);
        self.log.plan_finished(&plan, &report);
        self.chronicle.repair_ended(&plan, &report);
        Some((plan, report))
    }

    /// The agent ends: plans that nobody has seen anything of stop and clear away, others are brought to their end. What
    /// is half done would be the next agent's to settle, and there may be none. Who asks a second time waits no more.
    pub(super) async fn end_plans(&mut self, signals: &mut Signals) {
        if self.carriers.is_empty() {
            return;
        }
        info!(plans = self.carriers.len(), "Repairs are brought to an end first");
        // Who asks for something now is told at once that the agent is about to end.
        self.commands.close();
        while self.commands.try_recv().is_ok() {}
        for (_, stop) in self.carriers.values() {
            stop.stop();
        }
        let patience = tokio::time::sleep(ENDS_WITHIN);
        tokio::pin!(patience);
        loop {
            tokio::select! {
                end = self.plans.join_next_with_id() => match end {
                    Some(end) => self.keep_plan_end(end),
                    None => return,
                },
                () = &mut patience => break,
                event = signals.recv() => if matches!(event, Event::End(_)) { break },
            }
        }
        warn!(plans = self.carriers.len(), "Repairs are cut off, the next agent settles them");
        self.plans.abort_all();
    }

    /// Nothing is begun any more because a plan has ended, and all that the next agent must know of it is kept: how many
    /// attempts there were, and to whom the plan has not come.
    fn keep_plan_end(&mut self, end: PlanEnd) {
        let Some((_, report)) = self.tell_plan_end(end) else { return };
        let outputs = self.engine.handle(clock::now(), Input::PlanFinished(report));
        let is_kept = |output: &Output| {
            matches!(output, Output::Remember(_) | Output::Forget(_) | Output::Transition(_))
        };
        self.carry_out(outputs.into_iter().filter(is_kept).collect());
    }

    /// Ends a plan that has shown nothing yet.
    pub(super) fn stop(&self, plan: PlanId) {
        for (_, stop) in self.carriers.values().filter(|(carried, _)| carried.id == plan) {
            stop.stop();
        }
    }

    /// What a repair that is due waits for: the end of a pause, or because the volume falls again and again.
    pub(super) fn held_back_by(&self, transition: &Transition) -> Option<Suppression> {
        let is_fall = transition.to == HealthState::Degraded && !transition.from.is_sick();
        let volume = self.engine.volume(&transition.volume).filter(|volume| volume.mode == Mode::Act)?;
        let flaps = volume.next_attempt.is_some() && volume.condition.advice.contains(&Advice::Flapping);
        let cause = if volume.pause.is_some() {
            Some(Suppression::Paused)
        } else {
            flaps.then_some(Suppression::Flapping)
        };
        cause.filter(|_| is_fall)
    }
}
