//! The agent for 64-bit ARM, built on this machine, and as much of it run as can be run in emulation.
//!
//! The standard library for the target comes from rustup where it has it, else out of the package that belongs to
//! the distribution's compiler: unpacked beside the build, never installed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::apt::Apt;
use crate::command::{cargo, must, root, step};
use crate::ebpf::DISTRIBUTION_RUSTC;
use crate::quietly::quiet;
use crate::setup::{self, program_exists};

/// What is built for.
const TARGET: &str = "aarch64-unknown-linux-gnu";
/// The name of its architecture in the distribution.
const ARCHITECTURE: &str = "arm64";
/// The linker, and what it links with.
const LINKER: &str = "aarch64-linux-gnu-gcc";
const LINKER_PACKAGES: &[&str] = &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"];
/// Where these packages have the target's libraries.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
/// Programs that run a program of the target, best first.
const EMULATORS: [&str; 2] = ["qemu-aarch64-static", "qemu-aarch64"];

/// Where the target's standard library is.
enum Library {
    /// Part of the toolchain in use.
    OfToolchain,
    /// Below this directory, for the distribution's compiler.
    Unpacked(PathBuf),
}

/// Builds, and runs what can be run; returns the binary.
pub(crate) fn run(release: bool) -> Result<PathBuf> {
    step(&format!("building the agent for {TARGET}"));
    if !program_exists(LINKER) {
        setup::install(LINKER_PACKAGES).with_context(|| format!("{LINKER} is missing"))?;
    }
    let library = library()?;
    let mut build = cargo();
    build.args(["build", "--package", "agent", "--target", TARGET]).env(variable("LINKER"), LINKER);
    if release {
        build.arg("--release");
    }
    if let Library::Unpacked(sysroot) = &library {
        build.env("RUSTC", DISTRIBUTION_RUSTC);
        build.env(variable("RUSTFLAGS"), format!("--sysroot {}", sysroot.display()));
    }
    must(&mut build)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let binary = target.join(TARGET).join(if release { "release" } else { "debug" }).join("mountie");
    try_out(&binary)?;
    Ok(binary)
}

/// The same where it is one step of many: it fails like any other, unless nobody has the target's library to give.
pub(crate) fn run_where_offered() -> Result<()> {
    match run(false) {
        Err(error) if error.is::<NotOffered>() => {
            step(&format!("skipped: the agent for {TARGET}: {error:#}"));
            Ok(())
        }
        built => built.map(drop),
    }
}

/// The registry of packages does not have the target.
#[derive(Debug)]
struct NotOffered(String);

impl std::fmt::Display for NotOffered {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "the registry of packages has no {}", self.0)
    }
}

impl std::error::Error for NotOffered {}

/// A variable of cargo for the target: what has its name does not reach build scripts.
fn variable(key: &str) -> String {
    format!("CARGO_TARGET_{}_{key}", TARGET.replace('-', "_").to_uppercase())
}

fn of_toolchain() -> bool {
    let mut print = Command::new("rustc");
    print.current_dir(root()).args(["--print", "target-libdir", "--target", TARGET]);
    said(&mut print).is_ok_and(|directory| Path::new(&directory).is_dir())
}

fn library() -> Result<Library> {
    if of_toolchain() {
        return Ok(Library::OfToolchain);
    }
    let owner = said(Command::new("dpkg-query").args(["-S", DISTRIBUTION_RUSTC])).with_context(|| {
        format!("no standard library for {TARGET}: `rustup target add {TARGET}`, or a distribution's {DISTRIBUTION_RUSTC}")
    })?;
    let compiler = owner.split(':').next().unwrap_or_default();
    let version = said(Command::new("dpkg-query").args(["-W", "-f", "${Version}", compiler]))?;
    // A library of another version is refused by the compiler: each has a place of its own.
    let place = root().join("target").join("cross").join(format!("{TARGET}-{version}"));
    let sysroot = place.join("usr");
    if !sysroot.join("lib/rustlib").join(TARGET).join("lib").is_dir() {
        let package = format!("lib{}-dev", compiler.replacen("rustc", "std-rust", 1));
        fetch(&format!("{package}:{ARCHITECTURE}={version}"), &place)
            .with_context(|| format!("the standard library for {TARGET} could not be had"))?;
    }
    Ok(Library::Unpacked(sysroot))
}

/// Downloads a package with lists of its own, so that nothing of the host's changes, and unpacks it.
fn fetch(package: &str, place: &Path) -> Result<()> {
    println!("→ unpacking {package} below {}", place.display());
    let own = said(Command::new("dpkg").arg("--print-architecture"))?;
    let architectures = [own.as_str(), ARCHITECTURE].map(|name| format!("APT::Architectures::={name}"));
    let apt = Apt::in_folder(&place.with_extension("download"), architectures)?;
    let packages = apt.folder().join("packages");
    std::fs::create_dir_all(&packages)?;
    quiet(apt.program("apt-get").args(["-o", "APT::Update::Error-Mode=any", "update"]))?;
    // Its lists are complete now: what is not in them cannot be had.
    quiet(apt.program("apt-cache").args(["show", package])).map_err(|_| NotOffered(package.to_owned()))?;
    quiet(apt.program("apt-get").current_dir(&packages).args(["download", package]))?;
    let file = std::fs::read_dir(&packages)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get has downloaded nothing")?;
    must(Command::new("dpkg").arg("-x").arg(file).arg(place))
}

/// Runs what needs neither a kernel of the target nor privileges.
fn try_out(binary: &Path) -> Result<()> {
    let Some(emulator) = EMULATORS.into_iter().find(|name| program_exists(name)) else {
        println!("not run: no {} here", EMULATORS.join(" or "));
        return Ok(());
    };
    let example = root().join("agent").join("config").join("mountie.example.toml");
    for arguments in [vec![OsString::from("--version")], vec!["check-config".into(), example.into()]] {
        let mut run = Command::new(emulator);
        run.args(["-L", LIBRARIES]).arg(binary).args(arguments).stdout(Stdio::null());
        must(&mut run)?;
    }
    println!("{} runs under {emulator}", binary.display());
    Ok(())
}

/// What a program prints, without the end of the line.
fn said(command: &mut Command) -> Result<String> {
    Ok(quiet(command)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_nobody_offers_is_told_from_a_build_that_fails() {
        let lacking = || Err::<(), _>(NotOffered("libstd-rust-dev:arm64=1".to_owned()));
        let error = lacking().context("the standard library could not be had").unwrap_err();
        assert!(error.is::<NotOffered>() && format!("{error:#}").contains("libstd-rust-dev:arm64"));
        assert!(!anyhow::anyhow!("cargo build failed").is::<NotOffered>());
    }

    #[test]
    fn flags_are_those_of_the_target_alone() {
        assert_eq!(variable("RUSTFLAGS"), "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS");
    }
}
