//! ext4, XFS and btrfs on a device that fails, waits or comes back, and file systems that give up by themselves.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use integration_tests::harness::loop_dev::{Kind, LoopDevice};
use integration_tests::harness::needs::Need;
use integration_tests::harness::process;
use nix::sys::stat::{major, minor};

use super::dm::{Answer, Mapped};
use super::fault::{Fault, Place, Repair, World, names, repaired};
use super::tools::{detach_all, mount, switch, text};
use super::user::User;
use super::watch::Watch;

const EXT4: &[Need] = &[Need::Module("dm-mod"), Need::Tool("dmsetup"), Need::Tool("mkfs.ext4")];
const FLAKEY: &[Need] = &[Need::Module("dm-flakey"), Need::Tool("dmsetup"), Need::Tool("mkfs.ext4")];
const EXT4_SHUTDOWN: &[Need] = &[Need::Module("dm-mod"), Need::Tool("dmsetup"), Need::Tool("xfs_io")];
const XFS: &[Need] =
    &[Need::Module("dm-mod"), Need::Module("xfs"), Need::Tool("mkfs.xfs"), Need::Tool("xfs_io")];
const XFS_FLAKEY: &[Need] =
    &[Need::Module("dm-flakey"), Need::Module("xfs"), Need::Tool("dmsetup"), Need::Tool("mkfs.xfs")];
const EXT4_TUNED: &[Need] =
    &[Need::Module("dm-mod"), Need::Tool("dmsetup"), Need::Tool("mkfs.ext4"), Need::Tool("tune2fs")];
const BTRFS: &[Need] = &[Need::Module("dm-mod"), Need::Module("btrfs"), Need::Tool("mkfs.btrfs")];

/// Which word fits depends on how far the file system came: an error, the end of its log, read-only.
const GIVES_UP: &[&str] = &["io_error", "readonly", "fs_shutdown", "writeback_lost"];

/// The device of the row that is running.
#[derive(Debug)]
struct Block {
    directory: PathBuf,
    device: Option<Mapped>,
}

impl Block {
    fn prepare(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), device: None }
    }

    fn device(&self) -> Result<&Mapped> {
        self.device.as_ref().context("no device")
    }

    fn set_up(&mut self, place: &Place, kind: Kind, options: &str) -> Result<()> {
        let device = self.device.insert(Mapped::make(&self.directory, &place.name, kind)?);
        mount(device.fstype(), text(&device.device())?, &place.mountpoint, options)
    }

    /// As an operator would: the device is good again, the file system is mounted anew. Its log is replayed.
    fn mount_anew(&mut self, place: &Place) -> Result<()> {
        let device = self.device()?;
        device.answer(Answer::Good)?;
        detach_all(&place.mountpoint)?;
        mount(device.fstype(), text(&device.device())?, &place.mountpoint, "")
    }
}

impl World for Block {
    fn clear(&mut self, place: &Place) -> Result<()> {
        let resumed = self.device.as_ref().map_or(Ok(()), Mapped::resume);
        detach_all(&place.mountpoint)?;
        resumed?;
        match self.device.take() {
            Some(device) => device.remove(),
            None => Ok(()),
        }
    }
}

/// What most rows are: ext4 on a device that answers everything with errors, and then well again.
const ON_ERRORS: Fault<Block> = Fault {
    row: "ext4, device answers errors",
    reasons: GIVES_UP,
    needs: EXT4,
    user: User::Nobody,
    sentinel: false,
    data: 64 << 10,
    deadline: "2s",
    set_up: |world, place| world.set_up(place, Kind::Ext4, ""),
    break_it: |world, _| world.device()?.answer(Answer::Errors),
    repair: Some(|world, place| world.mount_anew(place)),
    beside: None,
};

/// The device waits, and nothing is wrong once it goes on.
const SUSPENDED: Fault<Block> = Fault {
    row: "ext4, device suspended",
    reasons: &["hung"],
    break_it: |world, _| world.device()?.suspend(),
    repair: Some(|world, _| world.device()?.resume()),
    deadline: "1s",
    ..ON_ERRORS
};

/// The file system is told to give up; its device is good.
const SHUT_DOWN: Fault<Block> = Fault {
    row: "ext4 shut down",
    needs: EXT4_SHUTDOWN,
    break_it: |_, place| LoopDevice::shut_down(&place.mountpoint),
    ..ON_ERRORS
};

/// The file system finds an error of its own, and goes read-only.
const INTERNAL_ERROR: Fault<Block> = Fault {
    row: "ext4 errors=remount-ro, error inside",
    set_up: |world, place| world.set_up(place, Kind::Ext4, "errors=remount-ro"),
    break_it: |world, _| trigger_error(&world.device()?.device()),
    ..ON_ERRORS
};

