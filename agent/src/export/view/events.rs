//! What has happened: changes of condition, what people did, incidents, repairs.

use std::time::Duration;

use agent_core::engine::Transition;
use agent_core::health::loss::Actor;
use agent_core::incident::{Incident, Moment};
use agent_core::observation::PlanReport;
use agent_core::order::{Deed, NodeDeed};
use agent_core::remediation::Plan;
use agent_core::secret::hide;
use agent_core::time::Monotonic;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::incidents::sentence;
use super::label;
use crate::export::age;
use crate::export::event_id::EventId;
use crate::export::timestamp::{Timestamp, WallClock};
use crate::export::words;

/// Answer of `/api/v1/events`: what is remembered, newest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EventList {
    /// The moment that is shown.
    pub at: Timestamp,
    /// The last event of all; with `after=` and `limit=` the last that is given here. Who goes on after this one
    /// misses nothing.
    pub last: EventId,
    /// With `after=`: how many events after that one are no longer remembered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
    /// With `after=` an event of another run of the agent: what happened between is not known here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restarted: bool,
    /// The events.
    pub events: Vec<EventView>,
}

/// What a stream says when it cannot say everything.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LostView {
    /// `lost`
    pub kind: String,
    /// When.
    pub at: Timestamp,
    /// Who goes on after this one misses nothing more.
    pub id: EventId,
    /// How many events are no longer remembered; absent when they were those of another run of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
    /// One sentence for people.
    pub message: String,
}

/// What a stream of lines says when nothing happens.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PulseView {
    /// `pulse`
    pub kind: String,
    /// When.
    pub at: Timestamp,
    /// The last event so far.
    pub id: EventId,
}

/// One event.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EventView {
    /// Its name; later events have greater numbers.
    pub id: EventId,
    /// `transition`, `acknowledgement`, `pause`, `resume`, `remount`, `forget`, `incident_began`, `incident_ended`,
    /// `repair_began`, `repair_ended` or `repair_due` (in mode `dry-run`).
    pub kind: String,
    /// When.
    pub at: Timestamp,
    /// When, in seconds since boot on the kernel's monotonic clock: to compare with the kernel's own records.
    pub since_boot: f64,
    /// Of which volume; absent where it is about several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The state before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The state after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// One sentence for people.
    pub message: String,
    /// The person who did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ActorView>,
    /// The incident that it is about or part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident: Option<u64>,
    /// The volumes of an incident.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// The plan of a repair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<u64>,
    /// How a repair ended, as in `mountie_remediation_total`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
}

/// A person, as the socket's peer credentials say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ActorView {
    /// User id.
    pub uid: u32,
    /// Process id; 0 when it is not known.
    pub pid: u32,
    /// Name of the process, escaped; empty when it is not known.
    pub comm: String,
}

/// A change of condition, or what a person said about one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TransitionView {
    /// When.
    pub at: Timestamp,
    /// When, in seconds since boot on the kernel's monotonic clock: to compare with the kernel's own records.
    pub since_boot: f64,
    /// Of which volume.
    pub volume: String,
    /// From.
    pub from: String,
    /// To.
    pub to: String,
    /// Why.
    pub reason: Option<String>,
    /// One sentence for people.
    pub message: String,
    /// What a person did; absent for a change of condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deed: Option<String>,
    /// The person who did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ActorView>,
    /// The incident that the volume was part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident: Option<u64>,
}

impl ActorView {
    pub(super) fn new(actor: &Actor) -> Self {
        Self { uid: actor.uid, pid: actor.pid, comm: actor.comm.clone() }
    }
}

impl TransitionView {
    pub(super) fn new(transition: &Transition, clock: WallClock) -> Self {
        Self {
            at: clock.at(transition.at),
            since_boot: transition.at.since_boot().as_secs_f64(),
            volume: transition.volume.to_string(),
            from: transition.from.label().to_owned(),
            to: transition.to.label().to_owned(),
            reason: label(transition.reason),
            message: hide(&transition.message),
            deed: transition.deed.map(|deed| deed.label().to_owned()),
            by: transition.by.as_ref().map(ActorView::new),
            incident: transition.incident.map(|incident| incident.0),
        }
    }
}

