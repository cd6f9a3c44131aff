//! When volumes are looked at, and how many looks are out.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::world::{Answer, World, device, fails, good, millis, mount, seconds, spec};
use crate::engine::{Input, NoErrand, Output, ProbeOrder};
use crate::errno::Errno;
use crate::id::{MountId, VolumeId};
use crate::observation::{NotRun, Op, ProbeReport, ProbeResult};
use crate::order::{Order, Refused};
use crate::remediation::{Action, Outcome};
use crate::time::Monotonic;
use crate::topology::Options;
use crate::verdict::HealthState::{Degraded, Healthy, Suspect, Unknown};
use crate::verdict::{Advice, Reason};
use crate::volume::{Mode, ProbeUser, Sentinel, VolumeSpec, Watch};

fn nfs(name: &str) -> VolumeSpec {
    spec(name, "nfs4", &alloc::format!("filer:/{name}"), Mode::Observe)
}

fn orders(world: &World) -> Vec<(Monotonic, ProbeOrder)> {
    let order = |(at, output): &(Monotonic, Output)| match output {
        Output::Probe(order) => Some((*at, order.clone())),
        _ => None,
    };
    world.log.iter().filter_map(order).collect()
}

fn gaps(world: &World) -> Vec<core::time::Duration> {
    let times: Vec<Monotonic> = orders(world).iter().map(|(at, _)| *at).collect();
    times.windows(2).map(|pair| pair[1].since(pair[0])).collect()
}

/// A volume on an automount trap that expires after a minute.
fn on_a_trap(name: &str) -> World {
    let mut world = World::new(vec![nfs(name)]);
    let mut trap = mount(5, 5, &alloc::format!("/mnt/{name}"), "autofs", "/etc/auto");
    trap.super_options = Options::parse(b"rw,fd=6,pgrp=1,timeout=60,minproto=5,maxproto=5,direct");
    world.mounts[1].parent = MountId(5);
    world.mounts.insert(1, trap);
    world
}

fn healthy_on_a_trap() -> World {
    let mut world = on_a_trap("a");
    world.table();
    world.run(seconds(1));
    assert_eq!(world.state("a"), (Healthy, None));
    world.log.clear();
    world
}

#[test]
fn the_interval_is_jittered_and_every_volume_has_its_own_interval_and_deadline() {
    let mut quick = nfs("a");
    quick.watch.interval = seconds(2);
    quick.watch.deadline = millis(700);
    let mut world = World::healthy(vec![quick, nfs("b")]);
    world.run(seconds(400));
    let of = |name: &str| {
        let mine = orders(&world).into_iter().filter(|(_, order)| order.volume.as_str() == name);
        mine.collect::<Vec<_>>()
    };
    let (a, b) = (of("a"), of("b"));
    assert!((200..=225).contains(&a.len()) && (40..=46).contains(&b.len()), "{} {}", a.len(), b.len());
    assert!(a.iter().all(|(_, order)| order.deadline == millis(700)));
    assert!(b.iter().all(|(_, order)| order.deadline == seconds(3)));
    let pauses: Vec<_> = a.windows(2).map(|pair| pair[1].0.since(pair[0].0)).collect();
    assert!(pauses.iter().all(|pause| (millis(1800)..=millis(2002)).contains(pause)), "{pauses:?}");
    assert!(pauses.iter().collect::<BTreeSet<_>>().len() > 50, "no jitter");
}

#[test]
fn a_mount_event_probes_at_once() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.run(seconds(3));
    world.log.clear();
    world.replace("/mnt/a", 40);
    let ordered = orders(&world);
    assert_eq!(ordered.len(), 1);
    assert_eq!((ordered[0].0, ordered[0].1.superblock), (world.now, device(40)));
}

#[test]
fn a_suspect_volume_is_probed_faster() {
    let mut patient = nfs("a");
    patient.watch.failures = 10;
    let mut world = World::healthy(vec![patient]);
    world.answer("a", fails(5));
    world.run(seconds(10));
    assert_eq!(world.state("a").0, Suspect);
    world.log.clear();
    world.run(seconds(2));
    assert!(gaps(&world).iter().all(|gap| *gap <= millis(600)) && world.probes() >= 3);
}

