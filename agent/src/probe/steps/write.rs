//! The opt-in write: one block, synced, gone again.
//!
//! A file without a name is preferred: nothing can be left behind, whenever the worker dies. Where the file
//! system has none (NFS, most FUSE) a named file is written, closed and removed. Its name is the same each
//! time for one mount point of one node, so that what a dead worker left is found and removed by the next
//! probe, also by one of a later version: at most one file of one block ever stays. And it is another for every
//! mount point and node, since several of them may show the same directory of a server at the same time. A node
//! is known by its machine id: an agent in a container has the name of that, which is another after every update.
//!
//! Whoever may write there can take the name. What is not a probe's stays, and the next of a few names is taken; where
//! all are taken nothing is written, which says nothing against the volume.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

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

/// So many names are tried where somebody else has taken them.
const NAMES: u8 = 4;

/// Writes and removes; `true` when data reached the storage.
pub(super) fn write(root: BorrowedFd<'_>, request: &Request) -> Result<bool, agent_core::errno::Errno> {
    let name = name(&request.mountpoint);
    with_rights(request, || write_block(root, &name)).map_err(number)
}

/// The directory may belong to anybody: the worker itself may write all the same. A user whom the request names has
/// only that user's rights.
pub(super) fn with_rights<T>(request: &Request, act: impl FnOnce() -> T) -> T {
    if request.user.is_some() { act() } else { privileges::with_write_override(act) }
}

fn name(mountpoint: &BytePath) -> String {
    /// Asked for once: the file is on the root file system, which this look is not about.
    static NODE: OnceLock<String> = OnceLock::new();
    let node = NODE.get_or_init(|| {
        let id = std::fs::read_to_string(MACHINE_ID).unwrap_or_default();
        node(&id, &nix::unistd::gethostname().unwrap_or_default().to_string_lossy())
    });
    format!(".mountie-probe-{node}-{:016x}", hash(mountpoint.as_bytes()))
}

/// Of the namespace that the worker looks in. It holds 32 digits once the node has been set up, and is nobody else's
/// business: only a hash of it is shown.
const MACHINE_ID: &str = "/etc/machine-id";

/// What tells this node from others, as far as anything does.
fn node(machine_id: &str, host: &str) -> String {
    let id = machine_id.trim();
    if id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return format!("{:016x}", hash(id.as_bytes()));
    }
    let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-' || *c == '.';
    host.chars().filter(plain).take(64).collect()
}

fn write_block(root: BorrowedFd<'_>, name: &str) -> Result<bool, Errno> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    match openat(root, ".", flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => write_and_close(file).map(|()| true),
        // kernel: `do_tmpfile`, fs/namei.c, since 3.11: EOPNOTSUPP where the file system lacks it; EISDIR
        // from one that does not know the flag; ENOSYS from a FUSE daemon (since 6.2) that does not.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOSYS | Errno::INVAL) => write_named(root, name),
        Err(errno) => Err(errno),
    }
}

fn write_named(root: BorrowedFd<'_>, name: &str) -> Result<bool, Errno> {
    for number in 0..NAMES {
        let name = if number == 0 { name.to_owned() } else { format!("{name}-{number}") };
        match create(root, &name) {
            Ok(file) => return write_and_remove(root, &name, file).map(|()| true),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(false)
}

/// Makes the file, in place of what a dead worker may have left. `EEXIST`: it is somebody else's.
fn create(root: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let make = || openat(root, name, flags, Mode::RUSR | Mode::WUSR);
    match make() {
        Err(Errno::EXIST) => match remove_leftover(root, name) {
            Ok(()) | Err(Errno::NOENT) => make(),
            Err(Errno::PERM | Errno::ACCESS) => Err(Errno::EXIST),
            Err(errno) => Err(errno),
        },
        result => result,
    }
}

fn write_and_remove(root: BorrowedFd<'_>, name: &str, file: OwnedFd) -> Result<(), Errno> {
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
            assert_eq!(write_named(root.as_fd(), "probe"), Ok(true));
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
    fn what_a_dead_worker_left_is_replaced_and_what_is_a_strangers_stays_and_is_no_fault() {
        in_private_namespace(|lab| {
            let place = mount_tmpfs(lab.join("a"));
            let root = File::open(&place).unwrap();
            std::fs::write(place.join("probe"), "half").unwrap();
            assert_eq!(write_named(root.as_fd(), "probe"), Ok(true));
            assert_eq!(count(&place), 0);

            std::fs::write(place.join("probe"), [0; BLOCK + 1]).unwrap();
            std::os::unix::fs::symlink("probe", place.join("probe-1")).unwrap();
            std::fs::create_dir(place.join("probe-2")).unwrap();
            std::fs::write(place.join("probe-3"), "half").unwrap();
            assert_eq!(write_named(root.as_fd(), "probe"), Ok(true));
            assert_eq!(count(&place), 3);
            std::fs::create_dir(place.join("probe-3")).unwrap();
            assert_eq!(write_named(root.as_fd(), "probe"), Ok(false), "nothing is written");
            assert_eq!(count(&place), 4);
        });
    }

    #[test]
    fn a_node_is_known_by_its_machine_id_whatever_its_name() {
        let id = "0123456789abcdef0123456789abcdef";
        let known = node(&format!("{id}\n"), "pod-7f3a");
        assert!(known.len() == 16 && !id.contains(&known), "{known}");
        assert_eq!(known, node(id, "pod-b81c"));
        assert_ne!(known, node("f123456789abcdef0123456789abcdef", "pod-7f3a"));
        for unset in ["", "uninitialized\n", "0123"] {
            assert_eq!(node(unset, "web-1.example/\u{7}"), "web-1.example", "{unset}");
        }
    }

    #[test]
    fn the_name_is_a_plain_file_name_of_its_own_for_each_mount_point() {
        let [first, second] = ["/mnt/a", "/mnt/b"].map(|path| name(&BytePath::from(path)));
        assert!(first.starts_with(".mountie-probe-") && !first.contains('/') && first.len() < 120);
        assert_eq!(first, name(&BytePath::from("/mnt/a")));
        assert_ne!(first, second);
    }
}
