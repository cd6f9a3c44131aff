//! Who still holds what a volume showed before.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::world::{Answer, World, device, fails, good, millis, seconds, spec};
use crate::consumer::{Consumers, Dead, FileHolder, Found, StaleMount};
use crate::engine::{Input, Output};
use crate::errno::Errno;
use crate::id::{MountId, PlanId, VolumeId};
use crate::observation::{Op, PlanReport, ProbeResult, Unfinished};
use crate::remediation::asking::Answer as Said;
use crate::remediation::consumers::Holding;
use crate::remediation::{Action, Marks, Outcome, Plan, Refusal};
use crate::topology::Options;
use crate::verdict::HealthState::{Degraded, Healthy, Probation, Recovering};
use crate::verdict::Reason;
use crate::volume::{Hook, HookWay, Mode, Reach, VolumeSpec};

fn sshfs(mode: Mode, consumers: Reach) -> VolumeSpec {
    let mut spec = spec("a", "fuse.sshfs", "a-host:", mode);
    spec.repair.consumers = consumers;
    spec
}

/// The daemon dies.
fn fall(world: &mut World) {
    world.answer("a", fails(107));
    world.hint(10, None, 107, Op::Read);
    world.run(seconds(1));
}

/// Somebody mounts it again.
fn heal(world: &mut World, minor: u32) {
    world.answer("a", Answer::Now(good()));
    world.replace("/mnt/a", minor);
    world.run(millis(100));
}

fn asked(world: &World) -> Vec<Dead> {
    let asked = world.log.iter().rev().find_map(|(_, output)| match output {
        Output::FindConsumers(dead) => Some(dead.clone()),
        _ => None,
    });
    asked.unwrap_or_default()
}

fn found(world: &mut World, minor: u32, mounts: u64, files: u64) {
    let stale = StaleMount {
        namespace: 4_026_532_000,
        process: 70,
        comm: "python3".into(),
        mountpoint: "/data".into(),
        root: "/".into(),
    };
    let holder = FileHolder { process: 70, comm: "python3".into(), count: files, path: "/data/x".into() };
    let found = Found {
        volume: VolumeId::new("a"),
        superblock: device(minor),
        has_holding: true,
        mounts,
        shown: vec![stale; usize::try_from(mounts).unwrap()],
        ids: (0..u32::try_from(mounts).unwrap()).map(|n| MountId(500 + n)).collect(),
        files,
        holders: if files > 0 { vec![holder] } else { Vec::new() },
    };
    let at = world.now;
    world.feed(Input::Consumers(Consumers { at, found: vec![found] }));
}

fn followed(plan: &Plan, outcome: Outcome) -> Input {
    let left_behind = BTreeSet::from([MountId(501)]);
    let consumers = BTreeSet::from([MountId(500), MountId(501)]);
    let report = PlanReport::of(plan.id, outcome, millis(50));
    Input::PlanFinished(PlanReport { left_behind, consumers, ..report })
}

#[test]
fn a_bind_that_is_a_volume_of_its_own_is_nobodys_consumer() {
    let mut other = sshfs(Mode::Observe, Reach::Unowned);
    (other.id, other.mountpoint) = (VolumeId::new("b"), "/mnt/b".into());
    let mut world = World::healthy(vec![sshfs(Mode::Observe, Reach::Unowned), other]);
    fall(&mut world);
    heal(&mut world, 20);
    // What is mounted at the other volume is one of two mounts of what was replaced.
    for mount in world.mounts.iter_mut().filter(|mount| mount.mountpoint == "/mnt/b".into()) {
        mount.id = MountId(501);
    }
    world.table();
    found(&mut world, 10, 2, 0);
    assert_eq!(world.status("a").stale_mounts, 1);
    found(&mut world, 10, 1, 0);
    assert_eq!(world.status("a").stale_mounts, 1, "500 is somebody else's");
}

