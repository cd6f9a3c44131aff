//! Probes and the kernel's hints: what becomes of a volume, and when it is looked at.

use alloc::vec;
use alloc::vec::Vec;

use super::world::{Answer, World, device, fails, good, millis, mount, seconds, spec};
use crate::engine::{Input, Output};
use crate::errno::Errno;
use crate::id::{ProbeId, VolumeId};
use crate::observation::{KernelErrors, NotRun, Op, ProbeOk, ProbeReport, ProbeResult, ProbeStep, Source};
use crate::topology::Options;
use crate::verdict::HealthState::{Degraded, Healthy, Probation, Suspect, Unknown};
use crate::verdict::{Advice, Reason};
use crate::volume::{Mode, VolumeSpec};

fn sshfs(name: &str) -> VolumeSpec {
    spec(name, "fuse.sshfs", &alloc::format!("host:/{name}"), Mode::Observe)
}

fn nfs(name: &str) -> VolumeSpec {
    spec(name, "nfs4", &alloc::format!("filer:/{name}"), Mode::Observe)
}

#[test]
fn the_first_look_makes_a_volume_healthy() {
    let mut world = World::new(vec![nfs("a")]);
    assert_eq!(world.state("a"), (Unknown, None));
    world.table();
    assert_eq!(world.state("a"), (Unknown, None));
    assert_eq!(world.probes(), 1);
    world.run(millis(5));
    assert_eq!(world.state("a"), (Healthy, None));
    assert!(world.status("a").last_ok.is_some());
}

#[test]
fn a_healthy_volume_is_looked_at_once_in_each_interval() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.run(seconds(1000));
    assert!((100..=112).contains(&world.probes()), "{}", world.probes());
    assert_eq!(world.transitions(), []);
}

#[test]
fn a_hint_brings_a_look_at_once_and_both_together_a_fall() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.run(seconds(2));
    world.answer("a", fails(116));
    let seen = world.now;
    world.hint(10, None, 116, Op::Read);
    assert_eq!(world.state("a"), (Suspect, Some(Reason::Stale)));
    assert_eq!(world.probes(), 1);
    world.run(millis(2));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Stale)));
    let fall = world.transitions().pop().unwrap();
    assert_eq!(fall.evidence_at, Some(seen));
    assert!(fall.at.since(seen) < millis(20));
}

#[test]
fn a_superblock_to_which_something_happened_is_looked_at_at_once() {
    let mut world = World::healthy(vec![sshfs("a")]);
    world.run(seconds(2));
    world.answer("a", fails(107));
    let before = world.now;
    world.feed(Input::Look(device(11)));
    assert_eq!(world.probes(), 0);
    world.feed(Input::Look(device(10)));
    assert_eq!(world.probes(), 1);
    assert_eq!(world.state("a"), (Healthy, None));
    world.run(millis(600));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Disconnected)));
    assert!(world.transitions().pop().unwrap().at.since(before) < seconds(1));
}

#[test]
fn an_ordinary_look_a_moment_ago_does_not_hold_up_the_answer_to_a_hint() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.run(seconds(2));
    world.feed(Input::ProbeNow(VolumeId::new("a")));
    world.run(millis(5));
    world.answer("a", fails(116));
    let seen = world.now;
    world.hint(10, None, 116, Op::Read);
    world.run(millis(5));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Stale)));
    assert!(world.transitions().pop().unwrap().at.since(seen) < millis(5));
}

#[test]
fn hints_that_were_right_stay_quick() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.run(seconds(2));
    for _ in 0..6 {
        world.answer("a", fails(116));
        let seen = world.now;
        world.hint(10, None, 116, Op::Read);
        world.run(millis(130));
        assert_eq!(world.state("a").0, Degraded);
        assert!(world.transitions().pop().unwrap().at.since(seen) < millis(20));
        world.answer("a", Answer::Now(good()));
        world.feed(Input::ProbeNow(VolumeId::new("a")));
        world.run(millis(10));
        assert_eq!(world.state("a").0, Probation);
    }
}

