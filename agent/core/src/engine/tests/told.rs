//! What people are told of a volume: what was found and what was meant, and what was known last.

use alloc::vec;

use super::world::{Answer, World, fails, good, millis, mount, seconds, spec};
use crate::engine::Input;
use crate::id::{MountId, VolumeId};
use crate::observation::{NotRun, ProbeResult};
use crate::path::BytePath;
use crate::verdict::HealthState::{Degraded, Healthy, Probation, Suspect};
use crate::verdict::Reason;
use crate::volume::{Mode, VolumeSpec};

fn nfs() -> VolumeSpec {
    spec("a", "nfs4", "filer:/a", Mode::Observe)
}

#[test]
fn of_a_volume_that_is_sick_the_last_that_was_known_stays_told() {
    let mut world = World::healthy(vec![nfs()]);
    world.answer("a", fails(113));
    world.run(seconds(15));
    let known = world.status("a");
    assert_eq!(known.rule.map(|(name, _)| name), Some("probes-host-down"));
    world.answer("a", Answer::Now(ProbeResult::NotRun(NotRun::TooManyAbandoned)));
    world.replaced_by_others("/mnt/a", 20);
    world.run(seconds(100));
    let status = world.status("a");
    assert_eq!(world.state("a"), (Degraded, Some(Reason::HostDown)));
    assert_eq!(status.rule, known.rule);
    let message = status.condition.message;
    assert!(message.starts_with("the probe failed with EHOSTUNREACH"), "{message}");
    assert!(message.ends_with("nothing newer is known: not looked at yet"), "{message}");
    world.answer("a", Answer::Now(good()));
    world.run(seconds(20));
    assert_eq!(world.state("a"), (Healthy, None));
    assert_eq!(world.status("a").rule, None);
    assert!(!world.status("a").condition.message.contains("EHOSTUNREACH"));
}

#[test]
fn what_is_there_and_what_should_be_is_told() {
    let message = |world: &World| world.status("a").condition.message;
    let mut world = World::healthy(vec![nfs()]);
    let mut cover = mount(40, 40, "/mnt/a", "tmpfs", "scratch");
    cover.parent = MountId(10);
    world.mounts.push(cover);
    world.table();
    assert!(message(&world).starts_with("tmpfs of scratch lies over it: "), "{}", message(&world));
    world.mounts.pop();
    world.mounts.push(mount(41, 41, "/mnt", "tmpfs", "above"));
    world.table();
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Covered)));
    assert!(message(&world).starts_with("a mount lies over a directory above it: "), "{}", message(&world));
    world.mounts.pop();
    world.mounts[1] = mount(42, 42, "/mnt/a", "nfs4", "filer:/b");
    world.table();
    let told = message(&world);
    assert!(told.starts_with("expected nfs4 of filer:/a, found nfs4 of filer:/b: "), "{told}");
    world.policy.volumes[0].source = None;
    world.policy.volumes[0].fstype = Some("cifs".into());
    world.feed(Input::Policy(world.policy.clone()));
    let told = message(&world);
    assert!(told.starts_with("expected cifs, found nfs4 of filer:/b: "), "{told}");
    assert_eq!(world.status("a").mountpoint, BytePath::from("/mnt/a"));
}

#[test]
fn a_doubt_that_stays_ends_probation_and_a_passing_one_does_not() {
    let mut world = World::healthy(vec![nfs()]);
    world.answer("a", fails(116));
    world.run(seconds(15));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Stale)));
    world.answer("a", Answer::Now(ProbeResult::SentinelMissing));
    world.feed(Input::ProbeNow(VolumeId::new("a")));
    world.run(millis(1500));
    assert_eq!(world.state("a"), (Probation, Some(Reason::Stale)));
    world.answer("a", Answer::Now(good()));
    world.feed(Input::ProbeNow(VolumeId::new("a")));
    world.run(millis(1500));
    assert_eq!(world.state("a").0, Probation, "the settle time begins when the doubt ends");
    world.answer("a", Answer::Now(ProbeResult::SentinelMissing));
    world.feed(Input::ProbeNow(VolumeId::new("a")));
    world.run(seconds(10));
    assert_eq!(world.state("a"), (Suspect, Some(Reason::WrongMount)));
    let message = world.status("a").condition.message;
    assert!(message.starts_with("the root answers, the sentinel is missing"), "{message}");
    world.answer("a", Answer::Now(good()));
    world.feed(Input::ProbeNow(VolumeId::new("a")));
    world.run(millis(1500));
    assert_eq!(world.state("a"), (Probation, Some(Reason::Stale)), "it is not believed yet");
    world.run(seconds(15));
    assert_eq!(world.state("a"), (Healthy, None));
}

/// A volume that was stale, came back, and has been in doubt for longer than the settle time.
fn unbelieved() -> World {
    let mut world = World::healthy(vec![nfs()]);
    world.answer("a", fails(116));
    world.run(seconds(15));
    world.answer("a", Answer::Now(ProbeResult::SentinelMissing));
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Suspect, Some(Reason::WrongMount)));
    world.answer("a", Answer::Now(good()));
    world
}

#[test]
fn what_was_not_believed_is_not_believed_by_the_next_agent_or_after_a_new_mount_either() {
    type Change = fn(&mut World);
    let changes: [(&str, Change); 2] = [
        ("another agent", |world| {
            world.restart();
            world.table();
        }),
        ("another mount", |world| world.replaced_by_others("/mnt/a", 20)),
    ];
    for (what, change) in changes {
        let mut world = unbelieved();
        change(&mut world);
        world.run(millis(1500));
        assert_eq!(world.state("a"), (Probation, Some(Reason::Stale)), "{what}");
        world.run(seconds(20));
        assert_eq!(world.state("a"), (Healthy, None), "{what}");
    }
}
