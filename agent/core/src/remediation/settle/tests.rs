//! What is read from a table after a plan was cut off at each of its steps.

use alloc::vec;

use super::*;
use crate::id::{MountId, SuperblockId, VolumeId};
use crate::remediation::Marks;
use crate::remediation::consumers::Holding;
use crate::topology::{Mount, Options, Propagation};

fn mount(id: u32, parent: u32, device: u32, path: &str) -> Mount {
    Mount {
        id: MountId(id),
        unique: None,
        parent: MountId(parent),
        superblock: SuperblockId { major: 0, minor: device },
        root: "/".into(),
        mountpoint: path.into(),
        options: Options::default(),
        propagation: Propagation::default(),
        fstype: "fuse.x".into(),
        source: Vec::new(),
        super_options: Options::default(),
    }
}

fn marks(unique: &[u64]) -> Marks {
    let holding = Holding { root: "/".into(), fstype: "fuse.x".into(), source: Vec::new() };
    let unique = unique.iter().copied().collect();
    Marks { holding, here: BTreeSet::new(), unique, others: BTreeSet::new(), own: BTreeSet::new() }
}

fn place() -> Place {
    Place {
        volume: VolumeId::new("v"),
        mountpoint: "/v".into(),
        stage: "/stage/4".into(),
        old: Some(SuperblockId { major: 0, minor: 7 }),
        marks: Some(marks(&[])),
    }
}

#[test]
fn cut_off_before_or_after_everything_leaves_nothing() {
    let before = MountTable::new(vec![mount(1, 0, 1, "/"), mount(2, 1, 7, "/v")]);
    assert!(leftovers(&place(), &before).is_empty());
    let after = MountTable::new(vec![mount(1, 0, 1, "/"), mount(3, 1, 8, "/v")]);
    assert!(leftovers(&place(), &after).is_empty());
}

#[test]
fn a_staged_mount_is_taken_away() {
    let table = MountTable::new(vec![mount(2, 1, 7, "/v"), mount(3, 1, 8, "/stage/4")]);
    assert_eq!(leftovers(&place(), &table), [Action::Unstage]);
    let other = MountTable::new(vec![mount(2, 1, 7, "/v"), mount(3, 1, 8, "/stage/45")]);
    assert!(leftovers(&place(), &other).is_empty());
}

#[test]
fn the_old_mount_on_top_of_the_new_one_is_detached() {
    let table = MountTable::new(vec![mount(2, 3, 7, "/v"), mount(3, 1, 8, "/v")]);
    assert_eq!(leftovers(&place(), &table), [Action::DetachTop]);
}

#[test]
fn a_stack_of_another_making_is_left_alone() {
    let twice_old = MountTable::new(vec![mount(2, 3, 7, "/v"), mount(3, 1, 7, "/v")]);
    assert!(leftovers(&place(), &twice_old).is_empty());
    let other_top = MountTable::new(vec![mount(2, 3, 9, "/v"), mount(3, 1, 8, "/v")]);
    assert!(leftovers(&place(), &other_top).is_empty());
    let mut nothing_old = place();
    nothing_old.old = None;
    let table = MountTable::new(vec![mount(2, 3, 7, "/v"), mount(3, 1, 8, "/v")]);
    assert!(leftovers(&nothing_old, &table).is_empty());
    let mut guard = mount(3, 1, 8, "/v");
    guard.fstype = "tmpfs".into();
    guard.source = crate::remediation::consumers::guard_source(&VolumeId::new("v"), &"".into());
    assert!(leftovers(&place(), &MountTable::new(vec![mount(2, 3, 7, "/v"), guard])).is_empty());
    let mut trap = mount(3, 1, 8, "/v");
    trap.fstype = "autofs".into();
    assert!(leftovers(&place(), &MountTable::new(vec![mount(2, 3, 7, "/v"), trap])).is_empty());
}

/// Its number was free when the last of it went, and whatever was mounted next has it.
#[test]
fn what_only_has_the_number_of_the_old_mount_is_left_alone() {
    let table = |unique, fstype: &str| {
        let mut top = mount(2, 3, 7, "/v");
        (top.unique, top.fstype) = (unique, fstype.into());
        let mut beneath = mount(3, 1, 8, "/v");
        beneath.unique = unique.map(|_| 90);
        MountTable::new(vec![top, beneath])
    };
    let known = |unique: &[u64]| Place { marks: Some(marks(unique)), ..place() };
    let is_finished = |place: &Place, table: &MountTable| leftovers(place, table) == [Action::DetachTop];
    assert!(is_finished(&known(&[40, 41]), &table(Some(41), "fuse.x")));
    assert!(!is_finished(&known(&[40]), &table(Some(41), "fuse.x")), "another mount");
    assert!(is_finished(&known(&[]), &table(Some(41), "fuse.x")), "no ids were told then");
    assert!(is_finished(&known(&[40]), &table(None, "fuse.x")), "no ids are told now");
    assert!(!is_finished(&known(&[40]), &table(None, "tmpfs")), "another type");
    assert!(!is_finished(&Place { marks: None, ..place() }, &table(Some(40), "fuse.x")), "nothing is known");
    // Another mount of it has kept the number.
    let mut elsewhere = mount(5, 1, 7, "/w");
    elsewhere.unique = Some(40);
    let lines = table(Some(41), "fuse.x").mounts().iter().map(|mount| (**mount).clone()).collect::<Vec<_>>();
    let both = MountTable::new(lines.into_iter().chain([elsewhere]).collect());
    assert!(is_finished(&known(&[40]), &both));
}

#[test]
fn private_places_are_named_by_their_entry() {
    let table = MountTable::new(vec![
        mount(1, 0, 1, "/stage"),
        mount(2, 1, 2, "/stage/4"),
        mount(3, 2, 3, "/stage/4/sub"),
        mount(4, 1, 4, "/stage/9/x"),
        mount(5, 1, 5, "/stagecoach"),
    ]);
    assert_eq!(
        places_in_use(&"/stage".into(), &table),
        ["/stage/4".into(), "/stage/9".into()] as [BytePath; 2]
    );
    let place = stray(&"/stage/9".into());
    assert_eq!((place.volume.as_str(), place.old), ("/stage/9", None));
    assert_eq!(leftovers(&place, &table), [Action::Unstage]);
}

#[test]
fn what_lay_beneath_before_the_plan_is_none_of_its_own() {
    let table = MountTable::new(vec![mount(2, 3, 7, "/v"), mount(3, 1, 8, "/v")]);
    let others = |ids: &[u32]| Marks { others: ids.iter().copied().map(MountId).collect(), ..marks(&[]) };
    let place = |ids| Place { marks: Some(others(ids)), ..place() };
    assert!(leftovers(&place(&[3]), &table).is_empty());
    assert_eq!(leftovers(&place(&[4]), &table), [Action::DetachTop]);
    let seen = Marks::of(&table, &"/v".into(), SuperblockId { major: 0, minor: 7 }).unwrap();
    assert_eq!((&seen.others, seen.own.len()), (&BTreeSet::from([MountId(3)]), 0));
    let since = seen.clone().with_own_since(&others(&[]));
    assert_eq!((since.others.len(), since.own), (0, BTreeSet::from([MountId(3)])));
    let since = seen.with_own_since(&others(&[3]));
    assert_eq!((since.others, since.own.len()), (BTreeSet::from([MountId(3)]), 0));
}
