//! Hostile sentinels, by both ways of opening.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use agent_core::path::BytePath;
use nix::mount::MsFlags;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use super::*;
use crate::probe::lab::{in_private_namespace, mount_tmpfs};

/// By `openat2` and by what replaces it: both must say the same.
fn read_both(root: &Path, path: &str) -> Result<Reading, Errno> {
    let (root, path) = (File::open(root).unwrap(), BytePath::from(path));
    let result = read_with(root.as_fd(), &path, open_one);
    assert_eq!(result, read_with(root.as_fd(), &path, open_plainly), "{path}");
    result
}

#[test]
fn what_is_no_plain_file_of_the_volume_is_unusable() {
    in_private_namespace(|lab| {
        let place = mount_tmpfs(lab.join("a"));
        let at = |name: &str| place.join(name);
        let node = |name: &str, kind, device| mknod(&at(name), kind, Mode::S_IRUSR, device).unwrap();
        std::fs::write(at("plain"), "x").unwrap();
        std::fs::write(lab.join("outside"), "secret").unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        std::os::unix::fs::symlink("plain", at("link")).unwrap();
        std::os::unix::fs::symlink("/etc", at("way")).unwrap();
        node("fifo", SFlag::S_IFIFO, 0);
        node("character", SFlag::S_IFCHR, makedev(1, 3));
        node("block", SFlag::S_IFBLK, makedev(7, 0));
        std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        std::fs::write(at("covered"), "x").unwrap();
        let bind = MsFlags::MS_BIND;
        nix::mount::mount(Some(&lab.join("outside")), &at("covered"), None::<&str>, bind, None::<&str>)
            .unwrap();
        mount_tmpfs(at("other"));
        std::fs::write(at("other/plain"), "x").unwrap();
        File::create(at("huge")).unwrap().set_len(LONGEST as u64 + 1).unwrap();

        let hostile = [
            "directory",
            "link",
            "way/passwd",
            "fifo",
            "character",
            "block",
            "socket",
            "covered",
            "other/plain",
            "huge",
            "..",
            "../outside",
            "/etc/passwd",
        ];
        for name in hostile {
            assert_eq!(read_both(&place, name), Ok(Reading::Unusable), "{name}");
        }
        assert_eq!(read_both(&place, "plain"), Ok(Reading::Content(b"x".to_vec())));
        assert_eq!(read_both(&place, "nothing"), Ok(Reading::Absent));
        assert_eq!(read_both(&place, "nothing/below"), Ok(Reading::Absent));
    });
}

#[test]
fn every_size_up_to_the_limit_is_read_in_full() {
    in_private_namespace(|lab| {
        let place = mount_tmpfs(lab.join("a"));
        for size in [0, 1, 511, 4095, 4096, 4097, 8192, LONGEST - 1, LONGEST] {
            let content: Vec<u8> = (0..size).map(|index| u8::try_from(index % 251).unwrap()).collect();
            std::fs::write(place.join("s"), &content).unwrap();
            assert_eq!(read_both(&place, "s"), Ok(Reading::Content(content)), "{size}");
        }
    });
}

#[test]
fn a_file_that_somebody_holds_a_lease_on_is_there() {
    let held = |base: BorrowedFd<'_>, name: &[u8], flags: OFlags| {
        if flags.contains(OFlags::PATH) { open_one(base, name, flags) } else { Err(Errno::AGAIN) }
    };
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("s"), "x").unwrap();
    let root = std::fs::File::open(place.path()).unwrap();
    assert_eq!(read_with(root.as_fd(), &BytePath::from("s"), held), Ok(Reading::Held));
    assert_eq!(read_with(root.as_fd(), &BytePath::from("t"), held), Ok(Reading::Absent));
}

#[test]
fn reading_changes_no_time_of_access() {
    in_private_namespace(|lab| {
        let place = lab.join("a");
        std::fs::create_dir(&place).unwrap();
        let strict = MsFlags::MS_STRICTATIME;
        nix::mount::mount(Some("lab"), &place, Some("tmpfs"), strict, None::<&str>).unwrap();
        std::fs::write(place.join("s"), "x").unwrap();
        let before = std::fs::metadata(place.join("s")).unwrap().accessed().unwrap();
        assert_eq!(read_both(&place, "s"), Ok(Reading::Content(b"x".to_vec())));
        assert_eq!(std::fs::metadata(place.join("s")).unwrap().accessed().unwrap(), before);
    });
}

#[test]
fn one_newline_at_the_end_makes_no_difference() {
    assert!(has_content(b"a", b"a"));
    assert!(has_content(b"a\n", b"a"));
    assert!(has_content(b"a\n", b"a\n"));
    assert!(!has_content(b"a\n\n", b"a"));
    assert!(has_content(b"a", b"a\n"));
    assert!(!has_content(b"a", b"a\n\n"));
    assert!(!has_content(b"", b"a"));
    assert!(!has_content(b"ab", b"a"));
}

/// Whether anybody stepped on an autofs trap that the pipe belongs to.
fn is_sprung(packets: &std::io::PipeReader) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    poll(&mut [PollFd::new(packets.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) != Ok(0)
}

#[test]
fn an_automount_trap_on_the_way_is_not_sprung() {
    in_private_namespace(|lab| {
        let place = mount_tmpfs(lab.join("a"));
        let mut pipes = Vec::new();
        for kind in ["direct", "indirect"] {
            let (packets, sender) = std::io::pipe().unwrap();
            let fd = std::os::fd::AsRawFd::as_raw_fd(&sender);
            let data = format!("fd={fd},pgrp=1,minproto=5,maxproto=5,{kind}");
            crate::probe::lab::mount("autofs", place.join(kind), MsFlags::empty(), &data);
            pipes.push((packets, sender));
        }
        for path in ["direct", "direct/s", "indirect", "indirect/key", "indirect/key/s"] {
            assert_eq!(read_both(&place, path), Ok(Reading::Unusable), "{path}");
        }
        assert!(pipes.iter().all(|(packets, _)| !is_sprung(packets)), "a trap was sprung");
    });
}
