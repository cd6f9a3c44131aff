//! Which mounts become volumes, on tables small enough to read.

use super::*;
use crate::topology::{Options, Propagation};
use crate::volume::{Identity, Repair, Watch};
use alloc::string::String;
use alloc::vec;

/// `id parent device root mountpoint fstype source`
fn line(text: &str) -> Mount {
    let fields: Vec<&str> = text.split_whitespace().collect();
    Mount {
        id: MountId(fields[0].parse().unwrap()),
        unique: None,
        parent: MountId(fields[1].parse().unwrap()),
        superblock: SuperblockId { major: 0, minor: fields[2].parse().unwrap() },
        root: BytePath::from(fields[3]),
        mountpoint: BytePath::from(fields[4]),
        options: Options::parse(b"rw"),
        propagation: Propagation::default(),
        fstype: fields[5].into(),
        source: fields[6].as_bytes().to_vec(),
        super_options: Options::parse(b"rw"),
    }
}

fn table(lines: &[&str]) -> MountTable {
    MountTable::new(lines.iter().map(|text| line(text)).collect())
}

fn named(name: &str, mountpoint: &str, fstype: &str, source: &str) -> VolumeSpec {
    VolumeSpec {
        id: VolumeId::new(name),
        mountpoint: BytePath::from(mountpoint),
        source: (!source.is_empty()).then(|| source.as_bytes().to_vec()),
        fstype: (!fstype.is_empty()).then(|| String::from(fstype)),
        options: Vec::new(),
        watch: Watch::default(),
        sentinel: None,
        write_probe: false,
        identity: Identity::default(),
        repair: Repair::default(),
    }
}

fn found(policy: &Policy, table: &MountTable) -> Vec<(String, Presence, Option<u32>)> {
    discover(policy, table, &|_| None)
        .into_iter()
        .map(|sighting| {
            (String::from(sighting.id.as_str()), sighting.presence, sighting.mount.map(|mount| mount.id.0))
        })
        .collect()
}

fn present(name: &str, id: u32) -> (String, Presence, Option<u32>) {
    (name.into(), Presence::Present, Some(id))
}

const ROOT: &str = "1 0 1 / / ext4 /dev/sda1";

#[test]
fn storage_is_found_and_the_rest_is_not() {
    let table = table(&[
        ROOT,
        "2 1 2 / /proc proc proc",
        "3 1 1 /srv /srv/bind ext4 /dev/sda1",
        "4 1 4 / /mnt/a nfs4 filer:/a",
        "5 1 5 / /mnt/b fuse.sshfs host:",
        "6 1 6 / /var/lib/lxcfs fuse.lxcfs lxcfs",
        "7 1 7 / /tmp tmpfs tmpfs",
        "8 1 8 / /var/o overlay overlay",
        "9 1 9 / /net/x autofs /etc/auto.x",
        "10 1 10 / /data xfs /dev/sdb",
        "11 1 11 / /run/mountie/stage/5 nfs4 filer:/c",
    ]);
    let expected = [present("/", 1), present("/data", 10), present("/mnt/a", 4), present("/mnt/b", 5)];
    assert_eq!(found(&Policy::default(), &table), expected);
}

#[test]
fn a_real_mount_above_an_automount_trap_is_found() {
    let table = table(&[ROOT, "9 1 9 / /net/x autofs /etc/auto.x", "10 9 10 / /net/x nfs4 filer:/x"]);
    assert_eq!(found(&Policy::default(), &table), [present("/", 1), present("/net/x", 10)]);
}

#[test]
fn selectors_include_and_exclude() {
    let table = table(&[
        ROOT,
        "4 1 4 / /mnt/a nfs4 filer:/a",
        "5 1 5 / /srv/t tmpfs tmpfs",
        "6 1 6 / /srv/p proc proc",
        "7 1 7 / /srv/x/y nfs old:/y",
    ]);
    let selector = |fstype: &str, mountpoint: &str, source: &str| Selector {
        fstype: (!fstype.is_empty()).then(|| fstype.into()),
        mountpoint: (!mountpoint.is_empty()).then(|| mountpoint.into()),
        source: (!source.is_empty()).then(|| source.into()),
    };
    let mut policy = Policy::default();
    policy.discovery.include = vec![selector("nfs*", "", ""), selector("", "/srv/**", "")];
    policy.discovery.exclude = vec![selector("", "", "old:*")];
    assert_eq!(found(&policy, &table), [present("/mnt/a", 4), present("/srv/t", 5)]);
    policy.discovery.include.clear();
    assert_eq!(found(&policy, &table), [present("/", 1), present("/mnt/a", 4)]);
    policy.discovery.enabled = false;
    assert!(found(&policy, &table).is_empty());
}

