//! What file systems report about themselves, whether or not anybody asks. Such a report is a fact about the file
//! system, whoever's call it was that came upon it: the agent's are counted too.

use agent_common::settings::op;
use aya_ebpf::macros::{fentry, raw_tracepoint};
use aya_ebpf::programs::{FEntryContext, RawTracePointContext};

use crate::count;
use crate::kernel_struct::{Address, device_of_superblock, follow};
use crate::maps::MODULES;
use crate::programs::calls;

/// Structures on disk are damaged: the reports of ext4 carry no errno.
const EUCLEAN: u16 = 117;
/// The file system has shut down and answers no more until it is mounted anew.
const ESHUTDOWN: u16 = 108;

/// kernel: tracepoint `ext4_error(sb, function, line)`, include/trace/events/ext4.h, since 5.1.
#[raw_tracepoint(tracepoint = "ext4_error")]
pub fn ext4_error(ctx: RawTracePointContext) -> i32 {
    report(ctx.arg(0), EUCLEAN);
    0
}

/// kernel: tracepoint `ext4_shutdown(sb, flags)`, include/trace/events/ext4.h, since 4.11.
#[raw_tracepoint(tracepoint = "ext4_shutdown")]
pub fn ext4_shutdown(ctx: RawTracePointContext) -> i32 {
    report(ctx.arg(0), ESHUTDOWN);
    0
}

/// kernel: tracepoint `xfs_force_shutdown(mp, ptag, flags, name, line)`, fs/xfs/xfs_trace.h, since 5.15.
#[raw_tracepoint(tracepoint = "xfs_force_shutdown")]
pub fn xfs_force_shutdown(ctx: RawTracePointContext) -> i32 {
    xfs(ctx.arg(0));
    0
}

#[inline(always)]
fn xfs(mount: Address) -> Option<()> {
    report(follow(mount, MODULES.get(0)?.xfs_mount_m_super)?, ESHUTDOWN)
}

/// The generic report of every file system that has one. Its errno is negative.
///
/// kernel: `fserror_report(sb, inode, type, pos, len, error, gfp)`, fs/fserror.c, since 7.0.
#[fentry(function = "fserror_report")]
pub fn fserror_report(ctx: FEntryContext) -> i32 {
    generic(ctx.arg(0), i64::from(ctx.arg::<i32>(5)));
    0
}

#[inline(always)]
fn generic(superblock: Address, error: i64) -> Option<()> {
    report(superblock, calls::counted_errno(error)?)
}

#[inline(always)]
fn report(superblock: Address, errno: u16) -> Option<()> {
    let s_dev = device_of_superblock(superblock)?;
    count::tracked(s_dev)?;
    count::add_report(s_dev, errno, op::FILESYSTEM);
    Some(())
}
