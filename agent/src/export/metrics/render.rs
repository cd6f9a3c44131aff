//! The text of a scrape, family by family in the order of the table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_core::errno::Errno;
use agent_core::id::VolumeId;
use agent_core::incident::{CauseKind, Incident};
use agent_core::observation::{Op, Source};
use agent_core::status::VolumeStatus;
use agent_core::verdict::{Advice, HealthState, Reason};
use agent_core::volume::Mode;
use prometheus::core::Collector;

use super::table::{Family, Row, TABLE};
use super::{Inner, Suppression, VolumeCounts};
use crate::export::text::{Labels, Text};
use crate::export::{Snapshot, words};
use crate::sensor::{LossCause, ProgramState, SourceName, SourceState};

/// Errors whose series exist at zero before anything failed: one for each way in which a mount dies. The whole
/// product of errors, operations and sources would be 720 series a volume; the others appear when they are
/// first counted, which `increase()` over a longer range and the state series make good.
const ZERO_ERRORS: [(Errno, Op, Source); 3] = [
    (Errno(5), Op::Read, Source::Bpf),
    (Errno(107), Op::Read, Source::Bpf),
    (Errno(116), Op::Read, Source::Bpf),
];

/// Outcomes of plans whose series exist at zero, for volumes that may be repaired.
const ZERO_OUTCOMES: [&str; 4] = ["changed", "failed", "helper_failed", "timed_out"];
/// Methods of plans whose series exist at zero, for volumes that may be repaired.
const ZERO_METHODS: [&str; 4] = ["command", "fstab", "mount", "systemd"];

/// What is rendered: the volumes sorted and each only once, whatever the snapshot holds.
struct Scrape<'a> {
    inner: &'a Inner,
    snapshot: &'a Snapshot,
    volumes: BTreeMap<&'a str, &'a VolumeStatus>,
    counts: &'a BTreeMap<VolumeId, VolumeCounts>,
}

pub(super) fn render(
    inner: &Inner,
    snapshot: &Snapshot,
    counts: &BTreeMap<VolumeId, VolumeCounts>,
    capacity: usize,
) -> String {
    let mut volumes = BTreeMap::new();
    for volume in &snapshot.volumes {
        // Names are unique by validation. Should that ever fail, one volume is not shown, but the scrape stands.
        volumes.entry(volume.id.as_str()).or_insert(volume);
    }
    let scrape = Scrape { inner, snapshot, volumes, counts };
    let mut text = Text::with_capacity(capacity);
    for row in TABLE {
        text.family(row);
        scrape.family(&mut text, row);
    }
    text.finish()
}

