//! What the labels of metrics mean, and which values they can have. A label that is not here stands in no row of the
//! table, and a value that is not in its list in no scrape.

use std::collections::BTreeSet;

use agent_core::errno::{COUNTED, Errno};
use agent_core::incident::CauseKind;
use agent_core::observation::{Op, Source};
use agent_core::remediation::{Outcome, Refusal};
use agent_core::verdict::{Advice, HealthState, Reason};
use agent_core::volume::Mode;

use super::Suppression;
use crate::export::words;
use crate::sensor::ebpf::programs::ProgramFamily;
use crate::sensor::{LossCause, SourceName};

/// The values of a label.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// One of these words.
    Words(fn() -> Vec<&'static str>),
    /// As many as there are of something on the node; told in words.
    Bounded(&'static str),
}

/// One label, in the metrics that begin with a prefix.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// The names of the metrics that have it so begin with this; the first row that fits counts.
    pub of: &'static str,
    /// What it says; no full stop.
    pub meaning: &'static str,
    /// What it can be.
    pub values: Values,
}

const fn label(name: &'static str, of: &'static str, meaning: &'static str, values: Values) -> Label {
    Label { name, of, meaning, values }
}

/// Every label, by name.
pub const LABELS: &[Label] = &[
    label("acknowledged", "", "Whether somebody has said that they know", Values::Words(|| NO_YES.to_vec())),
    label("cause", "mountie_ebpf_", "Where records were lost", Values::Words(loss_causes)),
    label(
        "cause",
        "mountie_remediation_",
        "Why a repair that was due did not begin",
        Values::Words(suppressions),
    ),
    label("cause", "mountie_volume_", "What keeps repairs from beginning", Values::Words(holds)),
    label(
        "device",
        "",
        "The number of the superblock, `major:minor`; empty when nothing is mounted",
        ONE_A_VOLUME,
    ),
    label(
        "errno",
        "",
        "The error, by its symbolic name; `unknown` where nobody tells it, `other` where it is not in the list",
        Values::Words(errnos),
    ),
    label("family", "", "To which family of hooks a kernel program belongs", Values::Words(families)),
    label("fstype", "", "The type of file system", ONE_A_VOLUME),
    label("kind", "", "What the volumes of an incident have in common", Values::Words(kinds)),
    label(
        "method",
        "",
        "How a plan repairs; `settle` finishes or undoes one that was cut off",
        Values::Words(methods),
    ),
    label("mode", "", "What the agent may do to the volume", Values::Words(modes)),
    label("mountpoint", "", "Where the volume is mounted, odd bytes escaped", ONE_A_VOLUME),
    label(
        "name",
        "",
        "The server, device or daemon, as people call it; of a daemon its program, or `unknown`",
        Values::Bounded("one for each incident that goes on"),
    ),
    label("namespace", "", "The namespace of the claim in Kubernetes; always empty now", ONE_A_VOLUME),
    label("op", "", "What failed: the kind of operation", Values::Words(operations)),
    label(
        "outcome",
        "",
        "How a plan ended; `changed` and `already_so` are successes",
        Values::Words(outcomes),
    ),
    label("persistentvolumeclaim", "", "The claim in Kubernetes; always empty now", ONE_A_VOLUME),
    label(
        "program",
        "",
        "A kernel program, as `mountie doctor` lists it",
        Values::Bounded("one for each kernel program"),
    ),
    label(
        "reason",
        "",
        "Why the volume is not in order, or what else is worth knowing of it",
        Values::Words(reasons),
    ),
    label("result", "", "How a probe ended", Values::Words(|| words::PROBE_RESULTS.to_vec())),
    label("server", "", "The server that the source names; empty where there is none", ONE_A_VOLUME),
    label("source", "mountie_source_", "A source of facts", Values::Words(source_names)),
    label(
        "source",
        "mountie_volume_",
        "Who saw the error; `bpf_name`: only the text of a name says that it was here",
        Values::Words(sources),
    ),
    label("state", "", "The state of the volume", Values::Words(states)),
    label("version", "", "The version of the agent", Values::Bounded("one")),
    label(
        "volume",
        "",
        "The volume's name in the configuration, or its mount point",
        Values::Bounded("one for each volume"),
    ),
];

/// Values of the label `acknowledged`.
pub(super) const NO_YES: [&str; 2] = ["no", "yes"];

const ONE_A_VOLUME: Values = Values::Bounded("one for each volume");

/// The label of that name in a metric.
#[must_use]
pub fn label_of(metric: &str, name: &str) -> Option<&'static Label> {
    LABELS.iter().find(|label| label.name == name && metric.starts_with(label.of))
}

fn loss_causes() -> Vec<&'static str> {
    LossCause::ALL.map(LossCause::label).to_vec()
}

fn suppressions() -> Vec<&'static str> {
    Suppression::ALL.map(Suppression::label).to_vec()
}

fn holds() -> Vec<&'static str> {
    Suppression::HOLDS.map(Suppression::label).to_vec()
}

fn errnos() -> Vec<&'static str> {
    COUNTED.iter().map(|row| row.name).chain([Errno::UNKNOWN, Errno::OTHER].map(Errno::label)).collect()
}

fn families() -> Vec<&'static str> {
    use ProgramFamily as F;
    [F::Always, F::Extra, F::Fexit, F::SysExit].map(F::label).to_vec()
}

fn kinds() -> Vec<&'static str> {
    CauseKind::ALL.map(CauseKind::label).to_vec()
}

fn methods() -> Vec<&'static str> {
    words::METHODS.to_vec()
}

fn modes() -> Vec<&'static str> {
    [Mode::Off, Mode::Observe, Mode::DryRun, Mode::Act].map(words::mode).to_vec()
}

fn operations() -> Vec<&'static str> {
    Op::ALL.map(Op::label).to_vec()
}

/// Every way in which a plan can end.
pub(super) fn outcomes() -> Vec<&'static str> {
    let own = [
        Outcome::Changed,
        Outcome::AlreadySo,
        Outcome::Failed(Errno::OTHER),
        Outcome::HelperFailed(0),
        Outcome::TimedOut,
        Outcome::Interrupted,
    ];
    own.iter().map(Outcome::label).chain(Refusal::ALL.map(Refusal::label)).collect()
}

fn reasons() -> Vec<&'static str> {
    Reason::ALL.map(Reason::label).into_iter().chain(Advice::ALL.map(Advice::label)).collect()
}

fn source_names() -> Vec<&'static str> {
    SourceName::ALL.map(SourceName::label).to_vec()
}

fn sources() -> Vec<&'static str> {
    Source::ALL.map(Source::label).to_vec()
}

fn states() -> Vec<&'static str> {
    HealthState::ALL.map(HealthState::label).to_vec()
}

/// The words of a label, without doubles.
#[must_use]
pub fn words_of(label: &Label) -> Option<BTreeSet<&'static str>> {
    match label.values {
        Values::Words(words) => Some(words().into_iter().collect()),
        Values::Bounded(_) => None,
    }
}
