//! Calls that change one mount that is named by a descriptor or by the directory it lies in, never by a path that
//! somebody else may change meanwhile. For mount namespaces of others.
//!
//! May block on a sick file system: only for disposable child processes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use agent_core::path::BytePath;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::{Errno, Result};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
    unmount,
};
use rustix::process::fchdir;

use super::mount_table::Proc;

/// A place where something is mounted, or was.
#[derive(Debug)]
pub struct Place {
    directory: OwnedFd,
    name: Vec<u8>,
}

impl Place {
    /// Resolves the directory of an absolute path, through no link.
    ///
    /// kernel: `openat2`, fs/open.c, since 5.6.
    pub fn resolve(path: &BytePath) -> Result<Self> {
        let bytes = path.as_bytes();
        let slash = bytes.iter().rposition(|byte| *byte == b'/').ok_or(Errno::INVAL)?;
        let (directory, name) = bytes.split_at(slash);
        let name = name.strip_prefix(b"/").unwrap_or(name).to_vec();
        if name.is_empty() || name == b"." || name == b".." {
            return Err(Errno::INVAL);
        }
        let directory = if directory.is_empty() { b"/".as_slice() } else { directory };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        Ok(Self { directory: openat2(CWD, directory, flags, Mode::empty(), resolve)?, name })
    }

    /// The root of what is mounted there on top, without opening anything.
    pub fn hold(&self) -> Result<OwnedFd> {
        openat(
            &self.directory,
            self.name.as_slice(),
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
    }

    /// Attaches a detached tree on top of whatever is there.
    pub fn attach(&self, tree: &OwnedFd) -> Result<()> {
        move_mount(tree, "", &self.directory, self.name.as_slice(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
    }

    /// Unmounts the top mount there, if nobody uses it.
    pub fn unmount(&self) -> Result<()> {
        fchdir(&self.directory)?;
        unmount(self.name.as_slice(), UnmountFlags::NOFOLLOW)
    }

    /// Whether a plain unmount of the top mount there would be refused. It marks the mount, which the next access
    /// takes back; where somebody else has marked it already and nobody used it since, it is unmounted. One with
    /// anything mounted inside is always in use.
    ///
    /// kernel: `do_umount` with MNT_EXPIRE, fs/namespace.c, since 2.6.8: EBUSY, or EAGAIN for one that is idle.
    pub fn usage(&self) -> Result<Usage> {
        fchdir(&self.directory)?;
        match unmount(self.name.as_slice(), UnmountFlags::NOFOLLOW | UnmountFlags::EXPIRE) {
            Ok(()) => Ok(Usage::Gone),
            Err(Errno::AGAIN) => Ok(Usage::Idle),
            Err(Errno::BUSY) => Ok(Usage::Busy),
            Err(errno) => Err(errno),
        }
    }
}

/// Whether a mount is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usage {
    /// It is.
    Busy,
    /// Nobody does.
    Idle,
    /// Nobody did, and it is no more.
    Gone,
}

/// A detached copy of the mount that the descriptor refers to, with the descriptor's place as its root, without the
/// mounts below it.
///
/// kernel: `open_tree`, fs/namespace.c, since 5.2.
pub fn clone_tree(place: BorrowedFd<'_>) -> Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(place, "", flags)
}

/// The same, with all mounts below it; those are copied as they are.
///
/// kernel: `open_tree` with AT_RECURSIVE, fs/namespace.c, since 5.2.
pub fn clone_whole(root: BorrowedFd<'_>) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    open_tree(root, "", flags)
}

/// Attaches a detached tree on top of whatever is at the place that the descriptor refers to.
pub fn attach(tree: &OwnedFd, place: &OwnedFd) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", place, "", flags)
}

/// A place below another one, through no link and onto no other mount; the other one itself where the path is empty.
pub fn below(root: &OwnedFd, path: &BytePath) -> Result<OwnedFd> {
    if path.as_bytes().is_empty() {
        return root.try_clone().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    openat2(root, path.as_bytes(), flags, Mode::empty(), resolve)
}

/// Attaches a detached tree beneath the mount whose root the descriptor refers to.
///
/// kernel: `can_move_mount_beneath`, fs/namespace.c, since 6.5.
pub fn attach_beneath(tree: &OwnedFd, top: &OwnedFd) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH
        | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH
        | MoveMountFlags::MOVE_MOUNT_BENEATH;
    move_mount(tree, "", top, "", flags)
}

/// Takes the mount whose root the descriptor refers to out of the tree. Who has files open keeps them.
///
/// Goes through the descriptor's link in procfs, and there is no call that takes a mount away by a descriptor: what
/// somebody mounts over it in between goes instead. Who calls this looks before it and after it.
///
/// kernel: `path_lookupat` with LOOKUP_MOUNTPOINT, fs/namei.c, crosses what is mounted on the place.
pub fn detach(proc: &Proc, top: &OwnedFd) -> Result<()> {
    fchdir(proc.directory())?;
    unmount(format!("self/fd/{}", top.as_raw_fd()), UnmountFlags::DETACH)
}

/// A detached tmpfs that nobody can write to once it is sealed, with a text as its source.
#[derive(Debug)]
pub struct Guard {
    context: OwnedFd,
    /// The mount. Its root is an empty directory.
    pub mount: OwnedFd,
}

/// The file that a guard for a single file is.
const FILE: &str = "guard";

impl Guard {
    /// Makes one.
    ///
    /// kernel: `fsopen`, fs/fsopen.c, `fsmount`, fs/namespace.c, since 5.2.
    pub fn new(source: &[u8]) -> Result<Self> {
        let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (key, value) in [("source", source), ("mode", b"0555"), ("size", b"64k"), ("nr_inodes", b"1k")] {
            fsconfig_set_string(context.as_fd(), key, value)?;
        }
        fsconfig_create(context.as_fd())?;
        let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        Ok(Self { context, mount })
    }

    /// Adds an empty file, which has to stand for a file: seen from this place, where the guard is attached.
    pub fn make_file(&self, root: &OwnedFd) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC;
        drop(openat(root, FILE, flags, Mode::from_raw_mode(0o444))?);
        below(root, &BytePath::from(FILE))
    }

    /// Adds a place for a mount inside, with the directories above it.
    pub fn make_place(&self, path: &BytePath, is_directory: bool) -> Result<()> {
        let path = path.as_bytes();
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        for end in ends.chain(is_directory.then_some(path.len())) {
            let directory = path.get(..end).unwrap_or_default();
            match mkdirat(&self.mount, directory, Mode::from_raw_mode(0o555)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        if !is_directory {
            let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC;
            drop(openat(&self.mount, path, flags, Mode::from_raw_mode(0o444))?);
        }
        Ok(())
    }

    /// From now on nothing can be written to it, whatever the options of its mounts are.
    pub fn seal(&self) -> Result<()> {
        fsconfig_set_flag(self.context.as_fd(), "ro")?;
        fsconfig_reconfigure(self.context.as_fd())
    }
}
