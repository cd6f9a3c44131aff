//! What is counted, and what is not.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::linux::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::fcntl::{OFlag, open, openat};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, SFlag};

use crate::harness::{Stage, Verdict, agent_or_skip, device, make_read_only};
use crate::{completions, reports};

/// A case: gets the family of hooks to use.
pub(crate) type Case = fn(&str) -> Verdict;

/// Every case and its name.
pub(crate) const ALL: &[(&str, Case)] = &[
    ("failed_writes_are_counted_exactly", failed_writes),
    ("names_are_counted_exactly", names),
    ("each_kind_of_change_is_counted_once", crate::changes::changes),
    ("neighbours_and_nested_mounts_are_not_counted", neighbours),
    ("what_a_link_leads_away_is_a_hint_at_most", through_a_link),
    ("what_a_device_answers_is_not_counted_for_the_volume_that_has_its_node", device_node),
    ("a_directory_bound_from_inside_a_volume_counts_for_that_volume", bound_from_inside),
    ("the_agents_own_calls_are_not_counted", own_calls),
    ("the_agent_knows_itself_in_a_nested_process_namespace", nested_process_namespace),
    ("names_of_other_mount_namespaces_are_placed", other_mount_namespace),
    ("write_back_errors_and_failed_fsync_are_counted", write_back),
    ("a_full_map_of_counters_is_told_and_costs_only_what_has_no_counter", crate::full::counters),
    ("binds_that_are_no_volumes_never_fill_the_map_of_counters", crate::full::binds_of_nobody),
    ("what_two_tasks_on_one_processor_hide_from_one_another_is_told", crate::skipped::one_processor),
    ("failed_completions_of_io_uring_are_counted_once", completions::io_uring),
    ("failed_completions_of_aio_are_counted_once", completions::aio),
    ("page_faults_count_within_the_file_and_not_beyond", completions::page_faults),
    ("requests_to_user_space_count_unless_they_are_the_agents", reports::user_space_requests),
    ("a_shutdown_of_ext4_is_told_once", reports::ext4_shutdown),
    ("a_shutdown_of_xfs_is_told_once", reports::xfs_shutdown),
    ("an_error_of_ext4_is_told_once", reports::ext4_error),
];

pub(crate) fn key(place: &Path, errno: &str, op: &str) -> String {
    let (major, minor) = device(place);
    format!("{major}:{minor}:{errno}:{op}")
}

fn failed_writes(family: &str) -> Verdict {
    let stage = Stage::enter();
    let volume = stage.volume("volume", "size=64k");
    let mut agent = agent_or_skip!(&[], family);
    agent.track(&volume);
    let mut file = File::create(volume.join("fill")).unwrap();
    let page = [0; 4096];
    while file.write(&page).is_ok() {}
    // The write that ended the loop is the first.
    for _ in 1..1000 {
        assert!(file.write(&page).is_err());
    }
    let key = key(&volume, "ENOSPC", "write");
    let totals = agent.totals(&key, 1000);
    assert_eq!(totals.get(&key), Some(&1000), "{totals:?}");
    let records = totals.get("records").copied().unwrap_or(0);
    assert!((1..100).contains(&records), "{records} records for 1000 errors");
    agent.finish();
    Verdict::Passed
}

fn must_fail(name: &Path) {
    assert!(OpenOptions::new().write(true).create(true).truncate(true).open(name).is_err());
}

fn names(family: &str) -> Verdict {
    let stage = Stage::enter();
    let volume = stage.volume("volume", "size=64k");
    make_read_only(&volume);
    let mut agent = agent_or_skip!(&[], family);
    agent.track(&volume);
    let opens = key(&volume, "EROFS", "open");
    let mut expected = 0;
    for name in ["/mnt/volume/file", "/mnt/volume/./file", "//mnt//volume/../volume/file"] {
        must_fail(Path::new(name));
        expected += 1;
    }
    std::env::set_current_dir(&volume).unwrap();
    must_fail(Path::new("file"));
    must_fail(Path::new("../volume/file"));
    expected += 2;
    // Where a relative name starts is looked up afterwards, so this process must stay where it is until then.
    agent.totals(&opens, expected);
    std::env::set_current_dir("/mnt").unwrap();
    must_fail(Path::new("volume/file"));
    expected += 1;
    let directory = open(&volume, OFlag::O_DIRECTORY | OFlag::O_RDONLY, Mode::empty()).unwrap();
    let above = open("/mnt", OFlag::O_DIRECTORY | OFlag::O_RDONLY, Mode::empty()).unwrap();
    let create = OFlag::O_CREAT | OFlag::O_WRONLY;
    assert!(openat(&directory, "file", create, Mode::S_IRWXU).is_err());
    assert!(openat(&above, "volume/file", create, Mode::S_IRWXU).is_err());
    expected += 2;
    let totals = agent.totals(&opens, expected);
    assert_eq!(totals.get(&opens), Some(&expected), "{totals:?}");
    // Only the functions inside the call know better than the text of the name.
    let by_name = if agent.family == "sys_exit" { expected } else { 0 };
    assert_eq!(totals.get("by_name").copied().unwrap_or(0), by_name, "{totals:?}");
    std::env::set_current_dir("/").unwrap();
    agent.finish();
    Verdict::Passed
}

