//! mountie's kernel programs: they count failed calls on tracked superblocks and say so once an interval.
//!
//! Success costs one comparison. Structures of the kernel are read only through offsets that the agent looked
//! up in the running kernel's own type information (`kernel_struct`). On the host this is an empty program, so
//! that `cargo check` and editors work without the target.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]

#[cfg(target_arch = "bpf")]
mod count;
#[cfg(target_arch = "bpf")]
mod emit;
#[cfg(target_arch = "bpf")]
mod kernel_struct;
#[cfg(target_arch = "bpf")]
mod locate;
#[cfg(target_arch = "bpf")]
mod maps;
#[cfg(target_arch = "bpf")]
mod note;
#[cfg(target_arch = "bpf")]
mod programs;
#[cfg(target_arch = "bpf")]
mod shape;
#[cfg(target_arch = "bpf")]
mod task;

/// Never reached: the verifier refuses a program in which it could be.
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The licence of the object: the helpers that read kernel memory ask for GPL compatibility.
#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(target_arch = "bpf"))]
fn main() {}
