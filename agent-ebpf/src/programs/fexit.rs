//! The family that watches the ends of file functions through trampolines: exact, and no cost for system calls
//! that are not file calls. The return value is the word after the arguments.

use agent_common::settings::op;
use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::fexit;
use aya_ebpf::programs::FExitContext;

use crate::kernel_struct::{Address, follow};
use crate::locate::{self, Failure, Text};
use crate::maps::{COUNTED_OPENS, offset};
use crate::programs::calls;
use crate::task;

/// kernel: `vfs_read(file, buf, count, pos)`, fs/read_write.c, since 2.6; trampolines since 5.5.
#[fexit(function = "vfs_read")]
pub fn vfs_read(ctx: FExitContext) -> i32 {
    on_file(ctx.arg(4), ctx.arg(0), op::READ)
}

/// kernel: `vfs_write(file, buf, count, pos)`, fs/read_write.c, since 2.6.
#[fexit(function = "vfs_write")]
pub fn vfs_write(ctx: FExitContext) -> i32 {
    on_file(ctx.arg(4), ctx.arg(0), op::WRITE)
}

/// kernel: `vfs_fsync_range(file, start, end, datasync)`, fs/sync.c, since 2.6.33.
#[fexit(function = "vfs_fsync_range")]
pub fn vfs_fsync_range(ctx: FExitContext) -> i32 {
    on_file(i64::from(ctx.arg::<i32>(4)), ctx.arg(0), op::SYNC)
}

/// kernel: `iterate_dir(file, ctx)`, fs/readdir.c, since 3.11.
#[fexit(function = "iterate_dir")]
pub fn iterate_dir(ctx: FExitContext) -> i32 {
    on_file(i64::from(ctx.arg::<i32>(2)), ctx.arg(0), op::LIST)
}

/// kernel: `vfs_open(path, file)`, fs/open.c, since 3.6.
#[fexit(function = "vfs_open")]
pub fn vfs_open(ctx: FExitContext) -> i32 {
    let ret = i64::from(ctx.arg::<i32>(2));
    if ret < 0 && on_path(ret, ctx.arg(0), op::OPEN).is_some() {
        // `do_filp_open` returns the same error; it must not count again. A row that cannot be written costs
        // one double count.
        let _ = COUNTED_OPENS.insert(bpf_get_current_pid_tgid(), 1, u64::from(BPF_ANY));
    }
    0
}

/// kernel: `vfs_getattr(path, stat, mask, flags)`, fs/stat.c, with four arguments since 4.11.
#[fexit(function = "vfs_getattr")]
pub fn vfs_getattr(ctx: FExitContext) -> i32 {
    let ret = i64::from(ctx.arg::<i32>(4));
    if ret < 0 {
        on_path(ret, ctx.arg(0), op::STAT);
    }
    0
}

/// kernel: `filename_lookup(dfd, name, flags, path, root)`, fs/namei.c, with five arguments since 4.2.
#[fexit(function = "filename_lookup")]
pub fn filename_lookup(ctx: FExitContext) -> i32 {
    let ret = i64::from(ctx.arg::<i32>(5));
    if ret < 0 {
        on_name(ret, ctx.arg(0), ctx.arg(1), op::STAT);
    }
    0
}

/// Returns a file or an error in the guise of a pointer.
///
/// kernel: `do_filp_open(dfd, name, op)`, fs/namei.c, with these arguments since 3.10.
#[fexit(function = "do_filp_open")]
pub fn do_filp_open(ctx: FExitContext) -> i32 {
    let ret: i64 = ctx.arg(3);
    // The top 4095 addresses are errors; every other address of the kernel is far below.
    if (-4095..0).contains(&ret) && COUNTED_OPENS.remove(bpf_get_current_pid_tgid()).is_err() {
        on_name(ret, ctx.arg(0), ctx.arg(1), op::OPEN);
    }
    0
}

#[inline(always)]
fn on_file(ret: i64, file: Address, op: u8) -> i32 {
    if ret < 0 {
        if let Some(failure) = failure(ret, op) {
            calls::on_file(&failure, file);
        }
    }
    0
}

#[inline(always)]
fn failure(ret: i64, op: u8) -> Option<Failure> {
    let errno = calls::counted_errno(ret)?;
    let task = task::current();
    if task::is_agent(task) { None } else { Some(Failure { task, errno, op }) }
}

#[inline(always)]
fn on_path(ret: i64, path: Address, op: u8) -> Option<()> {
    let failure = failure(ret, op)?;
    if calls::on_mount(&failure, follow(path, offset!(path_mnt))?) { Some(()) } else { None }
}

#[inline(always)]
fn on_name(ret: i64, dir: i32, name: Address, op: u8) -> Option<()> {
    let failure = failure(ret, op)?;
    let text = Text::Kernel(follow(name, offset!(filename_name))?);
    let key = locate::scratch()?;
    let placed = locate::by_name(&failure, dir, text, key)?;
    calls::on_name(&failure, dir, placed, key);
    Some(())
}
