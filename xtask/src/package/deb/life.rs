//! The life of the package: a small Debian is made, booted with systemd as process 1 in namespaces of its own, and the
//! package is installed there, used, upgraded, removed and purged. What happens there is in `trial.sh`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::super::OWN_NAMESPACES;
use super::Scene;
use crate::quietly::{quiet, tail};
use crate::setup::{Package, ensure_installed};
use crate::vm::codename;

const PACKAGES: &[Package] = &[
    Package { name: "mmdebstrap", program: "mmdebstrap" },
    Package { name: "systemd-container", program: "systemd-nspawn" },
];
/// What the system has besides the essential.
const INCLUDED: &str = "systemd,systemd-sysv,bindfs,fuse3,procps";

const BOOT: &str = include_str!("boot.sh");
const TRIAL: &str = include_str!("trial.sh");
const UNIT: &str = "[Unit]\nAfter=multi-user.target\n[Service]\nType=oneshot\nExecStart=/bin/sh /trial/trial.sh\n\
                    [Install]\nWantedBy=multi-user.target\n";

/// Every place in which the trial's control group may have been made.
const HIERARCHIES: [&str; 3] = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
const GROUP: &str = "mountie-package-trial";

/// Lives it, and says how many stages it has.
pub(super) fn live(scene: &Scene) -> Result<String> {
    ensure_installed(PACKAGES)?;
    let place = scene.folder.join("life");
    let root = prepare(&place)?;
    let trial = root.join("trial");
    fs::create_dir_all(&trial)?;
    let package = super::path(scene);
    fs::copy(&package, trial.join("first.deb"))?;
    next_version(&package, &place.join("next"), &trial.join("second.deb"))?;
    fs::write(trial.join("trial.sh"), TRIAL)?;
    let units = root.join("etc/systemd/system");
    fs::write(units.join("trial.service"), UNIT)?;
    fs::create_dir_all(units.join("multi-user.target.wants"))?;
    std::os::unix::fs::symlink("../trial.service", units.join("multi-user.target.wants/trial.service"))?;
    boot(&place, &root)?;
    let log = fs::read_to_string(trial.join("log")).context("the trial has told nothing")?;
    let result = fs::read_to_string(trial.join("result")).unwrap_or_default();
    if result.trim() != "0" {
        bail!("the trial failed; the end of {}:\n{}", trial.join("log").display(), tail(&log, 80));
    }
    let stages: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix("── ")).collect();
    ensure!(stages.last() == Some(&"nothing is left"), "the trial was cut off");
    Ok(format!("under systemd: {}", stages.join("; ")))
}

/// A fresh system, from an archive that is made once.
fn prepare(place: &Path) -> Result<PathBuf> {
    let archive = place.join("debian.tar");
    if !archive.is_file() {
        fs::create_dir_all(place)?;
        crate::command::step("making a small Debian");
        let part = place.join("part.tar");
        let mut bootstrap = Command::new("mmdebstrap");
        bootstrap.args(["--quiet", "--mode=root", "--variant=minbase"]).arg(format!("--include={INCLUDED}"));
        quiet(bootstrap.arg("--aptopt=APT::Install-Recommends \"false\"").arg(codename()?).arg(&part))?;
        fs::rename(&part, &archive)?;
    }
    let root = place.join("root");
    if root.is_dir() {
        fs::remove_dir_all(&root).with_context(|| format!("cannot empty {}", root.display()))?;
    }
    fs::create_dir_all(&root)?;
    // Device nodes and all: an archive of a whole system.
    quiet(Command::new("tar").args(["--numeric-owner", "-xpf"]).arg(&archive).arg("-C").arg(&root))?;
    Ok(root)
}

/// The same package under a later version, with another configuration: one that was changed is kept.
fn next_version(package: &Path, place: &Path, to: &Path) -> Result<()> {
    if place.is_dir() {
        fs::remove_dir_all(place)?;
    }
    quiet(Command::new("dpkg-deb").arg("--raw-extract").args([package, place]))?;
    let control = place.join("DEBIAN/control");
    let text = fs::read_to_string(&control)?;
    let later: String = text
        .lines()
        .map(|line| match line.strip_prefix("Version: ") {
            Some(version) => format!("Version: {version}+trial1\n"),
            None => format!("{line}\n"),
        })
        .collect();
    fs::write(&control, later)?;
    let shipped = place.join("etc/mountie/config.toml");
    let text = fs::read_to_string(&shipped).with_context(|| format!("no {}", shipped.display()))?;
    fs::write(&shipped, format!("{text}# A later version says more.\n"))?;
    quiet(Command::new("dpkg-deb").args(["--root-owner-group", "-Znone", "--build"]).args([place, to]))?;
    Ok(())
}

fn boot(place: &Path, root: &Path) -> Result<()> {
    let script = place.join("boot.sh");
    fs::write(&script, BOOT)?;
    let mut boot = Command::new("timeout");
    boot.args(["--kill-after=10", "900", "unshare"]).args(OWN_NAMESPACES);
    // How it ends says nothing: the trial tells its own result.
    let ended = boot.arg("sh").arg(&script).arg(root).output().context("failed to start unshare");
    for hierarchy in HIERARCHIES {
        remove_groups(&Path::new(hierarchy).join(GROUP));
    }
    let ended = ended?;
    let said = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
    ensure!(root.join("trial/log").is_file(), "the system did not boot:\n{}", tail(&said, 20));
    Ok(())
}

/// A control group and those below it; a group is removed as a directory, and its files with it.
fn remove_groups(group: &Path) {
    if let Ok(entries) = fs::read_dir(group) {
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            remove_groups(&entry.path());
        }
        // It is gone, or the kernel still ends processes in it: nothing hangs on it.
        let _ = fs::remove_dir(group);
    }
}