#[test]
fn without_evidence_of_the_kernel_failures_must_repeat() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", fails(5));
    world.run(seconds(12));
    let states: alloc::vec::Vec<_> = world.transitions().iter().map(|transition| transition.to).collect();
    assert_eq!(states, [Suspect, Degraded]);
    let both = world.transitions();
    assert!(both[1].at.since(both[0].at) <= seconds(1), "doubt shortens the interval");
}

#[test]
fn a_dead_daemon_needs_one_look() {
    let mut world = World::healthy(vec![sshfs("a")]);
    world.answer("a", fails(107));
    world.feed(Input::ProbeNow(VolumeId::new("a")));
    world.run(millis(2));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Disconnected)));
    assert_eq!(world.status("a").errors.get(&(Errno(107), Op::Stat, Source::Probe)), Some(&1));
}

#[test]
fn a_hung_volume_is_sick_in_time_and_is_left_alone_until_its_worker_returns() {
    let mut world = World::healthy(vec![nfs("a")]);
    let began = world.now;
    world.answer("a", Answer::Hangs);
    world.run(seconds(14));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Hung)));
    assert!(world.transitions()[0].at.since(began) <= seconds(14), "interval and deadline");
    assert_eq!(world.probes(), 1);
    world.hint(10, None, 5, Op::Read);
    world.feed(Input::ProbeNow(VolumeId::new("a")));
    world.run(seconds(500));
    assert_eq!(world.probes(), 1, "no second look beside a stuck one");
    assert!(world.status("a").stuck_since.is_some() && world.status("a").probing);

    world.answer("a", Answer::Now(good()));
    world.feed(Input::ProbeReturned(ProbeId(2)));
    assert_eq!(world.probes(), 2);
    world.run(millis(2));
    assert_eq!(world.state("a").0, Probation);
    world.run(seconds(3));
    assert_eq!(world.state("a"), (Healthy, None));
    assert_eq!(world.status("a").stuck_since, None);
}

/// A program meets EIO on a read every 400 ms while the looks answer like this.
fn read_errors_beside(answer: ProbeResult) -> World {
    let mut world = World::healthy(vec![spec("a", "ext4", "/dev/sdb", Mode::Observe)]);
    world.answer("a", Answer::Now(answer));
    world.run(seconds(12));
    for _ in 0..30 {
        world.hint(10, None, 5, Op::Read);
        world.run(millis(400));
    }
    world
}

#[test]
fn sustained_read_errors_on_a_volume_whose_device_answers_but_whose_files_nobody_read_are_believed() {
    let ok = ProbeOk { root_inode: 2, read_device: true, ..ProbeOk::default() };
    let world = read_errors_beside(ProbeResult::Ok(ok));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::IoError)));
    let falls = world.transitions().into_iter().filter(|transition| transition.to == Degraded).count();
    assert_eq!(falls, 1, "the device's answers do not lift it again");
    let world = read_errors_beside(good());
    assert!(world.transitions().iter().all(|transition| transition.to != Degraded), "one bad file");
}

#[test]
fn another_file_system_than_the_configured_one_is_sick_and_not_repaired() {
    let mut volume = spec("a", "ext4", "/dev/sdb", Mode::Act);
    volume.identity.uuid = Some("aa-01".into());
    let mut world = World::healthy(vec![volume]);
    let found = |uuid: &str| {
        let uuid = Some(uuid.into());
        Answer::Now(ProbeResult::Ok(ProbeOk { root_inode: 2, uuid, ..ProbeOk::default() }))
    };
    world.answer("a", found("bb-02"));
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::WrongMount)));
    assert!(world.status("a").condition.message.contains("expected UUID aa-01, found bb-02"));
    assert!(world.running().is_empty());
    world.answer("a", found("AA-01"));
    world.run(seconds(10));
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn slow_is_advice_never_hung() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", Answer::Never);
    world.feed(Input::ProbeNow(VolumeId::new("a")));
    let report = ProbeReport {
        id: ProbeId(2),
        volume: VolumeId::new("a"),
        generation: crate::id::Generation(1),
        started: world.now,
        took: millis(1501),
        result: good(),
    };
    world.feed(Input::Probe(report));
    assert_eq!(world.state("a"), (Healthy, None));
    assert!(world.status("a").condition.advice.contains(&Advice::Slow));
    world.answer("a", Answer::Now(good()));
    world.run(seconds(12));
    assert!(world.status("a").condition.advice.is_empty());
}

