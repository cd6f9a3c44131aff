//! Block file systems on loop devices, and the ways to break them. The images are in memory; the devices go
//! away with the last user, whatever happens to the case.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::bench::{Bench, mount_tmpfs};
use super::process::run;

/// A block file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// ext4.
    Ext4,
    /// ext4 without a journal: it goes on after the device refuses a write.
    Ext4NoJournal,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl Kind {
    /// The type, as in the table.
    #[must_use]
    pub const fn fstype(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Ext4NoJournal => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The smallest image that its mkfs takes, with some room.
    const fn image_size(self) -> u64 {
        match self {
            Self::Ext4 | Self::Ext4NoJournal => 64 << 20,
            Self::Xfs => 320 << 20,
            Self::Btrfs => 128 << 20,
        }
    }

    const fn mkfs(self) -> (&'static str, &'static [&'static str]) {
        match self {
            // No lazy initialisation: nothing of mkfs goes on in the background.
            Self::Ext4 => ("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]),
            Self::Ext4NoJournal => {
                ("mkfs.ext4", &["-q", "-O", "^has_journal", "-E", "lazy_itable_init=0,nodiscard"])
            }
            Self::Xfs => ("mkfs.xfs", &["-q", "-K"]),
            Self::Btrfs => ("mkfs.btrfs", &["-q", "-K"]),
        }
    }
}

/// A loop device with a file system in it.
#[derive(Debug)]
pub struct LoopDevice {
    kind: Kind,
    image: PathBuf,
    device: PathBuf,
    /// Keeps the device attached between two mounts of it.
    _open: File,
}

impl LoopDevice {
    /// Makes an image in the case's directory, a file system in it, and attaches it.
    ///
    /// # Errors
    /// When one of the tools fails.
    pub fn make(bench: &Bench, name: &str, kind: Kind) -> Result<Self> {
        Self::make_in(bench.directory(), name, kind)
    }

    /// The same with the image in another directory.
    ///
    /// # Errors
    /// When one of the tools fails.
    pub fn make_in(directory: &Path, name: &str, kind: Kind) -> Result<Self> {
        let image = directory.join(format!("{name}.img"));
        File::create(&image)
            .and_then(|file| file.set_len(kind.image_size()))
            .with_context(|| format!("cannot make {}", image.display()))?;
        let (mkfs, flags) = kind.mkfs();
        let arguments: Vec<&OsStr> = flags.iter().map(OsStr::new).chain([image.as_os_str()]).collect();
        run(mkfs, &arguments)?;
        let printed = run("losetup", &["--find".as_ref(), "--show".as_ref(), image.as_os_str()])?;
        let device = PathBuf::from(printed.trim());
        let open = File::open(&device).with_context(|| format!("cannot open {}", device.display()))?;
        // Detaching a device in use makes it detach itself at its last close.
        // kernel: `loop_clr_fd`, drivers/block/loop.c, since 3.7.
        run("losetup", &["--detach".as_ref(), device.as_os_str()])?;
        Ok(Self { kind, image, device, _open: open })
    }

    /// A mounted device that is larger than the room below it: writes succeed, and what does not fit is lost
    /// when it is written out. With the mount point.
    ///
    /// # Errors
    /// When one of the tools fails.
    pub fn without_room(bench: &Bench) -> Result<(Self, PathBuf)> {
        let room = bench.make_directory("room")?;
        mount_tmpfs(&room, "size=16m,mode=0700")?;
        let device = Self::make_in(&room, "disk", Kind::Ext4NoJournal)?;
        let mountpoint = bench.make_directory("volume")?;
        device.mount(&mountpoint, "errors=continue")?;
        Ok((device, mountpoint))
    }

    /// A device whose file system is mounted, with the mount point. What is written next is not settled yet.
    ///
    /// # Errors
    /// When one of the tools fails.
    pub fn mounted(bench: &Bench, kind: Kind, options: &str) -> Result<(Self, PathBuf)> {
        let device = Self::make(bench, "disk", kind)?;
        let mountpoint = bench.make_directory("volume")?;
        device.mount(&mountpoint, options)?;
        Ok((device, mountpoint))
    }

    /// `/dev/loopN`.
    #[must_use]
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// The type in the table.
    #[must_use]
    pub const fn fstype(&self) -> &'static str {
        self.kind.fstype()
    }

    /// Mounts it. Empty options are the defaults.
    ///
    /// # Errors
    /// When `mount` fails.
    pub fn mount(&self, mountpoint: &Path, options: &str) -> Result<()> {
        let options = if options.is_empty() { "rw" } else { options };
        let words = ["-t", self.fstype(), "-o", options];
        let places = [self.device.as_os_str(), mountpoint.as_os_str()];
        let arguments: Vec<&OsStr> = words.iter().map(OsStr::new).chain(places).collect();
        run("mount", &arguments).map(drop)
    }

    /// Writes everything out, so that an error finds nothing unwritten to lose.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn settle(mountpoint: &Path) -> Result<()> {
        let root = File::open(mountpoint).context("cannot open the mount point")?;
        nix::unistd::syncfs(&root).context("cannot write out")
    }

    /// Makes ext4 believe that it found an error of its own.
    ///
    /// kernel: `trigger_test_error`, fs/ext4/sysfs.c, since 2.6.35.
    ///
    /// # Errors
    /// When it is not a mounted ext4.
    pub fn trigger_error(&self) -> Result<()> {
        let name = self.device.file_name().context("the device has no name")?;
        let switch = Path::new("/sys/fs/ext4").join(name).join("trigger_fs_error");
        fs::write(&switch, "shown by a test").with_context(|| format!("cannot write {}", switch.display()))
    }

    /// Shuts the file system down, as after a loss of its log.
    ///
    /// # Errors
    /// When `xfs_io` fails.
    pub fn shut_down(mountpoint: &Path) -> Result<()> {
        let words = ["-x", "-c", "shutdown"];
        let arguments: Vec<&OsStr> = words.iter().map(OsStr::new).chain([mountpoint.as_os_str()]).collect();
        run("xfs_io", &arguments).map(drop)
    }

    /// Takes the storage away under the file system.
    ///
    /// # Errors
    /// When the image cannot be cut.
    pub fn cut_off(&self) -> Result<()> {
        let image = OpenOptions::new().write(true).open(&self.image).context("cannot open the image")?;
        image.set_len(0).context("cannot cut the image")
    }
}
