//! Who still holds what a volume showed before: the superblocks that were replaced because they were sick, for as long
//! as anybody has a mount or an open file of them.
//!
//! They are asked about from the fall on, so that the mounts of a sick superblock are known before a repair takes them
//! out of every table. A superblock that was replaced in good health is somebody's own decision, and no concern.

use alloc::collections::BTreeSet;
use alloc::{format, string::String, vec::Vec};

use crate::consumer::{Consumers, Dead, FileHolder, Found, StaleMount};
use crate::engine::volume::{Shown, Volume};
use crate::engine::{Engine, Output};
use crate::health::Event;
use crate::id::{MountId, SuperblockId};
use crate::memory::LeftMemory;
use crate::observation::PlanReport;
use crate::remediation::consumers::{Holding, is_guard};
use crate::remediation::{Action, Plan};
use crate::time::Monotonic;
use crate::topology::Mount;
use crate::verdict::{Reason, Verdict};
use crate::volume::Reach;

/// So many replaced superblocks are remembered of a volume. With more the oldest that no mount shows is forgotten: only
/// files are open on it.
const FORMER: usize = 4;
/// … and so many in all. With more the oldest is forgotten; what is left keeps the volume from being healthy.
const FORMER_MOUNTED: usize = 64;
/// The most mounts and processes that are shown of a volume.
const SHOWN: usize = 16;
/// The most that a sentence names.
const NAMED: usize = 2;

/// A superblock that the volume showed before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Former {
    dead: Dead,
    /// What was found before this time says nothing any more.
    since: Monotonic,
    found: Option<Found>,
}

impl Former {
    fn is(&self, superblock: SuperblockId, has_holding: bool) -> bool {
        self.dead.superblock == superblock && self.dead.holding.is_some() == has_holding
    }
}

/// Who holds what, of one volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Held {
    former: Vec<Former>,
    /// Mounts of the superblock that is there now, known by their ids.
    ids: BTreeSet<MountId>,
    /// The superblock of which the volume is sick. A look that comes past the old mount finds another reason before the
    /// table shows why.
    died: Option<SuperblockId>,
}

impl Held {
    /// Mounts that still show an old superblock.
    pub(super) fn mounts(&self) -> u64 {
        self.found().map(|found| found.mounts).fold(0, u64::saturating_add)
    }

    /// Mounts of the superblock that is there now.
    pub(super) fn known(&self) -> usize {
        self.ids.len()
    }

    /// Open files on them.
    pub(super) fn files(&self) -> u64 {
        self.found().map(|found| found.files).fold(0, u64::saturating_add)
    }

    /// Those that are shown.
    pub(super) fn shown(&self) -> Vec<StaleMount> {
        self.found().flat_map(|found| found.shown.iter().cloned()).take(SHOWN).collect()
    }

    /// The processes that are shown.
    pub(super) fn holders(&self) -> Vec<FileHolder> {
        let mut holders: Vec<FileHolder> =
            self.found().flat_map(|found| found.holders.iter().cloned()).collect();
        holders.sort_by_key(|holder| (core::cmp::Reverse(holder.count), holder.process));
        holders.truncate(SHOWN);
        holders
    }

    /// The first superblock that mounts still show, and these mounts, for a plan.
    pub(super) fn stale(&self) -> Option<&Dead> {
        let is_stale = |former: &&Former| former.found.as_ref().is_some_and(|found| found.mounts > 0);
        self.former.iter().find(is_stale).map(|former| &former.dead)
    }

    /// What a new mount of the same must not show again: those that mounts still show. Nothing where nobody can hold any,
    /// by all that is known.
    pub(super) fn dead(&self) -> Option<BTreeSet<SuperblockId>> {
        let mut former = self.former.iter().filter(|former| former.dead.holding.is_some()).peekable();
        former.peek()?;
        // A number that nobody holds any more is the next one's.
        let is_held = |former: &&Former| former.found.as_ref().is_some_and(|found| found.mounts > 0);
        Some(former.filter(is_held).map(|former| former.dead.superblock).collect())
    }

    fn found(&self) -> impl Iterator<Item = &Found> {
        self.former.iter().filter_map(|former| former.found.as_ref())
    }