#[test]
fn what_lies_covered_at_the_volumes_own_place_is_nobodys_consumer() {
    let mut world = World::healthy(vec![sshfs(Mode::Observe, Reach::Unowned)]);
    fall(&mut world);
    // Somebody mounts over the dead mount, which stays below.
    let place = world.mounts.iter_mut().find(|mount| mount.mountpoint == "/mnt/a".into()).unwrap();
    place.id = MountId(500);
    let mut over = place.clone();
    (over.id, over.superblock, over.parent) = (MountId(77), device(20), MountId(500));
    world.mounts.push(over);
    world.answer("a", Answer::Now(good()));
    world.table();
    world.run(millis(100));
    found(&mut world, 10, 2, 0);
    assert_eq!(world.status("a").stale_mounts, 1, "501 is a container's");
    found(&mut world, 10, 1, 0);
    assert_eq!(world.status("a").stale_mounts, 0);
}

#[test]
fn who_holds_the_old_one_is_known_also_when_a_look_finds_the_new_one_before_the_table_does() {
    let mut world = World::healthy(vec![sshfs(Mode::Act, Reach::Unowned)]);
    fall(&mut world);
    let plan = world.running().pop().unwrap();
    // The swap was made, and then its daemon died.
    world.answer("a", Answer::Now(ProbeResult::WrongMount { found: device(20) }));
    world.feed(followed(&plan, Outcome::Failed(Errno(103))));
    world.run(millis(500));
    assert_eq!(world.state("a").1, Some(Reason::WrongMount));
    heal(&mut world, 20);
    let dead = asked(&world).into_iter().find(|dead| dead.superblock == device(10)).unwrap();
    assert!(dead.knows(MountId(500)), "{dead:?}");
}

#[test]
fn what_a_failed_plan_brought_to_the_wrong_place_is_nobodys_dead_one() {
    let mut world = World::healthy(vec![sshfs(Mode::Act, Reach::Unowned)]);
    fall(&mut world);
    let plan = world.running().pop().unwrap();
    // The helper mounts something else; the plan sees that, and the volume is sick still for the old reason.
    world.answer("a", Answer::Now(ProbeResult::WrongMount { found: device(99) }));
    world.replace("/mnt/a", 20);
    world.run(millis(10));
    world.feed(followed(&plan, Outcome::Refused(Refusal::OtherVolume)));
    world.run(millis(500));
    assert!(asked(&world).iter().all(|dead| dead.superblock != device(20)), "{:?}", asked(&world));
    heal(&mut world, 21);
    assert!(asked(&world).iter().all(|dead| dead.superblock != device(20)), "{:?}", asked(&world));
}

#[test]
fn a_look_that_came_too_early_does_not_hide_who_holds_what_a_failed_plan_replaced() {
    let mut world = World::healthy(vec![sshfs(Mode::Act, Reach::Unowned)]);
    fall(&mut world);
    let plan = world.running().pop().unwrap();
    // The swap was made. Nobody knows yet by what to find the old one, and so nobody is found.
    world.replace("/mnt/a", 20);
    world.run(millis(10));
    found(&mut world, 10, 0, 0);
    world.run(millis(10));
    assert!(asked(&world).iter().all(|dead| dead.superblock != device(10)));
    world.feed(followed(&plan, Outcome::Failed(Errno(107))));
    world.run(millis(10));
    let dead = asked(&world).into_iter().find(|dead| dead.superblock == device(10)).unwrap();
    assert!(dead.knows(MountId(500)) && !dead.knows(MountId(501)), "{dead:?}");
}

#[test]
fn nobody_is_looked_for_while_nothing_is_wrong() {
    let mut world = World::healthy(vec![sshfs(Mode::Observe, Reach::Unowned)]);
    world.replace("/mnt/a", 20);
    world.run(seconds(30));
    assert!(!world.log.iter().any(|(_, output)| matches!(output, Output::FindConsumers(_))));
}

