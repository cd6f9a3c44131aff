//! The judgement of one volume: its facts for the rules, the steps that follow, the sentence for people.

use alloc::{format, string::String, vec::Vec};
use core::time::Duration;

use crate::discovery::Presence;
use crate::engine::Transition;
use crate::engine::volume::Volume;
use crate::errno::{Errno, ErrnoClass};
use crate::health::loss::Loss;
use crate::health::meaning::class_of;
use crate::health::message::describe;
use crate::health::rules::{Facts, Judgement, Rule, Test, judge};
use crate::health::window::{Span, speaks_of_storage};
use crate::health::{Event, step};
use crate::observation::{Op, Source, Task};
use crate::path::escape;
use crate::policy::Thresholds;
use crate::remediation::budget::Pace;
use crate::time::Monotonic;
use crate::verdict::{Advice, HealthState, Reason, Verdict};

/// The most transitions that are kept of a volume.
const HISTORY: usize = 16;
/// Why nothing is done for a volume that an earlier run had found.
const ABSENT: &str = "it was there before the agent started and nobody named it, so that how it is made is not known: \
                      it is observed only, and forgotten ten minutes after the start";
/// The most falls that are remembered.
pub(super) const FALLS: usize = 32;
/// So many falls within the flap window are flapping: a repair that did not last may be chance, the next is not.
const FLAPPING: usize = 3;

