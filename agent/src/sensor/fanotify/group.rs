//! A fanotify group: made, marked, read. The only file that knows the numbers of the flags.
//!
//! `nix` has the calls, but not the newer flags; they are added to its flag types as they are.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};

use super::decode::{DecodeError, Event, decode};

/// kernel: include/uapi/linux/fanotify.h, since 5.1.
const FAN_REPORT_FID: u32 = 0x200;
/// kernel: include/uapi/linux/fanotify.h, since 6.15.
const FAN_REPORT_MNT: u32 = 0x4000;
/// kernel: include/uapi/linux/fanotify.h, since 6.15.
const FAN_MARK_MNTNS: u32 = 0x110;
/// kernel: include/uapi/linux/fanotify.h, since 6.15.
const FAN_MNT_ATTACH: u64 = 0x0100_0000;
/// kernel: include/uapi/linux/fanotify.h, since 6.15.
const FAN_MNT_DETACH: u64 = 0x0200_0000;

/// Room for more than a thousand events a call.
const BUFFER: usize = 64 * 1024;

/// A group and the buffer it is read into.
#[derive(Debug)]
pub(super) struct Group {
    fanotify: Fanotify,
}

/// What one read gave.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Good events, in order.
    pub(super) events: Vec<Event>,
    /// What stopped the decoding, if anything did.
    pub(super) defect: Option<DecodeError>,
}

impl Group {
    /// A group for errors of file systems. Needs CAP_SYS_ADMIN, for the number of marks as well as for the marks.
    pub(super) fn for_errors() -> Result<Self, Errno> {
        Self::new(FAN_REPORT_FID, InitFlags::FAN_UNLIMITED_MARKS)
    }

    /// A group for attached and detached mounts. Needs CAP_SYS_ADMIN.
    pub(super) fn for_mounts() -> Result<Self, Errno> {
        Self::new(FAN_REPORT_MNT, InitFlags::empty())
    }

    fn new(report: u32, flags: InitFlags) -> Result<Self, Errno> {
        let flags = flags
            | InitFlags::FAN_CLASS_NOTIF
            | InitFlags::FAN_CLOEXEC
            | InitFlags::FAN_NONBLOCK
            | InitFlags::from_bits_retain(report);
        Fanotify::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC)
            .map(|fanotify| Self { fanotify })
    }

    /// A group that was made by another process.
    pub(super) fn received(fanotify: Fanotify) -> Self {
        Self { fanotify }
    }

    /// Asks for the errors of the file system that `path`, relative to `directory`, is on.
    ///
    /// Resolves a path and asks the file system for its id: may block for ever. Only in the disposable child.
    pub(super) fn mark_errors(&self, directory: BorrowedFd<'_>, path: &Path) -> Result<(), Errno> {
        let flags = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
        self.fanotify.mark(flags, MaskFlags::FAN_FS_ERROR, directory, Some(path))
    }

    /// Whether marks for errors can be set at all. The empty path is no path, so nothing is looked up; the
    /// kernel checks everything else first and then says ENOENT.
    ///
    /// kernel: `do_fanotify_mark`, fs/notify/fanotify/fanotify_user.c: EINVAL for a mask that it does not know,
    /// EPERM without the capability, and only then `fanotify_find_path`.
    pub(super) fn can_mark_errors(&self) -> Result<(), Errno> {
        match self.mark_errors(AT_FDCWD, Path::new("")) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Asks for the changes of a mount namespace, by its open file.
    pub(super) fn mark_namespace(&self, namespace: BorrowedFd<'_>) -> Result<(), Errno> {
        let flags = MarkFlags::FAN_MARK_ADD | MarkFlags::from_bits_retain(FAN_MARK_MNTNS);
        let mask = MaskFlags::from_bits_retain(FAN_MNT_ATTACH | FAN_MNT_DETACH);
        self.fanotify.mark(flags, mask, namespace, None::<&Path>)
    }

    /// What has happened since the last call. Never blocks.
    pub(super) fn read(&self) -> Result<Batch, Errno> {
        let mut buffer = vec![0; BUFFER];
        let length = match nix::unistd::read(&self.fanotify, &mut buffer) {
            Ok(length) => length,
            Err(Errno::EAGAIN | Errno::EINTR) => 0,
            Err(errno) => return Err(errno),
        };
        let mut batch = Batch::default();
        for event in decode(buffer.get(..length).unwrap_or_default()) {
            match event {
                Ok(event) => batch.events.push(event),
                Err(defect) => batch.defect = Some(defect),
            }
        }
        Ok(batch)
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fanotify.as_fd()
    }
}

/// Why a group cannot be had, in words for an operator. `since` says what an EINVAL means.
pub(super) fn reason(errno: Errno, since: &str) -> String {
    match errno {
        Errno::ENOSYS => "the kernel has no fanotify".to_owned(),
        Errno::EINVAL => format!("the kernel is too old: {since}"),
        Errno::EPERM => "CAP_SYS_ADMIN is missing".to_owned(),
        Errno::EMFILE => "too many fanotify groups or open files of this user".to_owned(),
        errno => format!("fanotify refuses: {errno}"),
    }
}
