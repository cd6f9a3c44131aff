//! Where sysfs shows the btrfs of a mount, whose device number is an anonymous one.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The folder of the btrfs that was mounted from `source`, one of its devices.
///
/// kernel: `btrfs_sysfs_add_device`, fs/btrfs/sysfs.c: links in `devices`, since 3.14; `!` for `/` in their names.
pub(super) fn folder_of(sysfs: &Path, source: &[u8]) -> Option<PathBuf> {
    let name = source.strip_prefix(b"/dev/")?;
    let mapped = name.strip_prefix(b"mapper/");
    let plain: Vec<u8> = name.iter().map(|byte| if *byte == b'/' { b'!' } else { *byte }).collect();
    let is_member = |device: PathBuf| match mapped {
        None => device.file_name() == Some(OsStr::from_bytes(&plain)),
        Some(mapped) => fs::read(device.join("dm/name")).is_ok_and(|name| name.trim_ascii_end() == mapped),
    };
    let entries =
        |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries(&sysfs.join("fs/btrfs")).find(|file_system| entries(&file_system.join("devices")).any(is_member))
}
