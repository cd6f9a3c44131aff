//! Reading the sentinel: past the page cache, and whatever a stranger may have put in its place. One reader for
//! probes and repairs, so that both mean the same.
//!
//! May block on a sick file system: only for disposable child processes.
//!
//! A sentinel that is read every few seconds lives in the page cache, where it stays readable long after the
//! device is gone. So the cache is dropped *and* a direct read is tried: dropping alone leaves pages that
//! somebody has mapped, and a direct read alone silently becomes a cached one on some file systems (ext4
//! with `data=journal` or inline data, compressed btrfs).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use agent_core::path::BytePath;
use rustix::fs::{
    Advice, AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxAttributes, StatxFlags, fadvise,
    fcntl_getfl, fcntl_setfl, openat, openat2, statx,
};
use rustix::io::Errno;

use super::direct_read::Buffer;

/// A longer sentinel is unusable.
pub const LONGEST: usize = 64 * 1024;

/// What was found at the sentinel's path.
#[derive(PartialEq, Eq, Debug)]
pub enum Reading {
    /// Nothing.
    Absent,
    /// Not a regular file, or too long, or reached over a link or another mount.
    Unusable,
    /// It is there, and somebody holds a lease on it: to wait for its end would be to hang.
    Held,
    /// The file's bytes.
    Content(Vec<u8>),
}

/// Either content may or may not end with a newline: `echo models-7f3a > .mountie` is what people
/// type, and `content = "models-7f3a"` is what they configure.
#[must_use]
pub fn has_content(found: &[u8], expected: &[u8]) -> bool {
    without_newline(found) == without_newline(expected)
}

/// What counts of a content.
#[must_use]
pub fn without_newline(content: &[u8]) -> &[u8] {
    content.strip_suffix(b"\n").unwrap_or(content)
}

/// Reads the file at `path` beneath `root`.
///
/// # Errors
/// What the file system answered.
pub fn read(root: BorrowedFd<'_>, path: &BytePath) -> Result<Reading, Errno> {
    read_with(root, path, open_one)
}

type Open = fn(BorrowedFd<'_>, &[u8], OFlags) -> Result<OwnedFd, Errno>;

fn read_with(root: BorrowedFd<'_>, path: &BytePath, open: Open) -> Result<Reading, Errno> {
    match read_regular(root, path.as_bytes(), open) {
        Ok(reading) => Ok(reading),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(Reading::Absent),
        Err(Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG) => Ok(Reading::Unusable),
        // kernel: `__break_lease`, fs/locks.c, since 2.4: EWOULDBLOCK for whoever opens with O_NONBLOCK.
        Err(Errno::AGAIN) => Ok(Reading::Held),
        Err(errno) => Err(errno),
    }
}

fn read_regular(root: BorrowedFd<'_>, path: &[u8], open: Open) -> Result<Reading, Errno> {
    // First as a mere place: opening a device node or a FIFO has effects of its own.
    let place = walk(root, path, OFlags::PATH, open)?;
    let seen = inspect(&place)?;
    if !is_regular(&seen) {
        return Ok(Reading::Unusable);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    // Reading must not write, not even a time of access. Only the owner may ask for that.
    let file = match walk(root, path, flags | OFlags::NOATIME, open) {
        Err(Errno::PERM) => walk(root, path, flags, open)?,
        result => result?,
    };
    let opened = inspect(&file)?;
    if !is_regular(&opened) || opened.stx_ino != seen.stx_ino || opened.stx_size > LONGEST as u64 {
        return Ok(Reading::Unusable);
    }
    let mut buffer = Buffer::default();
    let content = read_past_cache(&file, &mut buffer)?;
    // The size that was announced may be wrong; this one is not.
    Ok(if content.len() > LONGEST { Reading::Unusable } else { Reading::Content(content.to_vec()) })
}

/// What kind of file it is, how long, and which.
pub(crate) fn inspect(file: &OwnedFd) -> Result<Statx, Errno> {
    statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE | StatxFlags::SIZE | StatxFlags::INO)
}

pub(crate) fn is_regular(facts: &Statx) -> bool {
    FileType::from_raw_mode(u32::from(facts.stx_mode)) == FileType::RegularFile
}

/// kernel: `POSIX_FADV_DONTNEED`, mm/fadvise.c; `O_DIRECT` by `F_SETFL`, fs/fcntl.c: EINVAL where the file
/// system cannot. All supported versions.
fn read_past_cache<'a>(file: &OwnedFd, buffer: &'a mut Buffer) -> Result<&'a [u8], Errno> {
    // It is advice: what it does not do, the direct read does, and the other way round.
    let _ = fadvise(file, 0, None, Advice::DontNeed);
    // The call replaces all flags: O_NONBLOCK, which was there against what is no regular file, goes.
    let kept = fcntl_getfl(file)? & OFlags::NOATIME;
    let direct = fcntl_setfl(file, kept | OFlags::DIRECT).is_ok();
    let first = buffer.read_all(file).map(<[u8]>::len);
    if direct && matches!(first, Err(Errno::INVAL | Errno::OPNOTSUPP)) {
        fcntl_setfl(file, kept)?;
        return buffer.read_all(file);
    }
    let length = first?;
    Ok(buffer.head(length))
}

