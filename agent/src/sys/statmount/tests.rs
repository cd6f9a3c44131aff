//! The calls against the kernel that runs this, by comparison with its mountinfo.

use super::*;
use crate::sys::mountinfo::parse_table;

#[test]
fn what_the_calls_tell_is_what_mountinfo_says() {
    let mut calls = MountCalls::own();
    let Ok(ids) = calls.list() else {
        eprintln!("skipped: no listmount");
        return;
    };
    let listed = parse_table(&std::fs::read("/proc/thread-self/mountinfo").unwrap()).mounts;
    let mounts: Vec<_> = ids.iter().filter_map(|id| calls.mount(*id).ok().flatten()).collect();
    if mounts.iter().all(|mount| mount.source.is_empty()) {
        eprintln!("skipped: statmount does not tell all fields");
        return;
    }
    let mut compared = 0;
    for id in ids {
        let Ok(Some(mut mount)) = calls.mount(id) else { continue };
        let Some(line) = listed.iter().find(|line| line.id == mount.id) else { continue };
        assert_eq!(mount.unique.take(), Some(id));
        assert_eq!(&mount, line);
        compared += 1;
    }
    assert!(compared > 0);
}

#[test]
fn a_mount_that_never_was_is_absent_and_no_error() {
    let mut calls = MountCalls::own();
    if calls.list().is_ok() {
        assert_eq!(calls.mount(u64::MAX - 1), Ok(None));
    }
}

#[test]
fn a_foreign_namespace_is_asked_by_its_file() {
    let Ok(own) = MountCalls::own().list() else { return };
    let calls = match MountCalls::of(Path::new("/proc/thread-self/ns/mnt")) {
        Ok(calls) => calls,
        Err(error) => {
            eprintln!("skipped: {error}");
            return;
        }
    };
    assert_eq!(calls.list(), Ok(own));
}

#[test]
fn bytes_that_cannot_be_right_are_an_error() {
    for length in [0, 8, 100, 511] {
        assert!(decode::mount(&vec![0xff; length]).is_err(), "{length}");
    }
    let mut bytes = vec![0_u8; 600];
    assert_eq!(decode::mount(&bytes).unwrap_err().to_string(), "the superblock");
    bytes[8..16].copy_from_slice(&0x2b_u64.to_ne_bytes());
    // All that every mount has, but no mount point: it cannot be reached.
    assert_eq!(decode::mount(&bytes), Ok(None));
    bytes[8..16].copy_from_slice(&0x3b_u64.to_ne_bytes());
    assert!(decode::mount(&bytes).is_ok_and(|mount| mount.is_some()));
    // A string that begins beyond the end.
    bytes[36..40].copy_from_slice(&u32::MAX.to_ne_bytes());
    assert!(decode::mount(&bytes).is_err());
    // A kernel that says what it supports, and does not know of sources.
    bytes[36..40].fill(0);
    bytes[8..16].copy_from_slice(&0x103b_u64.to_ne_bytes());
    bytes[144..152].copy_from_slice(&0x180_u64.to_ne_bytes());
    assert_eq!(decode::mount(&bytes).unwrap_err().to_string(), "the source");
}
