//! The journal on a real directory, with every kind of damage.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;
use crate::store::record::{Bytes, current_boot};

fn intent(plan: u64) -> Record {
    Record {
        api_version: API_VERSION.to_owned(),
        body: Body::Intent {
            plan,
            volume: "models".to_owned(),
            mountpoint: Bytes::Raw(b"/mnt/caf\xe9".to_vec()),
            stage: Bytes::Text(format!("/run/mountie/stage/{plan}")),
            old: Some((0, 42)),
            marks: None,
            holders: BTreeSet::from([17]),
            boot: current_boot(),
            reason: "stale".to_owned(),
        },
    }
}

fn outcome(plan: u64) -> Record {
    Record {
        api_version: API_VERSION.to_owned(),
        body: Body::Outcome { plan, outcome: "changed".to_owned() },
    }
}

fn state_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).expect("mode");
    dir
}

fn plans(replay: &Replay) -> Vec<u64> {
    replay.unfinished.iter().map(|unfinished| unfinished.plan.0).collect()
}

fn open(dir: &Path) -> (Journal, Replay) {
    let (journal, replay, defects) = Journal::open(&Disk::default(), dir);
    assert!(defects.is_empty(), "{defects:?}");
    (journal, replay)
}

#[test]
fn an_intent_without_an_outcome_is_found_again() {
    let dir = state_dir();
    let (mut journal, replay) = open(dir.path());
    assert_eq!((plans(&replay), replay.next_plan), (vec![], PlanId(1)));
    for record in [intent(1), outcome(1), intent(2)] {
        journal.append(&record).expect("append");
    }
    drop(journal);
    let (_, replay) = open(dir.path());
    assert_eq!((plans(&replay), replay.next_plan), (vec![2], PlanId(3)));
    let found = &replay.unfinished[0];
    assert_eq!(found.mountpoint.as_bytes(), b"/mnt/caf\xe9");
    assert_eq!(found.old.map(|old| old.minor), Some(42));
}

#[test]
fn plan_ids_are_never_used_again_after_shortening() {
    let dir = state_dir();
    let (mut journal, _) = open(dir.path());
    for plan in 1..=7 {
        journal.append(&intent(plan)).expect("append");
        journal.append(&outcome(plan)).expect("append");
    }
    drop(journal);
    for _ in 0..3 {
        let (_, replay) = open(dir.path());
        assert_eq!((plans(&replay), replay.next_plan), (vec![], PlanId(8)));
    }
}

#[test]
fn a_cut_off_tail_costs_one_line_at_every_length() {
    let dir = state_dir();
    let path = dir.path().join(FILE);
    let whole = [intent(1), intent(2)].map(|record| render_line(&record));
    for cut in 1..whole[1].len() {
        fs::write(&path, format!("{}{}", whole[0], &whole[1][..cut])).expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("mode");
        let (_, replay, defects) = Journal::open(&Disk::default(), dir.path());
        // Without only its newline the line is whole.
        let complete = cut + 1 == whole[1].len();
        assert_eq!(plans(&replay), if complete { vec![1, 2] } else { vec![1] }, "cut at {cut}");
        assert_eq!(defects.len(), usize::from(!complete), "cut at {cut}");
    }
}

#[test]
fn a_damaged_line_is_set_aside_and_the_others_survive() {
    let dir = state_dir();
    let path = dir.path().join(FILE);
    for damage in
        ["", "0123", "zzzzzzzz {}", "00000000 {\"apiVersion\":\"mountie/v1\"}", "\0\0\0\0\0\0\0\0\0"]
    {
        fs::write(&path, format!("{}{damage}\n{}", render_line(&intent(4)), render_line(&intent(5))))
            .expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("mode");
        let (_, replay, defects) = Journal::open(&Disk::default(), dir.path());
        assert_eq!(plans(&replay), [4, 5], "{damage:?}");
        assert_eq!(defects.len(), usize::from(!damage.is_empty()), "{damage:?}: {defects:?}");
        if let Some(StoreError::BadLines { kept, .. }) = defects.first() {
            assert!(
                fs::read(kept).expect("kept").windows(damage.len()).any(|part| part == damage.as_bytes())
            );
        }
    }
}

#[test]
fn a_second_agent_does_not_get_the_state_of_the_first() {
    let dir = state_dir();
    let (mut first, _) = open(dir.path());
    first.append(&intent(1)).expect("append");
    let (mut second, replay, defects) = Journal::open(&Disk::default(), dir.path());
    assert!(matches!(&defects[..], [StoreError::Held { .. }]), "{defects:?}");
    assert!(plans(&replay).is_empty() && second.append(&intent(9)).is_err());
    first.append(&outcome(1)).expect("the first goes on");
    drop((first, second));
    assert_eq!(plans(&open(dir.path()).1), [0_u64; 0]);
}

#[test]
fn a_newer_version_is_left_alone() {
    let dir = state_dir();
    let path = dir.path().join(FILE);
    let json = r#"{"apiVersion":"mountie/v9","kind":"Intent","plan":3}"#;
    let text = format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()));
    fs::write(&path, &text).expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("mode");
    let (mut journal, _, defects) = Journal::open(&Disk::default(), dir.path());
    assert!(
        matches!(&defects[..], [StoreError::Future { version, .. }] if version == "mountie/v9"),
        "{defects:?}"
    );
    assert!(journal.append(&intent(1)).is_err());
    assert_eq!(fs::read_to_string(&path).expect("read"), text);
}

#[test]
fn a_file_that_others_can_write_is_refused() {
    let dir = state_dir();
    let path = dir.path().join(FILE);
    fs::write(&path, render_line(&intent(1))).expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("mode");
    let (_, replay, defects) = Journal::open(&Disk::default(), dir.path());
    assert!(plans(&replay).is_empty());
    assert!(matches!(&defects[..], [StoreError::Unsafe { mode: 0o666, .. }]), "{defects:?}");
}

