//! The mount table and the policy: volumes that come, go, move, are covered, and are told otherwise.

use alloc::vec;
use alloc::vec::Vec;

use super::world::{Answer, World, device, fails, good, millis, mount, seconds, spec};
use crate::engine::{Input, Output, Tracked};
use crate::id::{MountId, VolumeId};
use crate::observation::{NotRun, Op, ProbeOk, ProbeResult};
use crate::policy::Policy;
use crate::topology::Options;
use crate::verdict::HealthState::{Degraded, Healthy, Probation, Unknown};
use crate::verdict::{Advice, Reason};
use crate::volume::{Mode, VolumeSpec};

fn nfs(name: &str) -> VolumeSpec {
    spec(name, "nfs4", &alloc::format!("filer:/{name}"), Mode::Observe)
}

fn discovering(paths: &[&str]) -> World {
    let mut mounts = vec![mount(1, 1, "/", "ext4", "/dev/sda1")];
    mounts.extend(paths.iter().zip(10..).map(|(path, n)| mount(n, n, path, "nfs4", "filer:/x")));
    let mut world = World::with(Policy::default(), mounts);
    world.table();
    world.run(millis(100));
    world.log.clear();
    world
}

#[test]
fn a_named_volume_that_is_not_mounted_is_missing_right_after_the_start() {
    let mut world = World::new(vec![nfs("a")]);
    world.unmount("/mnt/a");
    assert_eq!(world.state("a").0, Unknown, "it may be elsewhere, over a link");
    world.run(millis(1));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Missing)));
    assert_eq!(world.probes(), 0);
    world.run(seconds(100));
    assert_eq!(world.probes(), 0, "there is nothing to look at");
    world.mounts.push(mount(40, 40, "/mnt/a", "nfs4", "filer:/a"));
    world.table();
    world.run(millis(10));
    assert_eq!(world.state("a").0, Probation);
    world.run(seconds(3));
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn something_else_or_something_above_is_said() {
    let mut world = World::healthy(vec![nfs("a")]);
    let mut cover = mount(40, 40, "/mnt/a", "tmpfs", "t");
    cover.parent = MountId(10);
    world.mounts.push(cover);
    world.table();
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Covered)));
    assert_eq!(world.status("a").stack_depth, 2);
    world.mounts.remove(1);
    world.mounts[1].parent = MountId(1);
    world.table();
    assert_eq!(world.state("a"), (Degraded, Some(Reason::WrongMount)));
    assert_eq!(world.last_track(), Some(vec![]));
}

#[test]
fn a_fault_of_the_place_ends_with_it_also_where_nobody_may_look() {
    let refused = fails(13);
    let unreachable = Answer::Now(ProbeResult::NotRun(NotRun::Unreachable));
    for answer in [refused, unreachable] {
        let mut world = World::new(vec![nfs("a")]);
        world.answer("a", answer);
        world.unmount("/mnt/a");
        world.run(millis(1));
        assert_eq!(world.state("a"), (Degraded, Some(Reason::Missing)));
        world.mounts.push(mount(40, 40, "/mnt/a", "nfs4", "filer:/a"));
        world.table();
        world.run(seconds(10));
        assert_eq!(world.state("a"), (Unknown, None), "missing no more, and nothing else is known");
        assert!(world.status("a").condition.advice.contains(&Advice::Inaccessible));
        let mut cover = mount(41, 41, "/mnt/a", "tmpfs", "t");
        cover.parent = MountId(40);
        world.mounts.push(cover);
        world.table();
        assert_eq!(world.state("a"), (Degraded, Some(Reason::Covered)));
        world.mounts.pop();
        world.table();
        world.run(seconds(10));
        assert_eq!(world.state("a"), (Unknown, None));
        world.mounts[1] = mount(42, 42, "/mnt/a", "tmpfs", "t");
        world.table();
        assert_eq!(world.state("a"), (Degraded, Some(Reason::WrongMount)));
        world.mounts[1] = mount(43, 43, "/mnt/a", "nfs4", "filer:/a");
        world.table();
        world.run(seconds(10));
        assert_eq!(world.state("a"), (Unknown, None));
    }
}