impl Volume {
    /// The facts of this moment, for the rules.
    pub(super) fn facts<'a>(&'a self, thresholds: &Thresholds, now: Monotonic) -> Facts<'a> {
        Facts {
            evidence: &self.evidence,
            identity: self.spec.as_ref().map(|spec| &spec.identity),
            presence: self.presence,
            failures: self.watch.failures.max(1),
            good_for: self.good_for(),
            span: Span { now, window: thresholds.evidence_window },
            sustained_errors: thresholds.sustained_errors,
            sustained_spread: thresholds.sustained_spread,
            stale_consumers: self.held.mounts(),
        }
    }

    /// A good look speaks for the volume until three more should have come.
    pub(super) fn good_for(&self) -> Duration {
        self.rhythm().longest().saturating_mul(3).saturating_add(self.watch.deadline)
    }

    /// Judges the evidence of this moment, and takes the steps that follow.
    pub(super) fn refresh(&mut self, thresholds: &Thresholds, now: Monotonic) -> Vec<Transition> {
        let mut transitions = Vec::new();
        let span = Span { now, window: thresholds.evidence_window };
        self.evidence.kernel.expire(span);
        self.hold_until = self.hold_until.filter(|until| *until > now);
        self.refresh_advice(thresholds, span);
        if !self.is_watched() {
            if self.condition.state != HealthState::Recovering || self.plan.is_none() {
                transitions.extend(self.apply(Event::Unwatched, String::from("not watched (mode off)"), now));
            }
            return transitions;
        }
        let is_mended =
            self.plan.is_some() && (self.condition.state == HealthState::Recovering || self.ordered);
        if is_mended || self.hold_until.is_some() {
            return transitions;
        }
        match self.presence {
            Some(Presence::Idle) => {
                let message = String::from("only the automount trap is there: not a fault");
                self.judgement = Judgement::UNKNOWN;
                transitions.extend(self.apply(Event::Idle, message, now));
            }
            Some(Presence::Missing) if self.may_be_elsewhere(now) => {}
            Some(Presence::Missing) if self.link.is_mounted() => {
                self.judgement = Judgement::UNKNOWN;
                let message = self.link.sentence().unwrap_or_default();
                transitions.extend(self.apply(Event::Unwatched, message, now));
            }
            None if self.gone_since.is_some() => {
                self.judgement = Judgement::UNKNOWN;
                transitions.extend(self.apply(Event::Unwatched, String::from("unmounted"), now));
            }
            None => {}
            Some(_) => self.judge_and_step(thresholds, now, &mut transitions),
        }
        transitions
    }

    fn judge_and_step(&mut self, thresholds: &Thresholds, now: Monotonic, transitions: &mut Vec<Transition>) {
        let facts = self.facts(thresholds, now);
        let judgement = judge(&facts);
        let message = self.with_witness(self.described(&facts, &judgement), &judgement, facts.span);
        let message = match self.moved().filter(|_| matches!(judgement.verdict, Verdict::Sick(_))) {
            Some(moved) => format!("{message}; {moved}"),
            None => message,
        };
        let message = match self.link.sentence() {
            Some(link) => format!("{message}; {link}"),
            None if self.is_absent => format!("{message}; {ABSENT}"),
            None => message,
        };
        let is_doubt = |verdict| matches!(verdict, Verdict::Suspect(_));
        let doubted = is_doubt(self.judgement.verdict) || is_doubt(judgement.verdict);
        self.judgement = judgement;
        self.past.doubted_since = is_doubt(judgement.verdict).then(|| self.past.doubted_since.unwrap_or(now));
        self.returned_until =
            self.returned_until.filter(|until| *until > now && judgement.verdict == Verdict::Unknown);
        let event = self.event_of(judgement.verdict, thresholds, now);
        if self.returned_until.is_some() || self.is_kept_by_old_errors(event, now) {
            return;
        }
        // The settle time begins when the doubt ends, also where nobody looked at that very moment.
        if self.condition.state == HealthState::Probation && doubted {
            self.settle_from = now;
        }
        let message = self.with_what_was_known(message, event);
        transitions.extend(self.apply(event, message, now));
        if let Some(fall) = transitions.last().filter(|t| t.to == HealthState::Degraded && t.from != t.to) {
            let at = fall.at;
            self.fall(thresholds, at);
        }
        if self.is_settled(thresholds, now) {
            let message = String::from("good for the whole settle time");
            transitions.extend(self.apply(Event::Settled, message, now));
        }
    }

    /// What a verdict does to a volume that comes from where this one comes from.
    fn event_of(&self, verdict: Verdict, thresholds: &Thresholds, now: Monotonic) -> Event {
        match verdict {
            Verdict::Unknown if self.is_out_of_sight() => Event::OutOfSight,
            Verdict::Suspect(reason) if self.doubted_until(thresholds).is_some_and(|until| until <= now) => {
                Event::Doubted(reason)
            }
            Verdict::Healthy if self.past.unbelieved.is_some() => Event::Undoubted,
            verdict => Event::Judged(verdict),
        }
    }

    /// Of a volume that is sick, what was last known to be wrong; where nothing is known any more, that stays told.
    fn with_what_was_known(&mut self, message: String, event: Event) -> String {
        match (event, self.judgement.rule, &self.past.sick_by) {
            (Event::Judged(Verdict::Sick(_)), Some(rule), _) => {
                self.past.sick_by = Some((rule, message.clone()));
                self.past.is_by_table = matches!(rule.test, Test::Table(_));
                message
            }
            (Event::Judged(Verdict::Unknown), _, Some((_, known))) if self.condition.state.is_sick() => {
                format!("{known}; nothing newer is known: {message}")
            }
            _ => message,
        }
    }

    /// The rule that decides; of a volume that is sick and of which nothing is known any more, the last that did.
    pub(super) fn rule(&self) -> Option<&'static Rule> {
        let last = self.past.sick_by.as_ref().filter(|_| self.condition.state.is_sick());
        self.judgement.rule.or_else(|| last.map(|(rule, _)| *rule))
    }

    /// Whether no look will ever say more: none was ever let in; or its place alone was wrong, is right now, and the
    /// agent cannot look any more. What is there is not known then, and nothing speaks against it.
    fn is_out_of_sight(&self) -> bool {
        let was_place_alone = match self.condition.reason {
            Some(Reason::Missing | Reason::Covered) => true,
            Some(Reason::WrongMount) => self.past.is_by_table,
            _ => false,
        };
        self.presence == Some(Presence::Present)
            && (self.evidence.is_out_of_sight() || (self.evidence.inaccessible && was_place_alone))
    }

    fn described(&self, facts: &Facts<'_>, judgement: &Judgement) -> String {
        let seen = describe(facts, judgement);
        if let Some(way) = self.way.as_ref().filter(|_| judgement.rule.is_some()) {
            return format!(
                "the way to it leads through {}, which is sick itself: {seen}",
                escape(way.mountpoint.as_bytes())
            );
        }
        match judgement.rule {
            Some(rule) if rule.reason == Reason::ConsumerStale => {
                format!("{} ({seen})", self.held.sentence())
            }
            Some(Rule { test: Test::Table(presence), .. }) => match self.at_its_place(*presence) {
                Some(what) => format!("{what}: {seen}"),
                None => seen,
            },
            _ => seen,
        }
    }

    /// Adds who met the last error of the kind that the rule is about, while that is recent: a person looks there
    /// first.
    fn with_witness(&self, seen: String, judgement: &Judgement, span: Span) -> String {
        if let Some(waiting) = self.who_waits(span.now).filter(|_| is_hung(judgement.verdict)) {
            return format!("{seen}; {waiting}");
        }
        match judgement.rule.and_then(|rule| self.witness(rule, span)) {
            Some((errno, op, task)) => {
                format!("{} (process {}) met {errno} on {}; {seen}", task.comm, task.pid, op.label())
            }
            None => seen,
        }
    }

    fn witness(&self, rule: &Rule, span: Span) -> Option<(Errno, Op, &Task)> {
        let is_about_errors = matches!(rule.test, Test::Errors(_) | Test::ErrorsSustained(_));
        let speaks = |(at, (errno, op, source), _): &&(Monotonic, (Errno, Op, Source), Task)| {
            span.now.since(*at) < span.window
                && class_of(*errno, self.evidence.class).is_some_and(|class| {
                    let is_harmless =
                        class == ErrnoClass::IoError && !speaks_of_storage((*source, *op), *errno, class);
                    rule.test.classes().contains(&class) && (is_about_errors || !is_harmless)
                })
        };
        let (_, (errno, op, _), task) = self.culprits.iter().find(speaks)?;
        Some((*errno, *op, task))
    }

    fn fall(&mut self, thresholds: &Thresholds, now: Monotonic) {
        self.falls.retain(|at| now.since(*at) < thresholds.flap_window);
        if self.falls.len() >= FALLS {
            self.falls.remove(0);
        }
        self.falls.push(now);
        self.sick_since = now;
        self.past.is_fall_recalled = false;
        self.told_plan = false;
        let pace = Pace { volume: &self.id, flaps: self.flaps(thresholds, now), thresholds };
        self.budget.fell(&pace);
    }

    /// Falls within the flap window.
    pub(super) fn recent_falls(&self, thresholds: &Thresholds, now: Monotonic) -> u32 {
        let recent = self.falls.iter().filter(|at| now.since(**at) < thresholds.flap_window).count();
        u32::try_from(recent).unwrap_or(u32::MAX)
    }

    /// Those beyond the first.
    pub(super) fn flaps(&self, thresholds: &Thresholds, now: Monotonic) -> u32 {
        self.recent_falls(thresholds, now).saturating_sub(1)
    }

    /// Until when it counts as flapping, if nothing more happens. It may be over.
    pub(super) fn flaps_until(&self, thresholds: &Thresholds) -> Option<Monotonic> {
        self.falls.iter().rev().nth(FLAPPING.saturating_sub(1)).map(|at| *at + thresholds.flap_window)
    }

    /// When the settle time of a volume in probation is over. It doubles with every recent fall.
    pub(super) fn settles_at(&self, thresholds: &Thresholds) -> Option<Monotonic> {
        if self.condition.state != HealthState::Probation {
            return None;
        }
        Some(self.settle_from + self.settle_time(thresholds))
    }

    fn settle_time(&self, thresholds: &Thresholds) -> Duration {
        let doublings = self.flaps(thresholds, self.settle_from).min(31);
        thresholds.probation.saturating_mul(1 << doublings).min(thresholds.probation_max)
    }

    /// Until when doubt leaves a volume in probation. It is no passing doubt then, and people are told.
    pub(super) fn doubted_until(&self, thresholds: &Thresholds) -> Option<Monotonic> {
        let since = self.past.doubted_since.filter(|_| self.condition.state == HealthState::Probation)?;
        Some(since.max(self.condition.since) + self.settle_time(thresholds))
    }

    fn is_settled(&self, thresholds: &Thresholds, now: Monotonic) -> bool {
        let good = self.evidence.good.is_some_and(|good| good.started >= self.settle_from);
        self.judgement.verdict == Verdict::Healthy
            && good
            && self.settles_at(thresholds).is_some_and(|time| time <= now)
    }

    fn refresh_advice(&mut self, thresholds: &Thresholds, span: Span) {
        let flaps = self.flaps_until(thresholds).is_some_and(|until| until > span.now);
        self.evidence.full = self.evidence.full.filter(|at| span.now.since(*at) < span.window);
        let present = self.presence == Some(Presence::Present);
        let advice = [
            (Advice::Full, present && self.evidence.full.is_some()),
            (Advice::Inaccessible, (present && self.evidence.inaccessible) || self.link.is_mounted()),
            (Advice::Slow, present && (self.evidence.slow || self.evidence.waits_answered(span))),
            (Advice::Idle, self.presence == Some(Presence::Idle)),
            (Advice::Flapping, flaps),
            (Advice::Damaged, present && self.evidence.damage.as_ref().is_some_and(Loss::is_open)),
        ];
        let holds = advice.into_iter().filter(|(_, holds)| *holds && self.is_watched());
        self.condition.advice = holds.map(|(advice, _)| advice).collect();
    }

    fn reason_after(&self, to: HealthState, event: Event) -> Option<Reason> {
        match (to, event) {
            (HealthState::Unknown | HealthState::Healthy, _) => None,
            (HealthState::Suspect, Event::Doubted(reason)) => Some(reason),
            (HealthState::Probation, Event::Undoubted) => self.past.unbelieved,
            (
                HealthState::Suspect | HealthState::Degraded | HealthState::Quarantined,
                Event::Judged(Verdict::Suspect(reason) | Verdict::Sick(reason)),
            ) => Some(reason),
            _ => self.condition.reason,
        }
    }

    /// For what it was in probation that is not believed yet.
    fn unbelieved_after(&self, to: HealthState, event: Event) -> Option<Reason> {
        match (to, event) {
            (HealthState::Suspect, Event::Doubted(_)) if self.condition.state != to => self.condition.reason,
            (
                HealthState::Unknown | HealthState::Suspect,
                Event::Judged(_) | Event::Replaced | Event::Doubted(_),
            ) => self.past.unbelieved,
            _ => None,
        }
    }

    /// Takes one step; a transition if the state or its reason changed.
    pub(super) fn apply(&mut self, event: Event, seen: String, now: Monotonic) -> Option<Transition> {
        let from = self.condition.state;
        let to = step(from, event);
        let reason = self.reason_after(to, event);
        if to != HealthState::Degraded {
            self.due_plan = None;
        }
        // Nothing has decided yet: what was known before the start still says more.
        let is_undecided = matches!(event, Event::Judged(Verdict::Unknown));
        if self.condition.is_recalled && is_undecided && to == from {
            return None;
        }
        self.condition.is_recalled = false;
        self.condition.message = self.sentence(to, seen);
        if (to, reason) == (from, self.condition.reason) {
            return None;
        }
        if to == HealthState::Probation && from != to {
            self.settle_from = now;
        }
        self.past.unbelieved = self.unbelieved_after(to, event);
        if to == HealthState::Healthy {
            // Whoever makes it read-only from now on is a person.
            self.past.is_put_back = false;
        }
        self.condition.state = to;
        self.condition.reason = reason;
        self.condition.since = now;
        self.condition.since_wall = None;
        self.note_death(event);
        let is_bad = matches!(to, HealthState::Suspect | HealthState::Degraded);
        let transition = Transition {
            volume: self.id.clone(),
            from,
            to,
            reason,
            at: now,
            evidence_at: self.judgement.evidence_at.filter(|_| is_bad),
            message: self.condition.message.clone(),
            incident: None,
            deed: None,
            by: None,
        };
        self.keep(transition.clone());
        Some(transition)
    }

    /// Adds to what is shown of the past.
    pub(super) fn keep(&mut self, transition: Transition) {
        self.history.insert(0, transition);
        self.history.truncate(HISTORY);
    }

    fn sentence(&self, state: HealthState, seen: String) -> String {
        match (state, &self.last_outcome) {
            (HealthState::Probation, _) => format!("good again, not yet believed: {seen}"),
            (HealthState::Quarantined, _) => match self.asking.given_up() {
                Some(why) => format!("not repaired, a person must act, because {why}: {seen}"),
                None => format!("no more attempts at repair, a person must act: {seen}"),
            },
            (HealthState::Degraded, None) if self.held_up.is_some() => format!("{seen}{}", self.held_back()),
            (HealthState::Degraded, Some(outcome)) => {
                format!("{seen}; last repair: {outcome}{}", self.held_back())
            }
            (
                HealthState::Unknown
                | HealthState::Healthy
                | HealthState::Suspect
                | HealthState::Degraded
                | HealthState::Recovering,
                _,
            ) => seen,
        }
    }
}

const fn is_hung(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Suspect(Reason::Hung) | Verdict::Sick(Reason::Hung))
}
