//! What the event loop remembers for exporters beside the engine's own state.

use std::collections::BTreeMap;

use agent_core::status::VolumeStatus;

use crate::export::Snapshot;
use crate::sensor::{ProgramStatus, ScanStats, SourceName, SourceState};
use crate::sys::clock;

/// Facts about the agent itself.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) sources: BTreeMap<SourceName, SourceState>,
    pub(super) programs: Vec<ProgramStatus>,
    pub(super) scan: ScanStats,
    pub(super) bad_lines: u64,
    pub(super) records_dropped: u64,
    pub(super) mount_events_dropped: u64,
    pub(super) probes_inflight: usize,
    pub(super) abandoned_workers: usize,
    pub(super) persist_errors: u64,
    /// Whether changes of sources are logged.
    log: bool,
}

impl Facts {
    /// Every source exists from the start, at "not started".
    pub(super) fn new() -> Self {
        let off = |name| (name, SourceState::Off("not started".to_owned()));
        Self {
            sources: SourceName::ALL.into_iter().map(off).collect(),
            programs: Vec::new(),
            scan: ScanStats::default(),
            bad_lines: 0,
            records_dropped: 0,
            mount_events_dropped: 0,
            probes_inflight: 0,
            abandoned_workers: 0,
            persist_errors: 0,
            log: true,
        }
    }

    /// The same, for a command that prints what it finds instead of logging it.
    pub(super) fn silent() -> Self {
        Self { log: false, ..Self::new() }
    }

    /// Takes in the state of a source and says it once, when it is new.
    pub(super) fn source(&mut self, name: SourceName, state: SourceState) {
        if self.sources.get(&name) == Some(&state) {
            return;
        }
        match &state {
            _ if !self.log => {}
            SourceState::Running => tracing::info!(source = name.label(), "Source is up"),
            SourceState::Degraded(reason) => {
                tracing::warn!(
                    source = name.label(),
                    reason,
                    "Source works in part, continuing with the rest"
                );
            }
            SourceState::Off(reason) => {
                tracing::warn!(source = name.label(), reason, "Source is down, continuing without it");
            }
        }
        self.sources.insert(name, state);
    }

    /// Everything, together with the volumes, as it is now.
    pub(super) fn snapshot(&self, volumes: Vec<VolumeStatus>, ready: bool) -> Snapshot {
        Snapshot {
            at: clock::now(),
            wall: clock::wall(),
            volumes,
            sources: self.sources.clone(),
            programs: self.programs.clone(),
            scan: self.scan,
            bad_lines: self.bad_lines,
            records_dropped: self.records_dropped,
            mount_events_dropped: self.mount_events_dropped,
            probes_inflight: self.probes_inflight,
            abandoned_workers: self.abandoned_workers,
            persist_errors: self.persist_errors,
            ready,
        }
    }
}