impl Scrape<'_> {
    fn family(&self, text: &mut Text, row: &Row) {
        let snapshot = self.snapshot;
        match row.family {
            Family::BlockedTasks => {
                self.each(|id, volume| text.sample(row, &[("volume", id)], volume.blocked_count));
            }
            Family::BuildInfo => text.sample(row, &[("version", env!("CARGO_PKG_VERSION"))], 1),
            Family::ConsumerStaleMounts => {
                self.each(|id, volume| text.sample(row, &[("volume", id)], volume.stale_mounts));
            }
            Family::StaleOpenFiles => {
                self.each(|id, volume| text.sample(row, &[("volume", id)], volume.stale_files));
            }
            Family::EbpfRunsSkipped => self.skipped(text, row),
            Family::EbpfRecordsDropped => self.losses(text, row),
            Family::Incidents => self.incidents(text, row),
            Family::MountEventsDropped => text.sample(row, &[], snapshot.mount_events_dropped),
            Family::MountTableBadLines => text.sample(row, &[], snapshot.bad_lines),
            Family::MountTableEntries => text.sample(row, &[], snapshot.scan.entries),
            Family::MountTableScanSeconds => text.sample(row, &[], snapshot.scan.took.as_secs_f64()),
            Family::ProbeAbandonedWorkers => text.sample(row, &[], snapshot.abandoned_workers),
            Family::RemediationStuckHelpers => text.sample(row, &[], snapshot.stuck_helpers),
            Family::ProbeInflight => text.sample(row, &[], snapshot.probes_inflight),
            Family::StatePersistErrors => text.sample(row, &[], snapshot.persist_errors),
            Family::SourceUp => self.sources(text, row),
            Family::ProgramAttached => self.programs(text, row),
            Family::DetectionSeconds => histograms(text, row, &self.inner.detection),
            Family::RemediationDurationSeconds => histograms(text, row, &self.inner.remediation_duration),
            Family::RemediationGapSeconds => histograms(text, row, &self.inner.remediation_gap),
            Family::RemediationSuppressed => self.suppressed(text, row),
            Family::RemediationTotal => self.each(|id, volume| self.plans(text, row, id, volume)),
            Family::ProbeDurationSeconds => self.probe_durations(text, row),
            Family::ProbeTotal => self.each(|id, volume| self.probes(text, row, id, volume)),
            Family::ProbeStuckSeconds => self.each(|id, volume| self.stuck(text, row, id, volume)),
            Family::MountStackDepth => {
                self.each(|id, volume| text.sample(row, &[("volume", id)], volume.stack_depth));
            }
            Family::VolumeConditionReason => self.each(|id, volume| reasons(text, row, id, volume)),
            Family::VolumeErrors => self.each(|id, volume| errors(text, row, id, volume)),
            Family::VolumeInfo => self.each(|id, volume| info(text, row, id, volume)),
            Family::VolumeLastOk => self.each(|id, volume| self.last_ok(text, row, id, volume)),
            Family::VolumeState => self.each(|id, volume| states(text, row, id, volume)),
        }
    }

    fn each(&self, mut write: impl FnMut(&str, &VolumeStatus)) {
        for (id, volume) in &self.volumes {
            write(id, volume);
        }
    }

    fn incidents(&self, text: &mut Text, row: &Row) {
        for kind in CauseKind::ALL {
            let open = |incident: &&Arc<Incident>| incident.ended.is_none() && incident.cause.kind == kind;
            text.sample(row, &[("kind", kind.label())], self.snapshot.incidents.iter().filter(open).count());
        }
    }

    fn sources(&self, text: &mut Text, row: &Row) {
        for source in SourceName::ALL {
            let up = match self.snapshot.sources.get(&source) {
                Some(SourceState::Running) => 1.0,
                Some(SourceState::Degraded(_)) => 0.5,
                Some(SourceState::Off(_)) | None => 0.0,
            };
            text.sample(row, &[("source", source.label())], up);
        }
    }

    fn programs(&self, text: &mut Text, row: &Row) {
        let mut attached = BTreeMap::new();
        for program in &self.snapshot.programs {
            let is_attached: &mut u8 = attached.entry((program.program, program.family)).or_default();
            *is_attached = (*is_attached).max(u8::from(program.state == ProgramState::Attached));
        }
        for ((program, family), is_attached) in attached {
            text.sample(row, &[("program", program), ("family", family)], is_attached);
        }
    }

    fn skipped(&self, text: &mut Text, row: &Row) {
        let names: BTreeSet<&str> = self.snapshot.programs.iter().map(|program| program.program).collect();
        for program in names {
            let runs = self.snapshot.runs_skipped.get(program).copied().unwrap_or(0);
            text.sample(row, &[("program", program)], runs);
        }
    }

    fn losses(&self, text: &mut Text, row: &Row) {
        for cause in LossCause::ALL {
            let count = self.snapshot.records_dropped.get(&cause).copied().unwrap_or_default();
            text.sample(row, &[("cause", cause.label())], count);
        }
    }

    fn suppressed(&self, text: &mut Text, row: &Row) {
        for cause in Suppression::ALL {
            let counter = self.inner.remediation_suppressed.get_metric_with_label_values(&[cause.label()]);
            text.sample(row, &[("cause", cause.label())], counter.map_or(0, |counter| counter.get()));
        }
    }

    fn probes(&self, text: &mut Text, row: &Row, id: &str, volume: &VolumeStatus) {
        let counts =
            self.counts.get(&volume.id).map_or([0; words::PROBE_RESULTS.len()], |counts| counts.probes);
        for (result, count) in words::PROBE_RESULTS.iter().zip(counts) {
            text.sample(row, &[("volume", id), ("result", result)], count);
        }
    }

    fn probe_durations(&self, text: &mut Text, row: &Row) {
        for id in self.volumes.keys() {
            // Makes the series at zero when no probe has been timed yet.
            let Ok(durations) = self.inner.probe_duration.get_metric_with_label_values(&[id]) else {
                continue;
            };
            for metric in durations.collect().iter().flat_map(|family| family.get_metric()) {
                text.histogram(row, &[("volume", id)], metric.get_histogram());
            }
        }
    }

    fn plans(&self, text: &mut Text, row: &Row, id: &str, volume: &VolumeStatus) {
        let mut plans = BTreeMap::new();
        if volume.mode == Mode::Act {
            for method in ZERO_METHODS {
                plans.extend(ZERO_OUTCOMES.map(|outcome| ((method, outcome), 0)));
            }
        }
        if let Some(counts) = self.counts.get(&volume.id) {
            plans.extend(&counts.plans);
        }
        for ((method, outcome), count) in plans {
            text.sample(row, &[("volume", id), ("method", method), ("outcome", outcome)], count);
        }
    }

    fn stuck(&self, text: &mut Text, row: &Row, id: &str, volume: &VolumeStatus) {
        let stuck = volume.stuck_since.map(|since| self.snapshot.at.since(since)).unwrap_or_default();
        text.sample(row, &[("volume", id)], stuck.as_secs_f64());
    }

    fn last_ok(&self, text: &mut Text, row: &Row, id: &str, volume: &VolumeStatus) {
        let time = volume.last_ok.map_or(0.0, |time| self.snapshot.clock().at(time).epoch_seconds());
        text.sample(row, &[("volume", id)], time);
    }
}

