//! The project's own lints. Each is a file that takes the sources and returns findings.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::{root, step};
use crate::operator;

mod headings;
mod kernel_refs;
mod layers;
mod unwanted;
mod size;

/// One source file.
pub(crate) struct Source {
    /// Relative to the root of the workspace.
    pub(crate) path: PathBuf,
    /// Its text.
    pub(crate) text: String,
}

/// One lint: its name and what it finds.
type Lint = (&'static str, fn(&[Source]) -> Vec<String>);

const LINTS: &[Lint] = &[
    ("headings", headings::check),
    ("size", size::check),
    ("layers", layers::check),
    ("kernel_refs", kernel_refs::check),
    ("unwanted", unwanted::check),
];

/// Runs every lint over every source file and fails if one of them finds anything.
pub(crate) fn run() -> Result<()> {
    step("tidy");
    let mut sources = Vec::new();
    for folder in ["agent", "agent-ebpf", "xtask", "tests"] {
        collect(&root().join(folder), &mut sources)?;
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    let mut findings: Vec<String> = LINTS
        .iter()
        .flat_map(|(name, check)| {
            check(&sources).into_iter().map(move |finding| format!("{name}: {finding}"))
        })
        .collect();
    findings.extend(operator::check(&root())?.into_iter().map(|finding| format!("operator: {finding}")));
    if findings.is_empty() {
        return Ok(());
    }
    for finding in &findings {
        eprintln!("{finding}");
    }
    bail!("tidy found {} things", findings.len());
}

fn collect(folder: &Path, sources: &mut Vec<Source>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if entry.file_name() != "target" {
                collect(&path, sources)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text =
                fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
            let path = path.strip_prefix(root()).unwrap_or(&path).to_path_buf();
            sources.push(Source { path, text });
        }
    }
    Ok(())
}

/// The code of a file: without comments, and without its inline tests.
pub(crate) fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| line.trim() != "mod tests {")
        .filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with("//"))
        .map(|(number, line)| (number + 1, line))
}
