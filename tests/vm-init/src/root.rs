//! From the initramfs to the root image: the modules that reach it, and an overlay that makes it writable.

use std::fs::{self, File, create_dir_all};
use std::path::Path;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::unistd::{chdir, chroot};

use crate::system::mount_at;

/// The modules of the initramfs, and the file with their names, those that others need first.
const MODULES: &str = "/modules";
const ORDER: &str = "/modules/order";

/// The disks, in the order in which the host plugs them in.
const ROOT_DISK: &str = "/dev/vda";
const MODULES_DISK: &str = "/dev/vdb";

/// Loads the modules, mounts the root, and makes it the root of this process and of the kernel's helpers.
///
/// # Errors
/// When a module cannot be loaded or a mount is refused.
pub(crate) fn enter() -> Result<()> {
    mount_at("devtmpfs", "/dev", "devtmpfs", MsFlags::empty(), "")?;
    load_modules()?;
    mount_at(ROOT_DISK, "/lower", "erofs", MsFlags::MS_RDONLY, "")?;
    mount_at("tmpfs", "/writable", "tmpfs", MsFlags::empty(), "mode=755")?;
    create_dir_all("/writable/upper").context("cannot make the overlay's folder")?;
    create_dir_all("/writable/work").context("cannot make the overlay's folder")?;
    let layers = "lowerdir=/lower,upperdir=/writable/upper,workdir=/writable/work";
    mount_at("overlay", "/root", "overlay", MsFlags::empty(), layers)?;
    mount_at("proc", "/root/proc", "proc", MsFlags::empty(), "")?;
    move_mount("/dev", "/root/dev")?;
    // The initramfs cannot be unmounted: it is covered, as switch_root(8) does it.
    chdir("/root").context("cannot enter the new root")?;
    move_mount(".", "/")?;
    chroot(".").context("cannot make the new root the root")?;
    chdir("/").context("cannot enter the new root")?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").context("cannot read the release")?;
    let modules = format!("/lib/modules/{}", release.trim());
    mount_at(MODULES_DISK, &modules, "erofs", MsFlags::MS_RDONLY, "")
}

fn load_modules() -> Result<()> {
    let order = fs::read_to_string(ORDER).with_context(|| format!("cannot read {ORDER}"))?;
    for name in order.lines() {
        let path = Path::new(MODULES).join(name);
        let module = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        match finit_module(&module, c"", ModuleInitFlags::empty()) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno).with_context(|| format!("cannot load {name}")),
        }
    }
    Ok(())
}

fn move_mount(from: &str, to: &str) -> Result<()> {
    mount(Some(from), to, None::<&str>, MsFlags::MS_MOVE, None::<&str>)
        .with_context(|| format!("cannot move the mount {from} to {to}"))
}
