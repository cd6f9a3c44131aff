//! Options of old mounts, and what new ones get of them.

use super::*;
use agent_core::id::{MountId, SuperblockId};
use agent_core::path::BytePath;
use agent_core::topology::Propagation;

fn old(options: &str) -> Mount {
    Mount {
        id: MountId(7),
        unique: None,
        parent: MountId(1),
        superblock: SuperblockId { major: 0, minor: 40 },
        root: BytePath::from("/"),
        mountpoint: BytePath::from("/mnt/a"),
        options: Options::parse(options.as_bytes()),
        propagation: Propagation::default(),
        fstype: "tmpfs".to_owned(),
        source: b"x".to_vec(),
        super_options: Options::parse(b"ro,noexec"),
    }
}

fn former(options: &str) -> Former {
    Former::of(&old(options))
}

const PLAIN: Wish = Wish { readonly: false, old_readonly_is_the_fault: false };

#[test]
fn every_restriction_of_the_old_mount_is_kept() {
    let all = for_new_mount(Some(&former("ro,nosuid,nodev,noexec,nodiratime,nosymfollow,relatime")), PLAIN);
    for (word, bit) in BITS {
        assert!(all.set.contains(bit), "{word}");
    }
}

#[test]
fn options_of_the_superblock_are_not_options_of_the_mount() {
    assert!(for_new_mount(Some(&former("rw,relatime")), PLAIN).set.is_empty());
}

#[test]
fn access_times_are_one_field_with_three_values() {
    let field = MountAttrFlags::MOUNT_ATTR__ATIME;
    for (options, value) in [
        ("rw,relatime", MountAttrFlags::empty()),
        ("rw,noatime", MountAttrFlags::MOUNT_ATTR_NOATIME),
        ("rw", MountAttrFlags::MOUNT_ATTR_STRICTATIME),
    ] {
        let attributes = for_new_mount(Some(&former(options)), PLAIN);
        assert_eq!((attributes.set & field, attributes.clear), (value, field), "{options}");
    }
}

#[test]
fn read_only_is_added_on_wish_and_dropped_only_where_it_is_the_fault() {
    let readonly = MountAttrFlags::MOUNT_ATTR_RDONLY;
    let wished = Wish { readonly: true, old_readonly_is_the_fault: true };
    assert!(for_new_mount(None, wished).set.contains(readonly));
    assert!(for_new_mount(Some(&former("ro,relatime")), wished).set.contains(readonly));
    let fault = Wish { readonly: false, old_readonly_is_the_fault: true };
    assert!(!for_new_mount(Some(&former("ro,relatime")), fault).set.contains(readonly));
}

#[test]
fn a_bind_remount_keeps_what_the_staged_mount_has_and_adds_the_rest() {
    let wanted = for_new_mount(Some(&former("ro,noexec")), PLAIN);
    let flags = for_bind_remount(&old("rw,nosuid,noatime"), wanted);
    let expected = MountFlags::NOSUID | MountFlags::RDONLY | MountFlags::NOEXEC | MountFlags::STRICTATIME;
    assert_eq!(flags, expected);
    let relatime = for_bind_remount(&old("rw,noatime"), for_new_mount(Some(&former("rw,relatime")), PLAIN));
    assert_eq!(relatime, MountFlags::RELATIME);
}

#[test]
fn what_takes_a_place_has_the_options_of_the_mount_and_no_others() {
    let attributes = exact(&old("ro,noexec,noatime"));
    let wanted = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_NOATIME;
    assert_eq!(attributes.set, wanted);
    for (word, bit) in BITS {
        assert!(attributes.clear.contains(bit), "{word}");
    }
    assert!(attributes.clear.contains(MountAttrFlags::MOUNT_ATTR__ATIME));
    let flags = MountFlags::RDONLY | MountFlags::NOEXEC | MountFlags::NOATIME;
    assert_eq!(exact_in_old_flags(&old("ro,noexec,noatime")), flags);
}

#[test]
fn read_only_is_asked_of_the_side_that_had_it() {
    let restricted = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RELATIME;
    let readonly = restricted | MountFlags::RDONLY;
    let mount = |options: &str, super_options: &str| Mount {
        super_options: Options::parse(super_options.as_bytes()),
        ..old(options)
    };
    for (options, super_options, flags) in [
        ("rw,nosuid,nodev,relatime", "rw", restricted),
        ("ro,nosuid,nodev,relatime", "rw", restricted),
        ("ro,nosuid,nodev,relatime", "ro", readonly),
        ("rw,nosuid,nodev,relatime", "ro", readonly),
    ] {
        assert_eq!(again(&mount(options, super_options)), flags, "{options} {super_options}");
    }
}
