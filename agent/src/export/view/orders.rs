//! What people order by hand: pauses, plans before they are carried out, and what came of an order.

use agent_core::order::{Preview, Refused};
use agent_core::pause::Pause;
use agent_core::remediation::Plan;
use agent_core::status::VolumeStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ActorView;
use crate::export::timestamp::{Timestamp, WallClock};
use crate::export::words::{self, orders};
use agent_core::secret::hide;

/// A pause that holds repairs back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PauseView {
    /// Whether it is that of the whole node.
    pub all: bool,
    /// Since when.
    pub since: Timestamp,
    /// It ends by itself then; absent when somebody has to end it.
    pub until: Option<Timestamp>,
    /// Who.
    pub by: ActorView,
    /// Why.
    pub reason: Option<String>,
}

impl PauseView {
    pub(super) fn of(volume: &VolumeStatus, clock: WallClock) -> Option<Self> {
        volume.pause.as_ref().map(|(pause, all)| Self::new(pause, *all, clock))
    }

    pub(crate) fn new(pause: &Pause, all: bool, clock: WallClock) -> Self {
        Self {
            all,
            since: orders::paused_since(pause, clock),
            until: pause.until.map(|until| clock.at(until)),
            by: ActorView::new(&pause.by),
            reason: pause.reason.as_deref().map(hide),
        }
    }
}

/// What `POST /api/v1/pause` takes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseOrder {
    /// It ends by itself after so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What an order answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OrderAnswer {
    /// The moment.
    pub at: Timestamp,
    /// Which volume; absent for the node.
    #[serde(default)]
    pub volume: Option<String>,
    /// Whether it was followed.
    pub done: bool,
    /// Whether it is on disk, so that a restart of the agent knows of it.
    pub kept: bool,
    /// One sentence for people.
    pub message: String,
    /// The plan that is carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanPreview>,
}

/// A plan, step by step. Nothing has been done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PlanPreview {
    /// For which volume.
    pub volume: String,
    /// The number that it has, or would have now.
    pub id: u64,
    /// `mount` or `command`.
    pub method: String,
    /// Why the volume is sick; absent when it is not.
    pub reason: Option<String>,
    /// Where the volume is.
    pub mountpoint: String,
    /// The superblock that would be replaced; absent when nothing is mounted.
    pub old: Option<String>,
    /// What is done, in order. The first failure ends the plan.
    pub steps: Vec<StepView>,
    /// What is done after a failure.
    pub undo: Vec<StepView>,
    /// It ends by then.
    pub timeout_seconds: f64,
    /// Why it would not be begun at this moment.
    #[serde(default)]
    pub hindered: Option<String>,
}

/// One step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StepView {
    /// What is done.
    pub what: String,
    /// What that touches.
    pub touches: String,
}

impl PlanPreview {
    /// A plan as it stands.
    pub(crate) fn new(plan: &Plan) -> Self {
        let steps = |actions: &[agent_core::remediation::Action]| {
            let step = |action| StepView {
                what: words::action_sentence(action, plan),
                touches: orders::touches(action, plan),
            };
            actions.iter().map(step).collect()
        };
        Self {
            volume: plan.volume.to_string(),
            id: plan.id.0,
            method: words::plan_method(plan).to_owned(),
            reason: super::label(plan.reason),
            mountpoint: plan.mountpoint.to_string(),
            old: plan.old.map(|old| old.to_string()),
            steps: steps(&plan.actions),
            undo: steps(&plan.undo),
            timeout_seconds: plan.timeout.as_secs_f64(),
            hindered: None,
        }
    }

    /// One that is only looked at.
    pub(crate) fn of(preview: &Preview, clock: WallClock) -> Self {
        // A look ends within its deadline, and whoever orders waits for that.
        let hindered = preview.hindered.as_ref().filter(|refused| **refused != Refused::Looking);
        let hindered = hindered.map(|refused| orders::refused(refused, clock));
        Self { hindered, ..Self::new(&preview.plan) }
    }
}
