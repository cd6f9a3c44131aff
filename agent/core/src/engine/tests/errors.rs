//! Errors that others met: whose they are, who is named for them, and what data that was lost means.

use alloc::vec;

use super::world::{Answer, World, device, millis, seconds, spec};
use crate::engine::Input;
use crate::errno::Errno;
use crate::observation::{KernelErrors, Op, ProbeOk, ProbeResult, Source, Task};
use crate::topology::Options;
use crate::verdict::HealthState::{Degraded, Healthy, Suspect};
use crate::verdict::{Advice, Reason};
use crate::volume::Mode;

fn nfs(name: &str) -> crate::volume::VolumeSpec {
    spec(name, "nfs4", &alloc::format!("filer:/{name}"), Mode::Observe)
}

#[test]
fn errors_go_to_the_volume_with_that_root() {
    let mut world = World::new(vec![nfs("a"), nfs("b")]);
    world.replace("/mnt/b", 10);
    world.mounts[2].id.0 = 55;
    let with_root = |root_inode| {
        Answer::Now(ProbeResult::Ok(ProbeOk {
            root_inode,
            read_data: true,
            wrote_data: false,
            ..ProbeOk::default()
        }))
    };
    world.answer("a", with_root(2));
    world.answer("b", Answer::Never);
    world.table();
    world.run(millis(50));
    world.hint(10, Some(2), 5, Op::Read);
    let totals = |world: &World, name| world.status(name).errors.values().sum::<u64>();
    assert_eq!((totals(&world, "a"), totals(&world, "b")), (1, 0));
    world.hint(10, Some(77), 5, Op::Read);
    assert_eq!((totals(&world, "a"), totals(&world, "b")), (1, 1), "whose root is not known yet");
    world.hint(10, None, 5, Op::Read);
    world.hint(10, Some(0), 5, Op::Read);
    assert_eq!((totals(&world, "a"), totals(&world, "b")), (3, 3));
    world.hint(99, None, 5, Op::Read);
    assert_eq!((totals(&world, "a"), totals(&world, "b")), (3, 3), "nobody's");
}

#[test]
fn who_met_errors_is_kept_newest_first() {
    let mut world = World::healthy(vec![nfs("a")]);
    for pid in 0..20 {
        let task = Task { tid: pid, pid, comm: "tar".into(), cgroup: 0, mnt_ns: 0 };
        let errors = KernelErrors {
            source: Source::Fanotify,
            superblock: device(10),
            root_inode: None,
            errno: Errno(4242),
            op: Op::Other,
            count: 2,
            at: world.now,
            after: None,
            task: Some(task),
        };
        world.run(millis(u64::from(pid > 0)));
        world.feed(Input::Kernel(KernelErrors { at: world.now, ..errors }));
    }
    let status = world.status("a");
    assert_eq!(status.culprits.len(), 8);
    assert_eq!(status.culprits[0].2.pid, 19);
    let times = status.error_times[&(Errno(4242), Op::Other, Source::Fanotify)];
    assert_eq!(times, (world.now - millis(19), world.now), "from the first to the last");
    assert_eq!(status.errors.get(&(Errno(4242), Op::Other, Source::Fanotify)), Some(&40));
}

#[test]
fn errors_outside_the_table_keep_their_number_up_to_a_bound() {
    let mut world = World::healthy(vec![nfs("a")]);
    for errno in 4000..4100 {
        world.hint(10, None, errno, Op::Read);
        world.hint(10, None, errno, Op::Read);
    }
    let errors = world.status("a").errors;
    assert_eq!(errors.get(&(Errno(4000), Op::Read, Source::Bpf)), Some(&2));
    assert_eq!(errors.get(&(Errno::OTHER, Op::Read, Source::Bpf)), Some(&(2 * (100 - 16))));
    assert_eq!(errors.len(), 17);
}

/// A program meets an error on a read.
fn met(world: &mut World, comm: &str, errno: u16) {
    world.meets(comm, 7, errno, Op::Read);
}

/// Errors on opening come every half a second for a while, beside looks that hear from the root and read nothing.
fn after_opens_that_fail(source: Source, errno: u16) -> World {
    let mut world = World::healthy(vec![spec("a", "ext4", "/dev/sdb", Mode::Observe)]);
    world.answer("a", Answer::Now(ProbeResult::Ok(ProbeOk { root_inode: 2, ..ProbeOk::default() })));
    world.run(seconds(12));
    for _ in 0..20 {
        world.feed(Input::Kernel(KernelErrors {
            source,
            superblock: device(10),
            root_inode: None,
            errno: Errno(errno),
            op: Op::Open,
            count: 1,
            at: world.now,
            after: None,
            task: Some(Task { tid: 7, pid: 7, comm: "app".into(), cgroup: 0, mnt_ns: 0 }),
        }));
        world.run(millis(500));
    }
    assert_eq!(world.status("a").errors.get(&(Errno(errno), Op::Open, source)), Some(&20), "counted");
    world
}

