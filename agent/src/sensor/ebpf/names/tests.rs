//! A temporary directory plays procfs.

use agent_common::key::NAME_BYTES;
use agent_common::record::{Header, Who, part};
use agent_core::engine::Tracked;
use agent_core::id::SuperblockId;
use agent_core::path::BytePath;

use super::super::Watched;
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
        part: part::ALONE,
        path_len: u32::try_from(name.len()).unwrap(),
        base_dev: 0,
        path,
    }
}

/// Volumes of one superblock: where each is mounted, which directory it shows, and the inode of that.
fn volumes(rows: &[(&str, &str, u64)]) -> Places {
    let tracked = |(mountpoint, _, root): &(&str, &str, u64)| Tracked {
        superblock: SuperblockId { major: 0, minor: 40 },
        root_inode: Some(*root),
        mountpoint: BytePath::from(*mountpoint),
    };
    let directory = |row: &(&str, &str, u64)| (BytePath::from(row.0), row.1.as_bytes().to_vec());
    Places::new(&Watched {
        tracked: rows.iter().map(tracked).collect(),
        directories: rows.iter().map(directory).collect(),
        ..Watched::default()
    })
}

fn places() -> Places {
    volumes(&[("/mnt/a", "/", 9)])
}

const fn at(millis: u64) -> Monotonic {
    Monotonic::from_nanos(millis * 1_000_000)
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
    let mut place = |dir, name| names.place(at(0), &record(dir, HOST, name), &places()).key();
    let expected = CounterKey { root_ino: 9, s_dev: 40, errno: 107, op: 4, by_name: 1 };
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
    let mut place = |name| names.place(at(0), &record(WORKING_DIRECTORY, OTHER, name), &places()).key();
    assert_eq!(place("/data x/file").map(|key| (key.s_dev, key.root_ino)), Some((40, 9)));
    assert_eq!(place("/mnt/a/file"), None);
}

#[test]
fn of_two_volumes_of_a_superblock_the_one_that_a_namespace_shows_is_meant() {
    let proc = tempfile::tempdir().unwrap();
    let mut names = names(&proc);
    let table = "23 1 0:40 / /data rw - nfs4 filer:/export/a rw\n\
                 24 1 0:40 / /sub rw - nfs4 filer:/export/b/sub rw\n\
                 25 1 0:40 / /other rw - nfs4 filer:/export/c rw\n";
    std::fs::write(proc.path().join("10/mountinfo"), table).unwrap();
    let places = volumes(&[("/mnt/a", "filer:/export/a", 7), ("/mnt/b", "filer:/export/b", 8)]);
    let mut place = |name| {
        let key = names.place(at(0), &record(WORKING_DIRECTORY, OTHER, name), &places).key().unwrap();
        (key.s_dev, key.root_ino)
    };
    assert_eq!([place("/data/x"), place("/sub/x"), place("/other/x")], [(40, 7), (40, 8), (40, 0)]);
}

fn refused<T>(_: &Path) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(libc::EACCES))
}

#[test]
fn a_link_that_is_refused_is_a_loss_and_never_the_usual_root() {
    let proc = tempfile::tempdir().unwrap();
    let mut names = Names { access: Access { link: refused, ..DIRECT }, ..names(&proc) };
    for (namespace, name) in [(HOST, "/mnt/a/x"), (OTHER, "/data x/file"), (HOST, "a/x"), (HOST, "../x")] {
        let record = record(WORKING_DIRECTORY, namespace, name);
        assert_eq!(names.place(at(0), &record, &places()), Place::Refused, "{name}");
    }
    // The directory that a relative name starts from is known without asking.
    let inside = NameRecord { base_dev: 40, ..record(WORKING_DIRECTORY, HOST, "x") };
    assert!(names.place(at(0), &inside, &places()).key().is_some());
    let absolute = NameRecord { base_dev: 40, ..record(WORKING_DIRECTORY, HOST, "/x") };
    assert_eq!(names.place(at(0), &absolute, &places()), Place::Refused);
}

