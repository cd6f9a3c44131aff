//! The journal file: one line a record, `CRC JSON`, appended and synced.
//!
//! A line whose check sum is wrong, or that was cut off, costs that line. On opening, a file that was not read
//! whole is kept under a name of its own, and what is still unfinished is written to a new file that replaces
//! the old one in one step. A file that cannot be kept is never written over.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::id::PlanId;
use agent_core::observation::Unfinished;
use nix::fcntl::{Flock, FlockArg};
use thiserror::Error;

use super::disk::{Disk, Handle};
use super::record::{API_VERSION, Body, Record};

const FILE: &str = "journal";
/// A journal is read up to here: nothing this agent writes gets there. The rest counts as one bad line.
const MAX_BYTES: u64 = 16 << 20;
/// The file is shortened when this many records were appended.
const SHORTEN_AFTER: usize = 2_000;

/// What can be wrong with the state. Texts name the object and the remedy.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The thread could not be started.
    #[error("the thread that writes state could not be started")]
    Thread {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The disk does not answer.
    #[error("the disk under `{}` did not answer within {patience:?}", dir.display())]
    Slow {
        /// The state directory.
        dir: PathBuf,
        /// How long was waited.
        patience: Duration,
    },
    /// The thread has ended.
    #[error("state is not written any more")]
    Gone,
    /// A file operation failed.
    #[error("cannot {operation} `{}`", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Others may write the file that tells root what to unmount.
    #[error(
        "`{}` has owner {owner} and mode {mode:04o}: others could write it; make it owned by the agent's user and `chmod go-w` it",
        path.display()
    )]
    Unsafe {
        /// The file or directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its mode.
        mode: u32,
    },
    /// Another agent keeps its state there.
    #[error("another agent keeps its state in `{}`; give each its own `[agent] state_dir`", dir.display())]
    Held {
        /// The state directory.
        dir: PathBuf,
    },
    /// Lines that could not be read.
    #[error("{lines} unreadable lines in `{}`; the file was kept as `{}`", path.display(), kept.display())]
    BadLines {
        /// The journal.
        path: PathBuf,
        /// Where the damaged file is now.
        kept: PathBuf,
        /// How many.
        lines: usize,
    },
    /// A file that says nothing this agent understands.
    #[error("`{}` could not be understood; it was kept as `{}`, and only that volume's past is lost", path.display(), kept.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// Where it is now.
        kept: PathBuf,
    },
    /// What people had paused cannot be told.
    #[error(
        "what people have paused is not known: repairs of every volume are paused until `mountie resume --all`"
    )]
    PausesUnknown {
        /// Why.
        #[source]
        source: Box<StoreError>,
    },
    /// One pause was not understood.
    #[error("a pause in `{}` was not understood: {whom} stays paused until `mountie resume`", path.display())]
    PauseUnread {
        /// The file.
        path: PathBuf,
        /// Who is paused by it.
        whom: String,
    },
    /// A file or directory that was not taken at the start, for a reason that was told then.
    #[error("`{}` is left as it was found at the start", path.display())]
    LeftAlone {
        /// The file or directory.
        path: PathBuf,
    },
    /// Written by a newer agent.
    #[error("`{}` was written by a newer version ({version}); it is left alone and nothing is written", path.display())]
    Future {
        /// The journal.
        path: PathBuf,
        /// The version found.
        version: String,
    },
}

/// What the journal said when it was opened.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) unfinished: Vec<Unfinished>,
    pub(super) next_plan: PlanId,
}

impl Default for Replay {
    fn default() -> Self {
        Self { unfinished: Vec::new(), next_plan: PlanId(1) }
    }
}

impl Replay {
    /// What is assumed of a journal that could not be read.
    pub(super) fn unknown() -> Self {
        Self { unfinished: Vec::new(), next_plan: PlanId(first_id_of_unknown_journal()) }
    }
}

/// Above the ids of every earlier run, unless those made more than one plan a second.
fn first_id_of_unknown_journal() -> u64 {
    crate::sys::clock::wall().as_secs()
}

/// The open journal, or the memory of why there is none.
#[derive(Debug)]
pub(super) struct Journal {
    disk: Disk,
    path: PathBuf,
    file: Option<Handle>,
    /// Intents without an outcome, by plan.
    open: BTreeMap<u64, Record>,
    highest: u64,
    appended: usize,
    /// Never write: the file is somebody else's, or would be lost.
    read_only: bool,
    /// Held as long as the journal is: another agent must not take the same plans for its own.
    lock: Option<Flock<File>>,
    /// Another agent has that lock.
    is_held: bool,
}

/// What became of reading the file.
enum Loaded {
    /// All of it is in memory.
    Whole,
    /// Not all of it is.
    InPart,
    /// It must not be written over.
    LeaveAlone,
}

