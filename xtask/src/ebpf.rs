//! The object of the kernel programs: build it, or say precisely what is missing. The same code builds it for
//! the agent's build script.

mod check;
mod helpers;
mod object;
#[path = "../../agent/build/toolchain.rs"]
mod toolchain;
mod unwritten;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

pub(crate) use toolchain::{DISTRIBUTION_RUSTC, Toolchain, bpf_linker, find};

/// Builds the object in the place where the agent's build script has it, and says where it is.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    let object = toolchain::build(&root.join("agent-ebpf"), &root.join("target").join("ebpf"))
        .map_err(|missing| anyhow::anyhow!("{missing}\n`cargo xtask setup` installs what is missing"))?;
    print!("{}", examine(&object)?);
    Ok(object)
}

/// Whether everything is there to build it; one line for people.
pub(crate) fn report() -> String {
    match find() {
        Ok((toolchain, linker)) => format!("kernel programs: {}, {}", toolchain.name(), linker.display()),
        Err(missing) => format!("kernel programs cannot be built: {}", missing.replace('\n', "; ")),
    }
}

/// Checks the object and says what it is: a line for each program.
fn examine(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
    let rows = object::Program::parse(&bytes)
        .and_then(|object| check::check(&object))
        .with_context(|| format!("{} is not fit to be loaded", path.display()))?;
    let mut text = format!(
        "{:<30} {:>6} {:>6}  {:<32} deepest chain of frames\n",
        "program", "instr", "stack", "newest helper"
    );
    for row in rows {
        let newest = row.newest.map_or_else(String::new, |helper| {
            format!("{} ({}.{})", helper.name, helper.since.0, helper.since.1)
        });
        text.push_str(&format!(
            "{:<30} {:>6} {:>6}  {newest:<32} {}\n",
            row.section, row.instructions, row.deepest, row.chain
        ));
    }
    Ok(text)
}