#[test]
fn what_only_a_name_places_is_looked_into_and_proves_nothing() {
    for errno in [5, 30, 107, 116] {
        let mut hinted = after_opens_that_fail(Source::BpfName, errno);
        assert!(matches!(hinted.state("a").0, Healthy | Suspect), "{errno}: {:?}", hinted.state("a"));
        assert!(hinted.probes() > 3, "{errno}");
        hinted.run(seconds(12));
        assert_eq!(hinted.state("a"), (Healthy, None), "{errno}");
    }
    assert_eq!(after_opens_that_fail(Source::Bpf, 5).state("a"), (Degraded, Some(Reason::IoError)));
}

#[test]
fn no_room_at_a_place_that_only_a_name_tells_is_no_advice() {
    let is_full =
        |source| after_opens_that_fail(source, 28).status("a").condition.advice.contains(&Advice::Full);
    assert_eq!([Source::Bpf, Source::BpfName].map(is_full), [true, false]);
}

#[test]
fn a_name_makes_no_storage_the_cause_of_what_a_person_made_read_only() {
    let reason = |source| {
        let mut world = after_opens_that_fail(source, 5);
        world.mounts[1].super_options = Options::parse(b"ro");
        world.table();
        world.status("a").condition.message
    };
    assert!(!reason(Source::BpfName).contains("app (process 7)"));
}

#[test]
fn a_store_to_a_mapped_file_that_fails_is_looked_into_and_says_nothing_of_storage() {
    let mut world = World::healthy(vec![spec("a", "ext4", "/dev/sdb", Mode::Observe)]);
    world.answer("a", Answer::Now(ProbeResult::Ok(ProbeOk { root_inode: 2, ..ProbeOk::default() })));
    world.run(seconds(12));
    for _ in 0..5 {
        world.hint(10, None, Errno::UNKNOWN.0, Op::Fault);
        assert_eq!(world.state("a"), (Healthy, None));
        world.run(millis(500));
    }
    assert!(world.probes() > 1);
    assert_eq!(world.status("a").errors.get(&(Errno::UNKNOWN, Op::Fault, Source::Bpf)), Some(&5));
    // A load that fails is no lack of room, but in memory.
    world.hint(10, None, 5, Op::Fault);
    assert_eq!(world.state("a"), (Suspect, Some(Reason::IoError)));
    let mut memory = World::healthy(vec![spec("a", "tmpfs", "tmpfs", Mode::Observe)]);
    memory.hint(10, None, 5, Op::Fault);
    assert_eq!(memory.state("a"), (Healthy, None));
}

#[test]
fn the_sentence_names_who_met_the_error_that_decided() {
    let mut world = World::healthy(vec![nfs("a")]);
    let only_attributes = ProbeOk { root_inode: 2, ..ProbeOk::default() };
    world.answer("a", Answer::Now(ProbeResult::Ok(only_attributes)));
    world.run(seconds(12));
    met(&mut world, "postgres", 5);
    // Refused, and full: neither is what the verdict is about.
    for _ in 0..9 {
        met(&mut world, "backup", 13);
    }
    met(&mut world, "tar", 28);
    assert_eq!(world.state("a"), (Suspect, Some(Reason::IoError)));
    let status = world.status("a");
    assert!(status.condition.message.starts_with("postgres (process 7) met EIO"), "{:?}", status.condition);
    assert!(status.culprits.iter().all(|(.., task)| task.comm != "backup"), "refusals are no errors");
    world.replace("/mnt/a", 30);
    assert!(world.status("a").culprits.is_empty(), "they failed on the old mount");
}

#[test]
fn who_opened_a_special_file_is_not_named_for_what_a_person_made_read_only() {
    let mut world = World::healthy(vec![spec("a", "ext4", "/dev/sdb", Mode::Observe)]);
    world.meets("tail", 7, 6, Op::Open);
    world.mounts[1].super_options = Options::parse(b"ro");
    world.table();
    assert_eq!(world.state("a"), (Degraded, Some(Reason::Readonly)));
    let message = world.status("a").condition.message;
    assert!(!message.contains("tail"), "{message}");
    met(&mut world, "postgres", 5);
    assert!(world.status("a").condition.message.starts_with("postgres (process 7) met EIO"));
}

