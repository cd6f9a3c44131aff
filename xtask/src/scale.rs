//! `prometheus-node-exporter` for the measurement of a node of many mounts: unpacked beside the build, not installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{must, need_root, root, step};
use crate::shows;

const PACKAGE: &str = "prometheus-node-exporter";
const TABLE: &str = "tests/SCALE.md";

/// Measures, and writes the table.
pub(crate) fn run() -> Result<()> {
    need_root("bench scale")?;
    let folder = root().join("target/scale");
    let program = match exporter(&folder) {
        Ok(program) => Some(program),
        Err(error) => {
            eprintln!("without {PACKAGE}: {error:#}");
            None
        }
    };
    let table = root().join(TABLE);
    let mut settings = vec![("SHOW_OUTPUT", table.as_path())];
    settings.extend(program.as_deref().map(|program| ("NODE_EXPORTER", program)));
    shows::run_with("scale", 1, &settings)
}

/// The program, downloaded once.
fn exporter(folder: &Path) -> Result<PathBuf> {
    let unpacked = folder.join("node-exporter");
    let program = unpacked.join("usr/bin").join(PACKAGE);
    if program.is_file() {
        return Ok(program);
    }
    step(&format!("downloading {PACKAGE}"));
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    must(Command::new("apt-get").args(["download", "--quiet", PACKAGE]).current_dir(folder))?;
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let archive = entries.flatten().map(|entry| entry.path()).find(|path| is_archive(path));
    let archive = archive.context("apt-get downloaded nothing")?;
    must(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(&unpacked))?;
    if !program.is_file() {
        bail!("{} has no {PACKAGE}", archive.display());
    }
    Ok(program)
}

fn is_archive(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with(PACKAGE) && name.ends_with(".deb")
}
