//! Reads of the stack that some way through a function reaches before anything was written there. Compilers make them
//! of values that are not used on that way; the kernel takes them, from programs with all rights, since 6.3 only.
//!
//! kernel: `check_stack_read_fixed_off`, kernel/bpf/verifier.c; `allow_uninit_stack`, since 6.3.

use std::collections::BTreeMap;
use std::ops::Range;

use super::object::{CALL, CALL_HELPER, Function, Instruction, LOAD_ADDRESS};

/// Bytes of stack that a function can have.
///
/// kernel: `MAX_BPF_STACK`, include/linux/filter.h, since 3.18.
const STACK: i32 = 512;
/// Register 10 points to the end of the frame.
const FRAME: u8 = 10;
/// Registers that a call takes its arguments in.
const ARGUMENTS: Range<u8> = 1..6;

/// Helpers that are given addresses and write to none of them: `bpf_map_lookup_elem`, `bpf_map_update_elem`,
/// `bpf_map_delete_elem`.
///
/// kernel: `bpf_map_lookup_elem_proto` and what follows, kernel/bpf/helpers.c, since 3.18.
const READERS: Range<i32> = 1..4;

/// `r? = r?` and `r? += constant` of 64 bits, `r? = constant` of both widths.
const MOVE: u8 = 0xbf;
const ADD: u8 = 0x07;
const CONSTANTS: [u8; 2] = [0xb7, 0xb4];
/// Jumps without a condition, with the distance in the offset and in the constant; and the end.
const JUMP: u8 = 0x05;
const FAR_JUMP: u8 = 0x06;
const EXIT: u8 = 0x95;

/// The lower three bits of an opcode.
mod class {
    pub(super) const LOAD: u8 = 1;
    pub(super) const STORE_CONSTANT: u8 = 2;
    pub(super) const STORE: u8 = 3;
    pub(super) const ARITHMETIC_32: u8 = 4;
    pub(super) const JUMP: u8 = 5;
    pub(super) const JUMP_32: u8 = 6;
    pub(super) const ARITHMETIC: u8 = 7;
}

/// What is known of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Register {
    /// An address so far from the end of the frame.
    Frame(i32),
    /// A number.
    Constant(i32),
}

/// What holds before an instruction, whichever way led there.
#[derive(Clone, PartialEq, Eq, Debug)]
struct State {
    registers: BTreeMap<u8, Register>,
    /// For each byte of the stack, from its lowest on, whether it was written.
    written: Vec<bool>,
}

impl State {
    fn at_entry() -> Self {
        let registers = BTreeMap::from([(FRAME, Register::Frame(0))]);
        Self { registers, written: (0..STACK).map(|_| false).collect() }
    }

    /// Keeps what both know; whether that is less than before.
    fn meet(&mut self, other: &Self) -> bool {
        let before = self.clone();
        self.registers.retain(|number, known| other.registers.get(number) == Some(known));
        for (own, others) in self.written.iter_mut().zip(&other.written) {
            *own &= others;
        }
        *self != before
    }

    fn bytes(from: i32, size: i32) -> Range<usize> {
        let place = |at: i32| usize::try_from(at.saturating_add(STACK).clamp(0, STACK)).unwrap_or(0);
        place(from)..place(from.saturating_add(size))
    }

    fn write(&mut self, from: i32, size: i32) {
        let bytes = self.written.get_mut(Self::bytes(from, size));
        bytes.into_iter().flatten().for_each(|byte| *byte = true);
    }

    fn is_written(&self, from: i32, size: i32) -> bool {
        self.written.get(Self::bytes(from, size)).is_some_and(|bytes| bytes.iter().all(|byte| *byte))
    }

    /// How far from the end of the frame an access through a register is, if it is one to the frame.
    fn place(&self, register: u8, offset: i16) -> Option<i32> {
        match self.registers.get(&register) {
            Some(Register::Frame(base)) => Some(base.saturating_add(i32::from(offset))),
            Some(Register::Constant(_)) | None => None,
        }
    }

    fn set(&mut self, register: u8, value: Option<Register>) {
        match value {
            Some(value) => self.registers.insert(register, value),
            None => self.registers.remove(&register),
        };
    }

    /// Does what an instruction does.
    fn step(&mut self, instruction: &Instruction) {
        let Instruction { opcode, destination, source, offset, immediate } = *instruction;
        match (opcode, opcode & 7) {
            (CALL, _) => self.call(source, immediate),
            (MOVE, _) => self.set(destination, self.registers.get(&source).copied()),
            (ADD, _) => {
                let moved = self.place(destination, 0).map(|base| base.saturating_add(immediate));
                self.set(destination, moved.map(Register::Frame));
            }
            _ if CONSTANTS.contains(&opcode) => self.set(destination, Some(Register::Constant(immediate))),
            (_, class::STORE_CONSTANT | class::STORE) => {
                if let Some(place) = self.place(destination, offset) {
                    self.write(place, width(opcode));
                }
            }
            (_, class::JUMP | class::JUMP_32) => {}
            (LOAD_ADDRESS, _) | (_, class::LOAD | class::ARITHMETIC_32 | class::ARITHMETIC) => {
                self.set(destination, None);
            }
            _ => {}
        }
    }

