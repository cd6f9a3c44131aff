//! The text of a scrape, family by family in the order of the table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_core::errno::Errno;
use agent_core::id::VolumeId;
use agent_core::incident::{Cause, CauseKind, Incident};
use agent_core::observation::{Op, Source};
use agent_core::status::VolumeStatus;
use agent_core::verdict::{Advice, HealthState, Reason};
use agent_core::volume::Mode;
use prometheus::core::Collector;
use prometheus::proto::Metric;

use super::labels::{NO_YES, outcomes};
use super::table::{Family, Row, TABLE};
use super::{Inner, Suppression, VolumeCounts};
use crate::export::text::{Format, Labels, Text};
use crate::export::{Snapshot, words};
use crate::sensor::{LossCause, ProgramState, SourceName, SourceState};

/// Errors whose series exist at zero before anything failed: how a mount dies, as calls and probes meet it, and how
/// written data is lost. The whole product of errors, operations and sources would be 720 series a volume. The others
/// appear when they are first counted: to `increase()` that first count is none, however high it is.
const ZERO_ERRORS: [(Errno, Op, Source); 8] = [
    (Errno(5), Op::Read, Source::Bpf),
    (Errno(107), Op::Read, Source::Bpf),
    (Errno(116), Op::Read, Source::Bpf),
    (Errno(5), Op::Stat, Source::Probe),
    (Errno(107), Op::Stat, Source::Probe),
    (Errno(116), Op::Stat, Source::Probe),
    (Errno(5), Op::Writeback, Source::Bpf),
    (Errno(28), Op::Writeback, Source::Bpf),
];

