//! Pauses, remounts and forgetting, as people order them.

use alloc::string::{String, ToString as _};
use alloc::vec;

use super::world::{Answer, World, device, fails, good, mount, seconds, spec};
use crate::engine::Output;
use crate::errno::Errno;
use crate::id::VolumeId;
use crate::order::{Deed, Done, Lack, Order, Refused};
use crate::pause::Scope;
use crate::policy::Policy;
use crate::remediation::{Action, Outcome};
use crate::verdict::HealthState::{Degraded, Healthy, Probation, Quarantined, Recovering, Unknown};
use crate::verdict::Reason;
use crate::volume::Mode;

fn pause(scope: Scope, until: Option<crate::time::Monotonic>) -> Order {
    Order::Pause { scope, until, reason: Some("the filer moves".into()) }
}

fn only(name: &str) -> Scope {
    Scope::Volume(VolumeId::new(name))
}

fn remount(name: &str) -> Order {
    Order::Remount(VolumeId::new(name))
}

fn sshfs(name: &str, mode: Mode) -> crate::volume::VolumeSpec {
    spec(name, "fuse.sshfs", &alloc::format!("{name}:"), mode)
}

/// One volume that is well and would be repaired.
fn acting() -> World {
    World::healthy(vec![sshfs("a", Mode::Act)])
}

fn deeds(world: &World, name: &str) -> vec::Vec<(Deed, Option<u32>)> {
    let history = world.status(name).history;
    history.into_iter().filter_map(|told| Some((told.deed?, told.by.map(|by| by.uid)))).collect()
}

#[test]
fn while_a_volume_is_paused_it_is_seen_to_fall_and_not_repaired() {
    let mut world = World::healthy(vec![sshfs("a", Mode::Act), sshfs("b", Mode::Act)]);
    assert!(
        matches!(world.order(pause(only("a"), None)), Ok(Done::Paused { running, .. }) if running.is_empty())
    );
    for name in ["a", "b"] {
        world.answer(name, fails(107));
    }
    world.run(seconds(60));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Disconnected)));
    let running = world.running();
    assert_eq!(running.iter().map(|plan| plan.volume.as_str()).collect::<vec::Vec<_>>(), ["b"]);
    let status = world.status("a");
    assert_eq!(status.next_attempt, None);
    assert!(status.pause.is_some_and(|(pause, is_node)| pause.by.uid == 0 && !is_node));
    assert_eq!(world.status("b").pause, None);
    assert_eq!(deeds(&world, "a"), [(Deed::Pause, Some(0))]);

    assert!(matches!(world.order(Order::Resume(only("a"))), Ok(Done::Resumed { still: None, .. })));
    world.run(seconds(1));
    assert!(world.running().iter().any(|plan| plan.volume.as_str() == "a"), "it is due at once");
    assert_eq!(deeds(&world, "a"), [(Deed::Resume, Some(0)), (Deed::Pause, Some(0))]);
}

#[test]
fn a_pause_ends_in_its_time_and_outlives_the_agent_until_then() {
    let mut world = acting();
    let until = world.now + seconds(300);
    world.order(pause(Scope::Node, Some(until))).unwrap();
    assert_eq!(world.deeds().len(), 1);
    world.answer("a", fails(107));
    world.run(seconds(100));
    world.restart();
    world.table();
    world.run(seconds(100));
    assert_eq!((world.state("a").0, world.running().len()), (Degraded, 0));
    assert!(world.status("a").pause.is_some_and(|(_, is_node)| is_node));
    world.run(seconds(101));
    assert_eq!((world.state("a").0, world.running().len()), (Recovering, 1));
    assert_eq!(world.status("a").pause, None);
    let ended = &world.deeds()[0];
    assert_eq!((ended.deed, &ended.by), (Deed::Resume, &None));
    assert_eq!(world.pauses, crate::pause::Pauses::default(), "the store is told as well");
}

#[test]
fn a_pause_spends_no_attempts_and_quarantines_nobody() {
    let mut world = acting();
    world.order(pause(only("a"), None)).unwrap();
    world.answer("a", fails(107));
    world.run(seconds(7200));
    assert_eq!((world.state("a").0, world.status("a").attempts), (Degraded, 0));
}

#[test]
fn the_plan_that_runs_already_goes_to_its_end() {
    let mut world = acting();
    world.answer("a", fails(107));
    world.run(seconds(30));
    let plan = world.running().pop().unwrap();
    let Ok(Done::Paused { running, .. }) = world.order(pause(only("a"), None)) else { panic!() };
    assert_eq!(running, [plan.id]);
    world.finish(plan.id, Outcome::Failed(Errno(5)));
    world.run(seconds(600));
    assert!(world.running().is_empty());
}

