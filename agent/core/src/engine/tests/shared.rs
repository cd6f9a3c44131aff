//! Mounts that stand on others: several of one superblock, and binds of what somebody else repairs.

use alloc::vec;

use super::world::{Answer, World, device, fails, good, millis, mount, seconds, spec};
use crate::engine::Input;
use crate::id::{PlanId, ProbeId};
use crate::observation::{Op, ProbeReport, ProbeResult, ProbeStep};
use crate::remediation::{Outcome, Refusal};
use crate::topology::Options;
use crate::verdict::HealthState::{Degraded, Healthy, Recovering};
use crate::verdict::Reason;
use crate::volume::{Mode, VolumeSpec};

fn fuse(name: &str, mode: Mode) -> VolumeSpec {
    spec(name, "fuse.x", "x", mode)
}

/// Three volumes: `a` and `b` on one superblock, `c` on its own.
fn sharing() -> World {
    let mut world =
        World::new(vec![fuse("a", Mode::Observe), fuse("b", Mode::Act), fuse("c", Mode::Observe)]);
    world.mounts[2].superblock = world.mounts[1].superblock;
    world.table();
    world.run(seconds(1));
    for name in ["a", "b", "c"] {
        assert_eq!(world.state(name), (Healthy, None));
    }
    world.log.clear();
    world
}

#[test]
fn what_has_hung_speaks_for_every_mount_of_its_superblock() {
    let mut world = sharing();
    world.answer("a", Answer::Hangs);
    world.answer("b", Answer::Hangs);
    world.run(seconds(30));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Hung)));
    assert_eq!(world.state("b"), (Degraded, Some(Reason::Hung)));
    assert_eq!(world.state("c"), (Healthy, None));

    // It comes back, and everybody looks for himself.
    world.answer("a", Answer::Now(good()));
    world.answer("b", fails(107));
    world.feed(Input::ProbeReturned(out(&world)));
    world.run(millis(100));
    assert_eq!(world.state("b").1, Some(Reason::Disconnected));
    world.run(seconds(10));
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn a_look_that_hangs_half_way_speaks_for_the_superblock_as_well() {
    let mut world = sharing();
    world.answer("a", Answer::Never);
    world.answer("b", Answer::Never);
    world.run(seconds(20));
    let order = world.log.iter().find_map(|(_, output)| match output {
        crate::engine::Output::Probe(order) if order.superblock == device(10) => Some(order.clone()),
        _ => None,
    });
    let order = order.unwrap();
    world.feed(Input::Probe(ProbeReport {
        id: order.id,
        volume: order.volume.clone(),
        generation: order.generation,
        started: world.now - seconds(3),
        took: seconds(3),
        result: ProbeResult::TimedOut { step: ProbeStep::Sentinel },
    }));
    world.run(seconds(20));
    let other = if order.volume.as_str() == "a" { "b" } else { "a" };
    assert_eq!(world.state(order.volume.as_str()), (Degraded, Some(Reason::Hung)));
    assert_eq!(world.state(other), (Degraded, Some(Reason::Hung)));
    assert!(world.running().is_empty(), "nobody is repaired by hearsay");
}

fn out(world: &World) -> ProbeId {
    let ids = world.log.iter().filter_map(|(_, output)| match output {
        crate::engine::Output::Probe(order) if order.superblock == device(10) => Some(order.id),
        _ => None,
    });
    ids.max().unwrap()
}

/// `b` is bound from a directory of what is mounted at `/mnt/a`, which has died.
fn refused() -> World {
    let mut world = tried();
    world.finish(PlanId(100), Outcome::Refused(Refusal::SameSuperblock));
    world.run(seconds(5));
    assert_eq!(world.state("b"), (Degraded, Some(Reason::Disconnected)));
    world
}

/// The same, while its first plan runs.
fn tried() -> World {
    let mut bind = spec("b", "fuse.x", "/mnt/a/part", Mode::Act);
    bind.options = vec!["bind".into()];
    let mut world = World::healthy(vec![bind]);
    world.mounts.push(mount(30, 10, "/mnt/a", "fuse.x", "x"));
    world.table();
    world.answer("b", fails(107));
    world.run(seconds(15));
    assert_eq!(world.running().len(), 1);
    world
}

