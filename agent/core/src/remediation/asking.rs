//! Asking before a repair: what a volume's hook was asked, what it said, and what that means.
//!
//! A question is asked when nothing else stands in the way of a repair, so that the answer is about the moment. Leave
//! to repair holds for one attempt, for the fault that was asked about, and only for a while. Everything that puts a repair off (also no answer at all, or
//! one that cannot be understood) is counted; what never ends is no answer, and a person must act.

use alloc::{format, string::String, vec::Vec};
use core::time::Duration;

use crate::hash::jittered;
use crate::id::{QuestionId, VolumeId};
use crate::memory::HookMemory;
use crate::remediation::Plan;
use crate::secret::hide;
use crate::time::Monotonic;
use crate::verdict::Reason;
use crate::volume::Hook;

/// Leave to repair holds for so long: then something else may be true.
const LEAVE: Duration = Duration::from_secs(60);
/// A hook asks for more time in steps of at most this.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// … and of at least this.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
/// What is said to be in order is looked at; if it is not, the hook is asked again after this.
const AFTER_RESOLVED: Duration = Duration::from_secs(5);
/// The first pause after a question without an answer; doubles.
const AFTER_NOTHING: Duration = Duration::from_secs(5);
/// … up to this.
const AFTER_NOTHING_AT_MOST: Duration = Duration::from_secs(300);
/// Who asks is given this long beyond the hook's own time to come back.
const GRACE: Duration = Duration::from_secs(10);

/// What a hook says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is in order again: look, and do nothing.
    Resolved,
    /// Repair it.
    Remount,
    /// Not now; ask again after this.
    Wait(Duration),
    /// Do nothing, a person must act.
    Escalate,
    /// Nothing that counts as an answer.
    Nothing(NoAnswer),
}

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NoAnswer {
    /// It said something else than the answers that there are.
    Bad,
    /// It took too long.
    TimedOut,
    /// Its program failed, or its server answered with an error.
    Failed,
    /// It could not be started or reached.
    Unreachable,
}

impl Answer {
    /// The bounded label.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Resolved => "resolved",
            Self::Remount => "remount",
            Self::Wait(_) => "wait",
            Self::Escalate => "escalate",
            Self::Nothing(NoAnswer::Bad) => "bad_answer",
            Self::Nothing(NoAnswer::TimedOut) => "timed_out",
            Self::Nothing(NoAnswer::Failed) => "failed",
            Self::Nothing(NoAnswer::Unreachable) => "unreachable",
        }
    }

    /// For people; continues "the hook …".
    fn sentence(&self) -> &'static str {
        match self {
            Self::Resolved => "says that it is in order",
            Self::Remount => "says remount",
            Self::Wait(_) => "says wait",
            Self::Escalate => "says that a person must act",
            Self::Nothing(NoAnswer::Bad) => "gave an answer that cannot be understood",
            Self::Nothing(NoAnswer::TimedOut) => "did not answer in time",
            Self::Nothing(NoAnswer::Failed) => "failed",
            Self::Nothing(NoAnswer::Unreachable) => "could not be asked",
        }
    }
}

/// A question to be asked, by whoever can.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// Unique in this run.
    pub id: QuestionId,
    /// About which volume.
    pub volume: VolumeId,
    /// Who is asked.
    pub hook: Hook,
    /// What would be done. Its number may be another when it is.
    pub plan: Plan,
    /// How often the repair was put off before, one time after the other.
    pub put_off: u32,
    /// How often it may be.
    pub put_off_at_most: u32,
}

/// What came of a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnswerReport {
    /// Of which.
    pub id: QuestionId,
    /// About which volume.
    pub volume: VolumeId,
    /// What was answered.
    pub answer: Answer,
    /// What the hook said besides, or what went wrong; without secrets. May be empty.
    pub text: String,
    /// How long it took.
    pub took: Duration,
}

