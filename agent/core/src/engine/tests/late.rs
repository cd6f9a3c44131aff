//! Looks that are late: how long they are waited for, and what their end says.

use alloc::vec;
use alloc::vec::Vec;

use super::world::{Answer, World, good, seconds, spec};
use crate::engine::{Input, Output, ProbeOrder};
use crate::errno::Errno;
use crate::id::{ProbeId, VolumeId};
use crate::observation::{ProbeReport, ProbeResult, ProbeStep};
use crate::time::Monotonic;
use crate::verdict::HealthState::Degraded;
use crate::verdict::{Advice, Reason};
use crate::volume::Mode;

fn last_order(world: &World) -> ProbeOrder {
    let mut orders = world.log.iter().rev().filter_map(|(_, output)| match output {
        Output::Probe(order) => Some(order.clone()),
        _ => None,
    });
    orders.next().unwrap()
}

/// The last look that was ordered, and where in the log it was let go.
fn last_look(world: &World) -> (ProbeId, Vec<usize>) {
    let id = last_order(world).id;
    let is_it =
        |(at, (_, output)): (usize, &(Monotonic, Output))| (*output == Output::LetGo(id)).then_some(at);
    (id, world.log.iter().enumerate().filter_map(is_it).collect())
}

#[test]
fn a_look_that_hangs_is_let_go_before_the_plan_and_its_end_is_no_answer() {
    let mut world = World::healthy(vec![spec("a", "fuse.sshfs", "a-host:", Mode::Act)]);
    world.answer("a", Answer::Hangs);
    world.feed(Input::ProbeNow(VolumeId::new("a")));
    world.run(seconds(8));
    assert_eq!(last_look(&world).1, [], "it may answer yet");
    world.run(seconds(2));
    let (look, let_go) = last_look(&world);
    let plan = world.log.iter().position(|(_, output)| matches!(output, Output::Execute(_))).unwrap();
    assert!(matches!(let_go[..], [at] if at < plan), "{let_go:?}, the plan {plan}");
    world.feed(Input::ProbeReturned(look));
    assert!(!world.status("a").condition.advice.contains(&Advice::Slow));
}

#[test]
fn a_volume_that_answers_late_and_only_with_failures_is_replaced() {
    for is_good in [false, true] {
        let mut world = World::healthy(vec![spec("a", "cifs", "//filer/a", Mode::Act)]);
        world.answer("a", Answer::Hangs);
        world.feed(Input::ProbeNow(VolumeId::new("a")));
        for _ in 0..3 {
            world.run(seconds(9));
            if !world.running().is_empty() {
                break;
            }
            let ProbeOrder { id, volume, generation, .. } = last_order(&world);
            let failure = ProbeResult::Failed { step: ProbeStep::Root, errno: Errno(112) };
            let result = if is_good { good() } else { failure };
            let (started, took) = (world.now, seconds(9));
            world.feed(Input::ProbeLate(ProbeReport { id, volume, generation, started, took, result }));
            assert_eq!(world.state("a"), (Degraded, Some(Reason::Hung)));
        }
        assert_eq!(world.running().is_empty(), is_good, "late, and {is_good}");
    }
}

#[test]
fn a_look_that_hangs_is_let_go_when_its_mount_is_gone() {
    let mut world = World::healthy(vec![spec("a", "nfs4", "filer:/a", Mode::Observe)]);
    world.answer("a", Answer::Hangs);
    world.feed(Input::ProbeNow(VolumeId::new("a")));
    world.run(seconds(100));
    assert_eq!(last_look(&world).1, []);
    let (look, _) = last_look(&world);
    world.replace("/mnt/a", 99);
    world.table();
    world.run(seconds(30));
    let let_go = world.log.iter().filter(|(_, output)| *output == Output::LetGo(look)).count();
    assert_eq!(let_go, 1);
}