/// A program in this mount namespace is refused to write: its record, and the counter a moment later.
fn refused_in(world: &mut World, namespace: u32) {
    let record = KernelErrors {
        source: Source::Bpf,
        superblock: device(10),
        root_inode: None,
        errno: Errno(30),
        op: Op::Open,
        count: 0,
        at: world.now,
        after: None,
        task: Some(Task { tid: 7, pid: 7, comm: "app".into(), cgroup: 0, mnt_ns: namespace }),
    };
    world.feed(Input::Kernel(record));
    world.run(millis(20));
    world.hint(10, None, 30, Op::Open);
    world.run(millis(500));
}

#[test]
fn who_is_refused_to_write_in_a_mount_namespace_of_its_own_proves_nothing() {
    const HOST: u32 = 4_026_531_841;
    let state = |namespaces: &[u32]| {
        let mut world = World::healthy(vec![nfs("a")]);
        world.feed(Input::Namespace(HOST));
        for namespace in namespaces.iter().cycle().take(20) {
            refused_in(&mut world, *namespace);
        }
        assert_eq!(world.status("a").errors.get(&(Errno(30), Op::Open, Source::Bpf)), Some(&20), "counted");
        assert!(world.probes() > 3, "and looked into");
        world.state("a")
    };
    let refused = (Degraded, Some(Reason::Readonly));
    assert_eq!(state(&[77]), (Healthy, None), "a container with a view that is read-only on purpose");
    assert_eq!(state(&[HOST]), refused);
    assert_eq!(state(&[77, HOST]), refused);
    assert_eq!(state(&[0]), refused, "nobody says where");
}

#[test]
fn lost_data_is_not_forgotten_until_another_mount() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.hint(10, None, 5, Op::Writeback);
    assert_eq!(world.state("a"), (Degraded, Some(Reason::WritebackLost)));
    world.run(seconds(600));
    assert_eq!(world.state("a"), (Degraded, Some(Reason::WritebackLost)));
    world.replace("/mnt/a", 30);
    world.run(seconds(5));
    assert_eq!(world.state("a"), (Healthy, None));
}

#[test]
fn data_lost_for_lack_of_space_is_told_and_is_no_fault_of_a_share() {
    use crate::health::claims::{Claim, ClaimSource};
    for errno in [28, 122] {
        let mut world = World::healthy(vec![nfs("a")]);
        world.hint(10, None, errno, Op::Writeback);
        world.run(millis(10));
        assert_eq!(world.state("a"), (Healthy, None), "{errno}");
        let status = world.status("a");
        assert!(status.condition.advice.contains(&Advice::Full));
        assert!(status.claims.contains_key(&(Claim::LostForSpace, ClaimSource::Sensor(Source::Bpf))));
        world.run(seconds(31));
        let status = world.status("a");
        assert!(status.condition.advice.is_empty());
        assert_eq!(status.claims.len(), 1, "the data is still lost");
        world.replace("/mnt/a", 30);
        assert!(world.status("a").claims.is_empty());
    }
    // A file system that has a device of its own promised the room: the device has none.
    let mut world = World::healthy(vec![spec("a", "ext4", "/dev/sdb", Mode::Observe)]);
    world.hint(10, None, 122, Op::Writeback);
    assert_eq!(world.state("a"), (Healthy, None), "a quota is nobody's fault there either");
    world.hint(10, None, 28, Op::Writeback);
    assert_eq!(world.state("a"), (Degraded, Some(Reason::WritebackLost)));
}

#[test]
fn a_full_volume_gets_advice_for_a_while() {
    let mut world = World::healthy(vec![nfs("a")]);
    world.hint(10, None, 28, Op::Write);
    assert!(world.status("a").condition.advice.contains(&Advice::Full));
    assert_eq!(world.state("a"), (Healthy, None));
    world.run(seconds(31));
    assert!(world.status("a").condition.advice.is_empty());
}

#[test]
fn who_met_an_error_is_named_by_what_the_error_says_on_that_file_system() {
    // ENOTCONN on a mount of a server: the server is away.
    let mut world = World::healthy(vec![nfs("a")]);
    world.run(seconds(12));
    met(&mut world, "postgres", 107);
    assert_eq!(world.state("a"), (Suspect, Some(Reason::HostDown)));
    let message = world.status("a").condition.message;
    assert!(message.starts_with("postgres (process 7) met ENOTCONN"), "{message}");

    // ENOKEY on a disk: a file that is encrypted, and refused to whoever has no key. On a server's it is no refusal.
    let disk = spec("a", "ext4", "/dev/sdb", Mode::Observe);
    for (spec, named) in [(disk, false), (nfs("a"), true)] {
        let mut world = World::healthy(vec![spec]);
        met(&mut world, "backup", 126);
        assert_eq!(!world.status("a").culprits.is_empty(), named);
    }
}
