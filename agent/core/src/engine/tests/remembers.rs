//! What a restart of the agent keeps, and what it must not make of it.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::world::{Answer, World, device, fails, good, millis, mount, seconds, spec};
use crate::engine::{Input, Output};
use crate::errno::Errno;
use crate::id::VolumeId;
use crate::observation::{KernelErrors, Op, OwnErrors, ProbeOk, ProbeResult, Source};
use crate::policy::Policy;
use crate::remediation::{Action, Outcome};
use crate::topology::Options;
use crate::verdict::HealthState::{Degraded, Healthy, Probation, Quarantined, Unknown};
use crate::verdict::{Advice, Reason};
use crate::volume::{Mode, VolumeSpec};

fn nfs(name: &str) -> VolumeSpec {
    spec(name, "nfs4", &format!("filer:/{name}"), Mode::Observe)
}

#[test]
fn a_sick_volume_is_shown_as_it_was_and_told_no_second_time() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", fails(116));
    world.run(seconds(40));
    let before = world.status("a").condition;
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Stale)));
    world.log.clear();
    world.restart();
    let recalled = world.status("a").condition;
    assert_eq!((recalled.state, recalled.reason, recalled.since), (Degraded, before.reason, before.since));
    assert!(recalled.is_recalled && recalled.message.contains("before the agent started"), "{recalled:?}");
    world.run(seconds(10));
    world.table();
    world.run(seconds(40));
    let now = world.status("a").condition;
    assert_eq!((now.state, now.reason, now.since), (Degraded, before.reason, before.since));
    assert!(!now.is_recalled && !now.message.contains("before the agent started"));
    assert_eq!(world.transitions(), [], "the same trouble");

    world.answer("a", Answer::Now(good()));
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Healthy, None));
    let states: Vec<_> = world.transitions().iter().map(|told| told.to).collect();
    assert_eq!(states, [Probation, Healthy]);
}

#[test]
fn what_was_healthy_is_unknown_until_it_is_looked_at() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", Answer::Never);
    world.restart();
    assert_eq!(world.state("a"), (Unknown, None));
    assert!(world.status("a").condition.message.contains("it could be read"));
    world.table();
    assert_eq!(world.state("a"), (Unknown, None));
    assert!(world.status("a").condition.is_recalled);
}

#[test]
fn what_healed_while_the_agent_was_away_is_believed_after_the_settle_time() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", fails(116));
    world.run(seconds(40));
    world.restart();
    world.answer("a", Answer::Now(good()));
    world.table();
    world.run(millis(600));
    assert_eq!(world.state("a").0, Probation);
    world.run(seconds(30));
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn was_readable_and_now_refused_holds_across_a_restart() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.restart();
    world.answer("a", fails(13));
    world.table();
    world.run(seconds(40));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Auth)));

    let mut never = World::new(vec![nfs("a")]);
    never.answer("a", fails(13));
    never.table();
    never.run(seconds(40));
    never.restart();
    never.table();
    never.run(seconds(40));
    assert_eq!(never.state("a"), (Unknown, None));
    assert!(never.status("a").condition.advice.contains(&Advice::Inaccessible));
}

#[test]
fn was_writable_and_now_refused_holds_across_a_restart() {
    let written = ProbeOk { root_inode: 2, read_data: true, wrote_data: true, ..ProbeOk::default() };
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", Answer::Now(ProbeResult::Ok(written.clone())));
    world.run(seconds(20));
    let read = ProbeOk { wrote_data: false, ..written };
    world.answer("a", Answer::Now(ProbeResult::WriteFailed { errno: Errno(13), read }));
    world.run(seconds(40));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Auth)));
    world.restart();
    world.table();
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Auth)));
}

#[test]
fn a_spent_budget_stays_spent_and_is_renewed_by_a_good_look() {
    let mut world = World::healthy(vec![spec("a", "fuse.sshfs", "host:", Mode::Act)]);
    world.answer("a", fails(107));
    for _ in 0..40 {
        world.run(seconds(30));
        if let Some(plan) = world.running().pop() {
            world.finish(plan.id, Outcome::Failed(Errno(5)));
        }
    }
    assert_eq!(world.state("a").0, Quarantined);
    let attempts = world.status("a").attempts;
    world.log.clear();
    world.restart();
    world.table();
    world.run(seconds(600));
    assert_eq!(world.state("a").0, Quarantined);
    assert_eq!((world.status("a").attempts, world.running().len()), (attempts, 0));
    assert_eq!(world.transitions(), []);
    world.answer("a", Answer::Now(good()));
    world.run(seconds(120));
    assert_eq!(world.state("a").0, Healthy);
}

