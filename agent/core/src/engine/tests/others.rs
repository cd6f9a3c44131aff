//! Others who heal: they are left to work, and nobody works beside them.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::world::{Answer, World, device, fails, good, millis, mount, seconds, spec};
use crate::engine::{Input, Output};
use crate::id::{MountId, PlanId};
use crate::observation::Op;
use crate::remediation::{Outcome, Refusal};
use crate::status::Hold;
use crate::topology::Options;
use crate::verdict::HealthState::{Degraded, Healthy, Recovering};
use crate::verdict::Reason;
use crate::volume::Mode;

fn fallen(mode: Mode) -> World {
    let mut world = World::healthy(vec![spec("a", "fuse.bindfs", "/data", mode)]);
    world.answer("a", fails(107));
    world.hint(10, None, 107, Op::Read);
    world.run(seconds(1));
    world
}

fn stopped(world: &World) -> Vec<PlanId> {
    let stop = |(_, output): &(_, Output)| match output {
        Output::Stop(plan) => Some(*plan),
        _ => None,
    };
    world.log.iter().filter_map(stop).collect()
}

fn told(world: &World) -> Vec<String> {
    let history = world.status("a").history;
    history.into_iter().map(|one| one.message).filter(|message| message.contains("somebody else")).collect()
}

#[test]
fn a_plan_stops_when_somebody_else_mounts_at_its_place() {
    let mut world = fallen(Mode::Act);
    let plan = world.running().pop().unwrap();
    world.answer("a", Answer::Now(good()));
    world.replaced_by_others("/mnt/a", 30);
    assert_eq!(stopped(&world), [plan.id]);
    world.table();
    assert_eq!(stopped(&world), [plan.id], "once");
    world.finish(plan.id, Outcome::Refused(Refusal::TableChanged));
    world.run(seconds(20));
    assert_eq!(world.state("a").0, Healthy, "it was looked at, and what the other did is good");
    assert!(world.running().is_empty());
    let told = told(&world);
    assert!(told.iter().any(|message| message.contains("plan 100 is stopped")), "{told:?}");
}

#[test]
fn a_plan_stops_when_somebody_else_unmounts_or_covers_its_place() {
    for covers in [false, true] {
        let mut world = fallen(Mode::Act);
        if covers {
            let mut over = mount(31, 31, "/mnt/a", "tmpfs", "scratch");
            over.parent = MountId(10);
            world.mounts.push(over);
            world.table();
        } else {
            world.unmount("/mnt/a");
        }
        assert_eq!(stopped(&world), [PlanId(100)], "covers: {covers}");
    }
}

#[test]
fn what_the_plan_does_itself_does_not_stop_it() {
    let mut world = fallen(Mode::Act);
    world.mounts.push(mount(40, 40, "/run/mountie/stage/100", "fuse.bindfs", "/data"));
    world.table();
    assert_eq!(stopped(&world), []);
    world.feed(Input::PlanShows(PlanId(100)));
    world.answer("a", Answer::Now(good()));
    world.replaced_by_others("/mnt/a", 40);
    assert_eq!((stopped(&world), told(&world)), (vec![], vec![]));
    world.finish(PlanId(100), Outcome::Changed);
    world.run(seconds(10));
    assert_eq!(world.state("a").0, Healthy);
}

#[test]
fn the_agents_own_change_that_the_table_shows_late_is_nobody_elses() {
    let mut world = fallen(Mode::Act);
    world.answer("a", Answer::Now(good()));
    world.feed(Input::PlanShows(PlanId(100)));
    world.finish(PlanId(100), Outcome::Changed);
    world.run(millis(500));
    world.replaced_by_others("/mnt/a", 40);
    assert_eq!(told(&world), Vec::<String>::new());
}

#[test]
fn a_repair_that_is_due_lets_the_other_go_first() {
    let mut world = fallen(Mode::Act);
    world.finish(PlanId(100), Outcome::TimedOut);
    world.log.clear();
    world.unmount("/mnt/a");
    world.run(seconds(5));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Missing)));
    assert!(world.running().is_empty(), "whoever unmounts may mount in a moment");
    assert_eq!(world.status("a").held_up.unwrap().hold, Hold::Change);
    assert_eq!(told(&world).len(), 1);
    world.run(seconds(10));
    assert_eq!(world.state("a").0, Recovering, "nobody did");
}

#[test]
fn what_nobody_would_repair_is_nobodys_business() {
    let mut world = fallen(Mode::Observe);
    world.unmount("/mnt/a");
    assert_eq!(told(&world), Vec::<String>::new());
    let mut world = World::healthy(vec![spec("a", "fuse.bindfs", "/data", Mode::Act)]);
    world.replaced_by_others("/mnt/a", 30);
    world.run(seconds(5));
    assert_eq!((world.state("a").0, told(&world)), (Healthy, vec![]));
}

#[test]
fn a_refusal_because_of_others_gives_them_time() {
    let mut world = fallen(Mode::Act);
    world.finish(PlanId(100), Outcome::Refused(Refusal::TableChanged));
    world.run(seconds(9));
    assert!(world.running().is_empty());
    assert!(world.status("a").condition.message.contains("somebody else"));
    world.run(seconds(3));
    assert_eq!(world.running().len(), 1);
}

#[test]
fn where_another_healer_is_in_charge_it_has_its_time_first() {
    let mut world = World::healthy(vec![spec("a", "fuse.bindfs", "/data", Mode::Act)]);
    let mut trap = mount(50, 50, "/mnt/a", "autofs", "systemd-1");
    trap.super_options = Options::parse(b"rw,timeout=0,direct");
    world.mounts.insert(1, trap);
    world.mounts[2].parent = MountId(50);
    world.table();
    world.run(seconds(2));
    world.answer("a", fails(107));
    world.hint(10, None, 107, Op::Read);
    world.run(seconds(13));
    assert_eq!(world.state("a").0, Degraded);
    let held = world.status("a").held_up.unwrap();
    assert_eq!(held.hold, Hold::Healer);
    assert_eq!(held.text, "left to an automount unit of systemd first");
    assert!(world.status("a").history.iter().any(|one| one.message.contains("left to an automount unit")));
    world.run(seconds(5));
    assert_eq!((world.state("a").0, world.running().len()), (Recovering, 1));
    assert_eq!(world.running()[0].old, Some(device(10)));
}

/// A driver that publishes again every minute, and never the right thing: when it gives up, there are attempts left.
#[test]
fn a_plan_that_is_stopped_for_another_healer_costs_no_attempt() {
    let mut world = fallen(Mode::Act);
    for round in 0..9 {
        let plan = world.running().pop().unwrap();
        world.replaced_by_others("/mnt/a", 30 + round);
        world.finish(plan.id, Outcome::Refused(Refusal::TableChanged));
        assert_eq!(world.status("a").attempts, 0);
        assert!(world.running().is_empty(), "the other goes first");
        world.run(seconds(60));
        assert_eq!(world.state("a").0, Recovering);
    }
    assert_eq!(world.status("a").attempts, 1, "the one that runs");
}

#[test]
fn a_plan_that_has_changed_the_place_costs_its_attempt() {
    let mut world = fallen(Mode::Act);
    world.feed(Input::PlanShows(PlanId(100)));
    world.finish(PlanId(100), Outcome::Refused(Refusal::TableChanged));
    assert_eq!(world.status("a").attempts, 1);
}
