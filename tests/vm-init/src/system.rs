//! What a distribution's init would have made: the usual mounts, the loopback device, the host's shares.

use std::fs::{self, create_dir_all};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

/// The writable share: the command comes from there, and what it leaves goes there.
pub(crate) const WORK: &str = "/work";

/// The folder of the host that is shown read-only.
const HOST: &str = "/host";

/// Source, place, type and options of each mount, in order.
const MOUNTS: &[(&str, &str, &str, &str)] = &[
    ("sysfs", "/sys", "sysfs", ""),
    ("tmpfs", "/tmp", "tmpfs", "mode=1777"),
    ("tmpfs", "/run", "tmpfs", "mode=755"),
    ("devpts", "/dev/pts", "devpts", ""),
    ("tmpfs", "/dev/shm", "tmpfs", "mode=1777"),
    ("cgroup2", "/sys/fs/cgroup", "cgroup2", ""),
    ("bpf", "/sys/fs/bpf", "bpf", ""),
    ("securityfs", "/sys/kernel/security", "securityfs", ""),
    ("debugfs", "/sys/kernel/debug", "debugfs", ""),
    ("tracefs", "/sys/kernel/tracing", "tracefs", ""),
];

/// Folders that daemons expect.
const FOLDERS: &[&str] =
    &["/run/lock", "/run/rpcbind", "/run/rpc_pipefs", "/run/sendsigs.omit.d", "/srv", "/mnt"];

/// Makes a system of the root image.
///
/// # Errors
/// When a part of it cannot be made; the text names it.
pub(crate) fn set_up() -> Result<()> {
    for (source, place, fstype, options) in MOUNTS {
        mount_at(source, place, fstype, MsFlags::empty(), options)?;
    }
    // Without a cache a file is on the host when the call that wrote it ends.
    share("work", WORK, MsFlags::empty(), "cache=none")?;
    share("host", HOST, MsFlags::MS_RDONLY, "cache=loose")?;
    for folder in FOLDERS {
        create_dir_all(folder).with_context(|| format!("cannot make {folder}"))?;
    }
    link_mtab()?;
    nix::unistd::sethostname("guest").context("cannot set the host's name")?;
    must("ip", &["link", "set", "lo", "up"])
}

/// Mounts, and makes the place first where it is missing.
///
/// # Errors
/// When the mount is refused.
pub(crate) fn mount_at(source: &str, place: &str, fstype: &str, flags: MsFlags, options: &str) -> Result<()> {
    create_dir_all(place).or_else(|error| match error.raw_os_error() {
        // Some places are made by the file system below them.
        Some(code) if code == Errno::EPERM as i32 || code == Errno::EACCES as i32 => Ok(()),
        _ => Err(error).with_context(|| format!("cannot make {place}")),
    })?;
    mount(Some(source), place, Some(fstype), flags, Some(options))
        .with_context(|| format!("cannot mount {source} ({fstype}) on {place}"))
}

fn share(tag: &str, place: &str, flags: MsFlags, cache: &str) -> Result<()> {
    let options = format!("trans=virtio,version=9p2000.L,msize=262144,{cache}");
    mount_at(tag, place, "9p", flags, &options)
}

/// Old programs read `/etc/mtab`: rpc.mountd ends with a fault of memory where it is missing.
fn link_mtab() -> Result<()> {
    let _ = fs::remove_file("/etc/mtab");
    std::os::unix::fs::symlink("../proc/self/mounts", "/etc/mtab").context("cannot make /etc/mtab")
}

/// Runs a program of the root image to its end.
///
/// # Errors
/// When it fails; its words are on the console.
pub(crate) fn must(program: &str, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", crate::command::PATH).stdin(Stdio::null());
    let status = command.status().with_context(|| format!("cannot start {program}"))?;
    ensure!(status.success(), "{program} {} ended with {status}", arguments.join(" "));
    Ok(())
}
