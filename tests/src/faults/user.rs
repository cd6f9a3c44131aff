//! The ordinary program that touches a broken volume. It may hang: then it is left behind.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::process::Background;
use integration_tests::harness::wait::now;

use super::fault::Place;

/// The name of the file that is read.
pub(crate) const DATA: &str = "data";

/// How long a user waits before it tries again.
const AGAIN: Duration = Duration::from_millis(400);

/// What the program does, again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum User {
    /// There is none.
    Nobody,
    /// Reads a file that is not in the cache.
    Reads,
    /// Writes a file and makes it durable.
    Writes,
    /// Asks for the attributes of a file.
    Asks,
}

impl User {
    /// The end of the row's name.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Nobody => "nobody reads",
            Self::Reads => "somebody reads",
            Self::Writes => "somebody writes",
            Self::Asks => "somebody asks",
        }
    }

    /// A shell of its own drops the caches too: that may wait for a broken file system.
    const fn script(self) -> Option<&'static str> {
        Some(match self {
            Self::Nobody => return None,
            Self::Reads => "echo 3 > /proc/sys/vm/drop_caches; exec cat \"$1\"/data",
            Self::Writes => {
                "exec dd if=/dev/zero of=\"$1\"/written bs=64k count=4 conv=notrunc,fsync status=none"
            }
            Self::Asks => "exec stat \"$1\"/data",
        })
    }
}

/// A user at work.
#[derive(Debug)]
pub(crate) struct AtWork {
    user: User,
    place: Place,
    complaints: PathBuf,
    running: Option<Background>,
    last: Duration,
}

impl AtWork {
    /// One that has not begun.
    pub(crate) fn new(bench: &Bench, user: User, place: &Place) -> Self {
        let complaints = bench.path(format!("{}.complaints", place.name));
        Self { user, place: place.clone(), complaints, running: None, last: Duration::ZERO }
    }

    /// Starts the program, unless it still runs or has just ended.
    pub(crate) fn go_on(&mut self) -> Result<()> {
        let Some(script) = self.user.script() else { return Ok(()) };
        if let Some(running) = &mut self.running
            && running.ended()?.is_none()
        {
            return Ok(());
        }
        if now().saturating_sub(self.last) < AGAIN {
            return Ok(());
        }
        self.last = now();
        let complaints = File::options().create(true).append(true).open(&self.complaints);
        let child = Command::new("sh")
            .args(["-c", script, "user"])
            .arg(&self.place.mountpoint)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(complaints.context("cannot open a file for complaints")?)
            .spawn()
            .context("cannot start a user")?;
        self.running = Some(Background(child));
        Ok(())
    }

    /// What the program said last: the error as people meet it.
    pub(crate) fn complaint(&self) -> String {
        let text = fs::read_to_string(&self.complaints).unwrap_or_default();
        let last = text.lines().last().unwrap_or_default();
        last.rsplit(": ").next().unwrap_or_default().to_owned()
    }
}
