//! The course of a swap, for every state of the table that a plan may meet.

use super::*;
use agent_core::id::MountId;
use agent_core::topology::{Options, Propagation};

const fn superblock(minor: u32) -> SuperblockId {
    SuperblockId { major: 0, minor }
}

const OLD: SuperblockId = superblock(40);
const NEW: SuperblockId = superblock(50);
const OTHER: SuperblockId = superblock(60);

fn stack(superblocks: &[SuperblockId]) -> Vec<Mount> {
    let mount = |(at, superblock): (usize, &SuperblockId)| {
        let id = u32::try_from(at).unwrap() + 10;
        Mount {
            id: MountId(id),
            unique: None,
            parent: MountId(id - 1),
            superblock: *superblock,
            root: BytePath::from("/"),
            mountpoint: BytePath::from("/mnt/a"),
            options: Options::default(),
            propagation: Propagation::default(),
            fstype: "tmpfs".to_owned(),
            source: Vec::new(),
            super_options: Options::default(),
        }
    };
    superblocks.iter().enumerate().map(mount).collect()
}

fn course(staged: Option<SuperblockId>, superblocks: &[SuperblockId]) -> Course {
    decide(staged, &stack(superblocks), Some(OLD), |superblock| superblock == OLD)
}

#[test]
fn the_old_mount_is_replaced_and_its_doubles_go_first() {
    assert_eq!(course(Some(NEW), &[OLD]), Course::Replace { surplus: 0 });
    assert_eq!(course(Some(NEW), &[OLD, OLD, OLD]), Course::Replace { surplus: 2 });
    assert_eq!(course(Some(NEW), &[OTHER, OLD]), Course::Replace { surplus: 0 });
}

#[test]
fn what_was_moved_onto_a_mount_of_somebody_else_is_noticed() {
    let table = MountTable::new(stack(&[OTHER, NEW]));
    assert!(!lies_on(&table, MountId(11), MountId(9)), "theirs came in between");
    assert!(lies_on(&table, MountId(11), MountId(10)));
    assert!(lies_on(&table, MountId(99), MountId(9)), "no line says nothing");
}

#[test]
fn a_guard_makes_room_whatever_is_known_of_the_old_one() {
    let mut guarded = stack(&[OTHER, OTHER]);
    guarded[1].source = agent_core::remediation::consumers::guard_source(
        &agent_core::id::VolumeId::new("a"),
        &BytePath::from(""),
    );
    assert_eq!(decide(Some(NEW), &guarded, None, |_| false), Course::Replace { surplus: 0 });
    assert_eq!(decide(Some(NEW), &guarded[..1], None, |_| false), Course::Refuse(Refusal::TableChanged));
}

#[test]
fn a_swap_that_was_cut_off_is_finished() {
    assert_eq!(course(Some(NEW), &[NEW, OLD]), Course::Finish { covering: 1 });
    assert_eq!(course(Some(NEW), &[OTHER, NEW, OLD, OLD]), Course::Finish { covering: 2 });
}

#[test]
fn a_swap_that_is_done_is_left_alone() {
    assert_eq!(course(Some(NEW), &[NEW]), Course::Nothing);
    assert_eq!(course(None, &[NEW]), Course::Nothing);
}

#[test]
fn a_bare_directory_is_mounted_on() {
    assert_eq!(course(Some(NEW), &[]), Course::Attach);
    assert_eq!(decide(Some(NEW), &[], None, |_| false), Course::Attach);
}

#[test]
fn what_the_plan_was_not_made_for_is_refused() {
    assert_eq!(course(Some(NEW), &[OTHER]), Course::Refuse(Refusal::TableChanged));
    assert_eq!(course(Some(NEW), &[OLD, OTHER]), Course::Refuse(Refusal::TableChanged));
    assert_eq!(decide(Some(NEW), &stack(&[OTHER]), None, |_| false), Course::Refuse(Refusal::TableChanged));
    assert_eq!(course(None, &[OLD]), Course::Refuse(Refusal::NotAMountPoint));
    assert_eq!(course(None, &[]), Course::Refuse(Refusal::NotAMountPoint));
    assert_eq!(course(Some(OLD), &[OLD]), Course::Refuse(Refusal::SameSuperblock));
}