#[test]
fn a_healthy_automount_is_looked_at_so_rarely_that_it_can_expire() {
    let mut world = healthy_on_a_trap();
    world.run(seconds(3600));
    assert!((27..=34).contains(&world.probes()), "{}", world.probes());
    // The daemon of autofs checks four times in a time-out.
    assert!(gaps(&world).iter().all(|gap| *gap > seconds(60 + 15)), "{:?}", gaps(&world));
    assert!(orders(&world).iter().all(|(_, order)| order.is_automount) && world.status("a").is_automount);
    assert_eq!(world.transitions(), [], "it is healthy between two looks as well");
}

#[test]
fn an_automount_that_does_not_expire_has_the_usual_rhythm() {
    for options in ["rw,timeout=0,direct", "rw,timeout=60,direct,strictexpire"] {
        let mut world = on_a_trap("a");
        world.mounts[1].super_options = Options::parse(options.as_bytes());
        world.table();
        world.run(seconds(1000));
        assert!(world.probes() > 90, "{options}: {}", world.probes());
    }
}

#[test]
fn somebody_who_uses_an_automount_has_it_looked_at_at_once() {
    let mut world = healthy_on_a_trap();
    world.run(seconds(20));
    world.answer("a", fails(116));
    world.hint(10, None, 116, Op::Read);
    world.run(millis(10));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Stale)));
}

#[test]
fn a_sick_automount_is_left_alone_after_a_few_quick_looks() {
    let mut world = healthy_on_a_trap();
    world.answer("a", fails(5));
    world.feed(Input::ProbeNow(VolumeId::new("a")));
    world.run(seconds(30));
    assert_eq!(world.state("a").0, Degraded);
    assert!((5..=12).contains(&world.probes()), "{}", world.probes());
    world.log.clear();
    world.run(seconds(75));
    assert_eq!(world.probes(), 0, "it could not expire");
    // It is not forgotten either.
    world.answer("a", Answer::Now(good()));
    world.run(seconds(150));
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn doubt_about_an_automount_is_settled_soon_however_often_it_was_well() {
    for healthy in 5..12 {
        let mut world = healthy_on_a_trap();
        while world.probes() < healthy {
            world.run(seconds(10));
        }
        world.answer("a", fails(5));
        world.log.clear();
        world.run(seconds(250));
        assert!(gaps(&world)[0] <= millis(600), "after {healthy} good looks: {:?}", gaps(&world));
    }
}

#[test]
fn a_key_of_an_indirect_map_that_is_not_mounted_is_idle_and_not_missing() {
    let mut volume = nfs("a");
    volume.mountpoint = "/net/filer/a".into();
    let mut world = World::new(vec![volume]);
    world.mounts[1] = mount(20, 20, "/net", "autofs", "/etc/auto.net");
    world.table();
    world.run(seconds(100));
    assert_eq!((world.state("a"), world.probes()), ((Unknown, None), 0));
    assert!(world.status("a").condition.advice.contains(&Advice::Idle));
}

#[test]
fn however_many_mounts_and_callers_ask_one_probe_is_out_for_each_superblock() {
    let mut world = World::new(vec![nfs("a"), nfs("b")]);
    world.mounts[2].superblock = device(10);
    world.table();
    world.run(seconds(1));
    world.log.clear();
    world.answer("a", Answer::Hangs);
    for _ in 0..100 {
        world.feed(Input::ProbeNow(VolumeId::new("a")));
        world.feed(Input::ProbeNow(VolumeId::new("b")));
    }
    world.run(seconds(60));
    assert_eq!(world.probes(), 1);
    for name in ["a", "b"] {
        assert!(world.status(name).stuck_since.is_some(), "{name}: the look that stands in the way is shown");
    }
}

#[test]
fn callers_who_ask_while_a_probe_is_out_get_its_answer_and_no_second_probe() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", Answer::Never);
    world.feed(Input::ProbeNow(VolumeId::new("a")));
    let order = orders(&world).pop().unwrap().1;
    for _ in 0..50 {
        world.feed(Input::ProbeNow(VolumeId::new("a")));
        assert!(world.engine.expects_answer(&VolumeId::new("a")));
    }
    world.answer("a", Answer::Now(good()));
    let report = ProbeReport {
        id: order.id,
        volume: order.volume,
        generation: order.generation,
        started: world.now,
        took: millis(5),
        result: good(),
    };
    world.feed(Input::Probe(report));
    world.run(seconds(5));
    assert_eq!(world.probes(), 1);
}

