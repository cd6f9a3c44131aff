//! Dirty data that was lost, and damage that a file system found in itself: told until a person acknowledges it or the
//! volume is mounted anew.

use alloc::vec;
use core::time::Duration;

use super::world::{World, device, seconds, spec};
use crate::engine::{AckAnswer, Input, Output};
use crate::errno::Errno;
use crate::observation::{KernelErrors, Op, Source};
use crate::time::Monotonic;
use crate::verdict::HealthState::{Degraded, Healthy};
use crate::verdict::{Advice, Reason};
use crate::volume::{Mode, VolumeSpec};

fn disk() -> VolumeSpec {
    spec("a", "ext4", "/dev/sdb", Mode::Observe)
}

fn loses(world: &mut World, at: Monotonic) {
    world.feed(Input::Kernel(KernelErrors {
        source: Source::Bpf,
        superblock: device(10),
        root_inode: None,
        errno: Errno(5),
        op: Op::Writeback,
        count: 1,
        at,
        after: None,
        task: None,
    }));
}

fn lossy() -> World {
    let mut world = World::healthy(vec![disk()]);
    let now = world.now;
    loses(&mut world, now);
    world.run(seconds(120));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::WritebackLost)), "no good look brings it back");
    world
}

#[test]
fn a_loss_that_is_acknowledged_is_no_fault_any_more_and_is_still_shown() {
    let mut world = lossy();
    world.log.clear();
    assert_eq!(world.acknowledge("a"), AckAnswer::Done);
    let told = world.transitions();
    assert_eq!((told[0].from, told[0].to), (Degraded, Degraded));
    assert!(told[0].by.as_ref().is_some_and(|by| by.pid == 42));
    assert!(told[0].message.contains("uid 0 (mountie, process 42) acknowledged"), "{}", told[0].message);
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Healthy, None));
    let loss = world.status("a").loss.unwrap();
    assert!(!loss.is_open());
    assert!(world.status("a").history.iter().any(|step| step.by.is_some()), "the audit trail");
}

#[test]
fn there_is_nothing_to_acknowledge_twice_or_of_an_unknown_volume() {
    let mut world = World::healthy(vec![disk()]);
    assert_eq!(world.acknowledge("a"), AckAnswer::Nothing);
    assert_eq!(world.acknowledge("nobody"), AckAnswer::NoSuchVolume);
    assert_eq!(world.transitions(), []);
    let mut world = lossy();
    assert_eq!(world.acknowledge("a"), AckAnswer::Done);
    assert_eq!(world.acknowledge("a"), AckAnswer::Nothing);
}

#[test]
fn what_is_lost_after_the_acknowledgement_is_told_and_what_was_lost_before_is_not() {
    let mut world = lossy();
    let before = world.now;
    world.run(seconds(1));
    world.acknowledge("a");
    loses(&mut world, before);
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Healthy, None), "the counter tells late of what is known");
    let now = world.now;
    loses(&mut world, now);
    assert_eq!(world.state("a"), (Degraded, Some(Reason::WritebackLost)));
}

#[test]
fn a_loss_and_its_acknowledgement_outlive_the_agent_on_the_same_mount_alone() {
    for is_acknowledged in [false, true] {
        let mut world = lossy();
        if is_acknowledged {
            world.acknowledge("a");
            world.run(seconds(60));
        }
        world.restart();
        world.table();
        world.run(seconds(60));
        let expected =
            if is_acknowledged { (Healthy, None) } else { (Degraded, Some(Reason::WritebackLost)) };
        assert_eq!(world.state("a"), expected);
        assert!(world.status("a").loss.is_some());

        world.replace("/mnt/a", 20);
        world.restart();
        world.table();
        world.run(seconds(60));
        assert_eq!(world.state("a"), (Healthy, None));
        assert_eq!(world.status("a").loss, None, "another mount");
    }
}

#[test]
fn a_mount_that_came_while_the_agent_was_away_has_lost_nothing() {
    let mut world = lossy();
    world.restart();
    for mount in world.mounts.iter_mut().filter(|mount| mount.superblock == device(10)) {
        mount.unique = Some(4000);
        mount.id = crate::id::MountId(99);
    }
    world.table();
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn an_acknowledgement_right_after_the_start_counts() {
    let mut world = lossy();
    world.restart();
    assert_eq!(world.acknowledge("a"), AckAnswer::Done);
    world.table();
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn another_boot_has_lost_nothing_and_keeps_since_when_it_was_sick() {
    let mut world = lossy();
    world.log.clear();
    world.reboot(Monotonic::from_nanos(20_000_000_000));
    let status = world.status("a");
    assert_eq!(world.state("a"), (Degraded, Some(Reason::WritebackLost)));
    assert!(status.condition.since_wall.is_some_and(|wall| wall > Duration::from_secs(1_700_000_000)));
    assert!(status.condition.is_recalled && status.loss.is_none());
    world.table();
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Healthy, None));
    let falls = |output: &Output| matches!(output, Output::Transition(told) if told.to == Degraded);
    assert!(!world.log.iter().any(|(_, output)| falls(output)));
}

