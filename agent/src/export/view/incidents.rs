//! Volumes that fail together, and what was lost and acknowledged.

use agent_core::health::loss::Loss;
use agent_core::incident::Incident;
use agent_core::secret::hide;
use agent_core::status::VolumeStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::events::ActorView;
use super::label;
use crate::export::Snapshot;
use crate::export::timestamp::{Timestamp, WallClock};

/// Answer of `/api/v1/incidents`: those that last, and the last that were over, newest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct IncidentList {
    /// The moment that is shown.
    pub at: Timestamp,
    /// The incidents.
    pub incidents: Vec<IncidentView>,
}

/// Volumes that fail together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct IncidentView {
    /// Its number since the agent started.
    pub id: u64,
    /// What they have in common: `server`, `device` or `daemon`.
    pub kind: String,
    /// Which.
    pub cause: String,
    /// When the first fell.
    pub began: Timestamp,
    /// When none was sick any more; absent while it lasts.
    pub ended: Option<Timestamp>,
    /// How many volumes it has touched.
    pub size: u64,
    /// How many of those that are listed are sick now.
    pub sick: u64,
    /// One sentence for people.
    pub message: String,
    /// The volumes, in the order in which they fell.
    pub volumes: Vec<MemberView>,
}

/// A volume that is or was part of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MemberView {
    /// Which.
    pub volume: String,
    /// When it fell.
    pub fell: Timestamp,
    /// Why.
    pub reason: Option<String>,
    /// When it was not sick any more.
    pub recovered: Option<Timestamp>,
}

/// The incident that a volume is part of.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct IncidentRef {
    /// Its number.
    pub id: u64,
    /// What the volumes have in common.
    pub kind: String,
    /// Which.
    pub cause: String,
    /// When the first fell.
    pub began: Timestamp,
    /// How many volumes it has touched.
    pub size: u64,
    /// The other volumes, at most sixteen.
    pub others: Vec<String>,
}

/// Dirty data that was lost, or damage that a file system found in itself.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LossView {
    /// When.
    pub at: Timestamp,
    /// With which error.
    pub errno: String,
    /// When a person acknowledged it; absent while it is open.
    pub acknowledged: Option<Timestamp>,
    /// Who did.
    pub by: Option<ActorView>,
}

/// Answer of `POST /api/v1/ack/{id}`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AckAnswer {
    /// The moment that is shown.
    pub at: Timestamp,
    /// The volume.
    pub volume: String,
    /// Whether there was anything to acknowledge.
    pub acknowledged: bool,
    /// Whether it is on disk; if not, a restart forgets it.
    pub kept: bool,
    /// One sentence for people.
    pub message: String,
}

/// Other volumes that are named beside one.
const OTHERS: usize = 16;

/// How many there are and what they have in common, for people.
pub(crate) fn sentence(incident: &Incident) -> String {
    let (count, cause) = (incident.size(), hide(&incident.cause.to_string()));
    match incident.ended {
        None => format!("{count} volumes of {cause} fail together"),
        Some(at) => {
            let seconds = at.since(incident.began).as_secs();
            format!("{count} volumes of {cause} failed together, none is sick any more after {seconds} s")
        }
    }
}

impl IncidentList {
    /// Everything in the snapshot.
    #[must_use]
    pub fn new(snapshot: &Snapshot) -> Self {
        let clock = snapshot.clock();
        let incidents =
            snapshot.incidents.iter().map(|incident| IncidentView::new(incident, clock)).collect();
        Self { at: snapshot.timestamp(), incidents }
    }
}

impl IncidentView {
    fn new(incident: &Incident, clock: WallClock) -> Self {
        let is_sick = |member: &&agent_core::incident::Member| member.recovered.is_none();
        Self {
            id: incident.id.0,
            kind: incident.cause.kind.label().to_owned(),
            cause: hide(&incident.cause.name),
            began: clock.at(incident.began),
            ended: incident.ended.map(|at| clock.at(at)),
            size: incident.size(),
            sick: u64::try_from(incident.members.iter().filter(is_sick).count()).unwrap_or(u64::MAX),
            message: sentence(incident),
            volumes: incident
                .members
                .iter()
                .map(|member| MemberView {
                    volume: member.volume.to_string(),
                    fell: clock.at(member.fell),
                    reason: label(Some(member.reason)),
                    recovered: member.recovered.map(|at| clock.at(at)),
                })
                .collect(),
        }
    }
}

impl IncidentRef {
    pub(super) fn of(volume: &VolumeStatus, snapshot: &Snapshot) -> Option<Self> {
        let id = volume.incident?;
        let incident = snapshot.incidents.iter().find(|incident| incident.id == id)?;
        let others = incident.members.iter().filter(|member| member.volume != volume.id);
        Some(Self {
            id: id.0,
            kind: incident.cause.kind.label().to_owned(),
            cause: hide(&incident.cause.name),
            began: snapshot.clock().at(incident.began),
            size: incident.size(),
            others: others.take(OTHERS).map(|member| member.volume.to_string()).collect(),
        })
    }
}

impl LossView {
    pub(super) fn new(loss: &Loss, clock: WallClock) -> Self {
        Self {
            at: clock.at(loss.at),
            errno: loss.errno.to_string(),
            acknowledged: loss.acknowledged.as_ref().map(|told| clock.at(told.at)),
            by: loss.acknowledged.as_ref().map(|told| ActorView::new(&told.by)),
        }
    }
}
