//! A device-mapper device over a loop device, that can be told to fail, and to wait.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use integration_tests::harness::loop_dev::{Kind, LoopDevice};

use super::tools::{text, tool};

/// A device-mapper device with a file system in it. Removed when dropped, with its image.
#[derive(Debug)]
pub(crate) struct Mapped {
    name: String,
    sectors: u64,
    lower: LoopDevice,
    image: PathBuf,
}

/// How the device answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// As the device below it.
    Good,
    /// With errors.
    Errors,
    /// Good to reads, with errors to writes.
    WriteErrors,
}

impl Mapped {
    /// Makes the device, with a file system in it.
    pub(crate) fn make(directory: &Path, name: &str, kind: Kind) -> Result<Self> {
        let image = directory.join(format!("{name}.img"));
        let lower = LoopDevice::make_in(directory, name, kind)?;
        let sectors = tool("blockdev", &["--getsz", text(lower.device())?])?;
        let sectors = sectors.trim().parse().context("not a number of sectors")?;
        let mapped = Self { name: format!("mountie-{name}"), sectors, lower, image };
        let _ = mapped.remove();
        tool("dmsetup", &["create", &mapped.name, "--table", &mapped.table(Answer::Good)?])?;
        Ok(mapped)
    }

    /// Its node.
    pub(crate) fn device(&self) -> PathBuf {
        PathBuf::from("/dev/mapper").join(&self.name)
    }

    /// The type of the file system in it.
    pub(crate) const fn fstype(&self) -> &'static str {
        self.lower.fstype()
    }

    /// Changes the answers, without writing anything out first.
    pub(crate) fn answer(&self, answer: Answer) -> Result<()> {
        let table = self.table(answer)?;
        self.suspend()?;
        let loaded = tool("dmsetup", &["load", &self.name, "--table", &table]);
        self.resume()?;
        loaded.map(drop)
    }

    /// From here on every request waits.
    pub(crate) fn suspend(&self) -> Result<()> {
        tool("dmsetup", &["suspend", "--nolockfs", "--noflush", &self.name]).map(drop)
    }

    /// What waits goes on.
    pub(crate) fn resume(&self) -> Result<()> {
        tool("dmsetup", &["resume", &self.name]).map(drop)
    }

    /// Takes it away; while it is in use, what uses it is given errors until its last close.
    pub(crate) fn remove(&self) -> Result<()> {
        tool("dmsetup", &["remove", "--deferred", &self.name]).map(drop)
    }

    fn table(&self, answer: Answer) -> Result<String> {
        let (sectors, lower) = (self.sectors, text(self.lower.device())?);
        Ok(match answer {
            Answer::Good => format!("0 {sectors} linear {lower} 0"),
            Answer::Errors => format!("0 {sectors} error"),
            // Up for no second, down for a thousand.
            Answer::WriteErrors => format!("0 {sectors} flakey {lower} 0 0 1000 1 error_writes"),
        })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let _ = self.resume();
        let _ = self.remove();
        // In memory: the images of all rows together would fill it.
        let _ = std::fs::remove_file(&self.image);
    }
}