impl Journal {
    /// Reads what is there and makes the file ready. Never fails: what is wrong is returned beside it.
    pub(super) fn open(disk: &Disk, dir: &Path) -> (Self, Replay, Vec<StoreError>) {
        let path = dir.join(FILE);
        let mut journal = Self {
            disk: disk.clone(),
            path,
            file: None,
            open: BTreeMap::new(),
            highest: 0,
            appended: 0,
            read_only: false,
            lock: None,
            is_held: false,
        };
        let mut defects = Vec::new();
        let loaded = journal.load(dir, &mut defects);
        journal.read_only = matches!(loaded, Loaded::LeaveAlone);
        if !matches!(loaded, Loaded::Whole) {
            journal.highest = journal.highest.max(first_id_of_unknown_journal());
        }
        if !journal.read_only
            && let Err(defect) = journal.rewrite()
        {
            defects.push(defect);
        }
        let replay = Replay {
            unfinished: journal.open.values().cloned().filter_map(Record::into_unfinished).collect(),
            next_plan: PlanId(journal.highest.saturating_add(1)),
        };
        (journal, replay, defects)
    }

    fn load(&mut self, dir: &Path, defects: &mut Vec<StoreError>) -> Loaded {
        if let Err(source) = self.disk.make_directory(dir) {
            let path = dir.to_path_buf();
            defects.push(StoreError::Io { operation: "create the directory", path, source });
            // There is nothing to lose.
            return Loaded::Whole;
        }
        match take_lock(dir) {
            Ok(lock) => self.lock = lock,
            Err(defect) => {
                self.is_held = true;
                defects.push(defect);
                return Loaded::LeaveAlone;
            }
        }
        let bytes = match self.read(dir) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Loaded::Whole,
            Err(defect @ StoreError::Unsafe { .. }) => {
                defects.push(defect);
                return Loaded::LeaveAlone;
            }
            Err(defect) => {
                defects.push(defect);
                return match self.set_aside() {
                    Ok(_) => Loaded::InPart,
                    Err(defect) => {
                        defects.push(defect);
                        Loaded::LeaveAlone
                    }
                };
            }
        };
        self.take_lines(&bytes, defects)
    }

    /// What is in the file, if there is one that nobody else may write.
    fn read(&self, dir: &Path) -> Result<Option<Vec<u8>>, StoreError> {
        check_owner(dir)?;
        let bytes = match read_bounded(&self.path, MAX_BYTES) {
            Ok(bytes) => bytes,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(StoreError::Io { operation: "read", path: self.path.clone(), source }),
        };
        check_owner(&self.path)?;
        Ok(Some(bytes))
    }

    fn take_lines(&mut self, bytes: &[u8], defects: &mut Vec<StoreError>) -> Loaded {
        let mut bad = 0;
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match parse_line(line) {
                Line::Ours(record) => self.note(*record),
                Line::Other(version) => {
                    defects.push(StoreError::Future { path: self.path.clone(), version });
                    return Loaded::LeaveAlone;
                }
                Line::Bad => bad += 1,
            }
        }
        if bad == 0 {
            return Loaded::Whole;
        }
        match self.set_aside() {
            Ok(kept) => {
                defects.push(StoreError::BadLines { path: self.path.clone(), kept, lines: bad });
                Loaded::InPart
            }
            Err(defect) => {
                defects.push(defect);
                Loaded::LeaveAlone
            }
        }
    }

    /// Gives the file a second name, which it keeps when a new one takes its place. It keeps its own as well: if
    /// the new one cannot be written, the next start finds it again.
    fn set_aside(&self) -> Result<PathBuf, StoreError> {
        set_aside(&self.disk, &self.path)
    }

    fn note(&mut self, record: Record) {
        let plan = record.plan();
        self.highest = self.highest.max(plan);
        match record.body {
            Body::Intent { .. } => {
                self.open.insert(plan, record);
            }
            Body::Outcome { .. } => {
                self.open.remove(&plan);
            }
            Body::Mark { .. } => {}
        }
    }

    /// Another agent keeps its state here: nothing is ours.
    pub(super) const fn is_held_by_another(&self) -> bool {
        self.is_held
    }

    /// Appends one record and syncs it.
    pub(super) fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        // Memory first: the truth must not depend on the disk.
        self.note(record.clone());
        if self.read_only {
            return Err(StoreError::Gone);
        }
        if self.file.is_none() || self.appended >= SHORTEN_AFTER {
            // Also the way back after a failure: the new file holds all that is still open.
            return self.rewrite();
        }
        let result = self.append_line(record);
        if result.is_err() {
            self.file = None;
        }
        result
    }

    fn append_line(&mut self, record: &Record) -> Result<(), StoreError> {
        let line = render_line(record);
        let Some(file) = self.file.as_mut() else { return Err(StoreError::Gone) };
        let written = self.disk.write(file, line.as_bytes()).and_then(|()| self.disk.sync(file));
        written.map_err(|source| StoreError::Io {
            operation: "append to",
            path: self.path.clone(),
            source,
        })?;
        self.appended += 1;
        Ok(())
    }

    /// Writes all that is still open to a new file and puts it in the place of the old one, in one step.
    fn rewrite(&mut self) -> Result<(), StoreError> {
        let mut text = render_line(&Record::mark(self.highest));
        for record in self.open.values() {
            text.push_str(&render_line(record));
        }
        let file = self.disk.replace(&self.path, text.as_bytes())?;
        if let Some(dir) = self.path.parent() {
            self.disk.sync_directory(dir)?;
        }
        self.file = Some(file);
        self.appended = 0;
        Ok(())
    }
}

