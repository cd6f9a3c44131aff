//! What plans of a dead run left half-made: settled before anything else is done at those places.
//!
//! Two kinds of remains: intents without an outcome from the journal, and mounts below the directory of private
//! places that belong to no plan. A remain that cannot be settled is tried again a few times, then left and told.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use crate::engine::repair::Running;
use crate::engine::{Engine, Note, Output};
use crate::id::{Generation, MountId, PlanId, VolumeId};
use crate::observation::Unfinished;
use crate::path::BytePath;
use crate::remediation::plan::{Place, settling};
use crate::remediation::settle::{leftovers, places_in_use, stray};
use crate::remediation::{Action, Marks, Outcome, Plan};
use crate::time::Monotonic;

/// A private place in use must have been seen for this long, and what a plan has left is read only then: a table may be
/// older than the end of a plan.
const GRACE: Duration = Duration::from_secs(2);
/// The pause before the same remain is tried again.
const AGAIN: Duration = Duration::from_secs(10);
/// Attempts at one remain.
const ATTEMPTS: u32 = 5;

/// What a settling plan settles.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Settled {
    /// A plan of an earlier run.
    Plan(PlanId),
    /// A private place that belongs to no plan.
    Stray(BytePath),
    /// The place of a volume whose last swap may have been cut off between its halves.
    Swap(VolumeId),
}

#[derive(Clone, Debug)]
struct Remain {
    place: Place,
    attempts: u32,
    not_before: Monotonic,
    /// Mounts elsewhere to which the plan had to come as well.
    holders: BTreeSet<MountId>,
    /// They, and the plan's guards, are looked for. Not before the first table: until then the volume has not been
    /// remembered.
    consumers_sought: bool,
}

/// All remains that are not settled yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Settling {
    remains: BTreeMap<Settled, Remain>,
}

impl Settling {
    /// Whether something at this volume's place is still to be settled. What could not be settled in all its
    /// attempts does not block repair for ever.
    pub(super) fn concerns(&self, id: &VolumeId, mountpoint: &BytePath) -> bool {
        self.remains.values().any(|remain| {
            remain.attempts < ATTEMPTS
                && (remain.place.volume == *id || remain.place.mountpoint == *mountpoint)
        })
    }

    /// When the next one is tried.
    pub(super) fn next_due(&self) -> Option<Monotonic> {
        self.remains
            .values()
            .filter(|remain| remain.attempts < ATTEMPTS)
            .map(|remain| remain.not_before)
            .min()
    }
}

impl Engine {
    /// Takes the intents without an outcome.
    pub(super) fn take_unfinished(&mut self, unfinished: Vec<Unfinished>, now: Monotonic) {
        for old in unfinished {
            let plan = old.plan;
            let Unfinished { plan: _, volume, mountpoint, stage, old: superblock, marks, holders } = old;
            let place = Place { volume, mountpoint, stage, old: superblock, marks };
            let remain = Remain { place, attempts: 0, not_before: now, holders, consumers_sought: false };
            self.settling.remains.insert(Settled::Plan(plan), remain);
            // A plan id is never used twice, whatever the caller said.
            self.next_plan = self.next_plan.max(PlanId(plan.0.saturating_add(1)));
        }
        self.settling_due = true;
    }

    /// Starts what is due, and tells what needs nothing.
    pub(super) fn settle(&mut self, now: Monotonic, outputs: &mut Vec<Output>) {
        let is_due = self.settling_due || self.settling.next_due().is_some_and(|due| due <= now);
        if !core::mem::take(&mut self.settling_due) && !is_due {
            return;
        }
        let Some(table) = self.table.clone() else { return };
        self.find_strays(now);
        self.seek_consumers(now);
        let due: Vec<Settled> = self.settling.remains.keys().cloned().collect();
        for what in due {
            let Some(remain) = self.settling.remains.get(&what) else { continue };
            if self.running.values().any(|running| running.settles.as_ref() == Some(&what)) {
                continue;
            }
            if matches!(what, Settled::Swap(_)) && remain.attempts == 0 && remain.not_before > now {
                continue;
            }
            let mut actions = leftovers(&remain.place, &table);
            // The table does not show a directory that was made and never mounted on.
            if actions.is_empty() && remain.attempts == 0 && matches!(what, Settled::Plan(_)) {
                actions.push(Action::Unstage);
            }
            if actions.is_empty() {
                self.settled(&what, outputs);
            } else if remain.attempts < ATTEMPTS && remain.not_before <= now {
                self.start_settling(what, actions, outputs);
            }
        }
    }

    /// A plan that changed its volume's place has failed. Where its swap was cut off, the new mount lies beneath the
    /// old one: nobody else knows that it is the agent's.
    pub(super) fn take_failed_swap(&mut self, plan: &Plan, now: Monotonic) {
        let Plan { volume, mountpoint, stage, old, marks, .. } = plan.clone();
        if marks.is_none() {
            return;
        }
        let what = Settled::Swap(volume.clone());
        let place = Place { volume, mountpoint, stage, old, marks };
        let (holders, not_before) = (BTreeSet::new(), now + GRACE);
        let remain = Remain { place, attempts: 0, not_before, holders, consumers_sought: true };
        self.settling.remains.insert(what, remain);
    }

