//! Who still holds what was replaced: mounts in containers, and processes with open files.

use agent_core::consumer::{FileHolder, StaleMount};
use agent_core::status::VolumeStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A mount that still shows what the volume showed before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StaleMountView {
    /// Inode number of the mount namespace.
    pub mount_namespace: u32,
    /// A process in it.
    pub pid: u32,
    /// Its name, escaped.
    pub comm: String,
    /// Where it is mounted, as that namespace sees it, escaped.
    pub mountpoint: String,
    /// The directory of the file system that it shows, escaped.
    pub root: String,
}

/// A process with open files of what was replaced.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FileHolderView {
    /// The process.
    pub pid: u32,
    /// Its name, escaped.
    pub comm: String,
    /// How many files.
    pub files: u64,
    /// One of them, as the kernel names it, escaped.
    pub path: String,
}

impl StaleMountView {
    pub(super) fn of(volume: &VolumeStatus) -> Vec<Self> {
        let view = |mount: &StaleMount| Self {
            mount_namespace: mount.namespace,
            pid: mount.process,
            comm: mount.comm.clone(),
            mountpoint: mount.mountpoint.to_string(),
            root: mount.root.to_string(),
        };
        volume.stale.iter().map(view).collect()
    }
}

impl FileHolderView {
    pub(super) fn of(volume: &VolumeStatus) -> Vec<Self> {
        let view = |holder: &FileHolder| Self {
            pid: holder.process,
            comm: holder.comm.clone(),
            files: holder.count,
            path: holder.path.to_string(),
        };
        volume.stale_holders.iter().map(view).collect()
    }
}
