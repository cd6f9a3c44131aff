//! Kernel modules: which of them the guests get, and in which order they are loaded.

use std::collections::BTreeMap;
use std::fs::{self, create_dir_all};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::quietly::quiet;

use super::cache::clear;

/// Folders below `kernel/` that the guests get: storage, networks, and what these use.
const KEPT: &[&str] = &[
    "arch",
    "block",
    "crypto",
    "fs",
    "lib",
    "mm",
    "net",
    "security",
    "drivers/block",
    "drivers/cdrom",
    "drivers/char",
    "drivers/dax",
    "drivers/firmware",
    "drivers/md",
    "drivers/nvdimm",
    "drivers/nvme",
    "drivers/scsi",
    "drivers/target",
    "drivers/virtio",
];

/// Single modules beside them: name of the folder, names of modules.
const KEPT_FILES: (&str, &[&str]) = ("drivers/net", &["veth", "dummy", "virtio_net", "net_failover"]);

/// Large parts of the kept folders that need hardware, or that no test mounts.
const DROPPED: &[&str] = &[
    "drivers/block/drbd",
    "drivers/char/drm",
    "drivers/scsi/aic7xxx",
    "drivers/scsi/bfa",
    "drivers/scsi/lpfc",
    "drivers/scsi/mpt3sas",
    "drivers/scsi/qla2xxx",
    "drivers/scsi/qla4xxx",
    "fs/ocfs2",
    "net/batman-adv",
    "net/bluetooth",
    "net/mac80211",
    "net/tipc",
    "net/wireless",
];

/// What process 1 needs to reach the root image and the shares.
const EARLY: &[&str] =
    &["virtio_pci", "virtio_blk", "virtio_console", "erofs", "overlay", "9p", "9pnet_virtio"];

/// Loaded before them where a kernel has it as a module: `libcrc32c` asks for the algorithm while it is loaded,
/// and no modprobe(8) answers in the initramfs.
const EARLY_OPTIONAL: &[&str] = &["crc32c_generic"];

/// Which modules are kept, as text: part of the recipe of a kernel.
pub(crate) fn recipe() -> String {
    format!("{KEPT:?} {KEPT_FILES:?} {DROPPED:?} {EARLY:?} {EARLY_OPTIONAL:?}")
}

/// Moves the kept modules out of an unpacked kernel, inflated, with their dependencies worked out. Returns the
/// folder that is to be `/lib/modules/RELEASE`.
pub(crate) fn select(unpacked: &Path, release: &str, base: &Path) -> Result<PathBuf> {
    let all = ["usr/lib/modules", "lib/modules"]
        .map(|place| unpacked.join(place).join(release))
        .into_iter()
        .find(|folder| folder.join("kernel").is_dir())
        .with_context(|| format!("the packages of {release} have no modules"))?;
    let kept = base.join("lib/modules").join(release);
    create_dir_all(&kept).with_context(|| format!("cannot make {}", kept.display()))?;
    for name in DROPPED {
        clear(&all.join("kernel").join(name))?;
    }
    for name in KEPT {
        move_over(&all.join("kernel").join(name), &kept.join("kernel").join(name))?;
    }
    for name in KEPT_FILES.1 {
        for suffix in ["ko", "ko.xz", "ko.zst"] {
            let file = Path::new("kernel").join(KEPT_FILES.0).join(format!("{name}.{suffix}"));
            move_over(&all.join(&file), &kept.join(&file))?;
        }
    }
    for name in ["modules.order", "modules.builtin", "modules.builtin.modinfo"] {
        move_over(&all.join(name), &kept.join(name))?;
    }
    inflate(&kept)?;
    // depmod(8) looks below `usr` on some distributions.
    create_dir_all(base.join("usr")).context("cannot make a folder")?;
    std::os::unix::fs::symlink("../lib", base.join("usr/lib")).context("cannot make a link")?;
    quiet(Command::new("depmod").arg("-b").arg(base).arg(release))?;
    Ok(kept)
}

fn move_over(from: &Path, to: &Path) -> Result<()> {
    let Some(parent) = to.parent() else { return Ok(()) };
    create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    match fs::rename(from, to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot move {}", from.display()))
        }
        _ => Ok(()),
    }
}