#[test]
fn what_was_never_paused_and_what_is_no_volume_is_refused() {
    let mut world = acting();
    assert_eq!(world.order(Order::Resume(only("a"))), Err(Refused::NotPaused));
    assert_eq!(world.order(Order::Resume(Scope::Node)), Err(Refused::NotPaused));
    for order in
        [pause(only("x"), None), Order::Resume(only("x")), remount("x"), Order::Forget(VolumeId::new("x"))]
    {
        assert_eq!(world.order(order), Err(Refused::NoSuchVolume));
    }
    world.order(pause(Scope::Node, None)).unwrap();
    let still = world.order(Order::Resume(only("a")));
    assert!(matches!(still, Err(Refused::Paused(_))), "the node's pause is another: {still:?}");
    world.order(pause(only("a"), None)).unwrap();
    assert!(matches!(world.order(Order::Resume(only("a"))), Ok(Done::Resumed { still: Some(_), .. })));
    world.order(pause(only("a"), None)).unwrap();
    let Ok(Done::Resumed { ended, still: None }) = world.order(Order::Resume(Scope::Node)) else { panic!() };
    assert_eq!(ended, [Scope::Node, only("a")]);
}

#[test]
fn what_is_half_made_at_a_paused_mount_point_waits_and_the_private_place_is_cleared() {
    let mut world = acting();
    world.answer("a", fails(107));
    world.run(seconds(30));
    let plan = world.running().pop().unwrap();
    world.order(pause(only("a"), None)).unwrap();
    // Cut off between the new mount beneath and the end of the old one.
    world.mounts.insert(1, mount(99, 99, "/mnt/a", "fuse.sshfs", "a:"));
    world.restart();
    world.table();
    world.run(seconds(60));
    let touches =
        |world: &World| world.running().iter().any(|plan| plan.actions.contains(&Action::DetachTop));
    assert!(!touches(&world), "{:?} after {}", world.running(), plan.id);
    world.order(Order::Resume(only("a"))).unwrap();
    world.run(seconds(1));
    assert!(touches(&world));
}

#[test]
fn a_remount_is_carried_out_once_in_any_mode_that_watches() {
    for mode in [Mode::Observe, Mode::DryRun, Mode::Act] {
        let mut world = World::healthy(vec![sshfs("a", mode)]);
        let seen = world.engine.preview(&VolumeId::new("a")).unwrap();
        assert_eq!(seen.hindered, None);
        assert!(world.running().is_empty(), "a preview does nothing");
        let Ok(Done::Remounting(plan)) = world.order(remount("a")) else { panic!() };
        assert_eq!((&*plan, plan.reason), (&seen.plan, None));
        assert_eq!(world.order(remount("a")), Err(Refused::Busy(plan.id)));
        // The old mount goes: no fall, since nothing is judged meanwhile.
        world.unmount("/mnt/a");
        world.run(seconds(5));
        assert_eq!(world.state("a").0, Healthy);
        world.mounts.push(mount(50, 50, "/mnt/a", "fuse.sshfs", "a:"));
        world.finish(plan.id, Outcome::Changed);
        world.table();
        world.run(seconds(20));
        assert_eq!((world.state("a"), world.status("a").attempts), ((Healthy, None), 0));
        assert_eq!(deeds(&world, "a"), [(Deed::Remount, Some(0)), (Deed::Remount, Some(0))]);
        assert!(world.status("a").history.iter().any(|told| told.message.contains("ended: changed")));
    }
}

#[test]
fn a_remount_of_a_sick_volume_ends_its_quarantine_by_what_is_seen_then() {
    let mut world = acting();
    world.answer("a", fails(107));
    for _ in 0..40 {
        world.run(seconds(30));
        if let Some(plan) = world.running().pop() {
            world.finish(plan.id, Outcome::Failed(Errno(5)));
        }
    }
    assert_eq!(world.state("a").0, Quarantined);
    let Ok(Done::Remounting(plan)) = world.order(remount("a")) else { panic!() };
    assert_eq!((plan.reason, plan.old), (Some(Reason::Disconnected), Some(device(10))));
    world.answer("a", Answer::Now(good()));
    world.finish(plan.id, Outcome::Changed);
    world.replace("/mnt/a", 60);
    world.run(seconds(1));
    assert_eq!(world.state("a").0, Probation);
    world.run(seconds(600));
    assert_eq!(world.state("a").0, Healthy);
}

