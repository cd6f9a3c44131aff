//! Outages of servers are waited out, and their volumes begin one after the other.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::world::{Answer, World, fails, good, millis, seconds, spec};
use crate::engine::{Input, Output};
use crate::errno::Errno;
use crate::id::VolumeId;
use crate::observation::{Op, ProbeReport, ProbeResult, ProbeStep, Reach, ReachReport};
use crate::remediation::Outcome;
use crate::remediation::service::Service;
use crate::status::Hold;
use crate::time::Monotonic;
use crate::topology::Options;
use crate::verdict::HealthState::{Degraded, Healthy};
use crate::volume::{Method, Mode, VolumeSpec};

fn nfs(name: &str) -> VolumeSpec {
    spec(name, "nfs4", &alloc::format!("filer:/{name}"), Mode::Act)
}

fn tries(world: &World) -> Vec<Monotonic> {
    let tries = world.log.iter().filter(|(_, output)| matches!(output, Output::Reach(_)));
    tries.map(|(at, _)| *at).collect()
}

fn begun(world: &World) -> Vec<(Monotonic, VolumeId)> {
    let begun = |(at, output): &(Monotonic, Output)| match output {
        Output::Execute(plan) => Some((*at, plan.volume.clone())),
        _ => None,
    };
    world.log.iter().filter_map(begun).collect()
}

fn outage(names: &[&str]) -> World {
    let mut world = World::healthy(names.iter().map(|name| nfs(name)).collect());
    world.away.insert("filer".into());
    for name in names {
        world.answer(name, fails(113));
    }
    world
}

#[test]
fn while_its_server_is_away_no_attempt_is_spent_and_it_is_said() {
    let mut world = outage(&["a"]);
    world.run(seconds(3600));
    let status = world.status("a");
    assert_eq!((world.state("a").0, status.attempts, begun(&world).len()), (Degraded, 0, 0));
    let held = status.held_up.unwrap();
    assert_eq!((held.hold, held.until), (Hold::Server, None));
    assert_eq!(held.text, "waits for server filer:2049 (refused)");
    assert!(held.since < world.now - seconds(3000), "{held:?}");
    assert!(status.condition.message.contains("waits for server filer:2049"), "{}", status.condition.message);
    let count = tries(&world).len();
    assert!((300..500).contains(&count), "{count} tries in an hour");
    let told = status.history.iter().filter(|one| one.message.contains("waits for server")).count();
    assert_eq!(told, 1);
    let holds = world.log.iter().filter(|(_, output)| matches!(output, Output::Held(..))).count();
    assert_eq!(holds, 1);
}

/// fstab says how it is mounted, and the specification nothing: what was there before tells its server.
#[test]
fn a_volume_whose_source_is_not_written_waits_for_the_server_that_it_had() {
    let bare = |name: &str| {
        let mut spec = nfs(name);
        spec.repair.method = Method::Fstab;
        spec
    };
    let mut world = World::new(vec![bare("a"), bare("b")]);
    for spec in &mut world.policy.volumes {
        (spec.source, spec.fstype) = (None, None);
    }
    world.feed(Input::Policy(world.policy.clone()));
    world.table();
    world.run(seconds(5));
    // The node starts again, and the server is not there.
    world.away.insert("filer".into());
    world.mounts.truncate(1);
    world.reboot(Monotonic::from_nanos(9_000_000_000));
    world.table();
    world.run(seconds(600));
    assert_eq!((begun(&world).len(), world.status("a").held_up.unwrap().hold), (0, Hold::Server));
    assert!(!tries(&world).is_empty());
    world.away.clear();
    world.run(seconds(60));
    let running = world.running();
    assert_eq!(running.len(), 1, "one at a time");
    assert_eq!(running[0].server.as_deref(), Some(b"filer".as_slice()));
}

#[test]
fn when_it_is_back_the_volume_is_repaired() {
    let mut world = outage(&["a"]);
    world.run(seconds(600));
    world.away.clear();
    world.run(seconds(20));
    assert_eq!(begun(&world).len(), 1);
    assert_eq!(world.status("a").held_up, None);
    let told = world.status("a").history.iter().any(|one| one.message.contains("is back"));
    assert!(told);
}

#[test]
fn what_answers_again_when_the_server_is_back_is_not_replaced() {
    let mut world = outage(&["a"]);
    world.run(seconds(600));
    world.away.clear();
    world.answer("a", Answer::Now(good()));
    world.run(seconds(30));
    assert_eq!((begun(&world).len(), world.state("a").0), (0, Healthy));
    let before = tries(&world).len();
    world.run(seconds(600));
    assert_eq!(tries(&world).len(), before, "nobody waits for it any more");
}

#[test]
fn a_volume_that_is_named_no_more_waits_for_no_server() {
    let mut world = outage(&["a"]);
    world.run(seconds(60));
    world.policy.volumes.clear();
    world.feed(Input::Policy(world.policy.clone()));
    world.run(seconds(5));
    let before = tries(&world).len();
    world.run(seconds(600));
    assert_eq!(tries(&world).len(), before);
}

