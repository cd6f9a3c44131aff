//! The first step: is the mount that was meant still the one at the path?
//!
//! Nothing here asks the file system: `O_PATH` does not open, and the identity is in the kernel's own
//! structures. So this step answers on a hung FUSE mount, and also on a dead one: it proves identity, never
//! health. (A path through another mount that hangs does hang, and NFS may revalidate when the walk enters
//! the mount.) An automount is not triggered.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};

use agent_core::id::{MountId, SuperblockId};
use agent_core::observation::{NotRun, ProbeResult, ProbeStep};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};
use rustix::io::Errno;

use super::{failed, number};
use crate::probe::protocol::Request;
use crate::sys::mountinfo::own::{OWN_TABLE, find_place};
use crate::sys::mountinfo::{Place, parse_place};

/// What the kernel says is at the path.
struct Found {
    /// Field 1 of mountinfo; `None` when neither `statx` nor `/proc` told.
    mount_id: Option<u64>,
    /// `stx_dev`: the superblock's number, except where a file system hands out its own (btrfs subvolumes).
    device: SuperblockId,
}

/// Opens the mount point as a mere place, and makes sure that it is the expected mount.
pub(super) fn open(request: &Request) -> Result<OwnedFd, ProbeResult> {
    if request.is_automount {
        check_table(request, File::open(OWN_TABLE).ok().map(BufReader::new))?;
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root =
        openat(CWD, request.mountpoint.as_bytes(), flags, Mode::empty()).map_err(|errno| match errno {
            // The table has the path and this process does not: another view, not a fault of the volume.
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG => {
                ProbeResult::NotRun(NotRun::Unreachable)
            }
            errno => failed(ProbeStep::Identity)(number(errno)),
        })?;
    let found = inspect(&root).map_err(|errno| failed(ProbeStep::Identity)(number(errno)))?;
    compare(&found, request, superblock_in_table)?;
    Ok(root)
}

/// kernel: `statx` gives the mount id whatever is asked, since 5.8 (`vfs_statx_path`, fs/stat.c). Asking for
/// nothing matters: FUSE refuses anything more to a stranger (`fuse_getattr`, fs/fuse/dir.c).
fn inspect(root: &OwnedFd) -> Result<Found, Errno> {
    let facts = statx(root, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
    let has_mount_id = StatxFlags::from_bits_retain(facts.stx_mask).contains(StatxFlags::MNT_ID);
    let mount_id = if has_mount_id { Some(facts.stx_mnt_id) } else { mount_id_from_proc(root) };
    let device = SuperblockId { major: facts.stx_dev_major, minor: facts.stx_dev_minor };
    Ok(Found { mount_id, device })
}

/// kernel: `mnt_id` in `/proc/PID/fdinfo/N`, fs/proc/fd.c, since 3.15.
fn mount_id_from_proc(root: &OwnedFd) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{}", root.as_raw_fd())).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    value.trim().parse().ok()
}

/// The mount id decides; the device guards against an id that was used again. Where the two disagree the
/// mount table is asked, since some file systems give other device numbers to `stat` than to the table.
fn compare(
    found: &Found,
    request: &Request,
    table: impl FnOnce(u64) -> Option<SuperblockId>,
) -> Result<(), ProbeResult> {
    let same_device = found.device == request.superblock;
    let superblock = match found.mount_id {
        Some(id) if MountId(u32::try_from(id).unwrap_or(u32::MAX)) == request.mount_id => {
            if same_device {
                return Ok(());
            }
            // Without a table nothing contradicts the id.
            table(id).unwrap_or(request.superblock)
        }
        Some(id) => {
            return Err(ProbeResult::WrongMount { found: table(id).unwrap_or(found.device) });
        }
        // Before 5.8 and without `/proc`: the device is all there is, and btrfs does not even have that.
        None if request.fstype == "btrfs" => request.superblock,
        None => found.device,
    };
    if superblock == request.superblock { Ok(()) } else { Err(ProbeResult::WrongMount { found: superblock }) }
}

/// Field 3 of the line of this mount, in the mount table of the worker's namespace.
fn superblock_in_table(mount_id: u64) -> Option<SuperblockId> {
    let table = BufReader::new(File::open(OWN_TABLE).ok()?);
    find_place(table, MountId(u32::try_from(mount_id).ok()?)).map(|place| place.superblock)
}

/// Makes sure, without a step on the path, that an automount has not expired since the order was made: a walk to a
/// key of an indirect map mounts it, even one that opens nothing. What is left of the race is the time of one walk.
///
/// kernel: `follow_automount`, fs/namei.c, since 2.6.38: a name that is not there yet springs the trap whatever the
/// walk is for.
fn check_table(request: &Request, table: Option<impl BufRead>) -> Result<(), ProbeResult> {
    let Some(mut table) = table else { return Ok(()) };
    let mut line = Vec::new();
    let mut above: Option<(Place, bool)> = None;
    while table.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        let place = parse_place(&line).ok().filter(|place| request.mountpoint.is_within(&place.mountpoint));
        let seen = place.map(|place| (place, is_trap(&line)));
        line.clear();
        let Some((place, is_trap)) = seen else { continue };
        if place.id == request.mount_id && place.superblock == request.superblock {
            return Ok(());
        }
        // Of several at one path the last line is the uppermost, nearly always; it is only told.
        let is_nearer = |(known, _): &(Place, bool)| place.mountpoint.is_within(&known.mountpoint);
        if above.as_ref().is_none_or(is_nearer) {
            above = Some((place, is_trap));
        }
    }
    match above {
        Some((place, false)) => Err(ProbeResult::WrongMount { found: place.superblock }),
        // Expired, as it should be: no other mount is there. The next table says it.
        Some((_, true)) | None => Err(ProbeResult::NotRun(NotRun::Unreachable)),
    }
}

