//! Which lines of the code that decides and decodes are run by its own unit tests.
//!
//! Only what belongs to the workspace is built for it: this program stands in for the compiler there and adds its flags,
//! so that everything else is shared with other builds.

mod report;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::built;
use crate::command::{cargo, must, root, step};
use crate::quietly::quiet;

/// In the environment of a build: this program is the compiler.
const COMPILES: &str = "MOUNTIE_COVERAGE";

/// The packages whose unit tests are run: the name, that of the library, and the folder.
const PACKAGES: [(&str, &str, &str); 2] =
    [("agent-core", "agent_core", "agent/core"), ("agent", "agent", "agent")];

/// When this program stands in for the compiler: the end of that.
pub(crate) fn compile() -> Option<ExitCode> {
    std::env::var_os(COMPILES)?;
    let mut words = std::env::args_os().skip(1);
    let compiler = words.next()?;
    let status =
        Command::new(compiler).args(words).args(["-Cinstrument-coverage", "--cfg=coverage"]).status();
    Some(match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: cannot start the compiler: {error}");
            ExitCode::FAILURE
        }
    })
}

/// Builds, runs, and prints the table; fails where too little is run.
pub(crate) fn run() -> Result<()> {
    let tools = Tools::find()?;
    let folder = root().join("target").join("coverage");
    let profiles = folder.join("profiles");
    // What an earlier run has left would be added.
    if profiles.is_dir() {
        fs::remove_dir_all(&profiles).context("cannot remove old profiles")?;
    }
    fs::create_dir_all(&profiles).context("cannot make the folder of profiles")?;

    step("building the unit tests for coverage");
    let binaries = build(&profiles)?;
    for (binary, (_, _, package)) in binaries.iter().zip(PACKAGES) {
        step(&format!("running {}", binary.display()));
        let mut tests = Command::new(binary);
        // As cargo runs them.
        tests.arg("--quiet").current_dir(root().join(package));
        must(tests.env("CARGO_MANIFEST_DIR", root().join(package)).env(PROFILE, profile(&profiles)))?;
    }
    let merged = folder.join("merged.profdata");
    let parts = fs::read_dir(&profiles).context("cannot list the profiles")?;
    let parts: Vec<PathBuf> = parts.flatten().map(|part| part.path()).collect();
    must(Command::new(&tools.profdata).args(["merge", "--sparse", "--output"]).arg(&merged).args(&parts))?;
    let files = report::files(&export(&tools, &merged, &binaries)?, &root())?;
    report::judge(&files)
}

/// Where a program that is built for it puts what it counts.
const PROFILE: &str = "LLVM_PROFILE_FILE";

fn profile(folder: &Path) -> PathBuf {
    folder.join("%p-%m.profraw")
}

/// The test binaries, in the order of the packages.
fn build(profiles: &Path) -> Result<Vec<PathBuf>> {
    let this_program = std::env::current_exe().context("cannot find this program")?;
    let mut build = cargo();
    build.args(["test", "--lib"]);
    build.args(PACKAGES.iter().flat_map(|(package, ..)| ["--package", package]));
    // Programs that run while building count, too; not into the working directory.
    build.env("RUSTC_WORKSPACE_WRAPPER", this_program).env(COMPILES, "1").env(PROFILE, profile(profiles));
    let mut built = built::tests(&mut build)?;
    let binary = |(package, library, _)| {
        built.remove(library).with_context(|| format!("cargo built no unit tests of {package}"))
    };
    PACKAGES.into_iter().map(binary).collect()
}

/// What was run, by file, as `llvm-cov` tells it.
fn export(tools: &Tools, merged: &Path, binaries: &[PathBuf]) -> Result<Value> {
    let mut export = Command::new(&tools.cov);
    export.args(["export", "--summary-only", "--format=text", "--instr-profile"]).arg(merged);
    for binary in binaries {
        export.arg("--object").arg(binary);
    }
    serde_json::from_str(&quiet(&mut export)?).context("llvm-cov prints no JSON")
}

/// LLVM's tools, which must be as new as the compiler's own LLVM.
struct Tools {
    cov: PathBuf,
    profdata: PathBuf,
}

impl Tools {
    fn find() -> Result<Self> {
        let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
        let ask = |words: &[&str]| quiet(Command::new(&compiler).args(words));
        let version = ask(&["--version", "--verbose"])?;
        let field = |name: &str| version.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let host = field("host:").context("rustc does not tell its host")?;
        let llvm = field("LLVM version:").context("rustc does not tell its LLVM")?;
        let major = llvm.split('.').next().unwrap_or(llvm);
        let sysroot = PathBuf::from(ask(&["--print", "sysroot"])?.trim());
        let folders = [
            sysroot.join("lib/rustlib").join(host).join("bin"),
            PathBuf::from(format!("/usr/lib/llvm-{major}/bin")),
        ];
        let found = folders
            .iter()
            .map(|folder| Self { cov: folder.join("llvm-cov"), profdata: folder.join("llvm-profdata") });
        found.into_iter().find(|tools| tools.cov.is_file() && tools.profdata.is_file()).with_context(|| {
            format!(
                "llvm-cov of LLVM {major} is missing: `rustup component add llvm-tools`, or the package llvm-{major}"
            )
        })
    }
}
