//! What a dead run left is settled first, and told to the journal.

use alloc::collections::BTreeSet;
use alloc::vec;

use super::world::{World, device, millis, mount, seconds, spec};
use crate::engine::Input;
use crate::id::{MountId, PlanId, VolumeId};
use crate::observation::{Op, Unfinished};
use crate::remediation::consumers::Holding;
use crate::remediation::{Action, Marks, Outcome, Refusal};
use crate::verdict::HealthState::{Degraded, Healthy, Recovering};
use crate::volume::{Mode, VolumeSpec};

fn sshfs(mode: Mode) -> VolumeSpec {
    spec("a", "fuse.sshfs", "host:", mode)
}

fn unfinished() -> Input {
    Input::Unfinished(vec![Unfinished {
        plan: PlanId(7),
        volume: VolumeId::new("a"),
        mountpoint: "/mnt/a".into(),
        stage: "/run/mountie/stage/7".into(),
        old: Some(device(9)),
        marks: Some(Marks {
            holding: Holding { root: "/".into(), fstype: "fuse.sshfs".into(), source: b"host:".to_vec() },
            unique: BTreeSet::new(),
            here: BTreeSet::new(),
            others: BTreeSet::new(),
            own: BTreeSet::new(),
        }),
        holders: BTreeSet::new(),
    }])
}

#[test]
fn an_intent_of_which_the_table_shows_nothing_has_its_directory_taken_away() {
    let mut world = World::new(vec![sshfs(Mode::Act)]);
    world.feed(unfinished());
    assert_eq!(world.settled(), []);
    world.table();
    let plan = world.running().pop().unwrap();
    assert_eq!((plan.actions.as_slice(), plan.reason), ([Action::Unstage].as_slice(), None));
    world.finish(plan.id, Outcome::AlreadySo);
    assert_eq!(world.settled(), [PlanId(7)]);
    assert!(world.running().is_empty());
}

