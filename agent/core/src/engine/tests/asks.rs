//! Asking the hook before a repair.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::world::{Answer, World, fails, good, millis, seconds, spec};
use crate::engine::{Input, Output};
use crate::id::{QuestionId, VolumeId};
use crate::observation::Op;
use crate::order::Order;
use crate::pause::Scope;
use crate::remediation::Outcome;
use crate::remediation::asking::{Answer as Said, AnswerReport, NoAnswer, Question};
use crate::status::Hold;
use crate::verdict::HealthState::{Degraded, Healthy, Quarantined, Recovering};
use crate::volume::{Hook, HookWay, Mode, VolumeSpec};

fn asked_about(name: &str, mode: Mode) -> VolumeSpec {
    let mut spec = spec(name, "ext4", &alloc::format!("/dev/{name}"), mode);
    spec.repair.hook = Some(Hook { how: HookWay::Exec(vec!["/ask".into()]), timeout: seconds(10) });
    spec
}

fn fall(world: &mut World) {
    world.answer("a", fails(5));
    world.hint(10, None, 5, Op::Read);
    world.run(seconds(1));
}

/// A volume that has just fallen, with a hook that answers like this.
fn fallen(said: Option<Said>) -> World {
    let mut world = World::healthy(vec![asked_about("a", Mode::Act)]);
    world.hooks.insert("a".into(), said);
    fall(&mut world);
    world
}

fn questions(world: &World) -> Vec<Question> {
    let question = |(_, output): &(_, Output)| match output {
        Output::Ask(question) => Some(Question::clone(question)),
        _ => None,
    };
    world.log.iter().filter_map(question).collect()
}

fn wait(time: u64) -> Option<Said> {
    Some(Said::Wait(seconds(time)))
}

fn message(world: &World) -> String {
    world.status("a").condition.message
}

#[test]
fn a_repair_begins_when_the_hook_says_so() {
    let mut world = fallen(Some(Said::Remount));
    let asked = questions(&world);
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].put_off, asked[0].put_off_at_most), (0, 10));
    let plan = world.running().pop().unwrap();
    assert_eq!(asked[0].plan.actions, plan.actions, "it was told what is done");
    assert_eq!(world.state("a").0, Recovering);
    let shown = world.status("a").asked.unwrap();
    assert_eq!(shown.answered.unwrap().1, Said::Remount);
    assert_eq!(world.status("a").hook.as_deref(), Some("/ask"));
    let said =
        |world: &World| world.status("a").history.iter().any(|one| one.message.contains("says remount"));
    assert!(said(&world));

    world.finish(plan.id, Outcome::TimedOut);
    world.run(seconds(5));
    assert_eq!(questions(&world).len(), 2, "each attempt is asked about");
}

#[test]
fn a_wait_is_kept_and_costs_no_attempt() {
    let mut world = fallen(wait(30));
    assert!(world.running().is_empty());
    assert_eq!(world.state("a").0, Degraded);
    let held = world.status("a").held_up.unwrap();
    assert_eq!(held.hold, Hold::Hook);
    assert!(world.status("a").next_attempt.is_some());
    world.hooks.insert("a".into(), Some(Said::Remount));
    world.run(seconds(28));
    assert_eq!(questions(&world).len(), 1);
    assert!(message(&world).contains("put off by its hook"), "{}", message(&world));
    world.run(seconds(2));
    assert_eq!(questions(&world).len(), 2);
    assert_eq!((world.running().len(), world.status("a").attempts), (1, 1));
    assert_eq!(world.status("a").held_up, None);
    let held = world.log.iter().filter(|(_, output)| matches!(output, Output::Held(_, Hold::Hook))).count();
    assert_eq!(held, 1);
}

