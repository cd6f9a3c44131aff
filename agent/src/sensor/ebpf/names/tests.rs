//! A temporary directory plays procfs.

use std::collections::BTreeSet;

use agent_common::key::NAME_BYTES;
use agent_common::record::{Header, Who};
use agent_core::engine::Tracked;
use agent_core::id::SuperblockId;
use agent_core::path::BytePath;

use super::*;

const HOST: u32 = 1;
const OTHER: u32 = 2;

fn record(dir: i32, mnt_ns: u32, name: &str) -> NameRecord {
    let mut path = [0; NAME_BYTES];
    path[..name.len()].copy_from_slice(name.as_bytes());
    NameRecord {
        header: Header::default(),
        who: Who { pid: 10, tgid: 10, mnt_ns, ..Who::default() },
        dir,
        errno: 107,
        op: 4,
        reserved: 0,
        path_len: u32::try_from(name.len()).unwrap(),
        base_dev: 0,
        path,
    }
}

fn places() -> Places {
    let volume = Tracked {
        superblock: SuperblockId { major: 0, minor: 40 },
        root_inode: Some(9),
        mountpoint: BytePath::from("/mnt/a"),
    };
    Places::new(&[volume], &[], &BTreeSet::new())
}

fn names(proc: &tempfile::TempDir) -> Names {
    let process = proc.path().join("10");
    std::fs::create_dir_all(process.join("fd")).unwrap();
    std::os::unix::fs::symlink("/", process.join("root")).unwrap();
    std::os::unix::fs::symlink("/mnt", process.join("cwd")).unwrap();
    std::os::unix::fs::symlink("/mnt/a/deep", process.join("fd/3")).unwrap();
    let table = "22 1 0:41 / / rw - tmpfs t rw\n23 22 0:40 /sub /data\\040x rw - fuse f rw\nodd line\n";
    std::fs::write(process.join("mountinfo"), table).unwrap();
    Names::new(proc.path().to_owned(), HOST, true)
}

#[test]
fn relative_names_start_at_their_directory() {
    let proc = tempfile::tempdir().unwrap();
    let mut names = names(&proc);
    let mut place = |dir, name| names.place(Monotonic::default(), &record(dir, HOST, name), &places());
    let expected = CounterKey { root_ino: 9, s_dev: 40, errno: 107, op: 4, reserved: 0 };
    assert_eq!(place(WORKING_DIRECTORY, "a/file"), Some(expected));
    assert_eq!(place(WORKING_DIRECTORY, "./a"), Some(expected));
    assert_eq!(place(WORKING_DIRECTORY, "ab"), None);
    assert_eq!(place(3, "../x"), Some(expected));
    assert_eq!(place(3, "../../b"), None);
    assert_eq!(place(4, "x"), None);
    assert_eq!(place(WORKING_DIRECTORY, "/mnt/./a/../a/x"), Some(expected));
}

#[test]
fn names_of_other_namespaces_are_looked_up_in_their_own_table() {
    let proc = tempfile::tempdir().unwrap();
    let mut names = names(&proc);
    let mut place =
        |name| names.place(Monotonic::default(), &record(WORKING_DIRECTORY, OTHER, name), &places());
    assert_eq!(place("/data x/file").map(|key| (key.s_dev, key.root_ino)), Some((40, 0)));
    assert_eq!(place("/mnt/a/file"), None);
}

#[test]
fn a_table_older_than_the_mount_is_read_again() {
    let proc = tempfile::tempdir().unwrap();
    let mut names = names(&proc);
    let file = proc.path().join("10/mountinfo");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, "22 1 0:41 / / rw - tmpfs t rw\n").unwrap();
    let mut place =
        || names.place(Monotonic::default(), &record(WORKING_DIRECTORY, OTHER, "/data x/file"), &places());
    assert_eq!(place(), None);
    std::fs::write(&file, whole).unwrap();
    assert!(place().is_some());
    std::fs::remove_file(&file).unwrap();
    assert!(place().is_some(), "the table that was read is kept");
}

#[test]
fn a_process_that_is_gone_can_still_be_placed_by_an_absolute_name() {
    let proc = tempfile::tempdir().unwrap();
    let mut names = Names::new(proc.path().to_owned(), HOST, true);
    let mut place =
        |name| names.place(Monotonic::default(), &record(WORKING_DIRECTORY, HOST, name), &places());
    assert_eq!(place("/mnt/a/../a/x").map(|key| key.s_dev), Some(40));
    assert_eq!(place("a/x"), None);
    let started_inside = NameRecord { base_dev: 40, ..record(WORKING_DIRECTORY, HOST, "x") };
    let key = names.place(Monotonic::default(), &started_inside, &places()).unwrap();
    assert_eq!((key.s_dev, key.root_ino), (40, 0));
}

#[test]
fn text_is_normalised() {
    assert_eq!(normalise(b"//a/./b/../../../c/"), b"/c");
    assert_eq!(normalise(b"/.."), b"/");
}

#[test]
fn tables_are_read_within_a_number_and_a_cost() {
    let at = |seconds: u64| Monotonic::from_nanos(seconds * 1_000_000_000);
    let mut reads = Reads::default();
    assert_eq!((0..2 * READS).filter(|_| reads.allow(at(10))).count(), READS as usize);
    assert!(!reads.allow(at(11)));
    assert!(reads.allow(at(12)));
    reads.cost += READS_COST;
    assert!(!reads.allow(at(12)));
    assert!(reads.allow(at(14)));
}
