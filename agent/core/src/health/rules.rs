//! The rules, as one table: what must be seen for a volume to be called suspect or sick, and why.
//!
//! A new rule is one row. [`judge`] walks the table; nothing else decides. A test fails when a row is never hit.

use core::time::Duration;

use crate::discovery::Presence;
use crate::errno::ErrnoClass;
use crate::fstype::FsClass;
use crate::health::evidence::{Evidence, Look};
use crate::health::loss::Loss;
use crate::health::window::{Group, Met, Span, Tally};
use crate::observation::ProbeStep;
use crate::time::Monotonic;
use crate::verdict::{Reason, Verdict};
use crate::volume::Identity;

/// How often a probe must have failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Enough {
    /// Once.
    Once,
    /// Once, while the kernel counted errors of the same class.
    Corroborated,
    /// As often in a row as the operator set.
    Repeated,
    /// So much more often that it is no passing oddity.
    Long,
}

/// What a rule looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Test {
    /// The table says this of an expected volume (or of one that was watched).
    Table(Presence),
    /// The superblock says that it has shut down.
    TableShutdown,
    /// The file system reported that it has shut down.
    ShutdownReported,
    /// The superblock says that it refuses to write after an error.
    TableEmergencyReadonly,
    /// The file system found an error in itself, and was mounted to write nothing from then on.
    ErrorEndedWrites,
    /// `ro` where the specification wants the volume writable.
    TableReadonlyAgainstSpec,
    /// `ro`, and it was writable before.
    TableBecameReadonly,
    /// The last probe failed with an errno of this class.
    ProbeFails(ErrnoClass, Enough),
    /// The last probe failed with an errno that says nothing certain.
    ProbeFailsOddly(Enough),
    /// The last probe has not answered within the deadline.
    ProbeHangs,
    /// A look is overdue by more than the deadline, because something else hangs on the same superblock.
    SuperblockHangs,
    /// Tasks wait in one call for longer than the deadline, and no look has read data meanwhile.
    TasksWait,
    /// The last probe came to another superblock than the table says.
    ProbeFindsOther(Enough),
    /// A probe was told another identity of the file system than the configured one.
    IdentityDiffers,
    /// The last probe found the root in order and the sentinel not.
    SentinelIsOff,
    /// Many errors over a while, of operations that no probe tries.
    ErrorsSustained(ErrnoClass),
    /// Any error that no good probe has answered yet.
    Errors(ErrnoClass),
    /// Dirty data was lost, and nobody has acknowledged it.
    WritebackLost,
    /// Other mounts still show what the volume showed before.
    ConsumersStale,
}

/// How much a rule proves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Weight {
    /// Enough to act on.
    Sick,
    /// Enough to look closer.
    Suspect,
}

/// One row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The name of the rule, as it stands in messages.
    pub name: &'static str,
    /// What it looks for.
    pub test: Test,
    /// The reason it gives.
    pub reason: Reason,
    /// What it proves.
    pub weight: Weight,
    /// What would end it.
    pub clears: &'static str,
}

const fn sick(name: &'static str, test: Test, reason: Reason, clears: &'static str) -> Rule {
    Rule { name, test, reason, weight: Weight::Sick, clears }
}

const fn suspect(name: &'static str, test: Test, reason: Reason, clears: &'static str) -> Rule {
    Rule { name, test, reason, weight: Weight::Suspect, clears }
}

const GOOD_PROBE: &str = "a good probe";
const GOOD_PROBE_OR_TIME: &str = "a good probe of that operation, or time without errors";
const REMOUNT: &str = "a new mount of the volume";
const REMOUNT_OR_FILE: &str = "a new mount of the volume, or a later look that reads or writes a file";
const REMOUNT_OR_WRITE: &str = "a mount or remount that may write, or a later look that writes";
const REMOUNT_OR_PERSON: &str = "a new mount of the volume, or a person who acknowledges it (mountie ack)";
const CONSUMERS: &str =
    "the new mount in their place (mode act, swap_consumers), or the end of those that hold it";
const TABLE: &str = "the right mount at its place";

use ErrnoClass as C;
use Reason as R;
use Test as T;