#[test]
fn a_wrong_mount_that_the_table_told_of_ends_with_it_also_for_the_next_agent() {
    let mut world = World::new(vec![nfs("a")]);
    world.answer("a", Answer::Now(ProbeResult::NotRun(NotRun::Unreachable)));
    world.mounts[1] = mount(42, 42, "/mnt/a", "tmpfs", "t");
    world.table();
    assert_eq!(world.state("a"), (Degraded, Some(Reason::WrongMount)));
    world.restart();
    world.mounts[1] = mount(43, 43, "/mnt/a", "nfs4", "filer:/a");
    world.table();
    world.answer("a", fails(13));
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Unknown, None));
}

#[test]
fn a_fault_that_a_look_found_does_not_end_when_looks_become_impossible() {
    let mut world = World::healthy(vec![nfs("a")]);
    let elsewhere = ProbeResult::WrongMount { found: device(99) };
    world.answer("a", Answer::Now(elsewhere));
    world.run(seconds(20));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::WrongMount)));
    world.answer("a", Answer::Now(ProbeResult::NotRun(NotRun::Unreachable)));
    world.run(seconds(100));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::WrongMount)));
}

#[test]
fn read_only_by_the_table_needs_no_probe() {
    let mut world = World::healthy(vec![nfs("a"), spec("b", "ext4", "/dev/sdb", Mode::Observe)]);
    world.mounts[2].super_options = Options::parse(b"rw,emergency_ro");
    world.table();
    assert_eq!(world.state("b"), (Degraded, Some(Reason::Readonly)));
    world.mounts[2].super_options = Options::parse(b"rw,shutdown");
    world.mounts[1].options = Options::parse(b"ro,relatime");
    world.table();
    assert_eq!(world.state("b"), (Degraded, Some(Reason::FsShutdown)));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Readonly)));
    world.mounts[1].options = Options::parse(b"rw,errors=remount-ro");
    world.mounts[2].super_options = Options::parse(b"rw");
    world.table();
    world.run(seconds(10));
    assert_eq!(world.state("a"), (Healthy, None));
    assert_eq!(world.state("b"), (Healthy, None));
}

#[test]
fn a_discovered_volume_that_was_read_only_at_first_sight_is_healthy_until_it_changes() {
    let mut world = discovering(&["/m/a"]);
    world.mounts.push(mount(30, 30, "/m/ro", "ext4", "/dev/sdb"));
    world.mounts[2].super_options = Options::parse(b"ro");
    world.table();
    world.run(millis(50));
    assert_eq!(world.state("/m/ro"), (Healthy, None));
    world.mounts[1].super_options = Options::parse(b"ro");
    world.table();
    assert_eq!(world.state("/m/a"), (Degraded, Some(Reason::Readonly)));
}

/// A named volume that is mounted read-only from the first.
fn readonly_from_the_first(fstype: &str, options: &[&str], super_options: &[u8]) -> World {
    let mut named = spec("a", fstype, "/dev/sdb", Mode::Observe);
    named.options = options.iter().map(|option| (*option).into()).collect();
    let mut world = World::new(vec![named]);
    world.mounts[1].super_options = Options::parse(super_options);
    world.table();
    world.run(seconds(20));
    world
}

#[test]
fn read_only_from_the_first_is_sick_unless_that_is_wanted_or_cannot_be_otherwise() {
    let sick = (Degraded, Some(Reason::Readonly));
    for (options, expected) in [
        (vec![], sick),
        (vec!["noatime"], sick),
        (vec!["ro", "rw"], sick),
        (vec!["rw", "ro"], (Healthy, None)),
    ] {
        let world = readonly_from_the_first("ext4", &options, b"ro,errors=remount-ro");
        assert_eq!(world.state("a"), expected, "{options:?}");
    }
    let layers = &["lowerdir=/a:/b"];
    let overlay = readonly_from_the_first("overlay", layers, b"ro,lowerdir=/a,lowerdir+=/b");
    assert_eq!(overlay.state("a"), (Healthy, None));
    let upper = readonly_from_the_first("overlay", layers, b"ro,lowerdir=/a,upperdir=/u");
    assert_eq!(upper.state("a"), sick);
}

/// A volume that is mounted while the agent watches.
fn appeared() -> World {
    let mut world = discovering(&[]);
    world.mounts.push(mount(30, 30, "/m/a", "ext4", "/dev/sdb"));
    world.table();
    world
}

