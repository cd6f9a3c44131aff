//! `docs/VERDICTS.md`: how verdicts are made, of the tables that make them.

use std::fmt::Write as _;
use std::time::Duration;

use agent_core::discovery::Presence;
use agent_core::errno::{COUNTED, Errno, ErrnoClass};
use agent_core::fstype::FsClass;
use agent_core::health::meaning::{EXCEPTIONS, MET_BY_LOOKS, class_of};
use agent_core::health::rules::{Enough, LONG, LOST_LOOKS, RULES, Rule, Test, Weight};
use agent_core::policy::Thresholds;
use agent_core::remediation::ladder::{Below, LADDER, Rung};
use agent_core::verdict::{HealthState, Reason};

use super::{code, hold};
use crate::export::age;

const HEAD: &str = "\
# How verdicts are made

<!-- Made of the tables in agent/core/src (errno.rs, fstype.rs, health/meaning.rs, health/rules.rs, policy.rs,
     remediation/ladder.rs) by `cargo xtask docs`: change those. -->

What the kernel counts is a hint: it makes a volume suspect at once and orders a look. What a look finds, what the mount
table says and what a file system reports about itself is judged by one table of rules; `mountie describe VOLUME` names the
rule that decided (`rule`), what was seen, and what would clear it. A verdict is made anew from the evidence of the moment,
so it clears by itself; the state adds the history.

A failed look is not a dead mount: what the agent itself could not do (no memory, no descriptor, no worker) says nothing
about a volume, unless that volume alone answers so again and again. Unknown is not healthy. What completes late is `slow`,
which is advice, never `hung`.
";

const EVIDENCE: &str = "
## What an errno says

By what stands behind the mount: the same number can be a server that is away, a connection that is over, or a device that
is broken. No rule has the word `refused`: where looking was allowed before, a refusal is judged as `auth`, and where it never
was, it is the advice `inaccessible`, not a fault; so is a key that was never there. A sentinel that may not be read any more
while the root answers is doubt, and one that could never be read is that advice. `full` is advice and never a fault; `EAGAIN`
and `EINTR` are no faults and are not counted. A look that meets an errno that is in neither table has met something that says
nothing certain (`probe-odd-error`). Where dirty data is lost, it is lost whatever the errno says.

| errno | number | network | FUSE | block | elsewhere |
|---|---|---|---|---|---|
";

const LOOKS: &str = "
What only looks meet, because nobody's programs cause it on a file, is not counted:

| errno | number | network | FUSE | block | elsewhere |
|---|---|---|---|---|---|
";

const CLASSES: &str = "
## Classes of file systems

Network, FUSE and block-backed file systems are watched without being named. A type that is in no row is block-backed when
its source lies in `/dev`, FUSE when it is `fuse.NAME` or `fuseblk.NAME`, and `other` else.

| class | watched by itself | types |
|---|---|---|
";

const RULES_HEAD: &str = "
## Rules

The strongest that fits decides: rules that prove (`sick`) before those that only raise doubt (`suspect`), and of those the
strongest reason, in the order of the reasons below. What a look or the kernel says counts only while the volume is mounted.
Errors are counted per volume, errno and kind of operation; a good look that tried the same kind of operation answers those
that came before it began.

| rule | proves | reason | when | cleared by |
|---|---|---|---|---|
";

const COLUMNS: [FsClass; 4] = [FsClass::Network, FsClass::Fuse, FsClass::Block, FsClass::Other];

const REASONS: &str = "
## Reasons

Strongest first; with the word that Kubernetes has for it, and what is done about it in mode `act`. A reason without a repair
is told and left to people: somebody mounted what is there and may mean it, a new mount would meet the same refusal, or the
data is gone and somebody must know.

| reason | Kubernetes | repair |
|---|---|---|
";

const STATES: &str = "
## States

| state | counts as sick | meaning |
|---|---|---|
";

const WINDOWS: &str = "
## Windows and numbers

| what | value |
|---|---|
";

#[test]
fn the_page_is_what_the_tables_give() {
    hold("VERDICTS.md", &page());
}

