//! What people have paused: `pauses.json`. Small and rarely written: always as a whole, in one step.
//!
//! A file that says nothing is set aside; one of a newer version, or one that others could have written, is left
//! alone: nothing is paused by it then, and what is paused from now on lasts as long as this run.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::id::VolumeId;
use agent_core::pause::{Pause, Pauses};
use agent_core::time::Monotonic;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::StoreError;
use super::disk::Disk;
use super::form::Form;
use super::journal::{check_owner, read_bounded};
use super::memory::{Clocks, FileActor, Moment};
use super::record::API_VERSION;
use super::shelf::put_away;

pub(super) const FILE: &str = "pauses.json";
/// What it is.
pub(super) const FORM: Form = Form { version: API_VERSION, kind: "Pauses", old: &[] };
/// Nothing that this agent writes gets there.
const MAX_BYTES: u64 = 16 << 20;

/// The whole file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    api_version: String,
    kind: String,
    /// The boot during which it was written.
    #[serde(default)]
    boot: Option<String>,
    #[serde(default)]
    pauses: Vec<Entry>,
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

/// The file.
#[derive(Debug)]
pub(super) struct PauseFile {
    disk: Disk,
    dir: PathBuf,
    /// It is not ours to write.
    is_left_alone: bool,
    other: Map<String, Value>,
}

impl PauseFile {
    /// Reads what is there. Never fails: what is wrong is returned beside it.
    pub(super) fn open(disk: &Disk, dir: &Path, is_held: bool) -> (Self, Pauses, Option<StoreError>) {
        let (disk, dir, other) = (disk.clone(), dir.to_path_buf(), Map::new());
        let mut file = Self { disk, dir, is_left_alone: is_held, other };
        if is_held {
            return (file, Pauses::default(), None);
        }
        match file.read() {
            Ok(pauses) => (file, pauses, None),
            Err(defect) => {
                file.is_left_alone = !matches!(defect, StoreError::BadFile { .. });
                (file, Pauses::default(), Some(defect))
            }
        }
    }

    /// From now on it is not written: the agent knows nothing of what is in it.
    pub(super) const fn leave_alone(&mut self) {
        self.is_left_alone = true;
    }

    fn path(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    fn read(&mut self) -> Result<Pauses, StoreError> {
        let path = self.path();
        match read_bounded(&path, MAX_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Pauses::default()),
            Err(source) => Err(StoreError::Io { operation: "read", path, source }),
            Ok(bytes) => {
                check_owner(&path)?;
                match FORM.parse::<Envelope>(&bytes) {
                    Ok(envelope) => {
                        self.other = envelope.other.clone();
                        Ok(envelope.into_pauses(&Clocks::of_now()))
                    }
                    Err(Some(version)) => Err(StoreError::Future { path, version }),
                    Err(None) => {
                        let kept = put_away(&self.disk, &path)?;
                        Err(StoreError::BadFile { path, kept })
                    }
                }
            }
        }
    }

    /// Writes all of them.
    pub(super) fn write(&self, pauses: &Pauses) -> Result<(), StoreError> {
        let path = self.path();
        if self.is_left_alone {
            return Err(StoreError::LeftAlone { path });
        }
        let envelope = Envelope::new(pauses, self.other.clone(), &Clocks::of_now());
        // Plain data: it always has a JSON form.
        let mut text = serde_json::to_string_pretty(&envelope).unwrap_or_default();
        text.push('\n');
        self.disk.replace(&path, text.as_bytes())?;
        self.disk.sync_directory(&self.dir)
    }
}

impl Envelope {
    fn new(pauses: &Pauses, other: Map<String, Value>, clocks: &Clocks) -> Self {
        let node = pauses.node.iter().map(|pause| (None, pause));
        let own = pauses.volumes.iter().map(|(id, pause)| (Some(id.as_str().to_owned()), pause));
        Self {
            api_version: API_VERSION.to_owned(),
            kind: FORM.kind.to_owned(),
            boot: clocks.boot.clone(),
            pauses: node.chain(own).map(|(volume, pause)| Entry::new(volume, pause, clocks)).collect(),
            other,
        }
    }

    fn into_pauses(self, clocks: &Clocks) -> Pauses {
        let is_same_boot = clocks.is_boot(self.boot.as_ref());
        let mut pauses = Pauses::default();
        for entry in self.pauses {
            let volume = entry.volume.clone().map(VolumeId::new);
            let pause = entry.into_pause(clocks, is_same_boot);
            match volume {
                None => pauses.node = Some(pause),
                Some(id) => drop(pauses.volumes.insert(id, pause)),
            }
        }
        pauses
    }
}

