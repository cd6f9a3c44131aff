//! `mount_setattr`, which no crate used here wraps: changes options of one mount, never of its superblock.
#![expect(unsafe_code, reason = "the system call takes a pointer to a structure")]

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::{Errno, Result};
use rustix::mount::{MountAttrFlags, MountPropagationFlags, mount_change};

/// What to change on one mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Set these.
    pub set: MountAttrFlags,
    /// Clear these first. The access-time modes are one field: to set one, clear the field.
    pub clear: MountAttrFlags,
    /// Put the mount into a new peer group.
    pub shared: bool,
    /// What it stays to the mount that it was cloned from.
    pub kin: Kin,
}

/// What a copy is to the mount that it was cloned from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kin {
    /// Nothing: else what is mounted in one container would appear on the host.
    #[default]
    None,
    /// Its peer, where it has any.
    Peer,
    /// It receives what is mounted inside that one.
    Slave,
}

/// How one mount passes events on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Not at all.
    Private,
    /// To its peers; a new group where it has none.
    Shared,
    /// It only receives them.
    Slave,
    /// Not at all, and nobody may make a bind of it.
    Unbindable,
}

impl Sharing {
    const fn flag(self) -> u64 {
        match self {
            Self::Private => libc::MS_PRIVATE,
            Self::Shared => libc::MS_SHARED,
            Self::Slave => libc::MS_SLAVE,
            Self::Unbindable => libc::MS_UNBINDABLE,
        }
    }

    const fn flags(self) -> MountPropagationFlags {
        match self {
            Self::Private => MountPropagationFlags::PRIVATE,
            Self::Shared => MountPropagationFlags::SHARED,
            Self::Slave => MountPropagationFlags::DOWNSTREAM,
            Self::Unbindable => MountPropagationFlags::UNBINDABLE,
        }
    }
}

/// The kernel's `struct mount_attr`.
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Changes the mount that `mount` refers to. Works on a detached tree, so that a mount is never visible with
/// other options than these. Other mounts of the same superblock keep theirs.
///
/// kernel: `mount_setattr`, fs/namespace.c, since 5.12; `clone_mnt` puts a copy into the peer group of its original.
pub fn set(mount: BorrowedFd<'_>, attributes: Attributes) -> Result<()> {
    let attr = MountAttr {
        attr_set: u64::from(attributes.set.bits()),
        attr_clr: u64::from(attributes.clear.bits()),
        propagation: match attributes.kin {
            Kin::None => libc::MS_PRIVATE,
            Kin::Peer => 0,
            Kin::Slave => libc::MS_SLAVE,
        },
        userns_fd: 0,
    };
    change(mount, &attr)?;
    if attributes.shared && attributes.kin != Kin::Peer { share(mount, Sharing::Shared) } else { Ok(()) }
}

/// Changes how one mount passes events on.
///
/// kernel: `mount_setattr`, fs/namespace.c, since 5.12; before, `do_change_type`, since 2.6.15, which wants a path: procfs
/// has one for each descriptor.
pub fn share(mount: BorrowedFd<'_>, sharing: Sharing) -> Result<()> {
    let attr = MountAttr { attr_set: 0, attr_clr: 0, propagation: sharing.flag(), userns_fd: 0 };
    match change(mount, &attr) {
        Err(Errno::NOSYS) => mount_change(format!("/proc/self/fd/{}", mount.as_raw_fd()), sharing.flags()),
        changed => changed,
    }
}

/// Lets nobody write through one mount, or again.
///
/// kernel: `mount_setattr`, fs/namespace.c, since 5.12: EBUSY while somebody has it open for writing.
pub fn set_readonly(mount: BorrowedFd<'_>, readonly: bool) -> Result<()> {
    let flag = u64::from(MountAttrFlags::MOUNT_ATTR_RDONLY.bits());
    let (attr_set, attr_clr) = if readonly { (flag, 0) } else { (0, flag) };
    change(mount, &MountAttr { attr_set, attr_clr, propagation: 0, userns_fd: 0 })
}

fn change(mount: BorrowedFd<'_>, attr: &MountAttr) -> Result<()> {
    // SAFETY: the path is a NUL-terminated constant, the structure lives across the call and its size is the
    // one that is passed; the kernel only reads both.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            std::ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    };
    if result == 0 {
        return Ok(());
    }
    let number = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    Err(Errno::from_raw_os_error(number))
}
