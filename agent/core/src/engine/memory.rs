//! What the store keeps of the volumes, and what of it counts after a restart.
//!
//! The store is told when something changes that must outlive the agent: falls and recoveries, attempts, losses,
//! another mount. A look that finds what the last one found changes none of it, and neither does a suspicion.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::discovery::{Presence, is_mount_of, would_be_chosen};
use crate::engine::judging::FALLS;
use crate::engine::volume::Volume;
use crate::engine::{Engine, Output, Transition};
use crate::health::Event;
use crate::health::loss::Loss;
use crate::health::rules::{LONG, Test};
use crate::id::{Generation, MountId, SuperblockId, VolumeId};
use crate::memory::{HookMemory, Known, Learnt, LeftMemory, Memory, MountMemory, Trouble};
use crate::path::BytePath;
use crate::policy::{Policy, Thresholds};
use crate::remediation::kubelet::is_kubelets;
use crate::time::Monotonic;
use crate::topology::walk::Walks;
use crate::topology::{Mount, MountTable};
use crate::verdict::{HealthState, Reason, Verdict};

/// How long after the first table the memory of a volume is kept that is not there: at the start of a node, mounts
/// come after the agent.
const UNCLAIMED: Duration = Duration::from_secs(600);
/// How long is waited for whoever tells file systems with one number apart.
const UNHEARD: Duration = Duration::from_secs(5);
/// Stands before what an earlier run has said.
const BEFORE: &str = "as known before the agent started, not looked at since: ";

/// What a memory differs in, without its texts: compared after every turn that concerns the volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    trouble: Option<(HealthState, Reason, Monotonic, bool)>,
    falls: (usize, Option<Monotonic>),
    attempts: (usize, Option<Monotonic>),
    budget: (u32, Option<Monotonic>, Option<Monotonic>),
    asked: [Option<HookMemory>; 2],
    put_back: bool,
    was_allowed: (bool, bool, Option<BytePath>),
    place: (Option<Arc<Known>>, Option<Learnt>),
    mount: Option<MountMark>,
    left: Vec<LeftMemory>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct MountMark {
    ids: (SuperblockId, MountId, Option<u64>),
    since: Monotonic,
    flags: (bool, bool),
    shutdown: Option<Monotonic>,
    writes_ended: Option<Monotonic>,
    own_errors: Option<(u64, u64)>,
    instance: Option<u64>,
    loss: Option<LossMark>,
    damage: Option<LossMark>,
}

/// When it happened, and when it was acknowledged.
type LossMark = (Monotonic, Option<Monotonic>);

impl MountMark {
    fn of(mount: &MountMemory) -> Self {
        let told = |loss: &Loss| (loss.at, loss.acknowledged.as_ref().map(|told| told.at));
        Self {
            ids: (mount.superblock, mount.mount_id, mount.unique),
            since: mount.since,
            flags: (mount.was_rw, mount.storage_errors),
            shutdown: mount.shutdown,
            writes_ended: mount.writes_ended,
            own_errors: mount.own_errors,
            instance: mount.instance,
            loss: mount.loss.as_ref().map(told),
            damage: mount.damage.as_ref().map(told),
        }
    }
}

const fn is_trouble(state: HealthState) -> bool {
    state.is_sick() || matches!(state, HealthState::Probation)
}

impl Volume {
    /// What a memory of this moment would differ in from others.
    pub(super) fn mark(&self) -> Mark {
        let condition = &self.condition;
        let (failed, ended) = self.budget.record();
        Mark {
            trouble: self
                .trouble()
                .map(|(state, reason)| (state, reason, condition.since, self.past.is_by_table)),
            falls: (self.falls.len(), self.falls.last().copied()),
            attempts: (self.budget.attempts().len(), self.budget.attempts().last().copied()),
            budget: (failed, ended, self.budget.not_before()),
            asked: self.hook_memories(),
            was_allowed: (
                self.evidence.was_readable,
                self.evidence.was_written,
                self.past.sentinel_read.clone(),
            ),
            put_back: self.past.is_put_back,
            place: (self.known.clone(), self.learnt.clone()),
            mount: self.mount_memory().as_ref().map(MountMark::of),
            left: self.left_behind(),
        }
    }

