//! The files of volumes on a real directory, with every kind of damage.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use agent_core::errno::Errno;
use agent_core::health::loss::{Acknowledgement, Actor, Loss};
use agent_core::id::{MountId, SuperblockId};
use agent_core::memory::{HookMemory, Known, Learnt, LeftMemory, MountMemory, Trouble};
use agent_core::path::BytePath;
use agent_core::remediation::consumers::Holding;
use agent_core::time::Monotonic;
use agent_core::topology::Options;
use agent_core::verdict::{HealthState, Reason};
use agent_core::volume::Identity;

use super::*;

fn at(seconds: u64) -> Monotonic {
    Monotonic::from_nanos(seconds * 1_000_000_000 + 123)
}

fn asked(put_off: u32, given_up: Option<&str>) -> HookMemory {
    let hook = "/etc/mountie/ask".to_owned();
    HookMemory { hook, put_off, not_before: Some(at(5)), given_up: given_up.map(str::to_owned) }
}

fn mount() -> MountMemory {
    MountMemory {
        superblock: SuperblockId { major: 7, minor: 3 },
        mount_id: MountId(61),
        unique: Some(1 << 40),
        since: at(0),
        was_rw: true,
        storage_errors: true,
        shutdown: Some(at(2)),
        writes_ended: Some(at(1)),
        own_errors: Some((1 << 33, 41)),
        instance: Some(1 << 33),
        loss: Some(Loss {
            at: at(2),
            errno: Errno(5),
            acknowledged: Some(Acknowledgement {
                at: at(3),
                by: Actor { uid: 0, pid: 42, comm: "mountie".to_owned() },
            }),
        }),
        damage: Some(Loss { at: at(1), errno: Errno(117), acknowledged: None }),
    }
}

fn learnt() -> Learnt {
    let identity = Identity { uuid: Some("u".to_owned()), fsid: Some("00000000000000aa".to_owned()) };
    Learnt { identity, source: b"filer:/caf\xe9".to_vec() }
}

fn memory(volume: &str) -> Memory {
    Memory {
        volume: VolumeId::new(volume),
        mountpoint: BytePath::new(b"/mnt/caf\xe9".to_vec()),
        named: true,
        known: Some(std::sync::Arc::new(Known {
            fstype: "nfs4".to_owned(),
            source: b"filer:/caf\xe9".to_vec(),
            root: "/".into(),
            options: Options::parse(b"rw,relatime"),
            super_options: Options::parse(b"rw,vers=4.2,hard"),
        })),
        learnt: Some(learnt()),
        trouble: Some(Trouble {
            state: HealthState::Quarantined,
            reason: Reason::WritebackLost,
            since: at(3),
            since_wall: None,
            by_errors: true,
            by_table: true,
            message: "dirty data was lost".to_owned(),
        }),
        falls: vec![at(1), at(3)],
        attempts: vec![at(2)],
        failed: 1,
        ended: Some(at(2)),
        not_before: Some(at(4)),
        asked: Some(asked(3, Some("the hook says that a person must act: maintenance"))),
        asked_of_consumers: Some(asked(1, None)),
        was_readable: true,
        was_written: true,
        sentinel_read: Some(BytePath::from(".mountie")),
        put_back: true,
        left: vec![
            LeftMemory { superblock: SuperblockId { major: 0, minor: 41 }, holding: None, ids: [].into() },
            LeftMemory {
                superblock: SuperblockId { major: 0, minor: 42 },
                holding: Some(Holding {
                    root: "/".into(),
                    fstype: "nfs4".to_owned(),
                    source: b"a\xe9:/x".to_vec(),
                }),
                ids: BTreeSet::from([MountId(7), MountId(9)]),
            },
        ],
        mount: Some(mount()),
    }
}

fn state_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).expect("mode");
    dir
}

