//! What is found in tables of hosts and containers.

use alloc::vec;

use super::*;
use crate::id::MountId;
use crate::topology::{Options, Propagation};

const OLD: u32 = 7;

fn mount(id: u32, parent: u32, device: u32, path: &str, root: &str) -> Mount {
    Mount {
        id: MountId(id),
        unique: None,
        parent: MountId(parent),
        superblock: SuperblockId { major: 0, minor: device },
        root: root.into(),
        mountpoint: path.into(),
        options: Options::default(),
        propagation: Propagation::default(),
        fstype: "ext4".into(),
        source: b"/dev/sdb".to_vec(),
        super_options: Options::default(),
    }
}

/// As the kernel shows it: the root is always `/`.
fn nfs(id: u32, parent: u32, path: &str, source: &str) -> Mount {
    let source = source.as_bytes().to_vec();
    Mount { fstype: "nfs4".into(), source, ..mount(id, parent, OLD, path, "/") }
}

fn found(mounts: Vec<Mount>, reach: Reach, own: &[BytePath]) -> Survey {
    found_of(&mount(0, 0, OLD, "/v", "/"), mounts, reach, own)
}

/// The consumers of a volume that is mounted so.
fn found_of(shown: &Mount, mounts: Vec<Mount>, reach: Reach, own: &[BytePath]) -> Survey {
    let holding = Holding::of(shown);
    let volume = VolumeId::new("models");
    let old = SuperblockId { major: 0, minor: OLD };
    let wanted = Wanted { volume: &volume, old: Some((old, &holding)), ids: None, reach, own };
    let mut all = vec![mount(1, 0, 1, "/", "/")];
    all.extend(mounts);
    survey(&MountTable::new(all), &wanted)
}

fn places(survey: &Survey) -> Vec<(String, String, usize, bool)> {
    let row = |bind: &Bind| {
        let (place, inner) = (format!("{}", bind.mount.mountpoint), format!("{}", bind.inner));
        (place, inner, bind.surplus, bind.is_inside)
    };
    survey.binds.iter().map(row).collect()
}

#[test]
fn every_bind_is_found_with_its_own_directory() {
    let survey = found(
        vec![
            mount(2, 1, OLD, "/pod/sub/path", "/a/b"),
            mount(3, 1, OLD, "/data", "/"),
            mount(4, 1, 8, "/other", "/"),
        ],
        Reach::Unowned,
        &[],
    );
    let row = |place: &str, inner: &str| (place.into(), inner.into(), 0, false);
    assert_eq!(places(&survey), [row("/data", ""), row("/pod/sub/path", "a/b")]);
    assert!(survey.left.is_empty());
}

#[test]
fn another_file_system_with_the_same_number_is_none() {
    let mut other = mount(2, 1, OLD, "/data", "/");
    other.source = b"/dev/sdc".to_vec();
    let mut fuse = mount(3, 1, OLD, "/more", "/");
    fuse.fstype = "fuse.x".into();
    assert_eq!(found(vec![other, fuse], Reach::All, &[]), Survey::default());
}

/// A mount of NFS names its directory in its source alone, and directories of one export share a superblock.
#[test]
fn directories_of_nfs_are_told_by_their_sources() {
    for volume in ["filer:/export/models", "filer:/export/models/", "[fd00::1]:/m", "filer:/"] {
        let base = volume.strip_suffix('/').unwrap_or(volume);
        let below = |inner: &str| format!("{base}/{inner}");
        let mounts = vec![
            nfs(2, 1, "/data", volume),
            nfs(3, 1, "/pod/sub/path", &below("a/b")),
            nfs(4, 1, "/more", &format!("{base}-2")),
            nfs(5, 1, "/other", "filer2:/export"),
        ];
        let survey = found_of(&nfs(9, 1, "/v", volume), mounts, Reach::All, &[]);
        let row = |place: &str, inner: &str| (place.into(), inner.into(), 0, false);
        assert_eq!(places(&survey), [row("/data", ""), row("/pod/sub/path", "a/b")], "{volume}");
        // What lies beside the volume is no concern of it.
        assert!(survey.left.is_empty(), "{volume}: {survey:?}");
    }
    let holding = Holding::of(&nfs(9, 1, "/v", "filer:/export"));
    assert_eq!(holding.directory_of(&nfs(2, 1, "/data", "filer:/export/a")), "/a".into());
    assert_eq!(holding.directory_of(&nfs(2, 1, "/data", "filer:/export")), "/".into());
}

#[test]
fn places_of_the_plan_itself_are_left_to_it() {
    let mounts = vec![mount(2, 1, OLD, "/mnt/models", "/"), mount(3, 1, OLD, "/run/stage/4", "/")];
    let own = ["/mnt/models".into(), "/run/stage".into()];
    assert_eq!(found(mounts, Reach::All, &own), Survey::default());
}

#[test]
fn doubles_go_with_the_one_on_top_and_binds_inside_come_after() {
    let survey = found(
        vec![
            mount(2, 1, OLD, "/data", "/"),
            mount(3, 2, OLD, "/data", "/"),
            mount(4, 3, OLD, "/data/x", "/y"),
        ],
        Reach::All,
        &[],
    );
    let expected = [("/data".into(), "".into(), 1, false), ("/data/x".into(), "y".into(), 0, true)];
    assert_eq!(places(&survey), expected);
}