impl Entry {
    fn new(volume: Option<String>, pause: &Pause, clocks: &Clocks) -> Self {
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
            other: Map::new(),
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
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use agent_core::health::loss::Actor;

    use super::*;

    fn pauses() -> Pauses {
        let now = crate::sys::clock::now();
        let by = Actor { uid: 0, pid: 42, comm: "mountie".to_owned() };
        let until = Some(now + Duration::from_secs(7200));
        let pause = |until, reason| Pause { since: now, since_wall: None, until, by: by.clone(), reason };
        let mut pauses = Pauses { node: Some(pause(None, None)), ..Pauses::default() };
        pauses.volumes.insert(VolumeId::new("a \"日本\""), pause(until, Some("the filer moves".to_owned())));
        pauses
    }

    fn state_dir() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        dir
    }

    fn open(dir: &Path) -> (PauseFile, Pauses) {
        let (file, pauses, defect) = PauseFile::open(&Disk::default(), dir, false);
        assert!(defect.is_none(), "{defect:?}");
        (file, pauses)
    }

    #[test]
    fn what_came_too_late_is_not_written_over() {
        let dir = state_dir();
        let (file, _) = open(dir.path());
        file.write(&pauses()).unwrap();
        // The agent has given up waiting for what is in it.
        let (mut late, _) = open(dir.path());
        late.leave_alone();
        assert!(matches!(late.write(&Pauses::default()), Err(StoreError::LeftAlone { .. })));
        assert!(open(dir.path()).1.node.is_some());
    }

    #[test]
    fn what_is_paused_is_found_again_and_unknown_keys_stay() {
        let dir = state_dir();
        let (file, none) = open(dir.path());
        assert_eq!(none, Pauses::default());
        file.write(&pauses()).unwrap();
        let path = dir.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap().replacen('{', "{ \"later\": [1],", 1);
        fs::write(&path, text).unwrap();
        let (file, found) = open(dir.path());
        assert_eq!(found.volumes.len(), 1);
        file.write(&found).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("later"));
        assert_eq!(open(dir.path()).1, found);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn after_another_boot_a_pause_ends_when_the_wall_clock_says_so() {
        let now = Monotonic::from_nanos(1_000_000_000_000);
        let wall = Duration::from_secs(1_700_000_000);
        let before = Clocks { boot: Some("one".to_owned()), now, wall };
        let by = Actor { uid: 0, pid: 1, comm: String::new() };
        let until = Some(now + Duration::from_secs(3600 * 5));
        let pause = Pause { since: now, since_wall: None, until, by, reason: None };
        let written =
            || Envelope::new(&Pauses { node: Some(pause.clone()), ..Pauses::default() }, Map::new(), &before);
        let seen = |wall: u64| {
            let now = Monotonic::from_nanos(20_000_000_000);
            let after = Clocks { boot: Some("two".to_owned()), now, wall: Duration::from_secs(wall) };
            let found = written().into_pauses(&after).node.unwrap();
            assert_eq!(found.since_wall, Some(Duration::from_secs(1_700_000_000)));
            found.until.unwrap().since(now).as_secs()
        };
        assert_eq!(seen(1_700_003_600), 3600 * 4);
        assert_eq!(seen(1_600_000_000), 3600 * 5, "a clock that was set back makes it no longer");
        assert_eq!(seen(1_800_000_000), 0);
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_what_others_wrote_is_left_alone() {
        let dir = state_dir();
        let path = dir.path().join(FILE);
        fs::write(&path, "{ half").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let (file, _, defect) = PauseFile::open(&Disk::default(), dir.path(), false);
        assert!(matches!(defect, Some(StoreError::BadFile { .. })), "{defect:?}");
        file.write(&pauses()).unwrap();

        let later = "{\"apiVersion\":\"mountie/v9\",\"kind\":\"Pauses\"}";
        fs::write(&path, later).unwrap();
        let (file, _, defect) = PauseFile::open(&Disk::default(), dir.path(), false);
        assert!(matches!(defect, Some(StoreError::Future { .. })), "{defect:?}");
        assert!(file.write(&pauses()).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), later);

        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let (file, found, defect) = PauseFile::open(&Disk::default(), dir.path(), false);
        assert!(matches!(defect, Some(StoreError::Unsafe { .. })), "{defect:?}");
        assert!(found == Pauses::default() && file.write(&pauses()).is_err());
    }
}
