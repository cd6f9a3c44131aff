//! Volumes that fail together for one cause are told once.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::world::{Answer, World, device, fails, good, mount, seconds, spec};
use crate::engine::{Input, Output};
use crate::id::VolumeId;
use crate::incident::{CauseKind, Daemon, Device, Incident, Moment};
use crate::observation::{Op, ProbeReport, ProbeResult, ProbeStep};
use crate::policy::Policy;
use crate::topology::Options;
use crate::verdict::HealthState::{Degraded, Healthy};
use crate::verdict::Reason;
use crate::volume::{Mode, VolumeSpec};

fn nfs(name: &str, server: &str) -> VolumeSpec {
    spec(name, "nfs4", &format!("{server}:/{name}"), Mode::Observe)
}

fn names(incident: &Incident) -> Vec<&str> {
    incident.members.iter().map(|member| member.volume.as_str()).collect()
}

fn only(world: &World) -> Arc<Incident> {
    let incidents = world.engine.incidents();
    assert_eq!(incidents.len(), 1, "{incidents:?}");
    incidents.into_iter().next().unwrap()
}

#[test]
fn volumes_of_a_server_that_dies_are_one_incident_told_at_its_begin_and_at_its_end() {
    let mut world = World::healthy(
        ["a", "b", "c"].map(|name| nfs(name, "filer")).into_iter().chain([nfs("d", "other")]).collect(),
    );
    for name in ["a", "b", "c"] {
        world.answer(name, Answer::Hangs);
    }
    world.run(seconds(60));
    let incident = only(&world);
    assert_eq!((incident.cause.kind, incident.cause.name.as_str()), (CauseKind::Server, "filer"));
    assert_eq!(names(&incident).len(), 3);
    assert_eq!(incident.ended, None);
    assert_eq!(world.engine.incidents.of(&VolumeId::new("a")).map(|found| found.id), Some(incident.id));
    assert_eq!(world.engine.incidents.of(&VolumeId::new("d")), None);
    let told = world.told();
    assert_eq!(told.len(), 1, "once");
    assert_eq!(told[0].0, Moment::Began);
    let falls: Vec<_> = world.transitions().into_iter().filter(|step| step.to == Degraded).collect();
    assert_eq!(
        falls.iter().filter(|fall| fall.incident == Some(incident.id)).count(),
        2,
        "all but the first"
    );

    for name in ["a", "b", "c"] {
        world.answer(name, Answer::Now(good()));
    }
    for probe in 0..60 {
        world.feed(Input::ProbeReturned(crate::id::ProbeId(probe)));
    }
    world.run(seconds(90));
    let told = world.told();
    assert_eq!(told.len(), 2);
    let (moment, ended) = &told[1];
    assert_eq!(*moment, Moment::Ended);
    assert!(ended.ended.is_some_and(|at| at > ended.began));
    assert!(ended.members.iter().all(|member| member.recovered.is_some()));
    assert_eq!(world.engine.incidents.of(&VolumeId::new("a")), None);
    assert_eq!(only(&world), *ended, "it is shown for a while");
}

#[test]
fn one_volume_is_no_incident_and_neither_are_two_of_different_servers() {
    let mut world = World::healthy(vec![nfs("a", "filer"), nfs("b", "other")]);
    world.answer("a", fails(116));
    world.answer("b", fails(116));
    world.run(seconds(60));
    assert_eq!(world.state("b").0, Degraded);
    assert_eq!(world.engine.incidents(), []);
}

#[test]
fn volumes_that_fall_far_apart_are_none_and_a_later_one_joins_while_it_lasts() {
    let mut world = World::healthy(["a", "b", "c", "d"].map(|name| nfs(name, "filer")).to_vec());
    world.answer("a", fails(116));
    world.run(seconds(400));
    world.answer("b", fails(116));
    world.run(seconds(20));
    assert_eq!(world.state("b").0, Degraded);
    assert_eq!(world.engine.incidents(), [], "a fell long before b");
    world.answer("c", fails(116));
    world.run(seconds(20));
    assert_eq!(names(&only(&world)), ["b", "c"]);
    world.run(seconds(1000));
    world.answer("d", fails(116));
    world.run(seconds(60));
    assert_eq!(names(&only(&world)), ["b", "c", "d"]);
    assert_eq!(world.told().len(), 1);
}