/// Every rule, strongest reason first. The order decides between rules of one weight and reason.
pub const RULES: &[Rule] = &[
    sick("nothing-mounted", T::Table(Presence::Missing), R::Missing, TABLE),
    sick("something-else-mounted", T::Table(Presence::WrongMount), R::WrongMount, TABLE),
    sick("mounted-over", T::Table(Presence::Covered), R::Covered, "unmounting what lies over it"),
    sick("shut-down", T::TableShutdown, R::FsShutdown, REMOUNT),
    sick("shutdown-reported", T::ShutdownReported, R::FsShutdown, REMOUNT_OR_FILE),
    sick("emergency-read-only", T::TableEmergencyReadonly, R::Readonly, REMOUNT),
    sick("error-ended-writes", T::ErrorEndedWrites, R::Readonly, REMOUNT_OR_WRITE),
    sick("read-only-against-spec", T::TableReadonlyAgainstSpec, R::Readonly, "a writable mount"),
    sick("became-read-only", T::TableBecameReadonly, R::Readonly, "a writable mount"),
    sick("probe-finds-other", T::ProbeFindsOther(Enough::Repeated), R::WrongMount, GOOD_PROBE),
    sick("other-file-system", T::IdentityDiffers, R::WrongMount, "a probe that finds the right file system"),
    sick("probe-disconnected", T::ProbeFails(C::Disconnected, Enough::Once), R::Disconnected, GOOD_PROBE),
    sick("probe-and-kernel-stale", T::ProbeFails(C::Stale, Enough::Corroborated), R::Stale, GOOD_PROBE),
    sick("probes-stale", T::ProbeFails(C::Stale, Enough::Repeated), R::Stale, GOOD_PROBE),
    sick(
        "probe-and-kernel-io-error",
        T::ProbeFails(C::IoError, Enough::Corroborated),
        R::IoError,
        GOOD_PROBE,
    ),
    sick("probes-io-error", T::ProbeFails(C::IoError, Enough::Repeated), R::IoError, GOOD_PROBE),
    sick("probes-odd-error", T::ProbeFailsOddly(Enough::Long), R::IoError, GOOD_PROBE),
    sick(
        "probe-and-kernel-readonly",
        T::ProbeFails(C::Readonly, Enough::Corroborated),
        R::Readonly,
        GOOD_PROBE,
    ),
    sick("probes-readonly", T::ProbeFails(C::Readonly, Enough::Repeated), R::Readonly, GOOD_PROBE),
    sick(
        "probe-and-kernel-host-down",
        T::ProbeFails(C::HostDown, Enough::Corroborated),
        R::HostDown,
        GOOD_PROBE,
    ),
    sick("probes-host-down", T::ProbeFails(C::HostDown, Enough::Repeated), R::HostDown, GOOD_PROBE),
    sick("probe-and-kernel-auth", T::ProbeFails(C::Auth, Enough::Corroborated), R::Auth, GOOD_PROBE),
    sick("probes-auth", T::ProbeFails(C::Auth, Enough::Repeated), R::Auth, GOOD_PROBE),
    sick("probe-hangs", T::ProbeHangs, R::Hung, "the answer, and a good probe after it"),
    sick("superblock-hangs", T::SuperblockHangs, R::Hung, "the end of that look, and a good probe after it"),
    sick("errors-disconnected", T::ErrorsSustained(C::Disconnected), R::Disconnected, GOOD_PROBE_OR_TIME),
    sick("errors-stale", T::ErrorsSustained(C::Stale), R::Stale, GOOD_PROBE_OR_TIME),
    sick("errors-io-error", T::ErrorsSustained(C::IoError), R::IoError, GOOD_PROBE_OR_TIME),
    sick("errors-readonly", T::ErrorsSustained(C::Readonly), R::Readonly, GOOD_PROBE_OR_TIME),
    sick("errors-host-down", T::ErrorsSustained(C::HostDown), R::HostDown, GOOD_PROBE_OR_TIME),
    sick("errors-auth", T::ErrorsSustained(C::Auth), R::Auth, GOOD_PROBE_OR_TIME),
    sick("write-back-failed", T::WritebackLost, R::WritebackLost, REMOUNT_OR_PERSON),
    sick("consumers-left-behind", T::ConsumersStale, R::ConsumerStale, CONSUMERS),
    suspect("probe-found-other", T::ProbeFindsOther(Enough::Once), R::WrongMount, GOOD_PROBE),
    suspect("sentinel", T::SentinelIsOff, R::WrongMount, "the sentinel as it should be"),
    suspect("probe-stale", T::ProbeFails(C::Stale, Enough::Once), R::Stale, GOOD_PROBE),
    suspect("probe-io-error", T::ProbeFails(C::IoError, Enough::Once), R::IoError, GOOD_PROBE),
    suspect("probe-odd-error", T::ProbeFailsOddly(Enough::Once), R::IoError, GOOD_PROBE),
    suspect("probe-readonly", T::ProbeFails(C::Readonly, Enough::Once), R::Readonly, GOOD_PROBE),
    suspect("probe-host-down", T::ProbeFails(C::HostDown, Enough::Once), R::HostDown, GOOD_PROBE),
    suspect("probe-auth", T::ProbeFails(C::Auth, Enough::Once), R::Auth, GOOD_PROBE),
    suspect("tasks-wait", T::TasksWait, R::Hung, "the end of their wait, or a probe that reads data"),
    suspect("error-disconnected", T::Errors(C::Disconnected), R::Disconnected, GOOD_PROBE_OR_TIME),
    suspect("error-stale", T::Errors(C::Stale), R::Stale, GOOD_PROBE_OR_TIME),
    suspect("error-io-error", T::Errors(C::IoError), R::IoError, GOOD_PROBE_OR_TIME),
    suspect("error-readonly", T::Errors(C::Readonly), R::Readonly, GOOD_PROBE_OR_TIME),
    suspect("error-host-down", T::Errors(C::HostDown), R::HostDown, GOOD_PROBE_OR_TIME),
    suspect("error-auth", T::Errors(C::Auth), R::Auth, GOOD_PROBE_OR_TIME),
];

