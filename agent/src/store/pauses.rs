//! What people have paused: `pauses.json`. Small and rarely written: always as a whole, in one step.
//!
//! What cannot be read holds repairs back, and never lets them go: a person may be at work there. An entry that is not
//! understood keeps its volume paused; a file that cannot be read at all pauses every volume, until somebody says that
//! repairs may go on. A file that says nothing is set aside and replaced by that very pause; one of a newer version, or
//! one that others could have written, is left alone, and what is paused from now on lasts as long as this run.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::health::loss::Actor;
use agent_core::id::VolumeId;
use agent_core::pause::{Pause, Pauses, Scope};
use agent_core::time::Monotonic;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::StoreError;
use super::disk::Disk;
use super::form::Form;
use super::journal::{check_owner, read_bounded, set_aside};
use super::memory::{Clocks, FileActor, Moment};
use super::record::API_VERSION;
use crate::sys::{clock, peer};

pub(super) const FILE: &str = "pauses.json";
/// What it is.
pub(super) const FORM: Form = Form { version: API_VERSION, kind: "Pauses", old: &[] };
/// Nothing that this agent writes gets there.
const MAX_BYTES: u64 = 16 << 20;
/// Where an entry that was not understood stays.
const UNREAD: &str = "unread";
/// Why every volume is paused when the file cannot be read.
const WHY_ALL: &str = "what was paused before this start could not be read";
/// Why one is, when its entry cannot be.
const WHY_ONE: &str = "it was paused before this start, and no more of that could be read";

/// The whole file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    api_version: String,
    kind: String,
    /// The boot during which it was written.
    #[serde(default)]
    boot: Option<String>,
    pauses: Vec<Value>,
    /// What a newer agent wrote: it stays where it is.
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// One pause.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    /// Of which volume; of the node when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    volume: Option<String>,
    since: Moment,
    /// It began before the boot during which it was written.
    #[serde(default)]
    before_boot: bool,
    #[serde(default)]
    until: Option<Moment>,
    by: FileActor,
    #[serde(default)]
    reason: Option<String>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// What else a file said of a pause. It is about that very one, and not about one that takes its place.
type Others = BTreeMap<Scope, (Pause, Map<String, Value>)>;

/// The file.
#[derive(Debug)]
pub(super) struct PauseFile {
    disk: Disk,
    dir: PathBuf,
    /// It is not ours to write.
    is_left_alone: bool,
    other: Map<String, Value>,
    others: Others,
}

/// What holds where nobody knows what was paused: everything, by the agent itself.
pub(super) fn all_paused() -> Pauses {
    Pauses { node: Some(own_pause(WHY_ALL)), ..Pauses::default() }
}

fn own_pause(reason: &str) -> Pause {
    let pid = std::process::id();
    let by = Actor { uid: peer::own_uid(), pid, comm: peer::name_of_process(pid) };
    Pause { since: clock::now(), since_wall: None, until: None, by, reason: Some(reason.to_owned()) }
}

impl PauseFile {
    /// Reads what is there. Never fails: what is wrong is returned beside it.
    pub(super) fn open(disk: &Disk, dir: &Path, is_held: bool) -> (Self, Pauses, Vec<StoreError>) {
        let (disk, dir) = (disk.clone(), dir.to_path_buf());
        let mut file = Self { disk, dir, is_left_alone: is_held, other: Map::new(), others: Others::new() };
        let mut defects = Vec::new();
        let pauses = if is_held { Pauses::default() } else { file.read(&mut defects) };
        (file, pauses, defects)
    }

    /// From now on it is not written: the agent knows nothing of what is in it.
    pub(super) const fn leave_alone(&mut self) {
        self.is_left_alone = true;
    }