#[test]
fn a_volume_is_not_healthy_while_containers_show_what_was_replaced() {
    let mut world = World::healthy(vec![sshfs(Mode::Observe, Reach::Unowned)]);
    fall(&mut world);
    let dead = asked(&world);
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].superblock, dead[0].ids.contains(&MountId(10))), (device(10), true));
    found(&mut world, 10, 2, 3);
    assert_eq!(
        (world.status("a").stale_mounts, world.status("a").stale_files),
        (0, 0),
        "it is the volume's own"
    );
    heal(&mut world, 20);
    assert_eq!(world.state("a").0, Probation);
    assert_eq!(asked(&world)[0].ids, BTreeSet::from([10, 500, 501].map(MountId)));
    found(&mut world, 10, 2, 3);
    assert_eq!(world.state("a"), (Degraded, Some(Reason::ConsumerStale)));
    let status = world.status("a");
    assert_eq!((status.stale_mounts, status.stale_files, status.stale.len()), (2, 3, 2));
    assert!(
        status.condition.message.contains("/data of python3 (process 70"),
        "{}",
        status.condition.message
    );
    // The containers end; one process still has its files.
    found(&mut world, 10, 0, 1);
    world.run(seconds(40));
    assert_eq!(world.state("a"), (Healthy, None));
    assert_eq!((world.status("a").stale_mounts, world.status("a").stale_files), (0, 1));
    found(&mut world, 10, 0, 0);
    assert!(asked(&world).is_empty(), "nobody holds it any more");
}

#[test]
fn consumers_follow_by_a_plan_of_their_own_and_the_next_look_decides() {
    let mut world = World::healthy(vec![sshfs(Mode::Act, Reach::Unowned)]);
    fall(&mut world);
    let plan = world.running().pop().unwrap();
    let swaps = |plan: &Plan| {
        plan.actions.iter().any(|action| matches!(action, Action::SwapConsumers { holding: Some(_), .. }))
    };
    assert!(swaps(&plan));
    world.replace("/mnt/a", 20);
    world.answer("a", Answer::Now(good()));
    world.feed(followed(&plan, Outcome::Refused(Refusal::ConsumersLeft)));
    assert!(asked(&world).iter().any(|dead| dead.ids.contains(&MountId(501))));
    found(&mut world, 10, 1, 0);
    world.run(seconds(3));
    assert_eq!(world.state("a"), (Recovering, Some(Reason::ConsumerStale)));
    let plan = world.running().pop().unwrap();
    assert_eq!((plan.old, plan.reason), (Some(device(10)), Some(Reason::ConsumerStale)));
    assert_eq!(plan.actions.len(), 3, "nothing is mounted anew: {:?}", plan.actions);
    let begun = world.now;
    world.run(millis(10));
    world.feed(followed(&plan, Outcome::Changed));
    world.run(millis(10));
    assert_eq!(world.state("a").0, Probation);
    // A look that began before the plan ended says nothing of its work.
    let late = Found {
        volume: VolumeId::new("a"),
        superblock: device(10),
        has_holding: true,
        mounts: 1,
        shown: Vec::new(),
        ids: BTreeSet::new(),
        files: 0,
        holders: Vec::new(),
    };
    world.feed(Input::Consumers(Consumers { at: begun, found: vec![late] }));
    assert_eq!(world.state("a").0, Probation);
    found(&mut world, 10, 0, 0);
    world.run(seconds(40));
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn what_mounts_still_show_is_not_forgotten_however_often_the_daemon_dies() {
    let mut world = World::healthy(vec![sshfs(Mode::Observe, Reach::Unowned)]);
    let mut old = 10;
    for minor in 20..30 {
        world.answer("a", fails(107));
        world.hint(old, None, 107, Op::Read);
        world.run(seconds(5));
        assert_eq!(world.state("a"), (Degraded, Some(Reason::Disconnected)), "{old}");
        heal(&mut world, minor);
        // The first is a container's that cannot follow; of the others only files are open.
        found(&mut world, old, u64::from(old == 10), 1);
        world.run(seconds(1));
        old = minor;
    }
    assert_eq!(world.status("a").stale_mounts, 1);
    assert_eq!(world.state("a"), (Degraded, Some(Reason::ConsumerStale)));
    assert!(asked(&world).iter().any(|dead| dead.superblock == device(10)));
    assert!(asked(&world).len() <= 6, "{:?}", asked(&world));
}

#[test]
fn consumers_that_may_not_be_touched_are_told_and_left() {
    let mut world = World::healthy(vec![sshfs(Mode::Act, Reach::Nothing)]);
    fall(&mut world);
    let plan = world.running().pop().unwrap();
    assert!(!plan.actions.iter().any(|action| matches!(action, Action::SwapConsumers { .. })));
    heal(&mut world, 20);
    world.finish(plan.id, Outcome::Changed);
    found(&mut world, 10, 1, 0);
    world.run(seconds(30));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::ConsumerStale)));
    assert!(world.running().is_empty());
}