/// How many times as often as usual an errno must come that says nothing certain.
pub const LONG: u32 = 5;

/// So many attempts to look that were not possible, one after the other, are nobody who looks, at least.
pub const LOST_LOOKS: u32 = 2;

/// Everything that the rules may ask.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// What was seen.
    pub evidence: &'a Evidence,
    /// What the file system must be, where that is configured.
    pub identity: Option<&'a Identity>,
    /// What the table says of the place; `None` before the first table.
    pub presence: Option<Presence>,
    /// Consecutive failures that are enough.
    pub failures: u32,
    /// A good look speaks for the volume for this long.
    pub good_for: Duration,
    /// The moment, and how far back evidence counts.
    pub span: Span,
    /// Errors that are enough without a failed probe …
    pub sustained_errors: u64,
    /// … when spread over this long.
    pub sustained_spread: Duration,
    /// Other mounts that still show what the volume showed before.
    pub stale_consumers: u64,
}

/// What the evidence of one moment means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The rule that decided, unless healthy or unknown.
    pub rule: Option<&'static Rule>,
    /// When the kernel first saw what the rule is about.
    pub evidence_at: Option<Monotonic>,
}

impl Judgement {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { verdict: Verdict::Unknown, rule: None, evidence_at: None };
}

/// Classifies the evidence of this moment.
#[must_use]
pub fn judge(facts: &Facts<'_>) -> Judgement {
    // `RULES` has the sick rules first, but not by reason throughout: the strongest is looked for.
    let rule = RULES
        .iter()
        .filter(|rule| facts.meets(rule.test))
        .min_by_key(|rule| (rule.weight, rank(rule.reason)));
    let Some(rule) = rule else {
        let verdict = if facts.has_fresh_good_look() { Verdict::Healthy } else { Verdict::Unknown };
        return Judgement { verdict, rule: None, evidence_at: None };
    };
    let verdict = match rule.weight {
        Weight::Sick => Verdict::Sick(rule.reason),
        Weight::Suspect => Verdict::Suspect(rule.reason),
    };
    Judgement { verdict, rule: Some(rule), evidence_at: facts.evidence_at(rule.test) }
}

fn rank(reason: Reason) -> usize {
    Reason::ALL.iter().position(|other| *other == reason).unwrap_or(usize::MAX)
}

impl Test {
    /// The errors that speak for it, where any do.
    #[must_use]
    pub fn classes(&self) -> &'static [ErrnoClass] {
        match self {
            Self::ProbeFails(class, _) | Self::ErrorsSustained(class) | Self::Errors(class) => class.alone(),
            Self::TableEmergencyReadonly
            | Self::ErrorEndedWrites
            | Self::TableReadonlyAgainstSpec
            | Self::TableBecameReadonly => &[C::Readonly, C::IoError],
            Self::TableShutdown | Self::ProbeFailsOddly(_) | Self::WritebackLost => &[C::IoError],
            Self::ShutdownReported => &[C::IoError, C::Disconnected],
            Self::ProbeHangs | Self::SuperblockHangs => &[C::HostDown],
            Self::Table(_)
            | Self::TasksWait
            | Self::ProbeFindsOther(_)
            | Self::IdentityDiffers
            | Self::SentinelIsOff
            | Self::ConsumersStale => &[],
        }
    }
}

