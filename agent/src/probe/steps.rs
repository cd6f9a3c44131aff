//! What a worker does for one request: look at one mount, step by step.
//!
//! Runs only in a worker process: any call here may never return. Each step is announced before its first
//! system call, so that a probe that hangs can be told by the step. A step that fails ends the probe. No
//! descriptor outlives the request, so the agent pins nobody's mount between probes.

use std::os::fd::{AsFd, OwnedFd};

use agent_common::subvolume;
use agent_core::errno::{Errno, ErrnoClass};
use agent_core::fstype::FsClass;
use agent_core::health::meaning::class_of;
use agent_core::id::SuperblockId;
use agent_core::observation::{NotRun, ProbeOk, ProbeResult, ProbeStep};
use agent_core::path::BytePath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, fstatvfs, openat, statx};

use device::Storage;

use super::planting::{PlantFault, Planted, Planting};
use super::privileges;
use super::protocol::Request;
use crate::sys;
use crate::sys::sentinel::{self, Reading};

mod btrfs;
mod device;
mod identity;
mod plant;
mod write;

/// The sentinel that is read where none is configured, if it is there.
pub const DEFAULT_SENTINEL: &str = ".mountie";

/// File systems of servers that may answer for the root's attributes from a cache, whatever is asked, long after the
/// server is gone.
///
/// kernel: with `softerr` and `softreval`, `__nfs_revalidate_inode`, fs/nfs/inode.c, since 5.6; with `cache=loose` and
/// `fscache`, `v9fs_vfs_getattr_dotl`, fs/9p/vfs_inode_dotl.c; within `actimeo` or under a lease,
/// `cifs_revalidate_dentry_attr`, fs/smb/client/inode.c. Each asks for `nfs_statfs`, `v9fs_statfs`, `cifs_statfs`.
const ANSWERED_FROM_CACHE: &[&str] = &["9p", "cifs", "nfs", "nfs3", "nfs4", "smb3"];
const ENOSYS: Errno = Errno(38);
const EOPNOTSUPP: Errno = Errno(95);

/// Looks once. `announce` is called with each step before it begins.
pub(super) fn perform(request: &Request, announce: &mut dyn FnMut(ProbeStep)) -> ProbeResult {
    match look(request, announce) {
        Ok(ok) => ProbeResult::Ok(ok),
        Err(result) => result,
    }
}

fn look(request: &Request, announce: &mut dyn FnMut(ProbeStep)) -> Result<ProbeOk, ProbeResult> {
    announce(ProbeStep::Identity);
    let root = identity::open(request)?;

    let Beneath { mut ok, is_directory, sentinel } =
        as_user(request, || look_beneath(&root, request, announce))??;
    if request.fstype == "autofs" {
        return Ok(ok);
    }
    if is_directory {
        ok.uuid = read_uuid(&root, request);
    }

    // Many file systems keep the content of small files in their metadata, which stays cached (btrfs, f2fs, squashfs,
    // ext4 with inline data): there only the device tells whether storage answers.
    if !ok.read_data || request.superblock.major != 0 || request.fstype == "btrfs" {
        announce(ProbeStep::Device);
        let storage = device::read(&root, request).map_err(failed(ProbeStep::Device))?;
        ok.read_device = storage != Storage::Unseen;
        // What was read of the sentinel says nothing of files on the disk that does not answer.
        ok.read_data &= storage != Storage::Short;
    }
    // Only after the device: whoever deletes the sentinel must not hide that the disk is dead.
    if let Some(fault) = sentinel {
        return Err(fault);
    }

    if request.write && is_directory {
        announce(ProbeStep::Write);
        match as_user(request, || write::write(root.as_fd(), request))? {
            Ok(wrote) => ok.wrote_data = wrote,
            Err(errno) => return Err(ProbeResult::WriteFailed { errno, read: ok }),
        }
    }
    Ok(ok)
}

