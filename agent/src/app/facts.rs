//! What the event loop remembers for exporters beside the engine's own state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent_core::incident::Incident;
use agent_core::status::VolumeStatus;
use agent_core::time::Monotonic;

use crate::export::Snapshot;
use crate::probe::Stats;
use crate::sensor::{LossCause, ProgramState, ProgramStatus, ScanStats, SourceName, SourceState};
use crate::sys::clock;
use crate::sys::mount_limit::Approach;
use crate::telemetry::flood::{Flood, LeftOut, NODE, SUBJECT, Short};

/// Paths of cgroups that are kept, about.
const CGROUPS: usize = 4096;

/// Facts about the agent itself.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) sources: BTreeMap<SourceName, SourceState>,
    pub(super) programs: Vec<ProgramStatus>,
    /// Paths of cgroups, by id.
    pub(super) cgroups: Arc<BTreeMap<u64, String>>,
    pub(super) scan: ScanStats,
    /// Whether it was said that the table is near its limit.
    approach: Approach,
    pub(super) bad_lines: u64,
    pub(super) runs_skipped: BTreeMap<&'static str, u64>,
    pub(super) records_dropped: BTreeMap<LossCause, u64>,
    pub(super) mount_events_dropped: u64,
    pub(super) probes_inflight: usize,
    pub(super) abandoned_workers: usize,
    pub(super) stuck_helpers: usize,
    pub(super) persist_errors: u64,
    /// How long a person waits for a look.
    pub(super) check_deadline: Duration,
    /// Whether changes of sources are logged.
    log: bool,
    /// How often they were.
    told: Flood<SourceName, SourceState>,
}

impl Short for SourceState {
    fn after(self, _: Self) -> Self {
        self
    }
}

fn log_source(name: SourceName, state: &SourceState) {
    let source = name.label();
    match state {
        SourceState::Running => tracing::info!(source, "Source is up"),
        SourceState::Degraded(reason) => {
            tracing::warn!(source, reason, "Source works in part, continuing with the rest");
        }
        SourceState::Off(reason) => {
            tracing::warn!(source, reason, "Source is down, continuing without it");
        }
    }
}

fn log_left_out(name: SourceName, left_out: &LeftOut<SourceState>, now: Monotonic) {
    let LeftOut { count, since, last } = left_out;
    let seconds = now.since(*since).as_secs();
    tracing::warn!(source = name.label(), count, seconds, "Lines about a source were left out");
    log_source(name, last);
}

