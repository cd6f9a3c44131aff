//! The processes that met an error, and the tasks that wait.

use agent_core::errno::Errno;
use agent_core::observation::{BlockedTask, Op, Source, Task};
use agent_core::status::VolumeStatus;
use agent_core::time::Monotonic;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::export::Snapshot;
use crate::export::timestamp::Timestamp;
use crate::export::words;

/// A process that met an error.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CulpritView {
    /// When.
    pub at: Timestamp,
    /// Which error.
    pub errno: String,
    /// Doing what.
    pub op: String,
    /// Whether only the text of a name says that it was on this volume: a symbolic link may have led elsewhere.
    #[serde(default)]
    pub by_name: bool,
    /// Name of the thread, escaped.
    pub comm: String,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Its cgroup; absent when it is not known.
    #[serde(default)]
    pub cgroup: Option<String>,
    /// Inode number of its mount namespace; absent when it is not known.
    #[serde(default)]
    pub mount_namespace: Option<u32>,
}

/// A task that waits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BlockedView {
    /// Name of the thread, escaped.
    pub comm: String,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// The system call it is in.
    pub call: String,
    /// `S`: signals reach it; `D`: only fatal ones, or none.
    pub state: String,
    /// Whether only the text of a name says that it waits here: a symbolic link may have led elsewhere.
    #[serde(default)]
    pub by_name: bool,
    /// The first census that found it in this call.
    pub since: Timestamp,
    /// How long ago that was.
    pub seconds: f64,
    /// Its cgroup; absent when it is not known.
    pub cgroup: Option<String>,
    /// Inode number of its mount namespace; absent when it is not known.
    pub mount_namespace: Option<u32>,
}

impl CulpritView {
    pub(super) fn of(volume: &VolumeStatus, snapshot: &Snapshot) -> Vec<Self> {
        let view = |(at, (errno, op, source), task): &(Monotonic, (Errno, Op, Source), Task)| Self {
            at: snapshot.clock().at(*at),
            errno: words::errno(*errno),
            op: op.label().to_owned(),
            by_name: *source == Source::BpfName,
            comm: task.comm.clone(),
            pid: task.pid,
            tid: task.tid,
            cgroup: cgroup(task, snapshot),
            mount_namespace: mount_namespace(task),
        };
        volume.culprits.iter().map(view).collect()
    }
}

impl BlockedView {
    pub(super) fn of(volume: &VolumeStatus, snapshot: &Snapshot) -> Vec<Self> {
        let view = |blocked: &BlockedTask| Self {
            comm: blocked.task.comm.clone(),
            pid: blocked.task.pid,
            tid: blocked.task.tid,
            call: blocked.call.clone(),
            state: if blocked.is_deep { "D" } else { "S" }.to_owned(),
            by_name: blocked.is_by_name,
            since: snapshot.clock().at(blocked.since),
            seconds: snapshot.at.since(blocked.since).as_secs_f64(),
            cgroup: cgroup(&blocked.task, snapshot),
            mount_namespace: mount_namespace(&blocked.task),
        };
        volume.blocked.iter().map(view).collect()
    }
}

/// The path of its cgroup; the number where the path is not known.
fn cgroup(task: &Task, snapshot: &Snapshot) -> Option<String> {
    let path = || snapshot.cgroups.get(&task.cgroup).cloned();
    (task.cgroup != 0).then(|| path().unwrap_or_else(|| format!("id {}", task.cgroup)))
}

fn mount_namespace(task: &Task) -> Option<u32> {
    (task.mnt_ns != 0).then_some(task.mnt_ns)
}