    /// What is called may write from each address it is given, as much as the next argument says, or all there is.
    fn call(&mut self, kind: u8, number: i32) {
        let writes = kind != CALL_HELPER || !READERS.contains(&number);
        for argument in ARGUMENTS.filter(|_| writes) {
            if let Some(place) = self.place(argument, 0) {
                let size = match self.registers.get(&argument.saturating_add(1)) {
                    Some(Register::Constant(size)) if kind == CALL_HELPER => *size,
                    Some(Register::Constant(_) | Register::Frame(_)) | None => STACK,
                };
                self.write(place, size);
            }
        }
        self.registers.retain(|register, _| !ARGUMENTS.contains(register) && *register != 0);
    }
}

/// Bytes of a memory access.
const fn width(opcode: u8) -> i32 {
    match opcode & 0x18 {
        0x00 => 4,
        0x08 => 2,
        0x10 => 1,
        _ => 8,
    }
}

/// Every such read of a function: the number of the instruction, and how far from the end of the frame.
pub(super) fn reads(function: &Function) -> Vec<(usize, i32)> {
    let code = &function.code;
    let mut states = BTreeMap::from([(0, State::at_entry())]);
    let mut next = vec![0];
    while let Some(at) = next.pop() {
        let (Some(instruction), Some(mut state)) = (code.get(at), states.get(&at).cloned()) else { continue };
        state.step(instruction);
        for follower in followers(at, instruction) {
            let changed = match states.get_mut(&follower) {
                Some(known) => known.meet(&state),
                None => states.insert(follower, state.clone()).is_none(),
            };
            if changed {
                next.push(follower);
            }
        }
    }
    let read = |(at, state): (&usize, &State)| {
        let instruction = code.get(*at)?;
        let is_load = instruction.opcode & 7 == class::LOAD;
        let place = state.place(instruction.source, instruction.offset).filter(|_| is_load)?;
        (!state.is_written(place, width(instruction.opcode))).then_some((*at, place))
    };
    states.iter().filter_map(read).collect()
}

/// Where a function goes on after an instruction.
fn followers(at: usize, instruction: &Instruction) -> impl Iterator<Item = usize> {
    let (opcode, offset) = (instruction.opcode, i64::from(instruction.offset));
    let by = |distance: i64| {
        i64::try_from(at).ok().and_then(|at| at.checked_add(1)?.checked_add(distance)).map(usize::try_from)
    };
    let (first, second) = match (opcode, opcode & 7) {
        (EXIT, _) => (None, None),
        (LOAD_ADDRESS, _) => (by(1), None),
        (JUMP, _) => (by(offset), None),
        (FAR_JUMP, _) => (by(i64::from(instruction.immediate)), None),
        (CALL, _) => (by(0), None),
        (_, class::JUMP | class::JUMP_32) => (by(0), by(offset)),
        _ => (by(0), None),
    };
    [first, second].into_iter().flatten().filter_map(Result::ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(rows: &[(u8, u8, u8, i16, i32)]) -> Vec<(usize, i32)> {
        let code = rows.iter().map(|(opcode, destination, source, offset, immediate)| Instruction {
            opcode: *opcode,
            destination: *destination,
            source: *source,
            offset: *offset,
            immediate: *immediate,
        });
        let (name, section) = ("own".to_owned(), "fexit".to_owned());
        reads(&Function { name, section, code: code.collect(), callees: Vec::new() })
    }

    /// `*(u64 *)(r10 + place) = r1` and `r6 = *(u64 *)(r10 + place)`.
    const fn store(place: i16) -> (u8, u8, u8, i16, i32) {
        (0x7b, FRAME, 1, place, 0)
    }
    const fn load(place: i16) -> (u8, u8, u8, i16, i32) {
        (0x79, 6, FRAME, place, 0)
    }
    const END: (u8, u8, u8, i16, i32) = (EXIT, 0, 0, 0, 0);

    #[test]
    fn what_only_one_of_two_ways_has_written_is_found() {
        let skip = (0x15, 1, 0, 1, 0);
        assert_eq!(code(&[skip, store(-8), load(-8), END]), [(2, -8)]);
        assert_eq!(code(&[store(-8), skip, store(-8), load(-8), END]), []);
        // A half of it is not all of it.
        assert_eq!(code(&[(0x63, FRAME, 1, -8, 0), load(-8), END]), [(1, -8)]);
    }

    #[test]
    fn a_loop_is_followed_to_its_end() {
        let back = (0x15, 1, 0, -3, 0);
        assert_eq!(code(&[(0xb7, 1, 0, 0, 1), load(-16), store(-16), back, END]), [(1, -16)]);
        assert_eq!(code(&[store(-16), load(-16), (0x15, 1, 0, -2, 0), END]), []);
    }

    #[test]
    fn a_helper_writes_where_and_as_much_as_it_is_told() {
        let address = [(MOVE, 1, FRAME, 0, 0), (ADD, 1, 0, 0, -24), (0xb7, 2, 0, 0, 8)];
        let called =
            |helper, place| code(&[&address[..], &[(CALL, 0, 0, 0, helper), load(place), END]].concat());
        assert_eq!(called(113, -24), []);
        assert_eq!(called(113, -16), [(4, -16)]);
        // A key is read.
        assert_eq!(called(1, -24), [(4, -24)]);
    }
}