#[test]
fn a_table_that_is_refused_is_a_loss_unless_another_process_has_shown_it() {
    let proc = tempfile::tempdir().unwrap();
    let mut names = names(&proc);
    let name = record(WORKING_DIRECTORY, OTHER, "/data x/file");
    let direct = names.access;
    names.access.open = refused;
    assert_eq!(names.place(at(0), &name, &places()), Place::Refused);
    names.access = direct;
    assert!(names.place(at(1), &name, &places()).key().is_some());
    names.access.open = refused;
    let mut other = name;
    (other.who.pid, other.who.tgid) = (11, 11);
    assert!(names.place(at(2), &other, &places()).key().is_some());
}

#[test]
fn only_what_is_refused_is_taken_for_a_refusal() {
    for (errno, expected) in [
        (libc::EACCES, Unread::Refused),
        (libc::EPERM, Unread::Refused),
        (libc::ENOENT, Unread::Gone),
        (libc::ESRCH, Unread::Gone),
        (libc::EINVAL, Unread::Gone),
    ] {
        assert_eq!(Unread::of(&io::Error::from_raw_os_error(errno)), expected, "{errno}");
    }
}

#[test]
fn names_of_a_process_with_a_root_of_its_own_are_looked_up_from_there() {
    let proc = tempfile::tempdir().unwrap();
    let mut names = names(&proc);
    let link = |name, target| {
        let link = proc.path().join("10").join(name);
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(target, link).unwrap();
    };
    link("root", "/pods/7");
    link("cwd", "/pods/7/data x");
    link("fd/3", "/pods/78");
    let mut place =
        |dir, name| names.place(at(0), &record(dir, OTHER, name), &places()).key().map(|key| key.s_dev);
    assert_eq!(place(WORKING_DIRECTORY, "/data x/file"), Some(40));
    assert_eq!(place(WORKING_DIRECTORY, "file"), Some(40));
    assert_eq!(place(WORKING_DIRECTORY, "/pods/7/data x/file"), None);
    assert_eq!(place(3, "data x"), None, "that directory is not below the root");
}

#[test]
fn a_table_older_than_the_mount_is_read_again() {
    let proc = tempfile::tempdir().unwrap();
    let mut names = names(&proc);
    let file = proc.path().join("10/mountinfo");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, "22 1 0:41 / / rw - tmpfs t rw\n23 22 0:40 / /early rw - fuse f rw\n").unwrap();
    let mut place =
        |millis| names.place(at(millis), &record(WORKING_DIRECTORY, OTHER, "/data x/file"), &places()).key();
    assert_eq!(place(0), None);
    std::fs::write(&file, whole).unwrap();
    assert!(place(100).is_some());
    std::fs::remove_file(&file).unwrap();
    assert!(place(600).is_some(), "the table that was read is kept");
}

#[test]
fn a_namespace_that_shows_nothing_tracked_is_not_asked_again_for_a_while() {
    let proc = tempfile::tempdir().unwrap();
    let mut names = names(&proc);
    let file = proc.path().join("10/mountinfo");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, "22 1 0:41 / / rw - tmpfs t rw\n").unwrap();
    let record = record(WORKING_DIRECTORY, OTHER, "/data x/file");
    for millis in 0..500 {
        assert_eq!(names.place(at(millis), &record, &places()), Place::Elsewhere);
    }
    assert_eq!(names.reads.count, 1);
    std::fs::write(&file, whole).unwrap();
    assert_eq!(names.place(at(999), &record, &places()), Place::Elsewhere);
    assert!(names.place(at(1000), &record, &places()).key().is_some());
}

#[test]
fn a_namespace_is_asked_anew_once_something_else_is_tracked() {
    let proc = tempfile::tempdir().unwrap();
    let mut names = names(&proc);
    let record = record(WORKING_DIRECTORY, OTHER, "/data x/file");
    assert_eq!(names.place(at(0), &record, &Places::default()), Place::Elsewhere);
    let root = |names: &mut Names| names.place(at(1), &record, &places()).key().map(|key| key.root_ino);
    assert_eq!(root(&mut names), Some(0), "the table was read when nothing of it was of interest");
    names.tracked_others();
    assert_eq!(root(&mut names), Some(9));
}