fn states(text: &mut Text, row: &Row, id: &str, volume: &VolumeStatus) {
    for state in HealthState::ALL {
        let is_it = u8::from(volume.condition.state == state);
        text.sample(row, &[("volume", id), ("state", state.label())], is_it);
    }
}

fn reasons(text: &mut Text, row: &Row, id: &str, volume: &VolumeStatus) {
    for reason in Reason::ALL {
        let is_it = u8::from(volume.condition.reason == Some(reason));
        text.sample(row, &[("volume", id), ("reason", reason.label())], is_it);
    }
    for advice in Advice::ALL {
        let is_given = u8::from(volume.condition.advice.contains(&advice));
        text.sample(row, &[("volume", id), ("reason", advice.label())], is_given);
    }
}

fn errors(text: &mut Text, row: &Row, id: &str, volume: &VolumeStatus) {
    // By label, not by number: errors that are not in the table share the label `other`.
    let mut totals: BTreeMap<(&str, &str, &str), u64> = BTreeMap::new();
    let zeros = ZERO_ERRORS.iter().map(|key| (key, &0));
    for ((errno, op, source), count) in zeros.chain(&volume.errors) {
        let total = totals.entry((errno.label(), op.label(), source.label())).or_default();
        *total = total.saturating_add(*count);
    }
    for ((errno, op, source), total) in totals {
        text.sample(row, &[("volume", id), ("errno", errno), ("op", op), ("source", source)], total);
    }
}

fn info(text: &mut Text, row: &Row, id: &str, volume: &VolumeStatus) {
    let mountpoint = volume.mountpoint.to_string();
    let device = volume.superblock.map(|superblock| superblock.to_string()).unwrap_or_default();
    let labels: Labels<'_> =
        &[("volume", id), ("mountpoint", &mountpoint), ("fstype", &volume.fstype), ("device", &device)];
    text.sample(row, labels, 1);
}

/// Every histogram of a collector, sorted by its labels: the crate keeps them unsorted.
fn histograms(text: &mut Text, row: &Row, collector: &impl Collector) {
    for mut family in collector.collect() {
        let metrics = family.mut_metric();
        metrics.sort_by(|a, b| {
            let values = |metric: &prometheus::proto::Metric| {
                metric.get_label().iter().map(|label| label.value().to_owned()).collect::<Vec<_>>()
            };
            values(a).cmp(&values(b))
        });
        for metric in family.get_metric() {
            let labels: Vec<_> =
                metric.get_label().iter().map(|label| (label.name(), label.value())).collect();
            text.histogram(row, &labels, metric.get_histogram());
        }
    }
}