#[test]
fn the_cap_on_abandoned_workers_makes_no_healthy_volume_sick() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", Answer::Now(ProbeResult::NotRun(NotRun::TooManyAbandoned)));
    world.run(seconds(600));
    assert!(world.transitions().iter().all(|step| step.to == Unknown), "{:?}", world.transitions());
    world.answer("a", Answer::Now(good()));
    world.run(seconds(12));
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn a_user_whom_no_worker_can_become_is_advice() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", Answer::Now(ProbeResult::NotRun(NotRun::NotThatUser)));
    world.run(seconds(100));
    assert!(!world.state("a").0.is_sick());
    assert!(world.status("a").condition.advice.contains(&Advice::Inaccessible));
}

#[test]
fn a_new_mount_is_probed_at_once_although_the_old_superblock_is_stuck() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", Answer::Hangs);
    world.run(seconds(30));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Hung)));
    let stuck = orders(&world).pop().unwrap().1;
    world.log.clear();
    world.answer("a", Answer::Now(good()));
    world.replace("/mnt/a", 40);
    assert_eq!(orders(&world).len(), 1);
    world.run(seconds(5));
    assert_eq!(world.state("a"), (Healthy, None));
    assert_eq!(world.status("a").stuck_since, None);
    // What the old one says at last is about an older mount.
    let report = ProbeReport {
        id: stuck.id,
        volume: stuck.volume,
        generation: stuck.generation,
        started: world.now - seconds(35),
        took: seconds(35),
        result: ProbeResult::SentinelMissing,
    };
    world.feed(Input::Probe(report));
    world.run(millis(10));
    assert_eq!(world.state("a"), (Healthy, None));
    assert_eq!(world.notes(), 1);
}

#[test]
fn probes_look_as_the_configured_user() {
    let mut volume = nfs("a");
    let user = ProbeUser { uid: 1000, gid: 100, groups: vec![7] };
    volume.watch.probe_as = Some(Arc::new(user.clone()));
    let mut world = World::new(vec![volume, nfs("b")]);
    world.table();
    world.run(seconds(1));
    let users: Vec<_> = orders(&world).into_iter().map(|(_, order)| order.user).collect();
    assert_eq!(users, [Some(user), None]);
}

fn errands(world: &World) -> Vec<ProbeOrder> {
    let order = |(_, output): &(Monotonic, Output)| match output {
        Output::Errand(order) => Some(order.clone()),
        _ => None,
    };
    world.log.iter().filter_map(order).collect()
}

fn refused(world: &World) -> Vec<NoErrand> {
    let why = |(_, output): &(Monotonic, Output)| match output {
        Output::NoErrand { why, .. } => Some(*why),
        _ => None,
    };
    world.log.iter().filter_map(why).collect()
}

