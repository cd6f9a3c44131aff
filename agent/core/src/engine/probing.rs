//! Probes that are out: one at a time for each superblock, whichever volume it is for.
//!
//! A probe that passed its deadline blocks its superblock until its worker comes back or dies: a second one would
//! hang beside it, and only an answer tells what is slow from what hangs. Volumes that share a superblock queue in the
//! order in which they came.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use crate::discovery::Presence;
use crate::engine::volume::Volume;
use crate::engine::{Engine, Input, Note, Output, ProbeOrder};
use crate::health::evidence::{Look, Told};
use crate::health::rules::LOST_LOOKS;
use crate::id::{Generation, ProbeId, SuperblockId, VolumeId};
use crate::observation::{NotRun, ProbeReport, ProbeResult, Source};
use crate::policy::Thresholds;
use crate::time::Monotonic;
use crate::volume::Identity;

/// A worker that was lost is replaced, and the look made up for, after this time.
const AFTER_LOSS: Duration = Duration::from_millis(100);

/// One probe that is out.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Out {
    superblock: SuperblockId,
    volume: VolumeId,
    generation: Generation,
    what: Work,
    /// It passed its deadline, and began then.
    stuck_since: Option<Monotonic>,
    /// Its worker was told to end: that it does says nothing about the volume.
    is_let_go: bool,
}

/// Whether looks that hang may be of no use after this.
pub(super) const fn may_leave_looks_behind(input: &Input) -> bool {
    match input {
        Input::MountTable(_) | Input::Policy(_) | Input::Renewed(..) | Input::ErrandHangs(..) => true,
        Input::Probe(report) => matches!(report.result, ProbeResult::TimedOut { .. }),
        _ => false,
    }
}

/// What a worker is out for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    Look,
    /// What a person asked for.
    Errand,
}

/// What hangs on the superblock of a volume and is not its own look: that of another volume, or an errand of any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Behind {
    /// When it began.
    pub(super) since: Monotonic,
    /// The volume that it is for is no longer there: it was repaired or unmounted, and its look is left behind.
    pub(super) has_left: bool,
}

/// All probes that are out, and who waits for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Probing {
    out: BTreeMap<ProbeId, Out>,
    busy: BTreeMap<SuperblockId, ProbeId>,
    waiting: BTreeMap<SuperblockId, VecDeque<VolumeId>>,
    good: Good,
    last: u64,
}

/// The volume at which a look was good last, and the last other one.
#[derive(Clone, Debug, Default)]
struct Good {
    last: Option<(VolumeId, Monotonic)>,
    other: Option<(VolumeId, Monotonic)>,
}

impl Good {
    fn note(&mut self, volume: &VolumeId, now: Monotonic) {
        match &mut self.last {
            Some((known, at)) if known == volume => *at = now,
            last => self.other = last.replace((volume.clone(), now)),
        }
    }

    /// When one at any other volume was.
    fn of_others(&self, volume: &VolumeId) -> Option<Monotonic> {
        let all = [&self.last, &self.other].into_iter().flatten();
        all.filter(|(known, _)| known != volume).map(|(_, at)| *at).max()
    }
}

/// Who has waited longest for a superblock.
pub(super) fn pop(
    queues: &mut BTreeMap<SuperblockId, VecDeque<VolumeId>>,
    superblock: SuperblockId,
) -> Option<VolumeId> {
    let queue = queues.get_mut(&superblock)?;
    let next = queue.pop_front();
    if queue.is_empty() {
        queues.remove(&superblock);
    }
    next
}

impl Probing {
    pub(super) fn is_busy(&self, superblock: SuperblockId) -> bool {
        self.busy.contains_key(&superblock)
    }

    /// Since when the probe that is out on a superblock has not come back.
    pub(super) fn stuck_since(&self, superblock: SuperblockId) -> Option<Monotonic> {
        self.out_on(superblock)?.stuck_since
    }

    fn out_on(&self, superblock: SuperblockId) -> Option<&Out> {
        self.out.get(self.busy.get(&superblock)?)
    }

    fn wait(&mut self, superblock: SuperblockId, volume: &VolumeId) {
        let queue = self.waiting.entry(superblock).or_default();
        if !queue.contains(volume) {
            queue.push_back(volume.clone());
        }
    }

    fn next_waiting(&mut self, superblock: SuperblockId) -> Option<VolumeId> {
        pop(&mut self.waiting, superblock)
    }