#[test]
fn a_number_that_is_used_again_by_the_volume_itself_is_nobody_elses() {
    let mut world = World::healthy(vec![sshfs(Mode::Observe, Reach::Unowned)]);
    fall(&mut world);
    world.unmount("/mnt/a");
    assert_eq!(asked(&world).len(), 1, "what was unmounted may still be held");
    let mount = super::world::mount(77, 10, "/mnt/a", "fuse.sshfs", "a-host:");
    world.mounts.push(mount);
    world.answer("a", Answer::Now(good()));
    world.table();
    world.run(seconds(40));
    assert_eq!(world.state("a"), (Healthy, None));
    assert!(asked(&world).is_empty());
}

fn guards_found(mounts: u64) -> Found {
    Found {
        volume: VolumeId::new("a"),
        superblock: device(10),
        has_holding: false,
        mounts,
        shown: Vec::new(),
        ids: BTreeSet::new(),
        files: 0,
        holders: Vec::new(),
    }
}

#[test]
fn guards_of_a_plan_that_was_cut_off_are_looked_for() {
    let mut world = World::healthy(vec![spec("a", "ext4", "/dev/sdb", Mode::Act)]);
    world.feed(Input::Unfinished(vec![Unfinished {
        plan: PlanId(7),
        volume: VolumeId::new("a"),
        mountpoint: "/mnt/a".into(),
        stage: "/run/mountie/stage/7".into(),
        old: Some(device(10)),
        marks: None,
        holders: BTreeSet::new(),
    }]));
    let settling = world.running().pop().unwrap();
    assert_eq!(settling.actions, [Action::Unstage]);
    world.finish(settling.id, Outcome::AlreadySo);
    world.run(millis(100));
    assert!(asked(&world).iter().any(|dead| dead.holding.is_none()), "{:?}", asked(&world));
    let at = world.now;
    world.feed(Input::Consumers(Consumers { at, found: vec![guards_found(1)] }));
    world.run(seconds(60));
    let plan = world.running().pop().unwrap();
    // The device has its number again: nothing may be refused for that.
    assert_eq!((plan.reason, plan.old), (Some(Reason::ConsumerStale), None));
    world.feed(followed(&plan, Outcome::Changed));
    let at = world.now;
    world.feed(Input::Consumers(Consumers { at, found: vec![guards_found(0)] }));
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Healthy, None));
    assert!(asked(&world).is_empty());
}

