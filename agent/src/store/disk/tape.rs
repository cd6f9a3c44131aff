//! A record of changes, and the states in which a sudden end of the power may leave the disk.
//!
//! The rules are those of POSIX, not those of a kind file system: data is on disk after a sync of its file, a name
//! after a sync of its directory, and of everything else any part may be there. A name that was written may show a
//! file whose data was not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// One change. Files go by the order in which they were created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::store) enum Change {
    MakeDirectory(PathBuf),
    Create(usize, PathBuf),
    Write(usize, Vec<u8>),
    Sync(usize),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    Link(PathBuf, PathBuf),
    SyncDirectory(PathBuf),
}

impl Change {
    /// Whether it changes nothing but what is sure.
    pub(in crate::store) const fn is_sync(&self) -> bool {
        matches!(self, Self::Sync(_) | Self::SyncDirectory(_))
    }
}

/// All changes so far. A clone is another handle to the same record.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct Tape {
    changes: Arc<Mutex<(usize, Vec<Change>)>>,
}

impl Tape {
    pub(super) fn create(&self, path: &Path) -> usize {
        let mut changes = self.changes.lock().unwrap();
        changes.0 += 1;
        let number = changes.0;
        changes.1.push(Change::Create(number, path.to_owned()));
        number
    }

    pub(super) fn record(&self, change: Change) {
        self.changes.lock().unwrap().1.push(change);
    }

    pub(in crate::store) fn len(&self) -> usize {
        self.changes.lock().unwrap().1.len()
    }

    pub(in crate::store) fn changes(&self) -> Vec<Change> {
        self.changes.lock().unwrap().1.clone()
    }
}

/// What a change of names makes of them.
#[derive(Clone, Debug)]
enum Naming {
    Put(PathBuf, usize),
    Move(PathBuf, PathBuf, usize),
    Take(PathBuf),
    Directory(PathBuf),
}

impl Naming {
    fn is_in(&self, directory: &Path) -> bool {
        match self {
            Self::Put(path, _) | Self::Move(_, path, _) | Self::Take(path) | Self::Directory(path) => {
                path.parent() == Some(directory)
            }
        }
    }
}

/// The disk at the moment at which the power goes.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct Moment {
    /// What every program saw.
    seen: BTreeMap<PathBuf, usize>,
    /// Names that are sure to be there.
    sure: BTreeMap<PathBuf, usize>,
    directories: BTreeSet<PathBuf>,
    /// Changes of names that may be there.
    names: Vec<Naming>,
    /// What each file holds, and how much of it is sure to be there.
    data: BTreeMap<usize, (Vec<u8>, usize)>,
}

impl Moment {
    /// After these changes.
    pub(in crate::store) fn after(changes: &[Change]) -> Self {
        let mut moment = Self::default();
        for change in changes {
            moment.take(change);
        }
        moment
    }

    fn take(&mut self, change: &Change) {
        match change.clone() {
            Change::MakeDirectory(path) => self.names.push(Naming::Directory(path)),
            Change::Create(number, path) => {
                self.data.insert(number, (Vec::new(), 0));
                self.seen.insert(path.clone(), number);
                self.names.push(Naming::Put(path, number));
            }
            Change::Write(number, bytes) => self.data.entry(number).or_default().0.extend(bytes),
            Change::Sync(number) => {
                let data = self.data.entry(number).or_default();
                data.1 = data.0.len();
            }
            Change::Rename(from, to) => {
                let number = self.seen.remove(&from).unwrap();
                self.seen.insert(to.clone(), number);
                self.names.push(Naming::Move(from, to, number));
            }
            Change::Remove(path) => {
                self.seen.remove(&path);
                self.names.push(Naming::Take(path));
            }
            Change::Link(from, to) => {
                let number = self.seen[&from];
                self.seen.insert(to.clone(), number);
                self.names.push(Naming::Put(to, number));
            }
            Change::SyncDirectory(path) => {
                let (now, later) =
                    std::mem::take(&mut self.names).into_iter().partition(|name: &Naming| name.is_in(&path));
                self.names = later;
                for naming in now {
                    apply(&naming, &mut self.sure, &mut self.directories);
                }
            }
        }
    }

    /// Changes of names that are not sure.
    pub(in crate::store) fn unsure_names(&self) -> usize {
        self.names.len()
    }

    /// Whether any data was written that is not sure.
    pub(in crate::store) fn has_unsure_data(&self) -> bool {
        self.data.values().any(|(bytes, sure)| *sure < bytes.len())
    }

    /// Writes one of the states that the disk may be in to `root`, whose old name was `was`. `kept` chooses the changes
    /// of names that have come to the disk; `torn` what there is of data that is not sure.
    pub(in crate::store) fn write_to(
        &self,
        (was, root): (&Path, &Path),
        kept: &dyn Fn(usize) -> bool,
        torn: Torn,
    ) {
        let (mut names, mut directories) = (self.sure.clone(), self.directories.clone());
        for (number, naming) in self.names.iter().enumerate() {
            if kept(number) {
                apply(naming, &mut names, &mut directories);
            }
        }
        let place = |path: &Path| path.strip_prefix(was).ok().map(|inside| root.join(inside));
        // A name without its directory is nowhere.
        let is_there = |path: &Path| {
            path.ancestors()
                .skip(1)
                .take_while(|above| *above != was)
                .all(|above| directories.contains(above))
        };
        for directory in directories.iter().filter(|path| path.starts_with(was) && is_there(path)) {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(place(directory).unwrap());
            made.unwrap();
        }
        for (path, number) in names.iter().filter(|(path, _)| is_there(path)) {
            let (bytes, sure) = &self.data[number];
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600);
            file = file.custom_flags(libc::O_NOFOLLOW);
            file.open(place(path).unwrap()).unwrap().write_all(&torn.of(bytes, *sure)).unwrap();
        }
    }
}

fn apply(naming: &Naming, names: &mut BTreeMap<PathBuf, usize>, directories: &mut BTreeSet<PathBuf>) {
    match naming {
        Naming::Put(path, number) => drop(names.insert(path.clone(), *number)),
        Naming::Move(from, to, number) => {
            // The old name may never have come to the disk.
            if names.get(from) == Some(number) {
                names.remove(from);
            }
            names.insert(to.clone(), *number);
        }
        Naming::Take(path) => drop(names.remove(path)),
        Naming::Directory(path) => drop(directories.insert(path.clone())),
    }
}

/// What there is of data that was not brought to the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::store) enum Torn {
    Nothing,
    /// The first part of it, in thousandths.
    Part(usize),
    /// Its length, and zeros.
    Zeros,
    All,
}

impl Torn {
    pub(in crate::store) const SOME: [Self; 5] =
        [Self::Nothing, Self::Part(100), Self::Part(700), Self::Zeros, Self::All];

    fn of(self, bytes: &[u8], sure: usize) -> Vec<u8> {
        let rest = bytes.len() - sure;
        let mut kept = bytes[..sure].to_vec();
        match self {
            Self::Nothing => {}
            Self::Part(thousandths) => kept.extend(&bytes[sure..sure + rest * thousandths / 1000]),
            Self::Zeros => kept.resize(bytes.len(), 0),
            Self::All => kept.extend(&bytes[sure..]),
        }
        kept
    }
}

/// Empties a directory for the next state.
pub(in crate::store) fn clear(root: &Path) {
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            clear(&path);
            fs::remove_dir(&path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
    }
}
