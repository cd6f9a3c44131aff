//! Sentinels that people had put on volumes and that the configuration does not name: `sentinels.json`.
//!
//! Small and rarely written: always as a whole, beside the old file, which it then replaces in one step. A bad entry
//! costs that entry and stays in the file; a file that is no such file is kept under another name; one of a later
//! version is read as far as it goes by nobody, and never written over.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use agent_core::id::VolumeId;
use agent_core::volume::Sentinel;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::disk::Disk;
use super::record::{API_VERSION, Bytes};
use super::{PATIENCE, StoreError};

pub(super) const FILE: &str = "sentinels.json";
const KIND: &str = "Sentinels";
/// Nothing that this agent writes gets there.
pub(super) const MAX_BYTES: u64 = 16 << 20;

/// The whole file.
#[derive(Serialize, Deserialize)]
struct Envelope {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    sentinels: Vec<Value>,
}

/// One entry.
#[derive(Serialize, Deserialize)]
struct Entry {
    volume: String,
    path: Bytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<Bytes>,
}

/// The pinned sentinels, and where they are kept.
#[derive(Clone, Debug)]
pub struct PinFile {
    disk: Disk,
    dir: PathBuf,
    /// Entries that were not understood, kept as they are. `None`: the file must not be written.
    kept: Arc<Mutex<Option<Vec<Value>>>>,
}

/// What a file said when it was read.
#[derive(Debug)]
pub struct Pinned {
    /// The writing side.
    pub file: PinFile,
    /// By volume.
    pub sentinels: BTreeMap<VolumeId, Sentinel>,
    /// What is wrong with the file, for the log.
    pub defects: Vec<StoreError>,
}

/// Reads what was pinned, or goes on without.
pub async fn open(state_dir: &Path) -> Pinned {
    let dir = state_dir.to_path_buf();
    let reading = tokio::task::spawn_blocking(move || read(&dir));
    match tokio::time::timeout(PATIENCE, reading).await {
        Ok(Ok(pinned)) => pinned,
        Ok(Err(_)) => unknown(state_dir, StoreError::Gone),
        Err(_) => unknown(state_dir, StoreError::Slow { dir: state_dir.to_path_buf(), patience: PATIENCE }),
    }
}

/// A file that was not read must not be written over.
fn unknown(dir: &Path, defect: StoreError) -> Pinned {
    let file = PinFile { disk: Disk::default(), dir: dir.to_path_buf(), kept: Arc::new(Mutex::new(None)) };
    Pinned { file, sentinels: BTreeMap::new(), defects: vec![defect] }
}

/// Takes the sentinel of one volume out of the file, where no agent has it open.
pub(super) fn drop_pin(dir: &Path, volume: &str) -> Result<(), StoreError> {
    let mut pinned = read(dir);
    match pinned.sentinels.remove(&VolumeId::new(volume)) {
        Some(_) => pinned.file.replace(&pinned.sentinels),
        None => Ok(()),
    }
}

fn read(dir: &Path) -> Pinned {
    read_with(&Disk::default(), dir)
}

pub(super) fn read_with(disk: &Disk, dir: &Path) -> Pinned {
    let path = dir.join(FILE);
    let bytes = match load(&path) {
        Ok(bytes) => bytes,
        Err(defect) => return unknown(dir, defect),
    };
    let mut pinned = unknown(dir, StoreError::Gone);
    pinned.defects.clear();
    let mut kept = Vec::new();
    match bytes.as_deref().map(serde_json::from_slice::<Envelope>) {
        None => {}
        Some(Ok(envelope)) if envelope.api_version != API_VERSION || envelope.kind != KIND => {
            let version = format!("{} {}", envelope.api_version, envelope.kind);
            return unknown(dir, StoreError::Future { path, version });
        }
        Some(Ok(envelope)) => {
            for value in envelope.sentinels {
                match serde_json::from_value::<Entry>(value.clone()) {
                    Ok(entry) => {
                        let (id, sentinel) = entry.into_sentinel();
                        pinned.sentinels.insert(id, sentinel);
                    }
                    Err(_) => kept.push(value),
                }
            }
            if !kept.is_empty() {
                let lines = kept.len();
                pinned.defects.push(StoreError::BadLines { kept: path.clone(), path, lines });
            }
        }
        Some(Err(_)) => {
            let aside = dir.join(format!("{FILE}.damaged"));
            let defect = match disk.rename(&path, &aside) {
                Ok(()) => StoreError::BadLines { path, kept: aside, lines: 1 },
                Err(source) => return unknown(dir, StoreError::Io { operation: "keep", path, source }),
            };
            pinned.defects.push(defect);
        }
    }
    pinned.file.disk = disk.clone();
    pinned.file.kept = Arc::new(Mutex::new(Some(kept)));
    pinned
}

