//! Memory that is aligned as direct reads need it, and reads into it.
//!
//! May block on a sick file system or device: only for disposable child processes.

use std::os::fd::AsFd;

use rustix::io::{Errno, pread};

/// What direct reads are aligned to: no common device has a larger logical block.
pub const BLOCK: usize = 4096;

/// One more block than the largest sentinel, so that a longer file is seen to be longer.
const SIZE: usize = super::sentinel::LONGEST + BLOCK;

#[repr(C, align(4096))]
struct Aligned([u8; SIZE]);

/// Interrupted reads that are made again. A file system whose daemon always answers so must not keep a processor
/// busy until the deadline.
const AGAIN: usize = 16;

/// A buffer for direct reads.
pub struct Buffer(Box<Aligned>);

impl Default for Buffer {
    fn default() -> Self {
        Self(Box::new(Aligned([0; SIZE])))
    }
}

impl Buffer {
    /// Reads from the start until the end of the file, or until the buffer is full.
    pub fn read_all(&mut self, file: impl AsFd) -> Result<&[u8], Errno> {
        let mut filled = 0;
        while let Some(rest) = self.0.0.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let count = read_at(&file, rest, filled as u64)?;
            filled += count;
            // A direct read can only go on at a block's edge; the part of a block is the end of a file.
            if count == 0 || !count.is_multiple_of(BLOCK) {
                break;
            }
        }
        Ok(self.head(filled))
    }

    /// The first bytes of what was read last.
    #[must_use]
    pub fn head(&self, length: usize) -> &[u8] {
        self.0.0.get(..length).unwrap_or_default()
    }

    /// Reads one block from the start.
    pub fn read_block(&mut self, file: impl AsFd) -> Result<usize, Errno> {
        read_at(&file, self.0.0.get_mut(..BLOCK).unwrap_or_default(), 0)
    }
}

fn read_at(file: impl AsFd, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    for _ in 0..AGAIN {
        match pread(&file, &mut *buffer, offset) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
    Err(Errno::INTR)
}
