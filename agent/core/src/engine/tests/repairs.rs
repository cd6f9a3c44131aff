//! Plans: which volumes get one, when, and what its end means.

use alloc::vec;
use alloc::vec::Vec;

use super::world::{Answer, World, device, fails, good, millis, mount, seconds, spec};
use crate::engine::{Input, Output};
use crate::errno::Errno;
use crate::id::{MountId, PlanId, VolumeId};
use crate::observation::{Op, ProbeOk, ProbeResult};
use crate::path::BytePath;
use crate::remediation::{Action, Outcome, Refusal};
use crate::topology::Options;
use crate::verdict::HealthState::{Degraded, Healthy, Probation, Quarantined, Recovering};
use crate::verdict::{Advice, Reason};
use crate::volume::{Identity, Method, Mode, VolumeSpec};

fn sshfs(name: &str, mode: Mode) -> VolumeSpec {
    spec(name, "fuse.sshfs", &alloc::format!("{name}-host:"), mode)
}

/// A volume in mode `act` whose daemon has just died: a plan is running.
fn repairing() -> World {
    let mut world = World::healthy(vec![sshfs("a", Mode::Act)]);
    fall(&mut world);
    world
}

fn fall(world: &mut World) {
    world.answer("a", fails(107));
    world.hint(10, None, 107, Op::Read);
    world.run(seconds(1));
}

fn told(world: &World) -> usize {
    world.log.iter().filter(|(_, output)| matches!(output, Output::WouldExecute(_))).count()
}

#[test]
fn a_dead_daemon_is_replaced_and_believed_after_a_while() {
    let mut world = repairing();
    assert_eq!(world.state("a"), (Recovering, Some(Reason::Disconnected)));
    let plan = world.running().pop().unwrap();
    assert_eq!((plan.id, plan.reason, plan.old), (PlanId(100), Some(Reason::Disconnected), Some(device(10))));
    assert_eq!(world.status("a").plan.as_ref(), Some(&plan));
    world.log.clear();
    world.run(seconds(20));
    assert_eq!(world.probes(), 0, "nothing looks while the plan is at work");

    world.answer("a", Answer::Now(good()));
    world.replace("/mnt/a", 20);
    world.finish(plan.id, Outcome::Changed);
    world.run(millis(5));
    assert_eq!(world.state("a").0, Probation);
    world.run(seconds(3));
    assert_eq!(world.state("a"), (Healthy, None));
    assert_eq!(world.status("a").attempts, 1);
    let states: Vec<_> = world.transitions().iter().map(|transition| transition.to).collect();
    assert_eq!(states, [Probation, Healthy]);
}

#[test]
fn a_plan_may_end_before_the_table_shows_it() {
    let mut world = repairing();
    world.answer("a", Answer::Now(good()));
    world.log.clear();
    world.finish(PlanId(100), Outcome::Changed);
    world.run(millis(300));
    assert_eq!(world.probes(), 0, "a look would find another mount than the table says");
    assert_eq!(world.state("a").0, Recovering);
    world.replace("/mnt/a", 20);
    world.run(millis(5));
    assert_eq!(world.state("a").0, Probation);
}

/// A device is unmounted before it is mounted afresh, with the same number, and the table may show both, one, or none of
/// these steps before the plan's end is told.
#[test]
fn a_device_that_was_mounted_afresh_is_not_missing_in_between() {
    for (sees_none, sees_new) in [(false, false), (true, false), (true, true)] {
        let mut world = repairing();
        world.feed(Input::PlanShows(PlanId(100)));
        world.log.clear();
        world.answer("a", Answer::Now(good()));
        let mut mount = world.mounts.last().unwrap().clone();
        mount.id = MountId(77);
        if sees_none {
            world.unmount("/mnt/a");
        }
        if sees_new {
            world.mounts.push(mount.clone());
            world.table();
        }
        world.finish(PlanId(100), Outcome::Changed);
        world.run(millis(100));
        if !sees_new {
            assert_eq!(world.state("a").0, Recovering, "{sees_none}");
            world.mounts.retain(|mount| mount.mountpoint != BytePath::from("/mnt/a"));
            world.mounts.push(mount);
            world.table();
        }
        world.run(millis(200));
        let states: Vec<_> = world.transitions().iter().map(|step| step.to).collect();
        assert_eq!(states, [Probation], "{sees_none} {sees_new}: at once, and no fall");
    }
}