/// Does what the volume is asked for as the user whom the request names, if it names one. The way to the volume, and
/// the device below it, are the worker's own business.
fn as_user<T>(request: &Request, act: impl FnOnce() -> T) -> Result<T, ProbeResult> {
    match &request.user {
        None => Ok(act()),
        Some(user) => privileges::as_user(user, act).map_err(|_| ProbeResult::NotRun(NotRun::NotThatUser)),
    }
}

/// What the volume itself answers.
struct Beneath {
    ok: ProbeOk,
    /// Whether a directory is mounted there.
    is_directory: bool,
    /// What is wrong with the sentinel, while the root answers.
    sentinel: Option<ProbeResult>,
}

fn look_beneath(
    root: &OwnedFd,
    request: &Request,
    announce: &mut dyn FnMut(ProbeStep),
) -> Result<Beneath, ProbeResult> {
    announce(ProbeStep::Root);
    let facts = revalidate(root)?;
    let mut ok = ProbeOk { root_inode: known_root(request, facts.inode), ..ProbeOk::default() };
    if request.fstype == "autofs" {
        // Anything beneath the trap would spring it. The engine does not order this; a race may.
        return Ok(Beneath { ok, is_directory: facts.directory, sentinel: None });
    }
    if ANSWERED_FROM_CACHE.contains(&request.fstype.as_str()) {
        ask_server(root, request)?;
    }
    ok.fsid = read_fsid(root, request);
    let mut sentinel = None;
    if facts.directory {
        announce(ProbeStep::Sentinel);
        (ok.read_data, sentinel) = read_sentinel(root, request)?;
    } else if request.sentinel.is_some() {
        // A single file is mounted here: nothing can be beneath it.
        sentinel = Some(ProbeResult::SentinelUnusable);
    }
    Ok(Beneath { ok, is_directory: facts.directory, sentinel })
}

/// Puts a sentinel there, in place of a look.
pub(super) fn plant(
    request: &Request,
    planting: &Planting,
    announce: &mut dyn FnMut(ProbeStep),
) -> Result<Planted, PlantFault> {
    announce(ProbeStep::Identity);
    let root = identity::open(request).map_err(PlantFault::Look)?;
    as_user(request, || plant::plant(&root, request, planting, announce)).map_err(PlantFault::Look)?
}

/// What stands for the mount's root in the kernel's counters.
fn known_root(request: &Request, inode: u64) -> u64 {
    if request.fstype == "btrfs" {
        return subvolume::root_of_path(inode, request.root.as_bytes());
    }
    inode
}

struct RootFacts {
    inode: u64,
    directory: bool,
}

/// Asks the file system itself for the root's attributes, past any attribute cache.
///
/// kernel: `AT_STATX_FORCE_SYNC`, fs/stat.c, since 4.11: FUSE sends GETATTR (`fuse_update_get_attr`,
/// fs/fuse/dir.c), NFS revalidates (`nfs_getattr`, fs/nfs/inode.c).
fn revalidate(root: &OwnedFd) -> Result<RootFacts, ProbeResult> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let facts = statx(root, c"", flags, StatxFlags::BASIC_STATS)
        .map_err(|errno| failed(ProbeStep::Root)(number(errno)))?;
    let directory = FileType::from_raw_mode(u32::from(facts.stx_mode)) == FileType::Directory;
    Ok(RootFacts { inode: facts.stx_ino, directory })
}

/// Asks a server something that no cache answers. What it refuses to tell it has answered.
fn ask_server(root: &OwnedFd, request: &Request) -> Result<(), ProbeResult> {
    match fstatvfs(root).map_err(number) {
        Ok(_) | Err(ENOSYS | EOPNOTSUPP) => Ok(()),
        Err(errno) if says_refused(errno, request) => Ok(()),
        Err(errno) => Err(failed(ProbeStep::Root)(errno)),
    }
}