#[test]
fn one_server_under_two_names_is_one_server_by_its_address() {
    let mut world = World::new(vec![
        nfs("a", "filer"),
        nfs("b", "FILER.example"),
        nfs("c", "filer"),
        nfs("d", "10.0.0.7"),
    ]);
    for (mount, address) in
        world.mounts.iter_mut().skip(1).zip(["10.0.0.7", "10.0.0.7", "10.0.0.8", "10.0.0.7"])
    {
        mount.super_options = Options::parse(format!("rw,vers=4.2,addr={address}").as_bytes());
    }
    world.table();
    world.run(seconds(1));
    for name in ["a", "b", "d"] {
        world.answer(name, fails(116));
    }
    world.run(seconds(60));
    let incident = only(&world);
    assert_eq!((incident.cause.name.as_str(), incident.members.len()), ("10.0.0.7", 3));
}

#[test]
fn networks_are_no_server_and_volumes_of_one_cluster_have_the_same_monitors() {
    let lustre = |name: &str, nid: &str| spec(name, "lustre", &format!("{nid}:/{name}"), Mode::Observe);
    let mut world = World::healthy(vec![lustre("a", "10.0.0.1@tcp"), lustre("b", "10.9.9.9@tcp")]);
    for name in ["a", "b"] {
        world.answer(name, fails(116));
    }
    world.run(seconds(60));
    assert!(world.engine.incidents().is_empty(), "two clusters");
    let ceph = |name: &str, source: &str| spec(name, "ceph", source, Mode::Observe);
    let mut world = World::new(vec![ceph("a", "admin@c1.fs=/"), ceph("b", "192.0.2.2:6789:/")]);
    for mount in world.mounts.iter_mut().skip(1) {
        mount.super_options = Options::parse(b"rw,mon_addr=192.0.2.1:6789/192.0.2.2:6789");
    }
    world.table();
    world.run(seconds(1));
    for name in ["a", "b"] {
        world.answer(name, fails(116));
    }
    world.run(seconds(60));
    assert_eq!(only(&world).members.len(), 2);
}

#[test]
fn a_volume_shows_the_server_that_its_source_names_where_its_type_has_one_and_no_secret() {
    let rows = [
        ("nfs4", "Filer.example:/export", "filer.example"),
        ("nfs4", "[fe80::1]:/export", "fe80::1"),
        ("cifs", "//nas/share", "nas"),
        ("fuse.sshfs", "ann@host:/home", "host"),
        ("fuse.davfs", "https://ann:Zx9@dav.example/files", "dav.example"),
        ("fuse.s3fs", "bucket:/", ""),
        ("ext4", "/dev/sdb1", ""),
        ("lustre", "10.0.0.1@tcp:/scratch", "10.0.0.1@tcp"),
        ("9p", "hostshare", ""),
        ("tmpfs", "filer:/export", ""),
    ];
    let specs = rows.iter().enumerate();
    let specs = specs.map(|(at, (fstype, source, _))| spec(&format!("v{at}"), fstype, source, Mode::Observe));
    let mut world = World::healthy(specs.collect());
    for (at, (fstype, source, server)) in rows.iter().enumerate() {
        assert_eq!(world.status(&format!("v{at}")).server, *server, "{fstype} of {source}");
    }
    // Gone, it is still the server that should be there.
    world.unmount("/mnt/v0");
    world.run(seconds(5));
    assert_eq!((world.status("v0").superblock, world.status("v0").server.as_str()), (None, "filer.example"));
}

#[test]
fn what_somebody_unmounted_is_no_fault_of_the_server() {
    let mut world = World::healthy(vec![nfs("a", "filer"), nfs("b", "filer")]);
    world.unmount("/mnt/a");
    world.unmount("/mnt/b");
    world.run(seconds(60));
    assert_eq!((world.state("a").0, world.state("b").0), (Degraded, Degraded));
    assert_eq!(world.engine.incidents(), []);
}

