//! What happens, for the log: constant messages, data in fields. Each thing is told once, here; repeated
//! failures are counted by the metrics and not logged.
//!
//! What happens again and again does not fill the log: beyond [`SUBJECT`] lines about a volume are counted, and told as
//! one line with the state to which they came and how the last repair failed. What people do, and that a volume is given
//! up, is always told, and that volumes fail together whatever else there is to tell.
//!
//! Levels: `error` when the agent gives up on a volume, `warn` when a volume or several got worse, when a repair failed,
//! and when a person acknowledged a loss, paused repairs or had something forgotten,
//! `info` for every other transition and every repair, `debug` for the steps of a repair, which may name files. The
//! step at which a repair failed stands in its warning.

use agent_core::engine::{Note, Transition};
use agent_core::health::loss::Actor;
use agent_core::incident::{Incident, Moment};
use agent_core::observation::PlanReport;
use agent_core::order::{Deed, NodeDeed};
use agent_core::remediation::{Outcome, Plan};
use agent_core::time::Monotonic;
use agent_core::verdict::{HealthState, Reason};
use tracing::{debug, error, info, warn};

use super::words;
use crate::sys::clock;
use crate::telemetry::flood::{Flood, LeftOut, NODE, SUBJECT, Short};
use agent_core::secret::hide;

/// The most volumes that a line names.
const NAMED: usize = 16;

/// What lines are about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Subject {
    Volume(String),
    /// What volumes that fail together have in common.
    Cause(String),
    /// The agent as a whole.
    Node,
}

/// What a line says in short, for those who get to see no more of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Last {
    message: &'static str,
    state: Option<&'static str>,
    reason: Option<&'static str>,
    /// How a repair failed.
    failed: Option<&'static str>,
}

impl Short for Last {
    /// A line that is of no state leaves it as it was, and one of a state says why it is, or that there is no reason.
    fn after(self, before: Self) -> Self {
        let (state, reason) = match self.state {
            Some(_) => (self.state, self.reason),
            None => (before.state, self.reason.or(before.reason)),
        };
        Self { state, reason, failed: self.failed.or(before.failed), ..self }
    }
}

/// What writes the lines, and knows how many there were.
#[derive(Debug)]
pub struct Log {
    flood: Flood<Subject, Last>,
    now: fn() -> Monotonic,
}

impl Default for Log {
    fn default() -> Self {
        Self { flood: Flood::new(SUBJECT, NODE), now: clock::now }
    }
}

impl Log {
    /// A condition changed, or a person said something about it.
    pub fn transition(&mut self, transition: &Transition) {
        let subject = Subject::Volume(transition.volume.to_string());
        let reason = transition.reason.map(Reason::label);
        let state = Some(transition.to.label());
        let last = Last { message: "transition", state, reason, failed: None };
        let is_given_up = transition.to == HealthState::Quarantined && transition.from != transition.to;
        if is_given_up || transition.deed.is_some() {
            let left_out = self.flood.insists(&subject, (self.now)());
            left_out.into_iter().for_each(|left_out| self.log_left_out(&subject, &left_out));
            log_transition(transition);
        } else {
            self.write(subject, last, || log_transition(transition));
        }
    }

    /// Volumes fail together, or do no more.
    pub fn incident(&mut self, moment: Moment, incident: &Incident) {
        let state = match moment {
            Moment::Began => "began",
            Moment::Ended => "ended",
        };
        let last = Last { message: "incident", state: Some(state), reason: None, failed: None };
        let subject = Subject::Cause(hide(&incident.cause.name));
        if self.flood.admits_apart(&subject, last, (self.now)()) {
            log_incident(moment, incident);
        }
    }

    /// A plan begins.
    pub fn plan_started(&mut self, plan: &Plan) {
        self.plan(plan, ("repair started", None), || log_plan_started(plan));
    }

    /// A plan was made that the mode only tells about.
    pub fn plan_would_run(&mut self, plan: &Plan) {
        self.plan(plan, ("repair is due", None), || log_plan_would_run(plan));
    }

