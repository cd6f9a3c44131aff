//! The devices of a btrfs, whose own number is anonymous, and whether it keeps data twice: what the kernel says of it in
//! sysfs.
//!
//! kernel: `/sys/fs/btrfs/UUID/devices` and `…/allocation`, fs/btrfs/sysfs.c, since 3.14.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use agent_core::id::SuperblockId;
use rustix::io::Errno;

use super::open_root;
use crate::sys;

/// Profiles of which one device that is gone takes data with it.
const KEPT_ONCE: [&str; 3] = ["dup", "raid0", "single"];

/// Which btrfs it is; `None` where that cannot be told.
pub(super) fn uuid_of(root: &OwnedFd) -> Option<String> {
    open_root(root).ok().and_then(|directory| sys::btrfs::uuid(directory.as_fd()).ok())
}

fn folder(uuid: &str) -> PathBuf {
    Path::new("/sys/fs/btrfs").join(uuid)
}

/// Its devices; `ENODEV` for one that was pulled out. Empty when they cannot be told.
pub(super) fn devices(uuid: &str) -> Vec<Result<SuperblockId, Errno>> {
    devices_in(&folder(uuid).join("devices"))
}

fn devices_in(list: &Path) -> Vec<Result<SuperblockId, Errno>> {
    let Ok(entries) = std::fs::read_dir(list) else { return Vec::new() };
    let number = |text: &str| {
        let (major, minor) = text.trim().split_once(':')?;
        Some(SuperblockId { major: major.parse().ok()?, minor: minor.parse().ok()? })
    };
    entries
        .filter_map(|entry| {
            // A link to a device that the kernel no longer knows leads nowhere.
            let path = entry.ok()?.path();
            match std::fs::read_to_string(path.join("dev")) {
                Ok(text) => number(&text).map(Ok),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Err(Errno::NODEV)),
                Err(_) => None,
            }
        })
        .collect()
}

/// Whether all its data is on more than one device. Where that cannot be told, nobody shall be alarmed.
pub(super) fn has_copies(uuid: &str) -> bool {
    has_copies_in(&folder(uuid).join("allocation"))
}

fn has_copies_in(allocation: &Path) -> bool {
    // A profile that nothing is left of keeps its folder.
    let is_used = |kind: &str, profile: &str| {
        let total = std::fs::read_to_string(allocation.join(kind).join(profile).join("total_bytes"));
        total.is_ok_and(|total| total.trim() != "0")
    };
    !["data", "mixed"].iter().any(|kind| KEPT_ONCE.iter().any(|profile| is_used(kind, profile)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_was_pulled_out_is_told_by_a_link_that_leads_nowhere() {
        let list = tempfile::tempdir().unwrap();
        std::fs::create_dir(list.path().join("sda")).unwrap();
        std::fs::write(list.path().join("sda/dev"), "8:1\n").unwrap();
        assert_eq!(devices_in(list.path()), [Ok(SuperblockId { major: 8, minor: 1 })]);
        std::os::unix::fs::symlink("gone", list.path().join("sdb")).unwrap();
        let devices = devices_in(list.path());
        assert!(devices.len() == 2 && devices.contains(&Err(Errno::NODEV)), "{devices:?}");
        assert!(devices_in(&list.path().join("absent")).is_empty());
    }

    #[test]
    fn data_is_kept_twice_unless_some_of_it_is_of_a_profile_that_keeps_it_once() {
        let allocation = tempfile::tempdir().unwrap();
        let holds = |profile: &str, bytes: &str| {
            let folder = allocation.path().join("data").join(profile);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("total_bytes"), bytes).unwrap();
        };
        assert!(has_copies_in(allocation.path()));
        holds("raid1", "1073741824\n");
        holds("single", "0\n");
        assert!(has_copies_in(allocation.path()), "nothing is left of it");
        holds("single", "8388608\n");
        assert!(!has_copies_in(allocation.path()));
    }
}