/// `f_fsid` as `stat -f` prints it, padded to 16 digits.
///
/// Only where it identifies the file system. Many file systems repeat the device number there, which is
/// another one after the next mount: that is no identity, and neither is zero. FUSE and NFS always leave it
/// zero, so they are not even asked. A tmpfs has another one with every mount.
///
/// kernel: `simple_statfs`, fs/libfs.c, since 6.7; `xfs_fs_statfs`, fs/xfs/xfs_super.c; `shmem_statfs`,
/// mm/shmem.c.
fn read_fsid(root: &OwnedFd, request: &Request) -> Option<String> {
    if ["fuse", "nfs", "tmpfs"].iter().any(|family| request.fstype.starts_with(family)) {
        return None;
    }
    let fsid = fstatvfs(root).ok()?.f_fsid;
    (fsid != 0 && fsid != encoded_device(request.superblock))
        .then(|| format!("{:08x}{:08x}", fsid & 0xffff_ffff, fsid >> 32))
}

/// The UUID, of a file system on a device. A server or a daemon is not asked: it would have to answer the open.
fn read_uuid(root: &OwnedFd, request: &Request) -> Option<String> {
    if FsClass::of_type(&request.fstype) != Some(FsClass::Block) {
        return None;
    }
    sys::fs_uuid::uuid(open_root(root).ok()?.as_fd()).ok()
}

/// The root directory, open for questions that a mere place does not answer.
fn open_root(root: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(root, ".", flags, Mode::empty())
}

/// kernel: `huge_encode_dev`, include/linux/kdev_t.h.
fn encoded_device(superblock: SuperblockId) -> u64 {
    let SuperblockId { major, minor } = superblock;
    u64::from((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12))
}

/// Whether data was read, and what is wrong with the sentinel that must be there. An empty one proves that it is
/// there, not that data can be read.
fn read_sentinel(root: &OwnedFd, request: &Request) -> Result<(bool, Option<ProbeResult>), ProbeResult> {
    let default = BytePath::from(DEFAULT_SENTINEL);
    let path = request.sentinel.as_ref().map_or(&default, |sentinel| &sentinel.path);
    let reading = sentinel::read(root.as_fd(), path).map_err(number);
    let Some(configured) = &request.sentinel else {
        return match reading {
            // Nobody asked for the default one: a user may have put anything there, and that is no fault.
            Ok(reading) => Ok((matches!(reading, Reading::Content(content) if !content.is_empty()), None)),
            Err(errno) if says_refused(errno, request) => Ok((false, None)),
            Err(errno) => Err(failed(ProbeStep::Sentinel)(errno)),
        };
    };
    Ok(match reading.map_err(failed(ProbeStep::Sentinel))? {
        Reading::Absent => (false, Some(ProbeResult::SentinelMissing)),
        Reading::Unusable => (false, Some(ProbeResult::SentinelUnusable)),
        Reading::Held => (false, None),
        Reading::Content(content) => {
            let differs =
                configured.content.as_ref().is_some_and(|wanted| !sentinel::has_content(&content, wanted));
            (!content.is_empty(), differs.then_some(ProbeResult::SentinelDiffers))
        }
    })
}

/// Whether an errno says that this user may not, of a file: that is about whoever made it.
fn says_refused(errno: Errno, request: &Request) -> bool {
    let class = FsClass::of_type(&request.fstype).and_then(|class| class_of(errno, class));
    class.or(errno.class()) == Some(ErrnoClass::Refused)
}

/// For `map_err`: an errno as the end of a step.
fn failed(step: ProbeStep) -> impl FnOnce(Errno) -> ProbeResult {
    move |errno| ProbeResult::Failed { step, errno }
}

/// The core's own number.
fn number(errno: rustix::io::Errno) -> Errno {
    Errno(u16::try_from(errno.raw_os_error()).unwrap_or_default())
}

#[cfg(test)]
mod tests;
