//! The steps against real mounts that really break.

use std::path::Path;

use agent_core::errno::Errno;
use agent_core::id::{MountId, SuperblockId};
use agent_core::observation::{NotRun, ProbeOk, ProbeResult, ProbeStep};
use agent_core::path::BytePath;
use agent_core::volume::{ProbeUser, Sentinel};
use nix::mount::MsFlags;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::*;
use crate::probe::lab::{
    HungFuse, in_private_namespace, mount, mount_image, mount_image_with, mount_tmpfs, request_for,
};

const EIO: Errno = Errno(5);
const EACCES: Errno = Errno(13);
const ECONNABORTED: Errno = Errno(103);
const ENOTCONN: Errno = Errno(107);
const ENOSPC: Errno = Errno(28);
const ENXIO: Errno = Errno(6);
const EROFS: Errno = Errno(30);

fn run(request: &Request) -> (ProbeResult, Vec<ProbeStep>) {
    let mut steps = Vec::new();
    let result = perform(request, &mut |step| steps.push(step));
    (result, steps)
}

fn result(request: &Request) -> ProbeResult {
    run(request).0
}

fn ok(request: &Request) -> ProbeOk {
    match result(request) {
        ProbeResult::Ok(ok) => ok,
        other => panic!("{other:?}"),
    }
}

fn sentinel(path: &str, content: Option<&str>) -> Option<Sentinel> {
    Some(Sentinel { path: BytePath::from(path), content: content.map(|text| text.as_bytes().to_vec()) })
}

fn drop_to_zero(image: &Path) {
    std::fs::File::options().write(true).open(image).unwrap().set_len(0).unwrap();
}

#[test]
fn a_good_mount_answers_with_its_root_and_its_data() {
    in_private_namespace(|lab| {
        let place = mount_tmpfs(lab.join("a"));
        std::fs::write(place.join(DEFAULT_SENTINEL), "here").unwrap();
        let (result, steps) = run(&request_for(&place));
        let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&place).unwrap());
        let expected =
            ProbeOk { root_inode: inode, read_data: true, wrote_data: false, ..ProbeOk::default() };
        assert_eq!(result, ProbeResult::Ok(expected));
        assert_eq!(steps, [ProbeStep::Identity, ProbeStep::Root, ProbeStep::Sentinel]);
    });
}

#[test]
fn an_empty_root_is_healthy_and_no_data_is_claimed() {
    in_private_namespace(|lab| {
        let place = mount_tmpfs(lab.join("a"));
        assert!(!ok(&request_for(&place)).read_data);
        std::fs::write(place.join(DEFAULT_SENTINEL), "").unwrap();
        assert!(!ok(&request_for(&place)).read_data);
    });
}

#[test]
fn what_is_not_mounted_is_the_wrong_mount_whatever_the_directory_holds() {
    in_private_namespace(|lab| {
        let outer = mount_tmpfs(lab.join("a"));
        let place = mount_tmpfs(outer.join("b"));
        let request = request_for(&place);
        nix::mount::umount(&place).unwrap();
        std::fs::write(place.join("data"), "x").unwrap();
        let found = request_for(&outer).superblock;
        assert_eq!(result(&request), ProbeResult::WrongMount { found });
        assert_eq!(run(&request).1, [ProbeStep::Identity]);
    });
}

#[test]
fn a_mount_over_the_expected_one_is_the_wrong_mount() {
    in_private_namespace(|lab| {
        let place = mount_tmpfs(lab.join("a"));
        let request = request_for(&place);
        mount_tmpfs(place.clone());
        let found = request_for(&place).superblock;
        assert_ne!(found, request.superblock);
        assert_eq!(result(&request), ProbeResult::WrongMount { found });
    });
}

