//! The program as it is shipped: static, so that it runs beside any C library and beside none.
//!
//! Where rustup has the standard library for musl, cargo builds as always. Elsewhere the distribution's compiler builds
//! that library too, from its sources, and the distribution's musl is linked.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use object::{Object as _, ObjectKind, ObjectSection as _};

use super::{Scene, Step};
use crate::command::{cargo, must, root};
use crate::ebpf::DISTRIBUTION_RUSTC;
use crate::quietly::quiet;
use crate::setup::{Package, ensure_installed};
use crate::unpacked;

pub(super) const KIND: &str = "program";

pub(super) const STEPS: &[Step] = &[
    Step { kind: KIND, name: "static build", run: build },
    Step { kind: KIND, name: "needs nothing of a host", run: needs_nothing },
    Step { kind: KIND, name: "licences of what is linked", run: super::licences::write },
];

/// The profile of the workspace.
const PROFILE: &str = "ship";
const MUSL: &[Package] = &[Package { name: "musl-tools", program: "musl-gcc" }];
/// The last compiler whose unwinder asks the C library in a way that musl knows too (`dl_iterate_phdr`).
const UNWINDER_PACKAGE: &str = "libgcc-11-dev";
/// What that unwinder uses only where it is linked anyway, and cannot do without.
const ALWAYS_LINKED: [&str; 6] = [
    "pthread_once",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pthread_key_create",
    "pthread_getspecific",
    "pthread_setspecific",
];

/// What is built for: this machine's architecture.
pub(super) fn target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// The program as it goes into packages.
pub(super) fn shipped(scene: &Scene) -> PathBuf {
    scene.folder.join("mountie")
}

/// Where cargo puts the program.
fn built() -> PathBuf {
    let target_dir =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target_dir.join(target()).join(PROFILE).join("mountie")
}

fn build(scene: &Scene) -> Result<String> {
    let mut build = cargo();
    build.args(["build", "--package", "agent", "--profile", PROFILE, "--target", &target()]);
    let with = if is_of_toolchain() {
        "rustup's library"
    } else {
        by_distribution(scene, &mut build)?;
        "a library built from the distribution's sources"
    };
    must(&mut build)?;
    // What only says which compilers it has seen.
    let mut strip = Command::new("strip");
    quiet(strip.args(["--strip-all", "--remove-section=.comment", "-o"]).args([shipped(scene), built()]))?;
    let size = std::fs::metadata(shipped(scene))?.len();
    Ok(format!("{:.1} MiB, {}, {with}", size as f64 / f64::from(1 << 20), target()))
}

fn is_of_toolchain() -> bool {
    let mut print = Command::new("rustc");
    print.current_dir(root()).args(["--print", "target-libdir", "--target", &target()]);
    quiet(&mut print).is_ok_and(|directory| Path::new(directory.trim()).is_dir())
}

fn by_distribution(scene: &Scene, build: &mut Command) -> Result<()> {
    ensure_installed(MUSL)?;
    let library = PathBuf::from(format!("/usr/lib/{}-linux-musl", std::env::consts::ARCH));
    let unwinder = unwinder(scene)?;
    let mut flags = format!(
        "-C link-self-contained=no -L native={} -L native={} -C link-arg=-B{}",
        unwinder.display(),
        library.display(),
        library.display()
    );
    for name in ALWAYS_LINKED {
        flags.push_str(&format!(" -C link-arg=-Wl,-u,{name}"));
    }
    let variable = |key| format!("CARGO_TARGET_{}_{key}", target().replace('-', "_").to_uppercase());
    build.args(["-Z", "build-std=std,panic_unwind"]);
    build.env("RUSTC", DISTRIBUTION_RUSTC).env("RUSTC_BOOTSTRAP", "1");
    // The compiler's own start files are found in the folder of `-B`: musl-gcc itself links no static PIE.
    build.env(variable("LINKER"), "cc").env(variable("RUSTFLAGS"), flags);
    Ok(())
}

/// A folder with the unwinder under the name that Rust's library links.
fn unwinder(scene: &Scene) -> Result<PathBuf> {
    let sign = format!("usr/lib/gcc/{}-linux-gnu/11/libgcc_eh.a", std::env::consts::ARCH);
    let package = unpacked::package(UNWINDER_PACKAGE, &sign, &scene.folder.join("tools"))?;
    let place = root().join("target/musl/lib");
    std::fs::create_dir_all(&place)?;
    std::fs::copy(package.join(sign), place.join("libunwind.a"))?;
    Ok(place)
}

/// No loader, no library, at no fixed place; it says its version, and a panic is caught as everywhere.
fn needs_nothing(scene: &Scene) -> Result<String> {
    let path = shipped(scene);
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    judge(&bytes)?;
    let version = quiet(Command::new(&path).arg("--version"))?;
    ensure!(version.trim() == format!("mountie {}", scene.version), "it says {version}");
    check_config(&path, &root().join("agent/config/mountie.example.toml"))?;
    Ok("static PIE, with kernel programs".to_owned())
}

/// A configuration is right. On this node its volumes may lack something.
pub(super) fn check_config(program: &Path, file: &Path) -> Result<()> {
    let checked = Command::new(program).arg("check-config").arg(file).output();
    let checked = checked.with_context(|| format!("failed to start {}", program.display()))?;
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    let is_of_this_node =
        !said.is_empty() && said.lines().all(|line| line.starts_with("error: on this node: "));
    ensure!(checked.status.success() || is_of_this_node, "{} is wrong:\n{said}", file.display());
    Ok(())
}

fn judge(bytes: &[u8]) -> Result<()> {
    let file = object::File::parse(bytes).context("it is no program")?;
    if file.section_by_name(".interp").is_some() {
        bail!("it asks for a loader");
    }
    ensure!(file.kind() == ObjectKind::Dynamic, "it is no position-independent program");
    let is_linked = file.section_by_name(".text").is_some_and(|text| text.size() > 0);
    ensure!(is_linked, "it has no code");
    // The name of a map: an agent that was built without kernel programs carries none.
    ensure!(contains(bytes, b"license\0"), "it carries no kernel programs; cargo xtask setup");
    Ok(())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_asks_for_a_loader_is_not_shipped() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(judge(&own).unwrap_err().to_string(), "it asks for a loader");
        assert!(judge(b"#!/bin/sh\n").is_err());
    }
}