/// Whether a line of the table is an automount trap's. No field has a space in it, so this can only be the type.
fn is_trap(line: &[u8]) -> bool {
    const TYPE: &[u8] = b" - autofs ";
    line.windows(TYPE.len()).any(|part| part == TYPE)
}

#[cfg(test)]
mod tests {
    use agent_core::path::BytePath;

    use super::*;

    const DISK: SuperblockId = SuperblockId { major: 8, minor: 33 };
    const OTHER: SuperblockId = SuperblockId { major: 0, minor: 61 };

    fn request(fstype: &str) -> Request {
        Request {
            mountpoint: BytePath::from("/mnt/a"),
            superblock: DISK,
            mount_id: MountId(455),
            root: BytePath::from("/"),
            fstype: String::from(fstype),
            sentinel: None,
            write: false,
            user: None,
            is_automount: false,
            planting: None,
        }
    }

    fn judge(
        mount_id: Option<u64>,
        device: SuperblockId,
        table: Option<SuperblockId>,
    ) -> Option<SuperblockId> {
        match compare(&Found { mount_id, device }, &request("ext4"), |_| table) {
            Ok(()) => None,
            Err(ProbeResult::WrongMount { found }) => Some(found),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_mount_id_that_was_used_again_is_found_out_by_the_device() {
        assert_eq!(judge(Some(455), DISK, None), None);
        assert_eq!(judge(Some(455), OTHER, Some(OTHER)), Some(OTHER));
    }

    #[test]
    fn a_file_system_with_device_numbers_of_its_own_is_recognised_by_the_table() {
        assert_eq!(judge(Some(455), OTHER, Some(DISK)), None);
        assert_eq!(judge(Some(455), OTHER, None), None);
    }

    #[test]
    fn another_mount_is_wrong_even_of_the_same_superblock() {
        assert_eq!(judge(Some(456), OTHER, Some(OTHER)), Some(OTHER));
        assert_eq!(judge(Some(456), DISK, Some(DISK)), Some(DISK));
    }

    #[test]
    fn without_a_mount_id_the_device_decides_except_on_btrfs() {
        assert_eq!(judge(None, DISK, None), None);
        assert_eq!(judge(None, OTHER, None), Some(OTHER));
        let found = Found { mount_id: None, device: OTHER };
        assert_eq!(compare(&found, &request("btrfs"), |_| None), Ok(()));
    }

    #[test]
    fn an_automount_is_walked_to_only_while_the_table_has_it() {
        let table = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\xff\n44 1 0:38 / /mnt rw - autofs a rw\n\
            455 44 8:33 / /mnt/a rw - nfs4 f:/a rw\n9 1 0:5 / /mnt/ab rw - tmpfs t rw\n";
        let mounted = request("nfs4");
        assert_eq!(check_table(&mounted, Some(&table[..])), Ok(()));
        let (before, _) = table.split_at(table.iter().position(|byte| *byte == b'5').unwrap() - 1);
        let expired = &before[..before.iter().rposition(|byte| *byte == b'\n').unwrap() + 1];
        let unreachable = Err(ProbeResult::NotRun(NotRun::Unreachable));
        assert_eq!(
            check_table(&mounted, Some(expired)),
            unreachable,
            "only the trap is left: nothing wrong is there"
        );
        let other = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n44 1 0:61 / /mnt/a rw - tmpfs autofs rw\n";
        assert_eq!(check_table(&mounted, Some(&other[..])), Err(ProbeResult::WrongMount { found: OTHER }));
        let again = Request { mount_id: MountId(456), ..mounted };
        assert_eq!(check_table(&again, Some(&table[..])), Err(ProbeResult::WrongMount { found: DISK }));
        assert_eq!(check_table(&again, None::<&[u8]>), Ok(()), "without a table nothing says no");
    }

    #[test]
    fn proc_and_statx_agree_about_the_mount_id() {
        let root = openat(CWD, "/proc", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let found = inspect(&root).unwrap();
        assert!(found.mount_id.is_some());
        assert_eq!(found.mount_id, mount_id_from_proc(&root));
        assert_eq!(superblock_in_table(found.mount_id.unwrap()), Some(found.device));
    }
}
