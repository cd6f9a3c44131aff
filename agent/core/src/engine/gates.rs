//! What stands between a repair that is due and its plan: its server must be reachable, and its hook must agree.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use alloc::{format, string::String};

use crate::engine::reach::Standing as ServerStanding;
use crate::engine::volume::{Volume, is_of_server};
use crate::engine::{Engine, Output};
use crate::fstype::FsClass;
use crate::id::{QuestionId, VolumeId};
use crate::incident::CauseKind;
use crate::remediation::asking::{Answer, AnswerReport, Asked, Asking, NoAnswer, Question, Standing};
use crate::remediation::service::Service;
use crate::status::{HeldUp, Hold};
use crate::time::Monotonic;
use crate::verdict::{Reason, Verdict};
use crate::volume::{Method, VolumeSpec};

/// Whether a repair may begin.
pub(super) enum Gate {
    Open,
    /// Not now. What it waits for, if that is more than a moment.
    Shut(Option<HeldUp>),
}

impl Volume {
    /// The part of a sentence about a repair that is held back.
    pub(super) fn held_back(&self) -> String {
        self.held_up.as_ref().map_or_else(String::new, |held| format!("; {}", held.text))
    }

    /// What a repair that is due only in a while waits for, if somebody else has a hand in it.
    pub(super) fn held_for_a_time(&self, now: Monotonic) -> Option<HeldUp> {
        let (rung, reason) = self.rung()?;
        let since = self.wrong_since(reason)?;
        let held = |hold, until, text| Some(HeldUp { hold, since: now, until: Some(until), text });
        if let Some(until) = self.others.first_until.filter(|until| *until > now) {
            let text = "somebody else has changed what is mounted there and goes first";
            return held(Hold::Change, until, String::from(text));
        }
        let own = since + rung.patience_with(self.watch.deadline);
        if let Some(healer) = self.others.healer {
            let until = since + healer.patience();
            if until > now && until > own {
                return held(Hold::Healer, until, format!("left to {} first", healer.name()));
            }
        }
        match self.asking_for(reason).stand(now, reason) {
            Standing::Waits(until) => held(Hold::Hook, until, String::from("put off by its hook")),
            Standing::Clear | Standing::Ask | Standing::Out | Standing::GivenUp => None,
        }
    }

    fn askings(&mut self) -> [&mut Asking; 2] {
        [&mut self.asking, &mut self.consumer_asking]
    }

    /// What its hook was asked last.
    pub(super) fn last_asked(&self) -> Option<&Asked> {
        [&self.asking, &self.consumer_asking]
            .into_iter()
            .filter_map(Asking::last)
            .max_by_key(|asked| asked.at)
    }

    /// What was said does not count any more, and what is out is not waited for.
    pub(super) fn forget_asked(&mut self) {
        self.askings().into_iter().filter(|asking| !asking.is_at_rest()).for_each(Asking::forget);
    }

    /// Where its server listens, as far as that is known: by the specification, and by what is mounted.
    fn service(&self) -> Option<Service> {
        if !matches!(self.class(), FsClass::Network | FsClass::Fuse) {
            return None;
        }
        let spec = self.spec.as_ref();
        let known = self.known.as_deref().filter(|_| self.shown.is_none());
        // What mounts it by itself may know another port than anybody could guess.
        let is_told = |spec: &VolumeSpec| spec.repair.method == Method::Mount || !spec.options.is_empty();
        if self.shown.is_none() && known.is_none() && !spec.is_some_and(is_told) {
            return None;
        }
        let wanted = spec.and_then(|spec| spec.fstype.as_deref());
        let fstype = wanted.or(self.fstype()).or(known.map(|known| known.fstype.as_str()))?;
        let source = spec.and_then(|spec| spec.source.as_deref());
        let source = source.or(self.source()).or(known.map(|known| known.source.as_slice()))?;
        let options = spec.into_iter().flat_map(|spec| spec.options.iter().map(String::as_bytes));
        let shown = self.shown.iter().flat_map(|shown| shown.where_it_listens.iter().map(Vec::as_slice));
        let seen = known.into_iter().flat_map(|known| known.super_options.iter());
        Service::of(fstype, source, seen.filter(|word| is_of_server(word)).chain(shown).chain(options))
    }
}

