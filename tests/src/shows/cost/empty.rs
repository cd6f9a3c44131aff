//! Programs that do nothing, on any hook: what attaching there costs by itself.

use anyhow::{Context, Result};
use aya::programs::{FExit, RawTracePoint};
use aya::{Btf, Ebpf};
use object::write::{Object, Symbol, SymbolSection};
use object::{Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope};

/// `r0 = 0; exit`.
const DO_NOTHING: [u8; 16] = [0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];

/// Attached programs; dropping them detaches.
pub(super) struct Empty {
    _programs: Vec<Ebpf>,
}

impl Empty {
    /// On the end of every system call.
    pub(super) fn attach_sys_exit() -> Result<Self> {
        let mut object = load("raw_tp/sys_exit")?;
        let program: &mut RawTracePoint =
            object.program_mut(NAME).context("no program")?.try_into().context("no raw tracepoint")?;
        program.load().context("failed to load")?;
        program.attach("sys_exit").context("failed to attach")?;
        Ok(Self { _programs: vec![object] })
    }

    /// On the ends of kernel functions.
    pub(super) fn attach_fexit(functions: &[String]) -> Result<Self> {
        let types = Btf::from_sys_fs().context("no type information")?;
        let mut programs = Vec::new();
        for function in functions {
            let mut object = load(&format!("fexit/{function}"))?;
            let program: &mut FExit =
                object.program_mut(NAME).context("no program")?.try_into().context("no fexit")?;
            program
                .load(function, &types)
                .and_then(|()| program.attach())
                .with_context(|| format!("failed to attach to {function}"))?;
            programs.push(object);
        }
        Ok(Self { _programs: programs })
    }
}

const NAME: &str = "empty";

/// An object with one such program.
fn load(section: &str) -> Result<Ebpf> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let code = object.add_section(Vec::new(), section.as_bytes().to_vec(), SectionKind::Text);
    object.append_section_data(code, &DO_NOTHING, 8);
    object.add_symbol(Symbol {
        name: NAME.as_bytes().to_vec(),
        value: 0,
        size: u64::try_from(DO_NOTHING.len())?,
        kind: SymbolKind::Text,
        scope: SymbolScope::Linkage,
        weak: false,
        section: SymbolSection::Section(code),
        flags: SymbolFlags::None,
    });
    let license = object.add_section(Vec::new(), b"license".to_vec(), SectionKind::Data);
    object.append_section_data(license, b"GPL\0", 1);
    let bytes = object.write().context("failed to write the object")?;
    Ebpf::load(&bytes).context("failed to read the object")
}