#[test]
fn a_volume_whose_plan_was_cut_off_is_sick_and_not_repaired_from_memory_alone() {
    let mut world = World::healthy(vec![spec("a", "fuse.sshfs", "host:", Mode::Act)]);
    world.answer("a", fails(107));
    world.run(seconds(20));
    assert_eq!(world.running().len(), 1);
    world.restart();
    assert_eq!(world.state("a").0, Degraded);
    world.answer("a", Answer::Now(good()));
    world.table();
    let settling = world.running().pop().unwrap();
    assert_eq!(settling.reason, None, "only what is left is taken away");
    world.finish(settling.id, Outcome::AlreadySo);
    world.run(seconds(60));
    assert_eq!(world.state("a").0, Healthy);
    assert!(world.running().is_empty());
    assert_eq!(world.status("a").attempts, 1, "it counts as an attempt");
}

#[test]
fn became_read_only_and_reported_shutdowns_stay_on_the_same_mount() {
    let mut world = World::healthy(vec![spec("a", "xfs", "/dev/sdb", Mode::Observe)]);
    world.answer("a", Answer::Now(ProbeResult::Ok(ProbeOk { root_inode: 2, ..ProbeOk::default() })));
    world.feed(Input::Kernel(KernelErrors {
        source: Source::Bpf,
        superblock: device(10),
        root_inode: None,
        errno: Errno(108),
        op: Op::Filesystem,
        count: 1,
        at: world.now,
        after: None,
        task: None,
    }));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::FsShutdown)));
    world.restart();
    world.table();
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::FsShutdown)), "its root still answers");

    let mut policy = Policy::default();
    policy.discovery.enabled = true;
    let mounts = vec![mount(1, 1, "/", "ext4", "/dev/sda1"), mount(30, 30, "/srv/x", "ext4", "/dev/sdb")];
    let mut world = World::with(policy, mounts);
    world.table();
    world.run(seconds(5));
    world.mounts[1].super_options = Options::parse(b"ro");
    world.table();
    assert_eq!(world.state("/srv/x"), (Degraded, Some(Reason::Readonly)));
    world.restart();
    world.table();
    world.run(seconds(60));
    assert_eq!(world.state("/srv/x"), (Degraded, Some(Reason::Readonly)), "it was writable once");
}

#[test]
fn errors_that_no_look_tries_are_not_ended_by_the_first_look_after_the_start() {
    let mut world = World::healthy(vec![spec("a", "ext4", "/dev/sdb", Mode::Observe)]);
    let by_attributes = ProbeResult::Ok(ProbeOk { root_inode: 2, ..ProbeOk::default() });
    world.answer("a", Answer::Now(by_attributes));
    world.run(seconds(20));
    for _ in 0..10 {
        world.hint(10, None, 5, Op::Write);
        world.run(millis(500));
    }
    assert_eq!(world.state("a"), (Degraded, Some(Reason::IoError)));
    world.log.clear();
    world.restart();
    world.table();
    world.run(seconds(20));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::IoError)));
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn falls_are_remembered_so_that_a_restart_does_not_end_damping() {
    let mut world = World::healthy(vec![nfs("a")]);
    for _ in 0..4 {
        world.answer("a", fails(116));
        world.run(seconds(15));
        world.answer("a", Answer::Now(good()));
        world.run(seconds(60));
    }
    assert_eq!(world.status("a").falls, 4);
    assert!(world.status("a").condition.advice.contains(&Advice::Flapping));
    world.restart();
    world.table();
    world.run(seconds(1));
    assert_eq!(world.status("a").falls, 4);
    assert!(world.status("a").condition.advice.contains(&Advice::Flapping));
    world.run(seconds(700));
    assert!(world.status("a").condition.advice.is_empty(), "{:?}", world.status("a").condition.advice);
}