/// Opens without leaving the mount, without following any link, and without springing an automount trap: one name at
/// a time, each directory as a mere place, which is looked at before anything beneath it is. A file that is made can
/// be read by all.
///
/// kernel: `__traverse_mounts`, fs/namei.c: before 6.18 a walk that must not leave its mount springs the traps on
/// its way all the same, except at its end.
///
/// # Errors
/// EXDEV and ELOOP where the path leads elsewhere; otherwise what the file system answered.
pub fn open_beneath(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    walk(root, path, flags, open_one)
}

fn walk(root: BorrowedFd<'_>, path: &[u8], flags: OFlags, open: Open) -> Result<OwnedFd, Errno> {
    let mut names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    // Outwards leads nowhere.
    if path.starts_with(b"/") || names.contains(&&b".."[..]) {
        return Err(Errno::XDEV);
    }
    names.retain(|name| !name.is_empty() && *name != b".");
    let last = names.pop().ok_or(Errno::NOENT)?;
    let mut directory: Option<OwnedFd> = None;
    for name in names {
        let next = open(directory.as_ref().map_or(root, OwnedFd::as_fd), name, OFlags::PATH)?;
        if is_trigger(&next)? {
            return Err(Errno::XDEV);
        }
        directory = Some(next);
    }
    open(directory.as_ref().map_or(root, OwnedFd::as_fd), last, flags)
}

/// Opens one name of a directory.
///
/// kernel: `openat2`, fs/open.c, since 5.6. Some container runtimes refuse unknown calls with EPERM.
fn open_one(base: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    match openat2(base, name, flags | OFlags::CLOEXEC, mode_for(flags), resolve) {
        Err(Errno::NOSYS) => open_plainly(base, name, flags),
        Err(Errno::PERM) if !flags.contains(OFlags::NOATIME) => open_plainly(base, name, flags),
        result => result,
    }
}

/// The same for kernels without `openat2`.
fn open_plainly(base: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let next = openat(base, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode_for(flags))?;
    if device_and_mount(next.as_fd())? != device_and_mount(base)? {
        return Err(Errno::XDEV);
    }
    // O_PATH opens a link itself instead of refusing it.
    let facts = inspect(&next)?;
    if FileType::from_raw_mode(u32::from(facts.stx_mode)) == FileType::Symlink {
        return Err(Errno::LOOP);
    }
    Ok(next)
}

/// No mode may be given for a file that is not made.
fn mode_for(flags: OFlags) -> Mode {
    let readable = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    if flags.contains(OFlags::CREATE) { readable } else { Mode::empty() }
}

/// Whether something is mounted here by whoever goes on.
///
/// kernel: `STATX_ATTR_AUTOMOUNT`, `vfs_getattr_nosec`, fs/stat.c, since 4.11.
fn is_trigger(place: &OwnedFd) -> Result<bool, Errno> {
    let facts = statx(place, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
    Ok(facts.stx_attributes.contains(StatxAttributes::AUTOMOUNT))
}

/// Equal for two places on one mount. (Without mount ids, before 5.8: on one superblock.)
fn device_and_mount(place: BorrowedFd<'_>) -> Result<(u32, u32, u64), Errno> {
    let facts = statx(place, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
    let known = StatxFlags::from_bits_retain(facts.stx_mask).contains(StatxFlags::MNT_ID);
    Ok((facts.stx_dev_major, facts.stx_dev_minor, if known { facts.stx_mnt_id } else { 0 }))
}

#[cfg(test)]
mod tests;