#[test]
fn of_several_binds_the_shortest_is_the_volume_unless_another_was() {
    let table = table(&[
        ROOT,
        "4 1 4 / /pods/long/a nfs4 filer:/a",
        "5 1 4 / /mnt/a nfs4 filer:/a",
        "6 1 4 / /mnt/logs nfs4 filer:/a/logs",
    ]);
    let policy = Policy::default();
    assert_eq!(found(&policy, &table), [present("/", 1), present("/mnt/a", 5), present("/mnt/logs", 6)]);
    let sightings = discover(&policy, &table, &|_| None);
    assert_eq!(sightings[1].further, [BytePath::from("/pods/long/a")]);
    let kept = discover(&policy, &table, &|path| (path.as_bytes() == b"/pods/long/a").then_some(MountId(4)));
    assert!(kept.iter().any(|sighting| sighting.id.as_str() == "/pods/long/a"));
    assert!(!kept.iter().any(|sighting| sighting.id.as_str() == "/mnt/a"));
}

#[test]
fn two_directories_of_one_export_are_two_volumes() {
    let table = table(&[
        ROOT,
        "4 1 4 / /mnt/a nfs4 filer:/x/a",
        "5 1 4 / /mnt/b nfs4 filer:/x/b",
        "6 1 4 / /pods/b nfs4 filer:/x/b",
        "7 1 7 / /mnt/c ext4 /dev/sdb",
        "8 1 7 /logs /mnt/logs ext4 /dev/sdb",
    ]);
    let expected = [
        present("/", 1),
        present("/mnt/a", 4),
        present("/mnt/b", 5),
        present("/mnt/c", 7),
        present("/mnt/logs", 8),
    ];
    let policy = Policy::default();
    assert_eq!(found(&policy, &table), expected);
    let sightings = discover(&policy, &table, &|_| None);
    assert!(sightings[1].further.is_empty(), "{:?}", sightings[1]);
    assert_eq!(sightings[2].further, [BytePath::from("/pods/b")]);
}

#[test]
fn a_named_volume_claims_its_mount_and_its_binds() {
    let table = table(&[ROOT, "4 1 4 / /mnt/models nfs4 filer:/a", "5 1 4 / /x nfs4 filer:/a"]);
    let policy =
        Policy { volumes: vec![named("models", "/mnt/models", "nfs", "filer:/a")], ..Policy::default() };
    assert_eq!(found(&policy, &table), [present("/", 1), present("models", 4)]);
    assert_eq!(discover(&policy, &table, &|_| None)[1].further, [BytePath::from("/x")]);
}

#[test]
fn a_name_that_looks_like_a_path_stays_unique() {
    let table = table(&[ROOT, "4 1 4 / /mnt/a nfs4 filer:/a"]);
    let policy = Policy { volumes: vec![named("/mnt/a", "/mnt/b", "", "")], ..Policy::default() };
    let names: Vec<_> = found(&policy, &table).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["/", "/mnt/a", "/mnt/a#found"]);
}

fn presence(spec: VolumeSpec, lines: &[&str]) -> Presence {
    let policy = Policy { volumes: vec![spec], ..Policy::default() };
    let table = table(lines);
    discover(&policy, &table, &|_| None)
        .into_iter()
        .find(|sighting| sighting.spec.is_some())
        .unwrap()
        .presence
}

#[test]
fn a_named_place_without_its_mount_is_missing() {
    let spec = || named("v", "/v", "nfs4", "filer:/a");
    assert_eq!(presence(spec(), &[ROOT]), Presence::Missing);
    assert_eq!(presence(spec(), &[ROOT, "2 1 2 / /v autofs x"]), Presence::Idle);
    assert_eq!(presence(spec(), &[ROOT, "2 1 2 / /v nfs4 filer:/b"]), Presence::WrongMount);
    let other_name = [ROOT, "2 1 2 / /v nfs4 10.0.0.7:/a"];
    assert_eq!(
        presence(spec(), &other_name),
        Presence::Present,
        "the kernel met its server under another name"
    );
    assert_eq!(presence(spec(), &[ROOT, "2 1 2 / /v ext4 filer:/a"]), Presence::WrongMount);
    assert_eq!(presence(spec(), &[ROOT, "2 1 2 / /v nfs filer:/a"]), Presence::Present);
}

#[test]
fn a_mount_over_the_volume_covers_it() {
    let spec = || named("v", "/m/v", "nfs4", "filer:/a");
    let own = "2 1 2 / /m/v nfs4 filer:/a";
    assert_eq!(presence(spec(), &[ROOT, own, "3 2 3 / /m/v tmpfs t"]), Presence::Covered);
    assert_eq!(presence(spec(), &[ROOT, own, "3 1 3 / /m tmpfs t"]), Presence::Covered);
    // The new mount beneath the old one, in the middle of a swap.
    assert_eq!(
        presence(spec(), &[ROOT, "2 5 2 / /m/v nfs4 filer:/a", "5 1 5 / /m/v nfs4 filer:/a"]),
        Presence::Present
    );
}