    /// A plan ended.
    pub fn plan_finished(&mut self, plan: &Plan, report: &PlanReport) {
        let is_success = report.outcome.is_success();
        let message = if is_success { "repair finished" } else { "repair failed" };
        let failed = (!is_success).then(|| report.outcome.label());
        self.plan(plan, (message, failed), || log_plan_finished(plan, report));
    }

    /// Something odd or notable.
    pub fn note(&mut self, note: &Note) {
        let subject =
            note.volume.as_ref().map_or(Subject::Node, |volume| Subject::Volume(volume.to_string()));
        let last = Last { message: "note", state: None, reason: None, failed: None };
        self.write(subject, last, || log_note(note));
    }

    /// Tells what was left out, where there is room for it now.
    pub fn settle(&mut self) {
        for (subject, left_out) in self.flood.due((self.now)()) {
            self.log_left_out(&subject, &left_out);
        }
    }

    /// Tells all that was left out: the agent ends.
    pub fn finish(&mut self) {
        for (subject, left_out) in self.flood.rest() {
            self.log_left_out(&subject, &left_out);
        }
    }

    fn plan(
        &mut self,
        plan: &Plan,
        (message, failed): (&'static str, Option<&'static str>),
        write: impl FnOnce(),
    ) {
        let last = Last { message, state: None, reason: plan.reason.map(Reason::label), failed };
        self.write(Subject::Volume(plan.volume.to_string()), last, write);
    }

    fn write(&mut self, subject: Subject, last: Last, write: impl FnOnce()) {
        if self.flood.admits(&subject, last, (self.now)()) {
            write();
        }
    }

    fn log_left_out(&self, subject: &Subject, left_out: &LeftOut<Last>) {
        let LeftOut { count, since, last: Last { message: last, state, reason, failed } } = *left_out;
        let seconds = (self.now)().since(since).as_secs();
        match subject {
            Subject::Volume(volume) => {
                warn!(
                    volume,
                    count, seconds, last, state, reason, failed, "Lines about a volume were left out"
                );
            }
            Subject::Cause(cause) => {
                warn!(cause, count, seconds, last, state, "Lines about incidents were left out");
            }
            Subject::Node => warn!(count, seconds, last, "Lines about the agent were left out"),
        }
    }
}

/// A condition changed, or a person said something about it.
fn log_transition(transition: &Transition) {
    let volume = transition.volume.as_str();
    if let Some(deed) = transition.deed {
        log_done(Some(volume), deed, transition.by.as_ref(), &transition.message);
        return;
    }
    let incident = transition.incident.map(|incident| incident.0);
    let (from, to) = (transition.from.label(), transition.to.label());
    let reason = transition.reason.map(Reason::label);
    let detail = hide(&transition.message);
    match (transition.from.is_sick(), transition.to) {
        (_, HealthState::Quarantined) if transition.from == HealthState::Quarantined => {
            info!(volume, reason, detail, "Volume is given up still");
        }
        (_, HealthState::Quarantined) => {
            error!(volume, from, to, reason, detail, "Giving up on the volume, a person must act");
        }
        // The incident is told once, with all of them.
        (false, HealthState::Degraded | HealthState::Recovering) if incident.is_some() => {
            info!(volume, from, to, reason, incident, detail, "Volume is sick, with others");
        }
        (false, HealthState::Degraded | HealthState::Recovering) => {
            let detection_seconds =
                transition.evidence_at.map(|evidence| transition.at.since(evidence).as_secs_f64());
            warn!(volume, from, to, reason, detection_seconds, detail, "Volume is sick");
        }
        // A repair that did not help, or another reason than before.
        (true, HealthState::Degraded) => warn!(volume, from, to, reason, detail, "Volume is still sick"),
        (true, HealthState::Recovering) => {
            info!(volume, from, to, reason, detail, "Volume is being repaired")
        }
        (true, HealthState::Probation | HealthState::Healthy) => {
            info!(volume, from, to, reason, detail, "Volume answers again");
        }
        (true, HealthState::Unknown | HealthState::Suspect) | (false, _) => {
            info!(volume, from, to, reason, detail, "Volume changed its state");
        }
    }
}

