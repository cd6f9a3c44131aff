//! The built object as functions made of instructions, with calls resolved. Reads; judges nothing.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use object::read::elf::ElfFile64;
use object::{
    Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionIndex,
    SectionKind, SymbolKind,
};

/// Bytes of an instruction.
///
/// kernel: `struct bpf_insn`, include/uapi/linux/bpf.h, since 3.18.
const SIZE: u64 = 8;

/// The opcode of every kind of call; the source register tells which kind.
///
/// kernel: `BPF_PSEUDO_CALL`, include/uapi/linux/bpf.h, since 4.16.
pub(super) const CALL: u8 = 0x85;
/// A call of a helper, by number.
pub(super) const CALL_HELPER: u8 = 0;
/// A call of another function of the object.
pub(super) const CALL_FUNCTION: u8 = 1;

/// The opcode that loads an address, in two instructions; where a relocation names a function, it is that function's:
/// a helper gets it as its callback, and the kernel counts its frame like that of a callee.
///
/// kernel: `BPF_PSEUDO_FUNC`, include/uapi/linux/bpf.h, since 5.13; `check_max_stack_depth`, kernel/bpf/verifier.c.
pub(super) const LOAD_ADDRESS: u8 = 0x18;

/// One instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Instruction {
    /// What it does.
    pub opcode: u8,
    /// The register it writes.
    pub destination: u8,
    /// The register it reads.
    pub source: u8,
    /// Offset of a memory access.
    pub offset: i16,
    /// The constant.
    pub immediate: i32,
}

/// One function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Function {
    /// Its symbol.
    pub name: String,
    /// The section it lies in.
    pub section: String,
    /// Its code.
    pub code: Vec<Instruction>,
    /// Functions it calls or has called by helpers, by their place in the list of all; `None` for a call that leads nowhere.
    pub callees: Vec<Option<usize>>,
}

impl Function {
    /// Whether the kernel calls it: everything but what is only called by programs.
    pub(super) fn is_program(&self) -> bool {
        self.section != ".text"
    }
}

/// The object, as far as the checks need it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Program {
    /// Names of all sections.
    pub sections: Vec<String>,
    /// Every function, programs and others.
    pub functions: Vec<Function>,
}

/// Where functions begin: by section and byte.
type Starts = BTreeMap<(usize, u64), usize>;

/// Calls that the linker left to the loader: byte in the section to where the symbol is.
type Relocations = BTreeMap<u64, (usize, u64)>;

impl Program {
    /// Reads a relocatable ELF-64 object for the kernel's machine.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let file = ElfFile64::<Endianness>::parse(bytes).context("it is no 64-bit ELF file")?;
        if file.architecture() != object::Architecture::Bpf {
            bail!("it is for {:?} and not for the kernel's machine", file.architecture());
        }
        let mut found = Vec::new();
        let mut starts = Starts::new();
        let is_function = |symbol: &object::read::elf::ElfSymbol64<'_, '_, Endianness>| {
            symbol.kind() == SymbolKind::Text && symbol.size() > 0
        };
        for symbol in file.symbols().filter(is_function) {
            let section = symbol.section_index().context("a function without a section")?;
            if starts.insert((section.0, symbol.address()), found.len()).is_none() {
                found.push((section, symbol.address(), symbol.size(), symbol.name()?.to_owned()));
            }
        }
        let mut functions = Vec::new();
        for (section, start, size, name) in found {
            functions.push(function(&file, &starts, section, (start, size), name)?);
        }
        let code: u64 = file.sections().filter(|s| s.kind() == SectionKind::Text).map(|s| s.size()).sum();
        let known: usize = functions.iter().map(|function| function.code.len()).sum();
        if code / SIZE != u64::try_from(known)? {
            bail!("{} instructions belong to no function", (code / SIZE).abs_diff(u64::try_from(known)?));
        }
        let sections =
            file.sections().map(|section| Ok(section.name()?.to_owned())).collect::<Result<_>>()?;
        Ok(Self { sections, functions })
    }
}

fn function(
    file: &ElfFile64<'_, Endianness>,
    starts: &Starts,
    section: SectionIndex,
    (start, size): (u64, u64),
    name: String,
) -> Result<Function> {
    let index = section.0;
    let section = file.section_by_index(section)?;
    let relocations = relocations(file, &section)?;
    let data = section.data()?;
    let range = usize::try_from(start)?..usize::try_from(start.saturating_add(size))?;
    let bytes = data.get(range).with_context(|| format!("{name} ends beyond its section"))?;
    let code: Vec<Instruction> =
        bytes.as_chunks().0.iter().map(|bytes| decode(*bytes, file.is_little_endian())).collect();
    let callees = code.iter().enumerate().filter_map(|(at, instruction)| {
        let at = start.saturating_add(u64::try_from(at).ok()?.saturating_mul(SIZE));
        callee(instruction, (index, at), relocations.get(&at).copied(), starts)
    });
    let callees = callees.collect();
    Ok(Function { name, section: section.name()?.to_owned(), code, callees })
}