#[test]
fn volumes_of_one_daemon_are_one_incident_that_names_the_process() {
    let fuse = |name: &str| spec(name, "fuse.s3fs", "s3fs", Mode::Observe);
    let mut world = World::healthy(vec![fuse("a"), fuse("b"), fuse("c")]);
    let daemon = |pid| Daemon { pid, comm: "s3fs".into(), unit: None };
    let daemons = [(device(10), daemon(70)), (device(11), daemon(70)), (device(12), daemon(71))];
    world.feed(Input::Daemons(daemons.into()));
    // It is gone when it is asked for.
    world.feed(Input::Daemons([(device(12), daemon(71))].into()));
    ["a", "b", "c"].into_iter().for_each(|name| world.answer(name, fails(107)));
    world.run(seconds(30));
    let incident = only(&world);
    assert_eq!(incident.cause.kind, CauseKind::Daemon);
    assert_eq!((incident.cause.name.as_str(), names(&incident)), ("s3fs (process 70)", vec!["a", "b"]));
}

#[test]
fn what_nobody_comes_to_because_of_the_volume_above_is_part_of_its_incident_and_not_repaired() {
    let nested = |step| {
        let mut below = spec("child", "fuse.x", "daemon", Mode::Act);
        below.mountpoint = "/mnt/parent/child".into();
        let mut world = World::new(vec![nfs("parent", "filer"), below]);
        world.mounts[2].parent = world.mounts[1].id;
        world.table();
        world.run(seconds(1));
        assert_eq!(world.state("child"), (Healthy, None));
        world.answer("parent", Answer::Hangs);
        world.answer("child", Answer::Never);
        world.run(seconds(20));
        let order = world.log.iter().rev().find_map(|(_, output)| match output {
            Output::Probe(order) if order.volume.as_str() == "child" => Some(order.clone()),
            _ => None,
        });
        let order = order.unwrap();
        world.feed(Input::Probe(ProbeReport {
            id: order.id,
            volume: order.volume,
            generation: order.generation,
            started: world.now - seconds(3),
            took: seconds(3),
            result: ProbeResult::TimedOut { step },
        }));
        world.run(seconds(60));
        assert_eq!(world.state("parent").0, Degraded);
        world
    };
    let world = nested(ProbeStep::Identity);
    assert_eq!(world.state("child").0, Degraded);
    assert_eq!(world.running().len(), 0, "no attempt is spent on a sound mount");
    let message = world.status("child").condition.message;
    assert!(
        message.starts_with("the way to it leads through /mnt/parent, which is sick itself: "),
        "{message}"
    );
    let incident = only(&world);
    assert_eq!((incident.cause.name.as_str(), names(&incident).len()), ("filer", 2));

    let own = nested(ProbeStep::Root);
    assert_ne!(own.running().len(), 0, "this is its own fault");
    assert!(own.engine.incidents().is_empty());
}

#[test]
fn a_source_that_names_no_server_groups_nothing() {
    let juice = |name: &str| spec(name, "fuse.juicefs", &format!("JuiceFS:{name}"), Mode::Observe);
    let mut world = World::healthy(vec![juice("a"), juice("b")]);
    ["a", "b"].into_iter().for_each(|name| world.answer(name, fails(107)));
    world.run(seconds(30));
    assert_eq!(world.engine.incidents(), []);
    let sshfs = |name: &str| spec(name, "fuse.sshfs", &format!("me@host:/{name}"), Mode::Observe);
    let mut world = World::healthy(vec![sshfs("a"), sshfs("b")]);
    ["a", "b"].into_iter().for_each(|name| world.answer(name, fails(107)));
    world.run(seconds(30));
    assert_eq!(only(&world).cause.name, "host");
}

