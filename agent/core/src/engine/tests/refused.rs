//! Volumes at which nobody may look: no look will ever say that they are good, and a fall of theirs ends all the same.

use alloc::vec;

use super::world::{Answer, World, device, fails, good, millis, seconds, spec};
use crate::engine::{Input, Output};
use crate::errno::Errno;
use crate::id::VolumeId;
use crate::observation::{NotRun, Op, ProbeResult, ProbeStep};
use crate::topology::Options;
use crate::verdict::HealthState::{Degraded, Healthy, Suspect, Unknown};
use crate::verdict::{Advice, Reason};
use crate::volume::{Mode, Sentinel, VolumeSpec};

fn nfs() -> VolumeSpec {
    spec("a", "nfs4", "filer:/a", Mode::Observe)
}

/// A volume that has answered nothing but this.
fn closed(spec: VolumeSpec, answer: &Answer) -> World {
    let mut world = World::new(vec![spec]);
    world.answer("a", answer.clone());
    world.table();
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Unknown, None));
    world
}

/// The worker that hangs, if one does, comes back.
fn returns(world: &mut World) {
    let last = world.log.iter().rev().find_map(|(_, output)| match output {
        Output::Probe(order) => Some(order.id),
        _ => None,
    });
    world.feed(Input::ProbeReturned(last.unwrap()));
}

fn meets(world: &mut World, errno: u16, op: Op) {
    for _ in 0..6 {
        world.hint(10, None, errno, op);
        world.run(millis(300));
    }
}

#[test]
fn a_volume_that_never_let_anybody_look_is_as_unknown_after_any_fault_as_before() {
    let unreachable = Answer::Now(ProbeResult::NotRun(NotRun::Unreachable));
    let elsewhere = Answer::Now(ProbeResult::WrongMount { found: device(99) });
    for as_ever in [fails(13), fails(1), unreachable] {
        for fault in [Answer::Hangs, fails(113), fails(116), fails(107), fails(5), elsewhere.clone()] {
            for restarts in [false, true] {
                let mut world = closed(nfs(), &as_ever);
                world.answer("a", fault.clone());
                world.feed(Input::ProbeNow(VolumeId::new("a")));
                world.run(seconds(30));
                assert_eq!(world.state("a").0, Degraded, "{fault:?}");
                if restarts {
                    world.restart();
                    world.table();
                }
                world.answer("a", as_ever.clone());
                returns(&mut world);
                world.run(seconds(30));
                assert_eq!(world.state("a"), (Unknown, None), "{fault:?}, then {as_ever:?}");
                assert!(world.status("a").condition.advice.contains(&Advice::Inaccessible));
            }
        }
    }
}

#[test]
fn a_fault_that_a_readable_volume_had_does_not_end_because_looks_become_impossible() {
    let mut world = World::healthy(vec![nfs()]);
    world.answer("a", fails(113));
    world.run(seconds(30));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::HostDown)));
    world.answer("a", Answer::Now(ProbeResult::NotRun(NotRun::Unreachable)));
    world.run(seconds(100));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::HostDown)));
}

#[test]
fn what_rests_on_errors_alone_ends_with_them_where_only_the_maker_of_the_mount_may_look() {
    let private = |world: &mut World| {
        world.mounts[1].super_options = Options::parse(b"rw,user_id=1000,group_id=1000");
    };
    let sshfs = || spec("a", "fuse.sshfs", "host:/a", Mode::Observe);
    for was_open in [false, true] {
        let mut world = World::new(vec![sshfs()]);
        if was_open {
            world.answer("a", Answer::Now(good()));
            world.table();
            world.run(seconds(5));
            assert_eq!(world.state("a"), (Healthy, None));
        }
        private(&mut world);
        world.answer("a", fails(13));
        world.replaced_by_others("/mnt/a", 10 + u32::from(was_open));
        world.run(seconds(5));
        let minor = 10 + u32::from(was_open);
        for _ in 0..6 {
            world.hint(minor, None, 107, Op::Read);
            world.run(millis(300));
        }
        assert_eq!(world.state("a"), (Degraded, Some(Reason::Disconnected)));
        world.replaced_by_others("/mnt/a", 20);
        world.run(seconds(5));
        assert_eq!(world.state("a"), (Unknown, None), "it was mounted anew");
        for _ in 0..6 {
            world.hint(20, None, 107, Op::Read);
            world.run(millis(300));
        }
        assert_eq!(world.state("a"), (Degraded, Some(Reason::Disconnected)));
        world.run(seconds(60));
        assert_eq!(world.state("a"), (Unknown, None), "nobody meets errors any more");
    }
}

