//! The licences of everything that is linked into the program, with their texts: most of them ask for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{Scene, binary};
use crate::command::{cargo, root};
use crate::quietly::quiet;

/// Beginnings of the names of files that hold a licence.
const NAMES: [&str; 5] = ["license", "licence", "copying", "notice", "unlicense"];
/// What is linked besides crates.
const ALSO: &str = "\
The standard library of Rust: MIT OR Apache-2.0, https://www.rust-lang.org
musl, the C library: MIT, https://musl.libc.org
The unwinder of GCC (libgcc_eh): GPL-3.0 with the GCC Runtime Library Exception
";

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Crate>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Crate {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

/// The file.
pub(super) fn path(scene: &Scene) -> PathBuf {
    scene.folder.join("third-party")
}

/// Writes it.
pub(super) fn write(scene: &Scene) -> Result<String> {
    let mut ask = cargo();
    ask.args(["metadata", "--format-version=1", "--locked", "--filter-platform", &binary::target()]);
    let metadata: Metadata = serde_json::from_str(&quiet(&mut ask)?).context("cargo metadata")?;
    let kernel = root().join("agent-ebpf/Cargo.toml");
    let mut ask = cargo();
    ask.args(["metadata", "--format-version=1", "--locked", "--manifest-path"]).arg(kernel);
    let kernel: Metadata = serde_json::from_str(&quiet(&mut ask)?).context("cargo metadata")?;
    let mut linked = linked(metadata, "agent")?;
    linked.extend(self::linked(kernel, "agent-ebpf")?);
    let text = text(&linked)?;
    fs::write(path(scene), &text)?;
    let mut gzip = Command::new("gzip");
    quiet(gzip.args(["--best", "--no-name", "--force", "--keep"]).arg(path(scene)))?;
    Ok(format!("{} crates, {} KiB of texts", linked.len(), text.len() / 1024))
}

/// The crates that one of the workspace is linked with, by name and version.
fn linked(metadata: Metadata, name: &str) -> Result<BTreeMap<(String, String), Crate>> {
    let root = metadata.packages.iter().find(|found| found.name == name).context("no such package")?;
    let nodes: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let (mut seen, mut next) = (BTreeSet::new(), vec![root.id.as_str()]);
    while let Some(id) = next.pop() {
        let Some(node) = nodes.get(id).filter(|_| seen.insert(id.to_owned())) else { continue };
        let is_linked =
            |dependency: &&Dependency| dependency.dep_kinds.iter().any(|kind| kind.kind.is_none());
        next.extend(node.deps.iter().filter(is_linked).map(|dependency| dependency.pkg.as_str()));
    }
    // What comes from the workspace is ours.
    let found =
        metadata.packages.into_iter().filter(|found| found.source.is_some() && seen.contains(&found.id));
    Ok(found.map(|found| ((found.name.clone(), found.version.clone()), found)).collect())
}

/// A list, and every text once, with whose it is.
fn text(linked: &BTreeMap<(String, String), Crate>) -> Result<String> {
    let mut list = format!("mountie is linked with the following.\n\n{ALSO}");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ((name, version), found) in linked {
        let Some(license) = &found.license else { bail!("{name} {version} does not say its licence") };
        let repository = found.repository.as_deref().unwrap_or("https://crates.io");
        list.push_str(&format!("{name} {version}: {license}, {repository}\n"));
        let folder = found.manifest_path.parent().context("a manifest without a folder")?;
        for file in license_files(folder)? {
            let text = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let text = String::from_utf8_lossy(&text).trim().to_owned();
            texts.entry(text).or_default().push(format!("{name} {version}"));
        }
    }
    let line = "-".repeat(80);
    for (text, whose) in texts {
        list.push_str(&format!("\n{line}\n{}\n{line}\n\n{text}\n", whose.join(", ")));
    }
    Ok(list)
}

fn license_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let is_license = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        path.is_file() && NAMES.iter().any(|begin| name.starts_with(begin))
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_license).collect();
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_builds_or_tests_is_not_linked() {
        let text = r#"{
            "packages": [
                {"id": "a", "name": "own", "version": "1.0.0", "license": null, "repository": null,
                 "manifest_path": "/a/Cargo.toml", "source": null},
                {"id": "b", "name": "used", "version": "2.0.0", "license": "MIT", "repository": null,
                 "manifest_path": "/b/Cargo.toml", "source": "registry"},
                {"id": "c", "name": "builds", "version": "3.0.0", "license": "MIT", "repository": null,
                 "manifest_path": "/c/Cargo.toml", "source": "registry"}
            ],
            "resolve": {"nodes": [
                {"id": "a", "deps": [
                    {"pkg": "b", "dep_kinds": [{"kind": "dev"}, {"kind": null}]},
                    {"pkg": "c", "dep_kinds": [{"kind": "build"}]}
                ]},
                {"id": "b", "deps": []}, {"id": "c", "deps": []}
            ]}
        }"#;
        let linked = linked(serde_json::from_str(text).unwrap(), "own").unwrap();
        let names: Vec<&str> = linked.keys().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["used"]);
    }
}
