//! What was learnt of a device must be true of what a repair brings, and what somebody else brings is learnt in its time.

use alloc::vec;
use core::time::Duration;

use super::world::{Answer, World, seconds, spec};
use crate::engine::Input;
use crate::observation::{ProbeOk, ProbeResult};
use crate::remediation::{Action, Outcome, Refusal};
use crate::topology::Options;
use crate::volume::{Identity, Method, Mode};

/// What looks at a disk find.
fn is_disk(world: &mut World, uuid: Option<&str>, fsid: Option<&str>) {
    let (uuid, fsid) = (uuid.map(Into::into), fsid.map(Into::into));
    let found = ProbeOk { root_inode: 2, read_data: true, uuid, fsid, ..ProbeOk::default() };
    world.answer("a", Answer::Now(ProbeResult::Ok(found)));
}

fn disk(fstype: &str, uuid: Option<&str>, fsid: Option<&str>) -> World {
    let mut world = World::new(vec![spec("a", fstype, "/dev/sdb", Mode::Act)]);
    is_disk(&mut world, uuid, fsid);
    world.table();
    world.run(seconds(1));
    world
}

/// What the plan of a shutdown would ask of the new mount.
fn asked_for(world: &mut World) -> Identity {
    world.mounts[1].super_options = Options::parse(b"rw,shutdown");
    world.table();
    world.run(seconds(5));
    let plan = world.running().pop().unwrap();
    let mut actions = plan.actions.into_iter();
    let found = actions.find_map(|action| match action {
        Action::CheckStaged { identity, .. } => Some(identity),
        _ => None,
    });
    found.unwrap()
}

#[test]
fn where_the_fsid_is_another_one_with_every_mount_the_uuid_tells_a_device() {
    for (fstype, expected) in [
        ("xfs", Identity { uuid: Some("u-1".into()), fsid: None }),
        ("vfat", Identity { uuid: Some("u-1".into()), fsid: None }),
        ("f2fs", Identity { uuid: Some("u-1".into()), fsid: None }),
        // No program has to be asked for it.
        ("ext4", Identity { uuid: None, fsid: Some("00aa".into()) }),
    ] {
        let mut world = disk(fstype, Some("u-1"), Some("00aa"));
        assert_eq!(asked_for(&mut world), expected, "{fstype}");
    }
    let mut world = disk("ext4", Some("u-1"), None);
    assert_eq!(asked_for(&mut world), Identity { uuid: Some("u-1".into()), fsid: None });
}

#[test]
fn a_file_system_that_somebody_made_anew_is_believed_after_a_while() {
    let made_anew = |good_for: Duration| {
        let mut world = disk("xfs", Some("u-1"), None);
        is_disk(&mut world, Some("u-2"), None);
        world.replace("/mnt/a", 20);
        world.run(good_for);
        asked_for(&mut world).uuid
    };
    assert_eq!(made_anew(seconds(60)).as_deref(), Some("u-1"), "it may be the wrong disk");
    assert_eq!(made_anew(seconds(600)).as_deref(), Some("u-2"));
}

#[test]
fn what_a_repair_in_place_has_brought_is_not_taken_for_the_volume() {
    let mut world = disk("xfs", Some("u-1"), None);
    world.policy.volumes[0].repair.method = Method::Systemd("mnt-a.mount".into());
    world.feed(Input::Policy(world.policy.clone()));
    world.mounts[1].super_options = Options::parse(b"rw,shutdown");
    world.table();
    world.run(seconds(5));
    let plan = world.running().pop().unwrap();
    // The unit mounts another disk, and the plan says so.
    is_disk(&mut world, Some("u-2"), None);
    world.mounts[1].super_options = Options::parse(b"rw");
    world.replace("/mnt/a", 20);
    world.finish(plan.id, Outcome::Refused(Refusal::OtherVolume));
    world.run(seconds(3600));
    world.policy.volumes[0].repair.method = Method::Mount;
    world.feed(Input::Policy(world.policy.clone()));
    assert_eq!(asked_for(&mut world).uuid.as_deref(), Some("u-1"));
}

#[test]
fn what_was_learnt_counts_for_the_same_source_in_other_words_and_for_no_other() {
    for (source, expected) in [("/dev//sdb", Some("u-1")), ("/dev/disk/by-id/x", None)] {
        let mut world = disk("xfs", Some("u-1"), None);
        is_disk(&mut world, None, None);
        world.policy.volumes[0].source = Some(source.into());
        world.feed(Input::Policy(world.policy.clone()));
        assert_eq!(asked_for(&mut world).uuid.as_deref(), expected, "{source}");
    }
}