/// What a plan that was cut off can end with when it is settled.
const SETTLED: [&str; 6] = ["already_so", "changed", "failed", "interrupted", "table_changed", "timed_out"];

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
    (format, capacity): (Format, usize),
) -> String {
    let mut volumes = BTreeMap::new();
    for volume in &snapshot.volumes {
        // Names are unique by validation. Should that ever fail, one volume is not shown, but the scrape stands.
        volumes.entry(volume.id.as_str()).or_insert(volume);
    }
    let scrape = Scrape { inner, snapshot, volumes, counts };
    let mut text = Text::new(format, capacity);
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
            Family::IncidentVolumes => self.incident_volumes(text, row),
            Family::Incidents => self.incidents(text, row),
            Family::MountEventsDropped => text.sample(row, &[], snapshot.mount_events_dropped),
            Family::MountTableBadLines => text.sample(row, &[], snapshot.bad_lines),
            Family::MountTableEntries => text.sample(row, &[], snapshot.scan.entries),
            Family::MountTableLimit => {
                if let Some(limit) = snapshot.scan.limit {
                    text.sample(row, &[], limit);
                }
            }
            Family::MountTableScanSeconds => text.sample(row, &[], snapshot.scan.took.as_secs_f64()),
            Family::ProbeAbandonedWorkers => text.sample(row, &[], snapshot.abandoned_workers),
            Family::RemediationStuckHelpers => text.sample(row, &[], snapshot.stuck_helpers),
            Family::ProbeIntervalSeconds => {
                self.each(|id, volume| text.sample(row, &[("volume", id)], volume.interval.as_secs_f64()));
            }
            Family::ProbeInflight => text.sample(row, &[], snapshot.probes_inflight),
            Family::StatePersistErrors => text.sample(row, &[], snapshot.persist_errors),
            Family::SourceUp => self.sources(text, row),
            Family::ProgramAttached => self.programs(text, row),
            Family::DetectionSeconds => histograms(text, row, &self.inner.detection),
            Family::RemediationDurationSeconds => histograms(text, row, &self.inner.remediation_duration),
            Family::RemediationGapSeconds => histograms(text, row, &self.inner.remediation_gap),
            Family::RemediationSuppressed => self.suppressed(text, row),
            Family::RemediationTotal => self.plans(text, row),
            Family::ProbeDurationSeconds => self.probe_durations(text, row),
            Family::ProbeTotal => self.each(|id, volume| self.probes(text, row, id, volume)),
            Family::ProbeStuckSeconds => self.each(|id, volume| self.stuck(text, row, id, volume)),
            Family::MountStackDepth => {
                self.each(|id, volume| text.sample(row, &[("volume", id)], volume.stack_depth));
            }
            Family::VolumeConditionReason => self.each(|id, volume| reasons(text, row, id, volume)),
            Family::VolumeDataLost => self.each(|id, volume| data_lost(text, row, id, volume)),
            Family::VolumeErrors => self.each(|id, volume| errors(text, row, id, volume)),
            Family::VolumeIncident => self.each(|id, volume| self.incident_of(text, row, id, volume)),
            Family::VolumeInfo => self.each(|id, volume| info(text, row, id, volume)),
            Family::VolumeLastOk => self.each(|id, volume| self.last_ok(text, row, id, volume)),
            Family::VolumePauseEnd => self.each(|id, volume| self.pause_end(text, row, id, volume)),
            Family::VolumeRepairHeld => self.each(|id, volume| held(text, row, id, volume)),
            Family::VolumeStateSince => self.each(|id, volume| self.since(text, row, id, volume)),
            Family::VolumeState => self.each(|id, volume| states(text, row, id, volume)),
        }
    }

    fn each(&self, mut write: impl FnMut(&str, &VolumeStatus)) {
        for (id, volume) in &self.volumes {
            write(id, volume);
        }
    }

    /// Those that are not over.
    fn open_incidents(&self) -> impl Iterator<Item = &Arc<Incident>> {
        self.snapshot.incidents.iter().filter(|incident| incident.ended.is_none())
    }

    fn incidents(&self, text: &mut Text, row: &Row) {
        for kind in CauseKind::ALL {
            let count = self.open_incidents().filter(|incident| incident.cause.kind == kind).count();
            text.sample(row, &[("kind", kind.label())], count);
        }
    }

    /// What two incidents have in common is one series.
    fn incident_volumes(&self, text: &mut Text, row: &Row) {
        // Not its list of members: that ends somewhere.
        let mut sick: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for incident in self.open_incidents() {
            let is_sick_in_it = |volume: &&&VolumeStatus| {
                let explains = |reason| incident.cause.kind.explains(reason);
                volume.incident == Some(incident.id)
                    && volume.condition.state.is_sick()
                    && volume.condition.reason.is_some_and(explains)
            };
            let still = self.volumes.values().filter(is_sick_in_it).count();
            let count = sick.entry((incident.cause.kind.label(), bounded_name(&incident.cause))).or_default();
            *count = count.saturating_add(u64::try_from(still).unwrap_or(u64::MAX));
        }
        for ((kind, name), count) in sick {
            text.sample(row, &[("kind", kind), ("name", name)], count);
        }
    }

    fn incident_of(&self, text: &mut Text, row: &Row, id: &str, volume: &VolumeStatus) {
        let own = volume.incident.and_then(|own| self.open_incidents().find(|incident| incident.id == own));
        for kind in CauseKind::ALL {
            let is_in = own.is_some_and(|incident| incident.cause.kind == kind);
            text.sample(row, &[("volume", id), ("kind", kind.label())], u8::from(is_in));
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

    /// Of a volume that no probe was timed of yet there are zeros; they are nobody's, so that nothing is to be forgotten
    /// when it goes.
    fn probe_durations(&self, text: &mut Text, row: &Row) {
        let timed = self.inner.probe_duration.collect();
        let timed = timed.iter().flat_map(|family| family.get_metric());
        let own: BTreeMap<&str, &Metric> =
            timed.filter_map(|metric| Some((metric.get_label().first()?.value(), metric))).collect();
        let none = self.inner.no_probe.collect();
        let none = none.iter().flat_map(|family| family.get_metric()).next();
        for id in self.volumes.keys() {
            if let Some(metric) = own.get(id).copied().or(none) {
                text.histogram(row, &[("volume", id)], metric.get_histogram());
            }
        }
    }

    /// Zeros for every volume that a plan can be made for: in mode `observe` a person may order one.
    fn plans(&self, text: &mut Text, row: &Row) {
        let outcomes = outcomes();
        self.each(|id, volume| {
            let mut plans = BTreeMap::new();
            let method = volume.method.as_ref().filter(|_| volume.mode != Mode::Off).map(words::method);
            if let Some(method) = method {
                // The unit of a daemon may be restarted in its place.
                let restart = volume.fstype.starts_with("fuse").then_some("systemd");
                for method in [Some(method), restart].into_iter().flatten() {
                    plans.extend(outcomes.iter().map(|outcome| ((method, *outcome), 0)));
                }
                plans.extend(SETTLED.map(|outcome| (("settle", outcome), 0)));
            }
            if let Some(counts) = self.counts.get(&volume.id) {
                plans.extend(&counts.plans);
            }
            for ((method, outcome), count) in plans {
                text.sample(row, &[("volume", id), ("method", method), ("outcome", outcome)], count);
            }
        });
    }

    fn stuck(&self, text: &mut Text, row: &Row, id: &str, volume: &VolumeStatus) {
        let stuck = volume.stuck_since.map(|since| self.snapshot.at.since(since)).unwrap_or_default();
        text.sample(row, &[("volume", id)], stuck.as_secs_f64());
    }

    fn since(&self, text: &mut Text, row: &Row, id: &str, volume: &VolumeStatus) {
        let condition = &volume.condition;
        let this_boot = || self.snapshot.clock().at(condition.since).epoch_seconds();
        let time = condition.since_wall.map_or_else(this_boot, |wall| wall.as_secs_f64());
        text.sample(row, &[("volume", id)], time);
    }

    fn pause_end(&self, text: &mut Text, row: &Row, id: &str, volume: &VolumeStatus) {
        let end = volume.pause.as_ref().and_then(|(pause, _)| pause.until);
        let time = end.map_or(0.0, |end| self.snapshot.clock().at(end).epoch_seconds());
        text.sample(row, &[("volume", id)], time);
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

/// As a label: without the number of the process, which is another one each time a daemon comes back.
fn bounded_name(cause: &Cause) -> &str {
    match cause.kind {
        CauseKind::Daemon => cause.name.split_once(" (process ").map_or("unknown", |(program, _)| program),
        CauseKind::Device | CauseKind::Server => &cause.name,
    }
}

fn data_lost(text: &mut Text, row: &Row, id: &str, volume: &VolumeStatus) {
    for (acknowledged, is_open) in NO_YES.into_iter().zip([true, false]) {
        let is_it = volume.loss.as_ref().is_some_and(|loss| loss.is_open() == is_open);
        text.sample(row, &[("volume", id), ("acknowledged", acknowledged)], u8::from(is_it));
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
    let labels: Labels<'_> = &[
        ("volume", id),
        ("mountpoint", &mountpoint),
        ("fstype", &volume.fstype),
        ("device", &device),
        ("server", &volume.server),
        ("mode", words::mode(volume.mode)),
        // There is no client of Kubernetes. Prometheus drops a label that is empty.
        ("namespace", ""),
        ("persistentvolumeclaim", ""),
    ];
    text.sample(row, labels, 1);
}

fn held(text: &mut Text, row: &Row, id: &str, volume: &VolumeStatus) {
    let by = volume.held_up.as_ref().map(|held_up| Suppression::of(held_up.hold));
    for cause in Suppression::HOLDS {
        let holds = by == Some(cause) || (cause == Suppression::Paused && volume.pause.is_some());
        text.sample(row, &[("volume", id), ("cause", cause.label())], u8::from(holds));
    }
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
