//! The file of pauses on a real directory, whole and damaged.

use std::fs;
use std::os::unix::fs::PermissionsExt;

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
    let (file, pauses, defects) = PauseFile::open(&Disk::default(), dir, false);
    assert!(defects.is_empty(), "{defects:?}");
    (file, pauses)
}

fn put(dir: &Path, text: &str) {
    fs::write(dir.join(FILE), text).unwrap();
    fs::set_permissions(dir.join(FILE), fs::Permissions::from_mode(0o600)).unwrap();
}

/// Changes what stands in the file.
fn edit(dir: &Path, change: impl Fn(&mut Value)) {
    let mut value = written(dir);
    change(&mut value);
    put(dir, &value.to_string());
}

fn written(dir: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(dir.join(FILE)).unwrap()).unwrap()
}

/// Whether the agent itself has paused everything, without an end.
fn is_closed(pauses: &Pauses) -> bool {
    let is_own = |pause: &Pause| pause.by.pid == std::process::id() && pause.until.is_none();
    pauses.node.as_ref().is_some_and(is_own) && pauses.volumes.is_empty()
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
fn unknown_keys_of_a_pause_stay_with_it_and_not_with_the_next_one() {
    let dir = state_dir();
    open(dir.path()).0.write(&pauses()).unwrap();
    edit(dir.path(), |file| {
        for entry in file["pauses"].as_array_mut().unwrap() {
            entry["ticket"] = 7.into();
        }
    });
    let (file, mut found) = open(dir.path());
    let by = Actor { uid: 1, pid: 1, comm: String::new() };
    found.node = found.node.map(|pause| Pause { by, ..pause });
    file.write(&found).unwrap();
    let file = written(dir.path());
    assert_eq!((&file["pauses"][0]["ticket"], &file["pauses"][1]["ticket"]), (&Value::Null, &Value::from(7)));
    assert_eq!(open(dir.path()).1, found);
}

#[test]
fn an_entry_that_is_not_understood_keeps_its_volume_paused_and_costs_no_other() {
    let dir = state_dir();
    open(dir.path()).0.write(&pauses()).unwrap();
    edit(dir.path(), |file| {
        let list = file["pauses"].as_array_mut().unwrap();
        list.push(serde_json::json!({ "volume": "b", "since": "yesterday" }));
    });
    let (file, found, defects) = PauseFile::open(&Disk::default(), dir.path(), false);
    assert!(matches!(&defects[..], [StoreError::PauseUnread { whom, .. }] if whom == "`b`"), "{defects:?}");
    let by = pauses().node.unwrap().by;
    assert_eq!(found.volumes.keys().map(VolumeId::as_str).collect::<Vec<_>>(), ["a \"日本\"", "b"]);
    assert!(found.node.as_ref().is_some_and(|pause| pause.by == by), "{found:?}");
    // It is written as what holds, with what was there beside it.
    file.write(&Pauses { node: None, ..found.clone() }).unwrap();
    assert_eq!(written(dir.path())["pauses"][1]["unread"][0]["since"], "yesterday");
    assert_eq!(open(dir.path()).1.volumes, found.volumes);
}

#[test]
fn an_entry_that_may_be_about_any_volume_pauses_them_all() {
    for entry in [Value::Null, serde_json::json!({ "volume": 7 }), serde_json::json!({ "since": {} })] {
        let dir = state_dir();
        open(dir.path()).0.write(&Pauses::default()).unwrap();
        edit(dir.path(), |file| file["pauses"] = Value::Array(vec![entry.clone()]));
        let (_, found, defects) = PauseFile::open(&Disk::default(), dir.path(), false);
        assert!(is_closed(&found) && defects.len() == 1, "{entry}: {found:?} {defects:?}");
    }
}

#[test]
fn after_another_boot_a_pause_ends_when_the_wall_clock_says_so() {
    let now = Monotonic::from_nanos(1_000_000_000_000);
    let wall = Duration::from_secs(1_700_000_000);
    let before = Clocks { boot: Some("one".to_owned()), now, wall };
    let by = Actor { uid: 0, pid: 1, comm: String::new() };
    let until = Some(now + Duration::from_secs(3600 * 5));
    let pause = Pause { since: now, since_wall: None, until, by, reason: None };
    let seen = |wall: u64| {
        let now = Monotonic::from_nanos(20_000_000_000);
        let after = Clocks { boot: Some("two".to_owned()), now, wall: Duration::from_secs(wall) };
        let found = Entry::new(Scope::Node, &pause, Map::new(), &before).into_pause(&after, false);
        assert_eq!(found.since_wall, Some(Duration::from_secs(1_700_000_000)));
        found.until.unwrap().since(now).as_secs()
    };
    assert_eq!(seen(1_700_003_600), 3600 * 4);
    assert_eq!(seen(1_600_000_000), 3600 * 5, "a clock that was set back makes it no longer");
    assert_eq!(seen(1_800_000_000), 0);
}

#[test]
fn a_damaged_file_pauses_everything_also_at_the_next_start_until_somebody_ends_that() {
    for damage in ["", "{ half", "{\"apiVersion\":\"mountie/v1\",\"kind\":\"Pauses\"}", "[]"] {
        let dir = state_dir();
        put(dir.path(), damage);
        let (_, found, defects) = PauseFile::open(&Disk::default(), dir.path(), false);
        assert!(is_closed(&found), "{damage}: {found:?}");
        assert!(matches!(&defects[..], [StoreError::PausesUnknown { .. }]), "{damage}: {defects:?}");
        let is_kept = |entry: fs::DirEntry| fs::read_to_string(entry.path()).unwrap() == damage;
        assert!(fs::read_dir(dir.path()).unwrap().any(|entry| is_kept(entry.unwrap())), "{damage}");
        let (file, again) = open(dir.path());
        assert_eq!(again, found, "{damage}");
        file.write(&Pauses::default()).unwrap();
        assert_eq!(open(dir.path()).1, Pauses::default());
    }
}

#[test]
fn what_is_not_ours_to_read_pauses_everything_and_is_left_alone() {
    let dir = state_dir();
    let path = dir.path().join(FILE);
    let later = "{\"apiVersion\":\"mountie/v9\",\"kind\":\"Pauses\"}";
    put(dir.path(), later);
    for mode in [0o600, 0o666] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let (file, found, defects) = PauseFile::open(&Disk::default(), dir.path(), false);
        let [StoreError::PausesUnknown { source }] = &defects[..] else { panic!("{defects:?}") };
        let is_told = match **source {
            StoreError::Future { .. } => mode == 0o600,
            StoreError::Unsafe { .. } => mode == 0o666,
            _ => false,
        };
        assert!(is_told && is_closed(&found), "{source} {found:?}");
        assert!(file.write(&pauses()).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), later);
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let (file, found, defects) = PauseFile::open(&Disk::default(), dir.path(), false);
    assert!(is_closed(&found) && defects.len() == 1 && file.write(&pauses()).is_err(), "{defects:?}");
}

#[test]
fn without_a_file_nothing_is_paused() {
    let dir = state_dir();
    assert_eq!(open(dir.path()).1, Pauses::default());
    assert_eq!(open(&dir.path().join("none")).1, Pauses::default());
    put(dir.path(), "");
    assert_eq!(open(&dir.path().join(FILE)).1, Pauses::default(), "a file where the directory should be");
}