#[test]
fn looks_that_find_what_the_last_one_found_write_nothing() {
    let mut world = World::healthy(vec![nfs("a"), nfs("b")]);
    world.log.clear();
    world.run(seconds(600));
    assert!(world.probes() > 100);
    assert_eq!(world.writes(), 0);
    world.answer("a", fails(116));
    world.run(seconds(40));
    let after_fall = world.writes();
    assert!((1..4).contains(&after_fall), "{after_fall}");
    world.run(seconds(600));
    assert_eq!(world.writes(), after_fall);
    // A suspicion is no memory, and errors of storage are one only where they made the volume read-only.
    for _ in 0..20 {
        world.hint(11, None, 5, Op::Write);
        world.run(seconds(40));
    }
    assert_eq!(world.writes(), after_fall);
}

#[test]
fn what_is_no_volume_any_more_is_forgotten() {
    let mut policy = Policy { volumes: vec![nfs("a")], ..Policy::default() };
    policy.discovery.enabled = true;
    let mounts = vec![
        mount(1, 1, "/", "ext4", "/dev/sda1"),
        mount(10, 10, "/mnt/a", "nfs4", "filer:/a"),
        mount(30, 30, "/srv/x", "nfs4", "filer:/x"),
    ];
    let mut world = World::with(policy, mounts);
    world.table();
    world.run(seconds(5));
    let kept = |world: &World| {
        world.stored.keys().map(|id| id.as_str().into()).collect::<Vec<alloc::string::String>>()
    };
    assert_eq!(kept(&world), ["/", "/srv/x", "a"]);
    world.unmount("/srv/x");
    world.run(seconds(120));
    assert_eq!(kept(&world), ["/", "a"]);
    world.policy.volumes.clear();
    world.policy.discovery.enabled = false;
    world.feed(Input::Policy(world.policy.clone()));
    assert_eq!(kept(&world), Vec::<alloc::string::String>::new());
}

#[test]
fn the_memory_of_a_volume_that_does_not_come_back_is_kept_for_a_while() {
    let mut policy = Policy::default();
    policy.discovery.enabled = true;
    let mounts = vec![mount(1, 1, "/", "ext4", "/dev/sda1"), mount(30, 30, "/srv/x", "nfs4", "filer:/x")];
    let mut world = World::with(policy, mounts.clone());
    world.table();
    world.run(seconds(5));
    world.mounts.truncate(1);
    world.restart();
    world.table();
    world.run(seconds(500));
    assert_eq!(world.stored.len(), 2, "mounts may come after the agent");
    world.run(seconds(200));
    assert_eq!(world.stored.len(), 1, "that of the root");

    world.mounts = mounts;
    world.table();
    world.run(seconds(5));
    world.restart();
    let late = core::mem::replace(&mut world.mounts, vec![mount(1, 1, "/", "ext4", "/dev/sda1")]);
    world.table();
    world.run(seconds(60));
    world.mounts = late;
    world.answer("/srv/x", fails(13));
    world.table();
    world.run(seconds(40));
    assert_eq!(world.state("/srv/x"), (Degraded, Some(Reason::Auth)), "it was readable before");
}

#[test]
fn a_volume_that_was_named_for_another_place_is_another_volume() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", fails(116));
    world.run(seconds(40));
    world.policy.volumes[0].mountpoint = "/mnt/elsewhere".into();
    world.restart();
    assert_eq!(world.state("a"), (Unknown, None));
    assert_eq!(world.status("a").falls, 0);
    assert!(!world.log.iter().any(|(_, output)| matches!(output, Output::Execute(_))));
}

#[test]
fn what_a_file_system_found_in_itself_while_the_agent_was_down_is_news() {
    // The same file system, and one that was mounted in its place meanwhile.
    for (instance, is_news) in [(7, true), (8, false)] {
        let mut world = World::new(vec![spec("a", "ext4", "/dev/sdb", Mode::Observe)]);
        world.table();
        world.run(seconds(1));
        let superblock = world.mounts[1].superblock;
        let own = |instance, count, at| {
            let (errno, told, ends_writes) = (Errno(117), 0, true);
            Input::OwnErrors(OwnErrors { superblock, instance, count, errno, told, ends_writes, at })
        };
        world.feed(own(7, 41, world.now));
        world.run(seconds(60));
        assert_eq!(world.state("a"), (Healthy, None));
        world.restart();
        world.table();
        world.feed(own(instance, 42, world.now));
        world.run(seconds(60));
        let expected = if is_news { (Degraded, Some(Reason::Readonly)) } else { (Healthy, None) };
        assert_eq!(world.state("a"), expected, "every look reads well, and the table says rw");
        assert_eq!(world.status("a").damage.is_some(), is_news);
    }
}

