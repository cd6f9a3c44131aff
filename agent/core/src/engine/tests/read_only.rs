//! Read-only is repaired where nobody wants it so.

use alloc::vec;

use super::world::{World, millis, seconds, spec};
use crate::observation::Op;
use crate::remediation::{Action, Outcome};
use crate::topology::Options;
use crate::verdict::HealthState::{Degraded, Healthy, Recovering};
use crate::verdict::Reason;
use crate::volume::Mode;

#[test]
fn read_only_is_repaired_only_where_storage_caused_it() {
    let ext4 = || spec("a", "ext4", "/dev/sdb", Mode::Act);
    let mut by_hand = World::healthy(vec![ext4()]);
    by_hand.mounts[1].super_options = Options::parse(b"ro");
    by_hand.table();
    by_hand.run(seconds(60));
    assert_eq!(by_hand.state("a"), (Degraded, Some(Reason::Readonly)));
    let mut by_error = World::healthy(vec![ext4()]);
    by_error.mounts[1].super_options = Options::parse(b"rw,emergency_ro");
    by_error.table();
    by_error.run(millis(10));
    let plan = by_error.running().pop().unwrap();
    assert!(matches!(
        plan.actions.as_slice(),
        [Action::CheckSource { .. }, Action::CoverConsumers { .. }, Action::UnmountOld, ..]
    ));
    let mut old_kernel = World::healthy(vec![ext4()]);
    old_kernel.hint(10, None, 117, Op::Other);
    old_kernel.mounts[1].super_options = Options::parse(b"ro");
    old_kernel.table();
    old_kernel.run(millis(10));
    assert_eq!(old_kernel.state("a"), (Recovering, Some(Reason::Readonly)));
}

#[test]
fn what_a_failed_repair_has_shown_again_read_only_is_repaired_by_the_next_agent() {
    let mut world = World::healthy(vec![spec("a", "ext4", "/dev/sdb", Mode::Act)]);
    world.mounts[1].super_options = Options::parse(b"rw,emergency_ro");
    world.table();
    world.run(millis(10));
    let first = world.running().pop().unwrap().id;
    world.put_back(first, "/mnt/a", 11);
    world.run(millis(10));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Readonly)));
    world.restart();
    world.table();
    world.run(seconds(120));
    assert_eq!(world.running().len(), 1, "{:?}", world.state("a"));
    // A person may make it read-only once it was well again.
    let second = world.running().pop().unwrap().id;
    world.replace("/mnt/a", 12);
    world.mounts.last_mut().unwrap().super_options = Options::parse(b"rw");
    world.finish(second, Outcome::Changed);
    world.table();
    world.run(seconds(60));
    assert_eq!(world.state("a").0, Healthy);
    world.mounts.last_mut().unwrap().super_options = Options::parse(b"ro");
    world.table();
    world.run(seconds(120));
    assert_eq!((world.state("a"), world.running().len()), ((Degraded, Some(Reason::Readonly)), 0));
}

#[test]
fn no_error_that_is_harmless_long_past_or_later_undoes_what_a_person_made_read_only() {
    let healthy = || World::healthy(vec![spec("a", "ext4", "/dev/sdb", Mode::Act)]);
    let remount_readonly = |world: &mut World| {
        world.mounts[1].super_options = Options::parse(b"ro");
        world.table();
        world.run(millis(10));
    };
    // A FIFO without a reader, a device node without a driver, a retry below the file system.
    for (errno, op) in [(6, Op::Open), (19, Op::Open), (123, Op::List), (5, Op::Device), (5, Op::Request)] {
        let mut world = healthy();
        world.hint(10, None, errno, op);
        remount_readonly(&mut world);
        world.run(seconds(60));
        assert_eq!(world.state("a"), (Degraded, Some(Reason::Readonly)), "{errno} {op:?}");
    }
    let mut world = healthy();
    world.hint(10, None, 5, Op::Read);
    world.run(seconds(60));
    remount_readonly(&mut world);
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Readonly)), "a minute ago");
    world.run(seconds(60));
    world.hint(10, None, 5, Op::Read);
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Readonly)), "long after");
    assert!(world.running().is_empty());
}
