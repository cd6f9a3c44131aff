//! Puts calls of the running kernel's own functions into the object, where programs should not be taken off their
//! processor. The library knows no such calls, so the object gets them before it is loaded.

use std::borrow::Cow;

use agent_common::settings::calm;

use crate::kernel::btf::KernelTypes;

/// The functions behind the marks.
///
/// kernel: `bpf_preempt_disable`, `bpf_preempt_enable`, kernel/bpf/helpers.c, since 6.10.
const FUNCTIONS: [(i32, &str); 2] = [(calm::BEGIN, "bpf_preempt_disable"), (calm::END, "bpf_preempt_enable")];

/// Bytes of an instruction.
const INSTRUCTION: usize = 8;

/// The object for a kernel: with calls where it has the functions, as it is where it does not.
pub(super) fn prepare<'a>(object: &'a [u8], types: &KernelTypes) -> Cow<'a, [u8]> {
    let known = FUNCTIONS.map(|(mark, name)| types.function(name).ok().map(|function| (mark, function.id)));
    match known {
        [Some(begin), Some(end)] => Cow::Owned(replace(object, &[begin, end])),
        _ => Cow::Borrowed(object),
    }
}

/// Puts a call of the function with that number in the place of each mark.
fn replace(object: &[u8], numbers: &[(i32, u32)]) -> Vec<u8> {
    let mut changed = object.to_vec();
    // Sections of programs are aligned to whole instructions.
    for place in changed.chunks_exact_mut(INSTRUCTION) {
        if let Some((_, number)) = numbers.iter().find(|(mark, _)| *place == constant(*mark)) {
            place.copy_from_slice(&call(*number));
        }
    }
    changed
}

/// `r0 = constant`, 64 bits.
fn constant(value: i32) -> [u8; INSTRUCTION] {
    instruction(0xb7, 0, value.cast_unsigned())
}

/// A call of a function of the kernel by its number among the kernel's types.
///
/// kernel: `BPF_PSEUDO_KFUNC_CALL`, include/uapi/linux/bpf.h, since 5.13.
fn call(number: u32) -> [u8; INSTRUCTION] {
    instruction(0x85, 0x20, number)
}

/// Programs are for machines of this one's byte order.
fn instruction(code: u8, registers: u8, constant: u32) -> [u8; INSTRUCTION] {
    let [a, b, c, d] = constant.to_ne_bytes();
    [code, registers, 0, 0, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::super::loader::OBJECT;
    use super::*;

    fn count(object: &[u8], wanted: [u8; INSTRUCTION]) -> usize {
        object.chunks_exact(INSTRUCTION).filter(|place| **place == wanted).count()
    }

    #[test]
    fn every_mark_of_the_object_becomes_a_call_and_nothing_else_changes() {
        if OBJECT.is_empty() {
            eprintln!("skipped: built without kernel programs");
            return;
        }
        let numbers = [(calm::BEGIN, 0x0123_4567), (calm::END, 0x0765_4321)];
        let changed = replace(OBJECT, &numbers);
        for (mark, number) in numbers {
            // `vfs_read`, `vfs_write`, and what counts calls.
            assert_eq!(count(OBJECT, constant(mark)), 3);
            assert_eq!((count(&changed, constant(mark)), count(&changed, call(number))), (0, 3));
        }
        let differing = OBJECT.chunks(INSTRUCTION).zip(changed.chunks(INSTRUCTION)).filter(|(a, b)| a != b);
        assert_eq!((changed.len(), differing.count()), (OBJECT.len(), 6));
    }

    #[test]
    fn a_kernel_without_the_functions_gets_the_object_as_it_is() {
        let Ok(types) = KernelTypes::open(std::path::Path::new(crate::kernel::btf::VMLINUX)) else {
            eprintln!("skipped: no type information here");
            return;
        };
        let has = FUNCTIONS.iter().all(|(_, name)| types.function(name).is_ok());
        assert_eq!(matches!(prepare(OBJECT, &types), Cow::Owned(_)), has);
    }
}
