//! The state machine as a table, and every rule by a case that it alone decides.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::evidence::{Evidence, Told, Waiting};
use super::message::describe;
use super::rules::{Facts, RULES, judge};
use super::table::TableFacts;
use super::window::Span;
use super::{Event, step};
use crate::discovery::Presence;
use crate::errno::Errno;
use crate::id::{Generation, ProbeId, SuperblockId, VolumeId};
use crate::observation::{KernelErrors, Op, ProbeOk, ProbeReport, ProbeResult, ProbeStep, Source};
use crate::time::Monotonic;
use crate::verdict::{HealthState, Reason, Verdict};
use crate::volume::Identity;

mod evidence;
mod proof;

const WINDOW: Duration = Duration::from_secs(30);
const ESTALE: Errno = Errno(116);
const EIO: Errno = Errno(5);
const EROFS: Errno = Errno(30);

fn at(millis: u64) -> Monotonic {
    Monotonic::from_nanos(millis * 1_000_000)
}

fn span(now: u64) -> Span {
    Span { now: at(now), window: WINDOW }
}

#[test]
fn the_machine_follows_its_table() {
    use Event::{
        BudgetRenewed, BudgetSpent, Doubted, Idle, Judged, OutOfSight, PlanFailed, PlanStarted, Replaced,
        Settled, Undoubted, Unwatched,
    };
    use HealthState::{Degraded, Healthy, Probation, Quarantined, Recovering, Suspect, Unknown};
    let suspect = Judged(Verdict::Suspect(Reason::Stale));
    let sick = Judged(Verdict::Sick(Reason::Stale));
    let (unknown, healthy) = (Judged(Verdict::Unknown), Judged(Verdict::Healthy));
    let events = [
        unknown,
        healthy,
        suspect,
        sick,
        Settled,
        PlanStarted,
        PlanFailed,
        BudgetSpent,
        BudgetRenewed,
        Replaced,
        Idle,
        Unwatched,
        OutOfSight,
        Doubted(Reason::Stale),
        Undoubted,
    ];
    let (u, h, s, d, r, p, q) = (Unknown, Healthy, Suspect, Degraded, Recovering, Probation, Quarantined);
    let table = [
        // unknown healthy suspect sick settled started failed spent renewed replaced idle unwatched sight
        // doubted undoubted
        (u, [u, h, s, d, u, u, u, u, u, u, u, u, u, u, p]),
        (h, [u, h, s, d, h, h, h, h, h, u, h, u, u, h, h]),
        (s, [u, h, s, d, s, s, s, s, s, u, u, u, u, s, p]),
        (d, [d, p, p, d, d, r, d, q, d, d, u, u, u, d, d]),
        (r, [r, p, p, d, r, r, d, q, r, r, u, u, u, r, r]),
        (p, [p, p, p, d, h, p, p, p, p, p, u, u, u, s, p]),
        (q, [q, p, p, q, q, q, q, q, d, q, u, u, u, q, q]),
    ];
    for (state, expected) in table {
        for (event, expected) in events.into_iter().zip(expected) {
            assert_eq!(step(state, event), expected, "{state:?} {event:?}");
        }
    }
}

fn errors(errno: Errno, op: Op, millis: u64, count: u64) -> KernelErrors {
    KernelErrors {
        source: Source::Bpf,
        superblock: SuperblockId { major: 0, minor: 1 },
        root_inode: None,
        errno,
        op,
        count,
        at: at(millis),
        after: None,
        task: None,
    }
}

fn report(result: ProbeResult, started: u64) -> ProbeReport {
    ProbeReport {
        id: ProbeId(1),
        volume: VolumeId::new("v"),
        generation: Generation(1),
        started: at(started),
        took: Duration::from_millis(1),
        result,
    }
}

fn failed(step: ProbeStep, errno: Errno) -> ProbeResult {
    ProbeResult::Failed { step, errno }
}

/// Everything answered but the write.
fn cannot_write(errno: Errno, read_data: bool) -> ProbeResult {
    ProbeResult::WriteFailed { errno, read: ProbeOk { root_inode: 2, read_data, ..ProbeOk::default() } }
}

