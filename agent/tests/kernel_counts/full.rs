//! More kinds of failures than the map of counters has room for.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use agent_common::settings::MAX_COUNTERS;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::mount::{MsFlags, mount, umount};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{AccessFlags, faccessat, mkfifo};

use crate::harness::{Agent, Stage, Verdict, agent_or_skip, device, make_read_only};

/// Roots of the volume: each has counters of its own.
const ROOTS: u64 = 2200;
/// Ways to fail on each of them, each with a counter of its own.
const WAYS: u64 = 4;
/// Room for counters.
const ROOM: u64 = MAX_COUNTERS as u64;

fn volume_of_many_roots(stage: &Stage) -> (PathBuf, Vec<PathBuf>) {
    let volume = stage.volume("volume", "size=64m,nr_inodes=20k");
    let roots: Vec<PathBuf> = (0..ROOTS).map(|number| volume.join(format!("d{number}"))).collect();
    for root in &roots {
        std::fs::create_dir(root).unwrap();
        mkfifo(&root.join("pipe"), Mode::S_IRWXU).unwrap();
    }
    make_read_only(&volume);
    (volume, roots)
}

/// Whoever may mount can show a thousand directories by binds of his own. They are no volumes: all of them together
/// have one counter for each way to fail, and nobody else's finds no room.
pub(crate) fn binds_of_nobody(family: &str) -> Verdict {
    let stage = Stage::enter();
    let (volume, roots) = volume_of_many_roots(&stage);
    let place = stage.root.join("place");
    std::fs::create_dir(&place).unwrap();
    let mut agent = agent_or_skip!(&[], family);
    agent.track(&volume);
    for root in &roots {
        fail_below(root, &place);
    }
    let (counted, _) = settle(&mut agent, &volume, ROOTS * WAYS, 0);
    assert_eq!(counted, ROOTS * WAYS);
    let told = agent.tell("source");
    assert!(!told.contains("the map of counters is full"), "{told}");
    agent.finish();
    Verdict::Passed
}

/// While the agent does not read, the map fills up: what has a counter is counted, what has none is told as lost, and
/// nothing is both. Then the agent makes room, so that whoever comes next is counted again.
pub(crate) fn counters(family: &str) -> Verdict {
    let stage = Stage::enter();
    let (volume, roots) = volume_of_many_roots(&stage);
    let other = stage.volume("other", "size=64k");
    make_read_only(&other);
    let place = stage.root.join("place");
    std::fs::create_dir(&place).unwrap();
    let mut agent = agent_or_skip!(&[], family);
    agent.track_roots(&roots, &place);

    agent.stop();
    for root in &roots {
        fail_below(root, &place);
    }
    agent.go_on();
    // Records find no room in such a storm either, and are among the lost; counters are not.
    let without_counter = ROOTS * WAYS - ROOM;
    let (counted, lost) = settle(&mut agent, &volume, ROOM, without_counter);
    assert!(counted == ROOM && lost >= without_counter, "{counted} counted, {lost} lost");
    // It is said a moment after the loss is counted.
    let told = agent.tell("await_source the map of counters is full");
    assert!(told.contains("the map of counters is full"), "{told}");

    // What had a counter and what had none are both counted now. What the storm has lost is told before the second
    // time.
    let ends = [roots.first().unwrap(), roots.last().unwrap()];
    for (turn, root) in (1..).zip(ends.into_iter().cycle().take(4)) {
        fail_below(root, &place);
        assert_eq!(settle(&mut agent, &volume, ROOM + turn * WAYS, 0).0, ROOM + turn * WAYS);
    }
    let (counted, lost) = settle(&mut agent, &volume, 0, 0);

    // Another volume finds room while the first one is watched.
    agent.tell_to_track(&other);
    for _ in 0..3 {
        assert_eq!(fail_to_make(&other), Err(Errno::EROFS));
    }
    assert_eq!(settle(&mut agent, &other, counted + 3, 0), (3, lost));
    agent.finish();
    Verdict::Passed
}

fn fail_to_make(place: &Path) -> nix::Result<()> {
    let directory = open(place, OFlag::O_DIRECTORY | OFlag::O_RDONLY, Mode::empty()).unwrap();
    mkdirat(&directory, "new", Mode::S_IRWXU)
}

/// Fails in each way on a mount of its own with this root.
fn fail_below(root: &Path, place: &Path) {
    mount(Some(root), place, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    let directory = open(place, OFlag::O_DIRECTORY | OFlag::O_RDONLY, Mode::empty()).unwrap();
    let at = directory.as_fd();
    let create = OFlag::O_CREAT | OFlag::O_WRONLY;
    assert_eq!(openat(at, "new", create, Mode::S_IRWXU).err(), Some(Errno::EROFS));
    let nobody_reads = OFlag::O_WRONLY | OFlag::O_NONBLOCK;
    assert_eq!(openat(at, "pipe", nobody_reads, Mode::empty()).err(), Some(Errno::ENXIO));
    assert_eq!(mkdirat(at, "new", Mode::S_IRWXU), Err(Errno::EROFS));
    assert_eq!(faccessat(at, ".", AccessFlags::W_OK, AtFlags::empty()), Err(Errno::EROFS));
    drop(directory);
    umount(place).unwrap();
}

/// Waits for as many counted calls in all, and as many lost ones; what is counted on a volume, and what is lost.
fn settle(agent: &mut Agent, volume: &Path, counted: u64, lost: u64) -> (u64, u64) {
    agent.totals("counted", counted);
    let totals = agent.totals("dropped", lost);
    let (major, minor) = device(volume);
    let begin = format!("{major}:{minor}:");
    let of_volume = totals.iter().filter(|(name, _)| name.starts_with(&begin)).map(|(_, count)| count).sum();
    (of_volume, totals.get("dropped").copied().unwrap_or(0))
}
