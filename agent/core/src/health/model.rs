//! A second opinion: the verdict computed from the whole history, from first principles, without any of the
//! bookkeeping that the evidence keeps. Property tests compare the two.

use alloc::vec::Vec;
use core::time::Duration;

use proptest::prelude::*;

use super::evidence::{Evidence, Waiting};
use super::rules::{Facts, judge};
use super::window::{CELLS, Group, Span};
use crate::discovery::Presence;
use crate::errno::{Errno, ErrnoClass};
use crate::id::{Generation, ProbeId, SuperblockId, VolumeId};
use crate::observation::{KernelErrors, Op, ProbeOk, ProbeReport, ProbeResult, ProbeStep, Source};
use crate::time::Monotonic;
use crate::verdict::{Reason, Verdict};

const WINDOW: Duration = Duration::from_secs(30);
const GOOD_FOR: Duration = Duration::from_secs(33);
const FAILURES: u32 = 2;
const SUSTAINED: u64 = 5;
const SPREAD: Duration = Duration::from_secs(1);

/// One thing that happened. The answer of a probe comes when it began: the model has no need of duration.
#[derive(Clone, Debug)]
enum Fact {
    Good {
        read: bool,
        wrote: bool,
    },
    Fails(u16),
    /// The same, where it is no news: never made, but read out of the history.
    Refused,
    /// Everything answered, and then there was no room to write.
    Full {
        read: bool,
    },
    Hangs,
    SentinelMissing,
    Error {
        errno: u16,
        source: Source,
        op: Op,
        count: u64,
    },
    /// The file system reports that it has shut down.
    ShutsDown,
    /// A census: the last of the waits that are too long became so this many milliseconds ago; or nobody waits.
    Waits(Option<u64>),
}

/// What the history says at its end. Everything is recomputed; nothing is remembered between calls.
fn verdict(history: &[(Monotonic, Fact)], now: Monotonic) -> Verdict {
    let history = &with_refusals(history);
    let looks: Vec<&(Monotonic, Fact)> = history.iter().filter(|(_, fact)| is_look(fact)).collect();
    let hints = unanswered(history, now);
    let has = |class| hints.iter().any(|hint| hint.class == class);
    let mut sick: Vec<Reason> = Vec::new();
    let mut suspect: Vec<Reason> = Vec::new();
    match looks.last().map(|(_, fact)| fact) {
        Some(Fact::Fails(errno)) => {
            let class = Errno(*errno).class().unwrap();
            let in_a_row =
                looks.iter().rev().take_while(|(_, fact)| matches!(fact, Fact::Fails(_) | Fact::Hangs));
            let often = u32::try_from(in_a_row.count()).unwrap() >= FAILURES;
            let reason = reason_of(class);
            if often || has(class) || class == ErrnoClass::Disconnected {
                sick.push(reason);
            } else {
                suspect.push(reason);
            }
        }
        Some(Fact::Hangs) => sick.push(Reason::Hung),
        Some(Fact::SentinelMissing) => suspect.push(Reason::WrongMount),
        _ => {}
    }
    let tried = tried(&looks);
    for class in [C::Stale, C::IoError, C::Disconnected, C::HostDown, C::Auth] {
        if has(class) {
            suspect.push(reason_of(class));
        }
        let untried: Vec<&Hint> = hints
            .iter()
            .filter(|hint| hint.class == class && proves(hint) && !will_be_tried(hint, tried))
            .collect();
        let count = largest_count(&untried);
        let first = untried.iter().map(|hint| hint.at).min();
        let last = untried.iter().map(|hint| hint.at).max();
        if let (Some(first), Some(last)) = (first, last)
            && count >= SUSTAINED
            && last.since(first) >= SPREAD
        {
            sick.push(reason_of(class));
        }
    }
    if waits_unanswered(history, looks.last().copied(), now) {
        suspect.push(Reason::Hung);
    }
    if history.iter().any(|(_, fact)| matches!(fact, Fact::Error { op: Op::Writeback, .. })) {
        sick.push(Reason::WritebackLost);
    }
    if is_shut_down(history) {
        sick.push(Reason::FsShutdown);
    }
    let strongest = |reasons: &[Reason]| Reason::ALL.into_iter().find(|reason| reasons.contains(reason));
    match (strongest(&sick), strongest(&suspect), looks.last()) {
        (Some(reason), ..) => Verdict::Sick(reason),
        (None, Some(reason), _) => Verdict::Suspect(reason),
        (None, None, Some((at, Fact::Good { .. } | Fact::Full { .. }))) if now.since(*at) < GOOD_FOR => {
            Verdict::Healthy
        }
        _ => Verdict::Unknown,
    }
}

