//! Putting a sentinel on a volume: one new file, where none is, on the mount that was looked at before.
//!
//! Everything goes through the descriptor whose identity was checked, so that nothing is ever written to a bare
//! directory, nor to another file system that was mounted meanwhile. The file is made with `O_EXCL`: what is there
//! is never touched. What could not be finished is removed again.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use agent_core::observation::{ProbeResult, ProbeStep};
use agent_core::path::BytePath;
use rustix::fs::{AtFlags, OFlags, fsync, statx, unlinkat};
use rustix::io::Errno;

use super::{number, open_root, revalidate, write};
use crate::probe::planting::{PlantFault, Planted, Planting};
use crate::probe::protocol::Request;
use crate::sys::sentinel::{self, Reading};

/// Puts it there, unless something is there.
pub(super) fn plant(
    root: &OwnedFd,
    request: &Request,
    planting: &Planting,
    announce: &mut dyn FnMut(ProbeStep),
) -> Result<Planted, PlantFault> {
    announce(ProbeStep::Root);
    if request.fstype == "autofs" {
        return Err(PlantFault::Look(ProbeResult::WrongMount { found: request.superblock }));
    }
    if !revalidate(root).map_err(PlantFault::Look)?.directory {
        return Err(PlantFault::NoRoom);
    }
    announce(ProbeStep::Sentinel);
    if let Some(there) = what_is_there(root, planting)? {
        return Ok(there);
    }
    announce(ProbeStep::Write);
    let inode = write::with_rights(request, || make(root, planting))?;
    announce(ProbeStep::Sentinel);
    let reading = sentinel::read(root.as_fd(), &planting.path);
    write::with_rights(request, || confirm(root, planting, inode, reading))
}

/// What was written counts when it came back past the cache. What did not must not stay: to the next who asks it would
/// be a sentinel.
fn confirm(
    root: &OwnedFd,
    planting: &Planting,
    inode: Option<u64>,
    reading: Result<Reading, Errno>,
) -> Result<Planted, PlantFault> {
    let errno = match reading {
        Ok(Reading::Content(content)) if sentinel::has_content(&content, &planting.content) => {
            return Ok(Planted::Written(planting.content.clone()));
        }
        Ok(_) => None,
        Err(errno) => Some(number(errno)),
    };
    let is_removed = inode.is_some_and(|inode| remove(root, &planting.path, inode));
    Err(PlantFault::ReadBack { errno, is_removed })
}

/// A file that may stay; an error when it may not.
fn what_is_there(root: &OwnedFd, planting: &Planting) -> Result<Option<Planted>, PlantFault> {
    let content = match sentinel::read(root.as_fd(), &planting.path).map_err(unreadable)? {
        Reading::Absent => return Ok(None),
        Reading::Unusable => return Err(PlantFault::Unusable),
        Reading::Held => return Err(unreadable(Errno::AGAIN)),
        Reading::Content(content) => content,
    };
    if planting.is_chosen && sentinel::has_content(&content, &planting.content) {
        return Ok(Some(Planted::Found(planting.content.clone())));
    }
    if content.is_empty() {
        return Err(PlantFault::Empty);
    }
    if planting.may_adopt { Ok(Some(Planted::Adopted(content))) } else { Err(PlantFault::Exists) }
}

fn unreadable(errno: Errno) -> PlantFault {
    PlantFault::Look(ProbeResult::Failed { step: ProbeStep::Sentinel, errno: number(errno) })
}

/// Makes the file, and tells which one it is.
fn make(root: &OwnedFd, planting: &Planting) -> Result<Option<u64>, PlantFault> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let file = sentinel::open_beneath(root.as_fd(), planting.path.as_bytes(), flags).map_err(not_made)?;
    let inode = sentinel::inspect(&file).ok().map(|made| made.stx_ino);
    let data: Vec<u8> = planting.content.iter().copied().chain(*b"\n").collect();
    let stored = write::store(file, &data).and_then(|()| sync_directory(root, &planting.path));
    if let Err(errno) = stored {
        // What is half there would be a sentinel with other content to the next who asks.
        if let Some(inode) = inode {
            remove(root, &planting.path, inode);
        }
        return Err(PlantFault::Write(number(errno)));
    }
    Ok(inode)
}

fn not_made(errno: Errno) -> PlantFault {
    match errno {
        // Somebody was quicker.
        Errno::EXIST => PlantFault::Exists,
        Errno::NOENT | Errno::NOTDIR => PlantFault::NoDirectory,
        Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG => PlantFault::Unusable,
        errno => PlantFault::Write(number(errno)),
    }
}

/// The name itself lasts only when its directory is on the storage.
fn sync_directory(root: &OwnedFd, path: &BytePath) -> Result<(), Errno> {
    match in_directory(root, path, |directory, _| fsync(directory)) {
        // Some file systems cannot sync a directory, and need not.
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::ACCESS) => Ok(()),
        result => result,
    }
}

/// Removes the file that was made here, and no other. Says whether it is gone; why not is no news beside the error that
/// the caller has.
fn remove(root: &OwnedFd, path: &BytePath, inode: u64) -> bool {
    let removed = in_directory(root, path, |directory, name| {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let found = statx(directory, name, flags, rustix::fs::StatxFlags::BASIC_STATS)?;
        if sentinel::is_regular(&found) && found.stx_ino == inode {
            unlinkat(directory, name, AtFlags::empty())
        } else {
            Ok(())
        }
    });
    matches!(removed, Ok(()) | Err(Errno::NOENT))
}

/// Opens the directory of the path, and acts on the last name in it.
fn in_directory(
    root: &OwnedFd,
    path: &BytePath,
    act: impl Fn(BorrowedFd<'_>, &[u8]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let path = path.as_bytes();
    let Some(slash) = path.iter().rposition(|byte| *byte == b'/') else {
        return act(open_root(root)?.as_fd(), path);
    };
    let (parent, name) = path.split_at(slash);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
    let directory = sentinel::open_beneath(root.as_fd(), parent, flags)?;
    act(directory.as_fd(), name.strip_prefix(b"/").unwrap_or(name))
}

#[cfg(test)]
mod tests;
