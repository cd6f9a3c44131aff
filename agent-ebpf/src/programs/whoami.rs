//! Writes down who runs it. The agent runs it itself, once (`BPF_PROG_TEST_RUN`), to learn its own process id
//! in the first process id namespace, the only one that the other programs see.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;

use crate::maps::AGENT;

/// kernel: `bpf_prog_test_run_raw_tp`, net/bpf/test_run.c, since 5.10. Attached to nothing.
#[raw_tracepoint(tracepoint = "sys_enter")]
pub fn whoami(_ctx: RawTracePointContext) -> i32 {
    match AGENT.set(0, (bpf_get_current_pid_tgid() >> 32) as u32, 0) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}
