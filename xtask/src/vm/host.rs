//! What this host needs to make and run guests.

use std::fs::{self, create_dir_all};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::apt::Apt;
use crate::command::step;
use crate::quietly::quiet;
use crate::setup::{Package, ensure_installed, program_exists};

use super::packages::{KEYRING, codename, mirror};

/// Makes images, and unpacks kernels and modules.
const PACKAGES: &[Package] = &[
    Package { name: "mmdebstrap", program: "mmdebstrap" },
    Package { name: "erofs-utils", program: "mkfs.erofs" },
    Package { name: "kmod", program: "depmod" },
    Package { name: "xz-utils", program: "xz" },
    Package { name: "zstd", program: "zstd" },
];

/// The emulator, and the program that shows that it is installed.
const QEMU: Package = Package { name: "qemu-system-x86", program: "qemu-system-x86_64" };

/// Comes from the same source as the emulator; where it is from backports, the emulator must be as well.
const QEMU_SIBLING: &str = "qemu-utils";

/// Installs what is missing.
pub(crate) fn prepare(cache: &Path) -> Result<()> {
    if std::env::consts::ARCH != "x86_64" {
        bail!("`cargo xtask vm` runs x86-64 kernels and what this host builds: run it on an x86-64 host");
    }
    ensure_installed(PACKAGES)?;
    if program_exists(QEMU.program) {
        return Ok(());
    }
    if is_from_backports(QEMU_SIBLING) { install_from_backports(cache) } else { ensure_installed(&[QEMU]) }
}

fn is_from_backports(package: &str) -> bool {
    let version = quiet(Command::new("dpkg-query").args(["-W", "-f=${Version}", package]));
    version.is_ok_and(|version| version.contains("~bpo"))
}

/// Adds the backports for this one installation, in lists of its own: the host's sources stay as they are.
fn install_from_backports(cache: &Path) -> Result<()> {
    let backports = format!("{}-backports", codename()?);
    step(&format!("apt-get install -t {backports} {}", QEMU.name));
    let folder = cache.join("apt").join("host");
    let sources = folder.join("sources.d");
    create_dir_all(&sources).with_context(|| format!("cannot make {}", sources.display()))?;
    fs::write(
        sources.join("backports.list"),
        format!("deb [signed-by={KEYRING}] {} {backports} main\n", mirror()),
    )
    .context("cannot write a source list")?;
    for own in ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"] {
        let own = Path::new(own);
        if let (true, Some(name)) = (own.is_file(), own.file_name()) {
            let name = Path::new(name).with_extension(own.extension().unwrap_or_default());
            fs::copy(own, sources.join(name)).with_context(|| format!("cannot copy {}", own.display()))?;
        }
    }
    let options =
        ["Dir::Etc::SourceList=/dev/null".to_owned(), format!("Dir::Etc::SourceParts={}", sources.display())];
    let apt = Apt::in_folder(&folder, options)?;
    quiet(apt.program("apt-get").arg("update"))?;
    let install = ["install", "-y", "--no-install-recommends", "-t", &backports, QEMU.name];
    quiet(apt.program("apt-get").args(install)).map(drop)
}
