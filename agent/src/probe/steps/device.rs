//! Reading one block of the device under a file system, past the cache.
//!
//! For block-backed volumes: what a file system answers may come from its caches. The device is found by its
//! number, never by the source that the mount table shows (which may be a name that now belongs to another disk).
//! Where there is no way to look (no node in this `/dev`, no permission) the step proves nothing and reports nothing.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use agent_core::id::SuperblockId;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, major, minor, open};
use rustix::io::Errno;

use super::{btrfs, number};
use crate::probe::protocol::Request;
use crate::sys::device_name::device_name;
use crate::sys::direct_read::{BLOCK, Buffer};

/// Where the kernel lists every block device by number.
const BY_NUMBER: &str = "/sys/dev/block";

/// Flash devices: their file systems carry the number of a block device that need not exist.
///
/// kernel: `MTD_BLOCK_MAJOR`, include/uapi/linux/major.h.
const MTD_BLOCK_MAJOR: u32 = 31;

/// What the devices under a file system say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Storage {
    /// There was no way to look.
    Unseen,
    /// A block could be read of each that could be looked at.
    Whole,
    /// One of several does not answer, and the others have copies of what is on it.
    Short,
}

/// Reads a block of each device.
pub(super) fn read(root: &OwnedFd, request: &Request) -> Result<Storage, agent_core::errno::Errno> {
    if request.fstype == "btrfs" {
        let Some(uuid) = btrfs::uuid_of(root) else { return Ok(Storage::Unseen) };
        let answers: Vec<_> = btrfs::devices(&uuid).into_iter().map(|device| read_one(device?)).collect();
        return together(&answers, || btrfs::has_copies(&uuid)).map_err(number);
    }
    if request.superblock.major == 0 {
        return Ok(Storage::Unseen);
    }
    if is_removed(request.superblock, Path::new(BY_NUMBER)) {
        return Err(number(Errno::NODEV));
    }
    together(&[read_one(request.superblock)], || false).map_err(number)
}

/// A mirror with one dead disk still serves. Where nothing is kept twice, what was on that disk is gone.
fn together(answers: &[Result<bool, Errno>], has_copies: impl FnOnce() -> bool) -> Result<Storage, Errno> {
    let is_read = answers.contains(&Ok(true));
    match answers.iter().find_map(|answer| answer.err()) {
        Some(errno) if !is_read || !has_copies() => Err(errno),
        Some(_) => Ok(Storage::Short),
        None if is_read => Ok(Storage::Whole),
        None => Ok(Storage::Unseen),
    }
}

/// Whether the kernel no longer knows the device that a mounted file system sits on: it was pulled out.
fn is_removed(device: SuperblockId, by_number: &Path) -> bool {
    device.major != MTD_BLOCK_MAJOR
        && open(by_number, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).is_ok()
        && open(by_number.join(device.to_string()), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).err()
            == Some(Errno::NOENT)
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
        assert_eq!(read_one(SuperblockId { major: 4095, minor: 77 }), Ok(false));
    }

    #[test]
    fn a_dead_disk_among_several_is_a_fault_where_nothing_is_kept_twice() {
        let (read, unseen, dead) = (Ok(true), Ok(false), Err(Errno::IO));
        for (answers, copies, expected) in [
            (&[read, read][..], false, Ok(Storage::Whole)),
            (&[read, unseen], false, Ok(Storage::Whole)),
            (&[unseen, unseen], false, Ok(Storage::Unseen)),
            (&[], false, Ok(Storage::Unseen)),
            (&[read, dead], true, Ok(Storage::Short)),
            (&[read, dead], false, Err(Errno::IO)),
            (&[dead, dead], true, Err(Errno::IO)),
            (&[unseen, dead], true, Err(Errno::IO)),
        ] {
            assert_eq!(together(answers, || copies), expected, "{answers:?} {copies}");
        }
    }
}