    /// One sentence about them.
    pub(super) fn sentence(&self) -> String {
        let named = self.shown();
        let named: Vec<String> = named.iter().take(NAMED).map(stale_text).collect();
        match (self.mounts(), named.is_empty()) {
            (count, true) => format!("{count} mounts still show what was replaced"),
            (1, false) => format!("one mount still shows what was replaced: {}", named.join(", ")),
            (count, false) => format!("{count} mounts still show what was replaced: {}", named.join(", ")),
        }
    }
}

fn stale_text(mount: &StaleMount) -> String {
    let StaleMount { namespace, process, comm, mountpoint, .. } = mount;
    format!("{mountpoint} of {comm} (process {process}, mount namespace {namespace})")
}

impl Volume {
    /// The mount at its place is another one or none: what was there may still be held.
    pub(super) fn leave_behind(&mut self, old: Option<&Shown>, now: Monotonic) {
        let old = old.filter(|old| self.is_dead(old.superblock));
        let mut ids = core::mem::take(&mut self.held.ids);
        self.held.died = None;
        let Some(old) = old else { return };
        let (volume, superblock) = (self.id.clone(), old.superblock);
        ids.insert(old.mount_id);
        let gone = BTreeSet::from([old.mount_id]);
        let holding = Some(old.holding());
        self.remember_former(Dead { volume, superblock, holding, ids, gone, is_shown: false }, now);
    }

    fn remember_former(&mut self, dead: Dead, now: Monotonic) {
        let is_same = |former: &Former| former.is(dead.superblock, dead.holding.is_some());
        self.held.former.retain(|former| !is_same(former));
        self.held.former.push(Former { dead, since: now, found: None });
        let is_idle = |former: &Former| former.found.as_ref().is_some_and(|found| found.mounts == 0);
        let idle = self.held.former.iter().position(is_idle).filter(|_| self.held.former.len() > FORMER);
        let oldest = (self.held.former.len() > FORMER_MOUNTED).then_some(0);
        if let Some(index) = idle.or(oldest) {
            self.held.former.remove(index);
        }
    }

    /// What the store keeps of it.
    pub(super) fn left_behind(&self) -> Vec<LeftMemory> {
        let left = |dead: Dead| LeftMemory {
            superblock: dead.superblock,
            ids: dead.mounts(),
            holding: dead.holding,
        };
        let former = self.held.former.iter().map(|former| &former.dead).cloned();
        former.chain(self.shown_dead()).map(left).collect()
    }

    /// Takes what an earlier run had left behind.
    pub(super) fn recall_left(&mut self, left: Vec<LeftMemory>, now: Monotonic) {
        for LeftMemory { superblock, holding, ids } in left {
            let (volume, gone) = (self.id.clone(), BTreeSet::new());
            self.remember_former(Dead { volume, superblock, holding, ids, gone, is_shown: false }, now);
        }
    }

    /// What was sick when an earlier run ended has been replaced since: its mount is in no table any more.
    pub(super) fn was_replaced_meanwhile(&mut self, id: MountId) {
        self.held.former.iter_mut().for_each(|former| {
            former.dead.gone.insert(id);
        });
    }

    /// Notes of which superblock it is sick, when its condition has changed. Only a judgement is about what is shown: the
    /// end of a plan keeps the reason of what the plan may have replaced.
    pub(super) fn note_death(&mut self, event: Event) {
        if !self.condition.state.is_sick() {
            self.held.died = None;
        } else if matches!(event, Event::Judged(Verdict::Sick(_))) && self.has_died() {
            self.held.died = self.shown.as_ref().map(|shown| shown.superblock);
        }
    }

    /// Whether this, which it shows or has shown until now, is replaced because it is sick.
    fn is_dead(&self, superblock: SuperblockId) -> bool {
        let is_sick = self.condition.state.is_sick() && self.is_watched();
        is_sick && (self.has_died() || self.held.died == Some(superblock))
    }