#[test]
fn a_swap_that_was_cut_off_is_finished_before_anything_else() {
    let mut world = World::new(vec![sshfs(Mode::Act)]);
    // The old mount lies on top of the new one, and the volume is covered by nothing else.
    let mut old = mount(9, 9, "/mnt/a", "fuse.sshfs", "host:");
    old.parent = MountId(10);
    world.mounts.push(old);
    world.mounts.push(mount(30, 30, "/run/mountie/stage/7", "fuse.sshfs", "host:"));
    world.answer("a", super::world::fails(107));
    world.feed(unfinished());
    world.table();
    let plan = world.running().pop().unwrap();
    assert_eq!(plan.actions, [Action::DetachTop, Action::Unstage]);
    assert_eq!((plan.reason, plan.old), (None, Some(device(9))));
    world.run(seconds(30));
    assert_eq!(world.running().len(), 1, "no repair beside it");
    world.mounts.truncate(2);
    world.table();
    world.answer("a", super::world::Answer::Now(super::world::good()));
    world.finish(plan.id, Outcome::Changed);
    assert_eq!(world.settled(), [PlanId(7)]);
    world.run(seconds(5));
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn repair_waits_until_what_is_left_is_settled() {
    let mut world = World::new(vec![sshfs(Mode::Act)]);
    world.mounts[1].mountpoint = "/run/mountie/stage/7".into();
    world.feed(unfinished());
    world.table();
    world.run(millis(1));
    assert_eq!(world.state("a").0, Degraded);
    let plan = world.running().pop().unwrap();
    assert_eq!(plan.actions, [Action::Unstage]);
    world.unmount("/run/mountie/stage/7");
    world.finish(plan.id, Outcome::AlreadySo);
    world.run(millis(5));
    assert_eq!(world.state("a").0, Recovering);
    assert_eq!(world.running()[0].reason, Some(crate::verdict::Reason::Missing));
}

#[test]
fn what_cannot_be_settled_is_tried_a_few_times_then_told() {
    let mut world = World::new(vec![sshfs(Mode::Observe)]);
    world.mounts.push(mount(30, 30, "/run/mountie/stage/7", "fuse.sshfs", "host:"));
    world.feed(unfinished());
    world.table();
    for _ in 0..5 {
        let plan = world.running().pop().unwrap();
        world.finish(plan.id, Outcome::TimedOut);
        world.run(seconds(15));
    }
    assert!(world.running().is_empty());
    assert_eq!(world.settled(), [PlanId(7)]);
    assert_eq!(world.notes(), 1);
    world.run(seconds(500));
    world.unmount("/run/mountie/stage/7");
    assert!(world.running().is_empty());
    assert_eq!(world.settled(), [PlanId(7)]);
}

#[test]
fn a_private_place_of_no_plan_is_taken_away_after_a_while() {
    let mut world = World::healthy(vec![sshfs(Mode::Observe)]);
    world.mounts.push(mount(29, 29, "/run/mountie/stage", "tmpfs", "tmpfs"));
    world.mounts.push(mount(30, 30, "/run/mountie/stage/3/inner", "fuse.sshfs", "host:"));
    world.table();
    assert!(world.running().is_empty(), "the table may be older than the end of a plan");
    world.run(seconds(3));
    let plan = world.running().pop().unwrap();
    assert_eq!(plan.stage, "/run/mountie/stage/3".into());
    assert_eq!(plan.actions, [Action::Unstage]);
    world.mounts.pop();
    world.table();
    world.finish(plan.id, Outcome::Changed);
    world.run(seconds(100));
    assert!(world.running().is_empty());
    assert_eq!(world.settled(), []);
}

#[test]
fn a_place_that_is_gone_in_time_needs_no_plan() {
    let mut world = World::healthy(vec![sshfs(Mode::Observe)]);
    world.mounts.push(mount(30, 30, "/run/mountie/stage/3", "fuse.sshfs", "host:"));
    world.table();
    world.run(millis(500));
    world.mounts.pop();
    world.table();
    world.run(seconds(100));
    assert!(world.running().is_empty());
}

#[test]
fn plan_ids_stay_above_those_of_the_journal() {
    let mut world = World::new(vec![sshfs(Mode::Act)]);
    world.feed(Input::Unfinished(vec![Unfinished {
        plan: PlanId(5000),
        volume: VolumeId::new("other"),
        mountpoint: "/mnt/other".into(),
        stage: "/run/mountie/stage/5000".into(),
        old: None,
        marks: None,
        holders: BTreeSet::new(),
    }]));
    world.unmount("/mnt/a");
    let settling = world.running().remove(0);
    assert_eq!(settling.id, PlanId(5001));
    world.finish(settling.id, Outcome::AlreadySo);
    world.run(millis(5));
    assert_eq!(world.running()[0].id, PlanId(5002));
    assert_eq!(world.settled(), [PlanId(5000)]);
}

#[test]
fn a_plan_that_was_lost_while_the_agent_runs_is_settled_like_one_of_a_dead_run() {
    let mut world = World::healthy(vec![sshfs(Mode::Act)]);
    world.answer("a", super::world::fails(107));
    world.run(seconds(12));
    let lost = world.running().pop().unwrap();
    assert!(lost.reason.is_some());
    world.mounts.push(mount(30, 30, "/run/mountie/stage/100", "fuse.sshfs", "host:"));
    world.table();
    world.feed(Input::Unfinished(vec![Unfinished {
        plan: lost.id,
        volume: lost.volume.clone(),
        mountpoint: lost.mountpoint.clone(),
        stage: lost.stage.clone(),
        old: lost.old,
        marks: lost.marks.clone(),
        holders: BTreeSet::new(),
    }]));
    assert_eq!(world.running(), core::slice::from_ref(&lost), "not beside the plan itself");
    world.finish(lost.id, Outcome::Interrupted);
    let settling = world.running().pop().unwrap();
    assert_eq!((settling.actions.as_slice(), settling.reason), ([Action::Unstage].as_slice(), None));
    world.mounts.truncate(2);
    world.table();
    world.finish(settling.id, Outcome::Changed);
    assert_eq!(world.settled(), [lost.id]);
    world.run(seconds(30));
    assert!(world.running().pop().is_some_and(|plan| plan.reason.is_some()), "and repaired after that");
}

/// The daemon of a volume died, and the plan that replaces it has begun to change the place.
fn swapping(beneath: &[u32]) -> World {
    let mut world = World::healthy(vec![sshfs(Mode::Act)]);
    for number in beneath {
        lay_beneath(&mut world, *number);
    }
    world.table();
    world.answer("a", super::world::fails(107));
    world.hint(10, None, 107, Op::Read);
    world.run(seconds(1));
    let plan = world.running().pop().unwrap();
    world.feed(Input::PlanShows(plan.id));
    world
}

/// A mount of its own beneath the one that is on top at `/mnt/a`.
fn lay_beneath(world: &mut World, number: u32) {
    world.mounts[1].parent = MountId(number);
    world.mounts.push(mount(number, number, "/mnt/a", "fuse.sshfs", "host:"));
}

#[test]
fn a_swap_that_failed_between_its_halves_is_finished_before_the_next_repair() {
    for outcome in [Outcome::TimedOut, Outcome::HelperFailed(-9), Outcome::Refused(Refusal::TableChanged)] {
        let mut world = swapping(&[]);
        let plan = world.running().pop().unwrap();
        // The plan ends before a table shows what it has left.
        world.finish(plan.id, outcome);
        lay_beneath(&mut world, 20);
        world.table();
        world.run(seconds(3));
        let settling = world.running().pop().unwrap();
        assert_eq!((settling.actions.as_slice(), settling.reason), ([Action::DetachTop].as_slice(), None));
        assert_eq!((settling.old, &settling.marks), (plan.old, &plan.marks));
        world.mounts.remove(1);
        world.answer("a", super::world::Answer::Now(super::world::good()));
        world.table();
        world.finish(settling.id, Outcome::Changed);
        world.run(seconds(5));
        assert_eq!(world.state("a"), (Healthy, None));
        assert_eq!(world.settled(), [], "the journal has the end of the plan already");
    }
}

#[test]
fn a_plan_that_has_not_changed_the_place_leaves_nothing_to_finish() {
    for (outcome, shows) in [(Outcome::TimedOut, false), (Outcome::Refused(Refusal::Busy), true)] {
        let mut world = World::healthy(vec![sshfs(Mode::Act)]);
        world.answer("a", super::world::fails(107));
        world.hint(10, None, 107, Op::Read);
        world.run(seconds(1));
        let plan = world.running().pop().unwrap();
        if shows {
            world.feed(Input::PlanShows(plan.id));
        }
        world.finish(plan.id, outcome);
        // Somebody else's doing.
        lay_beneath(&mut world, 20);
        world.table();
        world.run(seconds(200));
        assert!(world.running().iter().all(|plan| plan.reason.is_some()), "{:?}", world.running());
    }
}

#[test]
fn what_lay_beneath_before_a_plan_is_not_shown_by_the_end_of_its_swap() {
    let mut world = swapping(&[5]);
    let plan = world.running().pop().unwrap();
    assert_eq!(plan.marks.as_ref().unwrap().others, BTreeSet::from([MountId(5)]));
    world.finish(plan.id, Outcome::TimedOut);
    world.run(seconds(200));
    let next = world.running().pop().unwrap();
    assert!(next.reason.is_some(), "{next:?}");
    assert!(next.marks.unwrap().own.is_empty());
}

#[test]
fn what_no_attempt_could_finish_goes_with_the_next_repair() {
    let mut world = swapping(&[5]);
    world.finish(PlanId(100), Outcome::TimedOut);
    world.mounts[1].parent = MountId(20);
    let mut own = mount(20, 20, "/mnt/a", "fuse.sshfs", "host:");
    own.parent = MountId(5);
    world.mounts.push(own);
    world.table();
    for _ in 0..5 {
        world.run(seconds(15));
        let settling = world.running().pop().unwrap();
        assert_eq!(settling.actions, [Action::DetachTop]);
        world.finish(settling.id, Outcome::TimedOut);
    }
    assert_eq!(world.notes(), 1);
    world.run(seconds(60));
    let marks = world.running().pop().unwrap().marks.unwrap();
    assert_eq!(marks.others, BTreeSet::from([MountId(5)]));
    assert_eq!(marks.own, BTreeSet::from([MountId(20)]));
}