#[test]
fn volumes_above_one_disk_are_one_incident_also_when_that_is_learnt_later() {
    let disk = |name: &str| spec(name, "ext4", &format!("/dev/mapper/{name}"), Mode::Observe);
    for is_late in [false, true] {
        let mut world = World::healthy(vec![disk("a"), disk("b"), disk("c")]);
        let below = |minor: u32, name: &str| Device { number: device(minor), name: String::from(name) };
        let devices = || {
            Input::Devices(
                [
                    (device(10), vec![below(10, "dm-0"), below(803, "sda3"), below(800, "sda")]),
                    (device(11), vec![below(11, "dm-1"), below(803, "sda3"), below(800, "sda")]),
                    (device(12), vec![below(12, "dm-2"), below(816, "sdb")]),
                ]
                .into(),
            )
        };
        if !is_late {
            world.feed(devices());
        }
        let bad = ProbeResult::Failed { step: ProbeStep::Device, errno: crate::errno::Errno(5) };
        for (name, minor) in [("a", 10), ("b", 11), ("c", 12)] {
            world.answer(name, Answer::Now(bad.clone()));
            world.hint(minor, None, 5, Op::Read);
        }
        world.run(seconds(30));
        if is_late {
            assert_eq!(world.engine.incidents(), []);
            world.feed(devices());
        }
        let incident = only(&world);
        assert_eq!(incident.cause.kind, CauseKind::Device);
        assert_eq!((incident.cause.name.as_str(), incident.members.len()), ("sda3 (0:803)", 2));
    }
}

#[test]
fn an_incident_of_before_a_restart_is_shown_and_not_told_again() {
    let mut world = World::healthy(vec![nfs("a", "filer"), nfs("b", "filer"), nfs("c", "filer")]);
    world.answer("a", fails(116));
    world.answer("b", fails(116));
    world.run(seconds(60));
    assert_eq!(world.told().len(), 1);
    world.log.clear();
    world.restart();
    world.table();
    world.run(seconds(60));
    assert_eq!(names(&only(&world)).len(), 2);
    assert_eq!(world.told(), []);
    world.answer("a", Answer::Now(good()));
    world.answer("b", Answer::Now(good()));
    world.run(seconds(60));
    let moments: Vec<Moment> = world.told().into_iter().map(|(moment, _)| moment).collect();
    assert_eq!(moments, [Moment::Ended]);
}

#[test]
fn an_incident_of_before_a_restart_is_not_told_again_when_its_cause_is_learnt_after_the_looks() {
    type Learns = fn(&mut World);
    let daemons: Learns = |world| {
        let daemon = |n| (device(n), Daemon { pid: 70, comm: "s3fs".into(), unit: None });
        world.feed(Input::Daemons([10, 11].map(daemon).into()));
    };
    let devices: Learns = |world| {
        let disk = |n| (device(n), vec![Device { number: device(800), name: "sda".into() }]);
        world.feed(Input::Devices([10, 11].map(disk).into()));
    };
    for (fstype, learns) in [("fuse.s3fs", daemons), ("ext4", devices)] {
        let own = |name: &str| spec(name, fstype, &format!("/dev/mapper/{name}"), Mode::Observe);
        let mut world = World::healthy(vec![own("a"), own("b")]);
        learns(&mut world);
        ["a", "b"].into_iter().for_each(|name| world.answer(name, fails(5)));
        world.run(seconds(60));
        assert_eq!(world.told().len(), 1, "{fstype}");
        world.log.clear();
        world.restart();
        world.table();
        world.run(seconds(60));
        learns(&mut world);
        world.run(seconds(60));
        assert_eq!(names(&only(&world)).len(), 2, "{fstype}");
        assert_eq!(world.told(), [], "{fstype}");
        // What falls from now on is news.
        ["a", "b"].into_iter().for_each(|name| world.answer(name, Answer::Now(good())));
        world.run(seconds(100));
        ["a", "b"].into_iter().for_each(|name| world.answer(name, fails(5)));
        world.run(seconds(60));
        let moments: Vec<Moment> = world.told().into_iter().map(|(moment, _)| moment).collect();
        assert_eq!(moments, [Moment::Ended, Moment::Began], "{fstype}");
    }
}