#[test]
fn a_plan_that_ended_well_and_helped_nothing_is_a_fall() {
    let mut world = repairing();
    world.log.clear();
    world.finish(PlanId(100), Outcome::Changed);
    world.run(seconds(5));
    let states: Vec<_> = world.transitions().iter().map(|transition| transition.to).collect();
    assert_eq!(states, [Degraded, Recovering]);
    assert_eq!(world.running()[0].id, PlanId(101));
    world.finish(PlanId(101), Outcome::Changed);
    world.run(millis(1100));
    assert_eq!(world.state("a").0, Degraded);
    assert!(world.status("a").next_attempt.is_some(), "each fall after a success waits longer");
}

#[test]
fn failed_attempts_pause_longer_and_longer_until_a_person_must_act() {
    let mut world = repairing();
    let mut starts = vec![world.now];
    for _ in 0..4 {
        let plan = world.running().pop().unwrap();
        world.finish(plan.id, Outcome::HelperFailed(32));
        let (at, report) = world.status("a").last_repair.unwrap();
        assert_eq!((at, report.id, report.outcome), (world.now, plan.id, Outcome::HelperFailed(32)));
        assert_eq!(world.state("a").0, Degraded);
        while world.running().is_empty() {
            world.run(millis(100));
        }
        starts.push(world.now);
    }
    let pauses: Vec<_> = starts.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!(pauses.windows(2).all(|pair| pair[1] > pair[0]), "{pauses:?}");
    world.finish(world.running()[0].id, Outcome::TimedOut);
    assert_eq!(world.state("a"), (Quarantined, Some(Reason::Disconnected)));
    assert!(world.status("a").condition.message.contains("a person must act"));
    world.run(seconds(8000));
    assert_eq!(world.state("a").0, Quarantined);
    assert!(world.running().is_empty());

    world.answer("a", Answer::Now(good()));
    world.replace("/mnt/a", 20);
    world.run(seconds(10));
    assert_eq!(world.state("a"), (Healthy, None), "a repair by hand is seen without being told");
}

#[test]
fn new_settings_renew_the_budget() {
    let mut world = World::healthy(vec![sshfs("a", Mode::Act)]);
    world.policy.volumes[0].repair.max_attempts = 0;
    world.feed(Input::Policy(world.policy.clone()));
    fall(&mut world);
    assert_eq!(world.state("a").0, Quarantined);
    world.policy.volumes[0].repair.max_attempts = 3;
    world.feed(Input::Policy(world.policy.clone()));
    world.run(millis(5));
    assert_eq!(world.state("a").0, Recovering);
}

#[test]
fn refusals_that_would_repeat_wait_long() {
    let mut world = repairing();
    world.finish(PlanId(100), Outcome::Refused(Refusal::SameSuperblock));
    world.run(seconds(200));
    assert!(world.running().is_empty());
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Disconnected)));
    assert!(world.status("a").condition.message.contains("same_superblock"));
    assert!(world.status("a").next_attempt.is_some());
    world.run(seconds(200));
    assert_eq!(world.running().len(), 1);
}

#[test]
fn a_volume_that_is_in_use_is_never_given_up() {
    let mut world = repairing();
    for _ in 0..30 {
        let plan = world.running().pop().unwrap();
        world.finish(plan.id, Outcome::Refused(Refusal::Busy));
        assert_eq!((world.state("a").0, world.status("a").attempts), (Degraded, 0));
        world.run(seconds(20));
        assert!(world.running().is_empty());
        world.run(seconds(20));
    }
}

