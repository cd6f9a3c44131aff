//! Tasks that wait on volumes: what becomes of a volume, and what is told of them.

use alloc::vec;
use alloc::vec::Vec;

use super::world::{Answer, World, device, good, millis, mount, seconds, spec};
use crate::engine::Input;
use crate::id::{ProbeId, VolumeId};
use crate::observation::{BlockedOn, BlockedTask, Census, ProbeOk, ProbeResult, Task};
use crate::verdict::HealthState::{Degraded, Healthy, Probation, Suspect};
use crate::verdict::{Advice, Reason};
use crate::volume::Mode;

fn nfs(name: &str) -> crate::volume::VolumeSpec {
    spec(name, "nfs4", &alloc::format!("filer:/{name}"), Mode::Observe)
}

fn only_attributes() -> Answer {
    Answer::Now(ProbeResult::Ok(ProbeOk { root_inode: 2, ..ProbeOk::default() }))
}

fn nobody_waits(world: &mut World) {
    let at = world.now;
    world.feed(Input::Census(Census { at, blocked: Vec::new() }));
}

#[test]
fn a_wait_longer_than_the_deadline_is_a_hint_and_brings_a_look() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.run(seconds(2));
    world.answer("a", Answer::Hangs);
    world.census(10, None, 2);
    assert_eq!((world.state("a"), world.probes()), ((Healthy, None), 0), "not as long as the deadline");
    world.census(10, None, 3);
    assert_eq!((world.state("a"), world.probes()), ((Suspect, Some(Reason::Hung)), 1));
    let message = world.status("a").condition.message;
    for part in ["2 tasks wait", "tasks-wait", "cat (process 70) in read for 3 s"] {
        assert!(message.contains(part), "{message}");
    }
    world.run(seconds(4));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Hung)));
    let message = world.status("a").condition.message;
    assert!(
        message.contains("no answer within the deadline") && message.contains("(process 70)"),
        "{message}"
    );
}

#[test]
fn waits_beside_a_look_that_reads_data_are_slow_not_hung() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.run(seconds(2));
    world.census(10, None, 4);
    world.run(millis(10));
    assert_eq!(world.state("a"), (Healthy, None));
    assert!(world.status("a").condition.advice.contains(&Advice::Slow));
    let probes = world.probes();
    for waited in 5..9 {
        world.run(seconds(1));
        world.census(10, None, waited);
        assert_eq!(world.state("a"), (Healthy, None));
    }
    assert!(world.probes() - probes <= 1, "what is answered asks for no look");
    nobody_waits(&mut world);
    assert!(world.status("a").condition.advice.is_empty());
    assert_eq!(world.status("a").blocked_count, 0);
}

#[test]
fn a_look_at_attributes_alone_does_not_answer_for_reads() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", only_attributes());
    world.run(seconds(12));
    world.census(10, None, 4);
    world.run(seconds(1));
    assert_eq!(world.state("a"), (Suspect, Some(Reason::Hung)));
    nobody_waits(&mut world);
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn waits_that_began_after_the_last_look_are_not_answered_by_it() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.census(10, None, 30);
    world.run(seconds(1));
    assert_eq!(world.state("a"), (Healthy, None));
    world.answer("a", Answer::Hangs);
    world.run(seconds(5));
    world.census(10, None, 4);
    assert_eq!(world.state("a").0, Suspect);
}

#[test]
fn a_census_that_does_not_come_any_more_is_believed_for_one_window() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", only_attributes());
    world.run(seconds(12));
    world.census(10, None, 4);
    world.run(seconds(29));
    assert_eq!(world.state("a"), (Suspect, Some(Reason::Hung)));
    world.run(seconds(2));
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn waits_never_make_a_volume_sick_alone() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", only_attributes());
    for waited in 0..300 {
        world.run(seconds(1));
        world.census(10, None, waited);
        assert!(matches!(world.state("a").0, Healthy | Suspect | Probation));
    }
}

#[test]
fn tasks_are_told_for_the_volume_with_their_root() {
    let mut world = World::new(vec![nfs("a"), nfs("b")]);
    world.replace("/mnt/b", 10);
    world.mounts[2].id.0 = 55;
    let with_root = |root_inode| {
        Answer::Now(ProbeResult::Ok(ProbeOk { root_inode, read_data: true, ..ProbeOk::default() }))
    };
    world.answer("a", with_root(2));
    world.answer("b", with_root(9));
    world.table();
    world.run(millis(50));
    let counts = |world: &World| ["a", "b"].map(|name| world.status(name).blocked_count);
    world.census(10, Some(9), 1);
    assert_eq!(counts(&world), [0, 2]);
    assert_eq!(world.status("b").blocked.iter().map(|task| task.task.pid).collect::<Vec<_>>(), [70, 71]);
    world.census(10, None, 1);
    assert_eq!(counts(&world), [2, 2], "the superblock is what hangs");
    world.census(99, None, 1);
    assert_eq!(counts(&world), [0, 0], "nobody's, and the others wait no more");
}

#[test]
fn many_tasks_are_counted_exactly_and_some_are_shown() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.run(seconds(3));
    world.answer("a", Answer::Never);
    world.census(10, None, 5);
    let mut tasks = world.status("a").blocked;
    let first = tasks[0].clone();
    tasks.extend((100..140).map(|tid| {
        let mut one = first.clone();
        one.task.tid = tid;
        one
    }));
    let blocked = vec![BlockedOn { superblock: device(10), root_inode: None, count: 5000, tasks }];
    let at = world.now;
    world.feed(Input::Census(Census { at, blocked }));
    let status = world.status("a");
    assert_eq!((status.blocked_count, status.blocked.len()), (5000, 16));
    assert!(status.condition.message.contains("and 4998 more"), "{}", status.condition.message);
}

#[test]
fn who_waits_on_an_old_mount_is_not_told_for_the_new_one() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.run(seconds(3));
    world.answer("a", Answer::Hangs);
    world.census(10, None, 5);
    world.run(seconds(5));
    assert_eq!(world.state("a").0, Degraded);
    world.mounts.push(mount(77, 77, "/mnt/other", "nfs4", "filer:/x"));
    world.answer("a", Answer::Now(good()));
    world.replace("/mnt/a", 30);
    assert_eq!(world.status("a").blocked_count, 0);
    world.census(10, None, 9);
    assert_eq!(world.status("a").blocked_count, 0);
    world.run(seconds(5));
    assert_eq!(world.state("a"), (Healthy, None));
    world.feed(Input::ProbeReturned(ProbeId(2)));
    world.feed(Input::ProbeNow(VolumeId::new("a")));
}

#[test]
fn a_wait_that_only_a_name_places_brings_a_look_and_is_no_evidence() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", only_attributes());
    world.run(seconds(2));
    let (looks, waited) = (world.probes(), seconds(4));
    let mut told = |by_name: bool| {
        let since = world.now - waited;
        let task = BlockedTask {
            task: Task { tid: 70, pid: 70, comm: "cat".into(), cgroup: 7, mnt_ns: 1 },
            call: "statx".into(),
            since,
            is_deep: true,
            is_by_name: by_name,
        };
        let blocked =
            vec![BlockedOn { superblock: device(10), root_inode: None, count: 1, tasks: vec![task] }];
        world.feed(Input::Census(Census { at: world.now, blocked }));
        (world.state("a"), world.status("a").blocked_count, world.probes())
    };
    let (state, shown, probes) = told(true);
    assert_eq!((state, shown), ((Healthy, None), 1), "shown, and no evidence");
    assert!(probes > looks, "but looked into");
    assert_eq!(told(false).0, (Suspect, Some(Reason::Hung)));
}
