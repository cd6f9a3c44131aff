//! One file a volume, in `volumes` below the state directory. Replaced in one step, so that an end at any moment
//! leaves the old one or the new one.
//!
//! A file that cannot be understood is set aside and costs that volume's past. One of a newer version, or one that
//! others could have written, is left alone and not written over.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use agent_core::hash::hash;
use agent_core::id::VolumeId;
use agent_core::memory::Memory;
use serde_json::{Map, Value};

use super::disk::Disk;
use super::form::{Form, Old};
use super::journal::{StoreError, check_owner, read_bounded, set_aside};
use super::memory::{API_VERSION, Clocks, File, KIND};

pub(super) const FOLDER: &str = "volumes";
pub(super) const ENDING: &str = "json";
/// Not yet a file: the agent ended while it was written.
const UNFINISHED: &str = "new";
/// Nothing this agent writes gets there.
pub(super) const MAX_BYTES: u64 = 256 << 10;
/// Files that are read. More volumes than a node has.
const MAX_FILES: usize = 100_000;
/// A file's name is cut to this, with a hash of the rest: file systems take 255 bytes.
const LONGEST_NAME: usize = 160;

/// The files.
#[derive(Debug)]
pub(super) struct Shelf {
    disk: Disk,
    dir: PathBuf,
    /// Nothing is written: the directory is not ours alone.
    is_closed: bool,
    /// What newer agents wrote into files that this one understands.
    other: BTreeMap<String, Map<String, Value>>,
    /// Files that are not ours to write.
    left_alone: BTreeSet<String>,
}

impl Shelf {
    /// Reads what is there. Never fails: what is wrong is returned beside it.
    pub(super) fn open(disk: &Disk, state_dir: &Path, is_held: bool) -> (Self, Vec<Memory>, Vec<StoreError>) {
        let dir = state_dir.join(FOLDER);
        let (other, left_alone) = (BTreeMap::new(), BTreeSet::new());
        let mut shelf = Self { disk: disk.clone(), dir, is_closed: is_held, other, left_alone };
        let (mut memories, mut defects) = (Vec::new(), Vec::new());
        if !is_held && let Err(defect) = shelf.read_all(state_dir, &mut memories, &mut defects) {
            shelf.is_closed = matches!(defect, StoreError::Unsafe { .. });
            defects.push(defect);
        }
        (shelf, memories, defects)
    }

    fn read_all(
        &mut self,
        state_dir: &Path,
        memories: &mut Vec<Memory>,
        defects: &mut Vec<StoreError>,
    ) -> Result<(), StoreError> {
        self.make_directory()?;
        check_owner(state_dir)?;
        check_owner(&self.dir)?;
        let failed = |source| StoreError::Io { operation: "read", path: self.dir.clone(), source };
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)?.take(MAX_FILES) {
            names.push(PathBuf::from(entry.map_err(failed)?.file_name()));
        }
        names.sort();
        let clocks = Clocks::of_now();
        for name in names {
            let path = self.dir.join(&name);
            match name.extension().and_then(OsStr::to_str) {
                // Best effort: it says nothing, and the next one of that name replaces it.
                Some(UNFINISHED) => drop(self.disk.remove(&path)),
                Some(ENDING) => match self.read(&path, &clocks) {
                    Ok(memory) => memories.push(memory),
                    Err(defect) => defects.push(defect),
                },
                _ => {}
            }
        }
        Ok(())
    }

    fn make_directory(&self) -> Result<(), StoreError> {
        self.disk.make_directory(&self.dir).map_err(|source| StoreError::Io {
            operation: "create the directory",
            path: self.dir.clone(),
            source,
        })
    }

    fn read(&mut self, path: &Path, clocks: &Clocks) -> Result<Memory, StoreError> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if let Err(defect) = check_owner(path) {
            self.left_alone.insert(name);
            return Err(defect);
        }
        let parsed = read_bounded(path, MAX_BYTES).map_err(|_| None).and_then(|bytes| parse(&bytes));
        match parsed {
            Ok(mut file) if file_name(&file.volume) == name => {
                let other = std::mem::take(&mut file.other);
                if !other.is_empty() {
                    self.other.insert(name, other);
                }
                Ok(file.into_memory(clocks))
            }
            Err(Some(version)) => {
                self.left_alone.insert(name);
                Err(StoreError::Future { path: path.to_path_buf(), version })
            }
            Ok(_) | Err(None) => Err(self.put_away(path, name)),
        }
    }

    /// Takes a file that says nothing out of the way.
    fn put_away(&mut self, path: &Path, name: String) -> StoreError {
        match put_away(&self.disk, path) {
            Ok(kept) => StoreError::BadFile { path: path.to_path_buf(), kept },
            Err(defect) => {
                self.left_alone.insert(name);
                defect
            }
        }
    }

    /// Writes what is known of one volume, or forgets it. It is sure to be on disk after [`Shelf::sync`].
    pub(super) fn put(&mut self, volume: &VolumeId, memory: Option<&Memory>) -> Result<(), StoreError> {
        let name = file_name(volume.as_str());
        let path = self.dir.join(&name);
        if self.is_closed || self.left_alone.contains(&name) {
            return Err(StoreError::LeftAlone { path });
        }
        match memory {
            Some(memory) => self.write(&path, &name, memory),
            None => {
                self.other.remove(&name);
                match self.disk.remove(&path) {
                    Err(source) if source.kind() != io::ErrorKind::NotFound => {
                        Err(StoreError::Io { operation: "remove", path, source })
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    fn write(&self, path: &Path, name: &str, memory: &Memory) -> Result<(), StoreError> {
        // It may have been taken away, or could not be made at the start.
        self.make_directory()?;
        let other = self.other.get(name).cloned().unwrap_or_default();
        let file = File::new(memory, other, &Clocks::of_now());
        // Plain data: it always has a JSON form.
        let mut text = serde_json::to_string_pretty(&file).unwrap_or_default();
        text.push('\n');
        self.disk.replace(path, text.as_bytes()).map(drop)
    }

    /// Makes sure that new names are on disk.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        self.disk.sync_directory(&self.dir)
    }
}

/// What these files are. The first version did not say what was mounted: such a volume is known, and not missed.
const FORM: Form = Form {
    version: API_VERSION,
    kind: KIND,
    old: &[Old {
        version: "mountie/v1",
        kind: "VolumeMemory",
        step: |file| {
            file.insert("apiVersion".to_owned(), API_VERSION.into());
            file.insert("kind".to_owned(), KIND.into());
        },
    }],
};

/// Takes a file that says nothing out of the way, and tells where it is now.
pub(super) fn put_away(disk: &Disk, path: &Path) -> Result<PathBuf, StoreError> {
    let kept = set_aside(disk, path)?;
    let removed = disk.remove(path);
    removed.map_err(|source| StoreError::Io { operation: "remove", path: path.to_path_buf(), source })?;
    Ok(kept)
}

/// A file, or the version of a newer agent, or nothing that can be understood.
pub(crate) fn parse(bytes: &[u8]) -> Result<File, Option<String>> {
    FORM.parse(bytes)
}

/// The name of a volume's file: readable where the volume's is, and never another one's.
fn file_name(volume: &str) -> String {
    let mut name = String::new();
    for byte in volume.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_".contains(&byte) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
    }
    if name.len() > LONGEST_NAME {
        let sum = hash(volume.as_bytes());
        name.truncate(LONGEST_NAME);
        name.push_str(&format!("~{sum:016x}"));
    }
    format!("{name}.{ENDING}")
}

#[cfg(test)]
mod tests;