    fn has_died(&self) -> bool {
        matches!(
            self.condition.reason,
            Some(
                Reason::Disconnected
                    | Reason::Stale
                    | Reason::FsShutdown
                    | Reason::IoError
                    | Reason::Readonly
                    | Reason::HostDown
                    | Reason::Hung
            )
        )
    }

    /// The number of an old superblock is that of the one that is there now: nobody can hold the old one.
    pub(super) fn take_number(&mut self, superblock: SuperblockId) {
        self.held.former.retain(|former| !former.is(superblock, true));
    }

    /// What is to be asked about.
    fn dead(&self) -> Vec<Dead> {
        self.held.former.iter().map(|former| former.dead.clone()).chain(self.shown_dead()).collect()
    }

    /// What it shows now, if that is sick.
    fn shown_dead(&self) -> Option<Dead> {
        let shown = self.shown.as_ref().filter(|shown| self.is_dead(shown.superblock))?;
        let ids = self.held.ids.iter().copied().chain([shown.mount_id]).collect();
        let (volume, superblock) = (self.id.clone(), shown.superblock);
        let (holding, gone) = (Some(shown.holding()), BTreeSet::new());
        Some(Dead { volume, superblock, holding, ids, gone, is_shown: true })
    }

    /// Takes what was found of one superblock. Says whether it concerns this volume.
    fn take_found(&mut self, found: &Found, at: Monotonic) -> bool {
        if found.volume != self.id {
            return false;
        }
        let is_own = self.shown.as_ref().is_some_and(|shown| shown.superblock == found.superblock);
        if is_own && found.has_holding {
            // Nothing was found where it was replaced during the look.
            if !found.ids.is_empty() {
                self.held.ids.clone_from(&found.ids);
            }
            return true;
        }
        let is_meant = |former: &Former| former.is(found.superblock, found.has_holding);
        let Some(index) = self.held.former.iter().position(is_meant) else { return false };
        let Some(former) = self.held.former.get_mut(index).filter(|former| former.since <= at) else {
            return false;
        };
        former.dead.ids.clone_from(&found.ids);
        former.dead.gone.retain(|id| found.ids.contains(id));
        former.found = Some(found.clone());
        if found.mounts == 0 && found.files == 0 {
            self.held.former.remove(index);
        }
        true
    }

    /// A plan that puts guards in the place of what it takes away has failed, or was cut off. They are looked for by
    /// what they say of themselves; the superblock only tells them from those of another plan.
    pub(super) fn may_have_guards(&mut self, superblock: Option<SuperblockId>, now: Monotonic) {
        if self.spec.as_ref().is_none_or(|spec| spec.repair.consumers == Reach::Nothing) {
            return;
        }
        let superblock = superblock.unwrap_or(SuperblockId { major: 0, minor: 0 });
        let (volume, ids, gone) = (self.id.clone(), BTreeSet::new(), BTreeSet::new());
        self.remember_former(Dead { volume, superblock, holding: None, ids, gone, is_shown: false }, now);
    }

    /// A plan has ended, or was cut off, that may have replaced this superblock, and may not have come to all who hold
    /// it: these mounts did when it began. What is known of it by other ways is known better.
    pub(super) fn may_be_held(
        &mut self,
        superblock: SuperblockId,
        holding: &Holding,
        holders: BTreeSet<MountId>,
        now: Monotonic,
    ) {
        if self.shown.as_ref().is_some_and(|shown| shown.superblock == superblock) {
            // What is shown now may only be what has not been taken away yet.
            self.held.ids.extend(holders);
            return;
        }
        if holders.is_empty() {
            return;
        }
        let known = self.held.former.iter_mut().find(|former| former.is(superblock, true));
        if let Some(former) = known {
            former.dead.ids.extend(holders);
            former.since = now;
            return;
        }
        let (volume, gone, holding) = (self.id.clone(), BTreeSet::new(), Some(holding.clone()));
        let ids = holders;
        self.remember_former(Dead { volume, superblock, holding, ids, gone, is_shown: false }, now);
    }

