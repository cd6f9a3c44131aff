//! Installs what building and testing need. Says each step before doing it; does nothing the second time.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::command::is_root;
use crate::ebpf;

/// File systems and tools that tests mount and break, and the compiler that the fuzzer is built with.
const TEST_PACKAGES: &[Package] = &[
    Package { name: "bindfs", program: "bindfs" },
    Package { name: "fuse3", program: "fusermount3" },
    Package { name: "e2fsprogs", program: "mkfs.ext4" },
    Package { name: "xfsprogs", program: "mkfs.xfs" },
    Package { name: "btrfs-progs", program: "mkfs.btrfs" },
    Package { name: "util-linux", program: "losetup" },
    Package { name: "g++", program: "g++" },
];

/// Debian's compiler with its library source, and what `bpf-linker` is built against.
const COMPILER_PACKAGES: &[&str] = &["rustc-web", "rust-web-src"];
const LINKER_PACKAGES: &[&str] = &["llvm-22-dev", "libzstd-dev", "zlib1g-dev"];
const LINKER_VERSION: &str = "0.13.0";
const LLVM: &str = "/usr/lib/llvm-22";

/// A package and a program that shows that it is installed.
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
}

/// One thing to do.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    /// Install these Debian packages.
    Packages(Vec<&'static str>),
    /// Ask rustup for the library's source.
    RustSrc,
    /// Build and install the linker; `llvm`: against Debian's library instead of the one that comes with Rust.
    Linker { llvm: bool },
}

/// What this host has.
struct Host {
    apt: bool,
    nightly: bool,
    toolchain: bool,
    linker: bool,
    missing_packages: Vec<&'static str>,
}

/// Brings the host to where everything builds and every test can run.
pub(crate) fn run() -> Result<()> {
    let host = Host::look();
    let steps = plan(&host);
    if steps.is_empty() {
        println!("nothing to do: {}", ebpf::report());
        return Ok(());
    }
    if !host.apt {
        println!("{}", by_hand(&host));
    }
    for step in &steps {
        println!("→ {}", step.describe());
        if let Err(error) = step.carry_out() {
            // The way over rustup may be closed; the distribution's is tried then.
            if *step != Step::RustSrc || !host.apt {
                return Err(error);
            }
            println!("  {error:#}; using the distribution's compiler instead");
            let instead = Step::Packages([COMPILER_PACKAGES, LINKER_PACKAGES].concat());
            println!("→ {}", instead.describe());
            instead.carry_out()?;
        }
    }
    ebpf::find().map_err(|missing| anyhow::anyhow!("still missing:\n{missing}"))?;
    println!("ready: {}", ebpf::report());
    Ok(())
}

impl Host {
    fn look() -> Self {
        Self {
            apt: program_exists("apt-get"),
            nightly: ebpf::Toolchain::Nightly.check().is_ok() || nightly_installed(),
            toolchain: ebpf::Toolchain::ALL.iter().any(|toolchain| toolchain.check().is_ok()),
            linker: ebpf::bpf_linker().is_some(),
            missing_packages: TEST_PACKAGES
                .iter()
                .filter(|package| !program_exists(package.program))
                .map(|package| package.name)
                .collect(),
        }
    }
}

/// What is to be done, in order. Pure.
fn plan(host: &Host) -> Vec<Step> {
    let mut packages = if host.apt { host.missing_packages.clone() } else { Vec::new() };
    let mut steps = Vec::new();
    let by_distribution = !host.toolchain && host.apt;
    if by_distribution {
        packages.extend_from_slice(COMPILER_PACKAGES);
    }
    if !host.linker && host.apt {
        packages.extend_from_slice(LINKER_PACKAGES);
    }
    if !packages.is_empty() {
        steps.push(Step::Packages(packages));
    }
    if !host.toolchain && !host.apt && host.nightly {
        steps.push(Step::RustSrc);
    }
    if !host.linker {
        steps.push(Step::Linker { llvm: host.apt });
    }
    steps
}

