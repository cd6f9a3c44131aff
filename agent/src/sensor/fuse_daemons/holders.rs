//! Which processes hold `/dev/fuse` open, and for which file system.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::sys::peer::name_of_process;
use agent_core::id::SuperblockId;
use agent_core::incident::Daemon;
use agent_core::remediation::unit::of_cgroup;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// What the link of such a descriptor says, in every mount namespace.
const DEVICE: &str = "/dev/fuse";

/// One process.
#[derive(Debug)]
struct Holder {
    end: Arc<OwnedFd>,
    serves: Serves,
    /// Read while it lived.
    unit: Option<String>,
}

/// What a process serves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Serves {
    /// File systems that the kernel names.
    named: BTreeSet<SuperblockId>,
    /// Some descriptor has no name: an old kernel, or nothing is mounted with it yet. It may be of any file system
    /// that no other process is named for.
    unnamed: bool,
}

/// A process that was not known before.
#[derive(Debug)]
pub(super) struct NewHolder {
    /// Its id, and what its end is known by.
    pub(super) id: u64,
    /// Readable when it has ended.
    pub(super) end: Arc<OwnedFd>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Holders {
    proc: PathBuf,
    /// The unit of this process: restarting it is nobody's way to restart a daemon that a repair has started.
    own_unit: Option<String>,
    holders: BTreeMap<i32, Holder>,
    new: Vec<NewHolder>,
}

impl Holders {
    pub(super) fn new(proc: PathBuf) -> Self {
        let own_unit = unit(&proc.join("self"));
        Self { proc, own_unit, holders: BTreeMap::new(), new: Vec::new() }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.holders.clear();
        self.new.clear();
    }

    /// Looks through all processes. One that cannot be read, or is gone, costs only itself.
    pub(super) fn look(&mut self) -> io::Result<()> {
        let entries = std::fs::read_dir(&self.proc)?;
        let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let mut old = std::mem::take(&mut self.holders);
        for id in ids {
            let Some(serves) = serves(&self.proc.join(id.to_string())) else { continue };
            if let Some(holder) = old.remove(&id) {
                self.holders.insert(id, Holder { serves, ..holder });
            } else if let Some(holder) = self.new_holder(id) {
                self.new.push(NewHolder { id: u64::from(id.unsigned_abs()), end: Arc::clone(&holder.end) });
                self.holders.insert(id, holder);
            }
        }
        // An end that is not taken yet still says what the process served.
        self.holders.extend(old.into_iter().filter(|(_, holder)| has_ended(&holder.end)));
        Ok(())
    }

    /// The handle comes first: what is read after that belongs to that process, or to none.
    fn new_holder(&self, id: i32) -> Option<Holder> {
        let end = pidfd_open(Pid::from_raw(id)?, PidfdFlags::empty()).ok()?;
        let process = self.proc.join(id.to_string());
        let serves = serves(&process)?;
        let unit = unit(&process).filter(|unit| self.own_unit.as_ref() != Some(unit));
        Some(Holder { end: Arc::new(end), serves, unit })
    }

    /// Those that came since the last call.
    pub(super) fn take_new(&mut self) -> Vec<NewHolder> {
        std::mem::take(&mut self.new)
    }

    /// A process is new again at the next look.
    pub(super) fn forget(&mut self, id: u64) {
        if let Ok(id) = i32::try_from(id) {
            self.holders.remove(&id);
        }
    }

    /// A process has ended: which of these file systems nobody else is known to serve now.
    pub(super) fn end(&mut self, id: u64, tracked: &BTreeSet<SuperblockId>) -> Vec<SuperblockId> {
        let Some(holder) = i32::try_from(id).ok().and_then(|id| self.holders.remove(&id)) else {
            return Vec::new();
        };
        let others = self.named();
        let is_orphan = |superblock: &&SuperblockId| {
            !others.contains(superblock)
                && (holder.serves.named.contains(superblock) || holder.serves.unnamed)
        };
        tracked.iter().filter(is_orphan).copied().collect()
    }

    /// Which of these somebody serves, or may serve.
    pub(super) fn served(&self, tracked: &BTreeSet<SuperblockId>) -> BTreeSet<SuperblockId> {
        let named = self.named();
        let unnamed = self.holders.values().any(|holder| holder.serves.unnamed);
        tracked.iter().filter(|superblock| unnamed || named.contains(superblock)).copied().collect()
    }

    /// Which process serves which of these, where the kernel names it; of several the first.
    pub(super) fn daemons(&self, tracked: &BTreeSet<SuperblockId>) -> BTreeMap<SuperblockId, Daemon> {
        let mut daemons = BTreeMap::new();
        for (id, holder) in &self.holders {
            let mut served = holder.serves.named.intersection(tracked).peekable();
            if served.peek().is_none() {
                continue;
            }
            let pid = id.unsigned_abs();
            let daemon = Daemon { pid, comm: name_of_process(pid), unit: holder.unit.clone() };
            for superblock in served {
                daemons.entry(*superblock).or_insert_with(|| daemon.clone());
            }
        }
        daemons
    }