    /// What is not over. What is not believed yet is in probation for the next agent.
    fn trouble(&self) -> Option<(HealthState, Reason)> {
        let condition = &self.condition;
        let unbelieved = self.past.unbelieved.map(|reason| (HealthState::Probation, reason));
        let trouble = condition.reason.map(|reason| (condition.state, reason));
        trouble.filter(|(state, _)| is_trouble(*state)).or(unbelieved)
    }

    /// Of the volume itself, and of its consumers.
    fn hook_memories(&self) -> [Option<HookMemory>; 2] {
        let hook = self.spec.as_ref().and_then(|spec| spec.repair.hook.as_ref());
        [&self.asking, &self.consumer_asking].map(|asking| asking.memory(hook))
    }

    /// Of the mount that is there; before the first table, of the one that was.
    fn mount_memory(&self) -> Option<MountMemory> {
        let Some(shown) = &self.shown else { return self.recalled_mount.clone() };
        let evidence = &self.evidence;
        let table = &evidence.table;
        let storage_errors = table.ro && self.readonly_by_storage();
        Some(MountMemory {
            superblock: shown.superblock,
            mount_id: shown.mount_id,
            unique: shown.unique(),
            since: evidence.since,
            was_rw: table.was_kept_rw || table.rw_since.is_some() || (table.was_rw && storage_errors),
            storage_errors,
            shutdown: evidence.shutdown,
            writes_ended: evidence.writes_ended,
            own_errors: evidence.own_errors,
            instance: evidence.instance,
            loss: evidence.lost.clone(),
            damage: evidence.damage.clone(),
        })
    }

    /// What of it outlives the agent.
    pub(super) fn memory(&self) -> Memory {
        let condition = &self.condition;
        let by_rule = matches!(self.judgement.rule.map(|rule| rule.test), Some(Test::ErrorsSustained(_)));
        let message = condition.message.strip_prefix(BEFORE).unwrap_or(&condition.message);
        let trouble = self.trouble().map(|(state, reason)| Trouble {
            state,
            reason,
            since: condition.since,
            since_wall: condition.since_wall,
            by_errors: by_rule || self.errors_until.is_some(),
            by_table: self.past.is_by_table && state.is_sick(),
            message: String::from(message),
        });
        let (failed, ended) = self.budget.record();
        let [asked, asked_of_consumers] = self.hook_memories();
        Memory {
            volume: self.id.clone(),
            mountpoint: self.mountpoint.clone(),
            named: self.spec.is_some(),
            known: self.known.clone(),
            learnt: self.learnt.clone(),
            trouble,
            falls: self.falls.clone(),
            attempts: self.budget.attempts().to_vec(),
            failed,
            ended,
            not_before: self.budget.not_before(),
            asked,
            asked_of_consumers,
            was_readable: self.evidence.was_readable,
            was_written: self.evidence.was_written,
            sentinel_read: self.past.sentinel_read.clone(),
            put_back: self.past.is_put_back,
            mount: self.mount_memory(),
            left: self.left_behind(),
        }
    }

    /// Takes what an earlier run knew. Sick stays sick until a look decides; what was in order is looked at.
    pub(super) fn recall(&mut self, memory: Memory, thresholds: &Thresholds, now: Monotonic) {
        if memory.mountpoint != self.mountpoint {
            return;
        }
        let allowed = self.spec.as_ref().map_or(0, |spec| spec.repair.max_attempts);
        self.budget.recall(&memory, allowed);
        let surplus = memory.falls.len().saturating_sub(FALLS);
        self.falls = memory.falls.into_iter().skip(surplus).map(|at| at.min(now)).collect();
        self.evidence.was_readable = memory.was_readable;
        self.evidence.was_written = memory.was_written;
        self.past.sentinel_read = memory.sentinel_read;
        self.past.is_put_back = memory.put_back;
        self.recalled_mount = memory.mount;
        self.known = memory.known;
        self.is_learnt_recalled = memory.learnt.is_some();
        self.learnt = memory.learnt;
        self.recall_left(memory.left, now);
        match memory.trouble {
            Some(trouble) => {
                self.recall_trouble(trouble, thresholds, now);
                // It was about that trouble. What is well by now needs no leave.
                if self.condition.state.is_sick() {
                    let hook = self.spec.as_ref().and_then(|spec| spec.repair.hook.as_ref());
                    self.asking.recall(memory.asked, hook);
                    self.consumer_asking.recall(memory.asked_of_consumers, hook);
                }
            }
            None if memory.was_readable => {
                self.condition.is_recalled = true;
                self.condition.message = format!("{BEFORE}it could be read");
            }
            None => {}
        }
        self.stored = Some(self.mark());
    }

