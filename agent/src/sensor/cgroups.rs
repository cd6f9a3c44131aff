//! Paths of cgroups by their ids, for people. The id of a cgroup is the inode number of its directory, so the tree of
//! cgroupfs is walked when an id is asked for that is not known yet. cgroupfs is no storage: walking it waits for nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use agent_core::path::escape;
use agent_core::time::Monotonic;
use tokio::sync::mpsc::Sender;

use crate::sensor::SensorEvent;
use crate::sys::clock;

/// Where cgroup v2 is mounted; beside v1 in `unified`. The first that exists is the only one that is asked: the trees
/// of v1 beside it have inode numbers of their own.
pub const ROOTS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/// Between two walks.
const PAUSE: Duration = Duration::from_secs(5);
/// Directories that one walk looks at, at most.
const LARGEST: usize = 65_536;
/// Ids that are remembered as asked for, and that may wait to be looked up.
const ASKED: usize = 4096;

/// Asks for paths. The thread behind it ends with this value.
#[derive(Debug)]
pub struct Cgroups {
    asks: SyncSender<u64>,
    asked: BTreeSet<u64>,
}

impl Cgroups {
    /// Starts the thread; nothing is walked yet. `None` when there is no thread: ids are then shown as they are.
    #[must_use]
    pub fn start(roots: Vec<PathBuf>, events: Sender<SensorEvent>) -> Option<Self> {
        let (asks, receiver) = sync_channel(ASKED);
        let finder = Finder { roots, events, walked: None };
        std::thread::Builder::new().name("cgroups".into()).spawn(move || finder.run(&receiver)).ok()?;
        Some(Self { asks, asked: BTreeSet::new() })
    }

    /// Asks for the path of an id, once. Never waits.
    pub fn ask(&mut self, id: u64) {
        if id == 0 || self.asked.contains(&id) {
            return;
        }
        if self.asked.len() >= ASKED {
            // They may be gone, and their ids another's.
            self.asked.clear();
        }
        if self.asks.try_send(id).is_ok() {
            self.asked.insert(id);
        }
    }

    /// What was told is not kept any more: each id may be asked for again.
    pub fn forget(&mut self) {
        self.asked.clear();
    }
}

struct Finder {
    roots: Vec<PathBuf>,
    events: Sender<SensorEvent>,
    walked: Option<Monotonic>,
}

impl Finder {
    fn run(mut self, asks: &Receiver<u64>) {
        let mut wanted = BTreeSet::new();
        loop {
            // Without anything wanted it waits for as long as it takes.
            let rest = self.walked.map_or(Duration::ZERO, |at| PAUSE.saturating_sub(clock::now().since(at)));
            let patience = if wanted.is_empty() { Duration::from_secs(3600) } else { rest };
            match asks.recv_timeout(patience) {
                Ok(id) => drop(wanted.insert(id)),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) if wanted.is_empty() => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.walked = Some(clock::now());
                    // Those that are not found are gone.
                    let wanted = std::mem::take(&mut wanted);
                    let found = self.look(&wanted);
                    if !found.is_empty() && self.events.blocking_send(SensorEvent::Cgroups(found)).is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn look(&self, wanted: &BTreeSet<u64>) -> BTreeMap<u64, String> {
        let root = self.roots.iter().find(|root| root.is_dir());
        root.map(|root| find(root, wanted)).unwrap_or_default()
    }
}

/// The paths of these ids below a root, as cgroups are written: from the root on, with a slash at the start.
fn find(root: &Path, wanted: &BTreeSet<u64>) -> BTreeMap<u64, String> {
    let mut found = BTreeMap::new();
    if let Some(id) = std::fs::metadata(root).ok().map(|root| root.ino()).filter(|id| wanted.contains(id)) {
        found.insert(id, "/".to_owned());
    }
    let mut open = vec![root.to_owned()];
    let mut seen = 0_usize;
    while let Some(directory) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            seen += 1;
            let path = entry.path();
            if wanted.contains(&entry.ino())
                && let Ok(below) = path.strip_prefix(root)
            {
                found.insert(entry.ino(), format!("/{}", escape(below.as_os_str().as_bytes())));
            }
            if seen >= LARGEST || found.len() == wanted.len() {
                return found;
            }
            open.push(path);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_however_deep_it_lies_and_told_once() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a.slice/b.scope");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(root.path().join("cgroup.procs"), "").unwrap();
        let id = std::fs::metadata(&deep).unwrap().ino();
        let top = std::fs::metadata(root.path()).unwrap().ino();
        assert_eq!(find(root.path(), &BTreeSet::from([top]))[&top], "/");
        let (events, mut told) = tokio::sync::mpsc::channel(4);
        let mut cgroups =
            Cgroups::start(vec![root.path().join("unified"), root.path().into()], events).unwrap();
        cgroups.ask(0);
        cgroups.ask(id);
        cgroups.ask(id);
        let Some(SensorEvent::Cgroups(found)) = told.blocking_recv() else { panic!("nothing was found") };
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [(id, "/a.slice/b.scope".to_owned())]);
        cgroups.forget();
        cgroups.ask(id);
        assert!(told.blocking_recv().is_some(), "forgotten, so asked for again");
        drop(cgroups);
        assert!(told.blocking_recv().is_none(), "once, and the thread ends");
    }

    #[test]
    fn beside_a_tree_of_its_own_the_others_are_not_asked() {
        let root = tempfile::tempdir().unwrap();
        for place in ["unified/a", "memory/b"] {
            std::fs::create_dir_all(root.path().join(place)).unwrap();
        }
        let id = |place| std::fs::metadata(root.path().join(place)).unwrap().ino();
        let (events, _told) = tokio::sync::mpsc::channel(1);
        let finder =
            Finder { roots: vec![root.path().join("unified"), root.path().into()], events, walked: None };
        assert_eq!(finder.look(&BTreeSet::from([id("unified/a")]))[&id("unified/a")], "/a");
        assert!(finder.look(&BTreeSet::from([id("memory/b")])).is_empty());
    }

    #[test]
    fn what_is_gone_is_not_found() {
        let root = tempfile::tempdir().unwrap();
        assert!(find(root.path(), &BTreeSet::from([u64::MAX])).is_empty());
        assert!(find(&root.path().join("absent"), &BTreeSet::from([1])).is_empty());
    }
}
