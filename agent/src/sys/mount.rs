//! Calls that change the mount table. Each works on exactly one mount.
//!
//! May block on a sick file system: only for disposable child processes.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use agent_core::path::BytePath;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Result;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_change,
    mount_remount, move_mount, open_tree, unmount as unmount_call,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Makes another mount namespace this process's own; root and working directory become the namespace's.
/// The process must have one thread.
///
/// kernel: `mntns_install`, fs/namespace.c, since 3.8.
pub fn enter_namespace(path: &BytePath) -> Result<()> {
    let namespace = rustix::fs::open(path.as_bytes(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))
}

/// A detached copy of the mount at the path, without the mounts below it.
///
/// kernel: `open_tree`, fs/namespace.c, since 5.2.
pub fn clone_tree(path: &BytePath) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    open_tree(CWD, path.as_bytes(), flags)
}

/// Attaches a detached tree on top of whatever is at the path.
///
/// kernel: `move_mount`, fs/namespace.c, since 5.2.
pub fn attach(tree: &OwnedFd, path: &BytePath) -> Result<()> {
    move_mount(tree, "", CWD, path.as_bytes(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Attaches a detached tree beneath the top mount at the path: nothing changes for anyone until the top goes.
///
/// kernel: `can_move_mount_beneath`, fs/namespace.c, since 6.5. EINVAL before, and where the parent's
/// propagation would put a second copy over the first.
pub fn attach_beneath(tree: &OwnedFd, path: &BytePath) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_BENEATH;
    move_mount(tree, "", CWD, path.as_bytes(), flags)
}

/// Takes the top mount at the path out of the tree. Who has files open keeps them.
///
/// The walk ends on the mount's root without asking the file system (`LOOKUP_MOUNTPOINT`).
///
/// kernel: `do_umount` with MNT_DETACH, fs/namespace.c, since 2.4.11.
pub fn detach(path: &BytePath) -> Result<()> {
    unmount_call(path.as_bytes(), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
}

/// Unmounts the top mount at the path, if nobody uses it. Never forced, never lazily.
pub fn unmount(path: &BytePath) -> Result<()> {
    unmount_call(path.as_bytes(), UnmountFlags::NOFOLLOW)
}

/// Mounts a block file system without any option of its type but these. `RDONLY` must be as the superblock has it, if
/// it is still there: else EBUSY (`get_tree_bdev`, fs/super.c).
pub fn mount_plainly(
    source: &[u8],
    path: &BytePath,
    fstype: &str,
    flags: MountFlags,
    options: Option<&CStr>,
) -> Result<()> {
    mount(source, path.as_bytes(), fstype, flags, options)
}

/// Mounts a tiny tmpfs that only root can enter.
pub fn mount_private_tmpfs(path: &BytePath) -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let data = c"size=64k,nr_inodes=4096,mode=0700";
    mount("mountie-stage", path.as_bytes(), "tmpfs", flags, Some(data))
}

/// Cuts the mount at the path off from propagation, in both directions.
pub fn make_private(path: &BytePath) -> Result<()> {
    mount_change(path.as_bytes(), MountPropagationFlags::PRIVATE)
}

/// Puts the mount at the path into a new peer group.
pub fn make_shared(path: &BytePath) -> Result<()> {
    mount_change(path.as_bytes(), MountPropagationFlags::SHARED)
}

/// Sets all options of the one mount at the path. Never without MS_BIND: that would change the superblock, for
/// every mount of it.
pub fn set_options(path: &BytePath, flags: MountFlags) -> Result<()> {
    mount_remount(path.as_bytes(), flags | MountFlags::BIND, "")
}