#[test]
fn a_remount_is_refused_where_the_specification_says_too_little_or_the_place_is_not_free() {
    let mut nameless = sshfs("nameless", Mode::Observe);
    nameless.source = None;
    let mut policy = Policy {
        volumes: vec![nameless, sshfs("off", Mode::Off), sshfs("other", Mode::Act)],
        ..Policy::default()
    };
    policy.discovery.enabled = true;
    let mounts = vec![
        mount(1, 1, "/", "ext4", "/dev/sda1"),
        mount(10, 10, "/mnt/nameless", "fuse.sshfs", "x:"),
        mount(11, 11, "/mnt/off", "fuse.sshfs", "off:"),
        mount(12, 12, "/mnt/other", "nfs4", "filer:/other"),
        mount(13, 13, "/srv/found", "nfs4", "filer:/found"),
    ];
    let mut world = World::with(policy, mounts);
    world.table();
    world.run(seconds(5));
    let expected = [
        ("nameless", Refused::Incomplete(Lack::Source)),
        ("off", Refused::Off),
        ("other", Refused::Occupied),
        ("/srv/found", Refused::Found),
    ];
    for (name, refused) in expected {
        assert_eq!(world.engine.preview(&VolumeId::new(name)).unwrap_err(), refused, "{name}");
        assert_eq!(world.order(remount(name)), Err(refused.clone()), "{name}");
        assert_eq!(world.status(name).not_repaired, Some(refused), "{name}");
    }
    assert!(!world.log.iter().any(|(_, output)| matches!(output, Output::Execute(_))));
}

#[test]
fn a_paused_volume_is_not_remounted_and_its_preview_says_so() {
    let mut world = acting();
    world.order(pause(Scope::Node, None)).unwrap();
    assert!(matches!(world.order(remount("a")), Err(Refused::Paused(_))));
    let seen = world.engine.preview(&VolumeId::new("a")).unwrap();
    assert!(matches!(seen.hindered, Some(Refused::Paused(_))));
}

#[test]
fn what_is_forgotten_begins_anew_and_what_is_gone_stays_away() {
    let mut world = acting();
    for _ in 0..3 {
        world.answer("a", fails(107));
        world.run(seconds(60));
        while let Some(plan) = world.running().pop() {
            assert_eq!(world.order(Order::Forget(VolumeId::new("a"))), Err(Refused::Busy(plan.id)));
            world.finish(plan.id, Outcome::Failed(Errno(5)));
        }
        world.answer("a", Answer::Now(good()));
        world.run(seconds(300));
    }
    assert!(world.status("a").falls > 0 && world.status("a").attempts > 0);
    assert_eq!(world.order(Order::Forget(VolumeId::new("a"))), Ok(Done::Forgotten { paused: None }));
    let status = world.status("a");
    assert_eq!((status.falls, status.attempts, status.condition.state), (0, 0, Unknown));
    world.run(seconds(30));
    assert_eq!(world.state("a"), (Healthy, None));
    assert_eq!(deeds(&world, "a"), [(Deed::Forget, Some(0))]);
    assert!(world.stored.contains_key(&VolumeId::new("a")), "what is seen from now on is kept");
}

#[test]
fn a_pause_outlives_forgetting_and_is_told() {
    let mut world = acting();
    world.order(pause(only("a"), None)).unwrap();
    let Ok(Done::Forgotten { paused: Some(told) }) = world.order(Order::Forget(VolumeId::new("a"))) else {
        panic!("it is not told");
    };
    assert_eq!(world.status("a").pause, Some((told, false)));
    assert!(world.pauses.volumes.contains_key(&VolumeId::new("a")));
    world.answer("a", fails(107));
    world.run(seconds(60));
    assert_eq!((world.state("a").0, world.running().len()), (Degraded, 0));
    // Of a volume that is none any more, too.
    world.policy.volumes.clear();
    world.restart();
    world.table();
    assert!(matches!(
        world.order(Order::Forget(VolumeId::new("a"))),
        Ok(Done::Forgotten { paused: Some(_) })
    ));
    world.order(Order::Resume(only("a"))).unwrap();
    assert_eq!(world.order(Order::Forget(VolumeId::new("a"))), Err(Refused::NoSuchVolume));
}

/// A world with one named volume and one that was found, which has gone while the agent was away.
fn lost_while_away() -> World {
    let mut policy = Policy { volumes: vec![sshfs("a", Mode::Act)], ..Policy::default() };
    policy.discovery.enabled = true;
    policy.defaults.mode = Mode::Act;
    let mounts = vec![
        mount(1, 1, "/", "ext4", "/dev/sda1"),
        mount(10, 10, "/mnt/a", "fuse.sshfs", "a:"),
        mount(30, 30, "/srv/x", "nfs4", "filer:/x"),
    ];
    let mut world = World::with(policy, mounts);
    world.table();
    world.run(seconds(5));
    world.mounts.truncate(1);
    world.log.clear();
    world.restart();
    world.table();
    world
}