#[test]
fn a_part_of_a_namespace_says_nothing_of_the_rest() {
    let proc = tempfile::tempdir().unwrap();
    let mut names = names(&proc);
    let jailed = proc.path().join("11");
    std::fs::create_dir_all(&jailed).unwrap();
    std::os::unix::fs::symlink("/jail", jailed.join("root")).unwrap();
    std::fs::write(jailed.join("mountinfo"), "22 1 0:41 / / rw - tmpfs t rw\n").unwrap();
    let outside = record(WORKING_DIRECTORY, OTHER, "/data x/file");
    let mut inside = outside;
    (inside.who.pid, inside.who.tgid) = (11, 11);
    assert_eq!(names.place(at(0), &inside, &places()), Place::Elsewhere);
    assert!(names.place(at(1), &outside, &places()).key().is_some());
}

#[test]
fn a_namespace_whose_programs_fail_all_the_time_leaves_others_their_look() {
    let proc = tempfile::tempdir().unwrap();
    let mut names = names(&proc);
    for process in 100..200 {
        let noisy = proc.path().join(process.to_string());
        std::fs::create_dir_all(&noisy).unwrap();
        std::fs::write(noisy.join("mountinfo"), "22 1 0:41 / / ro - tmpfs t rw\n").unwrap();
        let mut record = record(WORKING_DIRECTORY, 7, "/x");
        (record.who.pid, record.who.tgid) = (process, process);
        assert_eq!(names.place(at(0), &record, &places()), Place::Elsewhere);
    }
    let own = names.place(at(1), &record(WORKING_DIRECTORY, OTHER, "/data x/file"), &places());
    assert_eq!(own.key().map(|key| key.s_dev), Some(40));
}

#[test]
fn a_name_of_a_namespace_that_nobody_could_look_at_is_told_as_such() {
    let proc = tempfile::tempdir().unwrap();
    let mut names = names(&proc);
    names.reads.cost = READS_COST;
    let record = record(WORKING_DIRECTORY, OTHER, "/data x/file");
    assert_eq!(names.place(at(1), &record, &places()), Place::NotLookedUp);
    assert!(names.place(at(3000), &record, &places()).key().is_some());
}

#[test]
fn processes_that_are_gone_use_up_nobodys_looks() {
    let proc = tempfile::tempdir().unwrap();
    let mut names = names(&proc);
    for process in 100..200 {
        let mut record = record(WORKING_DIRECTORY, OTHER, "/data x/file");
        (record.who.pid, record.who.tgid) = (process, process);
        assert_eq!(names.place(at(0), &record, &places()), Place::Gone);
    }
    assert!(names.place(at(1), &record(WORKING_DIRECTORY, OTHER, "/data x/file"), &places()).key().is_some());
}

#[test]
fn a_process_that_is_gone_can_still_be_placed_by_an_absolute_name() {
    let proc = tempfile::tempdir().unwrap();
    let mut names = Names::new(proc.path().to_owned(), HOST, true);
    let mut place = |name| names.place(at(0), &record(WORKING_DIRECTORY, HOST, name), &places()).key();
    assert_eq!(place("/mnt/a/../a/x").map(|key| key.s_dev), Some(40));
    assert_eq!(place("a/x"), None);
    let started_inside = NameRecord { base_dev: 40, ..record(WORKING_DIRECTORY, HOST, "x") };
    let key = names.place(at(0), &started_inside, &places()).key().unwrap();
    assert_eq!((key.s_dev, key.root_ino), (40, 0));
}

#[test]
fn text_is_normalised() {
    assert_eq!(normalise(b"//a/./b/../../../c/"), b"/c");
    assert_eq!(normalise(b"/.."), b"/");
}

#[test]
fn tables_are_read_within_a_number_and_a_cost() {
    let mut reads = Reads::default();
    let allowed = |reads: &mut Reads, millis, namespace| {
        let is_allowed = reads.allow(at(millis), namespace);
        if is_allowed {
            reads.was_read(namespace);
        }
        is_allowed
    };
    let one = (0..2 * READS).filter(|_| allowed(&mut reads, 10_000, 1)).count();
    assert_eq!(one, READS_OF_ONE as usize);
    let all = (0..2 * READS).filter(|namespace| allowed(&mut reads, 10_000, 2 + namespace)).count();
    assert_eq!(one + all, READS as usize);
    assert!(!allowed(&mut reads, 11_000, 500));
    assert!(allowed(&mut reads, 12_000, 1));
    reads.cost += READS_COST;
    assert!(!allowed(&mut reads, 12_000, 1));
    assert!(allowed(&mut reads, 14_000, 1));
}