impl Facts<'_> {
    fn meets(&self, test: Test) -> bool {
        let evidence = self.evidence;
        let table = &evidence.table;
        match test {
            T::Table(presence) => self.presence == Some(presence),
            // What a look or the kernel says is about the mount; without it there is nothing they could say.
            _ if self.presence != Some(Presence::Present) => false,
            T::TableShutdown => table.shutdown,
            T::ShutdownReported => evidence.shutdown.is_some(),
            T::TableEmergencyReadonly => table.emergency_ro,
            T::ErrorEndedWrites => {
                evidence.writes_ended.is_some() && !table.wants_ro && (table.wants_rw || table.was_rw)
            }
            T::TableReadonlyAgainstSpec => table.ro && table.wants_rw,
            T::TableBecameReadonly => table.ro && !table.wants_ro && self.was_writable(),
            T::ProbeFails(wanted, enough) => match evidence.look {
                Look::Failed { class: Some(class), .. } => class == wanted && self.is_enough(enough, class),
                _ => false,
            },
            T::ProbeFailsOddly(enough) => match evidence.look {
                Look::Failed { step, class: None, .. } => self.is_odd_enough(enough, step),
                _ => false,
            },
            T::ProbeHangs => matches!(evidence.look, Look::Hung { .. }),
            T::SuperblockHangs => evidence.overdue,
            T::TasksWait => evidence.waits_unanswered(self.span),
            T::ProbeFindsOther(enough) => {
                matches!(evidence.look, Look::OtherMount { .. }) && self.is_often(enough)
            }
            T::IdentityDiffers => self.other_identity().is_some(),
            T::SentinelIsOff => matches!(evidence.look, Look::Sentinel(_)),
            T::ErrorsSustained(class) => self.is_sustained(class),
            T::Errors(class) => self.tally(class, |_| true).is_some(),
            T::WritebackLost => evidence.lost.as_ref().is_some_and(Loss::is_open),
            T::ConsumersStale => self.stale_consumers > 0,
        }
    }

    /// Whether it was writable on purpose, before it was not. That of a mount in the making was not, unless storage
    /// failed at that moment.
    fn was_writable(&self) -> bool {
        let table = &self.evidence.table;
        table.was_kept_rw || (table.was_rw && self.is_by_storage())
    }

    /// Whether storage failed when it turned read-only.
    fn is_by_storage(&self) -> bool {
        self.evidence.readonly_cause.is_storage(None, self.span.window)
    }

    /// What was expected and what was found, where both are known and differ: the kind, then the two.
    #[must_use]
    pub fn other_identity(&self) -> Option<(&'static str, &str, &str)> {
        let (wanted, found) = (self.identity?, &self.evidence.found);
        [("UUID", &wanted.uuid, &found.uuid), ("fsid", &wanted.fsid, &found.fsid)].into_iter().find_map(
            |(kind, wanted, found)| {
                let (wanted, found) = (wanted.as_deref()?, found.as_deref()?);
                (!wanted.eq_ignore_ascii_case(found)).then_some((kind, wanted, found))
            },
        )
    }

    fn is_often(&self, enough: Enough) -> bool {
        self.evidence.failures >= self.needed(enough)
    }

    /// How often in a row a look must have failed for that.
    #[must_use]
    pub fn needed(&self, enough: Enough) -> u32 {
        match enough {
            Enough::Once | Enough::Corroborated => 1,
            Enough::Repeated => self.failures,
            Enough::Long => self.failures.saturating_mul(LONG),
        }
    }

    /// A root that answers nothing else, for long, and did answer before: whatever the errno means, nobody gets in.
    /// Where it never did, it may be the agent that asks for what is not there.
    fn is_odd_enough(&self, enough: Enough, step: ProbeStep) -> bool {
        let is_root = matches!(step, ProbeStep::Identity | ProbeStep::Root) && self.evidence.was_readable;
        self.is_often(enough) && (enough == Enough::Once || is_root)
    }

    fn is_enough(&self, enough: Enough, class: ErrnoClass) -> bool {
        match enough {
            Enough::Once => self.is_often(enough),
            Enough::Corroborated => !self.is_about_one_file() && self.tally(class, |_| true).is_some(),
            Enough::Repeated | Enough::Long => {
                self.is_often(enough) && (!self.is_about_one_file() || self.is_met_elsewhere(class))
            }
        }
    }

    /// Whether programs meet many stale files over a while: then that of the sentinel is none of its own.
    fn is_met_elsewhere(&self, class: ErrnoClass) -> bool {
        class == ErrnoClass::Stale
            && self.tally(class, |group: Group| group.can_prove()).is_some_and(|tally| {
                tally.count >= self.sustained_errors && tally.spread() >= self.sustained_spread
            })
    }

    /// Whether the last look failed for what is wrong with one file, however often it does: one that was replaced on
    /// the server is stale for whoever knew the old one, and one that was made anew may be somebody's own. The root of
    /// a volume that is stale fails before its files are asked for.
    #[must_use]
    pub fn is_about_one_file(&self) -> bool {
        let Look::Failed { step, errno, class: Some(class) } = self.evidence.look else { return false };
        match (step, class) {
            (ProbeStep::Sentinel | ProbeStep::Write, ErrnoClass::Stale) => true,
            (ProbeStep::Sentinel, ErrnoClass::Auth) => errno.class() == Some(ErrnoClass::Refused),
            _ => false,
        }
    }

    /// Whether there are many errors over a while, of operations that no probe tries, and not of one user or object.
    fn is_sustained(&self, class: ErrnoClass) -> bool {
        let fs = self.evidence.class;
        // One user's key: everybody has their own at a server.
        if class == ErrnoClass::Auth && fs == FsClass::Network {
            return false;
        }
        let untried = |group: Group| group.can_prove() && !self.will_be_tried(class, group);
        let is_enough =
            |tally: Tally| tally.count >= self.sustained_errors && tally.spread() >= self.sustained_spread;
        // An object that a server or a daemon has lost is read again and again by the one program that wants it.
        let may_be_one_object =
            class == ErrnoClass::IoError && matches!(fs, FsClass::Network | FsClass::Fuse);
        if may_be_one_object
            && self.tally(class, untried).is_some_and(|tally| matches!(tally.met, Met::By(_)))
        {
            let beside = |group: Group| group != Group::Data && untried(group);
            return self.tally(class, beside).is_some_and(is_enough);
        }
        self.tally(class, untried).is_some_and(is_enough)
    }

    /// Whether the next probe answers for operations of this group: then the errors wait for it. Errors of
    /// single files must not condemn a volume that reads fine. A stale handle is one file's, as when another
    /// client deletes what a program here holds open; every probe asks by the root's own handle, which is stale
    /// when the export is.
    fn will_be_tried(&self, class: ErrnoClass, group: Group) -> bool {
        let evidence = self.evidence;
        let tries = evidence.looks_try(group) || (class == ErrnoClass::Stale && evidence.looks_reach_root());
        !self.nobody_looks() && tries
    }

    /// Looks are not possible for some time already. One worker that was killed is no such time.
    fn nobody_looks(&self) -> bool {
        self.evidence.lost_looks >= self.failures.max(LOST_LOOKS)
    }

    /// The kernel's errors of one class, in these groups.
    #[must_use]
    pub fn tally(&self, class: ErrnoClass, wanted: impl Fn(Group) -> bool) -> Option<Tally> {
        if class == ErrnoClass::Readonly && !self.evidence.table.should_be_writable() {
            return None;
        }
        self.evidence.kernel.tally(class, wanted, self.span)
    }

    fn has_fresh_good_look(&self) -> bool {
        self.presence == Some(Presence::Present)
            && self.evidence.look == Look::Good
            && self.evidence.good.is_some_and(|good| self.span.now.since(good.at) < self.good_for)
    }

    fn evidence_at(&self, test: Test) -> Option<Monotonic> {
        match test {
            T::ShutdownReported => return self.evidence.shutdown,
            T::ErrorEndedWrites => return self.evidence.writes_ended,
            T::WritebackLost => return self.evidence.lost.as_ref().map(|loss| loss.at),
            _ => {}
        }
        let first = |class: &ErrnoClass| self.tally(*class, |_| true).map(|tally| tally.first);
        test.classes().iter().filter_map(first).min()
    }
}