#[test]
fn no_text_breaks_a_table() {
    let page = page();
    let mut columns = 0;
    for line in page.lines() {
        let bars = line.matches('|').count();
        match (columns, line.starts_with('|')) {
            (_, false) => columns = 0,
            (0, true) => columns = bars,
            (_, true) => assert_eq!(bars, columns, "{line}"),
        }
    }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    page += RULES_HEAD;
    for rule in RULES {
        let Rule { name, test, reason, weight, clears } = rule;
        let (proves, reason) = (proves(*weight), reason.label());
        let _ = writeln!(page, "| `{name}` | {proves} | `{reason}` | {} | {clears} |", when(*test));
    }
    page += EVIDENCE;
    for row in COUNTED {
        let number = row.errno.0;
        let on = COLUMNS.map(|fs| says(row.errno, fs));
        let _ = writeln!(page, "| `{}` | {number} | {} |", row.name, on.join(" | "));
    }
    page += LOOKS;
    for row in MET_BY_LOOKS {
        let on = COLUMNS.map(|fs| class_word(row.says(fs)));
        let _ = writeln!(page, "| `{}` | {} | {} |", row.name, row.errno.0, on.join(" | "));
    }
    page += CLASSES;
    for class in FsClass::ALL {
        let types: Vec<&str> = class.types().collect();
        let watched = match (class.is_watched_by_default(), class.can_be_watched()) {
            (true, _) => "yes",
            (false, true) => "when it is named",
            (false, false) => "never",
        };
        let _ = writeln!(page, "| {} | {watched} | {} |", fs_word(class), code(types));
    }
    page += REASONS;
    for reason in Reason::ALL {
        let _ = writeln!(
            page,
            "| `{}` | `{}` | {} |",
            reason.label(),
            reason.kubernetes_status(),
            repair(reason)
        );
    }
    page += STATES;
    for state in HealthState::ALL {
        let sick = if state.is_sick() { "yes" } else { "no" };
        let _ = writeln!(page, "| `{}` | {sick} | {} |", state.label(), state_meaning(state));
    }
    page += WINDOWS;
    for (what, value) in windows() {
        let _ = writeln!(page, "| {what} | {value} |");
    }
    page
}

const fn proves(weight: Weight) -> &'static str {
    match weight {
        Weight::Sick => "sick",
        Weight::Suspect => "suspect",
    }
}

/// What an errno says on one kind of file system; in bold where that is an exception.
fn says(errno: Errno, fs: FsClass) -> String {
    let word = class_of(errno, fs).map_or("nothing", class_word);
    let is_exception = EXCEPTIONS.iter().any(|row| row.errno == errno && row.classes.contains(&fs));
    if is_exception { format!("**{word}**") } else { word.to_owned() }
}

const fn class_word(class: ErrnoClass) -> &'static str {
    match class {
        ErrnoClass::Stale => "stale",
        ErrnoClass::IoError => "io_error",
        ErrnoClass::Disconnected => "disconnected",
        ErrnoClass::HostDown => "host_down",
        ErrnoClass::Auth => "auth",
        ErrnoClass::Readonly => "readonly",
        ErrnoClass::Full => "full",
        ErrnoClass::Refused => "refused",
    }
}

const fn fs_word(class: FsClass) -> &'static str {
    match class {
        FsClass::Network => "network",
        FsClass::Fuse => "FUSE",
        FsClass::Block => "block",
        FsClass::Autofs => "automount trap",
        FsClass::Overlay => "stacked",
        FsClass::Memory => "memory",
        FsClass::Pseudo => "interface",
        FsClass::Other => "other",
    }
}

/// What a rule looks for.
fn when(test: Test) -> String {
    let text = match test {
        Test::Table(presence) => match presence {
            Presence::Missing => "nothing is mounted where the volume should be",
            Presence::WrongMount => "something else is mounted there",
            Presence::Covered => "something is mounted over it",
            Presence::Present => "it is mounted",
            Presence::Idle => "only an automount trap is there",
        },
        Test::TableShutdown => "the mount table says that the file system has shut down",
        Test::ShutdownReported => "the file system reported that it has shut down",
        Test::TableEmergencyReadonly => "the file system says that it refuses to write after an error",
        Test::ErrorEndedWrites => {
            "the file system found an error in itself, and was mounted to write nothing from then on"
        }
        Test::TableReadonlyAgainstSpec => "mounted `ro`, and the configuration wants it writable",
        Test::TableBecameReadonly => {
            "it became `ro`: it had been kept writable, or storage failed at that moment"
        }
        Test::ProbeFails(class, enough) => {
            let (word, often, but) = (class_word(class), often(enough), but_for_one_file(class, enough));
            return format!("the look fails with an errno that says {word}{often}{but}");
        }
        Test::ProbeFailsOddly(Enough::Once) => "the look fails with an errno that says nothing certain",
        Test::ProbeFailsOddly(enough) => {
            return format!(
                "the root, which answered before, gives nothing but an errno that says nothing certain{}",
                often(enough)
            );
        }
        Test::ProbeHangs => "the look has not answered within `deadline`",
        Test::SuperblockHangs => {
            "a look is overdue by more than `deadline`, because another one hangs on the same superblock"
        }
        Test::TasksWait => {
            "tasks wait in one call for longer than `deadline`, and no look has read data meanwhile"
        }
        Test::ProbeFindsOther(enough) => {
            return format!(
                "the look comes to another superblock than the mount table says{}",
                often(enough)
            );
        }
        Test::IdentityDiffers => "the file system has another UUID or fsid than the configuration asks for",
        Test::SentinelIsOff => "the root is in order, and the sentinel is missing or has other content",
        Test::ErrorsSustained(class) => {
            return format!(
                "many errors that say {}, over a while, of operations that no look tries{}",
                class_word(class),
                but_for_one_user(class)
            );
        }
        Test::Errors(class) => {
            return format!("an error that says {}, which no good look has answered yet", class_word(class));
        }
        Test::WritebackLost => "dirty data was lost, and nobody has acknowledged it",
        Test::ConsumersStale => "other mounts still show what was there before the volume was mounted anew",
    };
    text.to_owned()
}