#[test]
fn while_a_look_is_out_the_server_is_known_to_be_away() {
    let mut world = outage(&["a"]);
    world.run(seconds(60));
    let since = world.status("a").held_up.unwrap().since;
    let before = tries(&world).len();
    // One look after the other comes back only in time.
    world.answer("a", Answer::Never);
    world.run(seconds(60));
    let held = world.status("a").held_up.unwrap();
    assert_eq!((held.hold, held.since), (Hold::Server, since));
    assert!(tries(&world).len() > before + 3, "it is tried meanwhile");
    let order = world.log.iter().rev().find_map(|(_, output)| match output {
        Output::Probe(order) => Some(order.clone()),
        _ => None,
    });
    let order = order.unwrap();
    let result = ProbeResult::Failed { step: ProbeStep::Root, errno: Errno(113) };
    let (id, volume, generation, took) = (order.id, order.volume, order.generation, seconds(1));
    let started = world.now - took;
    world.feed(Input::Probe(ProbeReport { id, volume, generation, started, took, result }));
    world.run(seconds(1));
    let held = world.status("a").held_up.unwrap();
    assert_eq!((held.hold, held.since, begun(&world).len()), (Hold::Server, since, 0));
    let told = world.log.iter().filter(|(_, output)| matches!(output, Output::Held(..))).count();
    assert_eq!(told, 1);
}

#[test]
fn volumes_of_one_server_share_its_tries_and_begin_apart() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut world = outage(&names);
    world.policy.thresholds.plans_at_once = 100;
    world.feed(Input::Policy(world.policy.clone()));
    world.run(seconds(600));
    let count = tries(&world).len();
    assert!(count < 100, "{count} tries");
    world.log.clear();
    world.away.clear();
    for _ in 0..200 {
        world.run(millis(100));
        for plan in world.running() {
            let path = alloc::string::String::from_utf8(plan.mountpoint.as_bytes().to_vec()).unwrap();
            world.answer(plan.volume.as_str(), Answer::Now(good()));
            world.replace(&path, 60 + u32::try_from(plan.id.0).unwrap());
            world.finish(plan.id, Outcome::Changed);
        }
    }
    let begun = begun(&world);
    assert_eq!(begun.len(), 8);
    let spread = begun[7].0.since(begun[0].0);
    assert!(spread >= seconds(1), "{spread:?}: {begun:?}");
}

#[test]
fn nodes_do_not_begin_at_the_same_moment() {
    let moments: BTreeSet<_> = (0..20_u64)
        .map(|node| {
            let mut world = outage(&["a"]);
            world.policy.node = node * 0x9e37_79b9;
            world.feed(Input::Policy(world.policy.clone()));
            world.run(seconds(600));
            world.away.clear();
            world.run(seconds(30));
            begun(&world)[0].0
        })
        .collect();
    assert!(moments.len() > 15, "{moments:?}");
}

#[test]
fn a_server_that_answers_stale_has_answered() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.away.insert("filer".into());
    world.answer("a", fails(116));
    world.hint(10, None, 116, Op::Read);
    world.run(seconds(5));
    assert_eq!((tries(&world).len(), begun(&world).len()), (0, 1));
}

#[test]
fn a_server_that_nobody_can_try_holds_nothing_up() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.answer("a", fails(113));
    world.run(seconds(10));
    world.log.clear();
    while tries(&world).is_empty() {
        world.run(millis(100));
    }
    let service = Service { hosts: vec!["filer".into()], ports: vec![2049] };
    world.feed(Input::Reached(ReachReport { service, reach: Reach::Unknown, addresses: Vec::new() }));
    world.run(millis(10));
    assert_eq!(begun(&world).len(), 1);
}

#[test]
fn where_no_port_is_known_nothing_is_tried() {
    let mut lustre = nfs("a");
    lustre.fstype = Some("lustre".into());
    let mut udp = spec("b", "nfs4", "other:/b", Mode::Act);
    udp.options = vec!["proto=udp".into()];
    let mut world = World::healthy(vec![lustre, udp]);
    world.away.extend(["filer".into(), "other".into()]);
    ["a", "b"].iter().for_each(|name| world.answer(name, fails(113)));
    world.run(seconds(60));
    assert_eq!((tries(&world).len(), begun(&world).len()), (0, 2));
}

#[test]
fn that_a_server_has_moved_is_said_with_both_addresses() {
    let moved = |resolved: &str| {
        let mut world = World::new(vec![nfs("a")]);
        world.mounts[1].super_options = Options::parse(b"rw,vers=4.1,hard,addr=192.0.2.10");
        world.table();
        world.run(seconds(1));
        world.resolved = vec![resolved.parse().unwrap()];
        world.away.insert("filer".into());
        world.answer("a", fails(113));
        world.run(seconds(60));
        world
    };
    let message = moved("192.0.2.44").status("a").condition.message;
    assert!(
        message.contains("asks 192.0.2.10") && message.contains("filer, leads to 192.0.2.44"),
        "{message}"
    );
    let stays = moved("192.0.2.10").status("a").condition.message;
    assert!(!stays.contains("leads to"), "{stays}");
    // What is mounted anew asks the new one.
    let mut world = moved("192.0.2.44");
    world.replace("/mnt/a", 20);
    world.run(seconds(1));
    let message = world.status("a").condition.message;
    assert!(!message.contains("192.0.2.10"), "{message}");
}