#[test]
fn volumes_on_one_superblock_take_turns() {
    let mut world = World::new(vec![nfs("a"), nfs("b"), nfs("c")]);
    world.replace("/mnt/b", 10);
    world
        .mounts
        .iter_mut()
        .filter(|mount| mount.id.0 == 10)
        .zip(0..)
        .for_each(|(mount, n)| mount.id.0 += 100 * n);
    world.table();
    world.run(millis(100));
    for name in ["a", "b", "c"] {
        assert_eq!(world.state(name), (Healthy, None), "{name}");
    }
    let expects =
        |world: &World| ["a", "b", "c"].map(|name| world.engine.expects_answer(&VolumeId::new(name)));
    assert_eq!(expects(&world), [false; 3]);
    world.answer("a", Answer::Hangs);
    world.feed(Input::ProbeNow(VolumeId::new("a")));
    world.feed(Input::ProbeNow(VolumeId::new("b")));
    assert_eq!(expects(&world), [true, true, false], "who stands in the queue is answered later");
    world.run(seconds(60));
    assert_eq!(expects(&world), [false; 3], "what hangs answers nobody");
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Hung)));
    assert_eq!(world.state("b"), (Degraded, Some(Reason::Hung)), "it is the superblock that hangs");
    assert!(world.status("b").stuck_since.is_some() && !world.status("b").probing);
    assert_eq!(world.state("c"), (Healthy, None));
    assert_eq!(world.status("c").stuck_since, None);
    world.answer("a", Answer::Now(good()));
    let stuck = world.log.iter().rev().find_map(|(_, output)| match output {
        Output::Probe(order) if order.volume.as_str() == "a" => Some(order.id),
        _ => None,
    });
    world.feed(Input::ProbeReturned(stuck.unwrap()));
    world.run(seconds(5));
    assert_eq!(world.state("b"), (Healthy, None));
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn a_look_that_hangs_makes_the_others_on_its_superblock_sick_when_theirs_are_overdue() {
    let mut world = World::new(vec![nfs("a"), nfs("b")]);
    world.replace("/mnt/b", 10);
    world.mounts[2].id.0 = 55;
    world.table();
    world.run(millis(100));
    world.answer("a", Answer::Hangs);
    world.feed(Input::ProbeNow(VolumeId::new("a")));
    world.run(millis(3500));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Hung)));
    assert_eq!(world.state("b"), (Healthy, None), "its own look is not due yet");
    let asked = world.now;
    world.feed(Input::ProbeNow(VolumeId::new("b")));
    world.run(millis(2999));
    assert_eq!(world.state("b"), (Healthy, None));
    world.run(millis(1));
    assert_eq!(world.state("b"), (Degraded, Some(Reason::Hung)));
    assert_eq!(world.status("b").condition.since.since(asked), seconds(3), "its deadline");
    assert!(world.status("b").condition.message.contains("superblock-hangs"));
    world.run(seconds(300));
    assert_eq!(world.state("b"), (Degraded, Some(Reason::Hung)), "it does not flap");

    let stuck = world.log.iter().rev().find_map(|(_, output)| match output {
        Output::Probe(order) => Some(order.id),
        _ => None,
    });
    world.answer("a", Answer::Now(good()));
    world.feed(Input::ProbeReturned(stuck.unwrap()));
    assert_eq!(world.status("b").stuck_since, None);
    world.run(seconds(10));
    assert_eq!((world.state("a"), world.state("b")), ((Healthy, None), (Healthy, None)));
}

