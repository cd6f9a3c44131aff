//! What is healed below a mount before a new one is made.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::world::{Answer, World, device, fails, good, seconds, spec};
use crate::engine::Input;
use crate::incident::Daemon;
use crate::observation::{Op, PlanReport};
use crate::remediation::{Action, Outcome, Refusal};
use crate::verdict::Reason;
use crate::volume::{Mode, VolumeSpec};

fn sshfs(mode: Mode) -> VolumeSpec {
    spec("a", "fuse.sshfs", "a-host:", mode)
}

/// A volume whose daemon runs in a unit, as the sensor tells it.
fn served(spec: VolumeSpec, unit: Option<&str>) -> World {
    let mut world = World::healthy(vec![spec]);
    let daemon = Daemon { pid: 70, comm: "sshfs".into(), unit: unit.map(String::from) };
    world.feed(Input::Daemons([(device(10), daemon)].into()));
    world
}

fn die(world: &mut World, superblock: u32) {
    world.answer("a", fails(107));
    world.hint(superblock, None, 107, Op::Read);
    world.run(seconds(1));
}

/// What the running plan does, by the kinds of its actions.
fn steps(world: &World) -> Vec<&'static str> {
    let kind = |action: &Action| match action {
        Action::RestartUnit { unit, daemon } => {
            assert_eq!((unit.as_str(), *daemon), ("a.service", Some(70)));
            "restart"
        }
        Action::AbortConnection { daemon, is_proven } => {
            assert_eq!((*daemon, *is_proven), (Some(70), true));
            "abort"
        }
        Action::Stage { .. } => "stage",
        Action::Swap { .. } => "swap",
        _ => "",
    };
    let plan = world.running().pop().unwrap();
    plan.actions.iter().map(kind).filter(|kind| !kind.is_empty()).collect()
}

/// Ends the running plan when so many of its actions were begun.
fn end(world: &mut World, outcome: Outcome, begun: usize) {
    let plan = world.running().pop().unwrap();
    // What was undone is told in lines of its own.
    let steps = vec![String::from("told"); begun + 3];
    let report = PlanReport { steps, actions_begun: begun, ..PlanReport::of(plan.id, outcome, seconds(1)) };
    world.feed(Input::PlanFinished(report));
}

fn wait_for_plan(world: &mut World) {
    for _ in 0..600 {
        if !world.running().is_empty() {
            return;
        }
        world.run(seconds(1));
    }
    panic!("no plan was made");
}

#[test]
fn a_dead_daemons_unit_is_restarted_first_and_a_new_mount_follows_where_that_does_not_help() {
    let mut world = served(sshfs(Mode::Act), Some("a.service"));
    // Its end takes it out of what the sensor sees, and not out of what is known.
    world.feed(Input::Daemons(BTreeMap::new()));
    die(&mut world, 10);
    assert_eq!(steps(&world), ["restart"]);
    let failures = [Outcome::HelperFailed(1), Outcome::Refused(Refusal::StagedSick), Outcome::TimedOut];
    for outcome in failures {
        end(&mut world, outcome, 1);
        wait_for_plan(&mut world);
        assert_eq!(steps(&world), ["stage", "swap"], "it is not restarted again and again");
    }
    let plan = world.running().pop().unwrap();
    world.answer("a", Answer::Now(good()));
    world.replace("/mnt/a", 20);
    world.finish(plan.id, Outcome::Changed);
    world.run(seconds(10));
    // Another fault is another beginning.
    let daemon = Daemon { pid: 70, comm: "sshfs".into(), unit: Some("a.service".into()) };
    world.feed(Input::Daemons([(device(20), daemon)].into()));
    die(&mut world, 20);
    wait_for_plan(&mut world);
    assert_eq!(steps(&world), ["restart"]);
}

#[test]
fn a_unit_whose_turn_did_not_come_is_still_restarted_by_the_next_attempt() {
    let mut world = served(sshfs(Mode::Act), Some("a.service"));
    world.answer("a", Answer::Hangs);
    let restarted = ["stage", "abort", "restart"];
    for (outcome, begun) in
        [(Outcome::Refused(Refusal::StagedSick), 2), (Outcome::HelperFailed(1), 1), (Outcome::TimedOut, 5)]
    {
        wait_for_plan(&mut world);
        assert_eq!(steps(&world), restarted);
        end(&mut world, outcome, begun);
    }
    wait_for_plan(&mut world);
    assert_eq!(steps(&world), ["stage", "abort", "swap"]);
}

#[test]
fn a_daemon_that_runs_in_no_unit_is_replaced_by_a_new_mount() {
    let mut world = served(sshfs(Mode::Act), None);
    die(&mut world, 10);
    assert_eq!(steps(&world), ["stage", "swap"]);
}

#[test]
fn a_hung_connection_is_ended_in_its_plan_unless_the_operator_forbids_it() {
    for (heals, expected) in [(true, vec!["stage", "abort", "swap"]), (false, vec!["stage", "swap"])] {
        let mut spec = sshfs(Mode::Act);
        spec.repair.heal_below = heals;
        let mut world = served(spec, None);
        world.answer("a", Answer::Hangs);
        wait_for_plan(&mut world);
        let plan = world.running().pop().unwrap();
        assert_eq!(plan.reason, Some(Reason::Hung));
        assert_eq!(steps(&world), expected);
    }
}

#[test]
fn a_dry_run_tells_what_would_be_healed_below() {
    let mut world = served(sshfs(Mode::DryRun), Some("a.service"));
    die(&mut world, 10);
    assert!(world.running().is_empty());
    let plan = world.status("a").due_plan.unwrap();
    assert!(
        matches!(
            plan.actions.as_slice(),
            [
                Action::RestartUnit { .. },
                Action::Verify { .. },
                Action::SwapConsumers { .. },
                Action::Unstage
            ]
        ),
        "{plan:?}"
    );
}

/// Asked before the connection is ended, so the plan never comes to the restart.
#[test]
fn a_unit_that_is_not_the_daemons_is_not_asked_about_again() {
    let mut world = served(sshfs(Mode::Act), Some("a.service"));
    world.answer("a", Answer::Hangs);
    wait_for_plan(&mut world);
    assert_eq!(steps(&world), ["stage", "abort", "restart"]);
    end(&mut world, Outcome::Refused(Refusal::OtherUnit), 3);
    wait_for_plan(&mut world);
    assert_eq!(steps(&world), ["stage", "abort", "swap"]);
}
