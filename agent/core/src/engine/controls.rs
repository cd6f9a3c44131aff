//! What people order by hand: pauses, a remount, forgetting. Each is an event with their name.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::discovery::Presence;
use crate::engine::causes::Below;
use crate::engine::repair::Running;
use crate::engine::volume::Volume;
use crate::engine::{Engine, Output, Transition};
use crate::health::Event;
use crate::health::loss::Actor;
use crate::id::{PlanId, VolumeId};
use crate::order::{Deed, Done, Lack, NodeDeed, Order, Preview, Refused};
use crate::path::BytePath;
use crate::pause::{Pause, Pauses, Scope};
use crate::remediation::Plan;
use crate::remediation::plan::is_repairable;
use crate::time::Monotonic;
use crate::verdict::Reason;
use crate::volume::{Method, Mode, VolumeSpec};

impl Engine {
    /// What a plan for this volume would do now. Nothing is done.
    ///
    /// # Errors
    /// When no plan can be made for it at all.
    pub fn preview(&self, id: &VolumeId) -> Result<Preview, Refused> {
        let volume = self.volumes.get(id).ok_or(Refused::NoSuchVolume)?;
        volume.may_be_remounted()?;
        let plan = volume.plan_by_hand(self.next_plan, &self.below, &self.policy.stage_root);
        let plan = plan.ok_or(Refused::Found)?;
        Ok(Preview { plan, hindered: self.hindrance(volume) })
    }

    /// Takes the pauses of an earlier run.
    pub(super) fn take_pauses(&mut self, pauses: Pauses) {
        self.pauses = pauses;
    }

    pub(super) fn take_order(&mut self, order: Order, by: Actor, now: Monotonic, outputs: &mut Vec<Output>) {
        let answer = match order {
            Order::Pause { scope, until, reason } => {
                let pause = Pause { since: now, since_wall: None, until, by, reason };
                self.pause(scope, pause, now, outputs)
            }
            Order::Resume(scope) => self.resume(&scope, &by, now, outputs),
            Order::Remount(id) => self.remount(&id, by, now, outputs),
            Order::Forget(id) => self.forget_by_hand(&id, by, now, outputs),
        };
        outputs.push(Output::Ordered(Box::new(answer)));
    }

    fn pause(
        &mut self,
        scope: Scope,
        pause: Pause,
        now: Monotonic,
        outputs: &mut Vec<Output>,
    ) -> Result<Done, Refused> {
        if let Scope::Volume(id) = &scope
            && !self.volumes.contains_key(id)
        {
            return Err(Refused::NoSuchVolume);
        }
        let why = pause.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let message = match &scope {
            Scope::Node => format!("{} paused the repairs of every volume{why}", pause.by),
            Scope::Volume(_) => format!("{} paused its repairs{why}", pause.by),
        };
        self.pauses.set(scope.clone(), pause.clone());
        self.tell(&scope, (Deed::Pause, Some(pause.by.clone()), message), now, outputs);
        self.pauses_changed(&scope, outputs);
        let is_meant = |running: &&Running| match &scope {
            Scope::Node => true,
            Scope::Volume(id) => running.plan.volume == *id,
        };
        let running = self.running.values().filter(is_meant).map(|running| running.plan.id).collect();
        Ok(Done::Paused { pause, running })
    }

    fn resume(
        &mut self,
        scope: &Scope,
        by: &Actor,
        now: Monotonic,
        outputs: &mut Vec<Output>,
    ) -> Result<Done, Refused> {
        if let Scope::Volume(id) = scope
            && !self.volumes.contains_key(id)
            && !self.pauses.volumes.contains_key(id)
        {
            return Err(Refused::NoSuchVolume);
        }
        let ended = self.pauses.end(scope);
        let still = match scope {
            Scope::Node => None,
            Scope::Volume(id) => self.pauses.of(id).map(|(pause, _)| pause.clone()),
        };
        if ended.is_empty() {
            return Err(still.map_or(Refused::NotPaused, Refused::Paused));
        }
        for one in &ended {
            let message = match one {
                Scope::Node => format!("{by} let the repairs of every volume go on"),
                Scope::Volume(_) => format!("{by} let its repairs go on"),
            };
            self.tell(one, (Deed::Resume, Some(by.clone()), message), now, outputs);
            self.pauses_changed(one, outputs);
        }
        Ok(Done::Resumed { ended, still })
    }