    /// A look or an errand is out there for a volume.
    pub(super) fn begin(&mut self, superblock: SuperblockId, volume: &Volume, what: Work) -> ProbeId {
        self.last = self.last.saturating_add(1);
        let id = ProbeId(self.last);
        let (volume, generation) = (volume.id.clone(), volume.generation);
        self.busy.insert(superblock, id);
        self.out
            .insert(id, Out { superblock, volume, generation, what, stuck_since: None, is_let_go: false });
        id
    }

    /// Whether a worker is on an errand for this volume, or on its superblock, and may come back soon.
    pub(super) fn is_on_errand(&self, volume: &VolumeId, superblock: Option<SuperblockId>) -> bool {
        self.out.values().any(|out| {
            let is_there = out.volume == *volume || Some(out.superblock) == superblock;
            out.what == Work::Errand && out.stuck_since.is_none() && is_there
        })
    }

    fn end(&mut self, id: ProbeId) -> Option<Out> {
        let out = self.out.remove(&id)?;
        self.busy.remove(&out.superblock);
        Some(out)
    }
}

impl Out {
    /// Whether the volume still shows what is looked at.
    fn is_of(&self, volume: &Volume) -> bool {
        let shown = volume.shown.as_ref();
        volume.generation == self.generation && shown.is_some_and(|shown| shown.superblock == self.superblock)
    }
}

impl Volume {
    /// When a look is due; `None` while there is nothing to look at, or a plan is at work.
    pub(super) fn probe_due(&self) -> Option<Monotonic> {
        let can_look = self.is_watched() && self.presence == Some(Presence::Present) && self.plan.is_none();
        let rhythm = self.rhythm();
        let due = self.probes.due(&self.id, &rhythm, self.condition.state).filter(|_| can_look)?;
        Some(self.hold_until.map_or(due, |until| due.max(until)))
    }

    /// Takes whether anything but its own look hangs on its superblock: then it cannot be looked at.
    pub(super) fn stand_behind(&mut self, ahead: Option<Behind>, now: Monotonic) {
        self.behind = ahead.filter(|_| self.probes.outstanding.is_none());
        self.evidence.overdue = self.overdue_at().is_some_and(|time| time <= now);
    }

    /// When the look that it cannot have would have passed its deadline.
    pub(super) fn overdue_at(&self) -> Option<Monotonic> {
        self.behind.and_then(|_| self.probe_due()).map(|due| due + self.watch.deadline)
    }

    pub(super) fn probe_order(&self, id: ProbeId) -> Option<ProbeOrder> {
        let shown = self.shown.as_ref()?;
        Some(ProbeOrder {
            id,
            volume: self.id.clone(),
            generation: self.generation,
            mountpoint: self.mountpoint.clone(),
            superblock: shown.superblock,
            mount_id: shown.mount_id,
            root: shown.root.clone(),
            fstype: shown.fstype.clone(),
            sentinel: self.sentinel(),
            write: self.spec.as_ref().is_some_and(|spec| spec.write_probe),
            user: self.watch.probe_as.as_deref().cloned(),
            is_automount: self.automount.is_some(),
            deadline: self.watch.deadline,
        })
    }

    fn take_report(&mut self, report: &ProbeReport, thresholds: &Thresholds, now: Monotonic) {
        let slow_after = self.watch.deadline.saturating_mul(thresholds.slow_percent) / 100;
        // The first good look after a fall ends an incident in which the hints were right.
        let had_hints = !self.evidence.kernel.is_empty() && !self.condition.state.is_sick();
        let only_for = self.shown.as_ref().and_then(|shown| shown.only_for);
        self.evidence.is_closed = only_for.is_some_and(|owner| owner != self.looks_as());
        let sentinel = self.sentinel().map(|sentinel| sentinel.path);
        self.evidence.was_sentinel_read = sentinel.is_some() && self.past.sentinel_read == sentinel;
        let before = self.evidence.look;
        let told = self.evidence.look(report, slow_after, now);
        if reads_sentinel(&report.result) {
            self.past.sentinel_read = sentinel;
        }
        let is_other = before != self.evidence.look;
        if report.result == ProbeResult::NotRun(NotRun::WorkerLost) && self.evidence.lost_looks < LOST_LOOKS {
            self.probes.want(now + AFTER_LOSS);
        }
        self.last_probe = Some((report.started, report.took, report.result.clone()));
        let is_good = self.evidence.look == Look::Good;
        if is_good && self.evidence.good.is_some_and(|good| good.at == now) {
            self.last_ok = Some(now);
        }
        if let ProbeResult::Ok(ok) | ProbeResult::WriteFailed { read: ok, .. } = &report.result {
            self.root_inode = Some(ok.root_inode);
            self.learn(Identity { uuid: ok.uuid.clone(), fsid: ok.fsid.clone() }, thresholds, now);
        }
        match told {
            Told::Good if had_hints && self.evidence.kernel.is_empty() => self.probes.hints_answered(),
            Told::Error(errno, op) => self.count((errno, op, Source::Probe), 1, now),
            Told::Good | Told::Bad | Told::Nothing => {}
        }
        let is_news = self.probes.found(is_other || is_good, &self.rhythm());
        if !is_news {
            self.probes.hints_answered();
        } else if is_other || !is_good {
            self.probes.hints_believed();
        }
    }
}

