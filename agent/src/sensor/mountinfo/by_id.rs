//! The table by unique id: a change costs the question about what changed, and not a reading of everything.
//!
//! The kernel's calls show what mountinfo shows, but only newer kernels tell every field, and only a comparison
//! tells whether they do: nothing here is decided by a version. So the reader is believed once it has agreed with
//! mountinfo on every mount ([`ById::agrees`]).
//!
//! What an event does not say, and what is done about it:
//! * A mount that is moved takes its subtree along, and only the top of it is reported. When a mount that is
//!   known shows up elsewhere, everything below it is asked for as well.
//! * A mount that is slid beneath another becomes the parent of that one, which is not reported. Where a mount shows
//!   up, the known ones at the same place are asked for as well; so are those that stood on one that is gone.
//! * Lost events: [`ById::refresh`] compares the list of ids, which costs one call for four thousand mounts.
//! * Options that changed: [`ById::refresh`] asks for the volumes', a full reading for all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_core::id::MountId;
use agent_core::path::BytePath;
use agent_core::topology::{Mount, MountTable};
use nix::errno::Errno;
use thiserror::Error;

use crate::sys::statmount::{MountCalls, StatError};

/// The kernel's calls, or a double in tests.
pub trait Mounts: Send {
    /// The unique ids of all mounts, in the order of mountinfo.
    fn list(&mut self) -> Result<Vec<u64>, Errno>;

    /// The line of one; `None` when it is gone.
    fn get(&mut self, id: u64) -> Result<Option<Mount>, StatError>;
}

impl Mounts for MountCalls {
    fn list(&mut self) -> Result<Vec<u64>, Errno> {
        MountCalls::list(self)
    }

    fn get(&mut self, id: u64) -> Result<Option<Mount>, StatError> {
        self.mount(id)
    }
}

/// Why the table cannot be had by id.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ByIdError {
    /// There is no such call, or it is refused.
    #[error("listmount fails: {0} (it needs Linux 6.8, and all that it must tell 6.13)")]
    List(Errno),
    /// A mount cannot be asked for in full.
    #[error("{0} (all that it must tell needs Linux 6.13)")]
    Stat(StatError),
    /// The kernel tells no source of any mount. It passes over what it does not know.
    #[error("statmount does not tell the sources of mounts (it does since Linux 6.13)")]
    NoSources,
    /// Both readers are right about different things, or one is wrong.
    #[error("listmount and mountinfo disagree about {0}")]
    Disagree(String),
    /// Every namespace has a root, so this is no table.
    #[error("listmount lists nothing")]
    Empty,
}

impl ByIdError {
    /// Whether this kernel, or its policy, will never tell more: all else may be of the moment.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        match self {
            // Older kernels refuse requests that they do not know with the last two.
            Self::List(errno) | Self::Stat(StatError::Call(errno)) => {
                matches!(errno, Errno::ENOSYS | Errno::EPERM | Errno::EINVAL | Errno::E2BIG)
            }
            Self::Stat(StatError::Incomplete(_)) | Self::NoSources => true,
            Self::Disagree(_) | Self::Empty => false,
        }
    }
}

/// The reader, and the table as it was last seen.
pub struct ById {
    kernel: Box<dyn Mounts>,
    /// By unique id, which is the order of mountinfo.
    known: BTreeMap<u64, Arc<Mount>>,
}

impl ById {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(kernel: Box<dyn Mounts>) -> Self {
        Self { kernel, known: BTreeMap::new() }
    }

    /// The table as it was last seen. Lines that stayed are shared with the table before.
    #[must_use]
    pub fn table(&self) -> MountTable {
        MountTable::from_shared(self.known.values().cloned().collect())
    }

