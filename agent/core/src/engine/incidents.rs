//! Which sick volumes fail together.
//!
//! Two volumes that fall within a window and depend on one thing are an incident; a third that falls later, while it
//! lasts, is part of it. It is told a moment after it began, so that those that fall at the same time are named at
//! once, and again when none of its volumes has been sick for a moment. What only one volume suffers from is none.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::engine::volume::Volume;
use crate::engine::{Engine, Output};
use crate::id::VolumeId;
use crate::incident::{Cause, CauseKind, Incident, IncidentId, Member, Moment};
use crate::policy::Thresholds;
use crate::time::Monotonic;
use crate::verdict::Reason;

/// Volumes that fall within this time of the second one are named when the incident is told.
const GATHER: Duration = Duration::from_secs(2);
/// It is over when no volume was sick for this long.
const QUIET: Duration = Duration::from_secs(10);
/// Incidents that are over and still shown.
const PAST: usize = 16;

/// A sick volume.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Sick {
    fell: Monotonic,
    reason: Reason,
    causes: Vec<Cause>,
    window: Duration,
    /// It was sick before the agent started.
    is_recalled: bool,
    incident: Option<IncidentId>,
}

#[derive(Clone, Debug)]
struct Open {
    /// Shared with what was last shown and told; a copy is made only when it changes.
    incident: Arc<Incident>,
    /// Other names of the same server.
    names: BTreeSet<Cause>,
    sick: BTreeSet<VolumeId>,
    /// It is told then; `None`: it was.
    tell_at: Option<Monotonic>,
    /// Since when none is sick.
    quiet_since: Option<Monotonic>,
}

/// All incidents.
#[derive(Clone, Debug, Default)]
pub(super) struct Incidents {
    last: u64,
    sick: BTreeMap<VolumeId, Sick>,
    by_cause: BTreeMap<Cause, BTreeSet<VolumeId>>,
    open: BTreeMap<IncidentId, Open>,
    /// Those that are part of an open one, also when they have recovered.
    members: BTreeMap<VolumeId, IncidentId>,
    past: Vec<Arc<Incident>>,
}

impl Incidents {
    /// The volumes that are sick for something that others may suffer from too.
    pub(super) fn sick(&self) -> impl Iterator<Item = &VolumeId> {
        self.sick.keys()
    }

    /// The open incident that a volume is part of.
    pub(super) fn of(&self, id: &VolumeId) -> Option<&Incident> {
        self.members.get(id).and_then(|incident| self.open.get(incident)).map(|open| &*open.incident)
    }

