//! A stand-in for an application that must never see the bare directory under a mount: it opens the same file
//! over and over, as fast as it can, and counts each look at which neither the old nor the new file system
//! was there. Errors of a dead file system are allowed; an empty directory is not.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;

use super::bench::Bench;
use super::process::{Background, this_program_as};
use super::tally::{Channel, Tally};
use super::wait::{is_there, now, wait_for_some};

/// The first argument that makes this program a watcher.
pub const FLAG: &str = "--watcher";

/// How often it writes its tally down.
const WRITE_EVERY: Duration = Duration::from_millis(20);

/// A running watcher.
#[derive(Debug)]
pub struct Watcher {
    process: Background,
    channel: Channel,
}

impl Watcher {
    /// Starts one on a mount point that serves `file` with `content`, and waits for its first good look.
    /// `bare_device` is the device of the directory beneath, which must never be seen.
    ///
    /// # Errors
    /// When it does not come so far.
    pub fn start(bench: &Bench, mountpoint: &Path, file: &str, content: &str) -> Result<Self> {
        let channel = Channel::new(bench.directory(), "watcher");
        let this_program = this_program_as(bench.directory(), "watcher")?;
        let bare = fs::metadata(bench.directory()).context("cannot look at the case's directory")?.dev();
        let child = Command::new(this_program)
            .arg(FLAG)
            .arg(mountpoint)
            .args([file, content, &bare.to_string()])
            .arg(&channel.tally)
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start the watcher")?;
        let watcher = Self { process: Background(child), channel };
        wait_for_some("the watcher sees the file", Duration::from_secs(20), || {
            Ok(watcher.tally().is_ok_and(|tally| tally.good > 0).then_some(()))
        })?;
        Ok(watcher)
    }

    /// What it has seen so far.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn tally(&self) -> Result<Tally> {
        Tally::read(&self.channel.tally)
    }

    /// Waits until it has made that many more good looks.
    ///
    /// # Errors
    /// When it does not.
    pub fn sees_more(&self, looks: u64, within: Duration) -> Result<()> {
        let before = self.tally()?.good;
        wait_for_some("the watcher sees the file again", within, || {
            Ok((self.tally()?.good >= before + looks).then_some(()))
        })
    }

    /// Lets it end, and returns every look it ever made.
    ///
    /// # Errors
    /// When it does not end.
    pub fn finish(mut self) -> Result<Tally> {
        File::create(&self.channel.stop).context("cannot stop the watcher")?;
        let status = self.process.ended_within(Duration::from_secs(30)).context("the watcher")?;
        if !status.success() {
            bail!("the watcher ended with {status}");
        }
        self.tally()
    }
}

/// The command line behind [`FLAG`]: MOUNTPOINT FILE CONTENT BARE-DEVICE TALLY.
pub fn main(arguments: &[OsString]) -> ExitCode {
    match watch(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("watcher: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn watch(arguments: &[OsString]) -> Result<()> {
    let [mountpoint, file, content, bare, tally] = arguments else {
        bail!("MOUNTPOINT FILE CONTENT BARE-DEVICE TALLY")
    };
    let bare: u64 = bare.to_str().and_then(|text| text.parse().ok()).context("not a device number")?;
    let (mountpoint, content) = (PathBuf::from(mountpoint), content.as_encoded_bytes());
    let channel = Channel::of(tally.into());
    let mut tally = Tally::default();
    let mut written = Duration::ZERO;
    loop {
        look(&mountpoint.join(file), content, &mut tally);
        look_at_device(&mountpoint, bare, &mut tally);
        let stop = is_there(&channel.stop);
        if stop || now().saturating_sub(written) >= WRITE_EVERY {
            tally.write(&channel.tally)?;
            written = now();
        }
        if stop {
            return Ok(());
        }
    }
}

fn look(path: &Path, content: &[u8], tally: &mut Tally) {
    let read = || -> io::Result<Vec<u8>> {
        let mut found = Vec::new();
        File::open(path)?.read_to_end(&mut found)?;
        Ok(found)
    };
    match read() {
        Ok(found) if found == content => tally.good += 1,
        Ok(_) => tally.gaps += 1,
        Err(error) if error.raw_os_error() == Some(Errno::ENOENT as i32) => tally.gaps += 1,
        error @ Err(_) => tally.note("open", &error),
    }
}

/// Attributes of a directory whose file system is dead may fail: that is no gap.
fn look_at_device(mountpoint: &Path, bare: u64, tally: &mut Tally) {
    if fs::metadata(mountpoint).is_ok_and(|found| found.dev() == bare) {
        tally.gaps += 1;
    }
}
