//! For tests: a mount namespace that ends with the thread that asked for it, so that nothing a test mounts is
//! ever seen by anybody else or left behind.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use agent_core::path::BytePath;
use agent_core::topology::{Mount, MountTable};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{geteuid, gettid};
use tempfile::TempDir;

use crate::sys::mountinfo::parse_table;

/// The namespace of one test.
pub(super) struct PrivateNamespace {
    /// Its table.
    pub(super) mountinfo: PathBuf,
    /// The namespace file.
    pub(super) file: PathBuf,
    directory: TempDir,
}

impl PrivateNamespace {
    /// Moves the calling thread into a new namespace without propagation. Threads and processes that it starts
    /// are in it too. `None` without the privilege; the reason is printed.
    pub(super) fn enter() -> Option<Self> {
        if !geteuid().is_root() {
            eprintln!("skipped: needs root for a private mount namespace");
            return None;
        }
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        let task = PathBuf::from(format!("/proc/{}/task/{}", std::process::id(), gettid()));
        Some(Self {
            mountinfo: task.join("mountinfo"),
            file: task.join("ns/mnt"),
            directory: TempDir::new().unwrap(),
        })
    }

    /// A directory outside of every mount of the test.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A new directory to mount on.
    pub(super) fn place(&self, name: &str) -> PathBuf {
        let place = self.directory.path().join(name);
        std::fs::create_dir(&place).unwrap();
        place
    }

    /// The mount on top of this place.
    pub(super) fn mount_at(&self, place: &Path) -> Mount {
        let parsed = parse_table(&std::fs::read(&self.mountinfo).unwrap());
        let table = MountTable::new(parsed.mounts);
        table.top_at(&BytePath::new(place.as_os_str().as_bytes())).expect("something is mounted here").clone()
    }

    /// Mounts a small tmpfs with the empty string as its source.
    pub(super) fn mount_tmpfs(&self, place: &Path) {
        mount(Some(""), place, Some("tmpfs"), MsFlags::MS_NOSUID, Some("size=64k")).unwrap();
    }

    /// Mounts a directory on itself: the cheapest mount there is.
    pub(super) fn mount_bind(&self, place: &Path) {
        mount(Some(place), place, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    }

    /// Takes the uppermost mount away.
    pub(super) fn unmount(&self, place: &Path) {
        umount2(place, MntFlags::MNT_DETACH).unwrap();
    }
}

impl Drop for PrivateNamespace {
    fn drop(&mut self) {
        // So that the directory can go while the thread lives on. What is left ends with the namespace.
        if let Ok(table) = std::fs::read_to_string(&self.mountinfo) {
            let below = self.directory.path();
            let mounted = table.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
            for place in mounted.filter(|place| place.starts_with(below)).collect::<Vec<_>>().iter().rev() {
                let _ = umount2(*place, MntFlags::MNT_DETACH);
            }
        }
    }
}

/// Makes and mounts a file system in an image. `None` where the tool is missing; the reason is printed.
pub(super) fn mount_image(
    namespace: &PrivateNamespace,
    fstype: &str,
    mebibytes: u64,
    options: &str,
) -> Option<PathBuf> {
    let tool = format!("mkfs.{fstype}");
    if Command::new(&tool).arg("-V").output().is_err() {
        eprintln!("skipped for {fstype}: no {tool}");
        return None;
    }
    let image = namespace.directory().join(format!("{fstype}.img"));
    std::fs::File::create(&image).unwrap().set_len(mebibytes << 20).unwrap();
    run(&tool, &["-q".as_ref(), image.as_os_str()]);
    let place = namespace.place(fstype);
    let options = format!("loop,{options}");
    run("mount", &["-o".as_ref(), options.as_ref(), image.as_os_str(), place.as_os_str()]);
    Some(place)
}

/// An ext4 file system on a loop device that the kernel frees with the last mount.
pub(super) struct Ext4 {
    image: PathBuf,
    /// Where it is mounted.
    pub(super) place: PathBuf,
    /// `loop7`.
    device: String,
}

impl Ext4 {
    /// Makes and mounts one.
    pub(super) fn mount(namespace: &PrivateNamespace, name: &str) -> Self {
        let image = namespace.directory().join(format!("{name}.img"));
        std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), image.as_os_str()]);
        let mut ext4 = Self { image, place: namespace.place(name), device: String::new() };
        ext4.mount_again(namespace);
        ext4
    }

    /// Mounts it where it was.
    pub(super) fn mount_again(&mut self, namespace: &PrivateNamespace) {
        let options = OsStr::new("loop,errors=continue");
        run("mount", &[OsStr::new("-o"), options, self.image.as_os_str(), self.place.as_os_str()]);
        let source = String::from_utf8(namespace.mount_at(&self.place).source).unwrap();
        self.device = source.trim_start_matches("/dev/").to_owned();
    }

    /// Unmounts it.
    pub(super) fn unmount(&self) {
        umount2(&self.place, MntFlags::empty()).unwrap();
    }

    /// Makes the file system report an error about itself.
    pub(super) fn report_error(&self) {
        std::fs::write(format!("/sys/fs/ext4/{}/trigger_fs_error", self.device), "test").unwrap();
    }
}

/// Runs a command that has to succeed.
pub(super) fn run(program: &str, arguments: &[&OsStr]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}
