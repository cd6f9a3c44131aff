//! What has happened: changes of condition, acknowledgements, incidents.

use agent_core::engine::Transition;
use agent_core::health::loss::Actor;
use agent_core::incident::Incident;
use agent_core::order::Deed;
use agent_core::secret::hide;
use serde::{Deserialize, Serialize};

use super::incidents::sentence;
use super::label;
use crate::export::Snapshot;
use crate::export::timestamp::{Timestamp, WallClock};

/// Answer of `/api/v1/events`: what is remembered, newest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EventList {
    /// The moment that is shown.
    pub at: Timestamp,
    /// The events.
    pub events: Vec<EventView>,
}

/// One event.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EventView {
    /// `transition`, `acknowledgement`, `pause`, `resume`, `remount`, `forget`, `incident_began` or `incident_ended`.
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
}

/// A person, as the socket's peer credentials say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ActorView {
    /// User id.
    pub uid: u32,
    /// Process id; 0 when it is not known.
    pub pid: u32,
    /// Name of the process, escaped; empty when it is not known.
    pub comm: String,
}

/// A change of condition, or what a person said about one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
    fn of_transition(transition: &Transition, clock: WallClock) -> Self {
        let view = TransitionView::new(transition, clock);
        let kind = transition.deed.map_or("transition", Deed::label);
        Self {
            kind: kind.to_owned(),
            at: view.at,
            since_boot: view.since_boot,
            volume: Some(view.volume),
            from: Some(view.from),
            to: Some(view.to),
            reason: view.reason,
            message: view.message,
            by: view.by,
            incident: view.incident,
            volumes: Vec::new(),
        }
    }

    /// Its begin, and its end if it is over.
    fn of_incident(incident: &Incident, clock: WallClock) -> impl Iterator<Item = Self> {
        let moments = [("incident_began", Some(incident.began)), ("incident_ended", incident.ended)];
        moments.into_iter().filter_map(move |(kind, at)| {
            let at = at?;
            Some(Self {
                kind: kind.to_owned(),
                at: clock.at(at),
                since_boot: at.since_boot().as_secs_f64(),
                volume: None,
                from: None,
                to: None,
                reason: None,
                message: sentence(incident),
                by: None,
                incident: Some(incident.id.0),
                volumes: incident.members.iter().map(|member| member.volume.to_string()).collect(),
            })
        })
    }
}

impl EventList {
    /// The histories of all volumes and the incidents in one line, newest first.
    #[must_use]
    pub fn new(snapshot: &Snapshot) -> Self {
        let clock = snapshot.clock();
        let histories = snapshot.volumes.iter().flat_map(|volume| &volume.history);
        let transitions = histories.map(|transition| EventView::of_transition(transition, clock));
        let incidents =
            snapshot.incidents.iter().flat_map(|incident| EventView::of_incident(incident, clock));
        let deeds = snapshot.deeds.iter().map(|deed| EventView::of_deed(deed, clock));
        let mut events: Vec<_> = transitions.chain(incidents).chain(deeds).collect();
        events.sort_by(|a, b| b.at.cmp(&a.at).then_with(|| a.volume.cmp(&b.volume)));
        Self { at: snapshot.timestamp(), events }
    }
}