/// The file's bytes; `None` when there is none. It decides what counts as the right volume: nobody else may write it.
fn load(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    let failed = |operation, source| StoreError::Io { operation, path: path.to_path_buf(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed("open", source)),
    };
    let facts = file.metadata().map_err(|source| failed("look at", source))?;
    let (owner, mode) = (facts.uid(), facts.mode() & 0o7777);
    let own = nix::unistd::geteuid().as_raw();
    if (owner != 0 && owner != own) || mode & 0o022 != 0 {
        return Err(StoreError::Unsafe { path: path.to_path_buf(), owner, mode });
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(|source| failed("read", source))?;
    Ok(Some(bytes))
}

impl Entry {
    fn new(id: &VolumeId, sentinel: &Sentinel) -> Self {
        let content = sentinel.content.as_ref();
        let content = content.map(|content| Bytes::from(&agent_core::path::BytePath::new(content.clone())));
        Self { volume: id.as_str().to_owned(), path: Bytes::from(&sentinel.path), content }
    }

    fn into_sentinel(self) -> (VolumeId, Sentinel) {
        let bytes = |bytes: Bytes| agent_core::path::BytePath::from(bytes);
        let content = self.content.map(|content| bytes(content).as_bytes().to_vec());
        (VolumeId::new(self.volume), Sentinel { path: bytes(self.path), content })
    }
}

impl PinFile {
    /// Writes the whole set.
    ///
    /// # Errors
    /// When it could not be written; the set counts all the same until the agent ends.
    pub async fn write(&self, sentinels: BTreeMap<VolumeId, Sentinel>) -> Result<(), StoreError> {
        let this = self.clone();
        let writing = tokio::task::spawn_blocking(move || this.replace(&sentinels));
        match tokio::time::timeout(PATIENCE, writing).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(StoreError::Gone),
            Err(_) => Err(StoreError::Slow { dir: self.dir.clone(), patience: PATIENCE }),
        }
    }

    pub(super) fn replace(&self, sentinels: &BTreeMap<VolumeId, Sentinel>) -> Result<(), StoreError> {
        // Held while writing: two writers at once would share the new file.
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.dir.join(FILE);
        let failed =
            |operation, path: &Path, source| StoreError::Io { operation, path: path.to_path_buf(), source };
        let Some(kept) = kept.as_ref() else {
            let source = io::Error::other("it was not understood at the start, and is left alone");
            return Err(failed("write", &path, source));
        };
        let entries = sentinels.iter().map(|(id, sentinel)| serde_json::to_value(Entry::new(id, sentinel)));
        let entries: Result<Vec<Value>, _> = entries.chain(kept.iter().cloned().map(Ok)).collect();
        let text = entries.and_then(|sentinels| {
            let (api_version, kind) = (API_VERSION.to_owned(), KIND.to_owned());
            serde_json::to_vec_pretty(&Envelope { api_version, kind, sentinels })
        });
        let text = text.map_err(|error| failed("write", &path, io::Error::other(error)))?;
        self.disk.replace(&path, &text)?;
        self.disk.sync_directory(&self.dir).map_err(|source| failed("sync", &self.dir, source))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn sentinel(path: &str, content: Option<&[u8]>) -> Sentinel {
        Sentinel { path: path.into(), content: content.map(<[u8]>::to_vec) }
    }

    fn some() -> BTreeMap<VolumeId, Sentinel> {
        BTreeMap::from([
            (VolumeId::new("a"), sentinel(".mountie", Some(b"x"))),
            (VolumeId::new("b"), sentinel("caf\u{e9}", Some(b"\xff\x00"))),
            (VolumeId::new("c"), sentinel("s", None)),
        ])
    }

    #[test]
    fn what_was_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let first = read(dir.path());
        assert!(first.sentinels.is_empty() && first.defects.is_empty());
        first.file.replace(&some()).unwrap();
        assert_eq!(read(dir.path()).sentinels, some());
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_bad_entry_costs_one_volume_and_stays_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        read(dir.path()).file.replace(&some()).unwrap();
        let path = dir.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap().replace("\"volume\": \"a\"", "\"volume\": 7");
        fs::write(&path, text).unwrap();
        let second = read(dir.path());
        assert_eq!(second.sentinels.keys().map(VolumeId::as_str).collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(second.defects.len(), 1);
        second.file.replace(&second.sentinels).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("\"volume\": 7"));
    }

    #[test]
    fn a_file_that_is_none_is_kept_and_one_of_a_later_version_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let write = |text: &str| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        };
        write("{ half");
        let damaged = read(dir.path());
        assert!(matches!(&damaged.defects[..], [StoreError::BadLines { .. }]), "{:?}", damaged.defects);
        damaged.file.replace(&some()).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("sentinels.json.damaged")).unwrap(), "{ half");

        let later = "{\"apiVersion\":\"mountie/v9\",\"kind\":\"Sentinels\",\"sentinels\":[]}";
        write(later);
        let later_read = read(dir.path());
        assert!(matches!(&later_read.defects[..], [StoreError::Future { .. }]));
        assert!(later_read.file.replace(&some()).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), later);
    }

    #[test]
    fn a_file_that_others_may_write_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        read(dir.path()).file.replace(&some()).unwrap();
        let path = dir.path().join(FILE);
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        let found = read(dir.path());
        assert!(found.sentinels.is_empty());
        assert!(matches!(&found.defects[..], [StoreError::Unsafe { .. }]));
    }
}