/// A key that is missing is news only where the volume was readable before.
fn with_refusals(history: &[(Monotonic, Fact)]) -> Vec<(Monotonic, Fact)> {
    let mut was_readable = false;
    let read = |(at, fact): &(Monotonic, Fact)| {
        was_readable |= goodness(fact).is_some() || matches!(fact, Fact::SentinelMissing);
        match fact {
            Fact::Fails(126) if !was_readable => (*at, Fact::Refused),
            fact => (*at, fact.clone()),
        }
    };
    history.iter().map(read).collect()
}

/// What looks try, as they go now: one that ends at the sentinel has heard from the root alone.
fn tried(looks: &[&(Monotonic, Fact)]) -> Option<(bool, bool)> {
    match looks.last() {
        Some((_, Fact::SentinelMissing)) => Some((false, false)),
        _ => looks.iter().rev().find_map(|(_, fact)| goodness(fact)),
    }
}

/// Whether a good look read, and whether it wrote.
fn goodness(fact: &Fact) -> Option<(bool, bool)> {
    match fact {
        Fact::Good { read, wrote } => Some((*read, *wrote)),
        Fact::Full { read } => Some((*read, false)),
        _ => None,
    }
}

/// Each counter may have met the same errors: the one that saw most says how many there were.
fn largest_count(hints: &[&Hint]) -> u64 {
    let by = |counter| hints.iter().filter(move |hint| hint.counter == counter).map(|hint| hint.count);
    hints.iter().map(|hint| by(hint.counter).sum()).max().unwrap_or_default()
}

fn is_look(fact: &Fact) -> bool {
    !matches!(fact, Fact::Error { .. } | Fact::ShutsDown | Fact::Waits(_))
}

/// Whether a shutdown was reported that no later look at a file speaks against.
fn is_shut_down(history: &[(Monotonic, Fact)]) -> bool {
    let reads_files = |fact: &Fact| goodness(fact).is_some_and(|(read, wrote)| read || wrote);
    let last = |wanted: &dyn Fn(&Fact) -> bool| {
        history.iter().filter(|(_, fact)| wanted(fact)).map(|(at, _)| *at).max()
    };
    let reported = last(&|fact| matches!(fact, Fact::ShutsDown));
    reported.is_some_and(|reported| last(&reads_files).is_none_or(|looked| looked <= reported))
}

/// Whether the last census of this window saw waits that the last look does not speak against.
fn waits_unanswered(
    history: &[(Monotonic, Fact)],
    last_look: Option<&(Monotonic, Fact)>,
    now: Monotonic,
) -> bool {
    let census = history.iter().rev().find_map(|(at, fact)| match fact {
        Fact::Waits(ago) => Some((*at, *ago)),
        _ => None,
    });
    let Some((at, Some(ago))) = census.filter(|(at, _)| now.since(*at) < WINDOW) else { return false };
    let due = before(at, ago);
    !matches!(last_look, Some((looked, fact)) if *looked >= due && matches!(goodness(fact), Some((true, _))))
}

fn before(at: Monotonic, millis: u64) -> Monotonic {
    Monotonic::from_nanos(u64::try_from(at.since_boot().as_nanos()).unwrap() - millis * 1_000_000)
}

use ErrnoClass as C;

#[derive(Clone, Debug)]
struct Hint {
    at: Monotonic,
    class: ErrnoClass,
    group: Group,
    count: u64,
    /// Whose count it is: another source, or calls and reports of one source, may count the same errors.
    counter: (Source, bool),
    cell: u128,
}

