//! Every change to the files of the store, one call each: what a sudden end of the power can separate.
//!
//! A test records them and tries every state that the disk may be left in.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::StoreError;

#[cfg(test)]
pub(super) mod tape;

/// The disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    #[cfg(test)]
    pub(super) tape: Option<tape::Tape>,
}

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Handle {
    file: File,
    #[cfg(test)]
    number: usize,
}

#[cfg(test)]
impl From<File> for Handle {
    fn from(file: File) -> Self {
        Self { file, number: 0 }
    }
}

impl Disk {
    /// Makes a directory that is the agent's alone, with all above it. A new name is on disk when it returns.
    pub(super) fn make_directory(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        if let Some(above) = above {
            self.make_directory(above)?;
        }
        match DirBuilder::new().mode(0o700).create(path) {
            // Another process may have been quicker.
            Err(error) if !path.is_dir() => return Err(error),
            Err(_) | Ok(()) => {}
        }
        #[cfg(test)]
        self.record(tape::Change::MakeDirectory(path.to_owned()));
        above.map_or(Ok(()), |above| self.sync_names(above))
    }

    /// A new, empty file of that name.
    pub(super) fn create(&self, path: &Path) -> io::Result<Handle> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        Ok(Handle {
            file,
            #[cfg(test)]
            number: self.tape.as_ref().map_or(0, |tape| tape.create(path)),
        })
    }

    /// Adds to a file.
    pub(super) fn write(&self, handle: &mut Handle, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        self.record(tape::Change::Write(handle.number, bytes.to_vec()));
        handle.file.write_all(bytes)
    }

    /// Brings what a file holds to the disk. Not its name: see [`Disk::sync_directory`].
    pub(super) fn sync(&self, handle: &Handle) -> io::Result<()> {
        handle.file.sync_all()?;
        #[cfg(test)]
        self.record(tape::Change::Sync(handle.number));
        Ok(())
    }

    /// Gives a file the name of another one, in its place.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        #[cfg(test)]
        self.record(tape::Change::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    /// Takes a name away.
    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)?;
        #[cfg(test)]
        self.record(tape::Change::Remove(path.to_owned()));
        Ok(())
    }

    /// Gives a file a second name.
    pub(super) fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)?;
        #[cfg(test)]
        self.record(tape::Change::Link(from.to_owned(), to.to_owned()));
        Ok(())
    }

    /// Brings the names in a directory to the disk.
    pub(super) fn sync_directory(&self, path: &Path) -> Result<(), StoreError> {
        let synced = self.sync_names(path);
        synced.map_err(|source| StoreError::Io { operation: "sync", path: path.to_path_buf(), source })
    }

    fn sync_names(&self, path: &Path) -> io::Result<()> {
        File::open(path).and_then(|directory| directory.sync_all())?;
        #[cfg(test)]
        self.record(tape::Change::SyncDirectory(path.to_owned()));
        Ok(())
    }

    /// Puts a file with this content in the place of another one, in one step. It is sure to be on disk after
    /// [`Disk::sync_directory`].
    pub(super) fn replace(&self, path: &Path, bytes: &[u8]) -> Result<Handle, StoreError> {
        let new = new_name(path);
        let failed = |operation, path: &Path| {
            let path = path.to_path_buf();
            move |source| StoreError::Io { operation, path, source }
        };
        let mut handle = self.create(&new).map_err(failed("create", &new))?;
        if let Err(source) = self.write(&mut handle, bytes).and_then(|()| self.sync(&handle)) {
            // On a full disk it would take the room that the next attempt needs.
            let _ = self.remove(&new);
            return Err(failed("write", &new)(source));
        }
        self.rename(&new, path).map_err(failed("replace", path))?;
        Ok(handle)
    }

    #[cfg(test)]
    fn record(&self, change: tape::Change) {
        if let Some(tape) = &self.tape {
            tape.record(change);
        }
    }
}

/// The name of a file that will take the place of `path`.
fn new_name(path: &Path) -> PathBuf {
    path.with_extension("new")
}