impl Engine {
    /// What stands in the way of looks at a superblock: a worker that has not come back.
    pub(super) fn hangs_on(&self, superblock: SuperblockId) -> Option<Behind> {
        let out = self.probing.out_on(superblock)?;
        let since = out.stuck_since?;
        let has_left = !self.volumes.get(&out.volume).is_some_and(|volume| out.is_of(volume));
        Some(Behind { since, has_left })
    }

    /// Whether an answer about this volume is on its way: a look is out, or stands in the queue for its
    /// superblock, and what is out there has not hung.
    #[must_use]
    pub fn expects_answer(&self, id: &VolumeId) -> bool {
        let Some(volume) = self.volumes.get(id) else { return false };
        let superblock = volume.shown.as_ref().map(|shown| shown.superblock);
        let queue = superblock.and_then(|superblock| self.probing.waiting.get(&superblock));
        let is_queued = queue.is_some_and(|queue| queue.contains(id));
        let is_hung = superblock.is_some_and(|superblock| self.probing.stuck_since(superblock).is_some());
        (volume.probes.outstanding.is_some() || is_queued) && !is_hung
    }

    /// Orders a probe if one is due and may go out. Says whether it did.
    pub(super) fn consider_probe(
        &mut self,
        id: &VolumeId,
        now: Monotonic,
        outputs: &mut Vec<Output>,
    ) -> bool {
        let Some(volume) = self.volumes.get_mut(id) else { return false };
        if volume.probe_due().is_none_or(|due| due > now) {
            return false;
        }
        let Some(superblock) = volume.shown.as_ref().map(|shown| shown.superblock) else { return false };
        if self.probing.is_busy(superblock) {
            self.probing.wait(superblock, id);
            return false;
        }
        let probe = self.probing.begin(superblock, volume, Work::Look);
        volume.probes.order(probe, volume.condition.state, now);
        outputs.extend(volume.probe_order(probe).map(Output::Probe));
        true
    }

    /// Takes the answer of a probe.
    pub(super) fn take_probe(&mut self, report: &ProbeReport, now: Monotonic, outputs: &mut Vec<Output>) {
        let timed_out = matches!(report.result, ProbeResult::TimedOut { .. });
        let Some(out) =
            self.probing.out.get_mut(&report.id).filter(|out| !(out.stuck_since.is_some() && timed_out))
        else {
            outputs
                .push(note(&report.volume, format!("an answer to probe {}, which is not out", report.id.0)));
            return;
        };
        let out = if timed_out {
            out.stuck_since = Some(report.started.min(now));
            out.clone()
        } else {
            match self.probing.end(report.id) {
                Some(out) => out,
                None => return,
            }
        };
        self.touch_behind(&out);
        let others_answered = self.probing.good.of_others(&out.volume);
        if matches!(report.result, ProbeResult::Ok(_)) {
            self.probing.good.note(&out.volume, now);
        }
        match self.volumes.get_mut(&out.volume) {
            Some(volume)
                if volume.generation == out.generation && volume.probes.outstanding == Some(report.id) =>
            {
                let mut report = report.clone();
                report.started = report.started.min(now);
                let root_inode = volume.root_inode;
                volume.evidence.others_answered = others_answered;
                volume.take_report(&report, &self.policy.thresholds, now);
                if timed_out {
                    volume.probes.stuck_since = Some(report.started);
                } else {
                    volume.probes.answer_in_time(now);
                }
                self.track_learnt |= root_inode != volume.root_inode;
                self.touched.insert(out.volume.clone());
            }
            Some(_) | None => {
                outputs.push(note(
                    &out.volume,
                    format!("a late answer to probe {}, about an older mount", report.id.0),
                ));
            }
        }
        // Also of one that is not free now: who waits with an errand is told.
        self.freed.push(out.superblock);
    }

