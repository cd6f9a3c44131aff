//! Builds or stubs the eBPF object; nothing else.

#[path = "build/toolchain.rs"]
mod toolchain;

use std::path::{Path, PathBuf};

fn main() {
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let root = manifest.parent().map(Path::to_owned).unwrap_or_default();
    let sources = root.join("agent-ebpf");
    for part in ["src", "common/src", "Cargo.toml", "Cargo.lock", "common/Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", sources.join(part).display());
    }
    for script in ["build.rs", "build"] {
        println!("cargo::rerun-if-changed={}", manifest.join(script).display());
    }
    println!("cargo::rerun-if-env-changed=PATH");

    let object = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join("agent-ebpf");
    let target = root.join("target").join(object_directory());
    match toolchain::build(&sources, &target) {
        Ok(built) => {
            if let Err(error) = std::fs::copy(&built, &object) {
                stub(&object, &format!("cannot copy {}: {error}", built.display()));
            }
        }
        Err(missing) => {
            // Files that are absent make cargo run this again the next time: what set-up installs is found.
            for file in files_to_watch() {
                println!("cargo::rerun-if-changed={}", file.display());
            }
            stub(&object, &missing);
        }
    }
}

/// The object has a place of its own for each architecture: another flag would build it anew each time.
fn object_directory() -> String {
    match std::env::var("CARGO_CFG_TARGET_ARCH") {
        Ok(target) if target != std::env::consts::ARCH => format!("ebpf-{target}"),
        Ok(_) | Err(_) => "ebpf".to_owned(),
    }
}

/// Files whose appearance may make a build possible.
fn files_to_watch() -> Vec<PathBuf> {
    let library = Path::new("/usr/lib/rustlib/src/rust/library/core/src/lib.rs");
    let linker = toolchain::cargo_bin().map(|dir| dir.join("bpf-linker"));
    [Path::new(toolchain::DISTRIBUTION_RUSTC), library]
        .map(Path::to_owned)
        .into_iter()
        .chain(linker)
        .collect()
}

/// An empty object: the agent runs, its kernel source is off and says why.
fn stub(object: &Path, reason: &str) {
    for line in reason.lines() {
        println!("cargo::warning={line}");
    }
    println!(
        "cargo::warning=mountie is built WITHOUT kernel programs; `cargo xtask setup` installs what they need"
    );
    if let Err(error) = std::fs::write(object, []) {
        println!("cargo::error=cannot write {}: {error}", object.display());
    }
}
