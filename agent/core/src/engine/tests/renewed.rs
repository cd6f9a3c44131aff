//! A superblock that is another one by now, although the table shows what it showed before.

use alloc::vec;

use super::world::{Answer, World, device, good, millis, mount, seconds, spec};
use crate::engine::{Input, Output};
use crate::errno::Errno;
use crate::id::{MountId, VolumeId};
use crate::observation::{Op, OwnErrors, ProbeOk, ProbeReport, ProbeResult, ProbeStep};
use crate::time::Monotonic;
use crate::topology::Options;
use crate::verdict::{HealthState, Reason};
use crate::volume::{Mode, VolumeSpec};

const ESHUTDOWN: u16 = 108;
const EUCLEAN: u16 = 117;

/// A look that answers and reads no file: there is no sentinel.
fn reads_the_device() -> Answer {
    let ok = ProbeOk { root_inode: 2, read_device: true, ..ProbeOk::default() };
    Answer::Now(ProbeResult::Ok(ok))
}

fn disk() -> World {
    let mut world = World::healthy(vec![spec("disk", "ext4", "/dev/sdb", Mode::Observe)]);
    world.answer("disk", reads_the_device());
    world
}

fn shut_down(world: &mut World) -> Monotonic {
    world.hint(10, None, ESHUTDOWN, Op::Filesystem);
    world.run(seconds(60));
    assert_eq!(world.state("disk"), (HealthState::Degraded, Some(Reason::FsShutdown)));
    world.now
}

#[test]
fn a_shutdown_ends_with_its_superblock_when_the_table_cannot_tell_the_next_one_from_it() {
    let mut world = disk();
    let seen = shut_down(&mut world);
    world.run(seconds(3));
    world.log.clear();
    world.feed(Input::Renewed(device(10), seen));
    assert!(world.log.iter().any(|(_, output)| matches!(output, Output::Probe(_))), "looked at once");
    world.run(seconds(300));
    assert_eq!(world.state("disk"), (HealthState::Healthy, None));
}

#[test]
fn what_the_table_has_told_already_is_not_told_again() {
    let mut world = disk();
    let seen = shut_down(&mut world);
    world.run(millis(100));
    world.mounts[1].id = MountId(77);
    world.table();
    world.run(seconds(1));
    // The next superblock shuts down as well, before the sensor has noticed that it is another one.
    world.hint(10, None, ESHUTDOWN, Op::Filesystem);
    world.run(seconds(1));
    world.feed(Input::Renewed(device(10), seen));
    world.run(seconds(300));
    assert_eq!(world.state("disk"), (HealthState::Degraded, Some(Reason::FsShutdown)));
}

#[test]
fn an_answer_to_a_look_at_the_old_superblock_is_no_word_about_the_new_one() {
    let mut world = disk();
    world.answer("disk", Answer::Never);
    world.run(seconds(11));
    let order = world.log.iter().rev().find_map(|(_, output)| match output {
        Output::Probe(order) => Some(order.clone()),
        _ => None,
    });
    let order = order.unwrap();
    let seen = world.now;
    world.run(seconds(1));
    world.feed(Input::Renewed(device(10), seen));
    world.feed(Input::Probe(ProbeReport {
        id: order.id,
        volume: order.volume,
        generation: order.generation,
        started: seen,
        took: millis(900),
        result: ProbeResult::Failed { step: ProbeStep::Root, errno: Errno(5) },
    }));
    world.answer("disk", Answer::Now(good()));
    world.run(seconds(1));
    assert_eq!(world.state("disk").1, None);
}

#[test]
fn an_error_inside_ends_writing_where_it_is_mounted_so_until_it_is_mounted_anew() {
    for (options, ends) in [("rw,errors=remount-ro", true), ("rw", false), ("rw,errors=continue", false)] {
        let mut world = disk();
        world.mounts[1].super_options = Options::parse(options.as_bytes());
        world.table();
        world.answer("disk", Answer::Now(good()));
        world.hint(10, None, EUCLEAN, Op::Filesystem);
        world.run(seconds(120));
        let expected =
            if ends { (HealthState::Degraded, Some(Reason::Readonly)) } else { (HealthState::Healthy, None) };
        assert_eq!(world.state("disk"), expected, "{options}: it reads well, and the table says rw");
        let seen = world.now;
        world.run(seconds(1));
        world.feed(Input::Renewed(device(10), seen));
        world.run(seconds(300));
        assert_eq!(world.state("disk"), (HealthState::Healthy, None), "{options}");
    }
}