#[test]
fn who_puts_off_for_ever_hands_over_to_a_person() {
    for said in [wait(1), Some(Said::Resolved), Some(Said::Nothing(NoAnswer::Failed)), None] {
        let mut world = fallen(said.clone());
        world.run(seconds(8000));
        assert_eq!(questions(&world).len(), 11, "{said:?}");
        assert_eq!(world.state("a").0, Quarantined, "{said:?}");
        assert!(message(&world).contains("put the repair off 10 times"), "{}", message(&world));
        assert!(world.log.iter().all(|(_, output)| !matches!(output, Output::Execute(_))));

        world.answer("a", Answer::Now(good()));
        world.run(seconds(30));
        assert_eq!(world.state("a").0, Healthy);
        world.hooks.insert("a".into(), Some(Said::Remount));
        fall(&mut world);
        assert_eq!(world.state("a").0, Recovering, "what was said of the last fall does not count");
    }
}

#[test]
fn escalation_ends_it_with_what_the_hook_said() {
    let mut world = fallen(Some(Said::Escalate));
    assert_eq!(world.state("a").0, Quarantined);
    world.run(seconds(100));
    assert!(message(&world).contains("a person must act: because"), "{}", message(&world));
    assert_eq!(world.status("a").attempts, 0);
    world.hooks.insert("a".into(), Some(Said::Remount));
    world.policy.volumes[0].repair.max_attempts = 3;
    world.feed(Input::Policy(world.policy.clone()));
    world.run(millis(10));
    assert_eq!(world.state("a").0, Recovering, "new settings ask anew");
}

#[test]
fn what_the_hook_has_healed_is_looked_at_and_not_repaired() {
    let mut world = World::healthy(vec![asked_about("a", Mode::Act)]);
    world.hooks.insert("a".into(), Some(Said::Resolved));
    world.answer("a", Answer::Never);
    world.answer("a", fails(5));
    world.hint(10, None, 5, Op::Read);
    world.run(millis(2));
    world.answer("a", Answer::Now(good()));
    world.run(seconds(10));
    assert_eq!(world.state("a").0, Healthy);
    assert_eq!(questions(&world).len(), 1);
    assert!(world.running().is_empty());
}

#[test]
fn only_a_repair_that_would_be_made_is_asked_about() {
    for mode in [Mode::Observe, Mode::DryRun] {
        let mut world = World::healthy(vec![asked_about("a", mode)]);
        fall(&mut world);
        world.run(seconds(60));
        assert_eq!(questions(&world).len(), 0, "{mode:?}");
    }
}

#[test]
fn no_more_hooks_are_asked_at_once_than_plans_may_run() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut world = World::healthy(names.iter().map(|name| asked_about(name, Mode::Act)).collect());
    for (name, minor) in names.iter().zip(10..) {
        world.hooks.insert((*name).into(), None);
        world.answer(name, fails(5));
        world.hint(minor, None, 5, Op::Read);
    }
    world.run(seconds(10));
    assert_eq!(questions(&world).len(), 4);
    world.run(seconds(15));
    let asked: alloc::collections::BTreeSet<_> =
        questions(&world).into_iter().map(|one| one.volume).collect();
    assert_eq!(asked.len(), 6, "who is lost makes room");
}

#[test]
fn an_answer_that_nobody_waits_for_changes_nothing() {
    let mut world = fallen(wait(30));
    let before = world.status("a");
    world.log.clear();
    for (id, volume) in [(QuestionId(1), "a"), (QuestionId(77), "a"), (QuestionId(1), "nobody")] {
        let (volume, text) = (VolumeId::new(volume), String::new());
        let report = AnswerReport { id, volume, answer: Said::Remount, text, took: Duration::ZERO };
        world.feed(Input::Answered(report));
    }
    assert_eq!(world.status("a"), before);
    assert!(world.log.is_empty(), "{:?}", world.log);
}