#[test]
fn a_path_that_is_not_there_is_no_evidence() {
    let request = Request {
        mountpoint: BytePath::from("/proc/no/such/place"),
        superblock: SuperblockId { major: 0, minor: 1 },
        mount_id: MountId(1),
        root: BytePath::from("/"),
        fstype: String::from("nfs4"),
        sentinel: None,
        write: false,
        user: None,
        is_automount: false,
        planting: None,
    };
    assert_eq!(result(&request), ProbeResult::NotRun(NotRun::Unreachable));
    let long = BytePath::new(vec![b'a'; 9000]);
    assert_eq!(result(&Request { mountpoint: long, ..request }), ProbeResult::NotRun(NotRun::Unreachable));
}

#[test]
fn the_content_counts_where_it_is_configured() {
    in_private_namespace(|lab| {
        let place = mount_tmpfs(lab.join("a"));
        std::fs::create_dir(place.join("d")).unwrap();
        std::fs::write(place.join("d/s"), "models-7f3a\n").unwrap();
        let with = |sentinel| result(&Request { sentinel, ..request_for(&place) });
        assert!(matches!(with(sentinel("d/s", None)), ProbeResult::Ok(_)));
        assert!(matches!(with(sentinel("d/s", Some("models-7f3a"))), ProbeResult::Ok(_)));
        assert!(matches!(with(sentinel("d/s", Some("models-7f3a\n"))), ProbeResult::Ok(_)));
        assert_eq!(with(sentinel("d/s", Some("models"))), ProbeResult::SentinelDiffers);
        assert_eq!(with(sentinel("d/t", None)), ProbeResult::SentinelMissing);
        assert_eq!(with(sentinel("d/s/t", None)), ProbeResult::SentinelMissing);
    });
}

#[test]
fn only_a_configured_sentinel_can_be_unusable() {
    in_private_namespace(|lab| {
        let place = mount_tmpfs(lab.join("a"));
        std::fs::create_dir(place.join(DEFAULT_SENTINEL)).unwrap();
        let request = request_for(&place);
        assert!(!ok(&request).read_data);
        let request = Request { sentinel: sentinel(DEFAULT_SENTINEL, None), ..request };
        assert_eq!(result(&request), ProbeResult::SentinelUnusable);
    });
}

#[test]
fn a_file_of_the_default_name_that_may_not_be_read_is_no_fault() {
    in_private_namespace(|lab| {
        let place = mount("tmpfs", lab.join("a"), MsFlags::empty(), "mode=0755");
        std::fs::write(place.join(DEFAULT_SENTINEL), "private").unwrap();
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(place.join(DEFAULT_SENTINEL), closed).unwrap();
        let user = Some(ProbeUser { uid: 4711, gid: 4711, groups: Vec::new() });
        let request = Request { user, ..request_for(&place) };
        assert!(!ok(&request).read_data);
        let wanted = Request { sentinel: sentinel(DEFAULT_SENTINEL, None), ..request };
        let refused = ProbeResult::Failed { step: ProbeStep::Sentinel, errno: EACCES };
        assert_eq!(result(&wanted), refused, "somebody counts on this one");
    });
}

#[test]
fn a_missing_sentinel_does_not_hide_a_dead_device() {
    in_private_namespace(|lab| {
        let Some((image, place)) = mount_image("ext4", lab, "noatime") else { return };
        let request = Request { sentinel: sentinel("gone", None), ..request_for(&place) };
        assert_eq!(result(&request), ProbeResult::SentinelMissing);
        drop_to_zero(&image);
        assert_eq!(result(&request), ProbeResult::Failed { step: ProbeStep::Device, errno: EIO });
    });
}