#[test]
fn what_the_table_said_ends_with_it_where_nobody_may_look() {
    let mut world = closed(spec("a", "ext4", "/dev/sdb", Mode::Observe), &fails(13));
    for (options, reason) in [("ro", Reason::Readonly), ("rw,shutdown", Reason::FsShutdown)] {
        world.mounts[1].super_options = Options::parse(options.as_bytes());
        world.table();
        assert_eq!(world.state("a"), (Degraded, Some(reason)));
        world.mounts[1].super_options = Options::parse(b"rw");
        world.table();
        world.run(seconds(10));
        assert_eq!(world.state("a"), (Unknown, None));
    }
}

#[test]
fn errors_of_before_a_restart_keep_a_volume_sick_that_nobody_may_look_at_for_as_long_as_they_speak() {
    let mut world = closed(nfs(), &fails(13));
    meets(&mut world, 5, Op::Write);
    assert_eq!(world.state("a"), (Degraded, Some(Reason::IoError)));
    world.restart();
    world.table();
    world.run(seconds(20));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::IoError)));
    world.run(seconds(20));
    assert_eq!(world.state("a"), (Unknown, None));
}

fn name_sentinel(world: &mut World, path: &str) {
    world.policy.volumes[0].sentinel = Some(Sentinel { path: path.into(), content: None });
    world.feed(Input::Policy(world.policy.clone()));
}

fn refuses_sentinel() -> Answer {
    Answer::Now(ProbeResult::Failed { step: ProbeStep::Sentinel, errno: Errno(13) })
}

#[test]
fn a_sentinel_that_could_never_be_read_is_no_permission_that_was_lost() {
    let mut world = World::healthy(vec![nfs()]);
    name_sentinel(&mut world, "of-another-user");
    world.answer("a", refuses_sentinel());
    world.run(seconds(60));
    for _ in 0..2 {
        assert_eq!(world.state("a"), (Unknown, None));
        let condition = world.status("a").condition;
        assert!(condition.advice.contains(&Advice::Inaccessible));
        assert!(
            condition.message.starts_with("the root answers, the sentinel may not be read"),
            "{condition:?}"
        );
        world.restart();
        world.table();
        world.run(seconds(60));
    }
    // It is missing, and then made by somebody who keeps it to themselves.
    world.answer("a", Answer::Now(ProbeResult::SentinelMissing));
    world.run(seconds(15));
    assert_eq!(world.state("a"), (Suspect, Some(Reason::WrongMount)));
    world.answer("a", refuses_sentinel());
    world.run(seconds(15));
    assert_eq!(world.state("a"), (Unknown, None));
}

#[test]
fn a_sentinel_that_was_read_and_is_refused_while_the_root_answers_is_doubt_and_no_more() {
    let mut world = World::new(vec![nfs()]);
    name_sentinel(&mut world, ".mountie");
    world.table();
    world.run(seconds(5));
    assert_eq!(world.state("a"), (Healthy, None));
    world.restart();
    world.answer("a", refuses_sentinel());
    world.table();
    world.run(seconds(300));
    assert_eq!(world.state("a"), (Suspect, Some(Reason::Auth)));
    name_sentinel(&mut world, "another");
    world.run(seconds(15));
    assert_eq!(world.state("a"), (Unknown, None), "that one was never read");
    name_sentinel(&mut world, ".mountie");
    world.answer("a", fails(13));
    world.run(seconds(15));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Auth)), "the root was readable before");
}