/// The last question about a volume, as it is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// When.
    pub at: Monotonic,
    /// What came of it, and when; `None` while it is out.
    pub answered: Option<(Monotonic, Answer, String)>,
    /// How often the repair was put off since it was last allowed.
    pub put_off: u32,
}

/// How things stand with a volume's hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Repair.
    Clear,
    /// Ask.
    Ask,
    /// A question is out.
    Out,
    /// Not before this time.
    Waits(Monotonic),
    /// A person must act.
    GivenUp,
}

/// What follows from an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Consequence {
    /// For people.
    pub message: String,
    /// The volume is looked at now.
    pub look: bool,
}

/// The questions about one volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Asking {
    /// Which fault the last question was about.
    about: Option<Reason>,
    out: Option<(QuestionId, Monotonic)>,
    leave_until: Option<Monotonic>,
    put_off: u32,
    not_before: Option<Monotonic>,
    given_up: Option<String>,
    last: Option<Asked>,
}

impl Asking {
    /// How things stand with a repair of this fault. Leave that was given for another is none.
    #[must_use]
    pub fn stand(&self, now: Monotonic, reason: Reason) -> Standing {
        if self.given_up.is_some() {
            return Standing::GivenUp;
        }
        let leave_until = self.leave_until.filter(|_| self.about == Some(reason));
        match (self.out, leave_until, self.not_before) {
            (Some(_), _, _) => Standing::Out,
            (None, Some(until), _) if until > now => Standing::Clear,
            (None, _, Some(until)) if until > now => Standing::Waits(until),
            (None, _, _) => Standing::Ask,
        }
    }

    /// A question about this fault is being asked.
    pub fn ask(&mut self, (id, reason): (QuestionId, Reason), hook: &Hook, now: Monotonic) {
        self.about = Some(reason);
        self.out = Some((id, now + hook.timeout + GRACE));
        self.leave_until = None;
        self.not_before = None;
        self.last = Some(Asked { at: now, answered: None, put_off: self.put_off });
    }

    /// The question that is out, if it is this one.
    #[must_use]
    pub fn is_out(&self, id: QuestionId) -> bool {
        self.out.is_some_and(|(out, _)| out == id)
    }

    /// When something changes by itself: a wait ends, leave ends, whoever asks never came back.
    #[must_use]
    pub fn next_change(&self) -> Option<Monotonic> {
        self.out.map(|(_, until)| until).or(self.leave_until).or(self.not_before)
    }

    /// The question that never came back, by now.
    #[must_use]
    pub fn lost(&self, now: Monotonic) -> Option<QuestionId> {
        self.out.filter(|(_, until)| *until <= now).map(|(id, _)| id)
    }

    /// Takes an answer to the question that is out, and what is wrong by now, if that is known. What was said about
    /// another fault counts for nothing.
    pub fn answer(
        &mut self,
        report: &AnswerReport,
        fault: Option<Reason>,
        at_most: u32,
        now: Monotonic,
    ) -> Consequence {
        self.out = None;
        let said = match report.text.as_str() {
            "" => format!("the hook {}", report.answer.sentence()),
            text => format!("the hook {}: {text}", report.answer.sentence()),
        };
        if fault.is_some() && fault != self.about {
            self.remember(report, now);
            let message = format!("{said}; that was about another fault and does not count");
            return Consequence { message, look: false };
        }
        let pause = match &report.answer {
            Answer::Remount => {
                self.put_off = 0;
                self.leave_until = Some(now + LEAVE);
                self.remember(report, now);
                return Consequence { message: said, look: false };
            }
            Answer::Escalate => {
                self.given_up = Some(said.clone());
                self.remember(report, now);
                return Consequence { message: said, look: false };
            }
            Answer::Resolved => AFTER_RESOLVED,
            Answer::Wait(time) => (*time).clamp(SHORTEST_WAIT, LONGEST_WAIT),
            Answer::Nothing(_) => {
                let pause = AFTER_NOTHING.saturating_mul(1 << self.put_off.min(16));
                jittered(pause.min(AFTER_NOTHING_AT_MOST), report.volume.as_str(), report.id.0)
            }
        };
        self.put_off = self.put_off.saturating_add(1);
        self.remember(report, now);
        let look = report.answer == Answer::Resolved;
        if self.put_off > at_most {
            let text = format!("{said}; it has put the repair off {at_most} times, one after the other");
            self.given_up = Some(text.clone());
            return Consequence { message: text, look };
        }
        self.not_before = Some(now + pause);
        let put_off = format!("put off {} of at most {at_most} times", self.put_off);
        let message = match &report.answer {
            Answer::Resolved => format!("{said}; it is looked at now ({put_off})"),
            _ => format!("{said}; it is asked again in {} s ({put_off})", pause.as_secs().max(1)),
        };
        Consequence { message, look }
    }