#[test]
fn one_bad_file_does_not_flood_the_agent() {
    let mut world = World::healthy(vec![nfs("a")]);
    for _ in 0..6000 {
        world.hint(10, None, 5, Op::Read);
        world.run(millis(10));
        assert_ne!(world.state("a").0, Degraded);
    }
    assert!(world.probes() < 30, "{} looks in a minute", world.probes());
    assert!(world.transitions().len() < 40, "{}", world.transitions().len());
    world.run(seconds(40));
    assert_eq!(world.state("a"), (Healthy, None));
    let total: u64 = world.status("a").errors.values().sum();
    assert_eq!(total, 6000);
}

#[test]
fn errors_that_no_probe_tries_add_up() {
    let mut world = World::healthy(vec![nfs("a")]);
    for _ in 0..5 {
        world.hint(10, None, 5, Op::Write);
        world.run(millis(300));
    }
    assert_eq!(world.state("a"), (Degraded, Some(Reason::IoError)));
    world.run(seconds(40));
    assert_eq!(world.state("a"), (Healthy, None), "it clears by itself");
}

#[test]
fn stale_handles_of_single_files_do_not_condemn_a_volume_whose_root_answers() {
    let mut world = World::healthy(vec![nfs("a")]);
    let attributes_only =
        ProbeOk { root_inode: 2, read_data: false, wrote_data: false, ..ProbeOk::default() };
    world.answer("a", Answer::Now(ProbeResult::Ok(attributes_only)));
    world.run(seconds(12));
    for op in [Op::Read, Op::Write].into_iter().cycle().take(100) {
        world.hint(10, None, 116, op);
        world.run(millis(300));
        assert_eq!(world.state("a"), (Suspect, Some(Reason::Stale)));
    }
    world.answer("a", fails(116));
    world.hint(10, None, 116, Op::Read);
    world.run(seconds(11));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Stale)), "the export itself is stale");
}

#[test]
fn a_volume_nobody_may_look_at_is_not_sick() {
    let mut world = World::new(vec![nfs("a")]);
    world.answer("a", fails(13));
    world.table();
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Unknown, None));
    assert!(world.status("a").condition.advice.contains(&Advice::Inaccessible));
    assert!(world.status("a").errors.is_empty());
    world.answer("a", Answer::Now(ProbeResult::NotRun(NotRun::Unreachable)));
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Unknown, None));
    world.answer("a", Answer::Now(good()));
    world.run(seconds(12));
    assert_eq!(world.state("a"), (Healthy, None));
    world.answer("a", fails(13));
    world.run(seconds(15));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Auth)), "it was readable before");
}

#[test]
fn flapping_lengthens_probation() {
    let mut world = World::healthy(vec![nfs("a")]);
    let mut last = millis(0);
    for round in 0..4 {
        world.answer("a", fails(107));
        world.run(seconds(12));
        assert_eq!(world.state("a").0, Degraded);
        world.answer("a", Answer::Now(good()));
        world.log.clear();
        world.run(seconds(40));
        let transitions = world.transitions();
        assert_eq!(transitions[0].to, Probation);
        assert_eq!(transitions[1].to, Healthy);
        let settle = transitions[1].at.since(transitions[0].at);
        assert!(settle >= last * 2 && settle >= seconds(2), "{settle:?} in round {round}");
        last = settle - millis(600);
    }
}

#[test]
fn answers_about_older_mounts_and_unknown_probes_are_noted_and_dropped() {
    let mut world = World::new(vec![nfs("a")]);
    world.answer("a", Answer::Never);
    world.table();
    let old = ProbeReport {
        id: ProbeId(1),
        volume: VolumeId::new("a"),
        generation: crate::id::Generation(1),
        started: world.now,
        took: millis(1),
        result: ProbeResult::Failed { step: ProbeStep::Root, errno: Errno(107) },
    };
    world.replace("/mnt/a", 30);
    assert_eq!(world.probes(), 2, "the new mount is looked at while the old one is out");
    world.feed(Input::Probe(old.clone()));
    world.feed(Input::Probe(ProbeReport { id: ProbeId(77), ..old.clone() }));
    world.feed(Input::Probe(old));
    world.feed(Input::ProbeReturned(ProbeId(77)));
    world.feed(Input::ProbeNow(VolumeId::new("nobody")));
    assert_eq!(world.notes(), 4);
    assert_eq!(world.state("a"), (Unknown, None));
}