fn ok(read_data: bool, wrote_data: bool) -> ProbeResult {
    ProbeResult::Ok(ProbeOk { root_inode: 2, read_data, wrote_data, ..ProbeOk::default() })
}

/// A good look that was told this UUID and fsid.
fn identified(uuid: Option<&str>, fsid: Option<&str>) -> ProbeResult {
    let (uuid, fsid) = (uuid.map(String::from), fsid.map(String::from));
    ProbeResult::Ok(ProbeOk { root_inode: 2, read_data: true, uuid, fsid, ..ProbeOk::default() })
}

/// Evidence that is built up by what happened.
struct Case {
    evidence: Evidence,
    identity: Identity,
    presence: Presence,
    stale_consumers: u64,
    now: u64,
}

impl Case {
    fn new() -> Self {
        let mut evidence = Evidence::default();
        evidence.table.was_rw = true;
        evidence.table.was_kept_rw = true;
        Self {
            evidence,
            identity: Identity::default(),
            presence: Presence::Present,
            stale_consumers: 0,
            now: 1000,
        }
    }

    fn probe(&mut self, result: ProbeResult) -> Told {
        self.now += 10;
        let report = report(result, self.now);
        self.evidence.look(&report, Duration::from_secs(1), at(self.now))
    }

    fn kernel(&mut self, errno: Errno, op: Op, count: u64) -> bool {
        self.now += 10;
        self.evidence.hint(&errors(errno, op, self.now, count), span(self.now))
    }

    fn many(&mut self, errno: Errno, op: Op) {
        for _ in 0..6 {
            self.kernel(errno, op, 1);
            self.now += 500;
        }
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            evidence: &self.evidence,
            identity: Some(&self.identity),
            presence: Some(self.presence),
            failures: 2,
            good_for: Duration::from_secs(33),
            span: span(self.now),
            sustained_errors: 5,
            sustained_spread: Duration::from_secs(1),
            stale_consumers: self.stale_consumers,
        }
    }

    fn verdict(&self) -> Verdict {
        judge(&self.facts()).verdict
    }

    fn rule(&self) -> Option<&'static str> {
        let judgement = judge(&self.facts());
        assert!(!describe(&self.facts(), &judgement).is_empty());
        judgement.rule.map(|rule| rule.name)
    }
}

fn case(build: impl FnOnce(&mut Case)) -> Case {
    let mut case = Case::new();
    build(&mut case);
    case
}

type Build = Box<dyn Fn(&mut Case)>;

fn probes(results: Vec<ProbeResult>) -> Build {
    Box::new(move |case| {
        for result in &results {
            case.probe(result.clone());
        }
    })
}

fn table_cases() -> Vec<(&'static str, Build)> {
    vec![
        ("nothing-mounted", Box::new(|case| case.presence = Presence::Missing)),
        ("something-else-mounted", Box::new(|case| case.presence = Presence::WrongMount)),
        ("mounted-over", Box::new(|case| case.presence = Presence::Covered)),
        ("shut-down", Box::new(|case| case.evidence.table.shutdown = true)),
        ("shutdown-reported", Box::new(|case| assert!(case.kernel(Errno(108), Op::Filesystem, 1)))),
        ("emergency-read-only", Box::new(|case| case.evidence.table.emergency_ro = true)),
        (
            "error-ended-writes",
            Box::new(|case| {
                case.evidence.table.error_ends_writes = true;
                assert!(case.kernel(Errno(117), Op::Filesystem, 1));
            }),
        ),
        (
            "read-only-against-spec",
            Box::new(|case| {
                case.evidence.table = TableFacts { ro: true, wants_rw: true, ..TableFacts::default() };
            }),
        ),
        ("became-read-only", Box::new(|case| case.evidence.table.ro = true)),
        ("consumers-left-behind", Box::new(|case| case.stale_consumers = 2)),
    ]
}

