//! Everything that CI runs, in order. The test command of the README comes last, so that its closing lines do.

use std::process::Command;

use anyhow::Result;

use crate::command::{cargo, must, root, step};
use crate::{cross, ebpf, setup, test, tidy};

/// Runs every step; the first failure ends the run.
pub(crate) fn run() -> Result<()> {
    setup::run()?;
    step("format");
    must(cargo().args(["fmt", "--all", "--check"]))?;
    tidy::run()?;
    step("clippy");
    must(cargo().args(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    must(cargo().args([
        "clippy",
        "--package",
        "agent",
        "--features",
        "fuzz",
        "--bin",
        "fuzz",
        "--",
        "--deny",
        "warnings",
    ]))?;
    step("documentation");
    must(
        cargo().args(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "--deny warnings"),
    )?;
    step("kernel programs");
    ebpf::build(&root())?;
    deny()?;
    cross::run_where_offered()?;
    test::run(None)
}

/// Licences, sources and duplicates of all dependencies. (Advisories need a database from the network; a nightly
/// job with access runs `cargo deny check`.)
fn deny() -> Result<()> {
    let installed =
        Command::new("cargo-deny").arg("--version").output().is_ok_and(|output| output.status.success());
    if !installed {
        step("installing cargo-deny");
        must(cargo().args(["install", "cargo-deny", "--locked", "--quiet"]))?;
    }
    step("licences and sources of dependencies");
    for manifest in ["Cargo.toml", "agent-ebpf/Cargo.toml"] {
        let manifest = root().join(manifest);
        must(
            cargo()
                .arg("deny")
                .arg("--manifest-path")
                .arg(manifest)
                .args(["check", "bans", "licenses", "sources"]),
        )?;
    }
    Ok(())
}
