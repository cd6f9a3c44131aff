//! A new mount table, or a new policy: which volumes there are now, and what changed at their places.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use crate::discovery::{Presence, discover, may_matter};
use crate::engine::volume::Volume;
use crate::engine::{Engine, Output, Tracked};
use crate::hash::spread;
use crate::health::Event;
use crate::id::{MountId, SuperblockId, VolumeId};
use crate::path::BytePath;
use crate::policy::Policy;
use crate::remediation::budget::Budget;
use crate::time::Monotonic;
use crate::topology::diff::changed;
use crate::topology::walk::Walks;
use crate::topology::{Mount, MountTable};

/// The first look at many new volumes is spread over this long for each.
const FIRST_LOOK_SPREAD: Duration = Duration::from_millis(2);
/// Up to this many new volumes are looked at together.
const TOGETHER: usize = 4;
/// After the kernel's set was replaced, what probes learn is gathered for this long before it is again.
pub(super) const TRACK_PAUSE: Duration = Duration::from_millis(100);

impl Engine {
    /// Takes new settings. Named volumes exist from now on, whatever the table shows.
    pub(super) fn take_policy(&mut self, policy: Policy, now: Monotonic, outputs: &mut Vec<Output>) {
        self.policy = policy;
        let named: BTreeSet<&VolumeId> = self.policy.volumes.iter().map(|spec| &spec.id).collect();
        let before: BTreeSet<VolumeId> = self.volumes.keys().cloned().collect();
        self.volumes.retain(|id, volume| volume.spec.is_none() || named.contains(id));
        for spec in &self.policy.volumes {
            let old = self.volumes.get(&spec.id);
            if old.is_some_and(|volume| volume.mountpoint != spec.mountpoint || volume.spec.is_none()) {
                self.volumes.remove(&spec.id);
            }
            let volume = self
                .volumes
                .entry(spec.id.clone())
                .or_insert_with(|| Volume::new(spec.id.clone(), spec.mountpoint.clone(), now));
            let was_known = volume.spec.is_some();
            volume.pin = self.pins.get(&spec.id).cloned();
            if volume.instruct(Some(spec), &self.policy.defaults) && was_known {
                volume.budget = Budget::default();
                volume.consumer_budget = Budget::default();
                let message = alloc::string::String::from("the settings changed, attempts are counted anew");
                outputs.extend(volume.apply(Event::BudgetRenewed, message, now).map(Output::Transition));
            }
        }
        for volume in self.volumes.values_mut().filter(|volume| volume.spec.is_none()) {
            volume.instruct(None, &self.policy.defaults);
        }
        self.touched.extend(self.volumes.keys().cloned());
        (self.track_changed, self.dead_changed) = (true, true);
        self.miss_no_more();
        self.sync(now, outputs);
        // The table is the one it was: what vanished now is not wanted any more.
        self.volumes.retain(|_, volume| volume.gone_since != Some(now));
        self.wakes.retain(|(_, id)| self.volumes.contains_key(id));
        for gone in before.into_iter().filter(|id| !self.volumes.contains_key(id)) {
            self.contacts.leave(&gone, None);
            self.incidents.recovered(&gone, now);
            outputs.push(Output::Forget(gone));
        }
    }

    /// Takes a new table. Most changes on a busy node are mounts of containers, which concern no volume: those
    /// cost the comparison and no more.
    pub(super) fn take_table(&mut self, table: MountTable, now: Monotonic, outputs: &mut Vec<Output>) {
        let is_first = self.table.is_none();
        let is_relevant = match &self.table {
            Some(old) => changed(old, &table).into_iter().any(|mount| self.concerns(mount)),
            None => true,
        };
        if is_relevant {
            self.notice_others(&table, now, outputs);
        }
        self.table = Some(table);
        self.settling_due = true;
        if is_relevant {
            self.sync(now, outputs);
        }
        if is_first {
            // What is there before the agent is not in the making.
            self.volumes.values_mut().for_each(|volume| volume.evidence.table.was_there_before());
            self.miss_remembered(now);
        }
    }

    /// Whether a line that changed can change what is known of any volume: by what it is, by its superblock, or
    /// because it lies on the way to a volume or to what a volume waits for.
    fn concerns(&self, mount: &Mount) -> bool {
        may_matter(&self.policy, mount)
            || self.by_superblock.contains_key(&mount.superblock)
            || self.volumes.values().any(|volume| {
                volume.mountpoint.is_within(&mount.mountpoint)
                    || volume.awaits(mount)
                    || volume.link.passes(mount)
            })
    }

