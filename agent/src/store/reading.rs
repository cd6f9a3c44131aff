//! The state directory as it is, for people. Reading changes nothing and needs no agent; forgetting does, and only
//! where none runs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use agent_core::id::VolumeId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::disk::Disk;
use super::form::Form;
use super::journal::{StoreError, check_owner, open_intents, read_bounded, take_lock};
use super::record::API_VERSION;
use super::shelf::{self, Shelf};
use super::{pauses, pins};

const KIND: &str = "State";

/// Everything that is kept.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The version of this list; each volume has its own.
    pub api_version: String,
    /// `State`.
    pub kind: String,
    /// Where it was read.
    pub directory: String,
    /// What is known of each volume, by name.
    pub volumes: Vec<Value>,
    /// What people have paused.
    pub pauses: Vec<Value>,
    /// Sentinels that people had put on volumes.
    pub sentinels: Vec<Value>,
    /// Plans that were begun and have no end in the journal.
    pub unfinished: Vec<Value>,
    /// What could not be read, and why.
    pub problems: Vec<String>,
}

impl State {
    /// Without everything that is not about this volume. `None` when nothing is.
    #[must_use]
    pub fn of(mut self, volume: &str) -> Option<Self> {
        let is_about = |entry: &Value| entry.get("volume").and_then(Value::as_str) == Some(volume);
        for list in [&mut self.volumes, &mut self.sentinels, &mut self.unfinished] {
            list.retain(is_about);
        }
        // The pause of the node is about every volume.
        self.pauses.retain(|pause| is_about(pause) || pause.get("volume").is_none());
        let has_own = self.pauses.iter().any(is_about);
        let is_known =
            has_own || [&self.volumes, &self.sentinels, &self.unfinished].iter().any(|list| !list.is_empty());
        is_known.then_some(self)
    }
}

/// Reads all that is there.
///
/// # Errors
/// When the directory itself cannot be read, or others could have written it. What is wrong with one file is a problem
/// in the answer.
pub fn read(dir: &Path) -> Result<State, StoreError> {
    check_owner(dir)?;
    let mut state = State {
        api_version: API_VERSION.to_owned(),
        kind: KIND.to_owned(),
        directory: dir.display().to_string(),
        volumes: Vec::new(),
        pauses: Vec::new(),
        sentinels: Vec::new(),
        unfinished: Vec::new(),
        problems: Vec::new(),
    };
    read_volumes(&dir.join(shelf::FOLDER), &mut state)?;
    state.pauses = list_in((&dir.join(pauses::FILE), &pauses::FORM), "pauses", &mut state.problems);
    state.sentinels = list_in((&dir.join(pins::FILE), &pins::FORM), "sentinels", &mut state.problems);
    match open_intents(dir) {
        Ok((open, bad)) => {
            state.unfinished = open.iter().filter_map(|record| serde_json::to_value(record).ok()).collect();
            if bad > 0 {
                state.problems.push(format!("{bad} lines of the journal could not be read"));
            }
        }
        Err(error) => state.problems.push(text(&error)),
    }
    Ok(state)
}

/// An error with its cause, in one line.
fn text(error: &StoreError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// A newer agent wrote it, or it says nothing.
fn not_understood(path: &Path, version: Option<String>) -> String {
    match version {
        Some(version) => text(&StoreError::Future { path: path.to_path_buf(), version }),
        None => format!("`{}` could not be understood", path.display()),
    }
}

fn read_volumes(folder: &Path, state: &mut State) -> Result<(), StoreError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(StoreError::Io { operation: "read", path: folder.to_path_buf(), source }),
    };
    check_owner(folder)?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == shelf::ENDING));
    paths.sort();
    for path in paths {
        let file = check_owner(&path).map_err(|error| text(&error)).and_then(|()| {
            let bytes = read_bounded(&path, shelf::MAX_BYTES)
                .map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
            let parsed = shelf::parse(&bytes).map_err(|version| not_understood(&path, version));
            serde_json::to_value(parsed?).map_err(|error| error.to_string())
        });
        match file {
            Ok(value) => state.volumes.push(value),
            Err(problem) => state.problems.push(problem),
        }
    }
    Ok(())
}

/// The entries of a small file that is one list.
fn list_in((path, form): (&Path, &Form), key: &str, problems: &mut Vec<String>) -> Vec<Value> {
    let bytes = match read_bounded(path, pins::MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            problems.push(format!("cannot read `{}`: {error}", path.display()));
            return Vec::new();
        }
    };
    let value = check_owner(path)
        .map_err(|error| text(&error))
        .and_then(|()| form.parse::<Value>(&bytes).map_err(|version| not_understood(path, version)));
    match value {
        Ok(value) => value.get(key).and_then(Value::as_array).cloned().unwrap_or_default(),
        Err(problem) => {
            problems.push(problem);
            Vec::new()
        }
    }
}