#[test]
fn an_error_that_ended_all_writing_is_known_after_a_restart_and_no_good_read_ends_it() {
    let mut world = World::new(vec![spec("a", "ext4", "/dev/sdb", Mode::Observe)]);
    // Many kernels go on to say `rw` in the table.
    world.mounts[1].super_options = Options::parse(b"rw,errors=remount-ro");
    world.table();
    world.run(millis(500));
    world.hint(10, None, 117, Op::Filesystem);
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Readonly)));
    for _ in 0..2 {
        world.restart();
        world.table();
        world.run(seconds(60));
        assert_eq!(world.state("a"), (Degraded, Some(Reason::Readonly)), "every look has read data");
    }
    world.restart();
    world.answer(
        "a",
        Answer::Now(ProbeResult::Ok(ProbeOk { root_inode: 2, wrote_data: true, ..ProbeOk::default() })),
    );
    world.table();
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Healthy, None), "a look has written");
    world.restart();
    world.answer("a", Answer::Now(good()));
    world.table();
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Healthy, None), "and that is remembered as well");
}

/// A disk whose looks find this fsid.
fn with_fsid(world: &mut World, fsid: &str) {
    let ok = ProbeOk { root_inode: 2, read_data: true, fsid: Some(fsid.into()), ..ProbeOk::default() };
    world.answer("a", Answer::Now(ProbeResult::Ok(ok)));
}

fn disk(fsid: &str) -> World {
    let mut world = World::new(vec![spec("a", "ext4", "/dev/sdb", Mode::Act)]);
    with_fsid(&mut world, fsid);
    world.table();
    world.run(seconds(5));
    world
}

/// The fsid that the running plan asks of what it brings.
fn asked_fsid(world: &World) -> Option<String> {
    let plan = world.running().pop().unwrap();
    let asked = plan.actions.iter().find_map(|action| match action {
        Action::CheckStaged { identity, .. } => Some(identity.fsid.clone()),
        _ => None,
    });
    asked.unwrap()
}

fn stored_fsid(world: &World) -> Option<(String, Vec<u8>)> {
    let memory = world.stored.get(&VolumeId::new("a"))?;
    let learnt = memory.learnt.as_ref()?;
    Some((learnt.identity.fsid.clone()?, learnt.source.clone()))
}

#[test]
fn the_fsid_that_an_earlier_run_learnt_is_asked_of_what_a_repair_brings() {
    let mut world = disk("00000000000000aa");
    world.mounts.truncate(1);
    world.restart();
    world.table();
    world.run(seconds(5));
    assert_eq!(asked_fsid(&world).as_deref(), Some("00000000000000aa"));

    // What is seen there after the restart says more than what was known before.
    let mut world = disk("00000000000000aa");
    world.restart();
    with_fsid(&mut world, "00000000000000bb");
    world.table();
    world.run(seconds(5));
    assert_eq!(stored_fsid(&world), Some(("00000000000000bb".into(), b"/dev/sdb".to_vec())));
}

#[test]
fn an_fsid_says_nothing_about_another_source() {
    for is_restarted in [true, false] {
        let mut world = disk("00000000000000aa");
        world.policy.volumes[0].source = Some(b"/dev/sdc".to_vec());
        if is_restarted {
            world.restart();
        } else {
            world.feed(Input::Policy(world.policy.clone()));
        }
        world.unmount("/mnt/a");
        world.run(seconds(120));
        assert_eq!(asked_fsid(&world), None, "restarted: {is_restarted}");

        let plan = world.running().pop().unwrap();
        with_fsid(&mut world, "00000000000000cc");
        world.mounts.push(mount(50, 50, "/mnt/a", "ext4", "/dev/sdc"));
        world.table();
        world.finish(plan.id, Outcome::Changed);
        world.run(seconds(30));
        assert_eq!(stored_fsid(&world), Some(("00000000000000cc".into(), b"/dev/sdc".to_vec())));
        // And back again: the first source is learnt anew, too.
        world.policy.volumes[0].source = Some(b"/dev/sdb".to_vec());
        world.restart();
        world.unmount("/mnt/a");
        world.run(seconds(120));
        assert_eq!(asked_fsid(&world), None);
    }
}
