//! Metrics: the counters that events move, and the text that a scrape gets.
//!
//! Two kinds of series. What is a fact of the moment, or a total that the engine keeps, is read from the
//! snapshot when it is scraped. What only an event tells (probes, plans, transitions) is counted here. A scrape
//! reads memory only and holds nobody up.
//!
//! Life of a series: it is there at zero as soon as its volume is in the snapshot, stays while the volume is
//! stuck or missing, and goes when the snapshot no longer has the volume. What was counted for it is forgotten a
//! moment later, whether anybody scrapes or not.
//!
//! Trade-off: histograms and the unlabelled counters are objects of the crate `prometheus`. The counters per
//! volume are plain numbers: such an object was measured to take 690 bytes, and a volume has eight and more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::engine::Transition;
use agent_core::id::VolumeId;
use agent_core::observation::{PlanReport, ProbeReport, ProbeResult};
use agent_core::remediation::Plan;
use agent_core::status::Hold;
use agent_core::time::Monotonic;
use agent_core::verdict::HealthState;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounterVec, Opts};

use super::text::Format;
use super::{Snapshot, words};

pub mod labels;
pub mod table;

mod render;

use table::{Family, row_of};

/// Bounds for probes: attribute reads of a local disk up to the longest usual deadline.
const PROBE_BOUNDS: [f64; 8] = [0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 3.0, 10.0];
/// Bounds for the detection time, whose targets are 20 ms (median) and 100 ms.
const DETECTION_BOUNDS: [f64; 10] = [0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0];
/// Bounds for plans, most of which is the mount helper's own time.
const PLAN_BOUNDS: [f64; 9] = [0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];
/// Bounds for gaps. The first counts what is no gap at all.
const GAP_BOUNDS: [f64; 8] = [0.0, 0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 60.0];

/// Why a repair that is due is not begun: the label `cause`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suppression {
    /// The volume's mode is `dry-run`.
    DryRun,
    /// The volume falls again and again: the repair waits.
    Flapping,
    /// The hook puts it off.
    Hook,
    /// Somebody else heals the volume, or has just changed what is mounted there.
    OtherHealer,
    /// The server cannot be reached.
    ServerUnreachable,
    /// A person has stopped repairs.
    Paused,
}

impl Suppression {
    /// Every cause.
    pub const ALL: [Self; 6] =
        [Self::DryRun, Self::Flapping, Self::Hook, Self::OtherHealer, Self::ServerUnreachable, Self::Paused];

    /// Those that hold back for a while, as long as they last: the others are told only when they have done so.
    pub const HOLDS: [Self; 4] = [Self::Hook, Self::OtherHealer, Self::Paused, Self::ServerUnreachable];

    /// What a repair that is due waits for.
    #[must_use]
    pub const fn of(hold: Hold) -> Self {
        match hold {
            Hold::Healer | Hold::Change => Self::OtherHealer,
            Hold::Server => Self::ServerUnreachable,
            Hold::Hook => Self::Hook,
        }
    }

    /// The bounded label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::DryRun => "dry_run",
            Self::Flapping => "flapping",
            Self::Hook => "hook",
            Self::OtherHealer => "other_healer",
            Self::ServerUnreachable => "server_unreachable",
            Self::Paused => "paused",
        }
    }
}

/// The handle: cheap to clone, every clone counts into the same series.
#[derive(Clone, Debug)]
pub struct Metrics {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    detection: Histogram,
    probe_duration: HistogramVec,
    /// What is shown of a volume that no probe was timed of.
    no_probe: Histogram,
    remediation_duration: HistogramVec,
    remediation_gap: Histogram,
    remediation_suppressed: IntCounterVec,
    volumes: Mutex<BTreeMap<VolumeId, VolumeCounts>>,
    /// The size of the last text, so that the next one is allocated once.
    last_size: AtomicUsize,
}

/// What events have counted for one volume.
#[derive(Clone, Debug, Default)]
struct VolumeCounts {
    probes: [u64; words::PROBE_RESULTS.len()],
    /// By method and outcome.
    plans: BTreeMap<(&'static str, &'static str), u64>,
    /// The last event. A volume that is not in a snapshot taken after it has vanished.
    last_event: Monotonic,
}