#[test]
fn an_errand_takes_the_place_of_a_look_and_looks_wait_for_it() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.feed(Input::Errand(VolumeId::new("a")));
    world.feed(Input::Errand(VolumeId::new("a")));
    world.run(seconds(60));
    assert_eq!((errands(&world).len(), world.probes()), (1, 0), "one thing at a time");
    world.feed(Input::ProbeReturned(errands(&world)[0].id));
    assert_eq!((errands(&world).len(), world.probes()), (2, 0), "errands first");
    world.feed(Input::ProbeReturned(errands(&world)[1].id));
    world.run(seconds(1));
    assert_eq!((errands(&world).len(), world.probes()), (2, 1));
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn an_errand_that_waits_behind_a_look_that_hangs_is_refused_at_its_deadline() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", Answer::Hangs);
    world.feed(Input::ProbeNow(VolumeId::new("a")));
    world.feed(Input::Errand(VolumeId::new("a")));
    assert_eq!((errands(&world).len(), refused(&world).len()), (0, 0));
    world.run(seconds(4));
    assert_eq!(refused(&world), [NoErrand::Stuck]);
    world.feed(Input::Errand(VolumeId::new("a")));
    world.feed(Input::Errand(VolumeId::new("b")));
    world.unmount("/mnt/a");
    world.feed(Input::Errand(VolumeId::new("a")));
    let expected = [NoErrand::Stuck, NoErrand::Stuck, NoErrand::NoSuchVolume, NoErrand::NotThere];
    assert_eq!(refused(&world), expected);
    assert!(errands(&world).is_empty());
}

#[test]
fn an_errand_that_hangs_keeps_looks_away_until_its_worker_is_gone() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.feed(Input::Errand(VolumeId::new("a")));
    world.feed(Input::Errand(VolumeId::new("a")));
    let errand = errands(&world)[0].id;
    world.feed(Input::ErrandHangs(errand, world.now));
    assert_eq!(refused(&world), [NoErrand::Stuck], "who waits is told");
    world.run(seconds(60));
    assert_eq!((errands(&world).len(), world.probes()), (1, 0));
    assert!(world.engine.volume(&VolumeId::new("a")).is_some_and(|status| status.stuck_since.is_some()));
    world.feed(Input::ProbeReturned(errand));
    world.run(seconds(1));
    let looks = world.probes();
    assert!(looks > 0, "looks go on");
    world.feed(Input::ErrandHangs(errand, world.now));
    world.run(seconds(60));
    assert!(world.probes() > looks, "what is over does not hang");
}

#[test]
fn a_pinned_sentinel_counts_where_the_configuration_says_nothing() {
    let sentinel = |path: &str, content: Option<&str>| Sentinel {
        path: path.into(),
        content: content.map(|content| content.as_bytes().to_vec()),
    };
    let mut specs = vec![nfs("a"), nfs("b"), nfs("c"), nfs("d")];
    specs[1].sentinel = Some(sentinel("s", None));
    specs[2].sentinel = Some(sentinel("s", Some("configured")));
    specs[3].sentinel = Some(sentinel("other", None));
    let mut world = World::new(specs);
    let pin = || sentinel("s", Some("pinned"));
    world.feed(Input::Pins(["a", "b", "c", "d"].map(|name| (VolumeId::new(name), pin())).into()));
    world.table();
    world.run(seconds(1));
    let read: Vec<_> = orders(&world).into_iter().filter_map(|(_, order)| order.sentinel).collect();
    let expected = [pin(), pin(), sentinel("s", Some("configured")), sentinel("other", None)];
    assert_eq!(read, expected);
}

#[test]
fn what_a_repair_brings_must_have_the_pinned_sentinel() {
    let mut world =
        World::healthy(vec![VolumeSpec { watch: Watch { mode: Mode::Act, ..Watch::default() }, ..nfs("a") }]);
    let pin = Sentinel { path: "s".into(), content: Some(b"pinned".to_vec()) };
    world.feed(Input::Pins([(VolumeId::new("a"), pin.clone())].into()));
    world.answer("a", fails(116));
    world.feed(Input::ProbeNow(VolumeId::new("a")));
    world.run(seconds(2));
    let plan = world.running().pop().unwrap();
    assert!(
        plan.actions
            .iter()
            .any(|action| matches!(action, Action::Verify { sentinel: Some(found), .. } if *found == pin)),
        "{:?}",
        plan.actions
    );
}

#[test]
fn looks_of_the_ordinary_rhythm_share_ticks() {
    let mut world = World::healthy((0..200).map(|n| nfs(&alloc::format!("v{n}"))).collect());
    world.log.clear();
    world.run(seconds(60));
    let times: Vec<Monotonic> = orders(&world).into_iter().map(|(at, _)| at).collect();
    let ticks: BTreeSet<&Monotonic> = times.iter().collect();
    assert!(times.len() >= 1000 && ticks.len() <= 600, "{} looks at {} times", times.len(), ticks.len());
}