#[test]
fn what_cannot_be_replaced_is_left_and_named() {
    let mut inside = mount(5, 4, 9, "/full/tmp", "/");
    inside.fstype = "tmpfs".into();
    let mut over = mount(7, 6, 9, "/covered", "/");
    over.fstype = "tmpfs".into();
    let survey = found(
        vec![
            mount(2, 1, OLD, "/gone", "/a//deleted"),
            mount(4, 1, OLD, "/full", "/"),
            inside,
            mount(6, 1, OLD, "/covered", "/"),
            over,
            mount(8, 1, OLD, "/var/lib/kubelet/pods/1/volumes/x", "/"),
        ],
        Reach::Unowned,
        &[],
    );
    assert!(survey.binds.is_empty(), "{survey:?}");
    let left: Vec<&Left> = survey.left.iter().map(|stays| &stays.why).collect();
    let expected = [&Left::Deleted, &Left::HasInside("/full/tmp".into()), &Left::Covered, &Left::Kubelets];
    assert_eq!(left, expected);
    assert!(survey.left.iter().all(|stays| !stays.why.text().is_empty()));
}

/// What is detached goes with everything inside it: an old mount that has to stay keeps those around it, too.
#[test]
fn a_stranger_deep_inside_keeps_all_that_it_lies_in() {
    let mut secrets = mount(5, 4, 9, "/data/sub/secrets", "/");
    secrets.fstype = "tmpfs".into();
    let mounts = vec![
        mount(3, 1, OLD, "/data", "/"),
        mount(4, 3, OLD, "/data/sub", "/s"),
        secrets,
        mount(6, 1, OLD, "/kept", "/"),
        mount(7, 6, OLD, "/kept/gone", "/g//deleted"),
        mount(8, 1, OLD, "/free", "/"),
        mount(9, 8, OLD, "/free/sub", "/s"),
    ];
    let survey = found(mounts, Reach::All, &[]);
    let binds: Vec<u32> = survey.binds.iter().map(|bind| bind.mount.id.0).collect();
    assert_eq!(binds, [8, 9]);
    let mut left: Vec<u32> = survey.left.iter().map(|stays| stays.id.0).collect();
    left.sort_unstable();
    assert_eq!(left, [3, 4, 6, 7]);
}

#[test]
fn a_root_directory_and_another_part_are_left() {
    let holding = Holding::of(&mount(0, 0, OLD, "/v", "/sub"));
    let volume = VolumeId::new("models");
    let old = SuperblockId { major: 0, minor: OLD };
    let wanted =
        Wanted { volume: &volume, old: Some((old, &holding)), ids: None, reach: Reach::All, own: &[] };
    let table = MountTable::new(vec![
        mount(1, 0, OLD, "/", "/sub"),
        mount(2, 1, OLD, "/a", "/subway"),
        mount(3, 1, OLD, "/b", "/sub/x"),
    ]);
    let survey = survey(&table, &wanted);
    assert_eq!(places(&survey), [("/b".into(), "x".into(), 0, true)]);
    let left: Vec<&Left> = survey.left.iter().map(|stays| &stays.why).collect();
    assert_eq!(left, [&Left::IsRoot, &Left::OtherPart]);
}

#[test]
fn what_the_kubelet_made_is_touched_only_when_that_is_said() {
    for place in ["/var/lib/k0s/kubelet/pods/1/volumes/x", "/data/k8s/pods/1/volumes/kubernetes.io~nfs/x"] {
        let mounts = || vec![mount(8, 1, OLD, place, "/")];
        assert_eq!(found(mounts(), Reach::Unowned, &[]).binds.len(), 0, "{place}");
        assert_eq!(found(mounts(), Reach::All, &[]).binds.len(), 1, "{place}");
    }
}

#[test]
fn a_guard_says_whose_it_is_and_what_it_stands_for() {
    let volume = VolumeId::new("models:2");
    let guard = |volume: &VolumeId, inner: &str| {
        let source = guard_source(volume, &inner.into());
        Mount { fstype: "tmpfs".into(), source, ..mount(2, 1, 30, "/data", "/") }
    };
    let own = guard(&volume, "a:b/c");
    assert!(is_guard(&own));
    assert_eq!(guarded(&volume, &own), Some("a:b/c".into()));
    assert_eq!(guarded(&VolumeId::new("models"), &own), None);
    assert!(!is_guard(&mount(2, 1, 30, "/data", "/")));
    let wanted = Wanted { volume: &volume, old: None, ids: None, reach: Reach::All, own: &[] };
    let table = MountTable::new(vec![mount(1, 0, 1, "/", "/"), own, mount(3, 1, OLD, "/x", "/")]);
    let survey = survey(&table, &wanted);
    assert_eq!(places(&survey), [("/data".into(), "a:b/c".into(), 0, false)]);
    assert_eq!(survey.binds[0].kind, Kind::Guard);
}
