//! (Test only.) Real mounts that a test owns: in a mount namespace that ends with the test.

use std::path::{Path, PathBuf};
use std::process::Command;

use agent_core::id::{MountId, SuperblockId};
use agent_core::path::BytePath;
use nix::mount::MsFlags;
use nix::sched::{CloneFlags, unshare};

use super::protocol::Request;

mod hung_fuse;

pub(super) use hung_fuse::HungFuse;

/// Runs a test in a private mount namespace of its own, with an empty directory. The namespace ends with the
/// thread, and with it every mount and every loop device that the test made.
///
/// Without the privilege to make one the test says so and does nothing.
pub(crate) fn in_private_namespace(test: impl FnOnce(&Path) + Send) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: making a mount namespace needs root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let run = || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        nix::mount::mount(None::<&str>, "/", None::<&str>, flags, None::<&str>).unwrap();
        test(directory.path());
    };
    let outcome = std::thread::scope(|scope| scope.spawn(run).join());
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// Makes the directory and mounts there.
pub(crate) fn mount(fstype: &str, target: PathBuf, flags: MsFlags, data: &str) -> PathBuf {
    std::fs::create_dir_all(&target).unwrap();
    nix::mount::mount(Some("lab"), &target, Some(fstype), flags, Some(data)).unwrap();
    target
}

/// A tmpfs of its own.
pub(crate) fn mount_tmpfs(target: PathBuf) -> PathBuf {
    mount("tmpfs", target, MsFlags::empty(), "size=1m")
}

/// A file system of the given type in an image, and the image, which a test can spoil. Returns `None`, and
/// says so, where the tools or the kernel lack the type.
pub(crate) fn mount_image(fstype: &str, directory: &Path, options: &str) -> Option<(PathBuf, PathBuf)> {
    mount_image_with(fstype, directory, options, &[])
}

/// The same, with arguments for the program that makes it.
pub(crate) fn mount_image_with(
    fstype: &str,
    directory: &Path,
    options: &str,
    arguments: &[&str],
) -> Option<(PathBuf, PathBuf)> {
    let (image, target) = (directory.join("image"), directory.join("mounted"));
    std::fs::create_dir_all(&target).unwrap();
    std::fs::File::create(&image).unwrap().set_len(320 << 20).unwrap();
    let succeeded = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    let made =
        succeeded(Command::new(format!("/usr/sbin/mkfs.{fstype}")).arg("-q").args(arguments).arg(&image))
            && succeeded(
                Command::new("/usr/bin/mount")
                    .args(["-t", fstype, "-o", &format!("loop,{options}")])
                    .args([&image, &target]),
            );
    if !made {
        eprintln!("skipped: no {fstype} on a loop device here");
    }
    made.then_some((image, target))
}

/// The request that the engine would make for what is mounted here, from the mount table.
pub(crate) fn request_for(mountpoint: &Path) -> Request {
    let table = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let line = table
        .lines()
        .rfind(|line| line.split(' ').nth(4) == mountpoint.to_str())
        .unwrap_or_else(|| panic!("{mountpoint:?} is not mounted"));
    let fields: Vec<&str> = line.split(' ').collect();
    let dash = fields.iter().position(|field| *field == "-").unwrap();
    let (major, minor) = fields[2].split_once(':').unwrap();
    Request {
        mountpoint: BytePath::from(fields[4]),
        superblock: SuperblockId { major: major.parse().unwrap(), minor: minor.parse().unwrap() },
        mount_id: MountId(fields[0].parse().unwrap()),
        root: BytePath::from(fields[3]),
        fstype: String::from(fields[dash + 1]),
        sentinel: None,
        write: false,
        user: None,
        is_automount: false,
        planting: None,
    }
}