fn open(dir: &Path) -> (Shelf, Vec<Memory>) {
    let (shelf, memories, defects) = Shelf::open(&Disk::default(), dir, false);
    assert!(defects.is_empty(), "{defects:?}");
    (shelf, memories)
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir.join(FOLDER)).expect("directory").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A directory with the files of these volumes.
fn with(volumes: &[&str]) -> tempfile::TempDir {
    let dir = state_dir();
    let (mut shelf, memories) = open(dir.path());
    assert_eq!(memories, []);
    for volume in volumes {
        shelf.put(&VolumeId::new(*volume), Some(&memory(volume))).expect("put");
    }
    shelf.sync().expect("sync");
    dir
}

fn edit(dir: &Path, name: &str, change: impl Fn(String) -> String) {
    let path = dir.join(FOLDER).join(name);
    let text = fs::read_to_string(&path).expect("read");
    fs::write(&path, change(text)).expect("write");
}

#[test]
fn what_is_known_of_a_volume_is_found_again_to_the_nanosecond() {
    let awkward = "/mnt/caf\\xe9 \"日本\"/../x";
    let long = "l".repeat(1000);
    let dir = with(&["models", awkward, &long]);
    let (mut shelf, mut memories) = open(dir.path());
    memories.sort_by(|a, b| a.volume.cmp(&b.volume));
    let mut expected = [memory("models"), memory(awkward), memory(&long)];
    expected.sort_by(|a, b| a.volume.cmp(&b.volume));
    assert_eq!(memories, expected);
    assert!(names(dir.path()).iter().all(|name| name.len() < 200 && !name.contains('/')));

    shelf.put(&VolumeId::new("models"), None).expect("forget");
    shelf.put(&VolumeId::new("models"), None).expect("forget what is not there");
    assert_eq!(open(dir.path()).1.len(), 2);
}

#[test]
fn a_file_from_before_a_key_was_known_is_read_without_it() {
    let dir = with(&["a"]);
    edit(dir.path(), "a.json", |text| {
        let mut file: serde_json::Value = serde_json::from_str(&text).expect("json");
        let mount = file["mount"].as_object_mut().expect("mount");
        for key in ["writesEnded", "ownErrors", "damage"] {
            mount.remove(key).expect("it was there");
        }
        file.to_string()
    });
    let mut expected = memory("a");
    let mount = expected.mount.as_mut().expect("mount");
    (mount.writes_ended, mount.own_errors, mount.damage) = (None, None, None);
    assert_eq!(open(dir.path()).1, [expected]);
}

#[test]
fn files_are_for_the_agent_alone_and_hold_no_secret() {
    let dir = state_dir();
    let (mut shelf, _) = open(dir.path());
    let mut told = memory("v");
    if let Some(trouble) = &mut told.trouble {
        trouble.message = "mount -o password=Zx9 failed".to_owned();
    }
    shelf.put(&told.volume.clone(), Some(&told)).expect("put");
    let path = dir.path().join(FOLDER).join("v.json");
    assert_eq!(fs::metadata(&path).expect("metadata").permissions().mode() & 0o777, 0o600);
    assert!(!fs::read_to_string(path).expect("read").contains("Zx9"));
}

#[test]
fn a_file_that_cannot_be_understood_is_set_aside_and_costs_one_volume() {
    for damage in ["", "{", "{\"apiVersion\":\"mountie/v1\"}", "\u{0}\u{1}", "[]"] {
        let dir = with(&["a", "b"]);
        edit(dir.path(), "a.json", |_| damage.to_owned());
        let (mut shelf, memories, defects) = Shelf::open(&Disk::default(), dir.path(), false);
        assert_eq!(memories, [memory("b")], "{damage}");
        assert!(matches!(defects.as_slice(), [StoreError::BadFile { .. }]), "{defects:?}");
        let kept = names(dir.path());
        assert!(kept.iter().any(|name| name.starts_with("a.bad-")), "{kept:?}");
        // It is written anew, and only told once.
        shelf.put(&VolumeId::new("a"), Some(&memory("a"))).expect("put");
        assert_eq!(open(dir.path()).1.len(), 2);
    }
}