#[test]
fn a_first_round_of_many_volumes_is_spread() {
    let mut policy = crate::policy::Policy::default();
    policy.discovery.enabled = true;
    let mut mounts = vec![mount(1, 1, "/", "ext4", "/dev/sda1")];
    mounts.extend((0..1000).map(|n| mount(n + 10, n + 10, &alloc::format!("/m/{n}"), "nfs4", "filer:/x")));
    let mut world = World::with(policy, mounts);
    world.table();
    assert!(world.probes() < 50, "{}", world.probes());
    world.run(seconds(3));
    assert_eq!(
        world.engine.volumes().iter().filter(|status| status.condition.state == Healthy).count(),
        1001
    );
}

#[test]
fn another_mount_with_the_same_numbers_is_another_generation() {
    let mut world = World::new(vec![nfs("a")]);
    world.mounts[1].unique = Some(500);
    world.table();
    world.run(millis(500));
    let orders = |world: &World| {
        let probes = world.log.iter().filter(|(_, output)| matches!(output, Output::Probe(_)));
        probes.count()
    };
    let before = orders(&world);
    // Another reader of the table does not tell it: nothing is known to be new.
    world.mounts[1].unique = None;
    world.table();
    world.mounts[1].unique = Some(500);
    world.table();
    assert_eq!(orders(&world), before);
    // Unmounted and mounted again between two tables; every reusable number is the old one.
    world.mounts[1].unique = Some(501);
    world.table();
    assert_eq!(world.state("a"), (Unknown, None), "nothing is known about the new mount");
    assert!(orders(&world) > before, "it is looked at at once");
}

#[test]
fn what_the_file_system_says_is_kept_with_since_when_and_by_whom() {
    use crate::health::claims::{Claim, ClaimSource, Said};
    let mut world = World::healthy(vec![nfs("a")]);
    let started = world.now;
    world.mounts[1].super_options = Options::parse(b"rw,errors=remount-ro,emergency_ro");
    world.table();
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Readonly)));
    world.run(seconds(5));
    let report = |world: &mut World, count| {
        let at = world.now;
        world.feed(Input::Kernel(KernelErrors {
            source: Source::Sysfs,
            superblock: super::world::device(10),
            root_inode: None,
            errno: Errno(117),
            op: Op::Filesystem,
            count,
            at,
            after: None,
            task: None,
        }));
        at
    };
    let first = report(&mut world, 2);
    world.run(seconds(5));
    let last = report(&mut world, 1);
    world.table();
    let claims = world.status("a").claims;
    let emergency = claims[&(Claim::EmergencyReadonly, ClaimSource::Table)];
    assert_eq!(emergency, Said { since: started, last: started, count: 0 });
    let errors = claims[&(Claim::Errors, ClaimSource::Sensor(Source::Sysfs))];
    assert_eq!(errors, Said { since: first, last, count: 3 });
    // What the table says no longer is gone; what the file system found stays with its mount.
    world.mounts[1].super_options = Options::parse(b"rw,shutdown");
    world.table();
    assert_eq!(world.state("a"), (Degraded, Some(Reason::FsShutdown)));
    let kinds: Vec<Claim> = world.status("a").claims.keys().map(|key| key.0).collect();
    assert_eq!(kinds, [Claim::ShutDown, Claim::Errors]);
    world.mounts[1].super_options = Options::parse(b"rw");
    world.replace("/mnt/a", 30);
    assert!(world.status("a").claims.is_empty());
}

#[test]
fn a_report_of_the_file_system_is_a_hint_and_looked_into_at_once() {
    let mut world = World::healthy(vec![nfs("a")]);
    let orders = world.log.len();
    world.hint(10, None, 117, Op::Filesystem);
    assert!(world.log[orders..].iter().any(|(_, output)| matches!(output, Output::Probe(_))));
    assert_eq!(world.state("a"), (Suspect, Some(Reason::IoError)));
    world.run(seconds(1));
    assert_eq!(world.state("a").0, Healthy, "the look read data");
}
