//! What a repair waits for, what its hook is asked, and what that says.

use agent_core::remediation::asking::Question;
use agent_core::secret::hide;
use agent_core::status::{Hold, VolumeStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PlanView, VolumeView};
use crate::export::Snapshot;
use crate::export::timestamp::{Timestamp, WallClock};

/// A repair that is due and does not begin.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HeldView {
    /// `server`, `hook`, `other_healer` or `change`.
    pub by: String,
    /// Since when.
    pub since: Timestamp,
    /// Until when, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// For people.
    pub detail: String,
}

/// The hook of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HookView {
    /// Its program or address.
    pub name: String,
    /// When it was asked last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Timestamp>,
    /// When it answered, or was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<Timestamp>,
    /// `resolved`, `remount`, `wait`, `escalate`, `bad_answer`, `timed_out`, `failed` or `unreachable`; absent while it
    /// is being asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// What it said besides, or what went wrong.
    #[serde(default)]
    pub detail: String,
    /// How often it has put the repair off since it last allowed one.
    #[serde(default)]
    pub put_off: u32,
}

/// What a hook is told, as JSON. Fields may be added within a version; none changes its meaning.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct QuestionView {
    /// `mountie/v1`
    #[serde(rename = "apiVersion")]
    pub api_version: &'static str,
    /// `RepairQuestion`
    pub kind: &'static str,
    /// The number of the question in this run of the agent.
    pub question: u64,
    /// How long the agent waits for the answer.
    pub timeout_seconds: f64,
    /// How often the repair was put off since it was last allowed.
    pub put_off: u32,
    /// How often it may be. After that the volume is quarantined.
    pub put_off_at_most: u32,
    /// The moment that is shown.
    pub at: Timestamp,
    /// What would be done.
    pub plan: PlanView,
    /// The volume and all evidence, as `/api/v1/volumes/{id}` shows it.
    pub volume: VolumeView,
}

impl HeldView {
    pub(super) fn of(volume: &VolumeStatus, clock: WallClock) -> Option<Self> {
        let held = volume.held_up.as_ref()?;
        let by = match held.hold {
            Hold::Healer => "other_healer",
            Hold::Change => "change",
            Hold::Server => "server",
            Hold::Hook => "hook",
        };
        Some(Self {
            by: by.to_owned(),
            since: clock.at(held.since),
            until: held.until.map(|until| clock.at(until)),
            detail: hide(&held.text),
        })
    }
}

impl HookView {
    pub(super) fn of(volume: &VolumeStatus, clock: WallClock) -> Option<Self> {
        let name = hide(volume.hook.as_ref()?);
        let asked = volume.asked.as_ref();
        let answered = asked.and_then(|asked| asked.answered.as_ref());
        Some(Self {
            name,
            asked: asked.map(|asked| clock.at(asked.at)),
            answered: answered.map(|(at, ..)| clock.at(*at)),
            answer: answered.map(|(_, answer, _)| answer.label().to_owned()),
            detail: answered.map(|(.., text)| hide(text)).unwrap_or_default(),
            put_off: asked.map_or(0, |asked| asked.put_off),
        })
    }
}

impl QuestionView {
    /// The question, with what is known of its volume.
    #[must_use]
    pub fn new(question: &Question, status: &VolumeStatus, snapshot: &Snapshot) -> Self {
        Self {
            api_version: "mountie/v1",
            kind: "RepairQuestion",
            question: question.id.0,
            timeout_seconds: question.hook.timeout.as_secs_f64(),
            put_off: question.put_off,
            put_off_at_most: question.put_off_at_most,
            at: snapshot.timestamp(),
            plan: PlanView::new(&question.plan),
            volume: VolumeView::new(status, snapshot),
        }
    }

    /// One line of JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // The views hold nothing that JSON cannot: string keys and finite numbers.
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.push(b'\n');
        text
    }
}
