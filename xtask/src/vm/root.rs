//! The guests' user space: the host's own Debian with all that cases mount, serve and break, as a read-only disk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::quietly::{quiet, tail};

use super::cache::{Cache, clear};
use super::packages::{Package, Suite, codename, mirror};

/// What the guests have beside the essential packages.
const PACKAGES: &[&str] = &[
    // What every guest needs.
    "iproute2",
    "kmod",
    "procps",
    "util-linux",
    // Servers and clients of network file systems.
    "cifs-utils",
    "nfs-common",
    "nfs-kernel-server",
    "nftables",
    "samba",
    // Local file systems and devices.
    "btrfs-progs",
    "dmsetup",
    "e2fsprogs",
    "nbd-client",
    "nbd-server",
    "xfsprogs",
    // FUSE.
    "bindfs",
    "fuse3",
    // What shows why a case failed, and what the binaries under test are linked to.
    "libgcc-s1",
    "strace",
];

/// Conflicts with samba's package, not with its files: unpacked beside it. Its libraries are installed.
const BESIDE: &str = "ksmbd-tools";
const BESIDE_NEEDS: &[&str] = &["libglib2.0-0", "libnl-genl-3-200"];

/// Left out of the image.
const EXCLUDED: &[&str] = &["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*"];

/// The root disk, from the cache or made now, with more packages.
pub(crate) fn prepare(cache: &Cache, more: &[&str]) -> Result<PathBuf> {
    let codename = codename()?;
    let recipe = format!("1 {codename} {PACKAGES:?} {more:?} {BESIDE} {BESIDE_NEEDS:?} {EXCLUDED:?}");
    let part = if more.is_empty() { "root" } else { "root-with-more" };
    let folder = cache.part(part, &recipe, |at| make(&codename, more, cache.folder(), at))?;
    Ok(folder.join("root.erofs"))
}

fn make(codename: &str, more: &[&str], cache: &Path, at: &Path) -> Result<()> {
    let tree = at.join("tree");
    let mut bootstrap = Command::new("mmdebstrap");
    let include = [PACKAGES, BESIDE_NEEDS, more].concat().join(",");
    bootstrap.args(["--quiet", "--mode=root", "--variant=essential"]).arg(format!("--include={include}"));
    bootstrap.arg("--aptopt=APT::Install-Recommends \"false\"");
    for path in EXCLUDED {
        bootstrap.arg(format!("--dpkgopt=path-exclude={path}"));
    }
    quiet(bootstrap.arg(codename).arg(&tree).arg(mirror()))?;
    unpack_beside(codename, cache, at, &tree)?;
    for useless in ["var/lib/dpkg/info", "var/cache", "lib/modules"] {
        clear(&tree.join(useless))?;
    }
    make_disk(&tree, &at.join("root.erofs"))?;
    clear(&tree)
}

fn unpack_beside(codename: &str, cache: &Path, at: &Path, tree: &Path) -> Result<()> {
    let downloaded = at.join("beside");
    let package = Package { name: BESIDE.to_owned(), ..Package::default() };
    Suite::fetch(codename, cache)?.download(&[&package], &downloaded)?;
    for file in fs::read_dir(&downloaded).context("cannot list what was downloaded")? {
        let archive = at.join("beside.tar");
        let output = File::create(&archive).context("cannot create an archive")?;
        let mut unpack = Command::new("dpkg-deb");
        let status = unpack.arg("--fsys-tarfile").arg(file?.path()).stdout(output).status();
        if !status.context("failed to start dpkg-deb")?.success() {
            bail!("dpkg-deb cannot read the package {BESIDE}");
        }
        // Not dpkg-deb -x: that makes a folder of the link `/lib`, and then no program finds its libraries.
        quiet(
            Command::new("tar").arg("-xf").arg(&archive).arg("--keep-directory-symlink").arg("-C").arg(tree),
        )?;
        clear(&archive)?;
    }
    clear(&downloaded)
}

/// Makes a read-only disk of a folder. Uncompressed: the guest reads little of it, and slowly inflates.
pub(crate) fn make_disk(folder: &Path, disk: &Path) -> Result<()> {
    let mut make = Command::new("mkfs.erofs");
    make.args(["-T0", "--all-root"]).arg(disk).arg(folder);
    // It names every file on its way.
    let output = make.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output();
    let output = output.context("failed to start mkfs.erofs")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("mkfs.erofs {} ended with {}:\n{}", disk.display(), output.status, tail(&said, 10));
    }
    Ok(())
}
