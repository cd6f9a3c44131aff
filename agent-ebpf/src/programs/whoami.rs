//! Writes down who runs it. The agent runs it itself, once (`BPF_PROG_TEST_RUN`), to learn its own process id
//! in the first process id namespace, the only one that the other programs see; and to learn whether the offsets
//! it was given are those of this kernel: with others every program would run, and count nothing.

use agent_common::settings::WRONG_OFFSETS;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;

use crate::kernel_struct::read;
use crate::maps::{AGENT, offset};
use crate::task;

/// kernel: `bpf_prog_test_run_raw_tp`, net/bpf/test_run.c, since 5.10. Attached to nothing.
#[raw_tracepoint(tracepoint = "sys_enter")]
pub fn whoami(_ctx: RawTracePointContext) -> i32 {
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    let place = offset!(task_tgid);
    // No offset: there are no types at all, and the programs that need them are off.
    let fits = place == 0 || read::<u32>(task::current(), place) == Some(tgid);
    match AGENT.set(0, if fits { tgid } else { WRONG_OFFSETS }, 0) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}
