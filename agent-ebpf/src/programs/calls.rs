//! What hooks have in common after an error: by file or by mount, then count.

use agent_common::settings::op;

use crate::kernel_struct::{self, Address};
use crate::locate::{self, Failure};
use crate::{count, maps};

/// The positive number of an error that is counted, out of a return value.
#[inline(always)]
pub fn counted_errno(ret: i64) -> Option<u16> {
    let number = ret.wrapping_neg();
    if !(1..4096).contains(&number) {
        return None;
    }
    Some(number as u16).filter(|errno| maps::is_counted(*errno))
}

/// Whether a call of this kind is answered by what is behind the file, and that is not the file system: a device, or
/// whoever has the other end. Attributes are the file system's own, whatever they are of.
#[inline(always)]
pub fn is_answered_elsewhere(op: u8, file: Address) -> bool {
    !matches!(op, op::STAT | op::CHANGE) && kernel_struct::is_special(kernel_struct::path_of_file(file))
}

/// Counts a failure on an open file; whether it was on something tracked.
#[inline(always)]
pub fn on_file(failure: &Failure, file: Address) -> bool {
    if is_answered_elsewhere(failure.op, file) {
        return false;
    }
    match kernel_struct::mount_of_file(file) {
        Some(mount) => on_mount(failure, mount),
        None => false,
    }
}

/// Counts a failure on an open file of a request whose owner is not known here.
#[inline(always)]
pub fn on_file_of_nobody(failure: &Failure, file: Address) -> Option<()> {
    if is_answered_elsewhere(failure.op, file) {
        return None;
    }
    let (s_dev, root_ino, _) = locate::by_mount(kernel_struct::mount_of_file(file)?)?;
    count::add_unowned(&failure.key(s_dev, root_ino));
    Some(())
}

/// Counts a failure on a `vfsmount`; whether it was on something tracked.
#[inline(always)]
pub fn on_mount(failure: &Failure, mount: Address) -> bool {
    let Some((s_dev, root_ino, _)) = locate::by_mount(mount) else {
        return false;
    };
    count::add(&failure.key(s_dev, root_ino), failure.task);
    true
}