#[test]
fn what_vanished_while_the_agent_was_away_is_missing_at_once_and_only_what_is_named_is_repaired() {
    let mut world = lost_while_away();
    for name in ["a", "/srv/x"] {
        let state = world.state(name);
        assert_eq!(state.1, Some(Reason::Missing), "{name}: {state:?}");
        assert!(matches!(state.0, Degraded | Recovering), "{name}: {state:?}");
    }
    let found = world.status("/srv/x");
    assert!(found.condition.message.contains("nobody named it"), "{}", found.condition.message);
    assert_eq!((found.not_repaired, found.superblock), (Some(Refused::Found), None));
    world.run(seconds(60));
    let repaired: vec::Vec<String> = world.running().iter().map(|plan| plan.volume.to_string()).collect();
    assert_eq!(repaired, ["a"]);
}

#[test]
fn what_is_missed_is_well_again_when_it_is_mounted_and_not_missed_for_ever() {
    let mut world = lost_while_away();
    world.run(seconds(30));
    world.mounts.push(mount(31, 31, "/srv/x", "nfs4", "filer:/x"));
    world.table();
    world.run(seconds(30));
    assert_eq!(world.state("/srv/x"), (Healthy, None));

    let mut world = lost_while_away();
    world.run(seconds(590));
    assert_eq!(world.state("/srv/x").1, Some(Reason::Missing));
    world.run(seconds(20));
    assert_eq!(world.state("/srv/x"), (Unknown, None));
    world.run(seconds(120));
    assert!(world.engine.volume(&VolumeId::new("/srv/x")).is_none());
    assert!(!world.stored.contains_key(&VolumeId::new("/srv/x")));

    let mut world = lost_while_away();
    assert_eq!(world.order(Order::Forget(VolumeId::new("/srv/x"))), Ok(Done::Forgotten { paused: None }));
    assert!(world.engine.volume(&VolumeId::new("/srv/x")).is_none());
    assert_eq!(world.deeds()[0].volume, Some(VolumeId::new("/srv/x")));
    assert!(!world.stored.contains_key(&VolumeId::new("/srv/x")));
}

#[test]
fn what_was_seen_to_go_is_not_missed_after_a_restart() {
    let mut policy = Policy::default();
    policy.discovery.enabled = true;
    let mounts = vec![mount(1, 1, "/", "ext4", "/dev/sda1"), mount(30, 30, "/srv/x", "nfs4", "filer:/x")];
    let mut world = World::with(policy, mounts);
    world.table();
    world.run(seconds(5));
    world.unmount("/srv/x");
    world.run(seconds(5));
    world.restart();
    world.table();
    assert!(world.engine.volume(&VolumeId::new("/srv/x")).is_none());
}

#[test]
fn what_the_kubelet_took_away_while_the_agent_was_away_is_not_missed() {
    let place = "/var/lib/kubelet/pods/0aaa/volumes/kubernetes.io~nfs/x";
    let mut policy = Policy::default();
    policy.discovery.enabled = true;
    let mounts = vec![
        mount(1, 1, "/", "ext4", "/dev/sda1"),
        mount(30, 30, place, "nfs4", "filer:/x"),
        mount(31, 31, "/srv/y", "nfs4", "filer:/y"),
    ];
    let mut world = World::with(policy, mounts);
    world.table();
    world.run(seconds(5));
    world.mounts.truncate(1);
    world.restart();
    world.table();
    assert_eq!(world.state("/srv/y").1, Some(Reason::Missing));
    assert!(world.engine.volume(&VolumeId::new(place)).is_none());
    world.run(seconds(700));
    assert!(!world.stored.contains_key(&VolumeId::new(place)), "it is not remembered for ever");
}

#[test]
fn what_discovery_would_not_take_in_any_more_is_not_missed() {
    let mut world = lost_while_away();
    let exclude = crate::volume::Selector { mountpoint: Some("/srv/**".into()), ..Default::default() };
    world.policy.discovery.exclude.push(exclude);
    world.feed(crate::engine::Input::Policy(world.policy.clone()));
    assert!(world.engine.volume(&VolumeId::new("/srv/x")).is_none());
    assert!(!world.stored.contains_key(&VolumeId::new("/srv/x")));
}