#[test]
fn a_mount_that_is_made_read_only_by_a_second_call_is_meant_so() {
    let made = |options: &[u8], after| {
        let mut world = appeared();
        world.run(after);
        world.mounts[1].options = Options::parse(options);
        world.table();
        // Its programs are refused to write, as they should be.
        for _ in 0..20 {
            world.hint(world.mounts[1].superblock.minor, None, 30, Op::Open);
            world.run(millis(500));
        }
        world.run(seconds(20));
        world
    };
    let mut bound = made(b"ro,relatime", millis(300));
    assert_eq!(bound.state("/m/a"), (Healthy, None));
    assert!(bound.transitions().iter().all(|told| told.to == Healthy), "{:?}", bound.transitions());
    bound.restart();
    bound.table();
    bound.run(seconds(20));
    assert_eq!(bound.state("/m/a"), (Healthy, None), "also after a restart");
    let later = made(b"ro,relatime", seconds(20));
    assert_eq!(later.state("/m/a"), (Degraded, Some(Reason::Readonly)));
    let mut before = discovering(&["/m/a"]);
    before.mounts[1].options = Options::parse(b"ro,relatime");
    before.table();
    assert_eq!(before.state("/m/a"), (Degraded, Some(Reason::Readonly)), "older than the agent");
}

#[test]
fn a_mount_that_storage_makes_read_only_at_once_is_sick_all_the_same() {
    let mut world = appeared();
    world.run(millis(300));
    world.hint(world.mounts[1].superblock.minor, None, 5, Op::Filesystem);
    world.mounts[1].super_options = Options::parse(b"ro");
    world.table();
    assert_eq!(world.state("/m/a"), (Degraded, Some(Reason::Readonly)));
}

#[test]
fn a_discovered_volume_that_was_unmounted_is_forgotten_after_a_while() {
    let mut world = discovering(&["/m/a", "/m/b"]);
    world.unmount("/m/a");
    assert_eq!(world.state("/m/a"), (Unknown, None));
    world.run(seconds(59));
    assert_eq!(world.engine.volumes().len(), 3);
    world.run(seconds(2));
    assert_eq!(world.engine.volumes().len(), 2);
    assert_eq!(world.last_track().map(|tracked| tracked.len()), Some(2));
}

#[test]
fn a_discovered_volume_that_comes_back_in_time_is_the_same_volume() {
    let mut world = discovering(&["/m/a"]);
    let line = world.mounts.pop().unwrap();
    world.hint(10, None, 5, Op::Read);
    world.table();
    world.run(seconds(30));
    world.mounts.push(line);
    world.table();
    world.run(millis(10));
    assert_eq!(world.state("/m/a"), (Healthy, None));
    assert_eq!(world.status("/m/a").errors.len(), 1, "totals never go down");
    world.run(seconds(100));
    assert_eq!(world.state("/m/a"), (Healthy, None));
}

#[test]
fn an_automount_that_expires_is_idle_without_a_word() {
    let mut world = discovering(&[]);
    let mut trap = mount(20, 20, "/net/a", "autofs", "/etc/auto");
    trap.parent = MountId(1);
    let mut real = mount(21, 21, "/net/a", "nfs4", "filer:/a");
    real.parent = MountId(20);
    world.mounts.extend([trap, real.clone()]);
    world.table();
    world.run(millis(10));
    assert_eq!(world.state("/net/a"), (Healthy, None));
    world.log.clear();
    world.mounts.pop();
    world.table();
    world.run(seconds(600));
    assert!(world.status("/net/a").condition.advice.contains(&Advice::Idle));
    real.id = MountId(33);
    world.mounts.push(real);
    world.table();
    world.run(seconds(5));
    assert_eq!(world.transitions(), []);
    assert_eq!(world.state("/net/a"), (Healthy, None));
    assert!(world.status("/net/a").condition.advice.is_empty());
}

#[test]
fn an_automount_that_nobody_named_and_nobody_uses_is_forgotten_after_an_hour() {
    let mut world = discovering(&[]);
    let trap = mount(20, 20, "/home", "autofs", "/etc/auto.home");
    let mut real = mount(21, 21, "/home/ann", "nfs4", "filer:/ann");
    real.parent = MountId(20);
    world.mounts.extend([trap, real]);
    world.table();
    world.run(seconds(1));
    world.mounts.pop();
    world.table();
    world.run(seconds(3000));
    assert!(world.status("/home/ann").condition.advice.contains(&Advice::Idle));
    world.run(seconds(1000));
    assert!(world.engine.volume(&VolumeId::new("/home/ann")).is_none());
}

