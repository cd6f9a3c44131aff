//! Counters in a copy of sysfs that the tests write, and those of a real ext4.

use std::os::unix::fs::symlink;

use agent_core::id::MountId;
use agent_core::path::BytePath;
use agent_core::topology::{Options, Propagation};
use tempfile::TempDir;
use tokio::sync::mpsc::{Receiver, channel};

use super::*;
use crate::sensor::private_namespace::{Ext4, PrivateNamespace};

const EIO: Errno = Errno(5);
const EUCLEAN: Errno = Errno(117);

fn mount(fstype: &str, source: &str, minor: u32) -> Arc<Mount> {
    Arc::new(Mount {
        id: MountId(30),
        unique: Some(1),
        parent: MountId(1),
        superblock: SuperblockId { major: 7, minor },
        root: BytePath::from("/"),
        mountpoint: BytePath::from("/m"),
        options: Options::default(),
        propagation: Propagation::default(),
        fstype: fstype.into(),
        source: source.into(),
        super_options: Options::default(),
    })
}

fn write(root: &Path, file: &str, text: &str) {
    let file = root.join(file);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

/// A reader that is called by hand, and what it says.
fn reader(sysfs: &Path, mounts: &[Arc<Mount>]) -> (Reader, Receiver<SensorEvent>) {
    let (sender, events) = channel(64);
    let wake = Arc::new(Wake::new().unwrap());
    let watched = mounts.iter().map(|mount| (mount.superblock, Arc::clone(mount))).collect();
    let reader = Reader {
        sysfs: sysfs.to_owned(),
        proc: sysfs.join("proc"),
        watched: Arc::new(Mutex::new(watched)),
        known: BTreeMap::new(),
        outbox: Outbox::new(sender, Arc::clone(&wake)),
        wake,
        not_before: Monotonic::default(),
        reported: SourceState::Running,
        lacking: BTreeSet::new(),
    };
    (reader, events)
}

/// The next event that is not about which file system it is, or how many errors there are in all.
fn next(events: &mut Receiver<SensorEvent>) -> Option<SensorEvent> {
    let is_news =
        |event: &SensorEvent| !matches!(event, SensorEvent::OwnErrors(_) | SensorEvent::Instance(..));
    std::iter::from_fn(|| events.try_recv().ok()).find(is_news)
}

fn told(events: &mut Receiver<SensorEvent>) -> Vec<(u32, Errno, u64)> {
    let mut told = Vec::new();
    while let Some(event) = next(events) {
        let SensorEvent::Kernel(errors) = event else { panic!("{event:?}") };
        assert_eq!((errors.source, errors.op), (Source::Sysfs, Op::Filesystem));
        told.push((errors.superblock.minor, errors.errno, errors.count));
    }
    told
}

fn fake_ext4() -> TempDir {
    let sysfs = TempDir::new().unwrap();
    write(sysfs.path(), "fs/ext4/cciss!c0d0p1/errors_count", "41\n");
    std::fs::create_dir_all(sysfs.path().join("dev/block")).unwrap();
    symlink("../../devices/x/cciss!c0d0p1", sysfs.path().join("dev/block/7:1")).unwrap();
    sysfs
}

fn fake_xfs() -> TempDir {
    let sysfs = TempDir::new().unwrap();
    write(sysfs.path(), "fs/xfs/vdb/log/x", "");
    std::fs::create_dir_all(sysfs.path().join("dev/block")).unwrap();
    symlink("../../devices/x/vdb", sysfs.path().join("dev/block/7:1")).unwrap();
    sysfs
}

/// The same file system has another folder.
fn mounted_anew(sysfs: &TempDir) {
    write(sysfs.path(), "fs/xfs/new/log/x", "");
    std::fs::rename(sysfs.path().join("fs/xfs/vdb"), sysfs.path().join("fs/xfs/old")).unwrap();
    std::fs::rename(sysfs.path().join("fs/xfs/new"), sysfs.path().join("fs/xfs/vdb")).unwrap();
}

#[test]
fn errors_from_before_are_the_base_line_and_growth_is_told_once() {
    let sysfs = fake_ext4();
    let (mut reader, mut events) = reader(sysfs.path(), &[mount("ext4", "/dev/cciss/c0d0p1", 1)]);
    assert!(reader.look(true) && reader.look(true));
    assert_eq!(told(&mut events), []);
    write(sysfs.path(), "fs/ext4/cciss!c0d0p1/errors_count", "44\n");
    assert!(reader.look(true) && reader.look(true));
    assert_eq!(told(&mut events), [(1, EUCLEAN, 3)]);
    // ext4's own number for an error of the disk.
    write(sysfs.path(), "fs/ext4/cciss!c0d0p1/last_error_errcode", "2\n");
    write(sysfs.path(), "fs/ext4/cciss!c0d0p1/errors_count", "45\n");
    assert!(reader.look(true));
    assert_eq!(told(&mut events), [(1, EIO, 1)]);
}

#[test]
fn ext4_tells_how_many_errors_it_has_found_and_whether_it_writes_nothing_after_one() {
    let options = "proc/fs/ext4/cciss!c0d0p1/options";
    for (text, ends_writes) in [
        ("rw\ndelalloc\nerrors=remount-ro\nresuid=0\n", true),
        ("rw\nerrors=continue\n", false),
        ("rw\nprjquota_errors=remount-ro\n", false),
    ] {
        let sysfs = fake_ext4();
        write(sysfs.path(), options, text);
        let (mut reader, mut events) = reader(sysfs.path(), &[mount("ext4", "/dev/cciss/c0d0p1", 1)]);
        assert!(reader.look(true) && reader.look(true));
        write(sysfs.path(), "fs/ext4/cciss!c0d0p1/errors_count", "44\n");
        assert!(reader.look(true) && reader.look(true));
        let own = std::iter::from_fn(|| events.try_recv().ok()).filter_map(|event| match event {
            SensorEvent::OwnErrors(own) => Some((own.count, own.told, own.ends_writes)),
            _ => None,
        });
        assert_eq!(own.collect::<Vec<_>>(), [(41, 0, ends_writes), (44, 3, ends_writes)], "{text}");
    }
}

#[test]
fn a_counter_that_was_reset_or_is_gone_is_no_error() {
    let sysfs = fake_ext4();
    let (mut reader, mut events) = reader(sysfs.path(), &[mount("ext3", "/dev/x", 1)]);
    assert!(reader.look(true));
    write(sysfs.path(), "fs/ext4/cciss!c0d0p1/errors_count", "0\n");
    assert!(reader.look(true));
    std::fs::remove_file(sysfs.path().join("fs/ext4/cciss!c0d0p1/errors_count")).unwrap();
    assert!(reader.look(true));
    write(sysfs.path(), "fs/ext4/cciss!c0d0p1/errors_count", "2\n");
    assert!(reader.look(true));
    assert_eq!(told(&mut events), [(1, EUCLEAN, 2)]);
}

/// Shows the superblock through a mount of another id from now on.
fn shown_by_another(reader: &Reader, mount: &Mount) {
    let next = Mount { unique: Some(2), ..mount.clone() };
    lock(&reader.watched).insert(next.superblock, Arc::new(next));
}

#[test]
fn a_new_file_system_on_an_old_number_has_its_own_base_line() {
    let sysfs = fake_ext4();
    let mount = mount("ext4", "/dev/x", 1);
    let (mut reader, mut events) = reader(sysfs.path(), &[Arc::clone(&mount)]);
    assert!(reader.look(true));
    // Both folders stay, so they have numbers of their own.
    write(sysfs.path(), "fs/ext4/new/errors_count", "1000\n");
    let folder = sysfs.path().join("fs/ext4/cciss!c0d0p1");
    std::fs::rename(&folder, sysfs.path().join("fs/ext4/old")).unwrap();
    std::fs::rename(sysfs.path().join("fs/ext4/new"), folder).unwrap();
    shown_by_another(&reader, &mount);
    assert!(reader.look(false) && reader.look(true));
    assert_eq!(told(&mut events), []);
}

#[test]
fn a_bind_that_comes_or_goes_takes_no_new_base_line() {
    let sysfs = fake_ext4();
    let mount = mount("ext4", "/dev/x", 1);
    let (mut reader, mut events) = reader(sysfs.path(), &[Arc::clone(&mount)]);
    assert!(reader.look(true));
    write(sysfs.path(), "fs/ext4/cciss!c0d0p1/errors_count", "44\n");
    shown_by_another(&reader, &mount);
    assert!(reader.look(false) && reader.look(true));
    assert_eq!(told(&mut events), [(1, EUCLEAN, 3)]);
}

#[test]
fn a_device_that_is_removed_or_added_hides_and_makes_up_no_errors() {
    let sysfs = TempDir::new().unwrap();
    let stats = |device: u32, count: u32| {
        let file = format!("fs/btrfs/1111/devinfo/{device}/error_stats");
        write(sysfs.path(), &file, &format!("write_errs {count}\n"));
    };
    write(sysfs.path(), "fs/btrfs/1111/devices/vdb/size", "1\n");
    stats(1, 3);
    stats(2, 100);
    let (mut reader, mut events) = reader(sysfs.path(), &[mount("btrfs", "/dev/vdb", 1)]);
    assert!(reader.look(true));
    let removed = sysfs.path().join("fs/btrfs/1111/devinfo/2");
    std::fs::remove_file(removed.join("error_stats")).unwrap();
    std::fs::remove_dir(removed).unwrap();
    stats(1, 5);
    stats(3, 70);
    assert!(reader.look(true));
    assert_eq!(told(&mut events), [(1, EIO, 2)]);
}

#[test]
fn file_systems_without_the_counters_of_their_kind_are_told_until_they_have_some() {
    let sysfs = fake_ext4();
    let (mut reader, mut events) =
        reader(sysfs.path(), &[mount("ext4", "/dev/x", 1), mount("btrfs", "/dev/vg/lv", 2)]);
    let mut said = || {
        std::iter::from_fn(|| events.try_recv().ok()).find_map(|event| match event {
            SensorEvent::Source(SourceName::Sysfs, state) => Some(state),
            _ => None,
        })
    };
    assert!(reader.look(true) && reader.look(false));
    assert_eq!(said(), None, "it may come or go just now");
    assert!(reader.look(true) && reader.look(true));
    let Some(SourceState::Degraded(reason)) = said() else { panic!("not told") };
    assert_eq!(reason, "1 file systems show no counters of their errors, as btrfs at `/m`");
    assert_eq!(said(), None, "told once");
    write(sysfs.path(), "fs/btrfs/1111/devices/vg!lv/size", "1\n");
    write(sysfs.path(), "fs/btrfs/1111/devinfo/1/error_stats", "write_errs 1\n");
    assert!(reader.look(true));
    assert_eq!(said(), Some(SourceState::Running));
}

#[test]
fn a_btrfs_whose_kernel_shows_no_counters_is_nothing_that_is_missing() {
    let sysfs = TempDir::new().unwrap();
    write(sysfs.path(), "fs/btrfs/1111/devices/vdb/size", "1\n");
    write(sysfs.path(), "fs/btrfs/1111/devinfo/1/in_fs_metadata", "1\n");
    let (mut reader, mut events) = reader(sysfs.path(), &[mount("btrfs", "/dev/vdb", 1)]);
    assert!((0..3).all(|_| reader.look(true)));
    assert!(next(&mut events).is_none());
    // Statistics that are not read yet.
    write(sysfs.path(), "fs/btrfs/2222/devices/vdc/size", "1\n");
    write(sysfs.path(), "fs/btrfs/2222/devinfo/1/error_stats", "invalid\n");
    lock(&reader.watched).insert(SuperblockId { major: 7, minor: 2 }, mount("btrfs", "/dev/vdc", 2));
    assert!((0..2).all(|_| reader.look(true)));
    assert!(matches!(
        next(&mut events),
        Some(SensorEvent::Source(SourceName::Sysfs, SourceState::Degraded(_)))
    ));
}

#[test]
fn a_file_system_that_was_mounted_anew_unseen_by_the_table_is_told_once_and_its_counter_is_a_base_line() {
    let sysfs = fake_ext4();
    let without_id = Mount { unique: None, ..(*mount("ext4", "/dev/x", 1)).clone() };
    let (mut reader, mut events) = reader(sysfs.path(), &[Arc::new(without_id)]);
    assert!(reader.look(true));
    // Both folders stay, so they have numbers of their own.
    write(sysfs.path(), "fs/ext4/new/errors_count", "50\n");
    let folder = sysfs.path().join("fs/ext4/cciss!c0d0p1");
    let last_seen = clock::now();
    std::fs::rename(&folder, sysfs.path().join("fs/ext4/old")).unwrap();
    std::fs::rename(sysfs.path().join("fs/ext4/new"), folder).unwrap();
    assert!(reader.look(true) && reader.look(true));
    let event = next(&mut events).unwrap();
    let SensorEvent::Renewed(superblock, seen) = event else { panic!("{event:?}") };
    assert!(superblock.minor == 1 && seen <= last_seen);
    assert_eq!(told(&mut events), []);
}

#[test]
fn the_real_folder_of_an_ext4_that_is_mounted_anew_has_another_number() {
    let Some(namespace) = PrivateNamespace::enter() else { return };
    let mut ext4 = Ext4::mount(&namespace, "renewed");
    let number = |place: &Path| {
        let mount = namespace.mount_at(place);
        instance(&row_of(&mount.fstype).unwrap().find(Path::new("/sys"), &mount).unwrap())
    };
    let before = number(&ext4.place);
    assert!(before.is_some() && number(&ext4.place) == before);
    ext4.unmount();
    ext4.mount_again(&namespace);
    assert_ne!(number(&ext4.place), before);
    ext4.unmount();
}

#[test]
fn xfs_has_no_counters_and_its_folder_still_tells_that_it_was_mounted_anew() {
    let sysfs = fake_xfs();
    let (mut reader, mut events) = reader(sysfs.path(), &[mount("xfs", "/dev/vdb", 1)]);
    assert!(reader.look(true) && reader.look(true));
    assert_eq!(told(&mut events), []);
    mounted_anew(&sysfs);
    assert!(reader.look(true));
    assert!(matches!(next(&mut events), Some(SensorEvent::Renewed(superblock, _)) if superblock.minor == 1));
}

#[test]
fn which_file_system_has_a_number_is_told_at_first_and_when_it_changes() {
    let sysfs = fake_xfs();
    let (mut reader, mut events) = reader(sysfs.path(), &[mount("xfs", "/dev/vdb", 1)]);
    assert!(reader.look(true) && reader.look(true));
    mounted_anew(&sysfs);
    assert!(reader.look(true) && reader.look(true));
    let told = std::iter::from_fn(|| events.try_recv().ok()).filter_map(|event| match event {
        SensorEvent::Instance(superblock, instance) => Some((superblock.minor, instance)),
        _ => None,
    });
    let of = |name: &str| instance(&sysfs.path().join("fs/xfs").join(name)).unwrap();
    assert_eq!(told.collect::<Vec<_>>(), [(1, of("old")), (1, of("vdb"))]);
}

#[test]
fn whose_folder_it_is_is_said_again_to_another_mount() {
    let sysfs = fake_xfs();
    let mount = mount("xfs", "/dev/vdb", 1);
    let (mut reader, mut events) = reader(sysfs.path(), &[Arc::clone(&mount)]);
    assert!(reader.look(true) && reader.look(true));
    shown_by_another(&reader, &mount);
    assert!(reader.look(false) && reader.look(true));
    let said = std::iter::from_fn(|| events.try_recv().ok());
    let said = said.filter(|event| matches!(event, SensorEvent::Instance(..))).count();
    assert_eq!(said, 2);
}

#[test]
fn a_new_one_gets_its_base_line_at_once_and_the_others_are_not_read_for_it() {
    let sysfs = fake_ext4();
    let old = mount("ext4", "/dev/x", 1);
    let (mut reader, mut events) = reader(sysfs.path(), &[old]);
    assert!(reader.look(true));
    write(sysfs.path(), "fs/ext4/cciss!c0d0p1/errors_count", "44\n");
    write(sysfs.path(), "fs/ext4/vdb/errors_count", "7\n");
    symlink("../../devices/x/vdb", sysfs.path().join("dev/block/7:2")).unwrap();
    let new = mount("ext4", "/dev/vdb", 2);
    lock(&reader.watched).insert(new.superblock, new);
    assert!(reader.look(false));
    assert_eq!(told(&mut events), [], "not due");
    write(sysfs.path(), "fs/ext4/vdb/errors_count", "9\n");
    assert!(reader.look(true));
    assert_eq!(told(&mut events), [(1, EUCLEAN, 3), (2, EUCLEAN, 2)]);
}

#[test]
fn only_another_file_system_is_a_reason_to_wake_the_reader() {
    let wake = Arc::new(Wake::new().unwrap());
    let outbox = Outbox::new(channel(1).0, Arc::clone(&wake));
    let thread = Running::start("idle", SourceName::Sysfs, &outbox, || ()).unwrap();
    let watcher = SysfsErrors { wake: Arc::clone(&wake), watched: Arc::default(), _thread: thread };
    let first = mount("ext4", "/dev/x", 1);
    watcher.watch([Arc::clone(&first)].into_iter());
    assert!(wake.take_request());
    let remounted =
        Mount { options: Options::parse(b"ro"), mountpoint: BytePath::from("/n"), ..(*first).clone() };
    watcher.watch([Arc::new(remounted)].into_iter());
    assert!(!wake.take_request());
    let replaced = Mount { unique: Some(2), ..(*first).clone() };
    watcher.watch([Arc::new(replaced)].into_iter());
    assert!(wake.take_request());
}

#[test]
fn btrfs_is_found_by_its_devices_and_counted_over_each_of_them() {
    let sysfs = TempDir::new().unwrap();
    let root = sysfs.path();
    for (uuid, device) in [("1111", "vdb"), ("2222", "vdc"), ("3333", "dm-4")] {
        write(root, &format!("fs/btrfs/{uuid}/devices/{device}/size"), "1\n");
        write(root, &format!("fs/btrfs/{uuid}/devinfo/1/error_stats"), "write_errs 1\ncorruption_errs 0\n");
        write(root, &format!("fs/btrfs/{uuid}/devinfo/2/error_stats"), "invalid\n");
    }
    write(root, "fs/btrfs/features/x", "");
    write(root, "fs/btrfs/3333/devices/dm-4/dm/name", "vg-data\n");
    let mounts = [mount("btrfs", "/dev/vdc", 2), mount("btrfs", "/dev/mapper/vg-data", 3)];
    let (mut reader, mut events) = reader(root, &mounts);
    assert!(reader.look(true));
    write(root, "fs/btrfs/1111/devinfo/1/error_stats", "write_errs 900\n");
    write(root, "fs/btrfs/2222/devinfo/1/error_stats", "write_errs 3\nread_errs 0\ncorruption_errs 4\n");
    // Those are from before: they are kept on disk, from where they are read only now.
    write(root, "fs/btrfs/3333/devinfo/2/error_stats", "flush_errs 0\nwrite_errs 5\n");
    assert!(reader.look(true));
    assert_eq!(told(&mut events), [(2, EUCLEAN, 4), (2, EIO, 2)]);
    write(root, "fs/btrfs/3333/devinfo/1/error_stats", "write_errs 3\n");
    write(root, "fs/btrfs/3333/devinfo/2/error_stats", "flush_errs 0\nwrite_errs 9\n");
    assert!(reader.look(true));
    assert_eq!(told(&mut events), [(3, EIO, 2), (3, EIO, 4)]);
}

#[test]
fn file_systems_without_counters_cost_nothing_and_no_sysfs_is_said() {
    let sysfs = fake_ext4();
    let (sender, _events) = channel(8);
    let (running, state) =
        SysfsErrors::start(&sysfs.path().join("absent"), Path::new("/proc"), sender.clone());
    assert!(running.is_none() && matches!(state, SourceState::Off(why) if why.contains("absent/fs")));
    let (running, state) = SysfsErrors::start(sysfs.path(), Path::new("/proc"), sender);
    assert_eq!(state, SourceState::Running);
    let running = running.unwrap();
    running.watch([mount("f2fs", "/dev/x", 1), mount("nfs4", "a:/b", 2)].into_iter());
    assert!(lock(&running.watched).is_empty());
}

#[test]
fn an_error_that_ext4_reports_is_counted_in_the_real_sysfs() {
    let Some(namespace) = PrivateNamespace::enter() else { return };
    let ext4 = Ext4::mount(&namespace, "counted");
    let mount = Arc::new(namespace.mount_at(&ext4.place));
    let (mut reader, mut events) = reader(Path::new("/sys"), &[Arc::clone(&mount)]);
    assert!(reader.look(true));
    ext4.report_error();
    // ext4 counts an error in a work item of its own, after the write that triggers it has returned.
    //
    // kernel: `s_sb_upd_work`, fs/ext4/super.c; `s_error_work` before 6.2.
    let started = clock::now();
    let counted = loop {
        assert!(reader.look(true));
        let counted = told(&mut events);
        if !counted.is_empty() || clock::now().since(started) > Duration::from_secs(20) {
            break counted;
        }
        std::thread::yield_now();
    };
    assert_eq!(counted, [(mount.superblock.minor, EUCLEAN, 1)]);
    let name = row_of("ext4").unwrap().find(Path::new("/sys"), &mount).unwrap();
    let options = Path::new("/proc/fs/ext4").join(name.file_name().unwrap()).join("options");
    let options = std::fs::read_to_string(options).unwrap();
    assert!(options.lines().any(|option| option.starts_with("errors=")), "{options}");
    ext4.unmount();
}
