//! Sentinels that people had put on volumes and that the configuration does not name: `sentinels.json`.
//!
//! Small and rarely written: always as a whole, beside the old file, which it then replaces in one step. A bad entry
//! costs that entry and stays in the file, and so does what a newer agent wrote beside what this one understands. A
//! file that is no such file is kept under another name; one of a later version is neither read nor written over.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use agent_core::id::VolumeId;
use agent_core::path::BytePath;
use agent_core::volume::Sentinel;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::disk::Disk;
use super::form::Form;
use super::journal::{check_owner, read_bounded};
use super::record::{API_VERSION, Bytes};
use super::shelf::put_away;
use super::{PATIENCE, StoreError, in_time};

pub(super) const FILE: &str = "sentinels.json";
/// What it is.
pub(super) const FORM: Form = Form { version: API_VERSION, kind: "Sentinels", old: &[] };
/// Nothing that this agent writes gets there.
pub(super) const MAX_BYTES: u64 = 16 << 20;

/// A sentinel that counts although the configuration does not name it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pin {
    /// Where, and with which content.
    pub sentinel: Sentinel,
    /// What the configuration said was to be mounted there. `None`: nothing.
    pub source: Option<Vec<u8>>,
}

/// All that is pinned, by volume.
pub(crate) type Pins = BTreeMap<VolumeId, Pin>;

/// The whole file.
#[derive(Serialize, Deserialize)]
struct Envelope {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    sentinels: Vec<Value>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// One entry.
#[derive(Serialize, Deserialize)]
struct Entry {
    volume: String,
    path: Bytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<Bytes>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// The pinned sentinels, and where they are kept.
#[derive(Clone, Debug)]
pub struct PinFile {
    disk: Disk,
    dir: PathBuf,
    /// Whether the directory is this agent's alone. Nothing is written before that is known.
    is_ours: Arc<OnceLock<bool>>,
    /// The number of the newest set.
    newest: Arc<AtomicU64>,
    kept: Arc<Mutex<Kept>>,
}

/// What is known of the file. Locked while it is written: two writers at once would share the new file.
#[derive(Debug, Default)]
struct Kept {
    /// The file is not ours to write.
    is_left_alone: bool,
    /// The number of the set that is on it.
    written: u64,
    /// Entries that were not understood.
    odd: Vec<Value>,
    /// What else was said of volumes.
    other_of: BTreeMap<VolumeId, Map<String, Value>>,
    /// What else was said.
    other: Map<String, Value>,
}

/// What a file said when it was read.
#[derive(Debug)]
pub struct Pinned {
    /// The writing side.
    pub file: PinFile,
    /// By volume.
    pub pins: BTreeMap<VolumeId, Pin>,
    /// What is wrong with the file, for the log.
    pub defects: Vec<StoreError>,
}

/// Reads what was pinned, or goes on without.
pub(super) async fn open(state_dir: &Path, is_ours: Arc<OnceLock<bool>>) -> Pinned {
    let (dir, ours) = (state_dir.to_path_buf(), Arc::clone(&is_ours));
    let reading = tokio::task::spawn_blocking(move || read(&Disk::default(), &dir, ours));
    let defect = match in_time(state_dir, reading).await {
        Ok(pinned) => return pinned,
        Err(defect) => defect,
    };
    // A file that was not read must not be written over.
    let kept = Kept { is_left_alone: true, ..Kept::default() };
    Pinned {
        file: PinFile::new(&Disk::default(), state_dir, is_ours, kept),
        pins: Pins::new(),
        defects: vec![defect],
    }
}

/// Takes the sentinel of one volume out of the file, where no agent has it open and this process holds the directory.
pub(super) fn drop_pin(disk: &Disk, dir: &Path, volume: &str) -> Result<(), StoreError> {
    let mut pinned = read(disk, dir, Arc::new(OnceLock::from(true)));
    match pinned.pins.remove(&VolumeId::new(volume)) {
        Some(_) => pinned.file.replace(1, &pinned.pins),
        None => Ok(()),
    }
}

pub(super) fn read(disk: &Disk, dir: &Path, is_ours: Arc<OnceLock<bool>>) -> Pinned {
    let (mut kept, mut pins, mut defects) = (Kept::default(), Pins::new(), Vec::new());
    match load(disk, dir) {
        Ok(None) => {}
        Ok(Some(envelope)) => {
            let path = dir.join(FILE);
            kept.other = envelope.other;
            for value in envelope.sentinels {
                match serde_json::from_value::<Entry>(value.clone()) {
                    Ok(entry) => entry.take_in(&mut pins, &mut kept.other_of),
                    Err(_) => kept.odd.push(value),
                }
            }
            if !kept.odd.is_empty() {
                defects.push(StoreError::BadLines { kept: path.clone(), path, lines: kept.odd.len() });
            }
        }
        // It is out of the way.
        Err(defect @ StoreError::BadLines { .. }) => defects.push(defect),
        Err(defect) => {
            kept.is_left_alone = true;
            defects.push(defect);
        }
    }
    Pinned { file: PinFile::new(disk, dir, is_ours, kept), pins, defects }
}

/// What the file says; `None` when there is none. It decides what counts as the right volume: nobody else may write it.
fn load(disk: &Disk, dir: &Path) -> Result<Option<Envelope>, StoreError> {
    let path = dir.join(FILE);
    let bytes = match read_bounded(&path, MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StoreError::Io { operation: "read", path, source }),
    };
    check_owner(dir)?;
    check_owner(&path)?;
    match FORM.parse(&bytes) {
        Ok(envelope) => Ok(Some(envelope)),
        Err(Some(version)) => Err(StoreError::Future { path, version }),
        Err(None) => {
            put_away(disk, &path).and_then(|kept| Err(StoreError::BadLines { path, kept, lines: 1 }))
        }
    }
}

impl Entry {
    fn new(id: &VolumeId, pin: &Pin, other: Map<String, Value>) -> Self {
        let bytes = |bytes: &Vec<u8>| Bytes::from(&BytePath::new(bytes.clone()));
        Self {
            volume: id.as_str().to_owned(),
            path: Bytes::from(&pin.sentinel.path),
            content: pin.sentinel.content.as_ref().map(bytes),
            source: pin.source.as_ref().map(bytes),
            other,
        }
    }