fn report_of(world: &World, errno: u16, source: Source) -> KernelErrors {
    KernelErrors {
        source,
        superblock: device(10),
        root_inode: None,
        errno: Errno(errno),
        op: Op::Filesystem,
        count: 1,
        at: world.now,
        after: None,
        task: None,
    }
}

fn reports(world: &mut World, errno: u16, source: Source) {
    world.feed(Input::Kernel(report_of(world, errno, source)));
}

fn is_damaged(world: &World) -> bool {
    world.status("a").condition.advice.contains(&Advice::Damaged)
}

#[test]
fn damage_is_advice_until_it_is_acknowledged_also_after_a_restart() {
    let mut world = World::healthy(vec![disk()]);
    reports(&mut world, 117, Source::Fanotify);
    reports(&mut world, 117, Source::Bpf);
    assert_eq!(world.notes(), 1, "told once");
    world.run(seconds(600));
    assert_eq!(world.state("a"), (Healthy, None), "it works on");
    assert!(is_damaged(&world));
    world.restart();
    world.table();
    world.run(seconds(60));
    assert!(is_damaged(&world));
    assert_eq!(world.acknowledge("a"), AckAnswer::Done);
    let told = world.transitions().pop().unwrap();
    assert!(
        told.message.ends_with("that the file system found damage in itself (EUCLEAN)"),
        "{}",
        told.message
    );
    assert!(!is_damaged(&world));
    assert_eq!(world.acknowledge("a"), AckAnswer::Nothing);
    world.restart();
    world.table();
    world.run(seconds(60));
    assert!(!is_damaged(&world));
    assert!(world.status("a").damage.is_some_and(|damage| !damage.is_open()), "it is still shown");
    reports(&mut world, 74, Source::Bpf);
    assert!(is_damaged(&world), "more of it");
    world.replace("/mnt/a", 20);
    world.run(seconds(60));
    assert!(!is_damaged(&world), "another mount");
}

#[test]
fn a_failed_request_is_no_damage_and_what_ext4_counts_of_itself_is() {
    let mut world = World::healthy(vec![disk()]);
    reports(&mut world, 5, Source::Fanotify);
    reports(&mut world, 108, Source::Bpf);
    assert!(!is_damaged(&world));
    reports(&mut world, 5, Source::Sysfs);
    assert!(is_damaged(&world));
    let mut world = World::healthy(vec![spec("a", "btrfs", "/dev/sdb", Mode::Observe)]);
    reports(&mut world, 5, Source::Sysfs);
    assert!(!is_damaged(&world), "btrfs counts requests of its devices as well");
    reports(&mut world, 117, Source::Sysfs);
    assert!(is_damaged(&world));
}

#[test]
fn one_acknowledgement_is_for_all_that_was_lost_and_damaged() {
    let mut world = lossy();
    reports(&mut world, 117, Source::Bpf);
    assert_eq!(world.acknowledge("a"), AckAnswer::Done);
    let told = world.transitions().into_iter().find(|step| step.by.is_some()).unwrap();
    assert_eq!(told.reason, Some(Reason::WritebackLost));
    assert!(told.message.contains("EIO, and that the file system found damage"), "{}", told.message);
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Healthy, None));
    assert!(!is_damaged(&world));
}

#[test]
fn what_a_counter_shows_after_the_acknowledgement_is_the_damage_that_was_acknowledged() {
    let mut world = World::healthy(vec![disk()]);
    // The counters of file systems are read every few seconds, and say nothing of the moment.
    let counted = |world: &mut World, after| {
        world
            .feed(Input::Kernel(KernelErrors { after: Some(after), ..report_of(world, 117, Source::Sysfs) }));
    };
    let last_reading = world.now;
    world.run(seconds(1));
    reports(&mut world, 117, Source::Bpf);
    assert_eq!(world.acknowledge("a"), AckAnswer::Done);
    world.run(seconds(3));
    counted(&mut world, last_reading);
    assert!(!is_damaged(&world), "the same damage again");
    let last_reading = world.now;
    world.run(seconds(5));
    counted(&mut world, last_reading);
    assert!(is_damaged(&world), "more of it");
}
