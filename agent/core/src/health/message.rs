//! Sentences for people: what was seen, by which rule, and what would clear it.

use alloc::{format, string::String};

use crate::errno::ErrnoClass;
use crate::health::evidence::{Look, SentinelFault};
use crate::health::rules::{Enough, Facts, Judgement, Test};
use crate::verdict::Verdict;

/// One sentence about a judgement.
#[must_use]
pub fn describe(facts: &Facts<'_>, judgement: &Judgement) -> String {
    match (judgement.verdict, judgement.rule) {
        (Verdict::Healthy, _) => String::from("the last look was good and nothing speaks against it"),
        (Verdict::Suspect(_) | Verdict::Sick(_), Some(rule)) => {
            format!("{} (rule {}); cleared by {}", seen(facts, rule.test), rule.name, rule.clears)
        }
        (Verdict::Unknown | Verdict::Suspect(_) | Verdict::Sick(_), _) => unknown(facts),
    }
}

fn unknown(facts: &Facts<'_>) -> String {
    let evidence = facts.evidence;
    if evidence.look == Look::Refused && evidence.is_closed {
        return String::from("the mount lets only the user in who made it, not even root: nothing is known");
    }
    if evidence.look == Look::Refused && evidence.was_readable {
        return String::from(
            "the root answers, the sentinel may not be read, and never could: nothing is known",
        );
    }
    if evidence.look == Look::Refused {
        return String::from("the agent may not look, and never could: nothing is known");
    }
    if evidence.inaccessible {
        return String::from("in the mount table, but not reachable for the agent: nothing is known");
    }
    if evidence.good.is_some() {
        return String::from("the last good look is too old to speak for the volume");
    }
    String::from("not looked at yet")
}

fn seen(facts: &Facts<'_>, test: Test) -> String {
    let evidence = facts.evidence;
    match test {
        Test::Table(presence) => String::from(match presence {
            crate::discovery::Presence::Missing => "nothing is mounted there",
            crate::discovery::Presence::WrongMount => "something else is mounted there",
            crate::discovery::Presence::Covered => "something is mounted over it",
            crate::discovery::Presence::Present => "it is mounted",
            crate::discovery::Presence::Idle => "only an automount trap is there",
        }),
        Test::TableShutdown => String::from("the file system has shut itself down"),
        Test::ShutdownReported => String::from("the file system reported that it has shut down"),
        Test::TableEmergencyReadonly => String::from("the file system refuses to write after an error"),
        Test::ErrorEndedWrites => String::from(
            "the file system found an error in itself, and writes nothing more (errors=remount-ro)",
        ),
        Test::TableReadonlyAgainstSpec => String::from("mounted read-only, and should be writable"),
        Test::TableBecameReadonly => String::from("became read-only"),
        Test::ProbeFails(..)
        | Test::ProbeFailsOddly(_)
        | Test::ProbeHangs
        | Test::ProbeFindsOther(_)
        | Test::SentinelIsOff => look(evidence.look, evidence.failures) + &missing(facts, test),
        Test::SuperblockHangs => String::from(
            "a worker that is not back from the same superblock stands in the way, and a look at it is overdue",
        ),
        Test::TasksWait => match evidence.waiting.map_or(0, |waiting| waiting.count) {
            1 => String::from("a task waits in one call for longer than the deadline"),
            count => format!("{count} tasks wait, some in one call for longer than the deadline"),
        },
        Test::IdentityDiffers => match facts.other_identity() {
            Some((kind, wanted, found)) => {
                format!("another file system is there: expected {kind} {wanted}, found {found}")
            }
            None => String::from("another file system is there"),
        },
        Test::ErrorsSustained(class) | Test::Errors(class) => errors(facts, class),
        Test::WritebackLost => match &evidence.lost {
            Some(loss) => format!("dirty data was lost with {}", loss.errno),
            None => String::from("dirty data was lost"),
        },
        Test::ConsumersStale => String::from("the volume itself is good"),
    }
}

fn errors(facts: &Facts<'_>, class: ErrnoClass) -> String {
    let seconds = facts.span.window.as_secs();
    let name = class_name(class);
    match facts.tally(class, |_| true).map_or(0, |tally| tally.count) {
        0 => format!("an operation failed: {name}"),
        1 => format!("1 operation failed within {seconds} s: {name}"),
        count => format!("{count} operations failed within {seconds} s: {name}"),
    }
}

/// How many failures more would be proof.
fn missing(facts: &Facts<'_>, test: Test) -> String {
    let needed = facts.needed(Enough::Repeated);
    match test {
        Test::ProbeFails(_, Enough::Once) | Test::ProbeFindsOther(Enough::Once)
            if facts.evidence.failures < needed && !facts.is_about_one_file() =>
        {
            format!(" ({needed} are proof)")
        }
        _ => String::new(),
    }
}

fn look(look: Look, failures: u32) -> String {
    match look {
        Look::Failed { step, errno, .. } => {
            format!("the probe failed with {errno} while {}, {failures} in a row", step.doing())
        }
        Look::Hung { step } => format!("no answer within the deadline while {}", step.doing()),
        Look::OtherMount { found } => format!("the path leads to superblock {found}, {failures} in a row"),
        Look::Sentinel(SentinelFault::Missing) => String::from("the root answers, the sentinel is missing"),
        Look::Sentinel(SentinelFault::Differs) => {
            String::from("the root answers, the sentinel has other content")
        }
        Look::Sentinel(SentinelFault::Unusable) => {
            String::from("the root answers, the sentinel is not a small regular file of this mount")
        }
        Look::None | Look::Good | Look::Refused => String::from("no bad look"),
    }
}

const fn class_name(class: ErrnoClass) -> &'static str {
    match class {
        ErrnoClass::Stale => "stale handle",
        ErrnoClass::IoError => "storage error",
        ErrnoClass::Disconnected => "disconnected",
        ErrnoClass::HostDown => "server not reachable",
        ErrnoClass::Auth => "key or credential",
        ErrnoClass::Readonly => "read-only",
        ErrnoClass::Full => "no space",
        ErrnoClass::Refused => "refused",
    }
}