#[test]
fn the_other_modes_make_no_plan() {
    let mut world = World::healthy(vec![sshfs("a", Mode::Observe)]);
    fall(&mut world);
    world.run(seconds(100));
    assert_eq!(world.state("a").0, Degraded);
    assert_eq!((world.running().len(), told(&world)), (0, 0));
    let mut world = World::healthy(vec![sshfs("a", Mode::DryRun)]);
    for round in 1..4 {
        fall(&mut world);
        world.run(seconds(100));
        assert_eq!((world.running().len(), told(&world)), (0, round), "told once for each fall");
        let due = world.status("a").due_plan.unwrap();
        assert_eq!((due.reason, due.old), (Some(Reason::Disconnected), Some(device(10))));
        world.answer("a", fails(116));
        world.run(seconds(5));
        assert_eq!(world.status("a").due_plan.unwrap().reason, Some(Reason::Stale));
        world.answer("a", Answer::Now(good()));
        world.run(seconds(100));
        assert_eq!(world.status("a").due_plan, None);
    }
}

#[test]
fn what_the_specification_does_not_say_is_only_observed() {
    let mut bare = sshfs("a", Mode::Act);
    let mut world = World::healthy(vec![bare.clone()]);
    bare.source = None;
    world.policy.volumes = vec![bare];
    world.feed(Input::Policy(world.policy.clone()));
    fall(&mut world);
    assert_eq!(world.state("a").0, Degraded);
    assert!(world.running().is_empty());
}

#[test]
fn only_so_many_plans_at_once_and_one_for_each_server() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut specs: Vec<_> = names.iter().map(|name| sshfs(name, Mode::Act)).collect();
    specs[1].source = Some(b"a-host:/other".to_vec());
    let mut world = World::healthy(specs);
    for name in names {
        world.answer(name, fails(107));
    }
    world.run(seconds(15));
    let volumes =
        |world: &World| -> Vec<_> { world.running().iter().map(|plan| plan.volume.clone()).collect() };
    assert_eq!(world.running().len(), 4);
    let server = |volumes: &[crate::id::VolumeId]| {
        volumes.iter().filter(|volume| ["a", "b"].contains(&volume.as_str())).count()
    };
    assert!(server(&volumes(&world)) <= 1);
    for _ in 0..6 {
        let plan = world.running().remove(0);
        world.answer(plan.volume.as_str(), Answer::Now(good()));
        let path = alloc::string::String::from_utf8(plan.mountpoint.as_bytes().to_vec()).unwrap();
        world.replace(&path, 60 + u32::try_from(plan.id.0).unwrap());
        world.finish(plan.id, Outcome::Changed);
        world.run(millis(5));
        assert!(server(&volumes(&world)) <= 1);
    }
    world.run(seconds(10));
    assert!(world.engine.volumes().iter().all(|status| status.condition.state == Healthy));
}

#[test]
fn a_server_that_is_away_is_given_time_to_return() {
    let mut world = World::healthy(vec![spec("a", "nfs4", "filer:/a", Mode::Act)]);
    world.answer("a", fails(113));
    world.run(seconds(12));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::HostDown)));
    assert!(world.running().is_empty());
    assert!(world.status("a").next_attempt.is_some());
    world.run(seconds(11));
    assert_eq!(world.running().len(), 1);
}

#[test]
fn a_hung_device_is_not_replaced_and_a_hung_daemon_is() {
    let mut world = World::healthy(vec![spec("a", "ext4", "/dev/sdb", Mode::Act), sshfs("b", Mode::Act)]);
    world.answer("a", Answer::Hangs);
    world.answer("b", Answer::Hangs);
    world.run(seconds(100));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Hung)));
    assert_eq!(world.state("b"), (Recovering, Some(Reason::Hung)));
}

#[test]
fn a_slow_volume_that_answers_in_the_end_is_not_replaced() {
    let mut world = World::healthy(vec![sshfs("a", Mode::Act)]);
    world.answer("a", Answer::Hangs);
    world.feed(Input::ProbeNow(crate::id::VolumeId::new("a")));
    for _ in 0..20 {
        world.run(millis(7500));
        assert_eq!(world.state("a"), (Degraded, Some(Reason::Hung)));
        assert!(world.status("a").next_attempt.is_some(), "it is replaced if it stays like this");
        let probes = world.probes();
        let out = world.log.iter().rev().find_map(|(_, output)| match output {
            Output::Probe(order) => Some(order.id),
            _ => None,
        });
        world.feed(Input::ProbeReturned(out.unwrap()));
        assert_eq!(world.probes(), probes + 1, "it is looked at again at once");
        assert!(world.status("a").condition.advice.contains(&Advice::Slow));
        assert_eq!(world.status("a").next_attempt, None);
    }
    assert!(world.running().is_empty());
    world.run(millis(3000 + 5999));
    assert!(world.running().is_empty());
    world.run(millis(5));
    assert_eq!(world.running().len(), 1, "stuck for twice its deadline beyond the deadline");
}

