//! The opt-in write: one block, synced, gone again.
//!
//! A file without a name is preferred: nothing can be left behind, whenever the worker dies. Where the file
//! system has none (NFS, most FUSE) a named file is written, closed and removed. Its name is the same each
//! time for one mount point of one node, so that what a dead worker left is found and removed by the next
//! probe, also by one of a later version: at most one file of one block ever stays. And it is another for every
//! mount point and node, since several of them may show the same directory of a server at the same time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use agent_core::hash::hash;
use agent_core::path::BytePath;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, fsync, openat, statx, unlinkat};
use rustix::io::Errno;

use super::number;
use crate::probe::privileges;
use crate::probe::protocol::Request;
use crate::sys::direct_read::BLOCK;
use crate::sys::sentinel;

/// What is written. Anybody who meets the file can read what it is.
const LINE: &[u8] = b"mountie write probe\n";

/// Writes and removes; `true` when data reached the storage.
pub(super) fn write(root: BorrowedFd<'_>, request: &Request) -> Result<bool, agent_core::errno::Errno> {
    let name = name(&request.mountpoint);
    with_rights(request, || write_block(root, &name)).map_err(number)?;
    Ok(true)
}

/// The directory may belong to anybody: the worker itself may write all the same. A user whom the request names has
/// only that user's rights.
pub(super) fn with_rights<T>(request: &Request, act: impl FnOnce() -> T) -> T {
    if request.user.is_some() { act() } else { privileges::with_write_override(act) }
}

fn name(mountpoint: &BytePath) -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-' || *c == '.';
    let node: String = host.to_string_lossy().chars().filter(plain).take(64).collect();
    format!(".mountie-probe-{node}-{:016x}", hash(mountpoint.as_bytes()))
}

fn write_block(root: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    match openat(root, ".", flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => write_and_close(file),
        // kernel: `do_tmpfile`, fs/namei.c, since 3.11: EOPNOTSUPP where the file system lacks it; EISDIR
        // from one that does not know the flag; ENOSYS from a FUSE daemon (since 6.2) that does not.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOSYS | Errno::INVAL) => write_named(root, name),
        Err(errno) => Err(errno),
    }
}

fn write_named(root: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let create = || openat(root, name, flags, Mode::RUSR | Mode::WUSR);
    let file = match create() {
        Err(Errno::EXIST) => {
            remove_leftover(root, name)?;
            create()?
        }
        result => result?,
    };
    let written = write_and_close(file);
    match unlinkat(root, name, AtFlags::empty()) {
        // Somebody else has cleaned up.
        Err(Errno::NOENT) => written,
        removed => written.and(removed),
    }
}

/// Only what such a probe can have left: a regular file of at most one block.
fn remove_leftover(root: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let facts = statx(root, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE | StatxFlags::SIZE)?;
    if !sentinel::is_regular(&facts) || facts.stx_size > BLOCK as u64 {
        return Err(Errno::EXIST);
    }
    unlinkat(root, name, AtFlags::empty())
}

/// Quota and space may only be noticed at the sync or at the close, so both count.
fn write_and_close(file: OwnedFd) -> Result<(), Errno> {
    let data: Vec<u8> = LINE.iter().copied().cycle().take(BLOCK).collect();
    store(file, &data)
}

/// Writes it all, down to the storage.
pub(super) fn store(file: OwnedFd, data: &[u8]) -> Result<(), Errno> {
    let written = write_all(file.as_fd(), data).and_then(|()| fsync(&file));
    let closed = nix::unistd::close(file).map_err(|errno| Errno::from_raw_os_error(errno as i32));
    written.and(closed)
}

fn write_all(file: BorrowedFd<'_>, mut data: &[u8]) -> Result<(), Errno> {
    while !data.is_empty() {
        match rustix::io::write(file, data) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => data = data.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use nix::mount::MsFlags;

    use super::*;
    use crate::probe::lab::{in_private_namespace, mount, mount_tmpfs};

    fn count(place: &Path) -> usize {
        std::fs::read_dir(place).unwrap().count()
    }

    #[test]
    fn the_name_is_the_same_in_every_version() {
        assert!(name(&BytePath::from("/mnt/a")).ends_with("-8ae6e166ccffd49b"));
        assert_ne!(name(&BytePath::from("/mnt/a")), name(&BytePath::from("/mnt/b")));
    }

    #[test]
    fn a_named_file_is_removed_again() {
        in_private_namespace(|lab| {
            let place = mount_tmpfs(lab.join("a"));
            let root = File::open(&place).unwrap();
            assert_eq!(write_named(root.as_fd(), "probe"), Ok(()));
            assert_eq!(count(&place), 0);
        });
    }

    #[test]
    fn a_named_file_is_removed_also_when_the_write_fails() {
        in_private_namespace(|lab| {
            let place = mount("tmpfs", lab.join("a"), MsFlags::empty(), "size=8k");
            assert!(std::fs::write(place.join("data"), [1; 65536]).is_err());
            let root = File::open(&place).unwrap();
            assert_eq!(write_named(root.as_fd(), "probe"), Err(Errno::NOSPC));
            assert_eq!(count(&place), 1);
        });
    }

    #[test]
    fn what_a_dead_worker_left_is_replaced_and_nothing_else_is() {
        in_private_namespace(|lab| {
            let place = mount_tmpfs(lab.join("a"));
            let root = File::open(&place).unwrap();
            std::fs::write(place.join("probe"), "half").unwrap();
            assert_eq!(write_named(root.as_fd(), "probe"), Ok(()));
            assert_eq!(count(&place), 0);

            std::fs::write(place.join("probe"), [0; BLOCK + 1]).unwrap();
            assert_eq!(write_named(root.as_fd(), "probe"), Err(Errno::EXIST));
            std::os::unix::fs::symlink("probe", place.join("link")).unwrap();
            assert_eq!(write_named(root.as_fd(), "link"), Err(Errno::EXIST));
            assert_eq!(count(&place), 2);
        });
    }

    #[test]
    fn the_name_is_a_plain_file_name_of_its_own_for_each_mount_point() {
        let [first, second] = ["/mnt/a", "/mnt/b"].map(|path| name(&BytePath::from(path)));
        assert!(first.starts_with(".mountie-probe-") && !first.contains('/') && first.len() < 120);
        assert_eq!(first, name(&BytePath::from("/mnt/a")));
        assert_ne!(first, second);
    }
}
