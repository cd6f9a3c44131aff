//! The disposable child that sets one mark. Everything here may block for ever on the watched mount, which is
//! why it is a process of its own: the agent gives up on it and goes on.
#![expect(
    unsafe_code,
    reason = "takes over the group that arrives as standard input; nix has no safe way in"
)]

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Write};
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::Path;

use agent_core::errno::Errno as CoreErrno;
use agent_core::id::MountId;
use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::fanotify::Fanotify;
use nix::sys::signal::Signal;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, fstatvfs, open, statx};

use super::decode::Fsid;
use super::group::Group;
use super::mark::{Answer, MarkStep, Request};
use crate::exit_code::ExitCode;
use crate::sys::mountinfo::own::{OWN_TABLE, find_place};

/// The body of the hidden subcommand: `arguments` are those after its name. Never returns to anything else.
#[must_use]
pub fn run_mark_child(arguments: &[OsString]) -> ExitCode {
    // Without it the child outlives the agent by no more than this one task; so a failure does not matter.
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    let Some(request) = Request::from_arguments(arguments) else {
        return ExitCode::Usage;
    };
    let Ok(group) = std::io::stdin().as_fd().try_clone_to_owned().map(received) else {
        return ExitCode::Internal;
    };
    let answer = mark(&group, &request).unwrap_or_else(|refusal| refusal);
    match writeln!(std::io::stdout(), "{}", answer.to_line()) {
        Ok(()) => ExitCode::Ok,
        Err(_) => ExitCode::Internal,
    }
}

fn received(descriptor: OwnedFd) -> Group {
    // SAFETY: `into_raw_fd` gives up the only owner of this descriptor, so `Fanotify` becomes its only owner.
    // If it is no fanotify group, the kernel refuses every call on it with EINVAL.
    Group::received(unsafe { Fanotify::from_raw_fd(descriptor.into_raw_fd()) })
}

/// Both the good and the bad end are answers.
fn mark(group: &Group, request: &Request) -> Result<Answer, Answer> {
    if let Some(namespace) = &request.enter {
        enter(namespace).map_err(|errno| refused(MarkStep::Enter, errno))?;
    }
    if request.is_automount && !is_mounted(request.mount) {
        return Err(refused(MarkStep::Identity, Errno::ENOENT));
    }
    // O_PATH triggers no automount at the end of the path and asks nothing of the file system.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = open(&request.mountpoint, flags, Mode::empty())
        .map_err(|errno| refused(MarkStep::Open, Errno::from_raw(errno.raw_os_error())))?;
    let is_directory = is_directory_of(&place, request.mount)?;
    // `fanotify_mark` does not take an O_PATH descriptor alone, but it takes one to start from.
    let set = if is_directory {
        group.mark_errors(place.as_fd(), Path::new("."))
    } else {
        group.mark_errors(AT_FDCWD, &request.mountpoint)
    };
    set.map_err(|errno| refused(MarkStep::Mark, errno))?;
    let statistics =
        fstatvfs(&place).map_err(|errno| refused(MarkStep::Fsid, Errno::from_raw(errno.raw_os_error())))?;
    Ok(Answer::Set(Fsid(statistics.f_fsid)))
}

/// Compares the mount id and says whether a directory is mounted. A kernel that does not tell the id (before
/// 5.8) is taken at its word.
///
/// kernel: `STATX_MNT_ID`, fs/stat.c, since 5.8: the same number as in field 1 of mountinfo.
fn is_directory_of(place: &OwnedFd, expected: MountId) -> Result<bool, Answer> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(place, "", flags, StatxFlags::TYPE | StatxFlags::MNT_ID)
        .map_err(|errno| refused(MarkStep::Identity, Errno::from_raw(errno.raw_os_error())))?;
    let tells_id = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    if tells_id && found.stx_mnt_id != u64::from(expected.0) {
        return Err(Answer::Other(found.stx_mnt_id));
    }
    Ok(FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory)
}

/// Whether the table of mounts still has it. Without a table nothing says no.
fn is_mounted(mount: MountId) -> bool {
    File::open(OWN_TABLE).map_or(true, |table| find_place(BufReader::new(table), mount).is_some())
}

/// kernel: `mntns_install`, fs/namespace.c, since 3.8: the file-system context must not be shared with another
/// thread, hence the `unshare`.
fn enter(namespace: &Path) -> Result<(), Errno> {
    let file =
        File::open(namespace).map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    unshare(CloneFlags::CLONE_FS)?;
    setns(file, CloneFlags::CLONE_NEWNS)
}

fn refused(step: MarkStep, errno: Errno) -> Answer {
    Answer::Refused(step, CoreErrno(u16::try_from(errno as i32).unwrap_or(u16::MAX)))
}