    /// Brings the volumes in line with the policy and the table.
    pub(super) fn sync(&mut self, now: Monotonic, outputs: &mut Vec<Output>) {
        let Some(table) = self.table.clone() else { return };
        let watched: BTreeMap<BytePath, MountId> = self
            .volumes
            .values()
            .filter(|volume| volume.spec.is_none())
            .filter_map(|volume| Some((volume.mountpoint.clone(), volume.shown.as_ref()?.mount_id)))
            .collect();
        let sightings = discover(&self.policy, &table, &|path| watched.get(path).copied());
        let new = sightings.iter().filter(|sighting| !self.is_seen(&sighting.id)).count();
        let mut present = BTreeSet::new();
        for sighting in &sightings {
            let volume = self
                .volumes
                .entry(sighting.id.clone())
                .or_insert_with(|| Volume::new(sighting.id.clone(), sighting.mountpoint.clone(), now));
            if let Some(memory) = self.remembered.remove(&sighting.id) {
                volume.recall(memory, &self.policy.thresholds, now);
            }
            if sighting.spec.is_none() {
                volume.instruct(None, &self.policy.defaults);
                present.insert(sighting.id.clone());
            }
            let first_probe = now + first_look(&volume.id, new, volume.watch.interval);
            let seen = volume.see(sighting, first_probe, now);
            outputs.extend(seen.transition.map(Output::Transition));
            if seen.changed {
                self.touched.insert(sighting.id.clone());
                (self.track_changed, self.dead_changed) = (true, true);
            }
        }
        let mut walks = Walks::new(&table);
        for volume in self.volumes.values_mut() {
            if volume.notice_source(&table) {
                self.touched.insert(volume.id.clone());
            }
            if volume.spec.is_some() || volume.is_absent || present.contains(&volume.id) {
                continue;
            }
            let trap = walks.is_trapped(&volume.mountpoint);
            if volume.vanish(trap, now) {
                self.touched.insert(volume.id.clone());
                (self.track_changed, self.dead_changed) = (true, true);
            }
        }
        self.follow_links(&table, now, outputs);
        if self.track_changed {
            // Whoever stands behind a look is concerned when the volume that was looked at is no longer there.
            let behind = self.volumes.values().filter(|volume| volume.behind.is_some());
            self.touched.extend(behind.map(|volume| volume.id.clone()));
            self.index_superblocks();
        }
    }

    /// Another superblock has taken the place of one that was there at `seen`: the volumes on it are new, unless the
    /// table has told that meanwhile.
    pub(super) fn renewed(
        &mut self,
        superblock: SuperblockId,
        (seen, now): (Monotonic, Monotonic),
        outputs: &mut Vec<Output>,
    ) {
        for id in self.by_superblock.get(&superblock).into_iter().flatten() {
            let Some(volume) = self.volumes.get_mut(id).filter(|volume| volume.evidence.since <= seen) else {
                continue;
            };
            outputs.extend(volume.renew(now).map(Output::Transition));
            self.touched.insert(id.clone());
            (self.track_changed, self.dead_changed) = (true, true);
        }
    }

    /// Takes which file system has a number. What an earlier run knew of another one counts for none of this.
    pub(super) fn take_instance(
        &mut self,
        superblock: SuperblockId,
        instance: u64,
        now: Monotonic,
        outputs: &mut Vec<Output>,
    ) {
        for id in self.by_superblock.get(&superblock).into_iter().flatten() {
            let Some(volume) = self.volumes.get_mut(id) else { continue };
            outputs.extend(volume.hear_instance(instance, now).map(Output::Transition));
            self.touched.insert(id.clone());
            (self.track_changed, self.dead_changed) = (true, true);
        }
    }

    fn is_seen(&self, id: &VolumeId) -> bool {
        self.volumes.get(id).is_some_and(|volume| volume.generation.0 > 0)
    }

    fn index_superblocks(&mut self) {
        self.by_superblock.clear();
        for volume in self.volumes.values().filter(|volume| volume.is_tracked()) {
            if let Some(shown) = &volume.shown {
                self.by_superblock.entry(shown.superblock).or_default().push(volume.id.clone());
            }
        }
        self.share_instances();
    }

    /// Which file system has a number is told once. Who comes to that file system later learns it from those that are
    /// there.
    fn share_instances(&mut self) {
        for ids in self.by_superblock.values().filter(|ids| ids.len() > 1) {
            let known = ids.iter().filter_map(|id| self.volumes.get(id)?.evidence.instance).next();
            for id in ids {
                let Some(volume) = self.volumes.get_mut(id) else { continue };
                volume.evidence.instance = volume.evidence.instance.or(known);
            }
        }
    }

    /// Drops discovered volumes that were unmounted long enough ago.
    pub(super) fn forget(&mut self, id: &VolumeId, now: Monotonic) -> bool {
        let forget_after = self.policy.thresholds.forget_after;
        let is_old = |volume: &Volume| volume.forgotten_at(forget_after).is_some_and(|at| at <= now);
        if !self.volumes.get(id).is_some_and(is_old) {
            return false;
        }
        self.volumes.remove(id);
        true
    }

    /// Tells the kernel's side what to count for, if that changed.
    pub(super) fn track(&mut self, now: Monotonic, outputs: &mut Vec<Output>) {
        let may_wait = self.track_not_before.is_some_and(|time| time > now);
        if !self.track_changed && (!self.track_learnt || may_wait) {
            return;
        }
        self.track_changed = false;
        self.track_learnt = false;
        self.index_superblocks();
        let mut tracked: Vec<Tracked> = Vec::new();
        for volume in self.volumes.values().filter(|volume| volume.is_tracked()) {
            let Some(shown) = &volume.shown else { continue };
            for mountpoint in core::iter::once(&volume.mountpoint).chain(&volume.further) {
                tracked.push(Tracked {
                    superblock: shown.superblock,
                    root_inode: volume.root_inode,
                    mountpoint: mountpoint.clone(),
                });
            }
        }
        tracked.sort();
        tracked.dedup();
        if tracked != self.tracked {
            self.tracked.clone_from(&tracked);
            self.track_not_before = Some(now + TRACK_PAUSE);
            outputs.push(Output::Track(tracked));
        }
    }
}

impl Volume {
    /// Whether the kernel should count for it: what is mounted there is the volume, on top or not.
    fn is_tracked(&self) -> bool {
        self.is_watched() && matches!(self.presence, Some(Presence::Present | Presence::Covered))
    }
}

/// How long the first look at a new volume waits, so that many do not start together.
fn first_look(id: &VolumeId, new: usize, interval: Duration) -> Duration {
    if new <= TOGETHER {
        return Duration::ZERO;
    }
    let many = u32::try_from(new).unwrap_or(u32::MAX);
    spread(FIRST_LOOK_SPREAD.saturating_mul(many).min(interval / 2), id.as_str())
}