    fn remember(&mut self, report: &AnswerReport, now: Monotonic) {
        let asked = self.last.as_ref().map_or(now, |last| last.at);
        let answered = Some((now, report.answer.clone(), report.text.clone()));
        self.last = Some(Asked { at: asked, answered, put_off: self.put_off });
    }

    /// An attempt begins: the next one is asked about anew.
    pub fn used(&mut self) {
        self.leave_until = None;
        self.not_before = None;
    }

    /// The fall is over, or the operator has changed the settings: what was said does not count any more. What is
    /// still out is not waited for.
    pub fn forget(&mut self) {
        *self = Self { last: self.last.take().filter(|last| last.answered.is_some()), ..Self::default() };
    }

    /// How often the repair was put off, one time after the other.
    #[must_use]
    pub const fn put_off(&self) -> u32 {
        self.put_off
    }

    /// What the hook said, where a person must act because of it.
    #[must_use]
    pub fn given_up(&self) -> Option<&str> {
        self.given_up.as_deref()
    }

    /// The last question.
    #[must_use]
    pub const fn last(&self) -> Option<&Asked> {
        self.last.as_ref()
    }

    /// What of it outlives the agent, if this hook was asked. A question that is out then, and leave, do not: both are
    /// asked for again.
    #[must_use]
    pub fn memory(&self, hook: Option<&Hook>) -> Option<HookMemory> {
        let hook = hook.filter(|_| self.put_off > 0 || self.given_up.is_some())?;
        Some(HookMemory {
            hook: hide(&name_of(hook)),
            put_off: self.put_off,
            not_before: self.not_before,
            given_up: self.given_up.clone(),
        })
    }

    /// Takes what an earlier run was told by this hook.
    pub fn recall(&mut self, memory: Option<HookMemory>, hook: Option<&Hook>) {
        let is_same = |memory: &HookMemory| hook.is_some_and(|hook| hide(&name_of(hook)) == memory.hook);
        if let Some(HookMemory { put_off, not_before, given_up, .. }) = memory.filter(is_same) {
            *self = Self { put_off, not_before, given_up, ..Self::default() };
        }
    }

    /// Whether nothing is out, and nothing that was said still counts.
    #[must_use]
    pub const fn is_at_rest(&self) -> bool {
        self.out.is_none()
            && self.leave_until.is_none()
            && self.not_before.is_none()
            && self.given_up.is_none()
            && self.put_off == 0
    }
}

/// How a hook is called, for people: its program or its address.
#[must_use]
pub fn name_of(hook: &Hook) -> String {
    use crate::volume::{HookAddress, HookWay};
    match &hook.how {
        HookWay::Exec(argv) => argv.first().cloned().unwrap_or_default(),
        HookWay::Post(HookAddress::Http { authority, path }) => {
            let path: Vec<&str> = path.split('?').take(1).collect();
            format!("http://{authority}{}", path.concat())
        }
        HookWay::Post(HookAddress::Unix(path)) => format!("unix:{path}"),
    }
}

#[cfg(test)]
mod tests;