#[test]
fn a_named_automount_that_is_sick_and_expires_is_not_sick_any_more() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", fails(107));
    world.run(seconds(12));
    assert_eq!(world.state("a").0, Degraded);
    world.mounts[1] = mount(20, 20, "/mnt/a", "autofs", "/etc/auto");
    world.table();
    assert_eq!(world.state("a"), (Unknown, None));
}

#[test]
fn another_mount_at_the_place_is_another_generation() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", fails(116));
    world.run(seconds(15));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Stale)));
    world.answer("a", Answer::Never);
    world.replace("/mnt/a", 30);
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Stale)), "no evidence is no good news");
    world.answer("a", Answer::Now(good()));
    let mut healthy = World::healthy(vec![nfs("a")]);
    healthy.answer("a", Answer::Never);
    healthy.replace("/mnt/a", 30);
    assert_eq!(healthy.state("a"), (Unknown, None), "unknown is not healthy");
}

#[test]
fn the_kernel_is_told_what_to_count_for_once_for_each_change() {
    let mut world = World::new(vec![nfs("a")]);
    let root =
        ProbeResult::Ok(ProbeOk { root_inode: 77, read_data: true, wrote_data: false, ..ProbeOk::default() });
    world.answer("a", Answer::Now(root));
    world.mounts.push(mount(50, 10, "/pods/a", "nfs4", "filer:/a"));
    world.table();
    let row =
        |root_inode, path: &str| Tracked { superblock: device(10), root_inode, mountpoint: path.into() };
    assert_eq!(world.last_track(), Some(vec![row(None, "/mnt/a"), row(None, "/pods/a")]));
    world.run(millis(150));
    assert_eq!(world.last_track(), Some(vec![row(Some(77), "/mnt/a"), row(Some(77), "/pods/a")]));
    world.log.clear();
    world.run(seconds(100));
    world.table();
    assert_eq!(world.last_track(), None);
}

#[test]
fn a_volume_that_is_off_is_neither_looked_at_nor_judged() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.policy.volumes[0].watch.mode = Mode::Off;
    world.feed(Input::Policy(world.policy.clone()));
    assert_eq!(world.state("a"), (Unknown, None));
    world.log.clear();
    world.unmount("/mnt/a");
    world.hint(10, None, 5, Op::Writeback);
    world.run(seconds(100));
    assert_eq!(world.probes(), 0);
    assert_eq!(world.state("a"), (Unknown, None));
    assert!(world.status("a").errors.is_empty());
    world.policy.volumes[0].watch.mode = Mode::Observe;
    world.feed(Input::Policy(world.policy.clone()));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Missing)));
}

#[test]
fn a_reload_adds_renames_moves_and_removes_volumes() {
    let mut world = World::healthy(vec![nfs("a"), nfs("b"), nfs("c")]);
    let mut moved = nfs("c");
    moved.mountpoint = "/elsewhere".into();
    world.policy.volumes =
        vec![nfs("a"), moved, VolumeSpec { id: crate::id::VolumeId::new("new"), ..nfs("b") }];
    world.policy.volumes[2].mountpoint = "/mnt/b".into();
    world.feed(Input::Policy(world.policy.clone()));
    world.run(millis(10));
    let names: Vec<_> = world.engine.volumes().iter().map(|status| status.id.clone()).collect();
    assert_eq!(names.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["a", "c", "new"]);
    assert_eq!(world.state("a"), (Healthy, None));
    assert_eq!(world.state("new"), (Healthy, None));
    assert_eq!(world.state("c"), (Degraded, Some(Reason::Missing)));
    world.policy.volumes.clear();
    world.policy.discovery.enabled = true;
    world.feed(Input::Policy(world.policy.clone()));
    world.run(millis(100));
    assert_eq!(world.engine.volumes().len(), 4);
    world.policy.discovery.enabled = false;
    world.feed(Input::Policy(world.policy.clone()));
    assert!(world.engine.volumes().is_empty(), "what is not wanted any more is not shown any more");
    assert_eq!(world.last_track(), Some(vec![]));
}

#[test]
fn time_that_goes_back_is_no_time() {
    let mut world = World::healthy(vec![nfs("a")]);
    let now = world.now;
    world.now = now - seconds(500);
    let outputs = world.engine.handle(world.now, Input::Deadline);
    assert!(outputs.is_empty());
    assert!(world.engine.next_deadline().is_some_and(|next| next > now - seconds(1)));
}