#[test]
fn a_file_under_the_name_of_another_volume_is_not_believed() {
    let dir = with(&["a"]);
    let folder = dir.path().join(FOLDER);
    fs::rename(folder.join("a.json"), folder.join("b.json")).expect("rename");
    let (_, memories, defects) = Shelf::open(&Disk::default(), dir.path(), false);
    assert_eq!((memories.len(), defects.len()), (0, 1));
}

#[test]
fn a_newer_version_is_left_alone() {
    let dir = with(&["a", "b"]);
    edit(dir.path(), "a.json", |text| text.replace("mountie/v2", "mountie/v3"));
    let (mut shelf, memories, defects) = Shelf::open(&Disk::default(), dir.path(), false);
    assert_eq!(memories, [memory("b")]);
    assert!(matches!(defects.as_slice(), [StoreError::Future { version, .. }] if version == "mountie/v3"));
    let refused = shelf.put(&VolumeId::new("a"), Some(&memory("a")));
    assert!(matches!(refused, Err(StoreError::LeftAlone { .. })), "{refused:?}");
    assert!(shelf.put(&VolumeId::new("a"), None).is_err());
    edit(dir.path(), "a.json", |text| {
        assert!(text.contains("mountie/v3"));
        text
    });
}

#[test]
fn a_file_of_an_old_version_is_read_and_written_as_one_of_this() {
    let dir = with(&["a"]);
    edit(dir.path(), "a.json", |text| {
        let mut file: Value = serde_json::from_str(&text).expect("json");
        let keys = file.as_object_mut().expect("object");
        for key in ["owner", "mounted", "identity"] {
            assert!(keys.remove(key).is_some(), "{key}");
        }
        keys.insert("apiVersion".to_owned(), "mountie/v1".into());
        keys.insert("kind".to_owned(), "VolumeMemory".into());
        keys.insert("odd".to_owned(), 7.into());
        file.to_string()
    });
    let (mut shelf, memories) = open(dir.path());
    let old = Memory { named: false, known: None, learnt: None, ..memory("a") };
    assert_eq!(memories, std::slice::from_ref(&old));
    shelf.put(&old.volume, Some(&memory("a"))).expect("put");
    let text = fs::read_to_string(dir.path().join(FOLDER).join("a.json")).expect("read");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&value["apiVersion"], &value["odd"]), (&Value::from("mountie/v2"), &Value::from(7)));
    assert_eq!(open(dir.path()).1, [memory("a")]);
}

#[test]
fn an_fsid_whose_source_an_older_agent_did_not_write_is_that_of_what_was_mounted() {
    let dir = with(&["a"]);
    edit(dir.path(), "a.json", |text| {
        let mut file: Value = serde_json::from_str(&text).expect("json");
        let identity = file["identity"].as_object_mut().expect("object");
        assert!(identity.remove("source").is_some());
        file.to_string()
    });
    assert_eq!(open(dir.path()).1, [memory("a")]);
}

#[test]
fn what_a_newer_agent_wrote_beside_it_survives() {
    let dir = with(&["a"]);
    edit(dir.path(), "a.json", |text| text.replacen('{', "{\"newer\": {\"x\": [1, 2]},", 1));
    let (mut shelf, memories) = open(dir.path());
    assert_eq!(memories, [memory("a")]);
    shelf.put(&VolumeId::new("a"), Some(&Memory { failed: 9, ..memory("a") })).expect("put");
    let text = fs::read_to_string(dir.path().join(FOLDER).join("a.json")).expect("read");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&value["newer"]["x"][1], &value["failedAttempts"]), (&Value::from(2), &Value::from(9)));
}