    fn take_in(self, pins: &mut Pins, other_of: &mut BTreeMap<VolumeId, Map<String, Value>>) {
        let bytes = |bytes: Bytes| BytePath::from(bytes).as_bytes().to_vec();
        let sentinel = Sentinel { path: self.path.into(), content: self.content.map(bytes) };
        let id = VolumeId::new(self.volume);
        if !self.other.is_empty() {
            other_of.insert(id.clone(), self.other);
        }
        pins.insert(id, Pin { sentinel, source: self.source.map(bytes) });
    }
}

impl PinFile {
    fn new(disk: &Disk, dir: &Path, is_ours: Arc<OnceLock<bool>>, kept: Kept) -> Self {
        let (newest, kept) = (Arc::default(), Arc::new(Mutex::new(kept)));
        Self { disk: disk.clone(), dir: dir.to_path_buf(), is_ours, newest, kept }
    }

    /// Writes the whole set, in the order of the calls: what a newer set has overtaken is not written.
    ///
    /// The future fails when it could not be written; the set counts all the same until the agent ends.
    pub fn write(
        &self,
        pins: BTreeMap<VolumeId, Pin>,
    ) -> impl Future<Output = Result<(), StoreError>> + use<> {
        let this = self.clone();
        let number = self.newest.fetch_add(1, Ordering::Relaxed) + 1;
        async move {
            let dir = this.dir.clone();
            let writing = tokio::task::spawn_blocking(move || this.replace(number, &pins));
            in_time(&dir, writing).await?
        }
    }

    pub(super) fn replace(&self, number: u64, pins: &Pins) -> Result<(), StoreError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.written > number {
            return Ok(());
        }
        let path = self.dir.join(FILE);
        if kept.is_left_alone {
            return Err(StoreError::LeftAlone { path });
        }
        match self.is_ours.get() {
            Some(true) => {}
            Some(false) => return Err(StoreError::Held { dir: self.dir.clone() }),
            None => return Err(StoreError::Slow { dir: self.dir.clone(), patience: PATIENCE }),
        }
        // Others who may write there could have put anything in the way.
        check_owner(&self.dir)?;
        kept.other_of.retain(|id, _| pins.contains_key(id));
        let other_of = |id| kept.other_of.get(id).cloned().unwrap_or_default();
        let entries = pins.iter().map(|(id, pin)| serde_json::to_value(Entry::new(id, pin, other_of(id))));
        let entries: Result<Vec<Value>, _> = entries.chain(kept.odd.iter().cloned().map(Ok)).collect();
        let text = entries.and_then(|sentinels| {
            let (api_version, kind) = (API_VERSION.to_owned(), FORM.kind.to_owned());
            serde_json::to_vec_pretty(&Envelope { api_version, kind, sentinels, other: kept.other.clone() })
        });
        let text = text.map_err(|error| StoreError::Io {
            operation: "write",
            path: path.clone(),
            source: io::Error::other(error),
        })?;
        self.disk.replace(&path, &text)?;
        kept.written = number;
        self.disk.sync_directory(&self.dir)
    }
}

#[cfg(test)]
mod tests;