/// The same where that is the default of the superblock: the table has no word for it.
const INTERNAL_ERROR_BY_DEFAULT: Fault<Block> = Fault {
    row: "ext4 errors=remount-ro in the superblock, error inside",
    needs: EXT4_TUNED,
    set_up: |world, place| {
        let device = world.device.insert(Mapped::make(&world.directory, &place.name, Kind::Ext4)?);
        let node = device.device();
        process::run("tune2fs", &["-e".as_ref(), "remount-ro".as_ref(), node.as_os_str()])?;
        mount(device.fstype(), text(&node)?, &place.mountpoint, "")
    },
    // kernel: `ext4_handle_error`, fs/ext4/super.c: from 6.6 to 6.14 it shuts the file system down for that, and reads
    // fail as well.
    reasons: &["readonly", "io_error"],
    ..INTERNAL_ERROR
};

/// The same faults under XFS.
const XFS_ON_ERRORS: Fault<Block> = Fault {
    row: "XFS, device answers errors",
    needs: XFS,
    set_up: |world, place| world.set_up(place, Kind::Xfs, ""),
    ..ON_ERRORS
};

/// And under btrfs.
const BTRFS_ON_ERRORS: Fault<Block> = Fault {
    row: "btrfs, device answers errors",
    needs: BTRFS,
    set_up: |world, place| world.set_up(place, Kind::Btrfs, ""),
    ..ON_ERRORS
};

const FAULTS: &[Fault<Block>] = &[
    ON_ERRORS,
    Fault { user: User::Reads, ..ON_ERRORS },
    Fault { user: User::Writes, ..ON_ERRORS },
    Fault {
        row: "ext4, device refuses writes",
        needs: FLAKEY,
        user: User::Writes,
        break_it: |world, _| world.device()?.answer(Answer::WriteErrors),
        ..ON_ERRORS
    },
    SUSPENDED,
    Fault { user: User::Reads, ..SUSPENDED },
    Fault { sentinel: true, ..SHUT_DOWN },
    Fault { user: User::Reads, row: "ext4 shut down, no sentinel", ..SHUT_DOWN },
    Fault { sentinel: true, ..INTERNAL_ERROR },
    Fault { user: User::Writes, ..INTERNAL_ERROR },
    Fault { sentinel: true, ..INTERNAL_ERROR_BY_DEFAULT },
    XFS_ON_ERRORS,
    Fault { user: User::Reads, ..XFS_ON_ERRORS },
    Fault {
        row: "XFS shut down",
        sentinel: true,
        break_it: |_, place| LoopDevice::shut_down(&place.mountpoint),
        ..XFS_ON_ERRORS
    },
    Fault {
        row: "XFS, device refuses writes",
        needs: XFS_FLAKEY,
        user: User::Writes,
        break_it: |world, _| world.device()?.answer(Answer::WriteErrors),
        ..XFS_ON_ERRORS
    },
    BTRFS_ON_ERRORS,
    Fault { user: User::Writes, ..BTRFS_ON_ERRORS },
];

/// The device is good again and the file system on it is not: it has to be mounted anew. A file that is open would keep
/// the dead superblock, and with it the device.
const REPAIRS: &[Repair<Block>] = &[Repair {
    fault: Fault {
        row: "ext4, device answers errors for a while",
        sentinel: true,
        repair: Some(|world, _| world.device()?.answer(Answer::Good)),
        ..ON_ERRORS
    },
    fstype: "ext4",
    what: |world, _| Ok((text(&world.device()?.device())?.to_owned(), "rw".to_owned())),
    server_is_away: false,
    may_recover: false,
    is_held: false,
    is_gapless: false,
}];

/// The names of the rows about repairs.
pub(super) fn repairs() -> Vec<String> {
    repaired(REPAIRS)
}

/// Runs those.
pub(super) fn run_repairs(watch: &mut Watch<'_>) -> Result<()> {
    watch.repair(&mut Block::prepare(watch.directory()), REPAIRS)
}

/// The names of the rows.
pub(super) fn rows() -> Vec<String> {
    names(FAULTS)
}

/// Runs them.
pub(super) fn run(watch: &mut Watch<'_>) -> Result<()> {
    watch.run(&mut Block::prepare(watch.directory()), FAULTS)
}

/// kernel: `trigger_test_error`, fs/ext4/sysfs.c, since 2.6.35; the directory has the name of the disk.
fn trigger_error(device: &Path) -> Result<()> {
    let number = fs::metadata(device).context("no node")?.rdev();
    let by_number = format!("/sys/dev/block/{}:{}", major(number), minor(number));
    let disk = fs::read_link(&by_number).with_context(|| format!("cannot read {by_number}"))?;
    let name = disk.file_name().context("the device has no name")?;
    switch(Path::new("/sys/fs/ext4").join(name).join("trigger_fs_error"), "shown by a test")
}