#[test]
fn mounts_of_containers_change_nothing_unless_they_lie_on_the_way() {
    let mut world = World::healthy(vec![nfs("a")]);
    for n in 0..20 {
        world.mounts.push(mount(500 + n, 500 + n, &alloc::format!("/var/o/{n}"), "overlay", "overlay"));
        world.table();
    }
    world.mounts.truncate(2);
    world.table();
    assert_eq!(world.transitions(), []);
    world.mounts.push(mount(600, 600, "/mnt", "overlay", "overlay"));
    world.table();
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Covered)));
    world.mounts.pop();
    world.table();
    world.run(seconds(5));
    assert_eq!(world.state("a"), (Healthy, None));
}

/// A named volume whose mount point leads over a link to where it is mounted.
fn linked(mode: Mode) -> World {
    let mut world = World::new(vec![spec("a", "ext4", "/dev/sdb", mode)]);
    world.links.insert("/mnt/a".into(), "/srv/a".into());
    world.unmount("/mnt/a");
    world.mounts.push(mount(40, 40, "/srv/a", "ext4", "/dev/sdb"));
    world.table();
    world.run(seconds(60));
    world
}

#[test]
fn a_volume_at_the_other_end_of_a_link_is_not_missing_and_that_is_said() {
    let mut world = linked(Mode::Act);
    assert_eq!(world.state("a"), (Unknown, None));
    // It is followed anew, and leads where it did.
    world.mounts.push(mount(50, 50, "/mnt", "tmpfs", "t"));
    world.table();
    world.run(seconds(1));
    let asked = world.log.iter().filter(|(_, output)| matches!(output, Output::Follow(..))).count();
    assert_eq!(asked, 2);
    let condition = world.status("a").condition;
    assert!(condition.message.contains("symbolic link to /srv/a"), "{}", condition.message);
    assert!(condition.advice.contains(&Advice::Inaccessible));
    assert_eq!(world.notes(), 1);
    assert!(world.log.iter().all(|(_, output)| !matches!(output, Output::Execute(_))));
    // Gone, it is missing wherever one looks.
    let mut world = linked(Mode::Observe);
    world.unmount("/srv/a");
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Missing)));
    let message = world.status("a").condition.message;
    assert!(message.contains("/srv/a, which the configuration should name"), "{message}");
    world.mounts.push(mount(41, 41, "/srv/a", "ext4", "/dev/sdc"));
    world.table();
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Missing)), "something else is there");
}

#[test]
fn where_nobody_can_tell_where_a_mount_point_leads_it_is_missing_a_little_later_and_asked_again() {
    let asked =
        |world: &World| world.log.iter().filter(|(_, output)| matches!(output, Output::Follow(..))).count();
    let mut world = World::new(vec![nfs("a")]);
    world.cannot_follow = true;
    world.unmount("/mnt/a");
    world.run(millis(4900));
    assert_eq!(world.state("a"), (Unknown, None), "somebody may tell yet");
    world.run(millis(200));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Missing)));
    assert_eq!(asked(&world), 2);
    world.run(seconds(100));
    assert_eq!(asked(&world), 3, "once a minute");
    // What was told stays known while nobody can tell.
    let mut world = linked(Mode::Observe);
    world.cannot_follow = true;
    world.run(seconds(300));
    assert_eq!(world.state("a"), (Unknown, None));
    assert!(world.status("a").condition.message.contains("symbolic link to /srv/a"));
    // The link is gone.
    (world.cannot_follow, world.links) = (false, [].into());
    world.run(seconds(61));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Missing)));
}

#[test]
fn what_was_mounted_in_an_earlier_run_is_missing_at_once() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.restart();
    world.cannot_follow = true;
    world.unmount("/mnt/a");
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Missing)));
}

#[test]
fn where_a_mount_point_leads_is_asked_only_while_nothing_was_ever_there() {
    let asked =
        |world: &World| world.log.iter().filter(|(_, output)| matches!(output, Output::Follow(..))).count();
    let mut world = World::healthy(vec![nfs("a")]);
    world.unmount("/mnt/a");
    world.run(seconds(60));
    assert_eq!((asked(&world), world.state("a")), (0, (Degraded, Some(Reason::Missing))));
    let mut world = World::new(vec![nfs("a")]);
    world.unmount("/mnt/a");
    assert_eq!(asked(&world), 1);
    world.run(seconds(60));
    world.mounts.push(mount(40, 40, "/mnt/a", "nfs4", "filer:/a"));
    world.table();
    world.run(seconds(10));
    assert_eq!((asked(&world), world.state("a")), (1, (Healthy, None)));
}