/// The function that an instruction at a place calls, or hands on to be called; the inner `None` for one that leads
/// nowhere, the outer one for any other instruction.
#[expect(clippy::option_option, reason = "a call that leads nowhere is told from what is no call")]
fn callee(
    instruction: &Instruction,
    place: (usize, u64),
    target: Option<(usize, u64)>,
    starts: &Starts,
) -> Option<Option<usize>> {
    let found = |section: usize, base: u64, away: Option<i64>| {
        starts.get(&(section, base.checked_add_signed(away?)?)).copied()
    };
    match (instruction.opcode, instruction.source) {
        (CALL, CALL_FUNCTION) => {
            // Counted from the instruction after the call; with a symbol, from the symbol, which the call's own
            // constant is one short of.
            let after =
                i64::from(instruction.immediate).checked_add(1).and_then(|after| after.checked_mul(8));
            let (section, base) = target.unwrap_or(place);
            Some(found(section, base, after))
        }
        (LOAD_ADDRESS, _) => {
            let (section, base) = target.filter(|(section, _)| has_functions(starts, *section))?;
            Some(found(section, base, Some(i64::from(instruction.immediate))))
        }
        _ => None,
    }
}

fn has_functions(starts: &Starts, section: usize) -> bool {
    starts.range((section, 0)..=(section, u64::MAX)).next().is_some()
}

fn relocations<'a>(
    file: &ElfFile64<'a, Endianness>,
    section: &object::read::elf::ElfSection64<'a, '_, Endianness>,
) -> Result<Relocations> {
    let mut found = Relocations::new();
    for (at, relocation) in section.relocations() {
        let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
        let symbol = file.symbol_by_index(symbol)?;
        if let Some(section) = symbol.section_index() {
            found.insert(at, (section.0, symbol.address()));
        }
    }
    Ok(found)
}

const fn decode(bytes: [u8; 8], little: bool) -> Instruction {
    let [opcode, registers, o0, o1, i0, i1, i2, i3] = bytes;
    let (low, high) = (registers & 15, registers >> 4);
    let (destination, source) = if little { (low, high) } else { (high, low) };
    let offset = if little { i16::from_le_bytes([o0, o1]) } else { i16::from_be_bytes([o0, o1]) };
    let constant = [i0, i1, i2, i3];
    let immediate = if little { i32::from_le_bytes(constant) } else { i32::from_be_bytes(constant) };
    Instruction { opcode, destination, source, offset, immediate }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_is_no_object() {
        for bytes in [b"".as_slice(), b"\x7fELF", &[0x7f; 200]] {
            assert!(Program::parse(bytes).is_err());
        }
    }

    #[test]
    fn an_object_for_another_machine_is_refused() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(Program::parse(&own).unwrap_err().to_string().contains("not for the kernel's machine"));
    }

    #[test]
    fn a_callback_is_a_callee_and_the_address_of_a_map_is_none() {
        let starts = Starts::from([((1, 0), 0), ((1, 64), 1), ((2, 0), 2)]);
        let load = |immediate| decode([LOAD_ADDRESS, 1, 0, 0, immediate, 0, 0, 0], true);
        // By the symbol of the function, or by that of its section and the place in it.
        assert_eq!(callee(&load(0), (2, 8), Some((1, 64)), &starts), Some(Some(1)));
        assert_eq!(callee(&load(64), (2, 8), Some((1, 0)), &starts), Some(Some(1)));
        assert_eq!(callee(&load(8), (2, 8), Some((1, 0)), &starts), Some(None));
        assert_eq!(callee(&load(0), (2, 8), Some((7, 0)), &starts), None);
        assert_eq!(callee(&load(0), (2, 8), None, &starts), None);
        let call = decode([CALL, 0x10, 0, 0, 0xff, 0xff, 0xff, 0xff], true);
        assert_eq!(callee(&call, (2, 8), Some((1, 64)), &starts), Some(Some(1)));
    }

    #[test]
    fn registers_and_constants_are_where_the_byte_order_has_them() {
        let little = decode([0x85, 0x10, 0, 0, 0xfe, 0xff, 0xff, 0xff], true);
        assert_eq!((little.source, little.destination, little.immediate), (1, 0, -2));
        let big = decode([0x7b, 0xa1, 0xff, 0xf8, 0, 0, 0, 0], false);
        assert_eq!((big.destination, big.source, big.offset), (10, 1, -8));
    }
}
