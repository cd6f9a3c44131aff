//! The helpers of the kernel that programs may call. A new one is a row, and its version is what the program
//! that calls it asks of a kernel.

/// One helper.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Helper {
    /// Its number.
    pub number: i32,
    /// Its name.
    pub name: &'static str,
    /// The first kernel that has it.
    pub since: (u32, u32),
    /// The programs that may call it, where not every supported kernel has it; others would be lost with it.
    pub only: Option<&'static [&'static str]>,
}

impl Helper {
    /// Whether this function of the object may call it.
    pub(super) fn is_for(&self, function: &str) -> bool {
        self.only.is_none_or(|programs| programs.contains(&function))
    }
}

const fn helper(number: i32, name: &'static str, since: (u32, u32)) -> Helper {
    Helper { number, name, since, only: None }
}

/// A helper that came later than the ring buffer. The programs have something that stands in for them on older
/// kernels.
const fn newer(
    number: i32,
    name: &'static str,
    since: (u32, u32),
    programs: &'static [&'static str],
) -> Helper {
    Helper { number, name, since, only: Some(programs) }
}

/// The generic read of memory: `bpf_probe_read`.
///
/// kernel: kernel/trace/bpf_trace.c, since 4.1; absent since 5.5 where addresses of the kernel and of programs
/// overlap (`CONFIG_ARCH_HAS_NON_OVERLAPPING_ADDRESS_SPACE`).
pub(super) const GENERIC_READ: i32 = 4;

/// What may be called.
///
/// kernel: `___BPF_FUNC_MAPPER`, include/uapi/linux/bpf.h, since 3.18.
pub(super) const ALLOWED: &[Helper] = &[
    helper(1, "bpf_map_lookup_elem", (3, 18)),
    helper(2, "bpf_map_update_elem", (3, 18)),
    helper(3, "bpf_map_delete_elem", (3, 18)),
    helper(5, "bpf_ktime_get_ns", (4, 1)),
    helper(12, "bpf_tail_call", (4, 2)),
    helper(14, "bpf_get_current_pid_tgid", (4, 2)),
    helper(16, "bpf_get_current_comm", (4, 2)),
    helper(35, "bpf_get_current_task", (4, 8)),
    helper(80, "bpf_get_current_cgroup_id", (4, 18)),
    helper(113, "bpf_probe_read_kernel", (5, 5)),
    helper(114, "bpf_probe_read_user_str", (5, 5)),
    helper(115, "bpf_probe_read_kernel_str", (5, 5)),
    helper(127, "bpf_seq_write", (5, 7)),
    helper(130, "bpf_ringbuf_output", (5, 8)),
    helper(131, "bpf_ringbuf_reserve", (5, 8)),
    helper(132, "bpf_ringbuf_submit", (5, 8)),
    newer(158, "bpf_get_current_task_btf", (5, 11), &["sigbus"]),
    newer(175, "bpf_task_pt_regs", (5, 15), &["blocked_tasks"]),
    newer(180, "bpf_find_vma", (5, 17), &["sigbus"]),
];

/// The row of a number.
pub(super) fn find(number: i32) -> Option<&'static Helper> {
    ALLOWED.iter().find(|helper| helper.number == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_once_in_order_and_the_generic_read_is_not_among_them() {
        assert!(ALLOWED.is_sorted_by(|a, b| a.number < b.number));
        assert!(find(GENERIC_READ).is_none());
        // 5.8 is the oldest kernel with a ring buffer.
        assert!(ALLOWED.iter().all(|helper| helper.since <= (5, 8) || helper.only.is_some()));
    }
}
