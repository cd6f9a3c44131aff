//! What the calls of a row work on: open files, names, a buffer.

use std::ffi::{CString, OsString};
use std::fs::OpenOptions;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use io_uring::IoUring;
use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;

use super::mapping::{Mapping, die_of_bus_errors};
use super::row::Returned;

/// The first argument that makes this program touch one byte of a mapped file, and perhaps die of it.
pub(crate) const TOUCH: &str = "--touch";

/// The size of the buffer: more than any structure that a call writes.
const BUFFER: usize = 4096;

/// The size of a page on every machine that this is for, and of the files that are mapped: two of them.
pub(super) const PAGE: usize = 4096;

/// The world of a row's calls.
pub(super) struct Scene {
    root: PathBuf,
    outside: PathBuf,
    files: Vec<OwnedFd>,
    turn: usize,
    /// Page-sized; what a call reads or writes.
    pub buffer: Box<[u8]>,
    /// What one row or another keeps.
    pub ring: Option<IoUring>,
    /// The context of Linux AIO.
    pub aio: u64,
    /// A mapped file.
    pub mapping: Option<Mapping>,
}

impl Scene {
    /// `root` is the volume, `outside` a directory that is not on it.
    pub(super) fn new(root: PathBuf, outside: PathBuf) -> Self {
        let buffer = vec![b'x'; BUFFER].into_boxed_slice();
        Self { root, outside, files: Vec::new(), turn: 0, buffer, ring: None, aio: 0, mapping: None }
    }

    /// The next call has a number of its own.
    pub(super) fn next(&mut self) {
        self.turn += 1;
    }

    /// The volume.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// A place that is not on the volume.
    pub(super) fn outside(&self, name: &str) -> PathBuf {
        self.outside.join(name)
    }

    /// Opens a file of the volume, which is made if it is not there; `""` is the root.
    pub(super) fn open(&mut self, name: &str, flags: i32) -> Result<()> {
        let path = if name.is_empty() { self.root.clone() } else { self.root.join(name) };
        self.open_at(&path, flags)
    }

    /// Opens a file anywhere.
    pub(super) fn open_at(&mut self, path: &Path, flags: i32) -> Result<()> {
        let access = flags & libc::O_ACCMODE;
        let file = OpenOptions::new()
            .read(access != libc::O_WRONLY)
            .write(access != libc::O_RDONLY)
            .custom_flags(flags & !libc::O_ACCMODE)
            .open(path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        self.files.push(file.into());
        Ok(())
    }

    /// Opens a new pipe: its reading end, then its writing end, where a row keeps its first two files.
    pub(super) fn fresh_pipe(&mut self, at: usize) -> Result<(), Errno> {
        let (read, write) = nix::unistd::pipe()?;
        self.files.truncate(at);
        self.files.extend([read, write]);
        Ok(())
    }

    /// Makes a file of two pages that goes through the page cache, and opens it.
    pub(super) fn cached(&mut self) -> Result<()> {
        std::fs::write(self.root.join("cached"), vec![b'c'; 2 * PAGE]).context("cannot make a file")?;
        self.open("cached", libc::O_RDWR)
    }

    /// The same, mapped.
    pub(super) fn mapped(&mut self) -> Result<()> {
        self.cached()?;
        let length = NonZeroUsize::new(2 * PAGE).context("no page")?;
        let file = self.borrowed().context("no file")?;
        self.mapping = Some(Mapping::shared(file, length).context("cannot map")?);
        Ok(())
    }

    /// Puts something into the mapped file that has still to be written.
    pub(super) fn dirty(&self) {
        if let Some(mapping) = &self.mapping {
            mapping.store(0, b'd');
        }
    }

    /// One of the open files, as the number that calls take.
    pub(super) fn fd(&self, index: usize) -> i64 {
        self.raw(index).into()
    }

    /// The same as C has it.
    pub(super) fn raw(&self, index: usize) -> i32 {
        self.files.get(index).map_or(-1, AsRawFd::as_raw_fd)
    }

    fn borrowed(&self) -> Option<BorrowedFd<'_>> {
        self.files.last().map(AsFd::as_fd)
    }

    /// A name on the volume, from the root of all names.
    pub(super) fn path(&self, name: &str) -> CString {
        text(self.root.join(name))
    }

    /// A name of this call's own that nothing has yet.
    pub(super) fn fresh(&self) -> CString {
        self.path(&format!("new{}-{}", std::process::id(), self.turn))
    }

    /// A name of this call's own that something has: see [`Scene::stock`].
    pub(super) fn old(&self) -> CString {
        self.path(&format!("old{}", self.turn))
    }

    /// Makes something for each of the coming calls.
    pub(super) fn stock(&mut self, make: impl Fn(&Path) -> std::io::Result<()>) -> Result<()> {
        for turn in 0..=super::actor::MOST_CALLS {
            make(&self.root.join(format!("old{turn}"))).context("cannot make what calls will need")?;
        }
        Ok(())
    }

    /// A vector of one entry: the buffer's beginning.
    pub(super) fn vector(&mut self) -> Vec<u8> {
        [(self.buffer.as_mut_ptr() as usize).to_ne_bytes(), 16usize.to_ne_bytes()].concat()
    }

    /// Runs a program of the volume to its end.
    pub(super) fn execute(&self, name: &str) -> Returned {
        run(&mut Command::new(self.root.join(name)))
    }

    /// Has another process touch a byte of the mapped file, and tells whether it died of it.
    pub(super) fn touch(&self, how: &str, offset: usize) -> Returned {
        let this_program = std::env::current_exe().map_err(|_| Errno::ENOENT)?;
        let mut command = Command::new(this_program);
        command.arg(TOUCH).arg(how).arg(self.root.join("cached")).arg(offset.to_string());
        run(&mut command)
    }
}

/// The end of a program: died of a bus error is EIO, as the kernel means it.
fn run(command: &mut Command) -> Returned {
    let status = command.status().map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(0),
        (_, Some(signal)) if signal == Signal::SIGBUS as i32 => Err(Errno::EIO),
        _ => Err(Errno::ECHILD),
    }
}

/// A path as calls take it. Paths have no zero inside.
pub(super) fn text(path: PathBuf) -> CString {
    CString::new(path.into_os_string().into_vec()).unwrap_or_default()
}

/// The command line behind [`TOUCH`]: load|store PATH OFFSET. Dies of SIGBUS where the page cannot be had.
pub(crate) fn touch(arguments: &[OsString]) -> ExitCode {
    match touch_one(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("touch: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn touch_one(arguments: &[OsString]) -> Result<()> {
    let [how, path, offset] = arguments else { bail!("load|store PATH OFFSET") };
    let offset: usize = offset.to_str().and_then(|text| text.parse().ok()).context("not an offset")?;
    // Dying is what is asked for; nobody wants its memory on disk.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).context("cannot turn core dumps off")?;
    die_of_bus_errors().context("cannot set a signal")?;
    let file = OpenOptions::new().read(true).write(true).open(path).context("cannot open")?;
    let length = NonZeroUsize::new(offset + 1).context("no length")?;
    let mapping = Mapping::shared(file.as_fd(), length).context("cannot map")?;
    match how.to_str() {
        Some("load") => drop(mapping.load(offset)),
        Some("store") => mapping.store(offset, b's'),
        _ => bail!("load or store"),
    }
    // The mapping is not unmapped and the file not closed by destructors: that could fail and is not asked for.
    std::process::exit(0)
}