/// Somebody did something that is about no volume's history.
pub fn log_deed(deed: &NodeDeed) {
    let volume = deed.volume.as_ref().map(|volume| volume.as_str());
    log_done(volume, deed.deed, deed.by.as_ref(), &deed.message);
}

fn log_done(volume: Option<&str>, deed: Deed, by: Option<&Actor>, message: &str) {
    let detail = hide(message);
    let Some(Actor { uid, pid, comm }) = by else {
        info!(volume, deed = deed.label(), detail, "A pause is over");
        return;
    };
    match deed {
        Deed::Acknowledgement => {
            warn!(volume, uid, pid, comm, detail, "A loss of data or damage was acknowledged");
        }
        Deed::Pause => warn!(volume, uid, pid, comm, detail, "Repairs are paused"),
        Deed::Resume => info!(volume, uid, pid, comm, detail, "Repairs go on"),
        Deed::Remount => info!(volume, uid, pid, comm, detail, "Mounted anew by order"),
        Deed::Forget => warn!(volume, uid, pid, comm, detail, "What was known of a volume is forgotten"),
    }
}

/// Volumes fail together, or do no more.
fn log_incident(moment: Moment, incident: &Incident) {
    let (id, kind) = (incident.id.0, incident.cause.kind.label());
    let cause = hide(&incident.cause.name);
    let names: Vec<&str> = incident.members.iter().take(NAMED).map(|member| member.volume.as_str()).collect();
    let (count, volumes) = (incident.size(), names.join(", "));
    match moment {
        Moment::Began => warn!(incident = id, kind, cause, count, volumes, "Volumes fail together"),
        Moment::Ended => {
            let seconds = incident.ended.map(|at| at.since(incident.began).as_secs());
            info!(
                incident = id,
                kind, cause, count, volumes, seconds, "Volumes do not fail together any more"
            );
        }
    }
}

/// A plan begins.
fn log_plan_started(plan: &Plan) {
    info!(
        plan = plan.id.0,
        volume = plan.volume.as_str(),
        reason = plan.reason.map(Reason::label),
        method = words::plan_method(plan),
        mountpoint = %plan.mountpoint,
        old_superblock = plan.old.map(tracing::field::display),
        "Repair started"
    );
    log_actions(plan);
}

/// A plan was made that the mode only tells about.
fn log_plan_would_run(plan: &Plan) {
    info!(
        plan = plan.id.0,
        volume = plan.volume.as_str(),
        reason = plan.reason.map(Reason::label),
        method = words::plan_method(plan),
        mountpoint = %plan.mountpoint,
        "Repair is due, not carried out in mode dry-run"
    );
    log_actions(plan);
}

/// A plan ended.
fn log_plan_finished(plan: &Plan, report: &PlanReport) {
    let volume = plan.volume.as_str();
    let reason = plan.reason.map(Reason::label);
    let method = words::plan_method(plan);
    let outcome = report.outcome.label();
    let took_seconds = report.took.as_secs_f64();
    let gap_seconds = report.gap.map(|gap| gap.as_secs_f64());
    let plan = report.id.0;
    if report.outcome.is_success() {
        info!(plan, volume, reason, method, outcome, took_seconds, gap_seconds, "Repair finished");
    } else {
        let errno = match &report.outcome {
            Outcome::Failed(errno) => Some(tracing::field::display(errno)),
            _ => None,
        };
        let detail = words::outcome_sentence(&report.outcome);
        let step = words::failed_step(report);
        warn!(
            plan,
            volume, reason, method, outcome, errno, took_seconds, gap_seconds, detail, step, "Repair failed"
        );
    }
    for (number, step) in (1_u64..).zip(&report.steps) {
        debug!(plan, volume, number, step = hide(step), "Step of the repair");
    }
}

/// Something odd or notable.
fn log_note(note: &Note) {
    info!(volume = note.volume.as_ref().map(|volume| volume.as_str()), detail = hide(&note.text), "Note");
}

fn log_actions(plan: &Plan) {
    for (number, action) in (1_u64..).zip(&plan.actions) {
        debug!(
            plan = plan.id.0,
            volume = plan.volume.as_str(),
            number,
            step = words::action_sentence(action, plan),
            "Step of the plan"
        );
    }
}

#[cfg(test)]
mod tests;