impl Facts {
    /// Every source exists from the start, at "not started".
    pub(super) fn new() -> Self {
        let off = |name| (name, SourceState::Off("not started".to_owned()));
        Self {
            sources: SourceName::ALL.into_iter().map(off).collect(),
            programs: Vec::new(),
            cgroups: Arc::default(),
            scan: ScanStats::default(),
            approach: Approach::default(),
            bad_lines: 0,
            runs_skipped: BTreeMap::new(),
            records_dropped: BTreeMap::new(),
            mount_events_dropped: 0,
            probes_inflight: 0,
            abandoned_workers: 0,
            stuck_helpers: 0,
            persist_errors: 0,
            check_deadline: Duration::ZERO,
            log: true,
            told: Flood::new(SUBJECT, NODE),
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
        if self.log && self.told.admits(&name, state.clone(), clock::now()) {
            log_source(name, &state);
        }
        self.sources.insert(name, state);
    }

    /// Tells of sources that go up and down how often they did and how they are, where there is room for it now.
    pub(super) fn settle_log(&mut self) {
        let now = clock::now();
        for (name, left_out) in self.told.due(now) {
            log_left_out(name, &left_out, now);
        }
    }

    /// Tells all that was left out about sources: the agent ends.
    pub(super) fn finish_log(&mut self) {
        let now = clock::now();
        for (name, left_out) in self.told.rest() {
            log_left_out(name, &left_out, now);
        }
    }

    /// Takes in what a scan of the mount table was like.
    pub(super) fn scan(&mut self, stats: ScanStats) {
        // A line that stays bad is one bad line, however often it is read.
        self.bad_lines += stats.bad_lines.saturating_sub(self.scan.bad_lines);
        self.scan = stats;
        let mounts = u64::try_from(stats.entries).unwrap_or(u64::MAX);
        if let Some(limit) = stats.limit.filter(|limit| self.approach.is_news(mounts, *limit))
            && self.log
        {
            tracing::warn!(
                mounts,
                limit,
                "Mount table is more than half full; at the limit (sysctl fs.mount-max) every further mount fails, of \
                 containers and of repairs too"
            );
        }
    }

    /// Takes in how the pool of workers does. At its cap, or where no worker starts, nobody is looked at: that is no
    /// volume's fault, and must not go unnoticed.
    pub(super) fn take_probes(&mut self, stats: &Stats) {
        self.probes_inflight = stats.inflight;
        self.abandoned_workers = stats.abandoned;
        // Without the number of workers: that changes, and each change would be told anew.
        let state = if stats.is_at_cap {
            SourceState::Off(
                "as many workers hang in calls that do not return as may: no volume is looked at until one of them \
                 comes back; `mountie status` shows which volumes hang"
                    .to_owned(),
            )
        } else if let Some(error) = &stats.start_error {
            SourceState::Off(format!("{error}; volumes are not looked at until a worker starts"))
        } else {
            SourceState::Running
        };
        self.source(SourceName::Probes, state);
    }

    /// Takes in how many helpers of repairs cannot be ended, and says so when there are more: they wait in the kernel,
    /// and only what they wait for can let them go.
    pub(super) fn take_stuck_helpers(&mut self, count: usize) {
        if self.log && count > self.stuck_helpers {
            tracing::warn!(
                count,
                "Helpers of repairs were killed and have not ended, no other is started in their place"
            );
        }
        self.stuck_helpers = count;
    }

    /// Takes in what became of a kernel program after the start.
    pub(super) fn program(&mut self, status: ProgramStatus) {
        match &status.state {
            _ if !self.log => {}
            ProgramState::Attached => {
                tracing::info!(program = status.program, "Kernel program is attached now");
            }
            ProgramState::Failed(reason) => {
                tracing::warn!(
                    program = status.program,
                    reason,
                    "Kernel program fails, continuing without it"
                );
            }
            ProgramState::NotChosen(_)
            | ProgramState::Waits(_)
            | ProgramState::Covered(_)
            | ProgramState::Forgone(_)
            | ProgramState::Absent(_) => {
                tracing::info!(program = status.program, state = ?status.state, "Kernel program is not attached");
            }
        }
        for row in self.programs.iter_mut().filter(|row| row.program == status.program) {
            row.state.clone_from(&status.state);
        }
    }

    /// Takes in paths of cgroups. Ids come back for others: old ones are not kept for ever. Says whether those from
    /// before were dropped, for who asks for each only once.
    pub(super) fn name_cgroups(&mut self, found: BTreeMap<u64, String>) -> bool {
        let known = Arc::make_mut(&mut self.cgroups);
        let is_full = known.len() >= CGROUPS;
        if is_full {
            known.clear();
        }
        known.extend(found);
        is_full
    }

    /// Everything, together with the volumes, as it is now.
    pub(super) fn snapshot(
        &self,
        volumes: Vec<VolumeStatus>,
        incidents: Vec<Arc<Incident>>,
        ready: bool,
    ) -> Snapshot {
        Snapshot {
            at: clock::now(),
            wall: clock::wall(),
            volumes,
            incidents,
            sources: self.sources.clone(),
            programs: self.programs.clone(),
            cgroups: Arc::clone(&self.cgroups),
            scan: self.scan,
            bad_lines: self.bad_lines,
            runs_skipped: self.runs_skipped.clone(),
            records_dropped: self.records_dropped.clone(),
            mount_events_dropped: self.mount_events_dropped,
            probes_inflight: self.probes_inflight,
            abandoned_workers: self.abandoned_workers,
            stuck_helpers: self.stuck_helpers,
            persist_errors: self.persist_errors,
            check_deadline: self.check_deadline,
            ready,
            progress: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::Mutex;

    use super::*;

    /// Keeps what is logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log_of(act: impl FnOnce()) -> String {
        let log = Log::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, act);
        String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn the_cap_on_workers_that_hang_is_told_once_and_so_is_its_end() {
        let mut facts = Facts::new();
        let at_cap = |abandoned| Stats { abandoned, is_at_cap: true, ..Stats::default() };
        let log = log_of(|| {
            for stats in [Stats::default(), at_cap(64), at_cap(65), Stats::default()] {
                facts.take_probes(&stats);
            }
        });
        assert_eq!(log.matches("as many workers hang").count(), 1, "{log}");
        assert_eq!(log.matches("Source is up").count(), 2, "{log}");
    }

    #[test]
    fn a_source_that_flaps_is_told_with_how_it_is_when_the_agent_ends() {
        let mut facts = Facts::new();
        let log = log_of(|| {
            for number in 0..100 {
                facts.source(SourceName::Probes, SourceState::Off(format!("number {number}")));
            }
            facts.finish_log();
        });
        assert!(log.contains("Lines about a source were left out") && log.contains("count=40"), "{log}");
        assert!(log.lines().last().unwrap().contains("number 99"), "{log}");
    }

    #[test]
    fn probes_are_down_while_no_worker_starts_and_the_reason_is_told() {
        let mut facts = Facts::silent();
        let failing =
            Stats { start_error: Some("cannot start a probe worker: EAGAIN".into()), ..Stats::default() };
        facts.take_probes(&failing);
        let state = facts.sources.get(&SourceName::Probes);
        assert!(matches!(state, Some(SourceState::Off(reason)) if reason.contains("EAGAIN")), "{state:?}");
        facts.take_probes(&Stats::default());
        assert_eq!(facts.sources.get(&SourceName::Probes), Some(&SourceState::Running));
    }

    /// What is logged when a program is attached.
    fn said(mut facts: Facts) -> String {
        let waits = ProgramState::Waits("the module `xfs` is not loaded".into());
        let program = |state| ProgramStatus {
            program: "xfs_force_shutdown",
            family: "always",
            hook: "xfs_force_shutdown",
            lost_without: "shutdowns",
            fallback: "probes only",
            state,
        };
        facts.programs = vec![program(waits)];
        let log = log_of(|| facts.program(program(ProgramState::Attached)));
        assert_eq!(facts.programs, [program(ProgramState::Attached)]);
        log
    }

    #[test]
    fn a_program_that_is_attached_later_is_said_unless_nothing_is() {
        assert!(said(Facts::new()).contains("is attached now"));
        assert_eq!(said(Facts::silent()), "");
    }

    #[test]
    fn paths_of_cgroups_are_dropped_together_and_that_is_said() {
        let mut facts = Facts::silent();
        let named = |ids: std::ops::Range<u64>| ids.map(|id| (id, format!("/{id}"))).collect();
        assert!(!facts.name_cgroups(named(0..4096)));
        assert!(facts.name_cgroups(named(5000..5001)));
        assert_eq!(facts.cgroups.keys().copied().collect::<Vec<_>>(), [5000]);
        assert!(!facts.name_cgroups(named(1..2)));
    }
}