/// The errors that still count: not answered by a later look, not out of the window. Errors of one cell of time
/// leave together, with the last of them.
fn unanswered(history: &[(Monotonic, Fact)], now: Monotonic) -> Vec<Hint> {
    let cell = |at: Monotonic| at.since_boot().as_nanos() / (WINDOW / CELLS).as_nanos();
    let mut hints: Vec<Hint> = Vec::new();
    let mut was_bad = false;
    for (at, fact) in history {
        let drop_answered = |hints: &mut Vec<Hint>, group: Group| {
            let later = hints.clone();
            hints.retain(|hint| {
                let same = |other: &&Hint| {
                    (other.class, other.group, other.cell) == (hint.class, hint.group, hint.cell)
                };
                hint.group != group || later.iter().filter(same).any(|other| other.at > *at)
            });
        };
        match fact {
            Fact::Error { errno, source, op, count } => {
                let Some(class) = Errno(*errno).class() else { continue };
                let whole_file = class == C::IoError && ![6, 19, 123].contains(errno);
                let group = match op {
                    _ if *source == Source::BpfName => Group::Below,
                    Op::Open | Op::List if whole_file => Group::Data,
                    Op::Write | Op::Sync | Op::Change | Op::Writeback => Group::Writes,
                    Op::Stat | Op::Open | Op::List => Group::Attributes,
                    Op::Fault => Group::Faults,
                    Op::Read | Op::Other | Op::Filesystem => Group::Data,
                    Op::Device | Op::Request | Op::Either => Group::Below,
                };
                // Two things of one moment: an answer speaks for the errors of its own moment too.
                let is_answered = history.iter().any(|(other, fact)| other == at && is_answer(fact, group));
                if !is_answered {
                    let counter = (*source, *op == Op::Filesystem);
                    hints.push(Hint { at: *at, class, group, count: *count, counter, cell: cell(*at) });
                }
            }
            Fact::Good { .. } | Fact::Full { .. } => {
                let (read, wrote) = goodness(fact).unwrap_or_default();
                drop_answered(&mut hints, Group::Attributes);
                drop_answered(&mut hints, Group::Below);
                if read || was_bad {
                    drop_answered(&mut hints, Group::Data);
                    drop_answered(&mut hints, Group::Faults);
                }
                if wrote {
                    drop_answered(&mut hints, Group::Writes);
                }
                was_bad = false;
            }
            Fact::SentinelMissing | Fact::Refused => was_bad = false,
            Fact::Fails(_) | Fact::Hangs => was_bad = true,
            Fact::Waits(_) | Fact::ShutsDown => {}
        }
    }
    let all = hints.clone();
    hints.retain(|hint| {
        let same =
            |other: &&Hint| (other.class, other.group, other.cell) == (hint.class, hint.group, hint.cell);
        all.iter().filter(same).any(|other| now.since(other.at) < WINDOW)
    });
    hints
}

fn is_answer(fact: &Fact, group: Group) -> bool {
    is_tried(group, goodness(fact))
}

/// Reports from below and page faults never add up to a fault.
fn proves(hint: &Hint) -> bool {
    hint.group != Group::Below && hint.group != Group::Faults
}

/// A stale root is found by every look; all other errors only by a look of their kind.
fn will_be_tried(hint: &Hint, tried: Option<(bool, bool)>) -> bool {
    is_tried(hint.group, tried) || (hint.class == C::Stale && tried.is_some())
}

fn is_tried(group: Group, tried: Option<(bool, bool)>) -> bool {
    tried.is_some_and(|(read, wrote)| match group {
        Group::Attributes | Group::Below => true,
        Group::Data | Group::Faults => read,
        Group::Writes => wrote,
    })
}

fn reason_of(class: ErrnoClass) -> Reason {
    match class {
        C::Stale => Reason::Stale,
        C::IoError => Reason::IoError,
        C::Disconnected => Reason::Disconnected,
        C::HostDown => Reason::HostDown,
        C::Auth => Reason::Auth,
        C::Readonly | C::Full | C::Refused => unreachable!("not made here"),
    }
}

fn fact() -> impl Strategy<Value = Fact> {
    let errno = || prop_oneof![Just(5), Just(116), Just(107), Just(113), Just(126)];
    let op = prop_oneof![8 => (0..8_usize).prop_map(|n| Op::ALL[n]), 1 => Just(Op::Writeback),
        2 => prop_oneof![Just(Op::Device), Just(Op::Request), Just(Op::Either)], 1 => Just(Op::Filesystem)];
    let told = prop_oneof![4 => op.prop_map(|op| (Source::Bpf, op)),
        1 => (0..8_usize).prop_map(|n| (Source::BpfName, Op::ALL[n])),
        1 => prop_oneof![Just(Source::Fanotify), Just(Source::Sysfs)].prop_map(|by| (by, Op::Filesystem))];
    prop_oneof![
        3 => (any::<bool>(), any::<bool>()).prop_map(|(read, wrote)| Fact::Good { read, wrote }),
        2 => errno().prop_map(Fact::Fails),
        1 => any::<bool>().prop_map(|read| Fact::Full { read }),
        1 => Just(Fact::Hangs),
        1 => Just(Fact::SentinelMissing),
        2 => prop::option::of(0..20_000_u64).prop_map(Fact::Waits),
        1 => Just(Fact::ShutsDown),
        6 => (errno(), told, 0..4_u64)
            .prop_map(|(errno, (source, op), count)| Fact::Error { errno, source, op, count }),
    ]
}