    /// Mounts in it.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.known.len()
    }

    /// Asks for every mount. Says whether anything differs from what was known.
    pub fn read(&mut self) -> Result<bool, ByIdError> {
        let ids = self.list()?;
        let differs = self.take(ids.iter().copied(), &ids)?;
        // An empty source is not told either, but no table has nothing else: procfs alone has one.
        if self.known.values().all(|mount| mount.source.is_empty()) {
            return Err(ByIdError::NoSources);
        }
        Ok(differs)
    }

    /// Asks for the mounts that changed, and for what moved along with them.
    pub fn patch(&mut self, ids: &BTreeSet<u64>) -> Result<bool, ByIdError> {
        let (mut moved, mut places, mut gone) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut differs = false;
        for id in ids {
            let before = self.known.get(id).cloned();
            differs |= self.ask(*id)?;
            match (before, self.known.get(id)) {
                (Some(before), Some(after)) if before.mountpoint != after.mountpoint => {
                    moved.insert(after.id);
                    places.insert(after.mountpoint.clone());
                }
                (None, Some(after)) => drop(places.insert(after.mountpoint.clone())),
                (Some(before), None) => drop(gone.insert(before.id)),
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
        for id in self.neighbours(&places, &gone) {
            if !ids.contains(&id) {
                differs |= self.ask(id)?;
            }
        }
        for id in self.below(moved) {
            differs |= self.ask(id)?;
        }
        Ok(differs)
    }

    /// Asks for the ids of all mounts, for the lines of those that are new, and for the lines of `volumes`.
    pub fn refresh(&mut self, volumes: &BTreeSet<u64>) -> Result<bool, ByIdError> {
        let ids = self.list()?;
        let asked: Vec<u64> =
            ids.iter().copied().filter(|id| volumes.contains(id) || !self.known.contains_key(id)).collect();
        self.take(asked.into_iter(), &ids)
    }

    /// Compares what is known with two readings of mountinfo around it: what both say must be known the same,
    /// and what is known must be in one of them.
    pub fn agrees(&self, before: &MountTable, after: &MountTable) -> Result<(), ByIdError> {
        let known: BTreeMap<MountId, Mount> = self
            .known
            .values()
            .map(|mount| (mount.id, Mount { unique: None, ..(**mount).clone() }))
            .collect();
        let earlier: BTreeMap<MountId, &Mount> =
            before.mounts().iter().map(|mount| (mount.id, &**mount)).collect();
        for mount in after.mounts() {
            let stayed = earlier.get(&mount.id).is_some_and(|earlier| *earlier == &**mount);
            if stayed && known.get(&mount.id) != Some(&**mount) {
                return Err(ByIdError::Disagree(mount.mountpoint.to_string()));
            }
        }
        let later: BTreeSet<MountId> = after.mounts().iter().map(|mount| mount.id).collect();
        match known.values().find(|mount| !earlier.contains_key(&mount.id) && !later.contains(&mount.id)) {
            Some(mount) => Err(ByIdError::Disagree(mount.mountpoint.to_string())),
            None => Ok(()),
        }
    }

    fn list(&mut self) -> Result<Vec<u64>, ByIdError> {
        let ids = self.kernel.list().map_err(ByIdError::List)?;
        if ids.is_empty() { Err(ByIdError::Empty) } else { Ok(ids) }
    }

    /// Asks for `asked`, and drops what is not among `all`.
    fn take(&mut self, asked: impl Iterator<Item = u64>, all: &[u64]) -> Result<bool, ByIdError> {
        let mut differs = false;
        for id in asked {
            differs |= self.ask(id)?;
        }
        // The list is in order, as the kernel makes it; a double may not be.
        let listed: BTreeSet<u64> = all.iter().copied().collect();
        let before = self.known.len();
        self.known.retain(|id, _| listed.contains(id));
        Ok(differs || before != self.known.len())
    }

    /// Asks for one mount. Says whether it differs from what was known of it.
    fn ask(&mut self, id: u64) -> Result<bool, ByIdError> {
        match self.kernel.get(id).map_err(ByIdError::Stat)? {
            None => Ok(self.known.remove(&id).is_some()),
            Some(mount) if self.known.get(&id).is_some_and(|known| **known == mount) => Ok(false),
            Some(mount) => {
                self.known.insert(id, Arc::new(mount));
                Ok(true)
            }
        }
    }

    /// The mounts at these places, and those that stood on these: their parent may be another now.
    ///
    /// kernel: `attach_recursive_mnt` and `mnt_change_mountpoint`, fs/namespace.c; beneath since 6.5. By propagation,
    /// `propagate_mnt` and `propagate_umount`, fs/pnode.c, do the same.
    fn neighbours(&self, places: &BTreeSet<BytePath>, gone: &BTreeSet<MountId>) -> Vec<u64> {
        if places.is_empty() && gone.is_empty() {
            return Vec::new();
        }
        let may_differ = |mount: &Mount| places.contains(&mount.mountpoint) || gone.contains(&mount.parent);
        self.known.iter().filter(|(_, mount)| may_differ(mount)).map(|(id, _)| *id).collect()
    }

    /// Everything below these mounts. One pass for all of them and for each level of the tree.
    fn below(&self, mut tops: BTreeSet<MountId>) -> Vec<u64> {
        let mut found = Vec::new();
        while !tops.is_empty() {
            let children: Vec<(u64, MountId)> = self
                .known
                .iter()
                .filter(|(_, mount)| tops.contains(&mount.parent) && mount.parent != mount.id)
                .map(|(id, mount)| (*id, mount.id))
                .collect();
            tops = children.iter().map(|(_, id)| *id).collect();
            found.extend(children.into_iter().map(|(id, _)| id));
            // Parents in a ring cannot come from the kernel.
            if found.len() > self.known.len() {
                break;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