fn neighbours(family: &str) -> Verdict {
    let stage = Stage::enter();
    let volume = stage.volume("volume", "size=64k");
    let neighbour = stage.volume("volume2", "size=64k");
    let nested = stage.volume("volume/nested", "size=64k");
    for place in [&volume, &neighbour, &nested] {
        make_read_only(place);
    }
    let mut agent = agent_or_skip!(&[], family);
    agent.track(&volume);
    agent.tell(&format!("shadow {}", nested.display()));
    for place in [&neighbour, &nested] {
        must_fail(&place.join("file"));
    }
    std::env::set_current_dir(&volume).unwrap();
    must_fail(Path::new("nested/file"));
    must_fail(Path::new("file"));
    must_fail(&volume.join("file"));
    let opens = key(&volume, "EROFS", "open");
    let totals = agent.totals(&opens, 2);
    std::env::set_current_dir("/").unwrap();
    let all: u64 = totals.iter().filter(|(key, _)| key.contains("EROFS")).map(|(_, count)| count).sum();
    assert_eq!((totals.get(&opens), all), (Some(&2), 2), "{totals:?}");
    agent.finish();
    Verdict::Passed
}

/// The call fails where the link leads. Only the functions inside it see that; its text says something else.
fn through_a_link(family: &str) -> Verdict {
    let stage = Stage::enter();
    let (sound, sick) = (stage.volume("sound", "size=64k"), stage.volume("sick", "size=64k"));
    File::create(sick.join("file")).unwrap();
    std::os::unix::fs::symlink(sick.join("file"), sound.join("link")).unwrap();
    make_read_only(&sick);
    let mut agent = agent_or_skip!(&[], family);
    agent.track(&sound);
    agent.track(&sick);
    for _ in 0..5 {
        assert!(OpenOptions::new().write(true).open(sound.join("link")).is_err());
    }
    let is_text = agent.family == "sys_exit";
    let owner = if is_text { &sound } else { &sick };
    let totals = agent.totals(&key(owner, "EROFS", "open"), 5);
    assert_eq!(
        (totals.get(&key(owner, "EROFS", "open")), totals.get("counted")),
        (Some(&5), Some(&5)),
        "{totals:?}"
    );
    assert_eq!(totals.get("by_name").copied(), is_text.then_some(5), "{totals:?}");
    agent.finish();
    Verdict::Passed
}