#[test]
fn the_end_of_writing_is_known_where_it_is_the_default_of_the_superblock_and_no_word_of_the_table() {
    for ends_writes in [true, false] {
        let mut world = disk();
        world.mounts[1].super_options = Options::parse(b"rw");
        world.table();
        world.answer("disk", Answer::Now(good()));
        let own = OwnErrors {
            superblock: device(10),
            instance: 7,
            count: 41,
            errno: Errno(EUCLEAN),
            told: 0,
            ends_writes,
            at: world.now,
        };
        world.feed(Input::OwnErrors(own));
        world.run(seconds(60));
        assert_eq!(world.state("disk"), (HealthState::Healthy, None), "errors from before");
        world.hint(10, None, EUCLEAN, Op::Filesystem);
        world.feed(Input::OwnErrors(OwnErrors { count: 42, told: 1, at: world.now, ..own }));
        world.run(seconds(60));
        let sick = (HealthState::Degraded, Some(Reason::Readonly));
        let expected = if ends_writes { sick } else { (HealthState::Healthy, None) };
        assert_eq!(world.state("disk"), expected);
    }
}

#[test]
fn a_remount_that_may_write_ends_the_end_of_writing() {
    let mut world = disk();
    let option = |world: &mut World, options: &str| {
        world.mounts[1].super_options = Options::parse(options.as_bytes());
        world.table();
        world.run(seconds(60));
    };
    option(&mut world, "rw,errors=remount-ro");
    world.hint(10, None, EUCLEAN, Op::Filesystem);
    option(&mut world, "ro,errors=remount-ro");
    assert_eq!(world.state("disk"), (HealthState::Degraded, Some(Reason::Readonly)));
    world.answer("disk", Answer::Now(good()));
    option(&mut world, "rw,errors=remount-ro");
    world.run(seconds(300));
    assert_eq!(world.state("disk"), (HealthState::Healthy, None));
}

#[test]
fn a_look_that_writes_speaks_against_the_end_of_writing() {
    let mut world = disk();
    world.mounts[1].super_options = Options::parse(b"rw,errors=remount-ro");
    world.table();
    world.hint(10, None, EUCLEAN, Op::Filesystem);
    world.run(seconds(1));
    assert_eq!(world.state("disk"), (HealthState::Degraded, Some(Reason::Readonly)));
    let wrote = ProbeOk { root_inode: 2, read_data: true, wrote_data: true, ..ProbeOk::default() };
    world.answer("disk", Answer::Now(ProbeResult::Ok(wrote)));
    world.run(seconds(300));
    assert_eq!(world.state("disk"), (HealthState::Healthy, None));
}

/// A shutdown, a restart of the agent, and then this file system with the same number and the same id.
fn restarted_beside(before: u64, after: Option<u64>) -> World {
    let mut world = World::healthy(vec![spec("disk", "xfs", "/dev/sdb", Mode::Act)]);
    world.policy.volumes[0].watch.mode = Mode::Observe;
    world.feed(Input::Policy(world.policy.clone()));
    world.answer("disk", reads_the_device());
    world.feed(Input::Instance(device(10), before));
    shut_down(&mut world);
    world.policy.volumes[0].watch.mode = Mode::Act;
    world.restart();
    world.table();
    world.run(millis(10));
    assert!(world.running().is_empty(), "it is not known yet whose shutdown that was");
    if let Some(instance) = after {
        world.feed(Input::Instance(device(10), instance));
    }
    world
}

#[test]
fn one_more_volume_on_a_file_system_learns_which_one_it_is() {
    let other =
        VolumeSpec { mountpoint: "/mnt/other".into(), ..spec("other", "xfs", "/dev/sdb", Mode::Observe) };
    let mut world = World::new(vec![spec("disk", "xfs", "/dev/sdb", Mode::Observe), other]);
    world.mounts.truncate(2);
    world.table();
    world.feed(Input::Instance(device(10), 7));
    world.mounts.push(mount(30, 10, "/mnt/other", "xfs", "/dev/sdb"));
    world.table();
    let known = |world: &World, name| world.engine.volumes[&VolumeId::new(name)].evidence.instance;
    assert_eq!(known(&world, "other"), Some(7));
    // Another one is told to both.
    world.feed(Input::Instance(device(10), 8));
    assert_eq!([known(&world, "disk"), known(&world, "other")], [Some(8), Some(8)]);
}

#[test]
fn what_an_earlier_run_knew_of_a_mount_counts_only_for_that_file_system() {
    let mut same = restarted_beside(7, Some(7));
    same.run(seconds(10));
    assert_eq!(same.running().len(), 1);
    let mut other = restarted_beside(7, Some(8));
    other.run(seconds(300));
    assert!(other.running().is_empty());
    assert_eq!(other.state("disk"), (HealthState::Healthy, None));
    // Nobody tells: what was known is the best that is known.
    let mut unheard = restarted_beside(7, None);
    unheard.run(seconds(20));
    assert_eq!(unheard.running().len(), 1);
}