    /// Every incident that is open or was over not long ago, newest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Incident>> {
        self.open.values().rev().map(|open| &open.incident).chain(&self.past)
    }

    /// When something is to be told.
    pub(super) fn next_due(&self) -> Option<Monotonic> {
        let due = |open: &Open| [open.tell_at, open.quiet_since.map(|since| since + QUIET)];
        self.open.values().flat_map(due).flatten().min()
    }

    /// A volume is sick. Costs little where that is known.
    fn fell(&mut self, id: &VolumeId, sick: Sick, now: Monotonic) {
        let known = self.sick.get_mut(id);
        if let Some(known) = known.filter(|known| known.causes == sick.causes) {
            if core::mem::replace(&mut known.reason, sick.reason) != sick.reason {
                self.tell_reason(id);
            }
            return;
        }
        let incident = self.sick.get(id).and_then(|known| known.incident);
        let causes = sick.causes.clone();
        self.unlist(id);
        self.sick.insert(id.clone(), Sick { incident, ..sick });
        for cause in &causes {
            self.by_cause.entry(cause.clone()).or_default().insert(id.clone());
        }
        match incident.or_else(|| self.fitting(&causes)) {
            Some(incident) => self.join(incident, id),
            None => self.open(id, &causes, now),
        }
    }

    /// A volume is sick for another reason than before.
    fn tell_reason(&mut self, id: &VolumeId) {
        let Some(sick) = self.sick.get(id) else { return };
        let open = sick.incident.and_then(|incident| self.open.get_mut(&incident));
        let is_listed = |member: &Member| member.volume == *id && member.reason != sick.reason;
        if let Some(open) = open.filter(|open| open.incident.members.iter().any(is_listed)) {
            let members = Arc::make_mut(&mut open.incident).members.iter_mut();
            members.filter(|member| member.volume == *id).for_each(|member| member.reason = sick.reason);
        }
    }

    /// The open incident with one of these causes.
    fn fitting(&self, causes: &[Cause]) -> Option<IncidentId> {
        let of = |cause: &Cause| self.open.values().find(|open| open.names.contains(cause));
        causes.iter().find_map(of).map(|open| open.incident.id)
    }

    fn join(&mut self, incident: IncidentId, id: &VolumeId) {
        let Some(open) = self.open.get_mut(&incident) else { return };
        let Some(sick) = self.sick.get_mut(id) else { return };
        sick.incident = Some(incident);
        let is_new = self.members.insert(id.clone(), incident) != Some(incident);
        open.sick.insert(id.clone());
        open.quiet_since = None;
        // A server is known by all the names that its volumes have for it; of a stack of devices only what they share
        // is the cause.
        if open.incident.cause.kind == CauseKind::Server {
            let servers = sick.causes.iter().filter(|cause| cause.kind == CauseKind::Server);
            open.names.extend(servers.cloned());
        }
        let told = Arc::make_mut(&mut open.incident);
        if let Some(member) = told.members.iter_mut().find(|member| member.volume == *id) {
            member.recovered = None;
            member.reason = sick.reason;
        } else if told.members.len() < Incident::MOST {
            let (fell, reason) = (sick.fell, sick.reason);
            told.members.push(Member { volume: id.clone(), fell, reason, recovered: None });
        } else if is_new {
            told.more = told.more.saturating_add(1);
        }
    }

    /// Begins an incident, if another volume fell for one of these causes at about the same time.
    fn open(&mut self, id: &VolumeId, causes: &[Cause], now: Monotonic) {
        let Some((cause, mut together)) = causes.iter().find_map(|cause| {
            let others = self.others(id, cause);
            (!others.is_empty()).then(|| (cause.clone(), others))
        }) else {
            return;
        };
        together.push(id.clone());
        let fell = |id: &VolumeId| self.sick.get(id).map_or(now, |sick| sick.fell);
        together.sort_by_key(|id| (fell(id), id.clone()));
        let is_old = together.iter().all(|id| self.sick.get(id).is_some_and(|sick| sick.is_recalled));
        self.last = self.last.saturating_add(1);
        let number = IncidentId(self.last);
        let began = together.first().map_or(now, fell);
        let incident =
            Incident { id: number, cause: cause.clone(), began, ended: None, members: Vec::new(), more: 0 };
        let open = Open {
            incident: Arc::new(incident),
            names: BTreeSet::from([cause]),
            sick: BTreeSet::new(),
            // What was there before the agent started was told by the agent before it.
            tell_at: (!is_old).then(|| now + GATHER),
            quiet_since: None,
        };
        self.open.insert(number, open);
        for id in together {
            self.join(number, &id);
        }
    }

    /// Other volumes with this cause that fell at about the same time and are part of no incident.
    fn others(&self, id: &VolumeId, cause: &Cause) -> Vec<VolumeId> {
        let Some(own) = self.sick.get(id) else { return Vec::new() };
        let fits = |other: &&VolumeId| {
            self.sick.get(*other).is_some_and(|sick| {
                let apart = own.fell.since(sick.fell).max(sick.fell.since(own.fell));
                *other != id && sick.incident.is_none() && apart <= own.window.max(sick.window)
            })
        };
        self.by_cause.get(cause).into_iter().flatten().filter(fits).cloned().collect()
    }

    /// A volume is not sick any more, or is none any more.
    pub(super) fn recovered(&mut self, id: &VolumeId, now: Monotonic) {
        self.unlist(id);
        let Some(sick) = self.sick.remove(id) else { return };
        let Some(open) = sick.incident.and_then(|incident| self.open.get_mut(&incident)) else { return };
        open.sick.remove(id);
        let is_listed = |member: &Member| member.volume == *id;
        if let Some(place) = open.incident.members.iter().position(is_listed) {
            let told = Arc::make_mut(&mut open.incident);
            told.members.get_mut(place).into_iter().for_each(|member| member.recovered = Some(now));
        }
        if open.sick.is_empty() {
            open.quiet_since = Some(now);
        }
    }

    fn unlist(&mut self, id: &VolumeId) {
        let causes = self.sick.get(id).map(|sick| sick.causes.as_slice()).unwrap_or_default();
        for cause in causes {
            if let Some(volumes) = self.by_cause.get_mut(cause) {
                volumes.remove(id);
                if volumes.is_empty() {
                    self.by_cause.remove(cause);
                }
            }
        }
    }

    /// Tells what is due.
    pub(super) fn tick(&mut self, now: Monotonic, outputs: &mut Vec<Output>) {
        let mut over = Vec::new();
        for (id, open) in &mut self.open {
            if open.tell_at.is_some_and(|at| at <= now) {
                open.tell_at = None;
                outputs.push(Output::Incident(Moment::Began, Arc::clone(&open.incident)));
            }
            if open.quiet_since.is_some_and(|since| since + QUIET <= now) {
                over.push(*id);
            }
        }
        for id in over {
            let Some(mut open) = self.open.remove(&id) else { continue };
            self.members.retain(|_, incident| *incident != id);
            Arc::make_mut(&mut open.incident).ended = open.quiet_since;
            outputs.push(Output::Incident(Moment::Ended, Arc::clone(&open.incident)));
            self.past.insert(0, open.incident);
            self.past.truncate(PAST);
        }
    }
}

impl Volume {
    /// How far apart others may fall that fail for the same cause: an idle volume is found by its second look.
    fn window(&self, thresholds: &Thresholds) -> Duration {
        let two_looks = self.watch.interval.saturating_add(self.watch.deadline).saturating_mul(2);
        thresholds.incident_window.max(two_looks)
    }
}

impl Engine {
    /// Every incident that is open or was over not long ago, newest first. What has not changed since it was last asked
    /// for is the same one.
    #[must_use]
    pub fn incidents(&self) -> Vec<Arc<Incident>> {
        self.incidents.all().cloned().collect()
    }

    /// Notes whether a volume is sick for something that others may suffer from too.
    pub(super) fn correlate(&mut self, id: &VolumeId, now: Monotonic) {
        let Some(volume) = self.volumes.get(id) else { return };
        let condition = &volume.condition;
        let Some(reason) = condition.reason.filter(|_| condition.state.is_sick()) else {
            self.incidents.recovered(id, now);
            return;
        };
        let causes = volume.causes(&self.below);
        let causes: Vec<Cause> = causes.into_iter().filter(|cause| cause.kind.explains(reason)).collect();
        let sick = Sick {
            fell: volume.sick_since,
            reason,
            causes,
            window: volume.window(&self.policy.thresholds),
            is_recalled: volume.past.is_fall_recalled,
            incident: None,
        };
        self.incidents.fell(id, sick, now);
    }

    /// Writes into transitions which incident they are part of.
    pub(super) fn name_incident<'a>(&self, outputs: impl Iterator<Item = &'a mut Output>) {
        for output in outputs {
            if let Output::Transition(transition) = output {
                transition.incident = self.incidents.of(&transition.volume).map(|incident| incident.id);
            }
        }
    }
}