    /// Ends the pauses whose time is over.
    pub(super) fn expire_pauses(&mut self, now: Monotonic, outputs: &mut Vec<Output>) {
        for scope in self.pauses.expire(now) {
            let message = String::from("the time of the pause is over, repairs go on");
            self.tell(&scope, (Deed::Resume, None, message), now, outputs);
            self.pauses_changed(&scope, outputs);
        }
    }

    /// Who waited for the end of a pause is considered now, and the store is told.
    fn pauses_changed(&mut self, scope: &Scope, outputs: &mut Vec<Output>) {
        match scope {
            Scope::Node => self.touched.extend(self.volumes.keys().cloned()),
            Scope::Volume(id) => drop(self.touched.insert(id.clone())),
        }
        self.settling_due = true;
        outputs.retain(|output| !matches!(output, Output::Pauses(_)));
        outputs.push(Output::Pauses(self.pauses.clone()));
    }

    /// Writes a deed down: in the history of the volume, or beside all of them.
    fn tell(
        &mut self,
        scope: &Scope,
        (deed, by, message): (Deed, Option<Actor>, String),
        now: Monotonic,
        outputs: &mut Vec<Output>,
    ) {
        if let Scope::Volume(id) = scope
            && let Some(volume) = self.volumes.get_mut(id)
        {
            outputs.push(Output::Transition(volume.told(Some(deed), by, message, now)));
            return;
        }
        let volume = match scope {
            Scope::Node => None,
            Scope::Volume(id) => Some(id.clone()),
        };
        outputs.push(Output::Deed(NodeDeed { at: now, deed, volume, by, message }));
    }

    /// Whether a person has stopped the repairs of this volume.
    pub(super) fn is_paused(&self, id: &VolumeId) -> bool {
        self.pauses.of(id).is_some()
    }

    /// Why a plan that could be made would not be begun now.
    fn hindrance(&self, volume: &Volume) -> Option<Refused> {
        if let Some((pause, _)) = self.pauses.of(&volume.id) {
            return Some(Refused::Paused(pause.clone()));
        }
        let in_the_way = self.in_the_way(volume, self.plan_in_the_way(volume));
        in_the_way.or_else(|| self.is_worked_on(volume).then_some(Refused::Looking))
    }

    fn remount(
        &mut self,
        id: &VolumeId,
        by: Actor,
        now: Monotonic,
        outputs: &mut Vec<Output>,
    ) -> Result<Done, Refused> {
        let Preview { plan, hindered } = self.preview(id)?;
        if let Some(refused) = hindered {
            return Err(refused);
        }
        let message = format!("{by} had it mounted anew by plan {}", plan.id);
        self.tell(&Scope::Volume(id.clone()), (Deed::Remount, Some(by.clone()), message), now, outputs);
        let volume = self.volumes.get_mut(id).ok_or(Refused::NoSuchVolume)?;
        volume.ordered = true;
        self.begin_plan(plan.clone(), Some(by), now, outputs);
        Ok(Done::Remounting(Box::new(plan)))
    }

    /// A plan that a person had ordered has ended.
    pub(super) fn remount_finished(
        &mut self,
        (id, plan): (&VolumeId, PlanId),
        (by, outcome): (Actor, &str),
        now: Monotonic,
        outputs: &mut Vec<Output>,
    ) {
        let message = format!("plan {plan}, which {by} had ordered, ended: {outcome}");
        self.tell(&Scope::Volume(id.clone()), (Deed::Remount, Some(by), message), now, outputs);
    }