/// What was kept of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forgotten {
    /// Something is forgotten now.
    pub was_kept: bool,
    /// Its repairs stay paused: what a person has stopped begins only by a person's word.
    pub is_paused: bool,
}

/// Keeps nothing of a volume any more but its pause, where no agent runs that could do it.
///
/// # Errors
/// When an agent holds the directory, or the files cannot be changed.
pub fn forget(dir: &Path, volume: &str) -> Result<Forgotten, StoreError> {
    // Held to the end: an agent that starts now waits for its turn, or is refused.
    let _lock = take_lock(dir)?;
    let state = read(dir)?.of(volume);
    let was_kept =
        state.as_ref().is_some_and(|state| !state.volumes.is_empty() || !state.sentinels.is_empty());
    let is_paused = state.is_some_and(|state| state.pauses.iter().any(|pause| pause.get("volume").is_some()));
    let disk = Disk::default();
    let (mut shelf, _, _) = Shelf::open(&disk, dir, false);
    shelf.put(&VolumeId::new(volume), None)?;
    shelf.sync()?;
    pins::drop_pin(&disk, dir, volume)?;
    Ok(Forgotten { was_kept, is_paused })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn state_dir() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        dir
    }

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// A directory as an older agent has left it.
    fn filled() -> tempfile::TempDir {
        let dir = state_dir();
        let volume = |name: &str| {
            format!(
                "{{\"apiVersion\":\"mountie/v1\",\"kind\":\"VolumeMemory\",\"volume\":\"{name}\",\"mountpoint\":\"/mnt/{name}\"}}"
            )
        };
        for name in ["a", "b"] {
            write(&dir.path().join(format!("volumes/{name}.json")), &volume(name));
        }
        write(&dir.path().join("volumes/c.json"), "{ half");
        write(
            &dir.path().join("sentinels.json"),
            "{\"apiVersion\":\"mountie/v1\",\"kind\":\"Sentinels\",\"sentinels\":[{\"volume\":\"a\",\"path\":\".m\"}]}",
        );
        dir
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir.join("volumes"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn everything_is_shown_old_files_as_new_ones_and_nothing_is_changed() {
        let dir = filled();
        let state = read(dir.path()).unwrap();
        assert_eq!(state.volumes.len(), 2);
        assert_eq!(state.volumes[0]["apiVersion"], "mountie/v2");
        assert_eq!(state.problems.len(), 1, "{:?}", state.problems);
        assert_eq!(names(dir.path()), ["a.json", "b.json", "c.json"]);
        let of_a = state.clone().of("a").unwrap();
        assert_eq!((of_a.volumes.len(), of_a.sentinels.len()), (1, 1));
        assert_eq!(state.of("x"), None);
    }

    #[test]
    fn an_empty_directory_has_no_problem_and_none_is_an_error() {
        let dir = state_dir();
        let state = read(dir.path()).unwrap();
        assert!(state.volumes.is_empty() && state.problems.is_empty(), "{state:?}");
        assert!(read(&dir.path().join("none")).is_err());
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(read(dir.path()), Err(StoreError::Unsafe { .. })));
    }

    #[test]
    fn what_is_forgotten_is_gone_with_its_sentinel_and_the_rest_stays() {
        let dir = filled();
        let forgotten = |was_kept, is_paused| Forgotten { was_kept, is_paused };
        assert_eq!(forget(dir.path(), "a").unwrap(), forgotten(true, false));
        assert_eq!(forget(dir.path(), "a").unwrap(), forgotten(false, false));
        let state = read(dir.path()).unwrap();
        assert_eq!((state.volumes.len(), state.sentinels.len()), (1, 0));
    }

    #[test]
    fn a_pause_outlives_forgetting() {
        let dir = filled();
        let pauses = "{\"apiVersion\":\"mountie/v1\",\"kind\":\"Pauses\",\"pauses\":[{\"volume\":\"a\"},{\"volume\":\"c\"}]}";
        write(&dir.path().join("pauses.json"), pauses);
        assert_eq!(forget(dir.path(), "a").unwrap(), Forgotten { was_kept: true, is_paused: true });
        assert_eq!(forget(dir.path(), "c").unwrap(), Forgotten { was_kept: false, is_paused: true });
        assert_eq!(forget(dir.path(), "b").unwrap(), Forgotten { was_kept: true, is_paused: false });
        assert_eq!(read(dir.path()).unwrap().pauses.len(), 2);
    }

    #[test]
    fn nothing_is_forgotten_behind_an_agent() {
        let dir = filled();
        let _held = take_lock(dir.path()).unwrap();
        assert!(matches!(forget(dir.path(), "a"), Err(StoreError::Held { .. })));
        assert_eq!(read(dir.path()).unwrap().volumes.len(), 2);
    }
}