    /// What the mounts of the superblock that a plan is to replace are known by. What an earlier swap left beneath
    /// them, and nothing could take away, goes with them.
    pub(super) fn marks_for(&self, plan: &Plan) -> Option<Marks> {
        let marks = Marks::of(self.table.as_ref()?, &plan.mountpoint, plan.old?)?;
        let left = self.settling.remains.get(&Settled::Swap(plan.volume.clone()));
        Some(match left.and_then(|remain| remain.place.marks.as_ref()) {
            Some(earlier) => marks.with_own_since(earlier),
            None => marks,
        })
    }

    /// A plan may have been cut off between its guards and what they stood for, or before it came to all who hold what it
    /// has replaced.
    fn seek_consumers(&mut self, now: Monotonic) {
        for remain in self.settling.remains.values_mut().filter(|remain| !remain.consumers_sought) {
            remain.consumers_sought = true;
            if let Some(volume) = self.volumes.get_mut(&remain.place.volume) {
                let Place { old, marks, .. } = &remain.place;
                volume.may_have_guards(*old, now);
                if let Some((old, marks)) = old.zip(marks.as_ref()) {
                    volume.may_be_held(old, &marks.holding, remain.holders.clone(), now);
                }
                self.touched.insert(remain.place.volume.clone());
                self.dead_changed = true;
            }
        }
    }

    /// Private places in use that no plan and no intent accounts for.
    fn find_strays(&mut self, now: Monotonic) {
        let Some(table) = &self.table else { return };
        for stage in places_in_use(&self.policy.stage_root, table) {
            let is_accounted_for = self.running.values().any(|running| running.plan.stage == stage)
                || self.settling.remains.values().any(|remain| remain.place.stage == stage);
            if !is_accounted_for {
                let place = stray(&stage);
                let (holders, not_before) = (BTreeSet::new(), now + GRACE);
                let remain = Remain { place, attempts: 0, not_before, holders, consumers_sought: true };
                self.settling.remains.insert(Settled::Stray(stage), remain);
            }
        }
    }

    fn start_settling(&mut self, what: Settled, actions: Vec<Action>, outputs: &mut Vec<Output>) {
        let Some(remain) = self.settling.remains.get_mut(&what) else { return };
        let mut place = remain.place.clone();
        // What only clears a private place does not touch the old superblock.
        place.old = place.old.filter(|_| actions.contains(&Action::DetachTop));
        let is_taken = |running: &Running| {
            running.plan.volume == place.volume
                || running.plan.mountpoint == place.mountpoint
                || place.old.is_some() && running.superblock == place.old
        };
        if self.running.len() >= self.policy.thresholds.plans_at_once || self.running.values().any(is_taken) {
            return;
        }
        // A person may be at work at the mount point, or a worker for one. The private place is nobody else's.
        let is_disturbing =
            self.pauses.of(&place.volume).is_some() || self.probing.is_on_errand(&place.volume, place.old);
        if actions.contains(&Action::DetachTop) && is_disturbing {
            return;
        }
        remain.attempts = remain.attempts.saturating_add(1);
        let plan = settling(self.next_plan, place, actions);
        self.next_plan = PlanId(self.next_plan.0.saturating_add(1));
        // The volume is looked at meanwhile, unless its own mount point changes.
        let touches_volume = plan.actions.contains(&Action::DetachTop);
        if let Some(volume) = self.volumes.get_mut(&plan.volume).filter(|_| touches_volume) {
            volume.plan = Some(plan.id);
        }
        let running = Running {
            plan: plan.clone(),
            superblock: plan.old,
            server: None,
            settles: Some(what),
            generation: Generation::default(),
            by: None,
            shows: true,
            is_stopped: false,
        };
        self.running.insert(plan.id, running);
        outputs.push(Output::Execute(plan));
    }

    /// A settling plan ended.
    pub(super) fn settling_finished(
        &mut self,
        what: Settled,
        outcome: &Outcome,
        now: Monotonic,
        outputs: &mut Vec<Output>,
    ) {
        if outcome.is_success() {
            self.settled(&what, outputs);
            return;
        }
        let Some(remain) = self.settling.remains.get_mut(&what) else { return };
        remain.not_before = now + AGAIN;
        if remain.attempts >= ATTEMPTS {
            let place = match &what {
                Settled::Plan(_) | Settled::Stray(_) => &remain.place.stage,
                Settled::Swap(_) => &remain.place.mountpoint,
            };
            let text = format!("what is left at {place} could not be taken away ({})", outcome.label());
            outputs.push(Output::Note(Note { volume: Some(remain.place.volume.clone()), text }));
            // The intent has its end; the private place stays in the list, so that it is not tried for ever.
            if let Settled::Plan(plan) = what {
                outputs.push(Output::Settled { plan, outcome: Outcome::Interrupted });
                let kept = self.settling.remains.remove(&Settled::Plan(plan));
                if let Some(kept) = kept {
                    let place = stray(&kept.place.stage);
                    let key = Settled::Stray(place.stage.clone());
                    self.settling.remains.insert(key, Remain { place, ..kept });
                }
            }
        }
    }

    fn settled(&mut self, what: &Settled, outputs: &mut Vec<Output>) {
        let Some(remain) = self.settling.remains.remove(what) else { return };
        if self.volumes.contains_key(&remain.place.volume) {
            self.touched.insert(remain.place.volume);
        }
        // A volume at the same place may have waited for this.
        self.touched.append(&mut self.wanting);
        if let Settled::Plan(plan) = what {
            outputs.push(Output::Settled { plan: *plan, outcome: Outcome::Interrupted });
        }
    }
}
