//! The kernel's control files of FUSE connections.
//!
//! They are reached through a mount of fusectl that is attached nowhere: nothing needs to be mounted under `/sys`, and
//! nobody sees it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use agent_core::id::SuperblockId;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, Result};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// The connection of one FUSE superblock. What keeps the superblock keeps the connection's number.
#[derive(Debug)]
pub struct Connection(OwnedFd);

impl Connection {
    /// The control files of the connection of this superblock.
    ///
    /// kernel: `fuse_ctl_add_conn`, fs/fuse/control.c, since 2.6.18; the name of the directory is the device number
    /// of the superblock (`fuse_fill_super_common`, fs/fuse/inode.c).
    ///
    /// # Errors
    /// ENOENT when there is none; EPERM without CAP_SYS_ADMIN.
    pub fn of(superblock: SuperblockId) -> Result<Self> {
        let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(context.as_fd())?;
        let none = MountAttrFlags::empty();
        let root = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, none)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&root, superblock.to_kernel().to_string(), flags, Mode::empty()).map(Self)
    }

    /// How many requests wait to be fetched or answered by the daemon.
    ///
    /// kernel: `fuse_conn_waiting_read`, fs/fuse/control.c, since 2.6.18.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn waiting(&self) -> Result<u64> {
        let file = openat(&self.0, "waiting", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = String::new();
        let read = File::from(file).read_to_string(&mut text);
        read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        text.trim().parse().map_err(|_| Errno::PROTO)
    }

    /// Ends the connection: every request that waits, and every one that comes, fails at once.
    ///
    /// kernel: `fuse_conn_abort_write`, fs/fuse/control.c, since 2.6.18.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn abort(&self) -> Result<()> {
        let file = openat(&self.0, "abort", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        File::from(file).write_all(b"1").map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_connection_has_no_control_files() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let none = SuperblockId { major: 1, minor: 0x000f_ffff };
        assert_eq!(Connection::of(none).unwrap_err(), Errno::NOENT);
    }
}