    fn named(&self) -> BTreeSet<SuperblockId> {
        self.holders.values().flat_map(|holder| holder.serves.named.iter().copied()).collect()
    }
}

/// The unit that a process runs in.
fn unit(process: &Path) -> Option<String> {
    let text = std::fs::read_to_string(process.join("cgroup")).ok()?;
    of_cgroup(cgroup_of_systemd(&text)?).map(str::to_owned)
}

/// The cgroup by which systemd keeps units apart: the one of version 2, or where that is not its own the named
/// hierarchy of version 1.
///
/// kernel: `proc_cgroup_show`, kernel/cgroup/cgroup.c, since 4.5: `0::PATH` and `N:name=systemd:PATH`.
fn cgroup_of_systemd(text: &str) -> Option<&str> {
    let path = |mark: &str| text.lines().find_map(|line| line.split_once(mark).map(|(_, path)| path));
    path(":name=systemd:").or_else(|| text.lines().find_map(|line| line.strip_prefix("0::")))
}

fn has_ended(end: &OwnedFd) -> bool {
    let mut look = [nix::poll::PollFd::new(std::os::fd::AsFd::as_fd(end), nix::poll::PollFlags::POLLIN)];
    matches!(nix::poll::poll(&mut look, nix::poll::PollTimeout::ZERO), Ok(count) if count > 0)
}

/// What a process serves; `None` when it does not hold the device, or cannot be read.
fn serves(process: &Path) -> Option<Serves> {
    let entries = std::fs::read_dir(process.join("fd")).ok()?;
    let mut found = None;
    for entry in entries.flatten() {
        if !std::fs::read_link(entry.path()).is_ok_and(|target| target == Path::new(DEVICE)) {
            continue;
        }
        let serves: &mut Serves = found.get_or_insert_default();
        let information = std::fs::read_to_string(process.join("fdinfo").join(entry.file_name()));
        match information.ok().as_deref().and_then(connection) {
            Some(superblock) => drop(serves.named.insert(superblock)),
            None => serves.unnamed = true,
        }
    }
    found
}

/// The file system that a descriptor of the device belongs to: the number of its connection is that of its
/// superblock.
///
/// kernel: `fuse_dev_show_fdinfo`, fs/fuse/dev.c, since 6.16; `fuse_fill_super_common`,
/// fs/fuse/inode.c, since 5.4: the number is `s_dev`.
fn connection(information: &str) -> Option<SuperblockId> {
    let line = information.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?;
    line.trim().parse().ok().map(SuperblockId::from_kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock(minor: u32) -> SuperblockId {
        SuperblockId { major: 0, minor }
    }

    fn holders(list: &[(i32, &[u32], bool)]) -> Holders {
        let mut holders = Holders::new(PathBuf::from("/proc"));
        let own = i32::try_from(std::process::id()).unwrap();
        let end = Arc::new(pidfd_open(Pid::from_raw(own).unwrap(), PidfdFlags::empty()).unwrap());
        for (id, named, unnamed) in list {
            let named = named.iter().copied().map(superblock).collect();
            let serves = Serves { named, unnamed: *unnamed };
            holders.holders.insert(*id, Holder { end: Arc::clone(&end), serves, unit: None });
        }
        holders
    }

    #[test]
    fn the_kernel_names_the_connection_of_a_descriptor() {
        let text = "pos:\t0\nflags:\t02100002\nmnt_id:\t58\nino:\t90\nfuse_connection:\t39\n";
        assert_eq!(connection(text), Some(superblock(39)));
        assert_eq!(connection("pos:\t0\nflags:\t02\n"), None);
        assert_eq!(connection("fuse_connection:\tx\n"), None);
    }

    #[test]
    fn the_unit_is_that_of_the_hierarchy_which_systemd_uses() {
        let unified = "0::/system.slice/sshfs@a.service\n";
        let hybrid = "4:memory:/x\n1:name=systemd:/system.slice/a.service\n0::/system.slice/a.service\n";
        let old = "4:memory:/x\n1:name=systemd:/system.slice/b.service\n0::/\n";
        let paths = [unified, hybrid, old, "4:memory:/x\n"].map(cgroup_of_systemd);
        let units = paths.map(|path| path.and_then(of_cgroup));
        assert_eq!(units, [Some("sshfs@a.service"), Some("a.service"), Some("b.service"), None]);
    }

    #[test]
    fn the_last_holder_of_a_connection_leaves_an_orphan() {
        let tracked = BTreeSet::from([superblock(39), superblock(40)]);
        let mut holders = holders(&[(10, &[39], false), (11, &[39, 41], false), (12, &[40], false)]);
        assert_eq!(holders.end(10, &tracked), []);
        assert_eq!(holders.end(10, &tracked), []);
        assert_eq!(holders.end(11, &tracked), [superblock(39)]);
        assert_eq!(holders.served(&tracked), BTreeSet::from([superblock(40)]));
    }

    #[test]
    fn without_names_any_file_system_may_be_an_orphan_but_those_of_named_holders() {
        let tracked = BTreeSet::from([superblock(39), superblock(40)]);
        let mut holders = holders(&[(10, &[], true), (12, &[40], false)]);
        assert_eq!(holders.served(&tracked), tracked);
        assert_eq!(holders.end(10, &tracked), [superblock(39)]);
    }
}