    /// A look that hangs, or has hung, concerns every volume on its superblock.
    fn touch_behind(&mut self, out: &Out) {
        if out.stuck_since.is_some() {
            self.touched.extend(self.by_superblock.get(&out.superblock).into_iter().flatten().cloned());
        }
    }

    /// What is out there for an errand has hung. Volumes there cannot be looked at, and errands that wait are told.
    pub(super) fn errand_hangs(&mut self, id: ProbeId, began: Monotonic) {
        let Some(out) = self.probing.out.get_mut(&id) else { return };
        out.stuck_since = Some(began);
        let out = out.clone();
        self.touch_behind(&out);
        self.let_plans_begin(&out);
        self.freed.push(out.superblock);
    }

    /// Lets go of looks that hang where their mount is gone, or where a plan begins to replace it.
    pub(super) fn let_go(&mut self, outputs: &mut Vec<Output>) {
        let mut going = Vec::new();
        for (id, out) in &mut self.probing.out {
            let is_there = self.volumes.get(&out.volume).is_some_and(|volume| out.is_of(volume));
            let is_replaced = || {
                self.running.values().any(|running| {
                    running.plan.volume == out.volume || running.superblock == Some(out.superblock)
                })
            };
            if out.stuck_since.is_some() && !out.is_let_go && (!is_there || is_replaced()) {
                out.is_let_go = true;
                going.push(Output::LetGo(*id));
            }
        }
        // Before the plan: a device that is looked at is in use.
        outputs.splice(0..0, going);
    }

    /// A probe that had timed out has answered. What it found may be too old, and the next look says it. But where it
    /// waits for long and fails then, again and again, as soft mounts of a server that is away do, it is not slow.
    pub(super) fn probe_late(&mut self, report: &ProbeReport, now: Monotonic) {
        self.come_back(report.id, Some(report), now);
    }

    /// Plans wait for the end of an errand, and not for one that hangs.
    fn let_plans_begin(&mut self, out: &Out) {
        if out.what == Work::Errand {
            self.touched.append(&mut self.wanting);
            self.settling_due = true;
        }
    }

    /// The worker of a probe that had timed out is gone. What it would have said is too old; the next look says it.
    pub(super) fn probe_returned(&mut self, id: ProbeId, now: Monotonic) {
        self.come_back(id, None, now);
    }

    fn come_back(&mut self, id: ProbeId, said: Option<&ProbeReport>, now: Monotonic) {
        let Some(out) = self.probing.end(id) else { return };
        self.touch_behind(&out);
        self.let_plans_begin(&out);
        if let Some(volume) = self.volumes.get_mut(&out.volume)
            && volume.probes.outstanding == Some(id)
        {
            volume.probes.answer(now);
            match said {
                Some(report) if !matches!(report.result, ProbeResult::Ok(_)) => {
                    volume.evidence.slow = false;
                    volume.probes.failed_late();
                    volume.last_probe = Some((report.started.min(now), report.took, report.result.clone()));
                }
                Some(_) | None => {
                    // It was late, but it came; unless it had to. What is good is a sign of life.
                    volume.evidence.slow |= !out.is_let_go;
                    volume.probes.fails_late &= said.is_none();
                    volume.probes.want(now);
                }
            }
            self.touched.insert(out.volume);
        }
        self.freed.push(out.superblock);
    }

    /// Lets the next in the queue of each freed superblock look.
    pub(super) fn serve_waiting(&mut self, now: Monotonic, outputs: &mut Vec<Output>) {
        for superblock in core::mem::take(&mut self.freed) {
            self.serve_errands(superblock, outputs);
            while !self.probing.is_busy(superblock) {
                let Some(next) = self.probing.next_waiting(superblock) else { break };
                self.process(&next, now, outputs);
            }
        }
    }
}

/// Whether the content of the sentinel was read.
const fn reads_sentinel(result: &ProbeResult) -> bool {
    match result {
        ProbeResult::Ok(ok) | ProbeResult::WriteFailed { read: ok, .. } => ok.read_data,
        ProbeResult::SentinelDiffers => true,
        ProbeResult::Failed { .. }
        | ProbeResult::WrongMount { .. }
        | ProbeResult::SentinelMissing
        | ProbeResult::SentinelUnusable
        | ProbeResult::TimedOut { .. }
        | ProbeResult::NotRun(_) => false,
    }
}

fn note(volume: &VolumeId, text: alloc::string::String) -> Output {
    Output::Note(Note { volume: Some(volume.clone()), text })
}
