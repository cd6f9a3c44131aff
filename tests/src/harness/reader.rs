//! A stand-in for an application: it reads (or writes, or asks for attributes) at a steady pace and counts
//! every call that fails. A process of its own, so that what it meets is not the case's and not the agent's.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::bench::Bench;
use super::process::{Background, this_program_as};
use super::tally::{Channel, Tally};
use super::wait::{is_there, pause, wait_for_some};

/// The first argument that makes this program a reader.
pub const FLAG: &str = "--reader";

/// What it does each time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Opens once, then one `pread` each time.
    Read,
    /// Opens once, then one `pwrite` each time.
    Write,
    /// Opens, reads and closes each time.
    OpenAndRead,
    /// Asks for the attributes by name each time.
    Stat,
}

impl Work {
    const ALL: [Self; 4] = [Self::Read, Self::Write, Self::OpenAndRead, Self::Stat];

    const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::OpenAndRead => "open-and-read",
            Self::Stat => "stat",
        }
    }
}

/// A running reader.
#[derive(Debug)]
pub struct Reader {
    process: Background,
    channel: Channel,
}

impl Reader {
    /// Starts one and waits until it has made its first good call.
    ///
    /// # Errors
    /// When it does not come so far.
    pub fn start(bench: &Bench, name: &str, work: Work, path: &Path, every: Duration) -> Result<Self> {
        let channel = Channel::new(bench.directory(), name);
        let this_program = this_program_as(bench.directory(), "reader")?;
        let child = Command::new(this_program)
            .args([FLAG, work.word()])
            .arg(path)
            .arg(every.as_millis().to_string())
            .arg(&channel.tally)
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start the reader")?;
        let reader = Self { process: Background(child), channel };
        wait_for_some("the reader reads", Duration::from_secs(20), || {
            Ok(reader.tally().is_ok_and(|tally| tally.good > 0).then_some(()))
        })?;
        Ok(reader)
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it has met so far.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn tally(&self) -> Result<Tally> {
        Tally::read(&self.channel.tally)
    }

    /// Lets it end after the call that is under way. Every call it ever made is in the result.
    ///
    /// # Errors
    /// When it does not end.
    pub fn finish(mut self) -> Result<Tally> {
        File::create(&self.channel.stop).context("cannot stop the reader")?;
        let status = self.process.ended_within(Duration::from_secs(30)).context("the reader")?;
        if !status.success() {
            bail!("the reader ended with {status}");
        }
        self.tally()
    }
}

/// The command line behind [`FLAG`]: WORK PATH MILLISECONDS TALLY.
pub fn main(arguments: &[OsString]) -> ExitCode {
    match parse(arguments).and_then(|(work, path, every, tally)| work_on(work, &path, every, tally)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("reader: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[OsString]) -> Result<(Work, PathBuf, Duration, PathBuf)> {
    let [work, path, every, tally] = arguments else { bail!("WORK PATH MILLISECONDS TALLY") };
    let named = |work: &OsString| Work::ALL.into_iter().find(|known| *work == *known.word());
    let every = every.to_str().and_then(|text| text.parse().ok()).context("not a number of milliseconds")?;
    Ok((named(work).context("no such work")?, path.into(), Duration::from_millis(every), tally.into()))
}

fn work_on(work: Work, path: &Path, every: Duration, tally: PathBuf) -> Result<()> {
    let channel = Channel::of(tally);
    let mut tally = Tally::default();
    let kept = match work {
        Work::Read => Some(File::open(path)),
        Work::Write => Some(OpenOptions::new().write(true).open(path)),
        Work::OpenAndRead | Work::Stat => None,
    };
    let kept = kept.transpose().context("cannot open")?;
    while !is_there(&channel.stop) {
        one_call(work, kept.as_ref(), path, &mut tally);
        tally.write(&channel.tally)?;
        pause(every);
    }
    // The descriptor is not closed by a destructor: a failing `close` is not what the case counts.
    std::process::exit(0)
}

fn one_call(work: Work, kept: Option<&File>, path: &Path, tally: &mut Tally) {
    let mut byte = [0];
    match (work, kept) {
        (Work::Read, Some(file)) => tally.note("read", &file.read_at(&mut byte, 0)),
        (Work::Write, Some(file)) => tally.note("write", &file.write_at(b"x", 0)),
        (Work::Stat, _) => tally.note("stat", &fs::metadata(path)),
        (Work::OpenAndRead | Work::Read | Work::Write, _) => match File::open(path) {
            Ok(file) => tally.note("read", &file.read_at(&mut byte, 0)),
            error => tally.note("open", &error),
        },
    }
}