    /// A plan ended that took consumers along. Until the next look those that it replaced count as replaced.
    pub(super) fn consumers_followed(&mut self, plan: &Plan, report: &PlanReport, now: Monotonic) {
        let has = |is_meant: fn(&Action) -> bool| plan.actions.iter().any(is_meant);
        let is_good = report.outcome.is_success();
        if has(|action| matches!(action, Action::CoverConsumers { .. })) && !is_good {
            // Not every guard may have gone again.
            self.may_have_guards(plan.old, now);
        }
        if !has(|action| matches!(action, Action::SwapConsumers { .. })) {
            return;
        }
        if let Some((old, marks)) = plan.old.zip(plan.marks.as_ref()) {
            // A look between the swap and now may have found nobody: it did not know by what.
            let is_there = |id: &MountId| !marks.here.contains(id) && !report.left_behind.contains(id);
            let holders = report.consumers.iter().copied().filter(is_there).collect();
            self.may_be_held(old, &marks.holding, holders, now);
        }
        if self.shown.as_ref().map(|shown| shown.superblock) == plan.old {
            self.held.ids.extend(report.consumers.iter().chain(&report.left_behind).copied());
        }
        for former in &mut self.held.former {
            let is_guards = former.dead.holding.is_none();
            if Some(former.dead.superblock) == plan.old && !is_guards {
                former.dead.ids.extend(report.consumers.iter().chain(&report.left_behind).copied());
                former.dead.gone.extend(report.left_behind.iter().copied());
            } else if !is_guards {
                continue;
            }
            // A look from before knows nothing of what the plan did.
            former.since = now;
            if is_good {
                former.found.iter_mut().for_each(|found| {
                    found.mounts = 0;
                    found.shown.clear();
                });
            }
        }
    }
}

impl Engine {
    /// Takes a look at all namespaces.
    pub(super) fn take_consumers(&mut self, consumers: &Consumers) {
        self.dead_changed = true;
        let found: Vec<Found> =
            consumers.found.iter().map(|found| self.without_covered(self.without_named(found))).collect();
        for (id, volume) in &mut self.volumes {
            let mut concerns = false;
            for found in &found {
                concerns |= volume.take_found(found, consumers.at);
            }
            if concerns {
                self.touched.insert(id.clone());
            }
        }
    }

    /// Without the mounts that are volumes of their own because somebody named them: each has its own verdict.
    fn without_named(&self, found: &Found) -> Found {
        let mut found = found.clone();
        let others =
            self.volumes.values().filter(|volume| volume.spec.is_some() && volume.id != found.volume);
        for other in others {
            if other.shown.as_ref().is_some_and(|shown| found.ids.contains(&shown.mount_id)) {
                found.mounts = found.mounts.saturating_sub(1);
                found.shown.retain(|mount| mount.mountpoint != other.mountpoint);
            }
        }
        found
    }

    /// Without what lies covered at the volume's own place since somebody mounted over it: nobody comes there by the
    /// path, no plan takes it away, and the depth of the stack tells it.
    fn without_covered(&self, mut found: Found) -> Found {
        let place = self.volumes.get(&found.volume).map(|volume| &volume.mountpoint);
        let Some((table, place)) = self.table.as_ref().zip(place) else { return found };
        let top = table.top_at(place).map(|mount| mount.id);
        let is_of_it = |mount: &Mount| {
            if found.has_holding { mount.superblock == found.superblock } else { is_guard(mount) }
        };
        let is_covered =
            |mount: &&Mount| Some(mount.id) != top && is_of_it(mount) && found.ids.contains(&mount.id);
        let covered = table.stack_at(place).into_iter().filter(is_covered).count();
        found.mounts = found.mounts.saturating_sub(covered as u64);
        for _ in 0..covered {
            if let Some(at) = found.shown.iter().position(|mount| mount.mountpoint == *place) {
                found.shown.remove(at);
            }
        }
        found
    }

    /// Says what is to be asked about, if that changed.
    pub(super) fn ask_consumers(&mut self, outputs: &mut Vec<Output>) {
        let mut dead: Vec<Dead> = self.volumes.values().flat_map(Volume::dead).collect();
        dead.sort();
        dead.dedup();
        if dead != self.dead {
            self.dead.clone_from(&dead);
            outputs.push(Output::FindConsumers(dead));
        }
    }
}