#[test]
fn an_answer_for_a_volume_that_is_well_again_does_nothing() {
    let mut world = World::healthy(vec![asked_about("a", Mode::Act)]);
    world.hooks.insert("a".into(), None);
    fall(&mut world);
    let question = questions(&world).pop().unwrap();
    world.answer("a", Answer::Now(good()));
    world.run(seconds(5));
    let (id, volume) = (question.id, question.volume);
    let report = AnswerReport { id, volume, answer: Said::Remount, text: String::new(), took: seconds(5) };
    world.feed(Input::Answered(report));
    world.run(seconds(20));
    assert_eq!(world.state("a").0, Healthy);
    assert!(world.running().is_empty());
}

#[test]
fn while_a_volume_is_paused_nobody_is_asked_about_it() {
    let mut world = World::healthy(vec![asked_about("a", Mode::Act)]);
    world.hooks.insert("a".into(), wait(60));
    let scope = Scope::Volume(VolumeId::new("a"));
    world.order(Order::Pause { scope: scope.clone(), until: None, reason: None }).unwrap();
    fall(&mut world);
    world.run(seconds(600));
    assert_eq!((world.state("a").0, questions(&world).len()), (Degraded, 0));
    world.order(Order::Resume(scope.clone())).unwrap();
    world.run(seconds(1));
    assert_eq!(questions(&world).len(), 1);
    assert!(world.status("a").held_up.is_some_and(|held| held.hold == Hold::Hook));
    // What it waits for then is the end of the pause.
    world.order(Order::Pause { scope: scope.clone(), until: None, reason: None }).unwrap();
    world.run(seconds(600));
    assert_eq!((world.status("a").held_up, questions(&world).len()), (None, 1));
    world.hooks.insert("a".into(), Some(Said::Remount));
    world.order(Order::Resume(scope)).unwrap();
    world.run(seconds(1));
    assert_eq!((world.state("a").0, questions(&world).len()), (Recovering, 2));
}

/// The agent ends and starts again.
fn restarted(world: &mut World) {
    world.restart();
    world.table();
}

#[test]
fn what_a_hook_has_handed_over_stays_so_after_a_restart_with_its_reason() {
    let mut world = fallen(Some(Said::Escalate));
    let before = world.status("a").condition.reason;
    restarted(&mut world);
    world.run(seconds(600));
    assert_eq!((world.state("a").0, world.state("a").1), (Quarantined, before));
    assert!(message(&world).contains("says that a person must act: because"), "{}", message(&world));
    assert_eq!((questions(&world).len(), world.running().len()), (1, 0));
    // Another hook has not been asked.
    let other = Hook { how: HookWay::Exec(vec!["/other".into()]), timeout: seconds(10) };
    world.policy.volumes[0].repair.hook = Some(other);
    world.hooks.insert("a".into(), Some(Said::Remount));
    restarted(&mut world);
    world.run(seconds(60));
    assert!(!message(&world).contains("because"), "{}", message(&world));
}

#[test]
fn how_often_a_hook_has_put_a_repair_off_is_counted_on_after_a_restart() {
    let mut world = fallen(wait(100));
    world.run(seconds(450));
    assert_eq!(questions(&world).len(), 5);
    restarted(&mut world);
    world.run(seconds(20));
    assert_eq!(questions(&world).len(), 5, "it is not asked before its time");
    assert_eq!(world.status("a").held_up.map(|held| held.hold), Some(Hold::Hook));
    world.run(seconds(8000));
    assert_eq!((questions(&world).len(), world.state("a").0), (11, Quarantined));
    assert!(message(&world).contains("put the repair off 10 times"), "{}", message(&world));

    world.answer("a", Answer::Now(good()));
    world.run(seconds(30));
    assert_eq!(world.state("a").0, Healthy);
    assert!(world.stored.values().all(|memory| memory.asked.is_none()), "{:?}", world.stored);
    restarted(&mut world);
    world.hooks.insert("a".into(), Some(Said::Remount));
    fall(&mut world);
    assert_eq!(world.state("a").0, Recovering, "what is over does not count");
}