/// Whether a volume may be sick because its server cannot be reached. One that says that a handle is stale, or refuses,
/// has answered.
const fn may_be_away(reason: Reason) -> bool {
    match reason {
        Reason::HostDown | Reason::Hung | Reason::Missing | Reason::IoError | Reason::Disconnected => true,
        Reason::WrongMount
        | Reason::Covered
        | Reason::Stale
        | Reason::FsShutdown
        | Reason::Readonly
        | Reason::Auth
        | Reason::WritebackLost
        | Reason::ConsumerStale => false,
    }
}

impl Engine {
    /// Whether nothing outside the agent keeps a repair from beginning.
    pub(super) fn gate(
        &mut self,
        id: &VolumeId,
        reason: Reason,
        now: Monotonic,
        outputs: &mut Vec<Output>,
    ) -> Gate {
        // Where its mount point leads over a link, it need not be missing.
        if self.volumes.get(id).is_some_and(|volume| volume.link.awaited(now).is_some()) {
            return Gate::Shut(None);
        }
        match self.server_gate(id, reason, now) {
            Gate::Open => self.hook_gate(id, reason, now, outputs),
            shut @ Gate::Shut(_) => shut,
        }
    }

    fn server_gate(&mut self, id: &VolumeId, reason: Reason, now: Monotonic) -> Gate {
        let with_server = |incident: &crate::incident::Incident| incident.cause.kind == CauseKind::Server;
        let is_asked = may_be_away(reason) || self.incidents.of(id).is_some_and(with_server);
        let service = self.volumes.get(id).filter(|_| is_asked).and_then(Volume::service);
        self.contacts.leave(id, service.as_ref());
        let Some(service) = service else { return Gate::Open };
        let held = |since, until, text| Gate::Shut(Some(HeldUp { hold: Hold::Server, since, until, text }));
        match self.contacts.stand(&service, id, self.policy.node, now) {
            ServerStanding::Reached => {
                self.contacts.leave(id, None);
                Gate::Open
            }
            ServerStanding::Trying => Gate::Shut(None),
            ServerStanding::Away(since) => {
                let why = self.contacts.why(&service).unwrap_or_default();
                held(since, None, format!("waits for server {service} ({why})"))
            }
            ServerStanding::Back(turn) => held(
                now,
                Some(turn),
                format!("server {service} is back, and its volumes begin one after the other"),
            ),
        }
    }

    fn hook_gate(
        &mut self,
        id: &VolumeId,
        reason: Reason,
        now: Monotonic,
        outputs: &mut Vec<Output>,
    ) -> Gate {
        let next_plan = self.next_plan;
        let Some(volume) = self.volumes.get_mut(id) else { return Gate::Shut(None) };
        let hook = volume.spec.as_ref().and_then(|spec| spec.repair.hook.clone());
        let Some(hook) = hook else { return Gate::Open };
        match volume.asking_for(reason).stand(now, reason) {
            Standing::Clear => Gate::Open,
            Standing::Out | Standing::Waits(_) | Standing::GivenUp => Gate::Shut(None),
            Standing::Ask if self.questions.len() >= self.policy.thresholds.plans_at_once => {
                self.wanting.insert(id.clone());
                Gate::Shut(None)
            }
            Standing::Ask => {
                let Some(plan) = volume.make_plan((next_plan, reason), &self.below, &self.policy.stage_root)
                else {
                    return Gate::Shut(None);
                };
                self.last_question = self.last_question.saturating_add(1);
                let question = QuestionId(self.last_question);
                let asking = volume.asking_for_mut(reason);
                let put_off = asking.put_off();
                asking.ask((question, reason), &hook, now);
                self.questions.insert(question, asking.next_change().unwrap_or(now));
                outputs.push(Output::Ask(Box::new(Question {
                    id: question,
                    volume: id.clone(),
                    hook,
                    plan,
                    put_off,
                    put_off_at_most: self.policy.thresholds.put_off_at_most,
                })));
                Gate::Shut(None)
            }
        }
    }