#[test]
fn what_others_could_have_written_is_not_believed_and_not_written() {
    let dir = with(&["a", "b"]);
    let folder = dir.path().join(FOLDER);
    fs::set_permissions(folder.join("a.json"), fs::Permissions::from_mode(0o666)).expect("mode");
    let (mut shelf, memories, defects) = Shelf::open(&Disk::default(), dir.path(), false);
    assert_eq!(memories, [memory("b")]);
    assert!(matches!(defects.as_slice(), [StoreError::Unsafe { mode: 0o666, .. }]), "{defects:?}");
    assert!(defects[0].to_string().contains("chmod go-w"), "{}", defects[0]);
    assert!(shelf.put(&VolumeId::new("a"), Some(&memory("a"))).is_err());

    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("mode");
    let (mut shelf, memories, defects) = Shelf::open(&Disk::default(), dir.path(), false);
    assert_eq!((memories.len(), defects.len()), (0, 1));
    assert!(shelf.put(&VolumeId::new("b"), Some(&memory("b"))).is_err());
}

#[test]
fn a_link_is_not_followed() {
    let dir = with(&["a"]);
    let elsewhere = dir.path().join("elsewhere");
    let path = dir.path().join(FOLDER).join("a.json");
    fs::rename(&path, &elsewhere).expect("rename");
    std::os::unix::fs::symlink(&elsewhere, &path).expect("link");
    let (_, memories, defects) = Shelf::open(&Disk::default(), dir.path(), false);
    assert_eq!((memories.len(), defects.len()), (0, 1), "{defects:?}");
    assert!(fs::read_to_string(elsewhere).expect("read").contains("mountie/v2"));
}

#[test]
fn a_write_that_was_cut_off_leaves_the_old_file() {
    let dir = with(&["a"]);
    fs::write(dir.path().join(FOLDER).join("a.new"), "{\"apiVersion\":\"mount").expect("write");
    let (_, memories) = open(dir.path());
    assert_eq!(memories, [memory("a")]);
    assert_eq!(names(dir.path()), ["a.json"]);
}

#[test]
fn what_another_agent_holds_is_neither_read_nor_written() {
    let dir = with(&["a"]);
    let (mut shelf, memories, defects) = Shelf::open(&Disk::default(), dir.path(), true);
    assert!(memories.is_empty() && defects.is_empty());
    assert!(shelf.put(&VolumeId::new("a"), None).is_err());
    assert_eq!(open(dir.path()).1.len(), 1);
}

#[test]
fn after_another_boot_mounts_mean_nothing_and_times_are_those_of_the_wall() {
    let written = Clocks { boot: Some("one".into()), now: at(1000), wall: Duration::from_secs(50_000) };
    let file = File::new(&memory("v"), Map::new(), &written);
    let later = Clocks { boot: Some("two".into()), now: at(600), wall: Duration::from_secs(51_000) };
    let found = file.clone().into_memory(&later);
    assert_eq!(found.mount, None);
    let trouble = found.trouble.clone().expect("trouble");
    // It began 997 s before it was written, and that is 1000 s ago: long before this boot.
    assert_eq!(
        (trouble.since, trouble.since_wall),
        (Monotonic::default(), Some(Duration::from_secs(49_003)))
    );
    assert_eq!(found.falls, [Monotonic::default(); 2]);

    // Written again during this boot, it still began before it.
    let again = File::new(&found, Map::new(), &later).into_memory(&later);
    assert_eq!(again.trouble.expect("trouble").since_wall, Some(Duration::from_secs(49_003)));
    // Without a boot id nothing is taken for this boot.
    let nameless = Clocks { boot: None, ..written.clone() };
    assert_eq!(file.clone().into_memory(&nameless).mount, None);
    // A wall clock that was set back makes no time lie ahead.
    let earlier = Clocks { wall: Duration::from_secs(10), ..later };
    let found = file.into_memory(&earlier);
    assert!(found.falls.iter().all(|fall| *fall <= earlier.now));
    assert!(found.not_before.is_some_and(|time| time.since(earlier.now) <= Duration::from_secs(3600)));
}
