//! What hooks have in common after an error: by file or by mount, then count.

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

/// Counts a failure on an open file; whether it was on something tracked.
#[inline(always)]
pub fn on_file(failure: &Failure, file: Address) -> bool {
    match kernel_struct::mount_of_file(file) {
        Some(mount) => on_mount(failure, mount),
        None => false,
    }
}

/// Counts a failure on an open file of a request whose owner is not known here.
#[inline(always)]
pub fn on_file_of_nobody(failure: &Failure, file: Address) -> Option<()> {
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
