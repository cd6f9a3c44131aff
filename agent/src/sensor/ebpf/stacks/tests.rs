//! A made-up sysfs: which devices count for which volume, and when it is looked at.

use std::os::unix::fs::symlink;

use agent_common::settings::LOWER_SUPERBLOCKS;

use super::*;

/// sda with two partitions; dm-0 on sda2 and sdb; a btrfs on sdc and dm-1 (called `data`).
fn sysfs() -> tempfile::TempDir {
    let sys = tempfile::tempdir().unwrap();
    let root = sys.path();
    let device = |place: &str, number: &str| {
        std::fs::create_dir_all(root.join("devices").join(place).join("slaves")).unwrap();
        std::fs::write(root.join("devices").join(place).join("dev"), format!("{number}\n")).unwrap();
        std::fs::create_dir_all(root.join("dev/block")).unwrap();
        symlink(root.join("devices").join(place), root.join("dev/block").join(number)).unwrap();
    };
    for (place, number) in
        [("sda", "8:0"), ("sda/sda1", "8:1"), ("sda/sda2", "8:2"), ("sdb", "8:16"), ("sdc", "8:32")]
    {
        device(place, number);
    }
    device("dm-0", "254:0");
    device("dm-1", "254:1");
    for partition in ["sda1", "sda2"] {
        std::fs::write(root.join("devices/sda").join(partition).join("partition"), "1\n").unwrap();
    }
    for slave in ["sda/sda2", "sdb"] {
        let name = slave.rsplit('/').next().unwrap();
        symlink(root.join("devices").join(slave), root.join("devices/dm-0/slaves").join(name)).unwrap();
    }
    std::fs::create_dir_all(root.join("devices/dm-1/dm")).unwrap();
    std::fs::write(root.join("devices/dm-1/dm/name"), "data\n").unwrap();
    let devices = root.join("fs/btrfs/0ba5/devices");
    std::fs::create_dir_all(&devices).unwrap();
    symlink(root.join("devices/sdc"), devices.join("sdc")).unwrap();
    symlink(root.join("devices/dm-1"), devices.join("dm-1")).unwrap();
    sys
}

fn lower(
    sys: &Path,
    superblocks: impl IntoIterator<Item = SuperblockId>,
    sources: &BTreeMap<SuperblockId, Vec<u8>>,
) -> BTreeMap<u32, LowerDevice> {
    let mut stacks = Stacks::default();
    stacks.follow_new(sys, &superblocks.into_iter().collect(), sources);
    stacks.rows().0
}

fn of(major: u32, minor: u32) -> SuperblockId {
    SuperblockId { major, minor }
}

fn above(rows: &BTreeMap<u32, LowerDevice>, device: SuperblockId) -> Vec<u32> {
    let row = rows.get(&device.to_kernel()).copied().unwrap_or_default();
    row.superblocks.into_iter().filter(|superblock| *superblock != 0).collect()
}

#[test]
fn every_device_below_a_volume_counts_for_it() {
    let sys = sysfs();
    let (first, stacked) = (of(8, 1), of(254, 0));
    let rows = lower(sys.path(), [first, stacked], &BTreeMap::new());
    assert_eq!(above(&rows, of(8, 2)), [stacked.to_kernel()]);
    assert_eq!(above(&rows, of(8, 16)), [stacked.to_kernel()]);
    // The whole disk is below both; the first partition is a volume's own device.
    assert_eq!(above(&rows, of(8, 0)), [first.to_kernel(), stacked.to_kernel()]);
    assert_eq!(above(&rows, first), Vec::<u32>::new());
}

#[test]
fn a_btrfs_has_every_device_that_it_names() {
    let sys = sysfs();
    let btrfs = of(0, 50);
    for source in ["/dev/sdc", "/dev/mapper/data"] {
        let sources = BTreeMap::from([(btrfs, source.as_bytes().to_vec())]);
        let rows = lower(sys.path(), [btrfs], &sources);
        assert_eq!(above(&rows, of(8, 32)), [btrfs.to_kernel()], "{source}");
        assert_eq!(above(&rows, of(254, 1)), [btrfs.to_kernel()], "{source}");
    }
    assert!(lower(sys.path(), [btrfs], &BTreeMap::new()).is_empty());
}

#[test]
fn only_what_is_new_is_looked_at_until_all_is() {
    let sys = sysfs();
    let (first, stacked) = (of(8, 1), of(254, 0));
    let none = BTreeMap::new();
    let mut stacks = Stacks::default();
    stacks.follow_new(sys.path(), &BTreeSet::from([stacked]), &none);
    // A disk is added to the volume that is known.
    symlink(sys.path().join("devices/sdc"), sys.path().join("devices/dm-0/slaves/sdc")).unwrap();
    let both = BTreeSet::from([first, stacked]);
    stacks.follow_new(sys.path(), &both, &none);
    assert_eq!(above(&stacks.rows().0, of(8, 32)), Vec::<u32>::new());
    assert_eq!(above(&stacks.rows().0, of(8, 0)), [first.to_kernel(), stacked.to_kernel()]);
    stacks.follow_all(sys.path(), &both, &none);
    assert_eq!(above(&stacks.rows().0, of(8, 32)), [stacked.to_kernel()]);
    stacks.follow_new(sys.path(), &BTreeSet::from([first]), &none);
    assert_eq!(above(&stacks.rows().0, of(8, 16)), Vec::<u32>::new());
}

#[test]
fn more_volumes_than_a_row_has_places_cost_the_last_ones() {
    let sys = sysfs();
    let root = sys.path();
    for minor in 10..50 {
        let place = root.join("devices").join(format!("dm-{minor}"));
        std::fs::create_dir_all(place.join("slaves")).unwrap();
        std::fs::write(place.join("dev"), format!("254:{minor}")).unwrap();
        symlink(root.join("devices/sdb"), place.join("slaves/sdb")).unwrap();
        symlink(&place, root.join("dev/block").join(format!("254:{minor}"))).unwrap();
    }
    let superblocks = (10..50).map(|minor| of(254, minor)).collect();
    let mut stacks = Stacks::default();
    stacks.follow_new(root, &superblocks, &BTreeMap::new());
    let (rows, left_out) = stacks.rows();
    assert_eq!(above(&rows, of(8, 16)).len(), LOWER_SUPERBLOCKS);
    assert_eq!(left_out, superblocks.len() - LOWER_SUPERBLOCKS, "they are told of");
}
