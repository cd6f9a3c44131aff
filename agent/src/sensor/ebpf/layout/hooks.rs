//! What differs between kernels by more than an offset: arguments of tracepoints, and ways from one structure to
//! another.

use super::{BtfError, Group, KernelTypes, Layout};

impl Layout {
    /// Fills in what the table of fields cannot say.
    pub(super) fn finish_hooks(&mut self, types: &KernelTypes) {
        // An unknown page size cannot be: the C library knows it from the kernel's own start-up words.
        if let Ok(Some(size)) = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE) {
            self.offsets.page_shift = size.unsigned_abs().trailing_zeros();
        }
        // kernel: `bpf_find_vma`, kernel/bpf/task_iter.c, since 5.17. Without it the verifier would only say that it
        // does not know what to do with the callback.
        self.field(types.function("bpf_find_vma").map(|_| 0), Group::Vma, |_, _| ());
        // kernel: `bpf_task_pt_regs`, kernel/trace/bpf_trace.c, since 5.15. Without it the verifier would only say that
        // a call is invalid, as it does for other reasons.
        self.field(types.function("bpf_task_pt_regs").map(|_| 0), Group::Wait, |_, _| ());
        self.finish_faults(types);
        for (group, shape) in IO_SHAPES {
            let found = types.tracepoint_arguments("io_uring_complete").and_then(|arguments| {
                has_shape(&arguments, shape).then_some(0).ok_or_else(|| BtfError::OtherArguments {
                    tracepoint: "io_uring_complete".to_owned(),
                    wanted: shape.iter().map(|(_, kind)| *kind).collect::<Vec<_>>().join(", "),
                })
            });
            self.field(found, *group, |_, _| ());
        }
        self.disk(types);
        self.device_of_bio(types);
        let arguments = types
            .tracepoint_arguments("block_rq_error")
            .or_else(|_| types.tracepoint_arguments("block_rq_complete"));
        self.offsets.request_errno =
            u32::from(arguments.is_ok_and(|types| !types.iter().any(|kind| kind == "blk_status_t")));
    }

    /// What the processor says of a page fault. Where it is not found any fault may have been a store.
    ///
    /// kernel: `thread_struct::error_code`, arch/x86/include/asm/processor.h, `X86_PF_WRITE` (2), all versions;
    /// `thread_struct::fault_code`, arch/arm64/include/asm/processor.h, `ESR_ELx_WNR` (bit 6), since 3.7.
    fn finish_faults(&mut self, types: &KernelTypes) {
        let (member, mask) =
            if cfg!(target_arch = "aarch64") { ("fault_code", 1 << 6) } else { ("error_code", 2) };
        let outer = types.offset("task_struct", "thread");
        if let (Ok(outer), Ok(inner)) = (outer, types.offset("thread_struct", member)) {
            self.offsets.task_fault_code = outer.saturating_add(inner);
            self.offsets.fault_store_mask = mask;
        }
    }

    /// kernel: `request::rq_disk`, include/linux/blkdev.h, until 5.16; `request_queue::disk`, since 5.15.
    fn disk(&mut self, types: &KernelTypes) {
        if let Ok(offset) = types.offset("request", "rq_disk") {
            self.offsets.request_disk = offset;
            return;
        }
        self.offsets.disk_in_queue = 1;
        self.field(types.offset("request", "q"), Group::Block, |offsets, at| offsets.request_disk = at);
        let disk = types.offset("request_queue", "disk");
        self.field(disk, Group::Block, |offsets, at| offsets.request_queue_disk = at);
    }

    /// kernel: `bio::bi_bdev`, include/linux/blk_types.h, since 5.12; before, `bi_disk` and `bi_partno`, which is 0 as
    /// soon as the request is on its way to the disk (`blk_partition_remap`, block/blk-core.c). So there the programs
    /// know no more than the disk of the request.
    fn device_of_bio(&mut self, types: &KernelTypes) {
        if types.offset("bio", "bi_partno").is_ok() {
            return;
        }
        self.field(types.offset("bio", "bi_bdev"), Group::Block, |offsets, at| offsets.bio_bi_bdev = at);
        let number = types.offset("block_device", "bd_dev");
        self.field(number, Group::Block, |offsets, at| offsets.block_device_bd_dev = at);
    }
}

/// Positions and types of arguments; `*` is any pointer.
type Shape = &'static [(usize, &'static str)];

/// The ways in which `io_uring_complete` has told the request and its result. Each is read by a program of its own: the
/// verifier knows no position that is a variable.
const IO_SHAPES: &[(Group, Shape)] = &[
    (Group::IoResult, &[(1, "*"), (2, "u64"), (3, "int")]),
    (Group::IoEntry, &[(1, "*"), (2, "struct io_uring_cqe *")]),
];

fn has_shape(arguments: &[String], shape: Shape) -> bool {
    shape.iter().all(|(at, wanted)| {
        arguments.get(*at).is_some_and(|kind| kind == wanted || (*wanted == "*" && kind.ends_with('*')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_has_one_shape_of_io_uring_complete_or_none() {
        let kernels: [(&[&str], Option<Group>); 4] = [
            (&["void *", "u64", "int", "unsigned int"], None),
            (&["void *", "void *", "u64", "int", "unsigned int", "u64", "u64"], Some(Group::IoResult)),
            (&["struct io_ring_ctx *", "void *", "struct io_uring_cqe *"], Some(Group::IoEntry)),
            (&[], None),
        ];
        for (arguments, expected) in kernels {
            let arguments: Vec<String> = arguments.iter().map(|kind| (*kind).to_owned()).collect();
            let shapes = IO_SHAPES.iter().filter(|(_, shape)| has_shape(&arguments, shape));
            let found: Vec<Group> = shapes.map(|(group, _)| *group).collect();
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{arguments:?}");
        }
    }
}
