//! The one table of metrics: name, kind, unit, labels, stability, help. Sorted by name. What is not here is not
//! exported, and a row that nobody fills does not compile. `labels.rs` says what the labels mean;
//! docs/METRICS.md is made of both.

/// What a metric is to Prometheus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only goes up.
    Counter,
    /// Counts by size.
    Histogram,
}

impl Kind {
    /// The word of the text format.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
        }
    }
}

/// How far a name may be relied on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stability {
    /// Name and labels stay until the next major version.
    Stable,
    /// May change with any version; follows the kernel or the inside of the agent.
    Internal,
}

impl Stability {
    /// The word of the page.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Internal => "internal",
        }
    }
}

/// Units that a name may end with. OpenMetrics tells them apart from the name.
const UNITS: [&str; 1] = ["seconds"];

/// The family of a row, for whoever fills it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    BlockedTasks,
    BuildInfo,
    ConsumerStaleMounts,
    DetectionSeconds,
    EbpfRecordsDropped,
    EbpfRunsSkipped,
    IncidentVolumes,
    Incidents,
    MountEventsDropped,
    MountStackDepth,
    MountTableBadLines,
    MountTableEntries,
    MountTableLimit,
    MountTableScanSeconds,
    ProbeAbandonedWorkers,
    ProbeDurationSeconds,
    ProbeInflight,
    ProbeIntervalSeconds,
    ProbeStuckSeconds,
    ProbeTotal,
    ProgramAttached,
    RemediationDurationSeconds,
    RemediationGapSeconds,
    RemediationStuckHelpers,
    RemediationSuppressed,
    RemediationTotal,
    SourceUp,
    StaleOpenFiles,
    StatePersistErrors,
    VolumeConditionReason,
    VolumeDataLost,
    VolumeErrors,
    VolumeIncident,
    VolumeInfo,
    VolumeLastOk,
    VolumePauseEnd,
    VolumeRepairHeld,
    VolumeState,
    VolumeStateSince,
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name, with the prefix.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Its labels, in order.
    pub labels: &'static [&'static str],
    /// How far it may be relied on.
    pub stability: Stability,
    /// One sentence.
    pub help: &'static str,
    pub(crate) family: Family,
}

impl Row {
    /// The name without the suffix of counters: what OpenMetrics calls the family.
    #[must_use]
    pub fn base(&self) -> &'static str {
        self.name.strip_suffix("_total").unwrap_or(self.name)
    }

    /// What is counted, where that is no mere number.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        UNITS.into_iter().find(|unit| self.base().strip_suffix(unit).is_some_and(|rest| rest.ends_with('_')))
    }
}

const fn row(
    family: Family,
    name: &'static str,
    (kind, stability): (Kind, Stability),
    labels: &'static [&'static str],
    help: &'static str,
) -> Row {
    Row { name, kind, labels, stability, help, family }
}

const STABLE_GAUGE: (Kind, Stability) = (Kind::Gauge, Stability::Stable);
const STABLE_COUNTER: (Kind, Stability) = (Kind::Counter, Stability::Stable);
const STABLE_HISTOGRAM: (Kind, Stability) = (Kind::Histogram, Stability::Stable);
const INTERNAL_COUNTER: (Kind, Stability) = (Kind::Counter, Stability::Internal);
const INTERNAL_GAUGE: (Kind, Stability) = (Kind::Gauge, Stability::Internal);