/// `a` and `b` on one superblock; a look at `a` hangs, and that at `b` is overdue for long.
fn behind(mode_of_a: Mode) -> World {
    let mut world =
        World::new(vec![spec("a", "nfs4", "filer:/a", mode_of_a), spec("b", "nfs4", "filer:/b", Mode::Act)]);
    world.replace("/mnt/b", 10);
    world.mounts[2].id.0 = 55;
    let b = ProbeOk { root_inode: 7, read_data: true, ..ProbeOk::default() };
    world.answer("b", Answer::Now(ProbeResult::Ok(b)));
    world.table();
    world.run(millis(100));
    world.answer("a", Answer::Hangs);
    world.feed(Input::ProbeNow(VolumeId::new("a")));
    world.run(seconds(60));
    assert_eq!(world.state("b"), (Degraded, Some(Reason::Hung)));
    world
}

fn repaired(world: &World) -> Vec<VolumeId> {
    world.running().into_iter().map(|plan| plan.volume).collect()
}

#[test]
fn a_volume_behind_a_look_that_hangs_is_repaired_when_tasks_wait_on_it_as_well() {
    let mut world = behind(Mode::Observe);
    assert_eq!(repaired(&world), [], "nobody is repaired by hearsay");
    world.census(10, Some(7), 2);
    assert_eq!(repaired(&world), [], "they may be served yet");
    for elsewhere in [None, Some(99)] {
        world.census(10, elsewhere, 9);
        assert_eq!(repaired(&world), [], "they may wait in a directory that this volume does not show");
    }
    world.census(10, Some(7), 3);
    world.run(millis(5));
    assert_eq!(repaired(&world), [VolumeId::new("b")]);
}

#[test]
fn of_a_superblock_that_hangs_the_volume_that_was_looked_at_is_repaired_first() {
    let mut world = behind(Mode::Act);
    assert_eq!(repaired(&world), [VolumeId::new("a")]);
    world.finish(PlanId(100), Outcome::Failed(Errno(110)));
    world.run(seconds(60));
    assert_eq!(repaired(&world), [VolumeId::new("a")], "and nobody else while it needs it");
    let again = world.running()[0].id;
    world.answer("a", Answer::Now(good()));
    world.mounts[1].superblock = device(60);
    world.mounts[1].id.0 = 60;
    world.table();
    world.finish(again, Outcome::Changed);
    world.run(seconds(1));
    assert_eq!(repaired(&world), [VolumeId::new("b")], "it would be alone with a look that nobody ends");
}

#[test]
fn a_volume_whose_superblock_hangs_is_repaired_when_the_one_that_was_looked_at_is_unmounted() {
    let mut world = behind(Mode::Observe);
    world.unmount("/mnt/a");
    world.run(seconds(1));
    assert_eq!(repaired(&world), [VolumeId::new("b")]);
}

#[test]
fn no_plan_begins_while_a_look_would_hold_the_mount() {
    let mut world = World::healthy(vec![spec("a", "ext4", "/dev/sdb", Mode::Act)]);
    world.answer("a", Answer::Hangs);
    world.feed(Input::ProbeNow(crate::id::VolumeId::new("a")));
    world.mounts[1].super_options = Options::parse(b"rw,shutdown");
    world.table();
    assert_eq!(world.state("a"), (Degraded, Some(Reason::FsShutdown)));
    assert!(world.running().is_empty());
    world.run(seconds(4));
    assert_eq!(world.running().len(), 1, "a stuck look will not end");
}