    fn recall_trouble(&mut self, trouble: Trouble, thresholds: &Thresholds, now: Monotonic) {
        let state = match trouble.state {
            // Its plan ended with the agent.
            HealthState::Degraded | HealthState::Recovering => HealthState::Degraded,
            HealthState::Probation => HealthState::Probation,
            HealthState::Quarantined => HealthState::Quarantined,
            HealthState::Unknown | HealthState::Healthy | HealthState::Suspect => return,
        };
        self.condition.state = state;
        self.condition.reason = Some(trouble.reason);
        self.condition.since = trouble.since.min(now);
        self.condition.since_wall = trouble.since_wall;
        self.condition.is_recalled = true;
        self.condition.message = format!("{BEFORE}{}", trouble.message);
        self.sick_since = self.condition.since;
        self.past.is_fall_recalled = state.is_sick();
        self.past.is_by_table = trouble.by_table;
        self.settle_from = now;
        self.errors_until = (trouble.by_errors && state.is_sick()).then(|| now + thresholds.evidence_window);
    }

    /// Whether errors from before the start, which a good look does not answer, keep the volume what it is.
    pub(super) fn is_kept_by_old_errors(&mut self, event: Event, now: Monotonic) -> bool {
        self.errors_until = self.errors_until.filter(|until| *until > now && self.condition.is_recalled);
        let would_lift =
            matches!(event, Event::Judged(Verdict::Healthy | Verdict::Suspect(_)) | Event::OutOfSight);
        self.errors_until.is_some() && would_lift
    }

    /// The first mount that the table shows: what was known of it counts if it is that very one.
    pub(super) fn recall_mount(&mut self, mount: &Mount, now: Monotonic) {
        // The failures of an earlier run are not forgotten: the first bad look confirms them.
        if self.condition.is_recalled && self.condition.state.is_sick() {
            let is_odd = self.condition.reason == Some(Reason::IoError);
            let enough = self.watch.failures.max(1).saturating_mul(if is_odd { LONG } else { 1 });
            self.evidence.failures = enough.saturating_sub(1);
        }
        let Some(known) = self.recalled_mount.take() else { return };
        let is_other = known.unique.zip(mount.unique).is_some_and(|(known, seen)| known != seen);
        if is_other || known.superblock != mount.superblock || known.mount_id != mount.id {
            self.was_replaced_meanwhile(known.mount_id);
            return;
        }
        self.evidence.since = known.since.min(self.evidence.since);
        self.evidence.table.was_rw = known.was_rw;
        self.evidence.table.was_kept_rw = known.was_rw;
        if known.storage_errors {
            self.evidence.readonly_cause.storage_failed(now);
        }
        self.evidence.shutdown = known.shutdown;
        self.evidence.writes_ended = known.writes_ended;
        self.evidence.own_errors = known.own_errors;
        self.evidence.lost = known.loss;
        self.evidence.damage = known.damage;
        // A number and an id that are used again may be those of the next mount of the device.
        let is_certain = known.unique.is_some() && mount.unique.is_some();
        let instance = known.instance.or(known.own_errors.map(|(instance, _)| instance));
        self.evidence.instance = instance.filter(|_| !is_certain);
    }

    /// While it is not certain whose shutdown is known, nothing is judged and nothing is done about it: who tells that
    /// tells it at once.
    pub(super) fn await_instance(&mut self, now: Monotonic) {
        let evidence = &self.evidence;
        let is_grave = evidence.shutdown.is_some() || evidence.writes_ended.is_some();
        if is_grave && evidence.instance.is_some() {
            self.hold_until = Some(now + UNHEARD);
        }
    }

    /// Takes which file system has the number. Another one than an earlier run knew is another mount.
    pub(super) fn hear_instance(&mut self, instance: u64, now: Monotonic) -> Option<Transition> {
        let is_other = self.evidence.instance.is_some_and(|known| known != instance);
        if self.generation == Generation(1) {
            self.hold_until = None;
        }
        let transition = if is_other {
            // That it was writable was said of the old one as well.
            let table = &mut self.evidence.table;
            (table.was_rw, table.was_kept_rw) = (!table.ro, table.rw_since.is_some());
            self.renew(now)
        } else {
            None
        };
        self.evidence.instance = Some(instance);
        transition
    }
}

