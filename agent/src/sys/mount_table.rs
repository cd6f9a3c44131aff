//! The mount table as the executor's children read it: fresh, whole, of the namespace they are in.
//!
//! The sensor's reader watches and counts; this one answers a single question at the moment of acting.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use agent_core::topology::MountTable;
use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::io::{Errno, Result};

use super::mountinfo::parse_table;

/// No file about a process that is read here is larger.
const LARGEST: u64 = 64 * 1024;

/// `/proc` as this process saw it first. Another mount namespace may have none, or one of another process
/// namespace in which `self` does not resolve.
#[derive(Debug)]
pub struct Proc(OwnedFd);

impl Proc {
    /// Opens it. To be done before another namespace is entered.
    pub fn open() -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, "/proc", flags, Mode::empty()).map(Self)
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &OwnedFd {
        &self.0
    }

    /// What stands in a small file about a process.
    pub fn read(&self, path: &str) -> Result<Vec<u8>> {
        let file = openat(&self.0, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = Vec::new();
        File::from(file)
            .take(LARGEST)
            .read_to_end(&mut text)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(text)
    }

    /// The threads of a process.
    pub fn threads(&self, process: u32) -> Result<Vec<u32>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(&self.0, format!("{process}/task"), flags, Mode::empty())?;
        let names = Dir::new(directory)?.filter_map(std::result::Result::ok);
        Ok(names.filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok()).collect())
    }

    /// The table of the namespace that the process is in now. Polling the file for POLLPRI tells of changes.
    pub fn open_table(&self) -> Result<File> {
        // The namespace is fixed when the file is opened (`mounts_open_common`, fs/proc_namespace.c).
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        openat(&self.0, "self/mountinfo", flags, Mode::empty()).map(File::from)
    }

    /// Reads the table. A line that cannot be understood is left out.
    pub fn table(&self) -> Result<MountTable> {
        let mut text = Vec::new();
        self.open_table()?
            .read_to_end(&mut text)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(MountTable::new(parse_table(&text).mounts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::path::BytePath;

    #[test]
    fn the_own_table_has_a_root() {
        let table = Proc::open().unwrap().table().unwrap();
        assert!(table.top_at(&BytePath::from("/")).is_some());
    }

    #[test]
    fn the_id_of_a_held_place_is_that_of_its_line() {
        let place = BytePath::from("/proc");
        let proc = Proc::open().unwrap();
        let table = proc.table().unwrap();
        let held = crate::sys::look::hold(&place).unwrap();
        let told = crate::sys::look::mount_id(&proc, &held).unwrap();
        assert_eq!(Some(told), table.top_at(&place).map(|mount| mount.id));
        let about = proc.read(&format!("self/fdinfo/{}", std::os::fd::AsRawFd::as_raw_fd(&held))).unwrap();
        assert_eq!(crate::sys::look::mount_of(&about), Some(told));
    }
}