#[test]
fn without_a_directory_the_journal_lives_in_memory() {
    let dir = state_dir();
    let file = dir.path().join("file");
    fs::write(&file, "").expect("write");
    let (mut journal, replay, defects) = Journal::open(&Disk::default(), &file.join("state"));
    assert_eq!(replay.next_plan, PlanId(1));
    assert!(!defects.is_empty());
    assert!(journal.append(&intent(1)).is_err());
    assert!(journal.open.contains_key(&1));
}

#[test]
fn a_journal_that_comes_back_holds_what_was_missed() {
    let dir = state_dir();
    let state = dir.path().join("state");
    fs::write(&state, "in the way").expect("write");
    let (mut journal, ..) = Journal::open(&Disk::default(), &state);
    assert!(journal.append(&intent(1)).is_err());
    fs::remove_file(&state).expect("remove");
    fs::create_dir(&state).expect("create");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).expect("mode");
    journal.append(&intent(2)).expect("the disk is back");
    drop(journal);
    let (_, replay) = open(&state);
    assert_eq!(plans(&replay), [1, 2]);
}

#[test]
fn a_device_number_of_another_boot_is_not_believed() {
    let dir = state_dir();
    let path = dir.path().join(FILE);
    for boot in [None, Some("0f0e0d0c-0000-4000-8000-000000000000".to_owned())] {
        let mut record = intent(1);
        if let Body::Intent { boot: written, .. } = &mut record.body {
            *written = boot;
        }
        fs::write(&path, render_line(&record)).expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("mode");
        let (_, replay) = open(dir.path());
        assert_eq!(plans(&replay), [1]);
        assert_eq!(replay.unfinished[0].old, None, "another mount may have that number now");
    }
}

#[test]
fn a_journal_that_cannot_be_read_is_kept_and_its_ids_are_not_used_again() {
    let dir = state_dir();
    let path = dir.path().join(FILE);
    // Reading through a link is refused, as it would be with a bad sector.
    let elsewhere = dir.path().join("elsewhere");
    fs::write(&elsewhere, render_line(&intent(7))).expect("write");
    std::os::unix::fs::symlink(&elsewhere, &path).expect("link");
    let (mut journal, replay, defects) = Journal::open(&Disk::default(), dir.path());
    assert!(matches!(&defects[..], [StoreError::Io { operation: "read", .. }]), "{defects:?}");
    assert!(replay.next_plan > PlanId(1_000_000_000), "{:?}", replay.next_plan);
    journal.append(&intent(replay.next_plan.0)).expect("append");
    let kept = fs::read_dir(dir.path()).expect("list").filter(|entry| {
        let name = entry.as_ref().expect("entry").file_name();
        name.to_string_lossy().starts_with("journal.bad-")
    });
    assert_eq!(kept.count(), 1);
}

#[test]
fn a_damaged_journal_is_still_there_when_no_new_one_can_be_written() {
    let dir = state_dir();
    let path = dir.path().join(FILE);
    fs::write(&path, format!("{}torn", render_line(&intent(4)))).expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("mode");
    // The new file cannot be made where a directory is in its way.
    fs::create_dir(path.with_extension("new")).expect("directory");
    for _ in 0..2 {
        let (_, replay, defects) = Journal::open(&Disk::default(), dir.path());
        assert_eq!(plans(&replay), [4], "{defects:?}");
        assert_eq!(defects.len(), 2, "{defects:?}");
    }
}

#[test]
fn a_long_journal_is_shortened_to_what_is_open() {
    let dir = state_dir();
    let path = dir.path().join(FILE);
    let (mut journal, _) = open(dir.path());
    for plan in 1..=20 {
        journal.append(&intent(plan)).expect("append");
        journal.append(&outcome(plan)).expect("append");
    }
    journal.append(&intent(21)).expect("append");
    let lines = |path: &Path| fs::read_to_string(path).expect("read").lines().count();
    // The mark of the start, and one line a record.
    assert_eq!(lines(&path), 42);
    journal.appended = SHORTEN_AFTER;
    journal.append(&intent(22)).expect("append");
    assert_eq!((lines(&path), journal.appended), (3, 0));
    journal.append(&outcome(21)).expect("append");
    drop(journal);
    let (_, replay) = open(dir.path());
    assert_eq!((plans(&replay), replay.next_plan), (vec![22], PlanId(23)));
}

#[test]
fn after_a_failed_write_the_next_one_writes_all_that_is_open() {
    let dir = state_dir();
    let path = dir.path().join(FILE);
    let (mut journal, _) = open(dir.path());
    journal.append(&intent(1)).expect("append");
    // A disk that takes nothing any more.
    journal.file = Some(OpenOptions::new().write(true).open("/dev/full").expect("open").into());
    let refused = journal.append(&intent(2));
    assert!(matches!(&refused, Err(StoreError::Io { operation: "append to", .. })), "{refused:?}");
    assert!(!fs::read_to_string(&path).expect("read").contains("\"plan\":2"));
    journal.append(&intent(3)).expect("the disk takes it again");
    drop(journal);
    assert_eq!(plans(&open(dir.path()).1), [1, 2, 3]);
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    let dir = state_dir();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("mode");
    let (mut journal, _, defects) = Journal::open(&Disk::default(), dir.path());
    assert!(matches!(&defects[..], [StoreError::Unsafe { mode: 0o777, .. }]), "{defects:?}");
    assert!(matches!(journal.append(&intent(1)), Err(StoreError::Gone)));
    assert!(fs::symlink_metadata(dir.path().join(FILE)).is_err());
}
