//! The order of stacks, and what a path walk finds.

use super::*;
use alloc::{format, vec};

pub(super) fn mount(id: u32, parent: u32, path: &str) -> Mount {
    Mount {
        id: MountId(id),
        unique: None,
        parent: MountId(parent),
        superblock: SuperblockId { major: 0, minor: id },
        root: BytePath::from("/"),
        mountpoint: BytePath::from(path),
        options: Options::parse(b"rw"),
        propagation: Propagation::default(),
        fstype: "tmpfs".into(),
        source: b"x".to_vec(),
        super_options: Options::parse(b"rw"),
    }
}

fn ids(mounts: &[&Mount]) -> Vec<u32> {
    mounts.iter().map(|mount| mount.id.0).collect()
}

#[test]
fn a_stack_is_ordered_by_parent_not_by_line() {
    let table =
        MountTable::new(vec![mount(1, 0, "/"), mount(5, 7, "/a"), mount(7, 1, "/a"), mount(9, 1, "/b")]);
    assert_eq!(ids(&table.stack_at(&"/a".into())), [7, 5]);
    assert_eq!(table.top_at(&"/a".into()).map(|mount| mount.id.0), Some(5));
    assert!(table.stack_at(&"/c".into()).is_empty());
    assert_eq!(table.showing(SuperblockId { major: 0, minor: 9 }).count(), 1);
}

#[test]
fn a_deep_stack_costs_little() {
    let mounts = (0..4096).map(|n| mount(n + 2, n + 1, "/a")).chain([mount(1, 0, "/")]).collect();
    let table = MountTable::new(mounts);
    assert_eq!(table.stack_at(&"/a".into()).len(), 4096);
    assert_eq!(table.visible_at(&"/a".into()).map(|mount| mount.id.0), Some(4097));
}

#[test]
fn walks_that_remember_end_where_walks_that_do_not_end() {
    let mounts = (0..200).map(|n| mount(n + 2, n + 1, "/a")).chain([
        mount(1, 0, "/"),
        mount(300, 201, "/a/b"),
        mount(301, 5, "/a/c"),
        mount(302, 300, "/a/b"),
    ]);
    let table = MountTable::new(mounts.collect());
    let mut walks = Walks::new(&table);
    for (path, expected) in [
        ("/a/b", Some(302)),
        ("/a", Some(201)),
        ("/a/b", Some(302)),
        ("/a/c", None),
        ("/", Some(1)),
        ("/a", Some(201)),
    ] {
        assert_eq!(walks.visible_at(&path.into()).map(|mount| mount.id.0), expected, "{path}");
        assert_eq!(table.visible_at(&path.into()).map(|mount| mount.id.0), expected, "{path}");
    }
}

#[test]
fn parents_in_a_ring_lose_no_line() {
    let table = MountTable::new(vec![mount(1, 2, "/a"), mount(2, 1, "/a")]);
    assert_eq!(table.stack_at(&"/a".into()).len(), 2);
}

#[test]
fn a_mount_below_a_covered_directory_is_not_visible() {
    let table = MountTable::new(vec![
        mount(1, 0, "/"),
        mount(2, 1, "/m"),
        mount(3, 2, "/m/a"),
        mount(4, 2, "/m"),
        mount(5, 4, "/m/a/b"),
    ]);
    assert!(table.visible_at(&"/m/a".into()).is_none());
    assert_eq!(table.visible_at(&"/m".into()).map(|mount| mount.id.0), Some(4));
    // Made in the new tree, below a path at which the old tree has a mount.
    assert_eq!(table.visible_at(&"/m/a/b".into()).map(|mount| mount.id.0), Some(5));
    assert_eq!(table.visible_at(&"/".into()).map(|mount| mount.id.0), Some(1));
}

#[test]
fn a_table_without_its_root_still_shows_its_mounts() {
    let table = MountTable::new(vec![
        mount(8, 3, "/m"),
        mount(9, 8, "/m/a"),
        mount(10, 9, "/m/a"),
        mount(11, 10, "/m/a"),
    ]);
    assert_eq!(table.visible_at(&"/m/a".into()).map(|mount| mount.id.0), Some(11));
    let odd = MountTable::new(vec![mount(1, 0, "/"), mount(8, 77, "/m")]);
    assert_eq!(odd.visible_at(&"/m".into()).map(|mount| mount.id.0), Some(8));
}

#[test]
fn options_are_whole_words_in_order() {
    let options = Options::parse(b"rw,,errors=remount-ro,emergency_ro,rw");
    assert!(!options.has("ro"));
    assert!(options.has("emergency_ro"));
    assert_eq!(options.iter().count(), 4);
    assert_eq!(options, Options::parse(b"rw,errors=remount-ro,emergency_ro,rw"));
    assert_eq!(Options::parse(b"").iter().count(), 0);
}

#[test]
fn equal_lines_make_equal_tables() {
    let lines = vec![mount(1, 0, "/")];
    let table = MountTable::new(lines.clone());
    assert_eq!(table, MountTable::new(lines));
    assert_eq!(table, table.clone());
    assert_ne!(table, MountTable::default());
    assert!(format!("{table:?}").contains("mountpoint"));
}

#[test]
fn a_difference_names_what_came_went_and_changed() {
    let mut changed_line = mount(3, 1, "/c");
    changed_line.options = Options::parse(b"ro");
    let old = MountTable::new(vec![mount(1, 0, "/"), mount(3, 1, "/c"), mount(5, 1, "/gone")]);
    let new =
        MountTable::new(vec![mount(2, 1, "/new"), mount(1, 0, "/"), changed_line, mount(9, 1, "/last")]);
    let difference = diff::changed(&old, &new);
    let paths: Vec<_> = difference.iter().map(|mount| format!("{}", mount.mountpoint)).collect();
    assert_eq!(paths, ["/new", "/c", "/c", "/gone", "/last"]);
    assert!(diff::changed(&new, &new.clone()).is_empty());
}