#[test]
fn a_member_of_an_incident_is_shown_with_what_it_suffers_from_now() {
    let mut world = World::healthy(vec![nfs("a", "filer"), nfs("b", "filer")]);
    ["a", "b"].into_iter().for_each(|name| world.answer(name, fails(113)));
    world.run(seconds(60));
    world.answer("b", fails(116));
    world.run(seconds(30));
    let reasons: Vec<Reason> = only(&world).members.iter().map(|member| member.reason).collect();
    assert_eq!(reasons, [Reason::HostDown, Reason::Stale]);
    assert_eq!(world.told().len(), 1, "it is the same incident");
}

#[test]
fn a_volume_that_flaps_within_an_incident_does_not_end_it_and_is_listed_once() {
    let mut world = World::healthy(vec![nfs("a", "filer"), nfs("b", "filer")]);
    world.answer("a", fails(116));
    world.answer("b", fails(116));
    world.run(seconds(40));
    world.answer("b", Answer::Now(good()));
    world.run(seconds(40));
    world.answer("b", fails(116));
    world.run(seconds(40));
    assert_eq!(names(&only(&world)).len(), 2);
    assert!(only(&world).members.iter().all(|member| member.recovered.is_none()));
    assert_eq!(world.told().len(), 1);
}

#[test]
fn hundreds_of_volumes_of_one_server_are_one_incident_of_bounded_size() {
    let specs = (0..300).map(|n| nfs(&format!("v{n:04}"), "filer")).collect();
    let mut world = World::new(specs);
    for n in 0..300 {
        world.answer(&format!("v{n:04}"), fails(116));
    }
    world.feed(Input::MountTable(crate::topology::MountTable::new(world.mounts.clone())));
    world.run(seconds(5));
    let incident = only(&world);
    assert_eq!((incident.members.len(), incident.size()), (Incident::MOST, 300));
    assert_eq!(world.told().len(), 1);
}

#[test]
fn volumes_that_were_found_and_not_named_are_an_incident_as_well() {
    let found = [
        ("nfs4", "filer:/", CauseKind::Server, "filer"),
        ("fuse.s3fs", "s3fs", CauseKind::Daemon, "s3fs (process 70)"),
        ("ext4", "/dev/mapper/", CauseKind::Device, "sda (0:800)"),
    ];
    for (fstype, source, kind, name) in found {
        let mut mounts = vec![mount(1, 1, "/", "ext4", "/dev/sda1")];
        mounts.extend((30..33).map(|n| mount(n, n, &format!("/srv/{n}"), fstype, &format!("{source}{n}"))));
        let mut world = World::with(Policy::default(), mounts);
        world.table();
        let daemon = |n| (device(n), Daemon { pid: 70, comm: "s3fs".into(), unit: None });
        world.feed(Input::Daemons((30..33).map(daemon).collect()));
        let disk = |n| (device(n), vec![Device { number: device(800), name: "sda".into() }]);
        world.feed(Input::Devices((30..33).map(disk).collect()));
        world.run(seconds(5));
        (30..33).for_each(|n| world.answer(&format!("/srv/{n}"), fails(5)));
        world.run(seconds(60));
        let incident = only(&world);
        assert_eq!((incident.cause.kind, incident.cause.name.as_str()), (kind, name));
        assert_eq!(names(&incident).len(), 3, "{fstype}");
    }
}

#[test]
fn an_incident_that_has_not_changed_is_shown_again_without_a_copy() {
    let mut world = World::healthy(["a", "b", "c"].map(|name| nfs(name, "filer")).to_vec());
    world.answer("a", fails(116));
    world.answer("b", fails(116));
    world.run(seconds(60));
    let shown = only(&world);
    world.run(seconds(60));
    assert!(Arc::ptr_eq(&shown, &only(&world)), "looks that find the same change nothing");
    world.answer("c", fails(116));
    world.run(seconds(60));
    assert_eq!((names(&shown).len(), names(&only(&world)).len()), (2, 3), "what was shown stays what it was");

    ["a", "b", "c"].into_iter().for_each(|name| world.answer(name, Answer::Now(good())));
    world.run(seconds(120));
    let over = only(&world);
    assert!(over.ended.is_some());
    assert!(Arc::ptr_eq(&over, &only(&world)));
    assert!(world.told().iter().any(|(_, told)| Arc::ptr_eq(told, &over)));
}
