//! Write-back errors: dirty pages that storage refused, which perhaps no program ever asks about.

use agent_common::settings::op;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;

use crate::count;
use crate::kernel_struct::{Address, device_of_superblock, follow, read};
use crate::maps::offset;
use crate::programs::calls;

/// The error's bits of an `errseq_t`. kernel: lib/errseq.c, since 4.13.
const ERROR_BITS: u32 = 0xfff;

/// kernel: tracepoint `filemap_set_wb_err`, include/trace/events/filemap.h, since 4.13.
#[raw_tracepoint(tracepoint = "filemap_set_wb_err")]
pub fn filemap_set_wb_err(ctx: RawTracePointContext) -> i32 {
    lost(ctx.arg(0), ctx.arg(1));
    0
}

#[inline(always)]
fn lost(mapping: Address, sequence: u32) -> Option<()> {
    let errno = calls::counted_errno(-i64::from(sequence & ERROR_BITS))?;
    let inode = follow(mapping, offset!(address_space_host))?;
    let own = device_of_superblock(follow(inode, offset!(inode_i_sb))?)?;
    let s_dev = if count::tracked(own).is_some() {
        own
    } else {
        // Metadata of a block-backed file system is written through the inode of its device, whose number is
        // the superblock's.
        let device: u32 = read(inode, offset!(inode_i_rdev))?;
        count::tracked(device)?;
        device
    };
    count::add_report(s_dev, errno, op::WRITEBACK);
    Some(())
}
