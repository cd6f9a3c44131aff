//! What looks like the agent's own trouble, and what belongs to one user or one program: when it is the volume's.

use alloc::vec;

use super::world::{Answer, World, fails, good, millis, seconds, spec};
use crate::errno::Errno;
use crate::observation::{Op, ProbeOk, ProbeResult, ProbeStep, Source};
use crate::verdict::HealthState::{Degraded, Healthy, Suspect, Unknown};
use crate::verdict::{Advice, Reason};
use crate::volume::{Mode, VolumeSpec};

fn sshfs(name: &str) -> VolumeSpec {
    spec(name, "fuse.sshfs", "host:/a", Mode::Observe)
}

#[test]
fn a_volume_that_alone_answers_what_the_agent_in_trouble_would_meet_is_doubted_and_then_sick() {
    for errno in [11, 12, 23, 24] {
        let mut world = World::healthy(vec![sshfs("a"), sshfs("b")]);
        world.answer("a", fails(errno));
        world.run(seconds(25));
        assert_eq!(world.state("a").0, Healthy, "{errno}: it may be the agent");
        world.run(seconds(12));
        assert_eq!(world.state("a"), (Suspect, Some(Reason::IoError)), "{errno}");
        assert!(world.status("a").errors.contains_key(&(Errno(errno), Op::Stat, Source::Probe)));
        world.run(seconds(60));
        assert_eq!(world.state("a"), (Degraded, Some(Reason::IoError)), "{errno}");
        assert_eq!(world.state("b"), (Healthy, None));
        world.answer("a", Answer::Now(good()));
        world.run(seconds(60));
        assert_eq!(world.state("a"), (Healthy, None));
    }
}

#[test]
fn what_every_volume_answers_is_the_agents_own_trouble() {
    let mut world = World::healthy(vec![sshfs("a"), sshfs("b")]);
    ["a", "b"].into_iter().for_each(|name| world.answer(name, fails(12)));
    world.run(seconds(300));
    assert_eq!(world.state("a"), (Unknown, None));
    assert_eq!(world.state("b"), (Unknown, None));
    // Interruptions are, whatever others answer.
    world.answer("b", Answer::Now(good()));
    world.answer("a", fails(4));
    world.run(seconds(300));
    assert_eq!((world.state("a").0, world.state("b").0), (Unknown, Healthy));
}

#[test]
fn a_sentinel_that_cannot_be_opened_for_want_of_descriptors_is_never_more_than_doubt() {
    let mut world = World::healthy(vec![sshfs("a"), sshfs("b")]);
    world.answer("a", Answer::Now(ProbeResult::Failed { step: ProbeStep::Sentinel, errno: Errno(24) }));
    world.run(seconds(600));
    assert_eq!(world.state("a"), (Suspect, Some(Reason::IoError)));
}

/// Whose looks read no file.
fn without_sentinel(fstype: &str) -> World {
    let mut world = World::new(vec![spec("a", fstype, "filer:/a", Mode::Observe)]);
    let bare = ProbeResult::Ok(ProbeOk { root_inode: 2, ..ProbeOk::default() });
    world.answer("a", Answer::Now(bare));
    world.table();
    world.run(seconds(5));
    assert_eq!(world.state("a"), (Healthy, None));
    world
}

#[test]
fn one_object_that_one_program_cannot_read_does_not_condemn_a_server_or_a_daemon() {
    for (fstype, op, pids, expected) in [
        ("nfs4", Op::Read, [7, 7], Suspect),
        ("fuse.mount-s3", Op::Read, [7, 7], Suspect),
        ("fuse.mount-s3", Op::Open, [7, 7], Suspect),
        ("fuse.mount-s3", Op::Read, [7, 8], Degraded),
        ("fuse.mount-s3", Op::Write, [7, 7], Degraded),
        ("ext4", Op::Read, [7, 7], Degraded),
    ] {
        let mut world = without_sentinel(fstype);
        for pid in pids.into_iter().cycle().take(12) {
            world.meets("reader", pid, 5, op);
            world.run(millis(300));
        }
        assert_eq!(world.state("a"), (expected, Some(Reason::IoError)), "{fstype} {op:?} {pids:?}");
        if expected == Suspect {
            world.answer("a", fails(5));
            world.run(seconds(15));
            assert_eq!(world.state("a"), (Degraded, Some(Reason::IoError)), "a look fails as well");
        }
    }
}

#[test]
fn a_key_of_one_user_that_has_expired_does_not_condemn_the_volume_of_all() {
    for (fstype, expected) in [("nfs4", Suspect), ("cifs", Suspect), ("fuse.sshfs", Degraded)] {
        let mut world = without_sentinel(fstype);
        for pid in [7, 8].into_iter().cycle().take(12) {
            world.meets("reader", pid, 127, Op::Write);
            world.run(millis(300));
        }
        assert_eq!(world.state("a"), (expected, Some(Reason::Auth)), "{fstype}");
    }
}

#[test]
fn whoever_never_had_a_key_is_not_let_in_and_says_nothing_of_the_volume() {
    for errno in [126, 127, 128, 129] {
        let mut world = World::new(vec![spec("a", "nfs4", "filer:/a", Mode::Observe)]);
        world.answer("a", fails(errno));
        world.table();
        world.run(seconds(60));
        assert_eq!(world.state("a"), (Unknown, None), "{errno}");
        assert!(world.status("a").condition.advice.contains(&Advice::Inaccessible));
        world.answer("a", Answer::Now(good()));
        world.run(seconds(15));
        world.answer("a", fails(errno));
        world.run(seconds(15));
        assert_eq!(world.state("a"), (Degraded, Some(Reason::Auth)), "{errno}: it worked before");
    }
}