    fn path(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    fn read(&mut self, defects: &mut Vec<StoreError>) -> Pauses {
        let cause = match self.load() {
            Ok(None) => return Pauses::default(),
            Ok(Some(envelope)) => return self.take(envelope, &Clocks::of_now(), defects),
            Err(cause) => cause,
        };
        let pauses = all_paused();
        // What was set aside is replaced at once: the next start must not find that nothing is paused.
        self.is_left_alone = !matches!(cause, StoreError::BadLines { .. });
        defects.push(StoreError::PausesUnknown { source: Box::new(cause) });
        if !self.is_left_alone
            && let Err(defect) = self.write(&pauses)
        {
            defects.push(defect);
        }
        pauses
    }

    /// What the file says; `None` when there is none.
    fn load(&self) -> Result<Option<Envelope>, StoreError> {
        let path = self.path();
        let bytes = match read_bounded(&path, MAX_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(source) => return Err(StoreError::Io { operation: "read", path, source }),
        };
        check_owner(&path)?;
        match FORM.parse(&bytes) {
            Ok(envelope) => Ok(Some(envelope)),
            Err(Some(version)) => Err(StoreError::Future { path, version }),
            Err(None) => set_aside(&self.disk, &path)
                .and_then(|kept| Err(StoreError::BadLines { path, kept, lines: 1 })),
        }
    }

    fn take(&mut self, envelope: Envelope, clocks: &Clocks, defects: &mut Vec<StoreError>) -> Pauses {
        self.other = envelope.other;
        let is_same_boot = clocks.is_boot(envelope.boot.as_ref());
        let (mut pauses, mut unread) = (Pauses::default(), BTreeMap::<Scope, Vec<Value>>::new());
        for value in envelope.pauses {
            match serde_json::from_value::<Entry>(value.clone()) {
                Ok(mut entry) => {
                    let (scope, other) = (scope_of(&value), std::mem::take(&mut entry.other));
                    let pause = entry.into_pause(clocks, is_same_boot);
                    self.others.insert(scope.clone(), (pause.clone(), other));
                    pauses.set(scope, pause);
                }
                Err(_) => unread.entry(scope_of(&value)).or_default().push(value),
            }
        }
        // Last: where two are about the same, the one without an end holds.
        for (scope, values) in unread {
            let pause = own_pause(WHY_ONE);
            let other = Map::from_iter([(UNREAD.to_owned(), Value::Array(values))]);
            self.others.insert(scope.clone(), (pause.clone(), other));
            let whom = match &scope {
                Scope::Node => "every volume".to_owned(),
                Scope::Volume(id) => format!("`{id}`"),
            };
            defects.push(StoreError::PauseUnread { path: self.path(), whom });
            pauses.set(scope, pause);
        }
        pauses
    }

    /// Writes all of them.
    pub(super) fn write(&self, pauses: &Pauses) -> Result<(), StoreError> {
        let path = self.path();
        if self.is_left_alone {
            return Err(StoreError::LeftAlone { path });
        }
        let clocks = Clocks::of_now();
        let node = pauses.node.iter().map(|pause| (Scope::Node, pause));
        let own = pauses.volumes.iter().map(|(id, pause)| (Scope::Volume(id.clone()), pause));
        let entries = node.chain(own).map(|(scope, pause)| {
            let known = self.others.get(&scope).filter(|(known, _)| known == pause);
            let other = known.map(|(_, other)| other.clone()).unwrap_or_default();
            Entry::new(scope, pause, other, &clocks)
        });
        // Plain data: it always has a JSON form.
        let mut text = serde_json::to_string_pretty(&Envelope::new(entries, self.other.clone(), &clocks))
            .unwrap_or_default();
        text.push('\n');
        self.disk.replace(&path, text.as_bytes())?;
        self.disk.sync_directory(&self.dir)
    }
}

/// Whom an entry is about. Where that cannot be told, it may be any volume.
fn scope_of(entry: &Value) -> Scope {
    match entry.get("volume") {
        Some(Value::String(name)) => Scope::Volume(VolumeId::new(name.as_str())),
        _ => Scope::Node,
    }
}

impl Envelope {
    fn new(entries: impl Iterator<Item = Entry>, other: Map<String, Value>, clocks: &Clocks) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: FORM.kind.to_owned(),
            boot: clocks.boot.clone(),
            pauses: entries.filter_map(|entry| serde_json::to_value(entry).ok()).collect(),
            other,
        }
    }
}

impl Entry {
    fn new(scope: Scope, pause: &Pause, other: Map<String, Value>, clocks: &Clocks) -> Self {
        let volume = match scope {
            Scope::Node => None,
            Scope::Volume(id) => Some(id.as_str().to_owned()),
        };
        let mut since = clocks.write(pause.since);
        if let Some(wall) = pause.since_wall {
            since.wall_ms = super::memory::millis(wall);
        }
        Self {
            volume,
            since,
            before_boot: pause.since_wall.is_some(),
            until: pause.until.map(|until| clocks.write(until)),
            by: FileActor::from(&pause.by),
            reason: pause.reason.as_deref().map(agent_core::secret::hide),
            other,
        }
    }

    fn into_pause(self, clocks: &Clocks, is_same_boot: bool) -> Pause {
        let is_older = self.before_boot || !is_same_boot;
        let until = self.until.map(|until| {
            if is_same_boot { clocks.read(until, true) } else { self.end_after_boot(until, clocks) }
        });
        Pause {
            since: clocks.read(self.since, is_same_boot).min(clocks.now),
            since_wall: is_older.then(|| Duration::from_millis(self.since.wall_ms)),
            until,
            by: self.by.into(),
            reason: self.reason,
        }
    }

    /// By the wall clock. Where that was set back, no longer than it was to last.
    fn end_after_boot(&self, until: Moment, clocks: &Clocks) -> Monotonic {
        let whole = Duration::from_millis(until.wall_ms.saturating_sub(self.since.wall_ms));
        let left = Duration::from_millis(until.wall_ms).saturating_sub(clocks.wall);
        clocks.now + left.min(whole)
    }
}

#[cfg(test)]
mod tests;