/// Takes the directory for this agent alone; `None` where no lock can be made, which other defects explain.
pub(super) fn take_lock(dir: &Path) -> Result<Option<Flock<File>>, StoreError> {
    let Ok(directory) = File::open(dir) else { return Ok(None) };
    match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Err(StoreError::Held { dir: dir.to_path_buf() }),
        Err(_) => Ok(None),
    }
}

/// The file or directory decides what root unmounts: nobody else may write it.
pub(super) fn check_owner(path: &Path) -> Result<(), StoreError> {
    let meta = fs::symlink_metadata(path).map_err(|source| StoreError::Io {
        operation: "look at",
        path: path.to_path_buf(),
        source,
    })?;
    let (owner, mode) = (meta.uid(), meta.mode() & 0o7777);
    let own = nix::unistd::geteuid().as_raw();
    if (owner != own && owner != 0) || mode & 0o022 != 0 {
        return Err(StoreError::Unsafe { path: path.to_path_buf(), owner, mode });
    }
    Ok(())
}

/// Reads a file up to `most` bytes. Never through a link, and never waiting for another end.
pub(super) fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Gives a file a second name, with the time in it.
pub(super) fn set_aside(disk: &Disk, path: &Path) -> Result<PathBuf, StoreError> {
    let seconds = crate::sys::clock::wall().as_secs();
    let failed = |source| StoreError::Io { operation: "set aside", path: path.to_path_buf(), source };
    for number in 0..100 {
        let kept = path.with_extension(format!("bad-{seconds}-{number}"));
        match disk.link(path, &kept) {
            Ok(()) => return Ok(kept),
            Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(failed(source)),
        }
    }
    Err(failed(io::ErrorKind::AlreadyExists.into()))
}

/// Intents without an outcome, as the file has them now, and how many lines cannot be read. For people: nothing is
/// changed.
pub(super) fn open_intents(dir: &Path) -> Result<(Vec<Record>, usize), StoreError> {
    let path = dir.join(FILE);
    let bytes = match read_bounded(&path, MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(source) => return Err(StoreError::Io { operation: "read", path, source }),
    };
    check_owner(&path)?;
    let (mut open, mut bad) = (BTreeMap::new(), 0);
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match parse_line(line) {
            Line::Other(version) => return Err(StoreError::Future { path, version }),
            Line::Bad => bad += 1,
            Line::Ours(record) => match record.body {
                Body::Intent { .. } => drop(open.insert(record.plan(), *record)),
                Body::Outcome { .. } => drop(open.remove(&record.plan())),
                Body::Mark { .. } => {}
            },
        }
    }
    Ok((open.into_values().collect(), bad))
}

/// What a line is.
pub(crate) enum Line {
    Ours(Box<Record>),
    Other(String),
    Bad,
}

pub(crate) fn parse_line(line: &[u8]) -> Line {
    let Some((sum, json)) = line.split_at_checked(8) else { return Line::Bad };
    let Some(json) = json.strip_prefix(b" ") else { return Line::Bad };
    let sum = str::from_utf8(sum).ok().and_then(|sum| u32::from_str_radix(sum, 16).ok());
    if sum != Some(crc32fast::hash(json)) {
        return Line::Bad;
    }
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(json) else { return Line::Bad };
    match value.get("apiVersion").and_then(serde_json::Value::as_str) {
        Some(API_VERSION) => {
            serde_json::from_value(value).map_or(Line::Bad, |record| Line::Ours(Box::new(record)))
        }
        Some(other) => Line::Other(other.to_owned()),
        None => Line::Bad,
    }
}

pub(crate) fn render_line(record: &Record) -> String {
    // A record is plain data: it always has a JSON form. An empty line would be skipped on reading.
    let json = serde_json::to_string(record).unwrap_or_default();
    format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()))
}

#[cfg(test)]
mod tests;