impl Metrics {
    /// Counters at zero.
    ///
    /// # Errors
    /// When the table holds a name that Prometheus does not accept: a fault of this program.
    pub fn new() -> Result<Self, prometheus::Error> {
        let remediation_duration = histograms(Family::RemediationDurationSeconds, &PLAN_BOUNDS)?;
        for method in words::METHODS {
            remediation_duration.get_metric_with_label_values(&[method])?;
        }
        let (name, help) = name_and_help(Family::RemediationSuppressed);
        let remediation_suppressed = IntCounterVec::new(Opts::new(name, help), &["cause"])?;
        let inner = Inner {
            detection: histogram(Family::DetectionSeconds, &DETECTION_BOUNDS)?,
            probe_duration: histograms(Family::ProbeDurationSeconds, &PROBE_BOUNDS)?,
            no_probe: histogram(Family::ProbeDurationSeconds, &PROBE_BOUNDS)?,
            remediation_duration,
            remediation_gap: histogram(Family::RemediationGapSeconds, &GAP_BOUNDS)?,
            remediation_suppressed,
            volumes: Mutex::default(),
            last_size: AtomicUsize::new(0),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// A condition changed. Only a fall into `degraded` that began with an error in the kernel has a detection
    /// time; a failed repair of a volume that was sick already has none.
    pub fn observe_transition(&self, transition: &Transition) {
        let is_detection = transition.to == HealthState::Degraded && !transition.from.is_sick();
        if let (true, Some(evidence)) = (is_detection, transition.evidence_at) {
            self.inner.detection.observe(transition.at.since(evidence).as_secs_f64());
        }
    }

    /// A probe answered, or passed its deadline.
    pub fn observe_probe(&self, report: &ProbeReport) {
        // Held to the end: a scrape that removes the volume must not come between the two counts.
        let mut volumes = self.volumes();
        let counts = volumes.entry(report.volume.clone()).or_default();
        counts.last_event = counts.last_event.max(report.started + report.took);
        if let Some(count) = counts.probes.get_mut(words::probe_result_index(&report.result)) {
            *count += 1;
        }
        // A look that was not made took no time.
        if !matches!(report.result, ProbeResult::NotRun(_))
            && let Ok(durations) =
                self.inner.probe_duration.get_metric_with_label_values(&[report.volume.as_str()])
        {
            durations.observe(report.took.as_secs_f64());
        }
    }

    /// A plan ended.
    pub fn observe_plan(&self, plan: &Plan, report: &PlanReport) {
        let method = words::plan_method(plan);
        if let Ok(durations) = self.inner.remediation_duration.get_metric_with_label_values(&[method]) {
            durations.observe(report.took.as_secs_f64());
        }
        if let Some(gap) = report.gap {
            self.inner.remediation_gap.observe(gap.as_secs_f64());
        }
        let mut volumes = self.volumes();
        let counts = volumes.entry(plan.volume.clone()).or_default();
        counts.last_event = counts.last_event.max(crate::sys::clock::now());
        *counts.plans.entry((method, report.outcome.label())).or_default() += 1;
    }

    /// A plan was made and is not carried out.
    pub fn suppressed(&self, cause: Suppression) {
        if let Ok(counter) = self.inner.remediation_suppressed.get_metric_with_label_values(&[cause.label()])
        {
            counter.inc();
        }
    }

    /// The text of a scrape.
    #[must_use]
    pub fn render(&self, snapshot: &Snapshot, format: Format) -> String {
        let volumes = self.counts_of(snapshot);
        let capacity = self.inner.last_size.load(Ordering::Relaxed).saturating_add(1024);
        let text = render::render(&self.inner, snapshot, &volumes, (format, capacity));
        self.inner.last_size.store(text.len(), Ordering::Relaxed);
        text
    }

    fn counts_of(&self, snapshot: &Snapshot) -> BTreeMap<VolumeId, VolumeCounts> {
        let volumes = self.volumes();
        let counts = |id: &VolumeId| volumes.get(id).cloned().unwrap_or_default();
        snapshot.volumes.iter().map(|volume| (volume.id.clone(), counts(&volume.id))).collect()
    }

    /// Forgets what was counted for volumes that have vanished.
    pub fn forget_vanished(&self, snapshot: &Snapshot) {
        let present: BTreeSet<&VolumeId> = snapshot.volumes.iter().map(|volume| &volume.id).collect();
        self.volumes().retain(|volume, counts| {
            // An event later than the snapshot may belong to a volume that only the next snapshot knows.
            let stays = present.contains(volume) || counts.last_event > snapshot.at;
            if !stays {
                // It may never have had one; then there is nothing to remove.
                let _ = self.inner.probe_duration.remove_label_values(&[volume.as_str()]);
            }
            stays
        });
    }

    fn volumes(&self) -> MutexGuard<'_, BTreeMap<VolumeId, VolumeCounts>> {
        // Counters are whole after every statement: a panic elsewhere does not spoil them.
        self.inner.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name_and_help(family: Family) -> (&'static str, &'static str) {
    row_of(family).map_or(("", ""), |row| (row.name, row.help))
}

fn options(family: Family, bounds: &[f64]) -> HistogramOpts {
    let (name, help) = name_and_help(family);
    HistogramOpts::new(name, help).buckets(bounds.to_vec())
}

fn histogram(family: Family, bounds: &[f64]) -> Result<Histogram, prometheus::Error> {
    Histogram::with_opts(options(family, bounds))
}

fn histograms(family: Family, bounds: &[f64]) -> Result<HistogramVec, prometheus::Error> {
    HistogramVec::new(options(family, bounds), row_of(family).map_or(&[], |row| row.labels))
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod page;

#[cfg(test)]
pub(crate) mod strict;