#[test]
fn a_file_can_be_a_mount_point() {
    in_private_namespace(|lab| {
        let place = mount_tmpfs(lab.join("a"));
        let (file, target) = (place.join("f"), lab.join("target"));
        std::fs::write(&file, "x").unwrap();
        std::fs::write(&target, "").unwrap();
        nix::mount::mount(Some(&file), &target, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        let request = Request { write: true, ..request_for(&target) };
        let ok = ok(&request);
        assert!(!ok.read_data && !ok.wrote_data);
        let request = Request { sentinel: sentinel("s", None), ..request };
        assert_eq!(result(&request), ProbeResult::SentinelUnusable);
    });
}

#[test]
fn a_cached_sentinel_on_a_lost_device_fails_in_the_first_probe() {
    for fstype in ["ext4", "xfs"] {
        in_private_namespace(|lab| {
            let Some((image, place)) = mount_image(fstype, lab, "noatime") else { return };
            let path = place.join(DEFAULT_SENTINEL);
            std::fs::write(&path, "here").unwrap();
            rustix::fs::sync();
            let request = request_for(&place);
            assert!(ok(&request).read_data);
            std::fs::read(&path).unwrap();

            drop_to_zero(&image);
            assert_eq!(std::fs::read(&path).unwrap(), b"here", "the cache no longer hides the loss");
            assert_eq!(result(&request), ProbeResult::Failed { step: ProbeStep::Sentinel, errno: EIO });
        });
    }
}

#[test]
fn without_a_sentinel_the_device_is_read() {
    for fstype in ["ext4", "xfs"] {
        in_private_namespace(|lab| {
            let Some((image, place)) = mount_image(fstype, lab, "noatime") else { return };
            let request = request_for(&place);
            let (before, steps) = run(&request);
            assert!(
                matches!(before, ProbeResult::Ok(ProbeOk { read_data: false, read_device: true, .. })),
                "{before:?}"
            );
            assert_eq!(steps.last(), Some(&ProbeStep::Device));
            drop_to_zero(&image);
            assert_eq!(result(&request), ProbeResult::Failed { step: ProbeStep::Device, errno: EIO });
        });
    }
}

#[test]
fn the_device_is_read_although_the_sentinel_lies_in_cached_metadata() {
    let inline: &[&str] = &["-O", "inline_data", "-I", "256"];
    for (fstype, arguments) in [("btrfs", &[][..]), ("ext4", inline)] {
        in_private_namespace(|lab| {
            let Some((image, place)) = mount_image_with(fstype, lab, "noatime", arguments) else { return };
            std::fs::write(place.join(DEFAULT_SENTINEL), "here").unwrap();
            rustix::fs::sync();
            let request = request_for(&place);
            let (before, steps) = run(&request);
            assert!(
                matches!(before, ProbeResult::Ok(ProbeOk { read_data: true, read_device: true, .. })),
                "{fstype} {before:?}"
            );
            assert_eq!(steps.last(), Some(&ProbeStep::Device));
            drop_to_zero(&image);
            let dead = ProbeResult::Failed { step: ProbeStep::Device, errno: EIO };
            assert_eq!(result(&request), dead, "{fstype}");
        });
    }
}

#[test]
fn an_fsid_is_told_only_where_it_identifies_the_file_system() {
    for (fstype, has_one) in [("ext4", true), ("btrfs", true), ("xfs", false)] {
        in_private_namespace(|lab| {
            let Some((_, place)) = mount_image(fstype, lab, "noatime") else { return };
            let output =
                std::process::Command::new("/usr/bin/stat").args(["-f", "-c", "%i"]).arg(&place).output();
            let printed = String::from_utf8(output.unwrap().stdout).unwrap();
            let expected = has_one.then(|| format!("{:0>16}", printed.trim()));
            assert_eq!(ok(&request_for(&place)).fsid, expected, "{fstype}");
        });
    }
}

#[test]
fn the_uuid_of_a_file_system_on_a_device_is_told() {
    const UUID: &[&str] = &["-U", "01234567-89ab-cdef-0011-223344556677"];
    // Older kernels tell it for btrfs alone.
    for (fstype, arguments, is_old) in [("ext4", UUID, false), ("btrfs", &[], true)] {
        in_private_namespace(|lab| {
            let Some((image, place)) = mount_image_with(fstype, lab, "noatime", arguments) else { return };
            let output = std::process::Command::new("/usr/sbin/blkid")
                .args(["-p", "-o", "value", "-s", "UUID"])
                .arg(&image)
                .output();
            let printed = String::from_utf8(output.unwrap().stdout).unwrap();
            let printed = printed.trim();
            assert!(arguments.is_empty() || arguments.contains(&printed), "{printed}");
            let expected = (is_old || has_fs_uuid()).then_some(printed);
            assert_eq!(ok(&request_for(&place)).uuid.as_deref(), expected, "{fstype}");
            let request = Request { fstype: String::from("fuse.x"), ..request_for(&place) };
            assert_eq!(ok(&request).uuid, None);
        });
    }
}

/// kernel: `FS_IOC_GETFSUUID`, since 6.9.
fn has_fs_uuid() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(9))
}