const fn but_for_one_file(class: ErrnoClass, enough: Enough) -> &'static str {
    match (class, enough) {
        (_, Enough::Once) => "",
        (ErrnoClass::Stale, _) => ", and not for one file",
        (ErrnoClass::Auth, _) => ", and not because one file is refused",
        _ => "",
    }
}

const fn but_for_one_user(class: ErrnoClass) -> &'static str {
    match class {
        ErrnoClass::Auth => "; not on network file systems, where every user has a key",
        ErrnoClass::IoError => {
            "; on network file systems and FUSE, reads that one program alone is known to fail with are not enough"
        }
        _ => "",
    }
}

fn often(enough: Enough) -> String {
    match enough {
        Enough::Once => String::new(),
        Enough::Corroborated => ", and the kernel counted errors of that class".to_owned(),
        Enough::Repeated => ", `failures` times in a row".to_owned(),
        Enough::Long => format!(", {LONG} × `failures` times in a row"),
    }
}

/// What is done about a reason, by the rungs that it has.
fn repair(reason: Reason) -> String {
    let rungs: Vec<String> = LADDER.iter().filter(|rung| rung.reason == reason).map(rung).collect();
    if rungs.is_empty() { "none".to_owned() } else { rungs.join("; ") }
}

fn rung(rung: &Rung) -> String {
    let Rung { reason, classes, needs_cause, patience, below } = *rung;
    let which = if *classes == FsClass::ALL {
        String::new()
    } else {
        format!("{}: ", classes.iter().map(|class| fs_word(*class)).collect::<Vec<_>>().join(", "))
    };
    let what = if reason == Reason::ConsumerStale { "the other mounts follow" } else { "a new mount" };
    let after = match (patience, reason) {
        (Duration::ZERO, _) => String::new(),
        (patience, Reason::Hung) => format!(", after {} or twice the deadline", age::span(patience)),
        (patience, _) => format!(", after {}", age::span(patience)),
    };
    let cause = if needs_cause { ", where storage itself failed" } else { "" };
    let below: String = below.iter().map(|below| format!(", {}", below_word(*below))).collect();
    format!("{which}{what}{after}{cause}{below}")
}

const fn below_word(below: Below) -> &'static str {
    match below {
        Below::AbortConnection => "its FUSE connection is ended",
        Below::RestartUnit => "the unit of its daemon is restarted",
    }
}

const fn state_meaning(state: HealthState) -> &'static str {
    match state {
        HealthState::Unknown => "Not looked at yet, or nobody can look.",
        HealthState::Healthy => "The last look was good, and nothing speaks against it.",
        HealthState::Suspect => "One piece of evidence, too little to act on. It is looked at more often.",
        HealthState::Degraded => "Sick, by a rule that proves it.",
        HealthState::Recovering => "Sick, and a plan of repair is running.",
        HealthState::Probation => {
            "Good again, and not believed yet: it must stay free of doubt for the settle time. Doubt that lasts as long \
             makes it suspect."
        }
        HealthState::Quarantined => "Sick, and no repair is tried any more: a person must act.",
    }
}

fn windows() -> Vec<(&'static str, String)> {
    let Thresholds {
        evidence_window,
        sustained_errors,
        sustained_spread,
        probation,
        probation_max,
        flap_window,
        incident_window,
        backoff,
        backoff_max,
        backoff_busy,
        plans_at_once,
        put_off_at_most,
        others_first,
        slow_percent,
        forget_after,
    } = Thresholds::default();
    let span = age::span;
    vec![
        ("errors that the kernel counted speak for", span(evidence_window)),
        (
            "many errors over a while, of operations that no look tries, are",
            format!("{sustained_errors} over at least {}", span(sustained_spread)),
        ),
        ("attempts to look in a row that were not possible until nobody looks", LOST_LOOKS.to_string()),
        ("the settle time after a recovery", span(probation)),
        ("… doubled with every fall within", span(flap_window)),
        ("… up to", span(probation_max)),
        (
            "volumes of one cause that fall within this time of each other are one incident",
            span(incident_window),
        ),
        ("the first pause between two attempts of repair, doubled each time", span(backoff)),
        ("… up to", span(backoff_max)),
        ("… and after one that found the old mount in use", span(backoff_busy)),
        ("repairs at once on a node", plans_at_once.to_string()),
        ("a hook may put a repair off so often in a row", put_off_at_most.to_string()),
        ("whoever else has changed the mount of a sick volume is left to work for", span(others_first)),
        ("a look is `slow` beyond this share of its deadline", format!("{slow_percent} %")),
        ("a volume that was found, and is unmounted, is remembered for", span(forget_after)),
    ]
}
