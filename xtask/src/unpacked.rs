//! Debian packages that are unpacked beside the build and not installed: no service of theirs starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{must, step};

/// The root of a package's files below a folder; downloaded once. The sign is a file that it has.
///
/// # Errors
/// When it cannot be downloaded, or has no such file.
pub(crate) fn package(name: &str, sign: &str, folder: &Path) -> Result<PathBuf> {
    let unpacked = folder.join(name);
    if unpacked.join(sign).is_file() {
        return Ok(unpacked);
    }
    step(&format!("downloading {name}"));
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let download = || must(Command::new("apt-get").args(["download", "--quiet", name]).current_dir(folder));
    if download().is_err() {
        // The lists may be old, or never fetched.
        must(Command::new("apt-get").args(["update", "--quiet"]))?;
        download()?;
    }
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let archive = entries.flatten().map(|entry| entry.path()).find(|path| is_archive(path, name));
    let archive = archive.context("apt-get downloaded nothing")?;
    must(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(&unpacked))?;
    if !unpacked.join(sign).is_file() {
        bail!("{} has no {sign}", archive.display());
    }
    Ok(unpacked)
}

fn is_archive(path: &Path, package: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix(package).is_some_and(|rest| rest.starts_with('_') && rest.ends_with(".deb"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_that_of_the_package_and_of_no_other() {
        assert!(is_archive("x/prometheus_2.42.0_amd64.deb".as_ref(), "prometheus"));
        assert!(!is_archive("x/prometheus-node-exporter_1.5_amd64.deb".as_ref(), "prometheus"));
        assert!(!is_archive("x/prometheus".as_ref(), "prometheus"));
    }
}