/// Every metric.
pub const TABLE: &[Row] = &[
    row(
        Family::BlockedTasks,
        "mountie_blocked_tasks",
        STABLE_GAUGE,
        &["volume"],
        "Tasks that wait in a system call on the volume, in the same call since an earlier census.",
    ),
    row(
        Family::BuildInfo,
        "mountie_build_info",
        STABLE_GAUGE,
        &["version"],
        "Always 1; the version of the agent.",
    ),
    row(
        Family::ConsumerStaleMounts,
        "mountie_consumer_stale_mounts",
        STABLE_GAUGE,
        &["volume"],
        "Mounts, in any namespace, that still show what the volume showed before it was replaced.",
    ),
    row(
        Family::DetectionSeconds,
        "mountie_detection_seconds",
        STABLE_HISTOGRAM,
        &[],
        "Time from the first error in the kernel to the state degraded.",
    ),
    row(
        Family::EbpfRecordsDropped,
        "mountie_ebpf_records_dropped_total",
        STABLE_COUNTER,
        &["cause"],
        "Records of errors that were lost. With the causes counters, names, refused, faults and fanotify errors are \
         not counted; with ring and agent only calls on names are not, the other counts are complete.",
    ),
    row(
        Family::EbpfRunsSkipped,
        "mountie_ebpf_runs_skipped_total",
        INTERNAL_COUNTER,
        &["program"],
        "Runs of a program that the kernel skipped while another task was stopped in it on the same processor; calls \
         that failed just then are not counted.",
    ),
    row(
        Family::IncidentVolumes,
        "mountie_incident_volumes",
        STABLE_GAUGE,
        &["kind", "name"],
        "Volumes that are sick now in an incident that goes on, by the server, device or FUSE daemon that they have in \
         common; there is a series for each incident, and none where there is no incident.",
    ),
    row(
        Family::Incidents,
        "mountie_incidents",
        STABLE_GAUGE,
        &["kind"],
        "Servers, devices and FUSE daemons for whose sake several volumes are sick together now.",
    ),
    row(
        Family::MountEventsDropped,
        "mountie_mount_events_dropped_total",
        STABLE_COUNTER,
        &[],
        "Mount events lost to an overflow of the kernel's queue; each overflow is followed by a full scan.",
    ),
    row(
        Family::MountStackDepth,
        "mountie_mount_stack_depth",
        STABLE_GAUGE,
        &["volume"],
        "Mounts at exactly the volume's mount point; 0 when nothing is mounted there.",
    ),
    row(
        Family::MountTableBadLines,
        "mountie_mount_table_bad_lines_total",
        STABLE_COUNTER,
        &[],
        "Lines of the mount table that could not be understood.",
    ),
    row(
        Family::MountTableEntries,
        "mountie_mount_table_entries",
        STABLE_GAUGE,
        &[],
        "Mounts in the table at the last scan.",
    ),
    row(
        Family::MountTableLimit,
        "mountie_mount_table_limit",
        STABLE_GAUGE,
        &[],
        "Mounts that the table may have (the sysctl fs.mount-max): at the limit every further mount fails with ENOSPC. \
         Missing where the kernel does not say.",
    ),
    row(
        Family::MountTableScanSeconds,
        "mountie_mount_table_scan_seconds",
        STABLE_GAUGE,
        &[],
        "Time that the last scan of the mount table took.",
    ),
    row(
        Family::ProbeAbandonedWorkers,
        "mountie_probe_abandoned_workers",
        STABLE_GAUGE,
        &[],
        "Worker processes that missed their deadline and have not ended.",
    ),
    row(
        Family::ProbeDurationSeconds,
        "mountie_probe_duration_seconds",
        STABLE_HISTOGRAM,
        &["volume"],
        "Time that probes took; one that missed its deadline counts with its deadline.",
    ),
    row(Family::ProbeInflight, "mountie_probe_inflight", STABLE_GAUGE, &[], "Probes that are out now."),
    row(
        Family::ProbeIntervalSeconds,
        "mountie_probe_interval_seconds",
        STABLE_GAUGE,
        &["volume"],
        "The longest time between two probes while nothing speaks against the volume: its interval, and more where an \
         automount is left alone.",
    ),
    row(
        Family::ProbeStuckSeconds,
        "mountie_probe_stuck_seconds",
        STABLE_GAUGE,
        &["volume"],
        "Age of a probe that missed its deadline and has not come back; 0 when there is none.",
    ),
    row(
        Family::ProbeTotal,
        "mountie_probe_total",
        STABLE_COUNTER,
        &["volume", "result"],
        "Probes by result; not_run says nothing about the volume.",
    ),
    row(
        Family::ProgramAttached,
        "mountie_program_attached",
        INTERNAL_GAUGE,
        &["program", "family"],
        "1 when the kernel program is attached.",
    ),
    row(
        Family::RemediationDurationSeconds,
        "mountie_remediation_duration_seconds",
        STABLE_HISTOGRAM,
        &["method"],
        "Time that plans took, whatever their outcome.",
    ),
    row(
        Family::RemediationGapSeconds,
        "mountie_remediation_gap_seconds",
        STABLE_HISTOGRAM,
        &[],
        "How long a mount point showed neither the old nor the new file system.",
    ),
    row(
        Family::RemediationStuckHelpers,
        "mountie_remediation_stuck_helpers",
        STABLE_GAUGE,
        &[],
        "Children of repairs, and helpers of theirs, that were killed and have not ended; no other is started for the \
         same volume or server.",
    ),
    row(
        Family::RemediationSuppressed,
        "mountie_remediation_suppressed_total",
        STABLE_COUNTER,
        &["cause"],
        "Repairs that were due and not begun: mode dry-run, paused by a person, or waiting because the volume flaps, the hook puts it off, somebody else heals it, or its server cannot be reached.",
    ),
    row(
        Family::RemediationTotal,
        "mountie_remediation_total",
        STABLE_COUNTER,
        &["volume", "method", "outcome"],
        "Plans that ended, by outcome; changed and already_so are successes.",
    ),
    row(
        Family::SourceUp,
        "mountie_source_up",
        STABLE_GAUGE,
        &["source"],
        "1 when the source works in full, 0.5 when it works in part or loses records, 0 when it does not work; mountie doctor says why.",
    ),
    row(
        Family::StaleOpenFiles,
        "mountie_stale_open_files",
        STABLE_GAUGE,
        &["volume"],
        "Files that are open on what the volume showed before it was replaced.",
    ),
    row(
        Family::StatePersistErrors,
        "mountie_state_persist_errors_total",
        STABLE_COUNTER,
        &[],
        "Failures to write state; the agent goes on from memory.",
    ),
    row(
        Family::VolumeConditionReason,
        "mountie_volume_condition_reason",
        STABLE_GAUGE,
        &["volume", "reason"],
        "1 for the reason of the state, and for each advice: full, inaccessible, slow, idle, flapping, damaged.",
    ),
    row(
        Family::VolumeDataLost,
        "mountie_volume_data_lost",
        STABLE_GAUGE,
        &["volume", "acknowledged"],
        "1 while the mount that is there has lost data that was written, whatever else is wrong with it; another mount \
         has lost none. mountie_volume_errors_total with the operation writeback counts on.",
    ),
    row(
        Family::VolumeErrors,
        "mountie_volume_errors_total",
        STABLE_COUNTER,
        &["volume", "errno", "op", "source"],
        "Failed operations on the volume since the agent started; evidence, not a verdict. The operations request, device, filesystem and writeback are other sights of failures that calls may have met as well: do not add them to those. either is a call on two files of which only one need have failed. What the source bpf_name counts was placed by the text of a name: where a symbolic link leads to another volume, it was there. A store to a mapped file that fails (fault) tells no errno: it may be lack of room.",
    ),
    row(
        Family::VolumeIncident,
        "mountie_volume_incident",
        STABLE_GAUGE,
        &["volume", "kind"],
        "1 while the volume is part of an incident: sick, or not long well, for the sake of a server, device or FUSE \
         daemon that others have in common with it.",
    ),
    row(
        Family::VolumeInfo,
        "mountie_volume_info",
        STABLE_GAUGE,
        &["volume", "mountpoint", "fstype", "device", "server", "mode", "namespace", "persistentvolumeclaim"],
        "Always 1; what the volume is, and what the agent may do. The device is empty when nothing is mounted, the \
         server where there is none, and the last two always: the agent asks no Kubernetes.",
    ),
    row(
        Family::VolumeLastOk,
        "mountie_volume_last_ok_timestamp_seconds",
        STABLE_GAUGE,
        &["volume"],
        "When a probe was last good, since the epoch; 0 when none was since the agent started.",
    ),
    row(
        Family::VolumePauseEnd,
        "mountie_volume_pause_end_timestamp_seconds",
        STABLE_GAUGE,
        &["volume"],
        "When the pause of its repairs ends by itself, since the epoch; 0 when they are not paused, or without an end.",
    ),
    row(
        Family::VolumeRepairHeld,
        "mountie_volume_repair_held",
        STABLE_GAUGE,
        &["volume", "cause"],
        "1 while the cause keeps repairs of the volume from beginning. A pause holds also while nothing is to be repaired.",
    ),
    row(
        Family::VolumeState,
        "mountie_volume_state",
        STABLE_GAUGE,
        &["volume", "state"],
        "1 for the state of the volume, 0 for every other state.",
    ),
    row(
        Family::VolumeStateSince,
        "mountie_volume_state_since_timestamp_seconds",
        STABLE_GAUGE,
        &["volume"],
        "Since when state and reason are what they are, since the epoch; also over a restart of the agent.",
    ),
];

/// The row of a family, for those who need its name.
pub(crate) fn row_of(family: Family) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.family == family)
}