#[test]
fn a_write_probe_writes_and_leaves_nothing() {
    in_private_namespace(|lab| {
        let place = mount_tmpfs(lab.join("a"));
        assert!(ok(&Request { write: true, ..request_for(&place) }).wrote_data);
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
    });
}

#[test]
fn a_full_volume_and_a_read_only_one_say_so_in_the_write_step() {
    in_private_namespace(|lab| {
        let full = mount("tmpfs", lab.join("a"), MsFlags::empty(), "size=8k");
        let filled = std::fs::write(full.join("data"), [1; 65536]);
        assert_eq!(filled.unwrap_err().raw_os_error(), Some(28));
        let request = Request { write: true, ..request_for(&full) };
        let ProbeResult::Ok(read) = result(&Request { write: false, ..request.clone() }) else { panic!() };
        assert_eq!(result(&request), ProbeResult::WriteFailed { errno: ENOSPC, read });
        assert_eq!(std::fs::read_dir(&full).unwrap().count(), 1);

        let closed = mount("tmpfs", lab.join("b"), MsFlags::MS_RDONLY, "");
        let request = Request { write: true, ..request_for(&closed) };
        let ProbeResult::Ok(read) = result(&Request { write: false, ..request.clone() }) else { panic!() };
        assert_eq!(result(&request), ProbeResult::WriteFailed { errno: EROFS, read });
    });
}

#[test]
fn what_root_may_not_see_is_seen_as_the_configured_user() {
    in_private_namespace(|lab| {
        let place = mount("tmpfs", lab.join("a"), MsFlags::empty(), "mode=0700,uid=4711,gid=815");
        std::fs::write(place.join("s"), "here").unwrap();
        let own = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/thread-self").unwrap());
        let looked_as = |uid, gid, groups: &[u32]| {
            let user = Some(ProbeUser { uid, gid, groups: groups.to_vec() });
            let sentinel = sentinel("s", Some("here"));
            let found = result(&Request { user, sentinel, write: true, ..request_for(&place) });
            let now = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/thread-self").unwrap());
            assert_eq!((own, now), (0, 0), "the worker did not come back");
            found
        };
        let ok = looked_as(4711, 1, &[]);
        assert!(matches!(&ok, ProbeResult::Ok(ok) if ok.read_data && ok.wrote_data), "{ok:?}");
        let refused = ProbeResult::Failed { step: ProbeStep::Sentinel, errno: EACCES };
        assert_eq!(looked_as(4712, 815, &[]), refused);
        // By its groups, main or further ones, and only by those.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o750);
        std::fs::set_permissions(&place, open).unwrap();
        let cannot_write = |found: &ProbeResult| matches!(found, ProbeResult::WriteFailed { errno: EACCES, read } if read.read_data);
        assert!(cannot_write(&looked_as(4712, 815, &[])));
        assert!(cannot_write(&looked_as(4712, 1, &[3, 815])));
        assert_eq!(looked_as(4712, 1, &[3]), refused);
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 1);
    });
}

