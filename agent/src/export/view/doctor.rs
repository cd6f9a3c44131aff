//! What works on this host and what does not: the answer of `/api/v1/doctor`, and what the client prints
//! whether an agent runs or not.

use std::collections::BTreeMap;

use agent_core::status::VolumeStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::Snapshot;
use super::super::words::orders;
use crate::sensor::{ProgramState, ProgramStatus, ScanStats, SourceName, SourceState};
use crate::sys::mount_limit::is_near;

/// Facts about this host, gathered once at the start by whoever composes the agent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct HostFacts {
    /// The host's name; empty when it has none.
    #[serde(default)]
    pub node: String,
    /// `uname -r`.
    pub kernel_release: String,
    /// `uname -m`.
    pub architecture: String,
    /// The privileges that the agent can use, held or not.
    pub privileges: Vec<Privilege>,
    /// Anything else worth a line.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// One privilege.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Privilege {
    /// `CAP_SYS_ADMIN`, …
    pub name: String,
    /// Whether the agent has it.
    pub held: bool,
    /// What is off without it.
    pub needed_for: String,
    /// Whether that is really off on this host: the privilege is not held and nothing stands in for it.
    #[serde(default)]
    pub missed: bool,
}

/// Everything that `doctor` shows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DoctorReport {
    /// Version of the agent.
    pub version: String,
    /// Whether a running agent made the report: otherwise it is a rehearsal.
    pub agent_running: bool,
    /// The host.
    pub host: HostFacts,
    /// Every source.
    pub sources: Vec<SourceView>,
    /// The table of kernel programs, as it turned out here.
    pub programs: Vec<ProgramView>,
    /// How full the watched mount namespace is; absent while its table has not been read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mounts: Option<MountsView>,
}

/// How many mounts there are, and how many there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MountsView {
    /// Entries in the table of the watched mount namespace.
    pub count: u64,
    /// What the kernel lets each mount namespace have; absent where it does not say.
    pub limit: Option<u64>,
}

/// One source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SourceView {
    /// As in `mountie_source_up`.
    pub name: String,
    /// Running, degraded or off.
    pub state: SourceWord,
    /// Why it is not running in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How a source does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceWord {
    /// Works in full.
    Running,
    /// Works in part.
    Degraded,
    /// Does not work.
    Off,
}

/// One kernel program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProgramView {
    /// Its name.
    pub program: String,
    /// `sys_exit`, `fexit`, `always` or `extra`.
    pub family: String,
    /// Where it attaches.
    pub hook: String,
    /// What became of it.
    pub state: ProgramWord,
    /// Why it is not attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is lost without it.
    pub lost_without: String,
    /// Whether that is lost now. An older agent does not say so of what it has left out.
    #[serde(default)]
    pub is_lost: bool,
    /// What stands in for it.
    #[serde(default)]
    pub fallback: String,
}

/// What became of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProgramWord {
    /// Attached and counting.
    Attached,
    /// Not wanted.
    NotChosen,
    /// Attached once its module is loaded.
    Waits,
    /// Programs of another family do its work.
    NotNeeded,
    /// Wanted and refused.
    Failed,
}

impl DoctorReport {
    /// The report of a running agent.
    #[must_use]
    pub fn of_agent(host: &HostFacts, snapshot: &Snapshot) -> Self {
        let mounts = MountsView::of_scan(snapshot.scan);
        let mut host = host.clone();
        host.notes.extend(all_paused(snapshot));
        Self { agent_running: true, mounts, ..Self::new(&host, &snapshot.sources, &snapshot.programs) }
    }

    /// The report of whoever tried out the sources without being an agent.
    #[must_use]
    pub fn new(
        host: &HostFacts,
        sources: &BTreeMap<SourceName, SourceState>,
        programs: &[ProgramStatus],
    ) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            agent_running: false,
            host: host.clone(),
            sources: SourceName::ALL.map(|name| SourceView::new(name, sources.get(&name))).to_vec(),
            programs: programs.iter().map(ProgramView::new).collect(),
            mounts: None,
        }
    }

    /// The privileges whose absence costs something here.
    pub fn missed_privileges(&self) -> impl Iterator<Item = &Privilege> {
        self.host.privileges.iter().filter(|privilege| privilege.missed)
    }

    /// Whether at least one source that tells of faults works.
    #[must_use]
    pub fn has_a_source(&self) -> bool {
        let is_sensor = |view: &SourceView| {
            SourceName::ALL.iter().any(|name| name.is_sensor() && name.label() == view.name)
        };
        self.sources.iter().any(|source| source.state != SourceWord::Off && is_sensor(source))
    }
}

/// That no volume is repaired, whoever has stopped that: a person, or the agent, which could not read what was paused.
fn all_paused(snapshot: &Snapshot) -> Option<String> {
    let of_node = |volume: &VolumeStatus| volume.pause.clone().filter(|(_, is_node)| *is_node);
    let (pause, _) = snapshot.volumes.iter().find_map(of_node)?;
    let paused = orders::paused(&pause, snapshot.clock());
    Some(format!("no volume is repaired: {paused}; end that with `mountie resume --all`"))
}

impl MountsView {
    /// What a scan counted, beside the limit; `None` where nothing was scanned.
    pub(crate) fn of_scan(scan: ScanStats) -> Option<Self> {
        let count = u64::try_from(scan.entries).unwrap_or(u64::MAX);
        (count > 0).then_some(Self { count, limit: scan.limit })
    }

    /// The limit, where it is near: containers that are started, and repairs, may come to it soon.
    #[must_use]
    pub fn close_to(self) -> Option<u64> {
        self.limit.filter(|limit| is_near(self.count, *limit))
    }
}

impl SourceView {
    fn new(name: SourceName, state: Option<&SourceState>) -> Self {
        let (state, reason) = match state {
            Some(SourceState::Running) => (SourceWord::Running, None),
            Some(SourceState::Degraded(reason)) => (SourceWord::Degraded, Some(reason.clone())),
            Some(SourceState::Off(reason)) => (SourceWord::Off, Some(reason.clone())),
            None => (SourceWord::Off, Some("not started".to_owned())),
        };
        Self { name: name.label().to_owned(), state, reason }
    }
}

impl ProgramView {
    fn new(program: &ProgramStatus) -> Self {
        let (state, reason) = match &program.state {
            ProgramState::Attached => (ProgramWord::Attached, None),
            ProgramState::Covered(by) => (ProgramWord::NotNeeded, Some(format!("covered by {by}"))),
            ProgramState::NotChosen(reason) | ProgramState::Forgone(reason) => {
                (ProgramWord::NotChosen, Some(reason.clone()))
            }
            ProgramState::Waits(reason) => (ProgramWord::Waits, Some(reason.clone())),
            ProgramState::Absent(reason) | ProgramState::Failed(reason) => {
                (ProgramWord::Failed, Some(reason.clone()))
            }
        };
        Self {
            program: program.program.to_owned(),
            family: program.family.to_owned(),
            hook: program.hook.to_owned(),
            state,
            reason,
            lost_without: program.lost_without.to_owned(),
            is_lost: program.state.is_lost(),
            fallback: program.fallback.to_owned(),
        }
    }
}