#[test]
fn what_was_learnt_of_a_device_must_be_true_of_its_new_mount() {
    let mut world = World::new(vec![spec("a", "ext4", "/dev/sdb", Mode::Act)]);
    let learnt = ProbeOk {
        root_inode: 2,
        read_data: true,
        wrote_data: false,
        fsid: Some("00aa".into()),
        ..ProbeOk::default()
    };
    world.answer("a", Answer::Now(ProbeResult::Ok(learnt)));
    world.table();
    world.run(seconds(1));
    world.mounts[1].super_options = Options::parse(b"rw,shutdown");
    world.table();
    let plan = world.running().pop().unwrap();
    let expected = Identity { uuid: None, fsid: Some("00aa".into()) };
    assert!(
        plan.actions
            .iter()
            .any(|action| matches!(action, Action::CheckStaged { identity, .. } if *identity == expected))
    );
}

#[test]
fn a_command_that_heals_in_place_is_believed_without_another_mount() {
    let mut healed = sshfs("a", Mode::Act);
    healed.repair.method = Method::Command(vec!["/heal".into(), "{mountpoint}".into()]);
    let mut world = World::healthy(vec![healed]);
    fall(&mut world);
    world.answer("a", Answer::Now(good()));
    world.finish(PlanId(100), Outcome::Changed);
    world.run(seconds(5));
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn a_missing_volume_is_mounted_again() {
    let mut world = World::healthy(vec![sshfs("a", Mode::Act)]);
    world.unmount("/mnt/a");
    world.run(millis(5));
    let plan = world.running().pop().unwrap();
    assert_eq!((plan.reason, plan.old), (Some(Reason::Missing), None));
    world.feed(Input::PlanShows(plan.id));
    world.mounts.push(mount(33, 33, "/mnt/a", "fuse.sshfs", "a-host:"));
    world.table();
    world.finish(plan.id, Outcome::Changed);
    world.run(seconds(5));
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn the_end_of_a_plan_nobody_made_is_noted() {
    let mut world = repairing();
    world.finish(PlanId(4), Outcome::Failed(Errno(5)));
    assert_eq!(world.notes(), 1);
    world.finish(PlanId(100), Outcome::Failed(Errno(5)));
    assert!(
        world.status("a").history.iter().any(|transition| transition.message.contains("failed with EIO"))
    );
}

#[test]
fn a_volume_that_leaves_the_policy_while_its_plan_runs_is_forgotten() {
    let mut world = repairing();
    world.policy.volumes.clear();
    world.feed(Input::Policy(world.policy.clone()));
    world.finish(PlanId(100), Outcome::Changed);
    assert!(world.engine.volumes().is_empty());
}

#[test]
fn volumes_on_one_superblock_are_repaired_one_after_the_other() {
    let mut specs = vec![sshfs("a", Mode::Act), sshfs("b", Mode::Act)];
    specs.iter_mut().for_each(|spec| spec.source = Some(b"same".to_vec()));
    let mut world = World::new(specs);
    world.mounts[2].superblock = device(10);
    world.answer("a", fails(107));
    world.answer("b", fails(107));
    world.table();
    world.run(seconds(5));
    assert_eq!(world.running().len(), 1);
    let waits = if world.running()[0].volume.as_str() == "a" { "b" } else { "a" };
    assert_eq!(world.state(waits).0, Degraded);
    world.finish(PlanId(100), Outcome::TimedOut);
    assert_eq!(world.state(waits).0, Recovering);
}

#[test]
fn suspicion_in_probation_begins_the_settle_time_again() {
    let mut world = World::healthy(vec![sshfs("a", Mode::Observe)]);
    fall(&mut world);
    world.answer("a", Answer::Now(good()));
    while world.state("a").0 != Probation {
        world.run(millis(100));
    }
    let doubted = world.now;
    world.hint(10, None, 5, Op::Write);
    world.log.clear();
    world.run(seconds(60));
    let believed = world.transitions().pop().unwrap();
    assert_eq!((believed.from, believed.to), (Probation, Healthy));
    assert!(believed.at.since(doubted) >= seconds(32), "the window, and the whole settle time after it");
}
