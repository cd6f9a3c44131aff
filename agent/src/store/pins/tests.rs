//! The file of pins: what is read, what is kept, and what is left alone.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

/// As an agent whose directory it is.
fn read(dir: &Path) -> Pinned {
    super::read(&Disk::default(), dir, Arc::new(OnceLock::from(true)))
}

fn pin(path: &str, content: Option<&[u8]>, source: Option<&[u8]>) -> Pin {
    let sentinel = Sentinel { path: path.into(), content: content.map(<[u8]>::to_vec) };
    Pin { sentinel, source: source.map(<[u8]>::to_vec) }
}

fn some() -> Pins {
    BTreeMap::from([
        (VolumeId::new("a"), pin(".mountie", Some(b"x"), Some(b"filer:/a"))),
        (VolumeId::new("b"), pin("caf\u{e9}", Some(b"\xff\x00"), Some(b"\xfe"))),
        (VolumeId::new("c"), pin("s", None, None)),
    ])
}

fn put(dir: &Path, text: &str) {
    fs::write(dir.join(FILE), text).unwrap();
    fs::set_permissions(dir.join(FILE), fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn what_was_written_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let first = read(dir.path());
    assert!(first.pins.is_empty() && first.defects.is_empty());
    first.file.replace(1, &some()).unwrap();
    assert_eq!(read(dir.path()).pins, some());
    let mode = fs::metadata(dir.path().join(FILE)).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_bad_entry_costs_one_volume_and_stays_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    read(dir.path()).file.replace(1, &some()).unwrap();
    let path = dir.path().join(FILE);
    put(dir.path(), &fs::read_to_string(&path).unwrap().replace("\"volume\": \"a\"", "\"volume\": 7"));
    let second = read(dir.path());
    assert_eq!(second.pins.keys().map(VolumeId::as_str).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(second.defects.len(), 1);
    second.file.replace(1, &second.pins).unwrap();
    assert!(fs::read_to_string(&path).unwrap().contains("\"volume\": 7"));
}

#[test]
fn what_a_newer_agent_said_beside_it_stays_as_long_as_its_volume() {
    let dir = tempfile::tempdir().unwrap();
    put(
        dir.path(),
        r#"{"apiVersion":"mountie/v1","kind":"Sentinels","made":"whole","sentinels":[
        {"volume":"a","path":"s","by":"entry-a"},{"volume":"b","path":"s","by":"entry-b"}]}"#,
    );
    let mut found = read(dir.path());
    assert!(found.defects.is_empty(), "{:?}", found.defects);
    found.pins.remove(&VolumeId::new("b"));
    found.file.replace(1, &found.pins).unwrap();
    let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
    let has = ["whole", "entry-a", "entry-b"].map(|word| text.contains(word));
    assert_eq!(has, [true, true, false], "{text}");
}

#[test]
fn files_that_are_none_are_all_kept() {
    let dir = tempfile::tempdir().unwrap();
    for text in ["{ half", "{\"apiVersion\":\"mountie/v1\",\"kind\":\"Other\"}"] {
        put(dir.path(), text);
        let damaged = read(dir.path());
        let [StoreError::BadLines { kept, .. }] = &damaged.defects[..] else { panic!("{damaged:?}") };
        assert_eq!(fs::read_to_string(kept).unwrap(), text);
        damaged.file.replace(1, &some()).unwrap();
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn a_file_of_a_later_version_is_left_alone_whatever_its_shape() {
    let dir = tempfile::tempdir().unwrap();
    for sentinels in ["[]", "{\"a\":{}}"] {
        let later =
            format!("{{\"apiVersion\":\"mountie/v9\",\"kind\":\"Sentinels\",\"sentinels\":{sentinels}}}");
        put(dir.path(), &later);
        let found = read(dir.path());
        assert!(matches!(&found.defects[..], [StoreError::Future { .. }]), "{:?}", found.defects);
        assert!(found.file.replace(1, &some()).is_err());
        assert_eq!(fs::read_to_string(dir.path().join(FILE)).unwrap(), later);
    }
}

#[test]
fn what_others_may_write_is_not_believed_and_not_written() {
    for at_fault in [FILE, "."] {
        let dir = tempfile::tempdir().unwrap();
        read(dir.path()).file.replace(1, &some()).unwrap();
        fs::set_permissions(dir.path().join(at_fault), fs::Permissions::from_mode(0o777)).unwrap();
        let found = read(dir.path());
        assert!(found.pins.is_empty());
        assert!(matches!(&found.defects[..], [StoreError::Unsafe { .. }]), "{:?}", found.defects);
        assert!(matches!(found.file.replace(1, &some()), Err(StoreError::LeftAlone { .. })));
    }
}

#[test]
fn nothing_is_written_through_a_link_or_beside_another_agent() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, dir.path().join("sentinels.new")).unwrap();
    assert!(matches!(read(dir.path()).file.replace(1, &some()), Err(StoreError::Io { .. })));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    for (is_ours, is_held) in [(OnceLock::from(false), true), (OnceLock::new(), false)] {
        let refused = super::read(&Disk::default(), dir.path(), Arc::new(is_ours))
            .file
            .replace(1, &some())
            .unwrap_err();
        assert_eq!(matches!(refused, StoreError::Held { .. }), is_held, "{refused}");
    }
    assert!(fs::symlink_metadata(dir.path().join(FILE)).is_err());
}

#[tokio::test]
async fn an_older_set_does_not_overtake_a_newer_one() {
    let dir = tempfile::tempdir().unwrap();
    let pinned = read(dir.path());
    let older = pinned.file.write(Pins::new());
    let newer = pinned.file.write(some());
    newer.await.unwrap();
    older.await.unwrap();
    assert_eq!(read(dir.path()).pins, some());
}
