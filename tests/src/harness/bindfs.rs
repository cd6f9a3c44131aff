//! A real FUSE daemon that shows a directory at another place.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use super::process::{all, arguments, run, send, wait_gone};

/// The type for `mount -t`. The table shows `fuse`: the daemon does not say its name there.
pub const FSTYPE: &str = "fuse.bindfs";

/// One bindfs mount.
#[derive(Clone, Debug)]
pub struct Bindfs {
    source: PathBuf,
}

impl Bindfs {
    /// Shows `source` at `mountpoint`.
    ///
    /// # Errors
    /// When `mount` fails.
    pub fn mount(source: &Path, mountpoint: &Path) -> Result<Self> {
        let arguments = ["-t".as_ref(), FSTYPE.as_ref(), source.as_os_str(), mountpoint.as_os_str()];
        run("mount", &arguments)?;
        Ok(Self { source: source.to_owned() })
    }

    /// The daemon that serves the source now: after a repair, another one than at first.
    ///
    /// # Errors
    /// When there is none.
    pub fn daemon(&self) -> Result<u32> {
        self.daemons().first().copied().context("no bindfs daemon serves this source")
    }

    /// Every daemon that serves the source, or is about to.
    #[must_use]
    pub fn daemons(&self) -> Vec<u32> {
        let is_one = |id: &u32| {
            let words = arguments(*id);
            let program = words.first().map(Vec::as_slice).unwrap_or_default();
            let named = self.source.as_os_str().as_encoded_bytes();
            program.ends_with(OsStr::new("bindfs").as_encoded_bytes())
                && words.iter().any(|word| word == named)
        };
        all().into_iter().filter(is_one).collect()
    }

    /// Kills the daemon without a chance to unmount, and waits until it is gone.
    ///
    /// # Errors
    /// When there is none.
    pub fn kill(&self) -> Result<()> {
        let daemon = self.daemon()?;
        send(daemon, Signal::SIGKILL)?;
        wait_gone(&[daemon])
    }
}