#[test]
fn a_bind_whose_source_came_back_while_its_plan_ran_is_tried_again_at_once() {
    let mut world = tried();
    world.mounts.retain(|mount| mount.mountpoint != "/mnt/a".into());
    world.mounts.push(mount(31, 31, "/mnt/a", "fuse.x", "x"));
    world.table();
    world.finish(PlanId(100), Outcome::Refused(Refusal::SameSuperblock));
    assert_eq!(world.state("b").0, Recovering);
    assert_eq!(world.running().len(), 1);
}

#[test]
fn a_bind_whose_source_was_bare_for_a_moment_is_tried_again_once_for_each_mount_that_comes_there() {
    let mut world = tried();
    world.mounts.retain(|mount| mount.mountpoint != "/mnt/a".into());
    world.table();
    world.finish(PlanId(100), Outcome::Refused(Refusal::OtherVolume));
    world.run(seconds(5));
    assert_eq!(world.running().len(), 0, "there is nothing but a directory");
    // The third has the number of the second, which the kernel gives out again.
    for (number, plan) in [(31, 101), (32, 102), (32, 103)] {
        world.mounts.retain(|mount| mount.mountpoint != "/mnt/a".into());
        world.table();
        world.mounts.push(mount(number, 31, "/mnt/a", "fuse.x", "x"));
        world.table();
        assert_eq!(world.running().len(), 1, "for mount {number}");
        // Another volume of the same type.
        world.finish(PlanId(plan), Outcome::Refused(Refusal::OtherVolume));
        world.run(seconds(5));
        assert_eq!(world.running().len(), 0, "again for mount {number}");
    }
}

#[test]
fn a_bind_is_repaired_as_soon_as_its_source_has_been() {
    let mut world = refused();
    world.mounts.retain(|mount| mount.mountpoint != "/mnt/a".into());
    world.table();
    world.run(seconds(5));
    assert!(world.running().is_empty(), "the directory beneath is no source");
    world.mounts.push(mount(31, 31, "/mnt/a", "fuse.x", "x"));
    world.table();
    assert_eq!(world.state("b").0, Recovering);
    assert_eq!(world.running().len(), 1);
}

#[test]
fn a_bind_whose_source_is_still_dead_waits() {
    let mut world = refused();
    // Something else happens to the table, and something else is mounted there.
    world.mounts.push(mount(40, 40, "/mnt/other", "fuse.x", "x"));
    world.table();
    world.run(seconds(5));
    let mut cover = mount(41, 41, "/mnt/a", "tmpfs", "x");
    cover.parent = crate::id::MountId(30);
    world.mounts.push(cover);
    world.table();
    world.run(seconds(5));
    assert!(world.running().is_empty());
}

/// A view of a directory of what `a` is, in the same place of the kernel's counts.
fn viewed(options: &[u8], root: &str) -> World {
    let mut world = sharing();
    let mut view = mount(50, 10, "/view", "fuse.x", "x");
    view.options = Options::parse(options);
    view.root = root.into();
    world.mounts.push(view);
    world.table();
    for _ in 0..20 {
        world.hint(10, Some(2), 30, Op::Open);
        world.run(millis(500));
    }
    world
}

#[test]
fn who_writes_to_a_read_only_view_says_nothing_about_the_file_system() {
    let world = viewed(b"ro", "/");
    assert_eq!(world.state("a"), (Healthy, None));
    assert_eq!(world.transitions(), vec![]);
    let counted: u64 = world.status("a").errors.values().sum();
    assert_eq!(counted, 20, "it is counted all the same");
    assert!(world.probes() > 3, "a look is taken all the same");
    for (options, root) in [(&b"rw"[..], "/"), (b"ro", "/other")] {
        let world = viewed(options, root);
        assert_eq!(world.state("a"), (Degraded, Some(Reason::Readonly)), "no view could have refused that");
    }
}
