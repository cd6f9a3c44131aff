//! Looks in doubt: how often they are made, and what those say that could not be made, or not by this user.

use alloc::sync::Arc;
use alloc::vec;

use super::world::{Answer, World, fails, good, millis, mount, seconds, spec};
use crate::engine::Input;
use crate::observation::{NotRun, Op, ProbeResult};
use crate::topology::Options;
use crate::verdict::HealthState::{Degraded, Healthy, Suspect, Unknown};
use crate::verdict::{Advice, Reason};
use crate::volume::{Mode, ProbeUser, VolumeSpec};

fn sshfs(name: &str) -> VolumeSpec {
    spec(name, "fuse.sshfs", &alloc::format!("host:/{name}"), Mode::Observe)
}

fn nfs(name: &str) -> VolumeSpec {
    spec(name, "nfs4", &alloc::format!("filer:/{name}"), Mode::Observe)
}

#[test]
fn a_look_that_was_lost_is_made_up_for_at_once_and_only_once() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.run(seconds(1));
    world.log.clear();
    world.answer("a", Answer::Now(ProbeResult::NotRun(NotRun::WorkerLost)));
    world.run(seconds(11));
    let lost = world.probes();
    assert!((2..=3).contains(&lost), "the one of the rhythm, and one more: {lost}");
    world.run(seconds(100));
    assert!(world.probes() <= lost + 11, "a machine without memory is left alone: {}", world.probes());
}

#[test]
fn what_quick_looks_find_again_and_again_is_looked_at_in_the_ordinary_rhythm() {
    let mut world = World::healthy(vec![nfs("a")]);
    let many = |world: &mut World| {
        for _ in 0..600 {
            world.run(millis(100));
            // One bad file, all the time.
            world.hint(10, None, 5, Op::Read);
        }
    };
    world.answer("a", Answer::Now(ProbeResult::SentinelDiffers));
    world.run(seconds(120));
    assert_eq!(world.state("a"), (Suspect, Some(Reason::WrongMount)));
    world.log.clear();
    world.run(seconds(1000));
    assert!((95..=115).contains(&world.probes()), "{}", world.probes());
    world.log.clear();
    many(&mut world);
    assert!(world.probes() < 40, "hints that say nothing new flood nobody: {}", world.probes());

    // What is new is looked at closely again.
    world.run(seconds(60));
    world.answer("a", fails(116));
    world.run(seconds(10));
    let before = world.now;
    world.run(seconds(1));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Stale)));
    let fall = world.transitions().into_iter().find(|told| told.to == Degraded).unwrap();
    assert!(fall.at <= before, "{fall:?}");
    // And a volume that is well again answers a hint at once.
    world.answer("a", Answer::Now(good()));
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Healthy, None));
    world.log.clear();
    world.hint(10, None, 5, Op::Read);
    world.run(millis(5));
    assert_eq!(world.probes(), 1);
}

#[test]
fn as_many_quick_looks_are_made_as_the_operator_wants_failures() {
    let mut patient = nfs("a");
    patient.watch.failures = 20;
    let mut world = World::healthy(vec![patient]);
    world.answer("a", fails(116));
    world.run(seconds(25));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Stale)));
}

#[test]
fn what_one_user_was_allowed_says_nothing_of_another() {
    let refused = || fails(13);
    let user = |uid| Some(Arc::new(ProbeUser { uid, gid: uid, groups: vec![] }));
    let mut volume = nfs("a");
    volume.watch.probe_as = user(1000);
    let mut world = World::healthy(vec![volume]);
    world.policy.volumes[0].watch.probe_as = None;
    world.feed(Input::Policy(world.policy.clone()));
    world.answer("a", refused());
    world.run(seconds(60));
    assert_eq!(world.state("a").1, None, "root was never allowed");
    assert!(world.status("a").condition.advice.contains(&Advice::Inaccessible));
    // A policy that says the same changes nothing.
    let mut same = World::healthy(vec![nfs("a")]);
    same.feed(Input::Policy(same.policy.clone()));
    same.answer("a", refused());
    same.run(seconds(60));
    assert_eq!(same.state("a"), (Degraded, Some(Reason::Auth)));
}

#[test]
fn a_fuse_mount_that_lets_only_its_owner_in_is_inaccessible_whatever_was_before() {
    let mounted = |options: &[u8]| {
        let mut world = World::healthy(vec![sshfs("a")]);
        world.run(seconds(1));
        world.mounts.pop();
        let mut again = mount(40, 40, "/mnt/a", "fuse.sshfs", "host:/a");
        again.super_options = Options::parse(options);
        world.mounts.push(again);
        world.answer("a", fails(13));
        world.table();
        world.run(seconds(60));
        world.state("a")
    };
    assert_eq!(mounted(b"rw,user_id=1000,group_id=1000"), (Unknown, None));
    let refused = (Degraded, Some(Reason::Auth));
    assert_eq!(mounted(b"rw,user_id=1000,group_id=1000,allow_other"), refused);
    assert_eq!(mounted(b"rw,user_id=0,group_id=0"), refused);
}