    /// Drops all that is known of a volume, but not its pause. What the table and the configuration say of it is taken
    /// in at once again.
    fn forget_by_hand(
        &mut self,
        id: &VolumeId,
        by: Actor,
        now: Monotonic,
        outputs: &mut Vec<Output>,
    ) -> Result<Done, Refused> {
        // What a person has stopped begins only by a person's word.
        let paused = self.pauses.volumes.get(id).cloned();
        let Some(volume) = self.volumes.get(id) else {
            let was_kept = self.remembered.remove(id).is_some();
            outputs.extend(was_kept.then(|| Output::Forget(id.clone())));
            let is_known = was_kept || paused.is_some();
            return if is_known { Ok(Done::Forgotten { paused }) } else { Err(Refused::NoSuchVolume) };
        };
        let own = self.running.values().find(|running| running.plan.volume == *id);
        if let Some(refused) = self.in_the_way(volume, own.map(|running| running.plan.id)) {
            return Err(refused);
        }
        self.volumes.remove(id);
        self.absent.remove(id);
        self.incidents.recovered(id, now);
        outputs.push(Output::Forget(id.clone()));
        self.wakes.retain(|(_, other)| other != id);
        (self.track_changed, self.dead_changed) = (true, true);
        self.name_again(id, now);
        self.sync(now, outputs);
        self.touched.insert(id.clone());
        let message = format!("{by} had all that was known of it forgotten");
        self.tell(&Scope::Volume(id.clone()), (Deed::Forget, Some(by), message), now, outputs);
        Ok(Done::Forgotten { paused })
    }

    fn name_again(&mut self, id: &VolumeId, now: Monotonic) {
        let Some(spec) = self.policy.volumes.iter().find(|spec| spec.id == *id) else { return };
        let mut volume = Volume::new(id.clone(), spec.mountpoint.clone(), now);
        volume.pin = self.pins.get(id).cloned();
        volume.instruct(Some(spec), &self.policy.defaults);
        self.volumes.insert(id.clone(), volume);
    }
}

impl Volume {
    /// Something that happened, or that a person did, for the history. The state is the same before and after.
    pub(super) fn told(
        &mut self,
        deed: Option<Deed>,
        by: Option<Actor>,
        message: String,
        now: Monotonic,
    ) -> Transition {
        let state = self.condition.state;
        let transition = Transition {
            volume: self.id.clone(),
            from: state,
            to: state,
            reason: self.condition.reason,
            at: now,
            evidence_at: None,
            message,
            incident: None,
            deed,
            by,
        };
        self.keep(transition.clone());
        transition
    }

    /// Whether enough is known to make the volume's mount again, and its place is free for it.
    pub(super) fn may_be_remounted(&self) -> Result<(), Refused> {
        if self.watch.mode == Mode::Off {
            return Err(Refused::Off);
        }
        let spec = self.spec.as_ref().ok_or(Refused::Found)?;
        if !is_repairable(spec) {
            return Err(Refused::Incomplete(lack(spec)));
        }
        match self.presence {
            Some(Presence::Idle) => Err(Refused::Idle),
            Some(Presence::WrongMount | Presence::Covered) => Err(Refused::Occupied),
            Some(Presence::Present | Presence::Missing) | None => Ok(()),
        }
    }

    /// The plan for what is wrong with it; else the one that makes the mount anew, as for a mount that is stale.
    fn plan_by_hand(&self, id: PlanId, below: &Below, stage_root: &BytePath) -> Option<Plan> {
        let reason = self.condition.reason;
        let mends = reason.and_then(|reason| self.make_plan((id, reason), below, stage_root));
        mends.or_else(|| {
            let plan = self.make_plan((id, Reason::Stale), below, stage_root)?;
            Some(Plan { reason: None, ..plan })
        })
    }

    /// A plan begins: nothing is judged until it has ended.
    pub(super) fn plan_started(&mut self, id: PlanId, now: Monotonic) -> Option<Transition> {
        self.plan = Some(id);
        let message = format!("plan {id} is running, because: {}", self.condition.message);
        self.apply(Event::PlanStarted, message, now)
    }
}

fn lack(spec: &VolumeSpec) -> Lack {
    match &spec.repair.method {
        Method::Command(_) => Lack::Command,
        Method::Systemd(_) => Lack::Unit,
        Method::Mount | Method::Fstab if spec.source.is_none() => Lack::Source,
        Method::Mount | Method::Fstab => Lack::FsType,
    }
}