/// What a person does where no package manager is known.
fn by_hand(host: &Host) -> String {
    let mut text = String::from("This host has no apt. Please install by hand:");
    for package in &host.missing_packages {
        text.push_str(&format!("\n  {package} (for tests)"));
    }
    if !host.toolchain && !host.nightly {
        text.push_str("\n  rustup toolchain install nightly --component rust-src");
    }
    if !host.linker {
        text.push_str("\n  LLVM's development files, if `cargo install bpf-linker` asks for them");
    }
    text
}

impl Step {
    fn describe(&self) -> String {
        match self {
            Self::Packages(packages) => format!("apt-get install {}", packages.join(" ")),
            Self::RustSrc => {
                "rustup component add rust-src --toolchain nightly (two minutes at most)".to_owned()
            }
            Self::Linker { llvm } => {
                let against = if *llvm { format!(" against {LLVM}") } else { String::new() };
                format!("cargo install bpf-linker {LINKER_VERSION}{against} (some minutes)")
            }
        }
    }

    fn carry_out(&self) -> Result<()> {
        match self {
            Self::Packages(packages) => install(packages),
            Self::RustSrc => {
                let rustup = ["120", "rustup", "component", "add", "rust-src", "--toolchain", "nightly"];
                finish(Command::new("timeout").args(rustup))
            }
            Self::Linker { llvm } => {
                let mut cargo = Command::new("cargo");
                cargo.args(["install", "bpf-linker", "--locked", "--version", LINKER_VERSION]);
                if *llvm {
                    cargo.env("LLVM_PREFIX", LLVM).args(["--no-default-features", "--features", "llvm-22"]);
                }
                finish(&mut cargo)
            }
        }
    }
}

/// Installs those of the packages that are not there.
pub(crate) fn ensure_installed(packages: &[Package]) -> Result<()> {
    let missing: Vec<_> = packages
        .iter()
        .filter(|package| !program_exists(package.program))
        .map(|package| package.name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !program_exists("apt-get") {
        bail!("this host has no apt; please install by hand: {}", missing.join(" "));
    }
    let step = Step::Packages(missing);
    println!("→ {}", step.describe());
    step.carry_out()
}

/// Installs packages of the distribution.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    if !is_root() {
        bail!("run as root: apt-get install {}", packages.join(" "));
    }
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive")
        .args(["install", "-y", "--no-install-recommends"])
        .args(packages);
    if finish(&mut apt).is_ok() {
        return Ok(());
    }
    // The lists may be old, or never fetched.
    finish(Command::new("apt-get").arg("update"))?;
    finish(&mut apt)
}

fn finish(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("failed to run {name}"))?;
    if status.success() { Ok(()) } else { bail!("{name} ended with {status}") }
}

fn nightly_installed() -> bool {
    let list = Command::new("rustup").args(["toolchain", "list"]).stdin(Stdio::null()).output();
    list.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).lines().any(|line| line.starts_with("nightly"))
    })
}

/// Whether a program is in the path or where root's programs are.
pub(crate) fn program_exists(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(Path::new).map(Path::to_owned);
    std::env::split_paths(&path).chain(system).any(|dir| dir.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(apt: bool, toolchain: bool, linker: bool) -> Host {
        Host { apt, nightly: true, toolchain, linker, missing_packages: Vec::new() }
    }

    #[test]
    fn a_complete_host_needs_nothing() {
        assert_eq!(plan(&host(true, true, true)), []);
        assert_eq!(plan(&host(false, true, true)), []);
    }

    #[test]
    fn debian_gets_packages_first_and_then_the_linker() {
        let steps = plan(&host(true, false, false));
        let packages = [COMPILER_PACKAGES, LINKER_PACKAGES].concat();
        assert_eq!(steps, [Step::Packages(packages), Step::Linker { llvm: true }]);
    }

    #[test]
    fn other_hosts_use_rustup() {
        let steps = plan(&host(false, false, false));
        assert_eq!(steps, [Step::RustSrc, Step::Linker { llvm: false }]);
        let missing = Host { missing_packages: vec!["bindfs"], ..host(false, true, true) };
        assert_eq!(plan(&missing), []);
        assert!(by_hand(&missing).contains("bindfs"));
    }
}