fn device_node(family: &str) -> Verdict {
    let stage = Stage::enter();
    let volume = stage.volume("volume", "size=64k");
    let node = volume.join("full");
    let number = nix::sys::stat::makedev(1, 7);
    if nix::sys::stat::mknod(&node, SFlag::S_IFCHR, Mode::S_IRWXU, number).is_err() {
        return Verdict::Skipped("no device nodes here".to_owned());
    }
    let mut agent = agent_or_skip!(&[], family);
    agent.track(&volume);
    let mut device = OpenOptions::new().write(true).open(&node).unwrap();
    for _ in 0..5 {
        assert_eq!(device.write(&[0; 16]).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    }
    // What comes later is counted, so what came before would be.
    make_read_only(&volume);
    let file = File::open(&volume).unwrap();
    assert!(std::os::unix::fs::fchown(&file, Some(1), None).is_err());
    let fence = key(&volume, "EROFS", "change");
    let totals = agent.totals(&fence, 1);
    assert_eq!((totals.get(&fence), totals.get("counted")), (Some(&1), Some(&1)), "{totals:?}");
    agent.finish();
    Verdict::Passed
}

/// Two directories of one superblock are volumes. What is bound from deeper inside one of them, or from beside them,
/// is known by the directories above it.
fn bound_from_inside(family: &str) -> Verdict {
    let stage = Stage::enter();
    let volume = stage.volume("volume", "size=64k");
    let roots = [volume.join("a"), volume.join("b")];
    let deep = [roots[0].join("1/2/3"), roots[1].join("1"), volume.join("c")];
    for directory in &deep {
        std::fs::create_dir_all(directory).unwrap();
    }
    std::fs::create_dir_all(&roots[0]).unwrap();
    make_read_only(&volume);
    let place = stage.root.join("place");
    std::fs::create_dir(&place).unwrap();
    let mut agent = agent_or_skip!(&[], family);
    agent.track_roots(&roots, &place);
    let inode = |path: &Path| std::fs::metadata(path).unwrap().st_ino();
    let owners = [inode(&roots[0]), inode(&roots[1]), agent_common::key::OTHER_ROOT];
    for (turn, (directory, owner)) in (1..).zip(deep.iter().zip(owners)) {
        mount(Some(directory), &place, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        let file = File::open(&place).unwrap();
        for _ in 0..turn {
            assert!(std::os::unix::fs::fchown(&file, Some(1), None).is_err());
        }
        drop(file);
        nix::mount::umount(&place).unwrap();
        let row = format!("root:{owner}");
        let totals = agent.totals(&row, turn);
        assert_eq!(totals.get(&row), Some(&turn), "{}: {totals:?}", directory.display());
    }
    agent.finish();
    Verdict::Passed
}

fn own_calls_with(prefix: &[&str], family: &str) -> Verdict {
    let stage = Stage::enter();
    let volume = stage.volume("volume", "size=64k");
    make_read_only(&volume);
    let mut agent = agent_or_skip!(prefix, family);
    agent.track(&volume);
    assert_eq!(agent.tell(&format!("own {}", volume.display())), "done");
    must_fail(&volume.join("file"));
    let fence = key(&volume, "EROFS", "open");
    let totals = agent.totals(&fence, 1);
    let all: u64 = totals.iter().filter(|(key, _)| key.contains("EROFS")).map(|(_, count)| count).sum();
    assert_eq!((totals.get(&fence), all), (Some(&1), 1), "{totals:?}");
    agent.finish();
    Verdict::Passed
}

fn own_calls(family: &str) -> Verdict {
    own_calls_with(&[], family)
}

fn nested_process_namespace(family: &str) -> Verdict {
    own_calls_with(&["unshare", "--pid", "--fork"], family)
}

fn other_mount_namespace(family: &str) -> Verdict {
    let stage = Stage::enter();
    let volume = stage.volume("volume", "size=64k");
    make_read_only(&volume);
    std::fs::create_dir(stage.root.join("elsewhere")).unwrap();
    let mut agent = agent_or_skip!(&[], family);
    agent.track(&volume);
    // The shell itself fails to open, and lives until its input ends.
    let script =
        "mount --bind /mnt/volume /mnt/elsewhere; for i in 1 2 3; do : > /mnt/elsewhere/file; done; read x";
    let mut other = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "bash", "-c", script])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let opens = key(&volume, "EROFS", "open");
    let totals = agent.totals(&opens, 3);
    drop(other.stdin.take());
    other.wait().unwrap();
    assert_eq!(totals.get(&opens), Some(&3), "{totals:?}");
    agent.finish();
    Verdict::Passed
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A loop device over a sparse file on a tmpfs that is too small: writes succeed, writing back does not.
fn write_back(family: &str) -> Verdict {
    let stage = Stage::enter();
    let small = stage.volume("small", "size=2m");
    let image = small.join("image");
    File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let image = image.to_str().unwrap();
    if run("mkfs.ext4", &["-q", "-O", "^has_journal", "-E", "lazy_itable_init=1", image]).is_none() {
        return Verdict::Skipped("no mkfs.ext4".to_owned());
    }
    let Some(device) = run("losetup", &["--find", "--show", image]) else {
        return Verdict::Skipped("no loop devices".to_owned());
    };
    let place = stage.root.join("lost");
    std::fs::create_dir(&place).unwrap();
    let mounted = run("mount", &["-t", "ext4", "-o", "errors=continue", &device, place.to_str().unwrap()]);
    // Detached now, it goes when the file system does.
    run("losetup", &["--detach", &device]).unwrap();
    if mounted.is_none() {
        return Verdict::Skipped("ext4 cannot be mounted here".to_owned());
    }
    let mut agent = agent_or_skip!(&[], family);
    agent.track(&place);
    let mut file = File::create(place.join("file")).unwrap();
    file.write_all(&vec![7; 6 << 20]).unwrap();
    assert!(file.sync_all().is_err(), "fsync succeeded on {}", file.as_raw_fd());
    // Which errno reaches the file system depends on the kernel's loop driver: EIO or ENOSPC.
    let count = |totals: &std::collections::BTreeMap<String, u64>, op: &str| -> u64 {
        ["EIO", "ENOSPC"].iter().filter_map(|errno| totals.get(&key(&place, errno, op))).sum()
    };
    let mut totals = agent.totals(&key(&place, "ENOSPC", "sync"), 1);
    if count(&totals, "sync") == 0 {
        totals = agent.totals(&key(&place, "EIO", "sync"), 1);
    }
    assert_eq!(count(&totals, "sync"), 1, "{totals:?}");
    // Counts of one reading arrive one after the other.
    if count(&totals, "writeback") == 0 {
        let sync = key(&place, "ENOSPC", "sync");
        let errno = if totals.get(&sync).is_some_and(|count| *count > 0) { "ENOSPC" } else { "EIO" };
        totals = agent.totals(&key(&place, errno, "writeback"), 1);
    }
    assert!(count(&totals, "writeback") > 0, "{totals:?}");
    // The requests to the loop device are what failed first.
    if count(&totals, "device") == 0 {
        let errno = if totals.keys().any(|key| key.contains("ENOSPC")) { "ENOSPC" } else { "EIO" };
        totals = agent.totals(&key(&place, errno, "device"), 1);
    }
    let states = ["block_rq_error", "block_rq_complete"].map(|name| agent.tell(&format!("state {name}")));
    let sees_devices = states.iter().any(|state| state == "Attached");
    assert!(sees_devices && count(&totals, "device") > 0, "{totals:?} {states:?}");
    agent.finish();
    drop(file);
    nix::mount::umount(&place).unwrap();
    Verdict::Passed
}