#[test]
fn a_repair_waits_for_an_errand_as_an_errand_is_refused_beside_a_repair() {
    let mut world = World::healthy(vec![spec("a", "fuse.sshfs", "a:", Mode::Act)]);
    let (a, order) = (VolumeId::new("a"), Order::Remount(VolumeId::new("a")));
    world.feed(Input::Errand(a.clone()));
    let errand = errands(&world)[0].id;
    assert_eq!(world.order(order.clone()), Err(Refused::Looking));
    let hindered = |world: &World| world.engine.preview(&a).unwrap().hindered;
    assert_eq!(hindered(&world), Some(Refused::Looking));
    // It is gone, which no look need say.
    world.unmount("/mnt/a");
    world.run(seconds(60));
    assert_eq!((world.state("a"), world.running().len()), ((Degraded, Some(Reason::Missing)), 0));
    world.feed(Input::ProbeReturned(errand));
    assert_eq!(world.running().len(), 1, "it waited for nothing else");

    let mut world = World::healthy(vec![spec("a", "fuse.sshfs", "a:", Mode::Act)]);
    assert!(world.order(order.clone()).is_ok());
    world.feed(Input::Errand(a.clone()));
    assert_eq!(refused(&world), [NoErrand::Repaired]);

    // One that hangs may hang for ever, and is no reason to wait.
    let mut world = World::healthy(vec![spec("a", "fuse.sshfs", "a:", Mode::Act)]);
    world.feed(Input::Errand(a.clone()));
    world.feed(Input::ErrandHangs(errands(&world)[0].id, world.now));
    assert!(world.order(order).is_ok());
}

#[test]
fn a_repair_waits_for_an_errand_of_another_volume_on_its_superblock() {
    let mut world = World::new(vec![
        spec("a", "fuse.sshfs", "x:", Mode::Act),
        spec("b", "fuse.sshfs", "x:", Mode::Act),
        spec("c", "fuse.sshfs", "c:", Mode::Act),
    ]);
    world.mounts[2].superblock = device(10);
    world.table();
    world.run(seconds(1));
    world.feed(Input::Errand(VolumeId::new("a")));
    assert_eq!(world.order(Order::Remount(VolumeId::new("b"))), Err(Refused::Looking));
    assert!(world.order(Order::Remount(VolumeId::new("c"))).is_ok());
}

#[test]
fn what_is_left_at_a_mount_point_is_not_taken_away_beneath_an_errand() {
    let mut world = World::healthy(vec![spec("a", "fuse.sshfs", "a:", Mode::Act)]);
    world.answer("a", fails(107));
    world.run(seconds(30));
    assert_eq!(world.running().len(), 1);
    // Cut off between the new mount beneath and the end of the old one.
    world.mounts.insert(1, mount(99, 99, "/mnt/a", "fuse.sshfs", "a:"));
    world.restart();
    world.table();
    let touching = |world: &World| {
        world.running().into_iter().find(|plan| plan.actions.contains(&Action::DetachTop)).map(|plan| plan.id)
    };
    let plan = touching(&world).unwrap();
    world.feed(Input::Errand(VolumeId::new("a")));
    assert_eq!(refused(&world), [NoErrand::Repaired]);
    world.finish(plan, Outcome::Failed(Errno(16)));
    world.feed(Input::Errand(VolumeId::new("a")));
    world.run(seconds(60));
    assert_eq!((errands(&world).len(), touching(&world)), (1, None), "it is due again, and waits");
    world.feed(Input::ProbeReturned(errands(&world)[0].id));
    assert!(touching(&world).is_some());
}

#[test]
fn what_hangs_is_told_of_as_what_it_is() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.feed(Input::Errand(VolumeId::new("a")));
    world.feed(Input::ErrandHangs(errands(&world)[0].id, world.now));
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Hung)));
    let message = world.status("a").condition.message;
    assert!(
        message.contains("a worker that is not back") && !message.contains("another volume"),
        "{message}"
    );
}