    /// Takes what a hook has answered.
    pub(super) fn take_answer(&mut self, report: &AnswerReport, now: Monotonic, outputs: &mut Vec<Output>) {
        if self.questions.remove(&report.id).is_some() {
            // Others may have waited for a place.
            self.touched.append(&mut self.wanting);
        }
        self.answered(report, now, outputs);
    }

    /// What a volume that does not wait for this answer any more is told counts for nothing.
    fn answered(&mut self, report: &AnswerReport, now: Monotonic, outputs: &mut Vec<Output>) {
        let at_most = self.policy.thresholds.put_off_at_most;
        let Some(volume) = self.volumes.get_mut(&report.volume) else { return };
        let fault = match volume.judgement.verdict {
            Verdict::Sick(reason) => Some(reason),
            Verdict::Unknown | Verdict::Healthy | Verdict::Suspect(_) => None,
        };
        let asking = volume.askings().into_iter().find(|asking| asking.is_out(report.id));
        let Some(asking) = asking else { return };
        let consequence = asking.answer(report, fault, at_most, now);
        if consequence.look {
            volume.probes.want(now);
        }
        outputs.push(Output::Transition(volume.tell(consequence.message, now)));
        self.touched.insert(report.volume.clone());
    }

    /// A question that never came back is no answer.
    pub(super) fn miss_lost(&mut self, id: &VolumeId, now: Monotonic, outputs: &mut Vec<Output>) {
        let Some(volume) = self.volumes.get_mut(id) else { return };
        let lost = volume.askings().map(|asking| asking.lost(now));
        for question in lost.into_iter().flatten() {
            let report = AnswerReport {
                id: question,
                volume: id.clone(),
                answer: Answer::Nothing(NoAnswer::TimedOut),
                text: String::from("the question was lost"),
                took: core::time::Duration::ZERO,
            };
            self.answered(&report, now, outputs);
        }
    }

    /// Takes what a repair waits for now. Said when it begins, or when a server is back.
    pub(super) fn hold(
        &mut self,
        id: &VolumeId,
        held: Option<HeldUp>,
        now: Monotonic,
        outputs: &mut Vec<Output>,
    ) {
        let Some(volume) = self.volumes.get_mut(id) else { return };
        let Some(mut held) = held else { return volume.held_up = None };
        let before = volume.held_up.as_ref().map(|held| (held.hold, held.since, held.until.is_some()));
        match before {
            Some((hold, _, has_end)) if hold == held.hold && has_end != held.until.is_some() => {}
            Some((hold, since, _)) if hold == held.hold => {
                held.since = since;
                volume.held_up = Some(held);
                return;
            }
            Some(_) | None => outputs.push(Output::Held(id.clone(), held.hold)),
        }
        // What the others are about was said when it happened.
        if matches!(held.hold, Hold::Server | Hold::Healer) {
            let message = format!("repair is due: {}", held.text);
            outputs.push(Output::Transition(volume.tell(message, now)));
        }
        volume.held_up = Some(held);
    }

    /// Marks the volumes whose turn has come, and lets go of questions that are lost.
    pub(super) fn wake_held(&mut self, now: Monotonic) {
        let due = self.contacts.take_due(now);
        self.touched.extend(due.into_iter().filter(|id| self.volumes.contains_key(id)));
        let before = self.questions.len();
        self.questions.retain(|_, until| *until > now);
        if self.questions.len() < before {
            self.touched.append(&mut self.wanting);
        }
    }

    /// When that is.
    pub(super) fn next_held(&self) -> Option<Monotonic> {
        let questions: &BTreeMap<QuestionId, Monotonic> = &self.questions;
        let lost = questions.values().min().copied();
        [self.contacts.next_due(), lost].into_iter().flatten().min()
    }
}
