//! Stays on the processor for as long as something takes.
//!
//! A task that is taken off its processor in the middle of a program makes the kernel skip that program for every other
//! task there, until it goes on. Most of what programs do after an error can be kept free of that.

use core::arch::asm;

use agent_common::settings::calm;

/// Does something without being taken off the processor, where the kernel can: the agent puts calls of
/// `bpf_preempt_disable` and `bpf_preempt_enable` where these marks are, which do nothing themselves.
///
/// kernel: `bpf_preempt_disable`, kernel/bpf/helpers.c, since 6.10. The verifier sees to it that each is followed by
/// the other.
#[inline(always)]
pub fn calmly<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: a constant is put into a register that is given up, with those that a call in its place would change.
    unsafe {
        asm!(
            "r0 = {mark}", mark = const calm::BEGIN,
            lateout("r0") _, lateout("r1") _, lateout("r2") _, lateout("r3") _, lateout("r4") _, lateout("r5") _
        );
    }
    let result = work();
    // SAFETY: as above.
    unsafe {
        asm!(
            "r0 = {mark}", mark = const calm::END,
            lateout("r0") _, lateout("r1") _, lateout("r2") _, lateout("r3") _, lateout("r4") _, lateout("r5") _
        );
    }
    result
}
