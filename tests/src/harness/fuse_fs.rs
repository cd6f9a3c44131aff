//! The fault injector: a small FUSE file system that answers as it is told. This file is the side of the case:
//! start it, tell it what to answer, ask it what it answered.
//!
//! A daemon of its own process serves it, so that it can be killed, and so that a repair command can start a
//! new one: `CASES --fuse-injector --control DIR TARGET` mounts at TARGET and returns when it is served. The
//! control directory is outside of the mount; what stands in its file `mode` holds for the next request.

mod daemon;
mod filesystem;
mod gate;
mod mode;
mod stats;
mod tree;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

pub use self::daemon::{FLAG, main};
pub use self::mode::Mode;
pub use self::stats::Answers;
use super::bench::Bench;
use super::process::{run, send, wait_gone};

/// The type that the table shows.
pub const FSTYPE: &str = "fuse.injector";

/// The number of files `data0`, `data1`, ….
pub const DATA_FILES: usize = 10;

/// The size of each of them.
pub const DATA_SIZE: usize = 64 * 1024;

/// An injector's control directory.
#[derive(Clone, Debug)]
pub struct Injector {
    control: PathBuf,
    mountpoint: PathBuf,
}

impl Injector {
    /// Makes the control directory and a mount point, and starts nothing yet.
    ///
    /// # Errors
    /// When the names are taken.
    pub fn prepare(bench: &Bench, name: impl AsRef<Path>, sentinel: &str) -> Result<Self> {
        let mut directory = name.as_ref().as_os_str().to_owned();
        let mountpoint = bench.make_directory(&directory)?;
        directory.push(".control");
        Self::between(bench.make_directory(&directory)?, mountpoint, sentinel)
    }

    /// The same with directories that are there.
    ///
    /// # Errors
    /// When the control directory cannot be written.
    pub fn between(control: PathBuf, mountpoint: PathBuf, sentinel: &str) -> Result<Self> {
        let injector = Self { control, mountpoint };
        fs::write(injector.control.join("sentinel"), sentinel).context("cannot write the sentinel")?;
        injector.set(&Mode::Ok)?;
        Ok(injector)
    }

    /// Prepares and mounts.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub fn start(bench: &Bench, name: impl AsRef<Path>, sentinel: &str) -> Result<Self> {
        let injector = Self::prepare(bench, name, sentinel)?;
        injector.mount(&[])?;
        Ok(injector)
    }

    /// Starts a daemon and mounts it at the mount point.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub fn mount(&self, more_flags: &[&str]) -> Result<()> {
        let this_program = std::env::current_exe().context("cannot find this program")?;
        let mut arguments = self.flags();
        arguments.extend(more_flags.iter().map(OsString::from));
        arguments.push(self.mountpoint.clone().into());
        let arguments: Vec<&OsStr> = arguments.iter().map(OsString::as_os_str).collect();
        run(&this_program.to_string_lossy(), &arguments).map(drop)
    }

    /// The command line, without the target, that starts one more daemon under this control directory.
    ///
    /// # Errors
    /// When this program cannot be found.
    pub fn command(&self) -> Result<Vec<String>> {
        let this_program = std::env::current_exe().context("cannot find this program")?;
        let words = std::iter::once(this_program.into_os_string()).chain(self.flags());
        words.map(|word| word.into_string().map_err(|word| anyhow::anyhow!("not text: {word:?}"))).collect()
    }

    fn flags(&self) -> Vec<OsString> {
        vec![FLAG.into(), "--control".into(), self.control.clone().into()]
    }

    /// Where it is mounted.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// One of the data files.
    #[must_use]
    pub fn data(&self, number: usize) -> PathBuf {
        self.mountpoint.join(format!("data{number}"))
    }

    /// Says how to answer from the next request on.
    ///
    /// # Errors
    /// When the control directory is gone.
    pub fn set(&self, mode: &Mode) -> Result<()> {
        let new = self.control.join("mode.new");
        fs::write(&new, mode.to_string()).context("cannot write the mode")?;
        fs::rename(&new, self.control.join("mode")).context("cannot set the mode")
    }

    /// What all daemons under this control directory have answered. An answer is counted before it is given.
    ///
    /// # Errors
    /// When the counts cannot be read.
    pub fn answers(&self) -> Result<Answers> {
        Answers::read(&self.control)
    }

    /// Calls the daemon is holding back at this moment, by kind.
    ///
    /// # Errors
    /// When the counts cannot be read.
    pub fn held(&self) -> Result<BTreeMap<String, u64>> {
        Ok(self.answers()?.held)
    }

    /// The daemons that run under this control directory.
    #[must_use]
    pub fn daemons(&self) -> Vec<u32> {
        daemon::running(&self.control)
    }

    /// Kills the daemon, without a chance to unmount, and waits until it is gone.
    ///
    /// # Errors
    /// When it does not go.
    pub fn kill(&self) -> Result<()> {
        let daemons = self.daemons();
        for id in &daemons {
            send(*id, Signal::SIGKILL)?;
        }
        wait_gone(&daemons)
    }
}
