//! Calls that look at a path without changing it.
//!
//! May block on a sick file system: only for disposable child processes.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use agent_core::id::{MountId, SuperblockId};
use agent_core::path::BytePath;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, StatxAttributes, StatxFlags, fstatvfs, open, openat,
    readlinkat, statx,
};
use rustix::io::{Errno, Result};

use super::fs_uuid;
use super::mount_table::Proc;

/// A descriptor that refers to the path and pins its mount, without opening anything.
///
/// Does not ask a FUSE file system. NFS is asked only about a root that it knows to be unlinked
/// (`nfs_lookup_verify_inode`, fs/nfs/dir.c: without LOOKUP_OPEN and LOOKUP_REVAL there is no request).
pub fn hold(path: &BytePath) -> Result<OwnedFd> {
    open(path.as_bytes(), OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// The path with its directory resolved as far as it goes: the form that stands in the mount table. The last
/// component is left alone, since it may be a sick mount.
pub fn resolve(proc: &Proc, path: &BytePath) -> Result<BytePath> {
    let bytes = path.as_bytes();
    let bytes = bytes.strip_suffix(b"/").unwrap_or(bytes);
    let slash = bytes.iter().rposition(|byte| *byte == b'/').ok_or(Errno::INVAL)?;
    let (parent, name) = bytes.split_at(slash);
    let name = name.strip_prefix(b"/").unwrap_or(name);
    if name.is_empty() || name == b"." || name == b".." {
        return Err(Errno::INVAL);
    }
    let parent = if parent.is_empty() { b"/".as_slice() } else { parent };
    let parent = open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let link = format!("self/fd/{}", parent.as_raw_fd());
    let parent = readlinkat(proc.directory(), link, Vec::new())?;
    Ok(BytePath::new(parent.into_bytes()).join(name))
}

/// Whether the descriptor refers to the root of a mount.
///
/// kernel: `STATX_ATTR_MOUNT_ROOT`, `vfs_statx_path`, fs/stat.c, since 5.8.
pub fn is_mount_root(place: &OwnedFd) -> Result<bool> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(place, "", flags, StatxFlags::TYPE)?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Whether the descriptor refers to a directory, as far as is known without asking the file system.
#[must_use]
pub fn is_directory(place: &OwnedFd) -> Option<bool> {
    let found = statx(place, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
    Some(FileType::from_raw_mode(u32::from(found.stx_mode)) == FileType::Directory)
}

/// Field 1 of mountinfo for the mount that the descriptor refers to. The mount keeps it as long as the descriptor is
/// open, also when it is in no table any more.
///
/// kernel: `STATX_MNT_ID`, `vfs_statx_path`, fs/stat.c, since 5.8; before that procfs tells it.
pub fn mount_id(proc: &Proc, place: &OwnedFd) -> Result<MountId> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    // An XFS that has shut down refuses even this (`xfs_vn_getattr`, fs/xfs/xfs_iops.c).
    let told = statx(place, "", flags, StatxFlags::MNT_ID).ok();
    let told = told.filter(|told| StatxFlags::from_bits_retain(told.stx_mask).contains(StatxFlags::MNT_ID));
    if let Some(id) = told.and_then(|told| u32::try_from(told.stx_mnt_id).ok()) {
        return Ok(MountId(id));
    }
    let about = proc.read(&format!("self/fdinfo/{}", place.as_raw_fd()))?;
    mount_of(&about).ok_or(Errno::NODATA)
}

/// The mount through which a file was opened, from what procfs says of the descriptor.
///
/// kernel: `seq_show`, fs/proc/fd.c, since 3.15.
#[must_use]
pub fn mount_of(about: &[u8]) -> Option<MountId> {
    let line = about.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"mnt_id:"))?;
    std::str::from_utf8(line).ok()?.trim().parse().ok().map(MountId)
}

/// Asks the file system itself for the attributes of the place, past its caches.
pub fn ask(place: &OwnedFd) -> Result<()> {
    statx(place, "", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS).map(drop)
}

/// `f_fsid`, in both orders of its words: the one of `statvfs`, and the one `stat -f` prints.
pub fn fsid(place: &OwnedFd) -> Result<[String; 2]> {
    let fsid = fstatvfs(place)?.f_fsid;
    Ok([format!("{fsid:016x}"), format!("{:016x}", fsid.rotate_left(32))])
}

/// The UUID of the file system, where the kernel tells it.
pub fn uuid(root: &OwnedFd) -> Result<String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    fs_uuid::uuid(openat(root, ".", flags, Mode::empty())?.as_fd())
}

/// The directory that a mount is about to cover, opened while it can still be reached.
pub fn open_directory(path: &BytePath) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open(path.as_bytes(), flags, Mode::empty())
}

/// How many entries a directory has, counted up to a limit.
pub fn count_entries(directory: &OwnedFd, limit: usize) -> Result<usize> {
    let entries = Dir::read_from(directory)?.filter_map(Result::ok);
    Ok(entries.filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b"..")).take(limit).count())
}

/// The number of the block device that a path leads to; `None` for anything else.
pub fn block_device(path: &[u8]) -> Result<Option<SuperblockId>> {
    let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE)?;
    let is_block = FileType::from_raw_mode(u32::from(found.stx_mode)) == FileType::BlockDevice;
    Ok(is_block.then_some(SuperblockId { major: found.stx_rdev_major, minor: found.stx_rdev_minor }))
}

/// Whether no file system holds the block device any more, by claiming it for a moment. `None` when it
/// cannot be told.
///
/// kernel: O_EXCL without O_CREAT claims the device as a mount does: `bd_prepare_to_claim`, block/bdev.c.
#[must_use]
pub fn is_released(device: &[u8]) -> Option<bool> {
    let kind = statx(CWD, device, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
    if FileType::from_raw_mode(u32::from(kind.stx_mode)) != FileType::BlockDevice {
        return None;
    }
    match open(device, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => Some(true),
        Err(Errno::BUSY) => Some(false),
        Err(_) => None,
    }
}