#[test]
fn who_holds_what_a_plan_replaced_that_was_cut_off_is_looked_for() {
    let mut world = World::healthy(vec![spec("a", "fuse.x", "x", Mode::Act)]);
    let cut_off = |old, holders: &[u32]| {
        let holding = Holding { root: "/".into(), fstype: "fuse.x".into(), source: b"x".to_vec() };
        Input::Unfinished(vec![Unfinished {
            plan: PlanId(7),
            volume: VolumeId::new("a"),
            mountpoint: "/mnt/a".into(),
            stage: "/run/mountie/stage/7".into(),
            old: Some(old),
            marks: Some(Marks {
                holding,
                unique: BTreeSet::new(),
                here: BTreeSet::new(),
                others: BTreeSet::new(),
                own: BTreeSet::new(),
            }),
            holders: holders.iter().copied().map(MountId).collect(),
        }])
    };
    let settle = |world: &mut World| {
        let settling = world.running().pop().unwrap();
        world.finish(settling.id, Outcome::AlreadySo);
        world.run(millis(100));
    };
    let held = |world: &World| asked(world).into_iter().find(|dead| dead.holding.is_some());
    // It has replaced nothing yet, or nobody else held it.
    for input in [cut_off(device(10), &[31]), cut_off(device(77), &[])] {
        world.feed(input);
        settle(&mut world);
        assert_eq!(held(&world), None);
    }
    world.feed(cut_off(device(77), &[31, 32]));
    settle(&mut world);
    let dead = held(&world).unwrap();
    assert_eq!((dead.superblock, dead.is_shown), (device(77), false));
    assert!(dead.knows(MountId(31)) && dead.knows(MountId(32)));
    let at = world.now;
    let found =
        Found { superblock: device(77), has_holding: true, ids: [MountId(31)].into(), ..guards_found(1) };
    world.feed(Input::Consumers(Consumers { at, found: vec![found] }));
    world.run(seconds(60));
    let plan = world.running().pop().unwrap();
    assert_eq!((plan.reason, plan.old), (Some(Reason::ConsumerStale), Some(device(77))));
}

#[test]
fn guards_that_a_failed_repair_left_are_looked_for_until_they_are_gone() {
    let ext4 = spec("a", "ext4", "/dev/sdb", Mode::Act);
    let mut world = World::healthy(vec![ext4]);
    world.mounts[1].super_options = Options::parse(b"rw,emergency_ro");
    world.table();
    world.run(millis(10));
    let plan = world.running().pop().unwrap();
    world.finish(plan.id, Outcome::Refused(Refusal::Busy));
    let guards = asked(&world).into_iter().find(|dead| dead.holding.is_none()).unwrap();
    assert_eq!((guards.superblock, guards.volume.as_str()), (device(10), "a"));
    // A person ends what used it and mounts the device again; the same number is no stranger's.
    world.mounts[1].super_options = Options::parse(b"rw");
    world.mounts[1].id = MountId(44);
    world.table();
    world.run(millis(100));
    let one = guards_found(1);
    let at = world.now;
    world.feed(Input::Consumers(Consumers { at, found: vec![one] }));
    world.run(seconds(60));
    let plan = world.running().pop().unwrap();
    let guards = Action::SwapConsumers { holding: None, ids: None, reach: Reach::Unowned };
    assert_eq!((plan.reason, plan.actions.get(1)), (Some(Reason::ConsumerStale), Some(&guards)));
    world.feed(followed(&plan, Outcome::Changed));
    let none = guards_found(0);
    let at = world.now;
    world.feed(Input::Consumers(Consumers { at, found: vec![none] }));
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Healthy, None));
    assert!(asked(&world).is_empty());
}

#[test]
fn consumers_that_cannot_follow_do_not_use_up_the_attempts_of_the_volume() {
    let mut world = World::healthy(vec![sshfs(Mode::Act, Reach::Unowned)]);
    fall(&mut world);
    let plan = world.running().pop().unwrap();
    world.replace("/mnt/a", 20);
    world.answer("a", Answer::Now(good()));
    world.finish(plan.id, Outcome::Changed);
    let mut tries = 0;
    for _ in 0..400 {
        found(&mut world, 10, 1, 0);
        world.run(seconds(5));
        if let Some(plan) = world.running().pop() {
            assert_eq!(plan.reason, Some(Reason::ConsumerStale));
            tries += 1;
            world.feed(followed(&plan, Outcome::Refused(Refusal::ConsumersLeft)));
        }
    }
    assert_eq!((tries, world.state("a")), (5, (Degraded, Some(Reason::ConsumerStale))));
    assert_eq!(world.status("a").attempts, 1);
    // Then the volume itself falls again, and is repaired.
    world.answer("a", fails(107));
    world.hint(20, None, 107, Op::Read);
    world.run(seconds(5));
    assert_eq!(world.running().pop().and_then(|plan| plan.reason), Some(Reason::Disconnected));
}