#[test]
fn a_discovered_volume_is_covered_only_if_it_was_watched() {
    let table = table(&[ROOT, "2 1 2 / /v nfs4 filer:/a", "3 2 3 / /v tmpfs t"]);
    let policy = Policy::default();
    assert_eq!(found(&policy, &table), [present("/", 1)]);
    let kept = discover(&policy, &table, &|path| (path.as_bytes() == b"/v").then_some(MountId(2)));
    assert_eq!(kept[1].presence, Presence::Covered);
}

#[test]
fn sources_that_cannot_be_compared_are_not_wrong() {
    for (fstype, wanted, shown) in [
        ("ext4", "UUID=0a0b", "ext4 /dev/sdb1"),
        ("ext4", "/dev/disk/by-id/x", "ext4 /dev/sdb1"),
        ("ext4", "/dev/vg/lv", "ext4 /dev/mapper/vg-lv"),
        ("ext4", "/images/a.img", "ext4 /dev/loop0"),
        ("fuse.bindfs", "/dir", "fuse /elsewhere"),
        ("fuse.sshfs", "host:path", "fuse.sshfs sshfs"),
        ("auto", "LABEL=x", "tmpfs x"),
        ("tmpfs", "UUID=9", "tmpfs x"),
    ] {
        let line = alloc::format!("2 1 2 / /v {shown}");
        assert_eq!(presence(named("v", "/v", fstype, wanted), &[ROOT, &line]), Presence::Present, "{wanted}");
    }
    let wrong = presence(named("v", "/v", "ext4", "/dev/sdb1"), &[ROOT, "2 1 2 / /v ext4 /dev/sdc1"]);
    assert_eq!(wrong, Presence::WrongMount);
    let mut bind = named("v", "/v", "none", "/srv/dir");
    bind.options = vec!["bind".into()];
    assert_eq!(presence(bind, &[ROOT, "2 1 1 /srv/dir /v ext4 /dev/sda1"]), Presence::Present);
}

#[test]
fn a_source_that_differs_by_slashes_only_is_the_same() {
    for (fstype, wanted, shown) in [
        ("nfs4", "filer:/export/models/", "nfs4 filer:/export/models"),
        ("nfs", "filer://export", "nfs4 filer:/export"),
        ("cifs", "//filer/share/", "cifs //filer/share"),
    ] {
        let line = alloc::format!("2 1 2 / /v {shown}");
        assert_eq!(presence(named("v", "/v", fstype, wanted), &[ROOT, &line]), Presence::Present, "{wanted}");
    }
    let root = presence(named("v", "/v", "nfs4", "filer:/a"), &[ROOT, "2 1 2 / /v nfs4 filer:/"]);
    assert_eq!(root, Presence::WrongMount);
}

#[test]
fn another_directory_of_another_server_is_not_the_volume_of_sshfs() {
    let sshfs = |options: &[&str], shown: &str| {
        let mut spec = named("v", "/v", "fuse.sshfs", "ann@a:/x");
        spec.options = options.iter().map(|option| String::from(*option)).collect();
        presence(spec, &[ROOT, &alloc::format!("2 1 2 / /v fuse.sshfs {shown}")])
    };
    assert_eq!(sshfs(&[], "ann@a:/x"), Presence::Present);
    assert_eq!(sshfs(&[], "b:/x"), Presence::WrongMount);
    assert_eq!(sshfs(&["fsname=b:/x"], "b:/x"), Presence::Present, "it shows what it is told");
}

#[test]
fn another_subvolume_is_not_the_volume() {
    let subvolume = |option: &str, shown: &str| {
        let mut spec = named("v", "/v", "btrfs", "/dev/sdb");
        spec.options = vec!["compress=zstd".into(), option.into()];
        let policy = Policy { volumes: vec![spec], ..Policy::default() };
        let mut mount = line("2 1 2 /@data /v btrfs /dev/sdb");
        mount.super_options = Options::parse(shown.as_bytes());
        let table = MountTable::new(vec![line(ROOT), mount]);
        let found = discover(&policy, &table, &|_| None);
        found.iter().find(|sighting| sighting.spec.is_some()).unwrap().presence
    };
    let shown = "rw,subvolid=256,subvol=/@data";
    for option in ["subvol=@data", "subvol=/@data/", "subvolid=256", "subvolid=0400", "ssd"] {
        assert_eq!(subvolume(option, shown), Presence::Present, "{option}");
    }
    for option in ["subvol=@old", "subvol=@data/x", "subvol=/", "subvolid=257"] {
        assert_eq!(subvolume(option, shown), Presence::WrongMount, "{option}");
    }
    assert_eq!(subvolume("subvolid=0", "rw,subvolid=5,subvol=/"), Presence::Present);
    assert_eq!(subvolume("subvol=@data", "rw"), Presence::Present, "an old kernel does not say");
}