fn tell(evidence: &mut Evidence, at: Monotonic, (source, op): (Source, Op), (errno, count): (u16, u64)) {
    let errors = KernelErrors {
        source,
        superblock: SuperblockId { major: 0, minor: 1 },
        root_inode: None,
        errno: Errno(errno),
        op,
        count,
        at,
        after: None,
        task: None,
    };
    evidence.hint(&errors, Span { now: at, window: WINDOW });
}

fn apply(evidence: &mut Evidence, at: Monotonic, fact: &Fact) {
    let result = match fact {
        Fact::Good { read, wrote } => ProbeResult::Ok(ProbeOk {
            root_inode: 2,
            read_data: *read,
            wrote_data: *wrote,
            ..ProbeOk::default()
        }),
        Fact::Fails(errno) => ProbeResult::Failed { step: ProbeStep::Root, errno: Errno(*errno) },
        Fact::Full { read } => ProbeResult::WriteFailed {
            errno: Errno(28),
            read: ProbeOk { root_inode: 2, read_data: *read, ..ProbeOk::default() },
        },
        Fact::Refused => unreachable!("not made here"),
        Fact::Hangs => ProbeResult::TimedOut { step: ProbeStep::Root },
        Fact::SentinelMissing => ProbeResult::SentinelMissing,
        Fact::Waits(ago) => {
            evidence.waiting =
                ago.map(|ago| Waiting { due: before(at, ago), seen: at, count: 1, is_here: true });
            return;
        }
        Fact::Error { errno, source, op, count } => {
            tell(evidence, at, (*source, *op), (*errno, *count));
            return;
        }
        Fact::ShutsDown => {
            tell(evidence, at, (Source::Bpf, Op::Filesystem), (108, 0));
            return;
        }
    };
    let report = ProbeReport {
        id: ProbeId(1),
        volume: VolumeId::new("v"),
        generation: Generation(1),
        started: at,
        took: Duration::from_millis(1),
        result,
    };
    evidence.look(&report, Duration::from_secs(1), at);
}

fn facts(evidence: &Evidence, now: Monotonic) -> Facts<'_> {
    Facts {
        evidence,
        identity: None,
        presence: Some(Presence::Present),
        failures: FAILURES,
        good_for: GOOD_FOR,
        span: Span { now, window: WINDOW },
        sustained_errors: SUSTAINED,
        sustained_spread: SPREAD,
        stale_consumers: 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_evidence_says_what_the_whole_history_says(
        steps in prop::collection::vec((prop_oneof![Just(1), 1..3000_u64, 1..40_000_u64], fact()), 1..60)
    ) {
        let mut evidence = Evidence::default();
        let mut history = Vec::new();
        let mut millis = 100_000;
        for (pause, fact) in steps {
            millis += pause;
            let at = Monotonic::from_nanos(millis * 1_000_000);
            apply(&mut evidence, at, &fact);
            history.push((at, fact));
            for later in [0, 500, 29_999, 30_000, 33_000] {
                let now = at + Duration::from_millis(later);
                prop_assert_eq!(judge(&facts(&evidence, now)).verdict, verdict(&history, now), "{} ms later", later);
            }
        }
    }

    #[test]
    fn good_looks_over_a_window_make_it_healthy(
        steps in prop::collection::vec((1..3000_u64, fact()), 0..40)
    ) {
        let mut evidence = Evidence::default();
        let mut millis = 100_000;
        for (pause, fact) in steps.into_iter().filter(|(_, fact)| !matches!(fact, Fact::ShutsDown | Fact::Error { op: Op::Writeback, .. })) {
            millis += pause;
            apply(&mut evidence, Monotonic::from_nanos(millis * 1_000_000), &fact);
        }
        let end = Monotonic::from_nanos(millis * 1_000_000) + WINDOW;
        apply(&mut evidence, end, &Fact::Good { read: false, wrote: false });
        prop_assert_eq!(judge(&facts(&evidence, end)).verdict, Verdict::Healthy);
    }
}
