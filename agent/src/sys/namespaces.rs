//! The mount namespaces of this node, and what is mounted in each, as procfs shows it. Nothing here touches a path of
//! any of them.
//!
//! A namespace that no process is in is not found.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, StatxFlags, openat, readlinkat, statx};
use rustix::io::{Errno, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::mount_table::Proc;
use super::namespace_owner::owner;

/// The inode number in the text of a link to a mount namespace, `mnt:[4026531841]`.
///
/// kernel: `ns_get_name`, fs/nsfs.c, since 3.19 (fs/proc/namespaces.c before).
#[must_use]
pub fn number_of_link(target: &[u8]) -> Option<u32> {
    std::str::from_utf8(target).ok()?.strip_prefix("mnt:[")?.strip_suffix(']')?.parse().ok()
}

/// One mount namespace, by a process in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Namespace {
    /// Its inode number.
    pub number: u32,
    /// The process.
    pub process: u32,
}

impl Proc {
    /// All processes, in ascending order.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let entries = openat(self.directory(), ".", flags, Mode::empty()).and_then(Dir::new);
        let numbers = entries.into_iter().flatten().filter_map(std::result::Result::ok);
        let mut processes: Vec<u32> =
            numbers.filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok()).collect();
        processes.sort_unstable();
        processes
    }

    /// The mount namespace of a process, or of this one (`self`).
    pub fn namespace_of(&self, process: impl std::fmt::Display) -> Result<u32> {
        let link = readlinkat(self.directory(), format!("{process}/ns/mnt"), Vec::new())?;
        number_of_link(link.as_bytes()).ok_or(Errno::INVAL)
    }

    /// Every mount namespace that a process is in, once. A process that has changed its root directory shows only a
    /// part of its namespace, and is taken only where there is no other.
    #[must_use]
    pub fn namespaces(&self) -> Vec<Namespace> {
        let mut best: BTreeMap<u32, (bool, u32)> = BTreeMap::new();
        for process in self.processes() {
            let Ok(number) = self.namespace_of(process) else { continue };
            if best.get(&number).is_some_and(|(is_confined, _)| !is_confined) {
                continue;
            }
            let root = readlinkat(self.directory(), format!("{process}/root"), Vec::new());
            let is_confined = root.is_ok_and(|root| root.as_bytes() != b"/");
            let rank = (is_confined, process);
            best.entry(number).and_modify(|known| *known = rank.min(*known)).or_insert(rank);
        }
        best.into_iter().map(|(number, (_, process))| Namespace { number, process }).collect()
    }

    /// The text of the mount table that a process sees.
    pub fn text_of_table(&self, process: u32) -> Result<Vec<u8>> {
        self.text_of(&format!("{process}/mountinfo"))
    }

    /// The name of a process.
    #[must_use]
    pub fn comm(&self, process: u32) -> String {
        let text = self.text_of(&format!("{process}/comm")).unwrap_or_default();
        agent_core::path::escape(text.strip_suffix(b"\n").unwrap_or(&text))
    }

    /// What a file in procfs says.
    pub fn text_of(&self, path: &str) -> Result<Vec<u8>> {
        let mut file = openat(self.directory(), path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map(File::from)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(text)
    }

    /// A namespace, to be entered; ENOENT where the process is gone, or is in another one by now.
    pub fn open_namespace(&self, namespace: Namespace) -> Result<OwnedFd> {
        let path = format!("{}/ns/mnt", namespace.process);
        let file = openat(self.directory(), path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let found = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::INO)?;
        if found.stx_ino == u64::from(namespace.number) { Ok(file) } else { Err(Errno::NOENT) }
    }

    /// Whether a namespace belongs to another user namespace than the own one: whoever made it may mount in it what he
    /// likes, and the kernel locks what it began with. So is one that does not tell.
    pub fn is_foreign(&self, namespace: Namespace) -> bool {
        let own = self.own_namespace().and_then(|own| owner(&own));
        let theirs = self.open_namespace(namespace).and_then(|theirs| owner(&theirs));
        !matches!((own, theirs), (Ok(own), Ok(theirs)) if own == theirs)
    }

    /// The namespace that this process is in.
    pub fn own_namespace(&self) -> Result<OwnedFd> {
        openat(self.directory(), "self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    }
}

/// Makes a namespace this process's own; root and working directory become the namespace's. The process must have one
/// thread.
///
/// kernel: `mntns_install`, fs/namespace.c, since 3.8.
pub fn enter(namespace: &OwnedFd) -> Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_namespace_is_among_those_that_are_found() {
        let proc = Proc::open().unwrap();
        let own = proc.namespace_of("self").unwrap();
        assert_eq!(proc.namespace_of(std::process::id()).unwrap(), own);
        let found = proc.namespaces();
        let here = found.iter().find(|namespace| namespace.number == own).copied().unwrap();
        assert!(proc.open_namespace(here).is_ok());
        assert!(!proc.is_foreign(here) && proc.is_foreign(Namespace { number: own ^ 1, ..here }));
        assert_eq!(proc.open_namespace(Namespace { number: own ^ 1, ..here }).unwrap_err(), Errno::NOENT);
        assert!(!proc.text_of_table(here.process).unwrap().is_empty());
        assert!(!proc.comm(std::process::id()).is_empty());
        let numbers: std::collections::BTreeSet<u32> = found.iter().map(|found| found.number).collect();
        assert_eq!(numbers.len(), found.len());
    }
}
