//! What the outside sees: metrics, API, events. Serves from memory only.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_core::engine::AckAnswer;
use agent_core::health::loss::Actor;
use agent_core::id::{PlanId, VolumeId};
use agent_core::incident::Incident;
use agent_core::order::{Done, Order, Preview, Refused};
use agent_core::status::VolumeStatus;
use agent_core::time::Monotonic;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};

use crate::sensor::{LossCause, ProgramStatus, ScanStats, SourceName, SourceState};

pub mod chronicle;
pub mod event_id;
pub mod events;
pub mod http;
pub mod metrics;
pub mod timestamp;
pub mod view;

pub(crate) use words::probe_sentence as fault_sentence;

pub(crate) mod age;
pub(crate) mod percent;
pub mod text;
mod words;

#[cfg(test)]
pub(crate) mod sample;

/// Everything that is shown, at one moment. The event loop publishes a new one after each change; nobody
/// who reads it can hold anybody up.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When it was taken.
    pub at: Monotonic,
    /// Wall-clock time since the epoch at `at`; to show times.
    pub wall: std::time::Duration,
    /// Every volume, by name.
    pub volumes: Vec<VolumeStatus>,
    /// Volumes that fail together, and those that did not long ago; newest first.
    pub incidents: Vec<Arc<Incident>>,
    /// Every source.
    pub sources: BTreeMap<SourceName, SourceState>,
    /// Every kernel program.
    pub programs: Vec<ProgramStatus>,
    /// Paths of cgroups by their ids, as far as they were found.
    pub cgroups: Arc<BTreeMap<u64, String>>,
    /// The last scan of the mount table.
    pub scan: ScanStats,
    /// Bad lines since the start.
    pub bad_lines: u64,
    /// Runs of kernel programs that the kernel has skipped since the start, by program.
    pub runs_skipped: BTreeMap<&'static str, u64>,
    /// Records of errors lost since the start, by cause.
    pub records_dropped: BTreeMap<LossCause, u64>,
    /// Mount events lost since the start.
    pub mount_events_dropped: u64,
    /// Probes that are out.
    pub probes_inflight: usize,
    /// Workers that missed their deadline and have not ended.
    pub abandoned_workers: usize,
    /// Children of repairs, and helpers of theirs, that were killed and have not ended.
    pub stuck_helpers: usize,
    /// Failures to write state since the start.
    pub persist_errors: u64,
    /// How long `?check=true` waits: the longest deadline of any volume and a bit.
    pub check_deadline: std::time::Duration,
    /// The first mount table has been taken in and every volume of that time was looked at once, or its deadline
    /// passed.
    pub ready: bool,
    /// What running plans have done, one line a step.
    pub progress: BTreeMap<PlanId, Vec<String>>,
}

/// The reading side.
pub type SnapshotReceiver = watch::Receiver<Arc<Snapshot>>;

/// What the API asks of the event loop.
#[derive(Debug)]
pub enum Command {
    /// Probe now; answered when the probe is done or cannot be made. The answer is in the next snapshot.
    ProbeNow {
        /// Which volume.
        volume: VolumeId,
        /// Answered with the volume's status afterwards; `None` when there is no such volume.
        done: oneshot::Sender<Option<VolumeStatus>>,
    },
    /// A person knows of what a volume has lost; answered when that is on disk, or cannot be written.
    Acknowledge {
        /// Which volume.
        volume: VolumeId,
        /// Who.
        by: Actor,
        /// Answered with what became of it, and whether it is on disk.
        done: oneshot::Sender<(AckAnswer, bool)>,
    },
    /// A person orders something; answered when that is on disk, or cannot be written.
    Order {
        /// What.
        order: Order,
        /// Who. The caller has checked that they may.
        by: Actor,
        /// Answered with what came of it, and whether it is on disk.
        done: oneshot::Sender<(Result<Done, Refused>, bool)>,
    },
    /// What a plan for this volume would do now.
    Preview {
        /// Which volume.
        volume: VolumeId,
        /// Answered at once.
        done: oneshot::Sender<Result<Preview, Refused>>,
    },
    /// Have a worker put a sentinel on a volume. The caller has checked who asks.
    PlantSentinel {
        /// Which volume.
        volume: VolumeId,
        /// Which sentinel.
        wish: SentinelWish,
        /// Answered when it is there, or when it is known why not.
        done: oneshot::Sender<Result<SentinelAnswer, SentinelRefusal>>,
    },
}

/// What a person wants of a sentinel. What is left open comes from the configuration, or is chosen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SentinelWish {
    /// Where, below the volume's root.
    pub path: Option<String>,
    /// What it contains.
    pub content: Option<String>,
    /// Whether a file that is there may stay, whatever its content.
    pub adopt: bool,
}

/// A sentinel that is in place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SentinelAnswer {
    /// On which volume.
    pub volume: String,
    /// Where that is.
    pub mountpoint: String,
    /// Below the volume's root.
    pub path: String,
    /// What it contains, where that is text.
    pub content: Option<String>,
    /// `written`, `found` or `adopted`.
    pub outcome: String,
    /// Whether the volume is named in the configuration.
    pub named: bool,
    /// Whether the agent remembers it, since the configuration does not say it.
    pub pinned: bool,
    /// Whether that is on disk; `true` where nothing had to be kept.
    #[serde(default = "nothing_to_keep")]
    pub kept: bool,
    /// The line for the configuration.
    pub toml: String,
}

const fn nothing_to_keep() -> bool {
    true
}

/// Why there is no sentinel. Texts name the object and the remedy.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum SentinelRefusal {
    /// No volume has that name.
    #[error("there is no volume `{0}`")]
    NoSuchVolume(String),
    /// The wish itself is wrong.
    #[error("{0}")]
    Wrong(String),
    /// Something is there already.
    #[error("{0}")]
    Exists(String),
    /// The volume cannot take it.
    #[error("{0}")]
    Sick(String),
    /// The agent itself could not.
    #[error("{0}")]
    NoAnswer(String),
}