fn probe_cases() -> Vec<(&'static str, Build)> {
    let other = || ProbeResult::WrongMount { found: SuperblockId { major: 0, minor: 9 } };
    vec![
        ("probe-found-other", probes(vec![other()])),
        ("probe-finds-other", probes(vec![other(), other()])),
        (
            "other-file-system",
            Box::new(|case| {
                case.identity.fsid = Some("00000000000000aa".into());
                case.probe(identified(None, Some("00000000000000ab")));
            }),
        ),
        ("probe-disconnected", probes(vec![failed(ProbeStep::Root, Errno(107))])),
        ("probe-hangs", probes(vec![ProbeResult::TimedOut { step: ProbeStep::Root }])),
        ("superblock-hangs", Box::new(|case| case.evidence.overdue = true)),
        ("sentinel", probes(vec![ProbeResult::SentinelMissing])),
        ("probe-odd-error", probes(vec![failed(ProbeStep::Root, Errno(22))])),
        (
            "probes-odd-error",
            Box::new(|case| {
                case.probe(ok(true, false));
                for _ in 0..10 {
                    case.probe(failed(ProbeStep::Root, Errno(2)));
                }
            }),
        ),
    ]
}

fn kernel_cases() -> Vec<(&'static str, Build)> {
    vec![
        ("write-back-failed", Box::new(|case| assert!(case.kernel(EIO, Op::Writeback, 0)))),
        (
            "tasks-wait",
            Box::new(|case| {
                case.evidence.waiting =
                    Some(Waiting { due: at(case.now), seen: at(case.now), count: 2, is_here: true });
            }),
        ),
        ("error-disconnected", Box::new(|case| assert!(case.kernel(Errno(107), Op::Read, 1)))),
        ("errors-disconnected", Box::new(|case| case.many(Errno(107), Op::Read))),
    ]
}

/// The five rules that each class of errno has: one failed probe, several, one with errors beside it, an error,
/// and many.
fn class_cases(
    errno: Errno,
    step: ProbeStep,
    op: Op,
    names: [&'static str; 5],
) -> Vec<(&'static str, Build)> {
    let [once, repeated, corroborated, hint, sustained] = names;
    // Where it was never readable, a key that is missing is no news.
    let fails = move |count: u32| -> Build {
        Box::new(move |case| {
            case.evidence.was_readable = true;
            for _ in 0..count {
                case.probe(failed(step, errno));
            }
        })
    };
    vec![
        (once, fails(1)),
        (repeated, fails(2)),
        (
            corroborated,
            Box::new(move |case| {
                case.evidence.was_readable = true;
                case.kernel(errno, op, 0);
                case.probe(failed(step, errno));
            }),
        ),
        (hint, Box::new(move |case| assert!(case.kernel(errno, op, 1)))),
        (sustained, Box::new(move |case| case.many(errno, op))),
    ]
}

#[test]
fn every_rule_decides_a_case_of_its_own() {
    let (root, write) = (ProbeStep::Root, ProbeStep::Write);
    let stale = ["probe-stale", "probes-stale", "probe-and-kernel-stale", "error-stale", "errors-stale"];
    let io = [
        "probe-io-error",
        "probes-io-error",
        "probe-and-kernel-io-error",
        "error-io-error",
        "errors-io-error",
    ];
    let readonly = [
        "probe-readonly",
        "probes-readonly",
        "probe-and-kernel-readonly",
        "error-readonly",
        "errors-readonly",
    ];
    let host = [
        "probe-host-down",
        "probes-host-down",
        "probe-and-kernel-host-down",
        "error-host-down",
        "errors-host-down",
    ];
    let auth = ["probe-auth", "probes-auth", "probe-and-kernel-auth", "error-auth", "errors-auth"];
    let cases = table_cases().into_iter().chain(probe_cases()).chain(kernel_cases());
    let cases = cases
        .chain(class_cases(ESTALE, root, Op::Read, stale))
        .chain(class_cases(EIO, root, Op::Read, io))
        .chain(class_cases(EROFS, write, Op::Open, readonly))
        .chain(class_cases(Errno(113), root, Op::Read, host))
        .chain(class_cases(Errno(126), root, Op::Read, auth));
    let mut hit: BTreeSet<&str> = BTreeSet::new();
    for (name, build) in cases {
        assert_eq!(case(build).rule(), Some(name));
        hit.insert(name);
    }
    let all: BTreeSet<&str> = RULES.iter().map(|rule| rule.name).collect();
    assert_eq!(all.len(), RULES.len(), "two rules share a name");
    assert_eq!(all.difference(&hit).collect::<Vec<_>>(), Vec::<&&str>::new());
}
