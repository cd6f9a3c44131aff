//! One file a volume, in `volumes` below the state directory. Replaced in one step, so that an end at any moment
//! leaves the old one or the new one.
//!
//! A file that cannot be understood is set aside and costs that volume's past. One of a newer version, or one that
//! others could have written, is left alone and not written over.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File as Handle, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use agent_core::hash::hash;
use agent_core::id::VolumeId;
use agent_core::memory::Memory;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::journal::{StoreError, check_owner, read_bounded, set_aside};
use super::memory::{Clocks, File, KIND};
use super::record::API_VERSION;

const FOLDER: &str = "volumes";
const ENDING: &str = "json";
/// Not yet a file: the agent ended while it was written.
const UNFINISHED: &str = "new";
/// Nothing this agent writes gets there.
const MAX_BYTES: u64 = 256 << 10;
/// Files that are read. More volumes than a node has.
const MAX_FILES: usize = 100_000;
/// A file's name is cut to this, with a hash of the rest: file systems take 255 bytes.
const LONGEST_NAME: usize = 160;

/// The files.
#[derive(Debug)]
pub(super) struct Shelf {
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
    pub(super) fn open(state_dir: &Path, is_held: bool) -> (Self, Vec<Memory>, Vec<StoreError>) {
        let dir = state_dir.join(FOLDER);
        let mut shelf = Self { dir, is_closed: is_held, other: BTreeMap::new(), left_alone: BTreeSet::new() };
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
                Some(UNFINISHED) => drop(fs::remove_file(&path)),
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
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        made.map_err(|source| StoreError::Io {
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
        match put_away(path) {
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
                match fs::remove_file(&path) {
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
        replace(path, text.as_bytes())
    }

    /// Makes sure that new names are on disk.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        sync_directory(&self.dir)
    }
}

/// Makes sure that new names in a directory are on disk.
pub(super) fn sync_directory(dir: &Path) -> Result<(), StoreError> {
    let synced = Handle::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|source| StoreError::Io { operation: "sync", path: dir.to_path_buf(), source })
}

/// Replaces a file in one step. It is sure to be on disk when its directory was synced.
pub(super) fn replace(path: &Path, text: &[u8]) -> Result<(), StoreError> {
    let new = path.with_extension(UNFINISHED);
    let failed = |operation, path: &Path| {
        let path = path.to_path_buf();
        move |source| StoreError::Io { operation, path, source }
    };
    let mut handle = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&new)
        .map_err(failed("create", &new))?;
    let written = handle.write_all(text).and_then(|()| handle.sync_all());
    if let Err(source) = written {
        // On a full disk it would take the room that the next attempt needs.
        let _ = fs::remove_file(&new);
        return Err(failed("write", &new)(source));
    }
    fs::rename(&new, path).map_err(failed("replace", path))
}

/// Takes a file that says nothing out of the way, and tells where it is now.
pub(super) fn put_away(path: &Path) -> Result<PathBuf, StoreError> {
    let kept = set_aside(path)?;
    fs::remove_file(path).map_err(|source| StoreError::Io {
        operation: "remove",
        path: path.to_path_buf(),
        source,
    })?;
    Ok(kept)
}

/// A file, or the version of a newer agent, or nothing that can be understood.
pub(crate) fn parse(bytes: &[u8]) -> Result<File, Option<String>> {
    parse_kind(bytes, KIND)
}

/// The same for a file of any kind. Version and kind are looked at first: the shape of a newer one is not ours to judge.
pub(super) fn parse_kind<T: DeserializeOwned>(bytes: &[u8], wanted: &str) -> Result<T, Option<String>> {
    let value: Value = serde_json::from_slice(bytes).map_err(|_| None)?;
    let word = |key| value.get(key).and_then(Value::as_str);
    match (word("apiVersion"), word("kind")) {
        (Some(API_VERSION), Some(kind)) if kind == wanted => serde_json::from_value(value).map_err(|_| None),
        (Some(version), Some(_)) if version != API_VERSION && version.starts_with("mountie/") => {
            Err(Some(version.to_owned()))
        }
        _ => Err(None),
    }
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