#[test]
fn the_way_to_the_volume_and_its_device_are_the_workers_own_business() {
    in_private_namespace(|lab| {
        let Some((_, place)) = mount_image("ext4", lab, "noatime") else { return };
        std::fs::set_permissions(lab, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let user = Some(ProbeUser { uid: 4711, gid: 4711, groups: Vec::new() });
        let ok = ok(&Request { user, ..request_for(&place) });
        assert!(ok.read_device && (ok.uuid.is_some() || !has_fs_uuid()), "{ok:?}");
    });
}

#[test]
fn a_device_that_was_emptied_under_its_file_system_is_gone() {
    in_private_namespace(|lab| {
        let Some((image, place)) = mount_image("ext4", lab, "noatime") else { return };
        let request = request_for(&place);
        assert!(ok(&request).read_device);
        drop_to_zero(&image);
        let device = format!("/dev/loop{}", request.superblock.minor);
        let resized = std::process::Command::new("/usr/sbin/losetup").args(["-c", &device]).status();
        assert!(resized.is_ok_and(|status| status.success()));
        assert_eq!(result(&request), ProbeResult::Failed { step: ProbeStep::Device, errno: ENXIO });
    });
}

#[test]
fn a_key_of_an_indirect_map_that_has_expired_is_not_mounted_again() {
    in_private_namespace(|lab| {
        let (packets, sender) = std::io::pipe().unwrap();
        let data =
            format!("fd={},pgrp=1,minproto=5,maxproto=5,indirect", std::os::fd::AsRawFd::as_raw_fd(&sender));
        let place = mount("autofs", lab.join("net"), MsFlags::empty(), &data);
        let trap = request_for(&place);
        let expired = Request {
            mountpoint: BytePath::from(place.join("key").to_str().unwrap()),
            mount_id: MountId(trap.mount_id.0 + 1),
            superblock: SuperblockId { major: 0, minor: 9999 },
            fstype: String::from("nfs4"),
            is_automount: true,
            ..trap.clone()
        };
        assert_eq!(result(&expired), ProbeResult::NotRun(NotRun::Unreachable));
        let mut ready = [PollFd::new(packets.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut ready, PollTimeout::ZERO), Ok(0), "the trap was sprung");
    });
}

#[test]
fn an_idle_automount_is_not_triggered() {
    in_private_namespace(|lab| {
        let (packets, sender) = std::io::pipe().unwrap();
        let data =
            format!("fd={},pgrp=1,minproto=5,maxproto=5,direct", std::os::fd::AsRawFd::as_raw_fd(&sender));
        let place = mount("autofs", lab.join("a"), MsFlags::empty(), &data);
        let request = request_for(&place);
        for _ in 0..100 {
            ok(&request);
            // The automount expired after the order was made: its id is another than the trap's.
            let stale = Request {
                mount_id: MountId(request.mount_id.0 + 1),
                fstype: String::from("nfs4"),
                write: true,
                ..request.clone()
            };
            assert_eq!(result(&stale), ProbeResult::WrongMount { found: request.superblock });
        }
        let mut ready = [PollFd::new(packets.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut ready, PollTimeout::ZERO), Ok(0), "the trap was sprung");
    });
}

#[test]
fn a_dead_fuse_daemon_is_found_by_the_root_and_not_by_the_identity() {
    in_private_namespace(|lab| {
        let fuse = HungFuse::mount(lab.join("a"));
        let request = request_for(&fuse.mountpoint);
        drop(fuse);
        let (result, steps) = run(&request);
        // The second when the request was on its way just as the connection ended.
        let dead = [ENOTCONN, ECONNABORTED].map(|errno| ProbeResult::Failed { step: ProbeStep::Root, errno });
        assert!(dead.contains(&result), "{result:?}");
        assert_eq!(steps, [ProbeStep::Identity, ProbeStep::Root]);
    });
}

#[test]
fn a_private_fuse_mount_is_the_right_mount_and_refuses_the_look() {
    in_private_namespace(|lab| {
        let fuse = HungFuse::mount_of(1000, lab.join("a"));
        let (result, steps) = run(&request_for(&fuse.mountpoint));
        assert_eq!(result, ProbeResult::Failed { step: ProbeStep::Root, errno: EACCES });
        assert_eq!(steps, [ProbeStep::Identity, ProbeStep::Root]);
    });
}
