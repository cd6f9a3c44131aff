//! Where the text of the mount table comes from: the kernel's file, or a double in tests.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

/// The kernel hands out at most about a page a call (see [`ProcFile`]), so more than a little is wasted.
const BUFFER: usize = 64 * 1024;

/// Gives the whole text of the table, as often as asked.
pub trait TableSource: Send {
    /// Reads the table from the beginning and hands it over in pieces of any size.
    fn read(&mut self, piece: &mut dyn FnMut(&[u8])) -> io::Result<()>;

    /// A descriptor that reports `POLLPRI` once after every change since the last report.
    fn changes(&self) -> Option<BorrowedFd<'_>>;
}

/// `/proc/<process>/mountinfo`.
///
/// Opened once and read again from offset 0: opening takes a reference to the process's mount namespace, and
/// the descriptor that reports changes must stay open. It does not pin any mount.
///
/// kernel: `mounts_open_common` and `mounts_poll`, fs/proc_namespace.c, since 2.6.30; `seq_read_iter`,
/// fs/seq_file.c, which returns what is in its buffer (a page, or one longer line).
#[derive(Debug)]
pub struct ProcFile {
    path: PathBuf,
    file: Option<File>,
    buffer: Vec<u8>,
}

impl ProcFile {
    /// Nothing is opened yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, file: None, buffer: vec![0; BUFFER] }
    }
}

impl TableSource for ProcFile {
    fn read(&mut self, piece: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        // Taken, and put back only after success: after an error the next attempt opens anew.
        let mut file = match self.file.take() {
            Some(file) => file,
            None => File::open(&self.path)?,
        };
        file.seek(SeekFrom::Start(0))?;
        loop {
            match file.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(length) => piece(self.buffer.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.file = Some(file);
        Ok(())
    }

    fn changes(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }
}
