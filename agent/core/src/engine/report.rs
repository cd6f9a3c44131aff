//! What exporters and people are shown: everything from memory, nothing computed that could wait on anything.

use alloc::string::String;

use crate::engine::Engine;
use crate::engine::repair::Repairs;
use crate::engine::volume::Volume;
use crate::path::escape;
use crate::remediation::asking::name_of;
use crate::status::VolumeStatus;
use crate::time::Monotonic;

impl Engine {
    /// One volume, as it is shown.
    pub(super) fn status(&self, volume: &Volume) -> VolumeStatus {
        let (shown, spec) = (volume.shown.as_ref(), volume.spec.as_ref());
        let pause = self.pauses.of(&volume.id).map(|(pause, is_node)| (pause.clone(), is_node));
        VolumeStatus {
            id: volume.id.clone(),
            expected: spec.is_some(),
            mountpoint: volume.mountpoint.clone(),
            fstype: volume.fstype().map(String::from).unwrap_or_default(),
            source: escape(volume.source().unwrap_or_default()),
            server: volume.server_shown(),
            superblock: shown.map(|shown| shown.superblock),
            stack_depth: volume.depth,
            mode: volume.watch.mode,
            method: spec.map(|spec| spec.repair.method.clone()),
            interval: volume.rhythm().longest(),
            condition: volume.condition.clone(),
            errors: volume.errors.clone(),
            error_times: volume.error_times.clone(),
            claims: volume.evidence.claims.clone(),
            rule: volume.rule().map(|rule| (rule.name, rule.clears)),
            loss: volume.evidence.lost.clone(),
            damage: volume.evidence.damage.clone(),
            falls: volume.recent_falls(&self.policy.thresholds, self.now),
            settles_at: volume.settles_at(&self.policy.thresholds),
            incident: self.incidents.of(&volume.id).map(|incident| incident.id),
            is_automount: shown.is_some() && volume.automount.is_some(),
            last_ok: volume.last_ok,
            last_probe: volume.last_probe.clone(),
            stuck_since: self.stuck_since(volume),
            probing: volume.probes.outstanding.is_some(),
            culprits: volume.culprits.clone(),
            blocked_count: volume.blocked.count,
            blocked: volume.blocked.tasks.clone(),
            stale_mounts: volume.held.mounts(),
            sick_mounts: if volume.condition.state.is_sick() { volume.held.known() } else { 0 },
            stale: volume.held.shown(),
            stale_files: volume.held.files(),
            stale_holders: volume.held.holders(),
            attempts: volume.budget.attempts_at(self.now),
            plan: volume.plan.and_then(|id| self.running.get(&id)).map(|running| running.plan.clone()),
            due_plan: volume.due_plan.clone(),
            last_repair: volume.last_repair.clone(),
            next_attempt: next_attempt(volume, self.now).filter(|_| pause.is_none()),
            held_up: volume.held_up.clone(),
            hook: spec.and_then(|spec| spec.repair.hook.as_ref()).map(name_of),
            asked: volume.last_asked().cloned(),
            pause,
            not_repaired: volume.may_be_remounted().err(),
            history: volume.history.clone(),
        }
    }

    /// Since when a probe has not come back: the volume's own, or whatever else is out on the same superblock,
    /// which stands in the way.
    fn stuck_since(&self, volume: &Volume) -> Option<Monotonic> {
        let shown = volume.shown.as_ref().filter(|_| volume.is_watched());
        volume.probes.stuck_since.or_else(|| self.probing.stuck_since(shown?.superblock))
    }
}

fn next_attempt(volume: &Volume, now: Monotonic) -> Option<Monotonic> {
    match volume.wants_repair(now) {
        Repairs::At(time) => Some(time),
        Repairs::Now(_) | Repairs::Spent | Repairs::No => None,
    }
}