#[test]
fn what_a_hook_says_of_consumers_does_not_keep_the_volume_from_its_repair() {
    for said in [Said::Escalate, Said::Wait(seconds(3600))] {
        let mut asked_about = sshfs(Mode::Act, Reach::Unowned);
        let how = HookWay::Exec(vec!["/ask".into()]);
        asked_about.repair.hook = Some(Hook { how, timeout: seconds(10) });
        let mut world = World::healthy(vec![asked_about]);
        fall(&mut world);
        let plan = world.running().pop().unwrap();
        world.replace("/mnt/a", 20);
        world.answer("a", Answer::Now(good()));
        world.finish(plan.id, Outcome::Changed);
        world.hooks.insert("a".into(), Some(said.clone()));
        found(&mut world, 10, 1, 0);
        world.run(seconds(60));
        assert_eq!(world.state("a"), (Degraded, Some(Reason::ConsumerStale)), "{said:?}");
        assert!(world.running().is_empty());
        assert_eq!(world.status("a").asked.unwrap().answered.unwrap().1, said);
        // Then the volume itself falls again.
        world.hooks.insert("a".into(), Some(Said::Remount));
        world.answer("a", fails(107));
        world.hint(20, None, 107, Op::Read);
        world.run(seconds(10));
        let reason = world.running().pop().and_then(|plan| plan.reason);
        assert_eq!((reason, world.state("a").0), (Some(Reason::Disconnected), Recovering), "{said:?}");
    }
}

#[test]
fn who_was_left_behind_is_looked_for_after_a_restart_too() {
    let mut world = World::healthy(vec![sshfs(Mode::Observe, Reach::Unowned)]);
    fall(&mut world);
    heal(&mut world, 20);
    found(&mut world, 10, 1, 0);
    world.restart();
    world.table();
    assert_eq!(asked(&world).len(), 1);
    world.run(millis(100));
    found(&mut world, 10, 1, 0);
    world.run(seconds(40));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::ConsumerStale)));
    // Of another boot nothing of it is left.
    world.stored.values_mut().for_each(|memory| memory.left.clear());
    world.reboot(crate::time::Monotonic::from_nanos(9_000_000_000));
    world.table();
    world.run(seconds(40));
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn what_was_replaced_while_the_agent_was_away_is_looked_for() {
    let mut world = World::healthy(vec![sshfs(Mode::Observe, Reach::Unowned)]);
    fall(&mut world);
    world.restart();
    heal(&mut world, 20);
    let dead = asked(&world);
    assert_eq!(dead.iter().map(|dead| dead.superblock).collect::<Vec<_>>(), [device(10)]);
    assert!(dead[0].ids.contains(&MountId(10)));
}

/// Somebody unmounts the dead one while a container holds it: the kernel would find it again for the next mount.
#[test]
fn what_is_still_held_is_not_shown_again_where_nothing_is_mounted() {
    let mut world = World::healthy(vec![sshfs(Mode::Act, Reach::Unowned)]);
    fall(&mut world);
    let plan = world.running().pop().unwrap();
    assert_eq!(plan.dead, None, "what is mounted is the old one itself");
    world.unmount("/mnt/a");
    world.feed(followed(&plan, Outcome::Refused(Refusal::TableChanged)));
    world.run(seconds(60));
    let plan = world.running().pop().unwrap();
    assert_eq!((plan.reason, plan.old), (Some(Reason::Missing), None));
    assert_eq!(plan.dead, Some(BTreeSet::new()), "it may be held, and its number may be the next one's");
    found(&mut world, 10, 2, 0);
    world.finish(plan.id, Outcome::TimedOut);
    world.run(seconds(60));
    let plan = world.running().pop().unwrap();
    assert_eq!(plan.dead, Some(BTreeSet::from([device(10)])));
    found(&mut world, 10, 0, 0);
    world.finish(plan.id, Outcome::TimedOut);
    world.run(seconds(60));
    assert_eq!(world.running().pop().unwrap().dead, None);
}
