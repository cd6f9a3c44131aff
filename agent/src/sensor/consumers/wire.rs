//! What the agent and the child that looks through the namespaces say to each other: one JSON document in, one out.
//!
//! The shapes live between two copies of one binary and need no version.

use std::collections::BTreeSet;

use agent_core::consumer::{Dead, FileHolder, Found, StaleMount};
use agent_core::id::{MountId, SuperblockId, VolumeId};
use agent_core::path::BytePath;
use agent_core::remediation::consumers::Holding;
use serde::{Deserialize, Serialize};

/// [`Dead`] on the wire.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct WireDead {
    volume: String,
    superblock: u32,
    holding: Option<WireHolding>,
    ids: BTreeSet<u32>,
    gone: BTreeSet<u32>,
    is_shown: bool,
}

#[derive(Clone, Serialize, Deserialize, Debug)]
struct WireHolding {
    root: Vec<u8>,
    fstype: String,
    source: Vec<u8>,
}

/// The answer.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Answer {
    /// In the order of the question.
    pub(crate) found: Vec<WireFound>,
    /// Processes that may not be looked at.
    pub(super) refused: u64,
    /// Not all open files were looked at.
    pub(super) is_partial: bool,
    /// The processor time that it took.
    pub(super) micros: u64,
}

/// [`Found`] on the wire.
#[derive(Serialize, Deserialize, Debug, Default)]
pub(crate) struct WireFound {
    pub(super) mounts: u64,
    pub(super) shown: Vec<WireMount>,
    pub(super) ids: BTreeSet<u32>,
    pub(super) files: u64,
    pub(super) holders: Vec<WireHolder>,
}

#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct WireMount {
    pub(super) namespace: u32,
    pub(super) process: u32,
    pub(super) comm: String,
    pub(super) mountpoint: Vec<u8>,
    pub(super) root: Vec<u8>,
}

#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct WireHolder {
    pub(super) process: u32,
    pub(super) comm: String,
    pub(super) count: u64,
    pub(super) path: Vec<u8>,
}

impl From<&Dead> for WireDead {
    fn from(dead: &Dead) -> Self {
        let holding = dead.holding.as_ref().map(|holding| WireHolding {
            root: holding.root.as_bytes().to_vec(),
            fstype: holding.fstype.clone(),
            source: holding.source.clone(),
        });
        Self {
            volume: dead.volume.as_str().to_owned(),
            superblock: dead.superblock.to_kernel(),
            holding,
            ids: dead.ids.iter().map(|id| id.0).collect(),
            gone: dead.gone.iter().map(|id| id.0).collect(),
            is_shown: dead.is_shown,
        }
    }
}

impl From<WireDead> for Dead {
    fn from(dead: WireDead) -> Self {
        let holding = dead.holding.map(|WireHolding { root, fstype, source }| Holding {
            root: BytePath::new(root),
            fstype,
            source,
        });
        Self {
            volume: VolumeId::new(dead.volume),
            superblock: SuperblockId::from_kernel(dead.superblock),
            holding,
            ids: dead.ids.into_iter().map(MountId).collect(),
            gone: dead.gone.into_iter().map(MountId).collect(),
            is_shown: dead.is_shown,
        }
    }
}

impl WireFound {
    /// What was found of what was asked about.
    pub(crate) fn of(self, dead: &Dead) -> Found {
        let mount = |mount: WireMount| StaleMount {
            namespace: mount.namespace,
            process: mount.process,
            comm: mount.comm,
            mountpoint: BytePath::new(mount.mountpoint),
            root: BytePath::new(mount.root),
        };
        let holder = |holder: WireHolder| FileHolder {
            process: holder.process,
            comm: holder.comm,
            count: holder.count,
            path: BytePath::new(holder.path),
        };
        Found {
            volume: dead.volume.clone(),
            superblock: dead.superblock,
            has_holding: dead.holding.is_some(),
            mounts: self.mounts,
            shown: self.shown.into_iter().map(mount).collect(),
            ids: self.ids.into_iter().map(MountId).collect(),
            files: self.files,
            holders: self.holders.into_iter().map(holder).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_and_what_is_found_keep_every_byte() {
        let holding =
            Holding { root: BytePath::new(*b"/a\xe9"), fstype: "nfs4".to_owned(), source: b"x\xff".to_vec() };
        let dead = Dead {
            volume: VolumeId::new("models"),
            superblock: SuperblockId { major: 0, minor: 47 },
            holding: Some(holding),
            ids: BTreeSet::from([MountId(7), MountId(8)]),
            gone: BTreeSet::from([MountId(8)]),
            is_shown: true,
        };
        for dead in [dead.clone(), Dead { holding: None, ..dead }] {
            let text = serde_json::to_vec(&WireDead::from(&dead)).unwrap();
            assert_eq!(Dead::from(serde_json::from_slice::<WireDead>(&text).unwrap()), dead);
            let shown = WireMount {
                namespace: 1,
                process: 2,
                comm: "c".to_owned(),
                mountpoint: b"/d\xe9".to_vec(),
                root: b"/".to_vec(),
            };
            let holder = WireHolder { process: 2, comm: "c".to_owned(), count: 3, path: b"/d/\xff".to_vec() };
            let found = WireFound {
                mounts: 1,
                shown: vec![shown],
                ids: BTreeSet::from([7]),
                files: 3,
                holders: vec![holder],
            };
            let text = serde_json::to_vec(&found).unwrap();
            let found = serde_json::from_slice::<WireFound>(&text).unwrap().of(&dead);
            assert_eq!(found.has_holding, dead.holding.is_some());
            assert_eq!(found.shown[0].mountpoint, BytePath::new(*b"/d\xe9"));
            assert_eq!((found.holders[0].count, found.ids.contains(&MountId(7))), (3, true));
        }
    }
}
