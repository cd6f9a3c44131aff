//! Sentinels put on real mounts, and those that are not.

use std::path::Path;

use agent_core::errno::Errno;
use agent_core::volume::ProbeUser;
use nix::mount::MsFlags;

use super::*;
use crate::probe::lab::{in_private_namespace, mount, mount_image, mount_tmpfs, request_for};
use crate::probe::steps::plant as plant_at;

fn planting(path: &str) -> Planting {
    Planting { path: path.into(), content: b"v-1".to_vec(), is_chosen: false, may_adopt: false }
}

fn run(place: &Path, planting: &Planting) -> Result<Planted, PlantFault> {
    plant_at(&request_for(place), planting, &mut |_| ())
}

fn names(place: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(place).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_sentinel_is_written_once_and_can_be_read_by_all() {
    in_private_namespace(|lab| {
        let place = mount_tmpfs(lab.join("a"));
        std::fs::create_dir(place.join("d")).unwrap();
        for path in [".mountie", "d/s"] {
            assert_eq!(run(&place, &planting(path)), Ok(Planted::Written(b"v-1".to_vec())));
            assert_eq!(std::fs::read(place.join(path)).unwrap(), b"v-1\n");
            let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(place.join(path)).unwrap());
            assert_eq!(mode & 0o077, 0o044 & !umask(), "{mode:o}");
            // Without a choice even the same content is not the same sentinel.
            assert_eq!(run(&place, &planting(path)), Err(PlantFault::Exists));
        }
        assert_eq!(names(&place), [".mountie", "d"]);
    });
}

fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:")).unwrap();
    u32::from_str_radix(mask.trim(), 8).unwrap()
}

#[test]
fn what_is_there_stays_and_counts_when_it_was_chosen_or_may_be_adopted() {
    in_private_namespace(|lab| {
        let place = mount_tmpfs(lab.join("a"));
        std::fs::write(place.join("s"), "other\n").unwrap();
        let new = planting("s");
        assert_eq!(run(&place, &new), Err(PlantFault::Exists));
        let adopt = Planting { may_adopt: true, ..new.clone() };
        assert_eq!(run(&place, &adopt), Ok(Planted::Adopted(b"other\n".to_vec())));
        let chosen = Planting { content: b"other".to_vec(), is_chosen: true, ..new };
        assert_eq!(run(&place, &chosen), Ok(Planted::Found(b"other".to_vec())));
        assert_eq!(std::fs::read(place.join("s")).unwrap(), b"other\n");
        std::fs::write(place.join("s"), "").unwrap();
        assert_eq!(run(&place, &adopt), Err(PlantFault::Empty));
    });
}

#[test]
fn nothing_is_written_where_the_volume_is_not_mounted() {
    in_private_namespace(|lab| {
        let outer = mount_tmpfs(lab.join("a"));
        let place = mount_tmpfs(outer.join("b"));
        let request = request_for(&place);
        nix::mount::umount(&place).unwrap();
        let found = request_for(&outer).superblock;
        let result = plant_at(&request, &planting("s"), &mut |_| ());
        assert_eq!(result, Err(PlantFault::Look(ProbeResult::WrongMount { found })));
        assert!(names(&place).is_empty());
    });
}

#[test]
fn a_read_only_a_full_and_a_wrong_place_are_told_apart_and_nothing_is_left() {
    in_private_namespace(|lab| {
        let closed = mount("tmpfs", lab.join("ro"), MsFlags::MS_RDONLY, "");
        assert_eq!(run(&closed, &planting("s")), Err(PlantFault::Write(Errno(30))));

        let full = mount("tmpfs", lab.join("full"), MsFlags::empty(), "size=8k");
        assert!(std::fs::write(full.join("data"), [1; 65536]).is_err());
        assert_eq!(run(&full, &planting("s")), Err(PlantFault::Write(Errno(28))));
        assert_eq!(names(&full), ["data"]);

        let place = mount_tmpfs(lab.join("a"));
        assert_eq!(run(&place, &planting("no/s")), Err(PlantFault::NoDirectory));
        std::os::unix::fs::symlink("/tmp", place.join("way")).unwrap();
        assert_eq!(run(&place, &planting("way/s")), Err(PlantFault::Unusable));
        std::os::unix::fs::symlink("nowhere", place.join("link")).unwrap();
        assert_eq!(run(&place, &planting("link")), Err(PlantFault::Unusable));
        mount_tmpfs(place.join("other"));
        assert_eq!(run(&place, &planting("other/s")), Err(PlantFault::Unusable));
        assert!(names(&place.join("other")).is_empty());
    });
}

#[test]
fn what_does_not_come_back_is_removed_and_nothing_else_is() {
    in_private_namespace(|lab| {
        let place = mount_tmpfs(lab.join("a"));
        let root = OwnedFd::from(std::fs::File::open(&place).unwrap());
        let planting = planting("s");
        let readings = [
            (Err(rustix::io::Errno::IO), Some(Errno(5))),
            (Ok(Reading::Content(b"other".to_vec())), None),
            (Ok(Reading::Absent), None),
        ];
        for (reading, errno) in readings {
            let inode = make(&root, &planting).unwrap();
            let fault = Err(PlantFault::ReadBack { errno, is_removed: true });
            assert_eq!(confirm(&root, &planting, inode, reading), fault);
            assert!(names(&place).is_empty());
        }
        // Another has put its own in the place meanwhile.
        let inode = make(&root, &planting).unwrap();
        std::fs::write(place.join("theirs"), "theirs").unwrap();
        std::fs::rename(place.join("theirs"), place.join("s")).unwrap();
        let fault = Err(PlantFault::ReadBack { errno: None, is_removed: true });
        assert_eq!(
            confirm(&root, &planting, inode, Ok(Reading::Unusable)),
            fault,
            "the one that was made is gone"
        );
        assert_eq!(std::fs::read(place.join("s")).unwrap(), b"theirs");
    });
}

#[test]
fn a_sentinel_outlives_its_mount() {
    in_private_namespace(|lab| {
        let Some((image, place)) = mount_image("ext4", lab, "noatime") else { return };
        assert!(matches!(run(&place, &planting("s")), Ok(Planted::Written(_))));
        // A child that another test is starting may hold a copy of a descriptor for a moment.
        while nix::mount::umount(&place) == Err(nix::errno::Errno::EBUSY) {
            std::thread::yield_now();
        }
        let mut command = std::process::Command::new("/usr/bin/mount");
        let status = command.args(["-o", "loop"]).args([&image, &place]).status();
        assert!(status.is_ok_and(|status| status.success()));
        assert_eq!(std::fs::read(place.join("s")).unwrap(), b"v-1\n");
    });
}

#[test]
fn as_a_user_only_that_users_rights_count() {
    in_private_namespace(|lab| {
        let place = mount("tmpfs", lab.join("a"), MsFlags::empty(), "mode=0755");
        let user = Some(ProbeUser { uid: 4711, gid: 4711, groups: Vec::new() });
        let request = Request { user: user.clone(), ..request_for(&place) };
        let result = plant_at(&request, &planting("s"), &mut |_| ());
        assert_eq!(result, Err(PlantFault::Write(Errno(13))));
        let own = mount("tmpfs", lab.join("b"), MsFlags::empty(), "mode=0700,uid=4711");
        let request = Request { user, ..request_for(&own) };
        assert!(matches!(plant_at(&request, &planting("s"), &mut |_| ()), Ok(Planted::Written(_))));
        let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(own.join("s")).unwrap());
        assert_eq!(owner, 4711);
    });
}