impl Engine {
    /// Takes what an earlier run knew. Volumes that are found later take theirs when they are.
    pub(super) fn take_remembered(&mut self, memories: Vec<Memory>, now: Monotonic) {
        for memory in memories {
            match self.volumes.get_mut(&memory.volume).filter(|volume| volume.generation.0 == 0) {
                Some(volume) => {
                    volume.recall(memory, &self.policy.thresholds, now);
                    let id = volume.id.clone();
                    self.touched.insert(id);
                }
                None => drop(self.remembered.insert(memory.volume.clone(), memory)),
            }
        }
    }

    /// What nobody has claimed for long is forgotten.
    pub(super) fn forget_unclaimed(&mut self, now: Monotonic, outputs: &mut Vec<Output>) {
        if (self.remembered.is_empty() && self.absent.is_empty()) || self.table.is_none() {
            return;
        }
        let until = *self.remembered_until.get_or_insert(now + UNCLAIMED);
        if until > now {
            return;
        }
        for (id, _) in core::mem::take(&mut self.remembered) {
            if !self.volumes.contains_key(&id) {
                outputs.push(Output::Forget(id));
            }
        }
        for id in core::mem::take(&mut self.absent) {
            if let Some(volume) = self.volumes.get_mut(&id).filter(|volume| volume.is_absent) {
                outputs.extend(volume.give_up_waiting(now).map(Output::Transition));
                self.touched.insert(id);
            }
        }
    }

    /// Volumes that an earlier run had found, and that the first table does not show: they are missing. How they are
    /// made nobody has said, so that nothing is done for them.
    pub(super) fn miss_remembered(&mut self, now: Monotonic) {
        let Some(table) = self.table.clone() else { return };
        let lost: Vec<VolumeId> = self
            .remembered
            .values()
            .filter(|memory| !self.volumes.contains_key(&memory.volume))
            .filter(|memory| is_lost(&self.policy, &table, memory))
            .map(|memory| memory.volume.clone())
            .collect();
        for id in lost {
            let Some(memory) = self.remembered.remove(&id) else { continue };
            let mut volume = Volume::new(id.clone(), memory.mountpoint.clone(), now);
            volume.instruct(None, &self.policy.defaults);
            volume.recall(memory, &self.policy.thresholds, now);
            volume.is_absent = true;
            volume.presence = Some(Presence::Missing);
            self.volumes.insert(id.clone(), volume);
            self.absent.insert(id.clone());
            self.touched.insert(id);
        }
    }

    /// After a change of settings: what would not be taken in any more is not missed.
    pub(super) fn miss_no_more(&mut self) {
        let Some(table) = self.table.clone() else { return };
        for id in core::mem::take(&mut self.absent) {
            let is_wanted = self
                .volumes
                .get(&id)
                .filter(|volume| volume.is_absent)
                .is_some_and(|volume| is_lost(&self.policy, &table, &volume.memory()));
            if is_wanted {
                self.absent.insert(id);
            } else if self.volumes.get(&id).is_some_and(|volume| volume.is_absent) {
                self.volumes.remove(&id);
            }
        }
    }

    /// Tells the store what must outlive the agent, if that changed.
    pub(super) fn remember(&mut self, id: &VolumeId, outputs: &mut Vec<Output>) {
        let Some(volume) = self.volumes.get_mut(id) else { return };
        let mark = volume.mark();
        if volume.stored.as_ref() == Some(&mark) {
            return;
        }
        volume.stored = Some(mark);
        outputs.push(Output::Remember(Box::new(volume.memory())));
    }
}

/// Whether a mount was there that discovery takes in, and nothing of it is left at its place. Pods come and go: what
/// the kubelet had mounted and is gone was most likely taken away in order, and it makes anew itself what a pod needs.
fn is_lost(policy: &Policy, table: &MountTable, memory: &Memory) -> bool {
    let Some(known) = memory.known.as_deref().filter(|_| !memory.named) else { return false };
    if is_kubelets(&memory.mountpoint) {
        return false;
    }
    let is_there = table
        .stack_at(&memory.mountpoint)
        .into_iter()
        .any(|mount| is_mount_of(Some(&known.source), Some(&known.fstype), mount));
    let is_named = policy.volumes.iter().any(|spec| spec.mountpoint == memory.mountpoint);
    let is_trapped = Walks::new(table).is_trapped(&memory.mountpoint);
    !is_there && !is_named && !is_trapped && would_be_chosen(policy, table, &memory.mountpoint, known)
}
