//! Which file systems count their errors in sysfs, where, and in which form: one table.
//!
//! XFS shows what it does on errors and not how many there were: only its folder tells something. f2fs shows none
//! either.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use agent_core::errno::Errno;
use agent_core::topology::Mount;

use crate::sensor::btrfs;

/// How many errors, and what the last of them says about the file system.
pub(super) type Counters = BTreeMap<Name, (Errno, u64)>;

/// Of which device, where there are several, and what is counted.
pub(super) type Name = (OsString, &'static str);

const EIO: Errno = Errno(5);
const EUCLEAN: Errno = Errno(117);

/// One kind of file system.
#[derive(Debug)]
pub(super) struct Row {
    fstypes: &'static [&'static str],
    place: Place,
    counters: fn(&Path) -> Option<Counters>,
    /// Of those that count what they find wrong in themselves and nothing else: the folder in procfs whose file
    /// `options` says, below the same name, what follows from that.
    options: Option<&'static str>,
}

/// How the folder of one superblock is called.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// As its block device, in this folder below the root of sysfs.
    Device(&'static str),
    /// As btrfs has it: by UUID, found by its devices.
    Btrfs,
}

/// Every kind.
const ROWS: &[Row] = &[
    // The driver of ext4 mounts the older ones as well.
    Row {
        fstypes: &["ext4", "ext3", "ext2"],
        place: Place::Device("fs/ext4"),
        counters: ext4,
        options: Some("fs/ext4"),
    },
    Row {
        fstypes: &["xfs"],
        place: Place::Device("fs/xfs"),
        counters: |_| Some(Counters::new()),
        options: None,
    },
    Row { fstypes: &["btrfs"], place: Place::Btrfs, counters: btrfs_counters, options: None },
];

/// The row of a type.
pub(super) fn row_of(fstype: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.fstypes.contains(&fstype))
}

impl Row {
    /// The folder of the superblock that this mount shows.
    pub(super) fn find(&self, sysfs: &Path, mount: &Mount) -> Option<PathBuf> {
        let found = match self.place {
            Place::Device(folder) => sysfs.join(folder).join(device_name(sysfs, mount)?),
            Place::Btrfs => btrfs::folder_of(sysfs, &mount.source)?,
        };
        found.is_dir().then_some(found)
    }

    /// The counters of the superblock whose folder this is.
    pub(super) fn read(&self, folder: &Path) -> Option<Counters> {
        (self.counters)(folder)
    }

    /// Whether the file system writes nothing once it has found an error in itself. `None`: its counters say nothing
    /// about that. The options are in memory, as the counters are.
    ///
    /// kernel: `ext4_seq_options_show`, fs/ext4/super.c, since 3.11: every option, also those that are the default of the
    /// superblock, which `_ext4_show_options` leaves out of the mount table.
    pub(super) fn ends_writes(&self, proc: &Path, folder: &Path) -> Option<bool> {
        let file = proc.join(self.options?).join(folder.file_name()?).join("options");
        let options = fs::read_to_string(file).unwrap_or_default();
        Some(options.lines().any(|option| option == ENDS_WRITES))
    }
}

/// The word that ext4 has among its options where it writes nothing after an error.
const ENDS_WRITES: &str = "errors=remount-ro";

/// The kernel's name of a device, `!` for `/`: what `/sys/dev/block/8:1` leads to.
fn device_name(sysfs: &Path, mount: &Mount) -> Option<PathBuf> {
    let link = fs::read_link(sysfs.join("dev/block").join(mount.superblock.to_string())).ok()?;
    link.file_name().map(PathBuf::from)
}

/// kernel: `errors_count` (kept on disk since 2.6.36) and `last_error_errcode` (since 5.8), fs/ext4/sysfs.c. The code is
/// ext4's own: `EXT4_ERR_EIO` is 2, fs/ext4/ext4.h.
fn ext4(folder: &Path) -> Option<Counters> {
    let count = number(&folder.join("errors_count"))?;
    let is_storage = number(&folder.join("last_error_errcode")) == Some(2);
    Some(Counters::from([((OsString::new(), "errors"), (if is_storage { EIO } else { EUCLEAN }, count))]))
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// What btrfs counts for each device.
const BTRFS: [(&str, Errno); 5] = [
    ("write_errs", EIO),
    ("read_errs", EIO),
    ("flush_errs", EIO),
    ("corruption_errs", EUCLEAN),
    ("generation_errs", EUCLEAN),
];

/// kernel: `btrfs_devinfo_error_stats_show`, fs/btrfs/sysfs.c, since 5.14. One file a device; kept on disk. Older ones
/// have no such file: they count nothing here, and lack nothing.
fn btrfs_counters(folder: &Path) -> Option<Counters> {
    let mut counters = Counters::new();
    let mut has_any = false;
    let devices = match fs::read_dir(folder.join("devinfo")) {
        Ok(devices) => devices,
        Err(error) => return (error.kind() == io::ErrorKind::NotFound).then_some(counters),
    };
    for device in devices.flatten() {
        let Ok(text) = fs::read_to_string(device.path().join("error_stats")) else { continue };
        has_any = true;
        for line in text.lines() {
            let Some((name, count)) = line.split_once(' ') else { continue };
            // Before the statistics are read from disk the file says `invalid`.
            let Ok(count) = count.trim().parse::<u64>() else { continue };
            if let Some((name, errno)) = BTRFS.iter().find(|(known, _)| *known == name) {
                counters.insert((device.file_name(), *name), (*errno, count));
            }
        }
    }
    (!has_any || !counters.is_empty()).then_some(counters)
}
