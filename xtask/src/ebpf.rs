//! The object of the kernel programs: build it, or say precisely what is missing. The same code builds it for
//! the agent's build script.

#[path = "../../agent/build/toolchain.rs"]
mod toolchain;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

pub(crate) use toolchain::{Toolchain, bpf_linker, find};

/// Instructions that one program may have in the object. The verifier takes a million steps; a program of a few
/// thousand instructions without loops stays far below.
const MOST_INSTRUCTIONS: usize = 8000;

/// Builds the object in the place where the agent's build script has it, and says where it is.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    let object = toolchain::build(&root.join("agent-ebpf"), &root.join("target").join("ebpf"))
        .map_err(|missing| anyhow::anyhow!("{missing}\n`cargo xtask setup` installs what is missing"))?;
    check(&object)?;
    Ok(object)
}

/// Whether everything is there to build it; one line for people.
pub(crate) fn report() -> String {
    match find() {
        Ok((toolchain, linker)) => format!("kernel programs: {}, {}", toolchain.name(), linker.display()),
        Err(missing) => format!("kernel programs cannot be built: {}", missing.replace('\n', "; ")),
    }
}

/// Reads the section table: every program section is there and none is larger than the limit.
///
/// The format: ELF-64, System V ABI.
fn check(object: &Path) -> Result<()> {
    let bytes = std::fs::read(object).with_context(|| format!("failed to read {}", object.display()))?;
    let sections = sections(&bytes).with_context(|| format!("{} is no object file", object.display()))?;
    for wanted in ["raw_tp/sys_exit", "raw_tp/filemap_set_wb_err", "maps", "license", ".BTF"] {
        if !sections.iter().any(|(name, _)| name == wanted) {
            bail!("{} has no section {wanted}", object.display());
        }
    }
    for (name, size) in &sections {
        let program = name.starts_with("raw_tp/") || name.starts_with("fexit/");
        if program && size / 8 > MOST_INSTRUCTIONS {
            bail!("{name} has {} instructions, more than {MOST_INSTRUCTIONS}", size / 8);
        }
    }
    Ok(())
}

/// Name and size of every section.
fn sections(bytes: &[u8]) -> Option<Vec<(String, usize)>> {
    let number = |at: usize, size: usize| {
        let field = bytes.get(at..at.checked_add(size)?)?;
        usize::try_from(field.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte))).ok()
    };
    if bytes.get(..4)? != b"\x7fELF" {
        return None;
    }
    let (table, row, count, names) = (number(40, 8)?, number(58, 2)?, number(60, 2)?, number(62, 2)?);
    let header = |index: usize| table.checked_add(index.checked_mul(row)?);
    let strings = number(header(names)?.checked_add(24)?, 8)?;
    (0..count)
        .map(|index| {
            let at = header(index)?;
            let name = bytes.get(strings.checked_add(number(at, 4)?)?..)?.split(|byte| *byte == 0).next()?;
            Some((String::from_utf8_lossy(name).into_owned(), number(at.checked_add(32)?, 8)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_is_no_object_file() {
        for bytes in [b"".as_slice(), b"\x7fELF", &[0x7f; 200]] {
            assert!(sections(bytes).is_none());
        }
    }

    #[test]
    fn this_program_has_sections() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let sections = sections(&own).unwrap();
        assert!(sections.iter().any(|(name, size)| name == ".text" && *size > 0));
    }
}
