//! Reading one block of the device under a file system, past the cache.
//!
//! For block-backed volumes without data to read otherwise. The device is found by its number, never by the
//! source that the mount table shows (which may be a name that now belongs to another disk). Where there is
//! no way to look (no node in this `/dev`, no permission) the step proves nothing and reports nothing.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use agent_core::id::SuperblockId;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, major, minor, open};
use rustix::io::Errno;

use super::{number, open_root};
use crate::probe::protocol::Request;
use crate::sys;
use crate::sys::device_name::device_name;
use crate::sys::direct_read::{BLOCK, Buffer};

/// Where the kernel lists every block device by number.
const BY_NUMBER: &str = "/sys/dev/block";

/// Flash devices: their file systems carry the number of a block device that need not exist.
///
/// kernel: `MTD_BLOCK_MAJOR`, include/uapi/linux/major.h.
const MTD_BLOCK_MAJOR: u32 = 31;

/// Whether a block could be read; `false` when there was no way to look.
pub(super) fn read(root: &OwnedFd, request: &Request) -> Result<bool, agent_core::errno::Errno> {
    if request.fstype == "btrfs" {
        return read_any(&btrfs_devices(root)).map_err(number);
    }
    if request.superblock.major == 0 {
        return Ok(false);
    }
    if is_removed(request.superblock, Path::new(BY_NUMBER)) {
        return Err(number(Errno::NODEV));
    }
    read_any(&[request.superblock]).map_err(number)
}

/// Whether the kernel no longer knows the device that a mounted file system sits on: it was pulled out.
fn is_removed(device: SuperblockId, by_number: &Path) -> bool {
    device.major != MTD_BLOCK_MAJOR
        && open(by_number, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).is_ok()
        && open(by_number.join(device.to_string()), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).err()
            == Some(Errno::NOENT)
}

/// One device that answers is enough: a mirror with one dead disk still serves.
fn read_any(devices: &[SuperblockId]) -> Result<bool, Errno> {
    let mut failure = None;
    for device in devices {
        match read_one(*device) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(errno) => failure = failure.or(Some(errno)),
        }
    }
    failure.map_or(Ok(false), Err)
}

fn read_one(device: SuperblockId) -> Result<bool, Errno> {
    for node in nodes(device) {
        match open_node(&node, device) {
            Ok(Some(file)) => return enough(Buffer::default().read_block(file)?),
            Ok(None) | Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(false)
}

/// A device that is gone may leave its node behind, with nothing in it. One that is smaller than a block proves
/// nothing.
///
/// kernel: `nbd_clear_sock`, drivers/block/nbd.c, and `loop_set_capacity`, drivers/block/loop.c, set the size to zero.
fn enough(count: usize) -> Result<bool, Errno> {
    if count == 0 { Err(Errno::NXIO) } else { Ok(count == BLOCK) }
}

/// The names under which the device may be found: what udev links, and what the kernel itself calls it.
fn nodes(device: SuperblockId) -> Vec<PathBuf> {
    let mut nodes = vec![Path::new("/dev/block").join(device.to_string())];
    nodes.extend(device_name(Path::new(BY_NUMBER), device).map(|name| Path::new("/dev").join(name)));
    nodes
}

/// Looks before it opens: only a block device with the right number is opened.
fn open_node(node: &Path, device: SuperblockId) -> Result<Option<OwnedFd>, Errno> {
    let is_it = |facts: Stat| {
        FileType::from_raw_mode(facts.st_mode) == FileType::BlockDevice
            && (major(facts.st_rdev), minor(facts.st_rdev)) == (device.major, device.minor)
    };
    if !is_it(fstat(open(node, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)?) {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = open(node, flags, Mode::empty())?;
    Ok(is_it(fstat(&file)?).then_some(file))
}

/// The devices of a btrfs, whose own number is anonymous. Empty when they cannot be told.
///
/// kernel: `/sys/fs/btrfs/UUID/devices`, fs/btrfs/sysfs.c, since 3.14.
fn btrfs_devices(root: &OwnedFd) -> Vec<SuperblockId> {
    let uuid = open_root(root).ok().and_then(|directory| sys::btrfs::uuid(directory.as_fd()).ok());
    let Some(uuid) = uuid else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(Path::new("/sys/fs/btrfs").join(uuid).join("devices")) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("dev")).ok())
        .filter_map(|text| {
            let (major, minor) = text.trim().split_once(':')?;
            Some(SuperblockId { major: major.parse().ok()?, minor: minor.parse().ok()? })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_removed_only_when_the_list_is_there_and_lacks_it() {
        let list = tempfile::tempdir().unwrap();
        std::fs::create_dir(list.path().join("8:1")).unwrap();
        let device = |major, minor| SuperblockId { major, minor };
        assert!(!is_removed(device(8, 1), list.path()));
        assert!(is_removed(device(8, 2), list.path()));
        assert!(!is_removed(device(MTD_BLOCK_MAJOR, 2), list.path()));
        assert!(!is_removed(device(8, 2), &list.path().join("absent")));
    }

    #[test]
    fn a_node_that_is_no_block_device_is_not_opened() {
        let number = SuperblockId { major: 1, minor: 3 };
        assert!(matches!(open_node(Path::new("/dev/null"), number), Ok(None)));
        assert_eq!(read_any(&[SuperblockId { major: 4095, minor: 77 }]), Ok(false));
    }
}