/// Inflates every module: the emulated guest would take long for it.
fn inflate(folder: &Path) -> Result<()> {
    let mut files = Vec::new();
    list(folder, &mut files)?;
    for (suffix, program, arguments) in [("xz", "xz", ["-d", "-q"]), ("zst", "zstd", ["-dq", "--rm"])] {
        let packed: Vec<&PathBuf> = files
            .iter()
            .filter(|file| file.extension().is_some_and(|extension| extension == suffix))
            .collect();
        let half = packed.len().div_ceil(2).max(1);
        // Two at a time, each with half of the files.
        std::thread::scope(|scope| {
            let running: Vec<_> = packed
                .chunks(half)
                .map(|some| scope.spawn(move || quiet(Command::new(program).args(arguments).args(some))))
                .collect();
            running.into_iter().try_for_each(|thread| match thread.join() {
                Ok(done) => done.map(drop),
                Err(_) => bail!("inflating modules was cut off"),
            })
        })?;
    }
    Ok(())
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// Copies the early modules to `into`, with the file `order`.
pub(crate) fn copy_early(modules: &Path, into: &Path) -> Result<()> {
    create_dir_all(into).with_context(|| format!("cannot make {}", into.display()))?;
    let read = |name: &str| {
        let path = modules.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let order = load_order(&read("modules.dep")?, &read("modules.builtin")?, EARLY)?;
    let mut names = String::new();
    for path in &order {
        let name = path.rsplit('/').next().unwrap_or(path);
        fs::copy(modules.join(path), into.join(name)).with_context(|| format!("cannot copy {path}"))?;
        names.push_str(name);
        names.push('\n');
    }
    fs::write(into.join("order"), names).context("cannot write the order of modules")
}

/// The paths of these modules and of all that they need, each after what it needs. What is built in is left out.
fn load_order(dependencies: &str, builtin: &str, wanted: &[&str]) -> Result<Vec<String>> {
    let mut table = BTreeMap::new();
    for line in dependencies.lines() {
        let (path, needs) = line.split_once(':').with_context(|| format!("modules.dep: no colon: {line}"))?;
        table.insert(name_of(path), (path, needs.split_whitespace().collect::<Vec<_>>()));
    }
    let builtin: Vec<String> = builtin.lines().map(name_of).collect();
    let mut order = Vec::new();
    for name in EARLY_OPTIONAL.iter().filter(|name| table.contains_key(**name)) {
        add(name, &table, &mut order, 0)?;
    }
    for name in wanted {
        if table.contains_key(*name) {
            add(name, &table, &mut order, 0)?;
        } else if !builtin.iter().any(|known| known == name) {
            bail!("the kernel has no module {name}: the guest cannot start without it");
        }
    }
    Ok(order)
}

fn add(
    name: &str,
    table: &BTreeMap<String, (&str, Vec<&str>)>,
    order: &mut Vec<String>,
    depth: usize,
) -> Result<()> {
    let Some((path, needs)) = table.get(name) else { bail!("modules.dep names {name} and does not have it") };
    if order.iter().any(|have| have == path) {
        return Ok(());
    }
    if depth > table.len() {
        bail!("modules.dep has a circle at {name}");
    }
    for need in needs {
        add(&name_of(need), table, order, depth + 1)?;
    }
    if !order.iter().any(|have| have == path) {
        order.push((*path).to_owned());
    }
    Ok(())
}

/// A module's name in the kernel, from its file: dashes and underscores are the same.
fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPENDENCIES: &str = "\
kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/netfs/netfs.ko
kernel/net/9p/9pnet.ko: kernel/lib/base-lib.ko
kernel/lib/base-lib.ko:
kernel/fs/netfs/netfs.ko:
kernel/net/9p/9pnet_virtio.ko: kernel/net/9p/9pnet.ko kernel/lib/base-lib.ko
";

    #[test]
    fn each_module_comes_once_and_after_what_it_needs() {
        let order =
            load_order(DEPENDENCIES, "kernel/fs/erofs.ko\n", &["9p", "9pnet_virtio", "erofs"]).unwrap();
        let names: Vec<String> = order.iter().map(|path| name_of(path)).collect();
        assert_eq!(names, ["base_lib", "9pnet", "netfs", "9p", "9pnet_virtio"]);
    }

    #[test]
    fn an_algorithm_that_others_ask_for_comes_first() {
        let dependencies = "fs/a.ko: lib/libcrc32c.ko\nlib/libcrc32c.ko:\ncrypto/crc32c_generic.ko:\n";
        let order = load_order(dependencies, "", &["a"]).unwrap();
        assert_eq!(order, ["crypto/crc32c_generic.ko", "lib/libcrc32c.ko", "fs/a.ko"]);
    }

    #[test]
    fn what_is_missing_or_runs_in_a_circle_is_named() {
        let message = |dependencies, wanted| load_order(dependencies, "", &[wanted]).unwrap_err().to_string();
        assert!(message(DEPENDENCIES, "xfs").contains("no module xfs"));
        assert!(message("a.ko: b.ko\n", "a").contains("names b"));
        assert!(message("a.ko: b.ko\nb.ko: a.ko\n", "a").contains("circle"));
        assert!(message("nonsense\n", "a").contains("no colon"));
    }

    #[test]
    fn names_of_modules_have_no_dashes_and_no_suffix() {
        assert_eq!(name_of("kernel/drivers/md/dm-mod.ko.xz"), "dm_mod");
        assert_eq!(name_of("kernel/fs/9p/9p.ko"), "9p");
    }
}
