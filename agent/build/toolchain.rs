//! Finds a toolchain for the kernel programs by trying, and builds them with it. Shared by the build script of
//! `agent` and by `xtask`; uses the standard library only.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The target of the kernel programs on this host.
const TARGET: &str = if cfg!(target_endian = "big") { "bpfeb-unknown-none" } else { "bpfel-unknown-none" };

/// A way to build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Toolchain {
    /// rustup's nightly with its component `rust-src`.
    Nightly,
    /// The distribution's compiler with its own copy of the library's source, told to accept nightly options.
    Distribution,
}

/// The distribution's compiler, by its whole path: `rustc` alone may be rustup's.
pub(crate) const DISTRIBUTION_RUSTC: &str = "/usr/bin/rustc";

impl Toolchain {
    /// Every way, the usual one first.
    pub(crate) const ALL: [Self; 2] = [Self::Nightly, Self::Distribution];

    /// What it is called in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nightly => "rustup's nightly with rust-src",
            Self::Distribution => "the distribution's rustc with its library source",
        }
    }

    /// Whether the compiler answers and the library's source is there; if not, what is missing.
    pub(crate) fn check(self) -> Result<(), String> {
        let mut print = match self {
            Self::Nightly => rustup_nightly("rustc"),
            Self::Distribution => clean(Command::new(DISTRIBUTION_RUSTC)),
        };
        let sysroot = match print.args(["--print", "sysroot"]).stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => {
                String::from_utf8_lossy(&output.stdout).trim().to_owned()
            }
            Ok(_) | Err(_) => return Err(format!("{}: the compiler does not run", self.name())),
        };
        let library = Path::new(&sysroot).join("lib/rustlib/src/rust/library/core/src/lib.rs");
        if library.is_file() {
            Ok(())
        } else {
            Err(format!("{}: {} is not there", self.name(), library.display()))
        }
    }

    /// A cargo that builds with this toolchain.
    fn cargo(self) -> Command {
        match self {
            Self::Nightly => rustup_nightly("cargo"),
            Self::Distribution => {
                let mut cargo =
                    clean(Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())));
                cargo.env("RUSTC", DISTRIBUTION_RUSTC).env("RUSTC_BOOTSTRAP", "1");
                cargo
            }
        }
    }
}

fn rustup_nightly(tool: &str) -> Command {
    let mut command = clean(Command::new("rustup"));
    // rustup must not fetch a toolchain that is not there: a build does not go to the network by surprise.
    command.env("RUSTUP_AUTO_INSTALL", "0").args(["run", "nightly", tool]);
    command
}

/// Takes out of the environment what the outer cargo put in for itself: it would decide about the inner one.
fn clean(mut command: Command) -> Command {
    const KEPT: [&str; 8] = [
        "CARGO_HOME",
        "CARGO_NET_OFFLINE",
        "CARGO_HTTP_PROXY",
        "CARGO_HTTP_CAINFO",
        "CARGO_TERM_COLOR",
        "RUSTUP_HOME",
        "RUSTUP_DIST_SERVER",
        "RUSTUP_UPDATE_ROOT",
    ];
    for (name, _) in std::env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let outer = ["CARGO", "RUST", "DEP_"].iter().any(|start| text.starts_with(start));
        let target =
            matches!(text, "TARGET" | "HOST" | "OUT_DIR" | "OPT_LEVEL" | "PROFILE" | "DEBUG" | "NUM_JOBS");
        if (outer && !KEPT.contains(&text) && !text.starts_with("CARGO_REGISTRIES")) || target {
            command.env_remove(&name);
        }
    }
    command
}

/// Where `bpf-linker` is: in the path, or where `cargo install` puts it.
pub(crate) fn bpf_linker() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(cargo_bin())
        .map(|dir| dir.join("bpf-linker"))
        .find(|file| file.is_file())
}

/// Where `cargo install` puts programs.
pub(crate) fn cargo_bin() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")))
        .map(|dir| dir.join("bin"))
}

/// The first toolchain that has everything, or one line for each about what it lacks.
pub(crate) fn find() -> Result<(Toolchain, PathBuf), String> {
    let mut missing = Vec::new();
    let mut found = None;
    for toolchain in Toolchain::ALL {
        match toolchain.check() {
            Ok(()) if found.is_none() => found = Some(toolchain),
            Ok(()) => {}
            Err(reason) => missing.push(reason),
        }
    }
    let linker = bpf_linker();
    if linker.is_none() {
        missing.insert(0, "bpf-linker is not in the path".to_owned());
    }
    match (found, linker) {
        (Some(toolchain), Some(linker)) => Ok((toolchain, linker)),
        (Some(_), None) => Err("bpf-linker is not in the path".to_owned()),
        (None, _) => Err(missing.join("\n")),
    }
}

/// Builds the object and says where it is; else says what is missing, or the end of what the compiler said.
pub(crate) fn build(sources: &Path, target: &Path) -> Result<PathBuf, String> {
    let (_, linker) = find()?;
    let mut failures = Vec::new();
    // Having everything is no promise that it fits together: the next one is tried when one fails.
    for toolchain in Toolchain::ALL.into_iter().filter(|toolchain| toolchain.check().is_ok()) {
        match build_with(toolchain, &linker, sources, target) {
            Ok(()) => return Ok(target.join(TARGET).join("release").join("agent-ebpf")),
            Err(failure) => failures.push(format!("{}: {failure}", toolchain.name())),
        }
    }
    Err(failures.join("\n"))
}

fn build_with(toolchain: Toolchain, linker: &Path, sources: &Path, target: &Path) -> Result<(), String> {
    let linker = format!("linker={}", linker.display());
    // In a build script: what is built for. Elsewhere: this machine.
    let architecture =
        std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_else(|_| std::env::consts::ARCH.to_owned());
    let architecture = format!("bpf_target_arch=\"{architecture}\"");
    let flags =
        ["-C", &linker, "-C", "debuginfo=2", "-C", "link-arg=--btf", "--cfg", &architecture].join("\x1f");
    let mut cargo = toolchain.cargo();
    cargo
        .current_dir(sources)
        .env("CARGO_ENCODED_RUSTFLAGS", flags)
        .args(["build", "--release", "--locked", "-Z", "build-std=core", "--target", TARGET, "--target-dir"])
        .arg(target)
        .stdin(Stdio::null());
    match cargo.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(last_lines(&output.stderr, 20)),
        Err(error) => Err(format!("cannot run {}: {error}", OsStr::to_string_lossy(cargo.get_program()))),
    }
}

fn last_lines(bytes: &[u8], count: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join("\n")
}
