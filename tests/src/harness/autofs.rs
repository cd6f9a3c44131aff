//! An autofs trap that tells whether somebody stepped on it. Nobody answers it: who does, waits.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Context, Result};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::mount::{MsFlags, mount};

/// A mounted trap.
#[derive(Debug)]
pub struct Trap {
    packets: std::io::PipeReader,
}

impl Trap {
    /// Mounts a direct trap. The processes of the case's own group pass it freely; all others trigger it.
    ///
    /// kernel: `autofs_parse_options`, fs/autofs/inode.c; protocol 5 since 2.6.24.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub fn set(mountpoint: &Path) -> Result<Self> {
        Self::set_as(mountpoint, "direct")
    }

    /// The same for an indirect map, whose keys are the names in the directory.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub fn set_indirect(mountpoint: &Path) -> Result<Self> {
        Self::set_as(mountpoint, "indirect")
    }

    fn set_as(mountpoint: &Path, kind: &str) -> Result<Self> {
        let (packets, kernel_side) = std::io::pipe().context("cannot make a pipe")?;
        let options = format!(
            "fd={},pgrp={},minproto=5,maxproto=5,{kind}",
            kernel_side.as_raw_fd(),
            nix::unistd::getpgrp()
        );
        mount(Some("trap"), mountpoint, Some("autofs"), MsFlags::empty(), Some(options.as_str()))
            .with_context(|| format!("cannot mount autofs on {}", mountpoint.display()))?;
        fcntl(&packets, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).context("cannot make the pipe non-blocking")?;
        Ok(Self { packets })
    }

    /// The next packet that the kernel has for the daemon, if there is one: its kind, and the token to answer with.
    ///
    /// kernel: `struct autofs_v5_packet`, include/uapi/linux/auto_fs.h: version, kind, token.
    pub fn packet(&mut self) -> Option<(u32, u32)> {
        let mut packet = [0; 512];
        let length = self.packets.read(&mut packet).ok()?;
        let word = |at: usize| {
            let bytes = packet.get(at..at + 4).filter(|_| length >= at + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        Some((word(4)?, word(8)?))
    }

    /// Whether somebody has triggered it since the last question.
    pub fn was_triggered(&mut self) -> bool {
        let mut packet = [0; 512];
        self.packets.read(&mut packet).is_ok_and(|length| length > 0)
    }
}