impl EventView {
    /// Whether it is about this volume, alone or among others.
    #[must_use]
    pub fn is_about(&self, volume: &str) -> bool {
        self.volume.as_deref() == Some(volume)
            || self.volumes.iter().any(|member| member == volume)
            || self.is_about_all()
    }

    /// Whether it is about every volume of the node.
    #[must_use]
    pub fn is_about_all(&self) -> bool {
        self.volume.is_none() && self.volumes.is_empty()
    }

    /// The same, with the wall clock's time as this pairing of the clocks has it: the wall clock may have been set
    /// since.
    pub(crate) fn as_of(&self, clock: WallClock) -> Self {
        let since_boot = Duration::try_from_secs_f64(self.since_boot).unwrap_or_default();
        let time = Monotonic::from_nanos(u64::try_from(since_boot.as_nanos()).unwrap_or(u64::MAX));
        Self { at: clock.at(time), ..self.clone() }
    }

    /// With nothing but its kind and its time. The chronicle gives it its name.
    fn at(kind: &str, at: Monotonic, clock: WallClock) -> Self {
        Self {
            id: EventId::default(),
            kind: kind.to_owned(),
            at: clock.at(at),
            since_boot: at.since_boot().as_secs_f64(),
            volume: None,
            from: None,
            to: None,
            reason: None,
            message: String::new(),
            by: None,
            incident: None,
            volumes: Vec::new(),
            plan: None,
            outcome: None,
        }
    }

    pub(crate) fn of_transition(transition: &Transition, clock: WallClock) -> Self {
        let kind = transition.deed.map_or("transition", Deed::label);
        let view = TransitionView::new(transition, clock);
        Self {
            volume: Some(view.volume),
            from: Some(view.from),
            to: Some(view.to),
            reason: view.reason,
            message: view.message,
            by: view.by,
            incident: view.incident,
            ..Self::at(kind, transition.at, clock)
        }
    }

    pub(crate) fn of_incident(moment: Moment, incident: &Incident, clock: WallClock) -> Self {
        let (kind, at) = match moment {
            Moment::Began => ("incident_began", incident.began),
            Moment::Ended => ("incident_ended", incident.ended.unwrap_or(clock.at)),
        };
        Self {
            message: sentence(incident),
            incident: Some(incident.id.0),
            volumes: incident.members.iter().map(|member| member.volume.to_string()).collect(),
            ..Self::at(kind, at, clock)
        }
    }

    /// Something that is about no volume's history.
    pub(crate) fn of_deed(deed: &NodeDeed, clock: WallClock) -> Self {
        Self {
            volume: deed.volume.as_ref().map(ToString::to_string),
            message: hide(&deed.message),
            by: deed.by.as_ref().map(ActorView::new),
            ..Self::at(deed.deed.label(), deed.at, clock)
        }
    }

    /// A plan that begins, or is only told of, now.
    pub(crate) fn of_plan(kind: &str, plan: &Plan, clock: WallClock) -> Self {
        let steps: Vec<String> =
            plan.actions.iter().map(|action| words::action_sentence(action, plan)).collect();
        Self {
            volume: Some(plan.volume.to_string()),
            reason: label(plan.reason),
            message: format!("plan {}, by {}: {}", plan.id.0, words::plan_method(plan), steps.join("; ")),
            plan: Some(plan.id.0),
            ..Self::at(kind, clock.at, clock)
        }
    }

    /// A plan that has ended now.
    pub(crate) fn of_report(plan: &Plan, report: &PlanReport, clock: WallClock) -> Self {
        let took = age::span(report.took);
        let step = words::failed_step(report).map(|step| format!("; {step}")).unwrap_or_default();
        Self {
            volume: Some(plan.volume.to_string()),
            reason: label(plan.reason),
            message: format!(
                "plan {}, by {}: {}, after {took}{step}",
                plan.id.0,
                words::plan_method(plan),
                words::outcome_sentence(&report.outcome)
            ),
            plan: Some(plan.id.0),
            outcome: Some(report.outcome.label().to_owned()),
            ..Self::at("repair_ended", clock.at, clock)
        }
    }
}
