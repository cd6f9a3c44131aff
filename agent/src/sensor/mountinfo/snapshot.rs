//! From readings of the table to snapshots that can be trusted.
//!
//! One `read` call of mountinfo is consistent, the whole table is not: it takes many calls, and on older kernels
//! a mount can be skipped when the one at the cursor goes away meanwhile. So a mount that was there in the last
//! snapshot and is not in this reading is only *suspected* to be gone:
//!
//! * It is gone when two readings in a row lack it. The second one is made at once, and is the only extra one.
//! * What the second reading alone lacks stays in the snapshot and is suspected; the snapshot is then not
//!   settled, and the caller makes another scan when the pace allows it. That scan's first reading is the
//!   second one in a row.
//! * An id that is listed with other facts is not an absence. What is listed was seen.
//! * The first snapshot has nothing to be compared with, so it is the union of two readings.
//!
//! Memory: the raw text of at most two readings while a scan runs, of one between scans (it is reused), and 16
//! bytes a line to know the next difference. Nothing is parsed when nothing changed.
//!
//! kernel: `m_start`, `m_next`, fs/namespace.c. The place to go on from was a count of lines before 5.8, a marker
//! in the list after, and is a unique id to look up since 6.8, where no loss was seen under churn.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use agent_core::id::MountId;
use agent_core::topology::MountTable;
use thiserror::Error;

use super::source::TableSource;
use crate::sys::mountinfo::lines::Lines;
use crate::sys::mountinfo::{Parsed, leading_id};

/// Why a scan gave no snapshot.
#[derive(Debug, Error)]
pub enum ScanError {
    /// The file cannot be opened or read.
    #[error("cannot read the mount table")]
    Read(#[source] io::Error),
    /// Nothing was listed. Every namespace has a root, so this is no table: it says nothing about any mount.
    #[error("the mount table is empty: this process has no mounts within its root directory")]
    Empty,
}

/// What a scan gave.
#[derive(Debug)]
pub struct Scan {
    /// The snapshot, when it differs from the last.
    pub table: Option<MountTable>,
    /// Lines that were parsed.
    pub entries: usize,
    /// Lines that were not.
    pub bad_lines: u64,
    /// Whether nothing is suspected. Otherwise another scan should follow.
    pub is_settled: bool,
    /// Readings that were made.
    pub readings: u32,
}

/// What is remembered of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    hash: u64,
    id: Option<MountId>,
}

/// Turns readings into snapshots. Holds what the last snapshot listed.
#[derive(Debug, Default)]
pub struct Scanner {
    published: Option<Vec<Mark>>,
    /// Published, but lacking in the last reading; sorted.
    suspects: Vec<MountId>,
    entries: usize,
    /// Lines of the last snapshot that could not be parsed.
    bad_lines: u64,
    /// Lines of the last reading that were too long to keep.
    overlong: u64,
    /// Kept for its capacity.
    spare: Reading,
}

impl Scanner {
    /// Reads the table, twice where that is needed.
    pub fn scan(&mut self, source: &mut dyn TableSource) -> Result<Scan, ScanError> {
        let mut first = std::mem::take(&mut self.spare);
        first.fill(source)?;
        self.overlong = first.overlong;
        if self.published.as_ref() == Some(&first.marks) {
            self.suspects.clear();
            self.spare = first.emptied();
            return Ok(self.outcome(None, 1));
        }
        if !self.needs_second(&first) {
            self.suspects.clear();
            let table = self.publish(&first, &[]);
            self.spare = first.emptied();
            return Ok(self.outcome(table, 1));
        }
        let mut second = Reading::default();
        second.fill(source)?;
        self.overlong = second.overlong;
        let listed = second.ids();
        let only_first: Vec<usize> =
            first.positions(|mark| mark.id.is_some_and(|id| listed.binary_search(&id).is_err())).collect();
        let kept: Vec<(Mark, &[u8])> = only_first.iter().filter_map(|index| first.line(*index)).collect();
        self.suspects = kept.iter().filter_map(|(mark, _)| mark.id).collect();
        self.suspects.sort_unstable();
        let table = self.publish(&second, &kept);
        drop(kept);
        self.spare = first.emptied();
        Ok(self.outcome(table, 2))
    }

    /// Whether this reading lacks something that the one before it had.
    fn needs_second(&self, first: &Reading) -> bool {
        let Some(published) = &self.published else {
            return true;
        };
        let listed = first.ids();
        published
            .iter()
            .filter_map(|mark| mark.id)
            .any(|id| listed.binary_search(&id).is_err() && self.suspects.binary_search(&id).is_err())
    }

    /// Parses the reading and the kept lines, unless together they are what was published last.
    fn publish(&mut self, reading: &Reading, kept: &[(Mark, &[u8])]) -> Option<MountTable> {
        let marks: Vec<Mark> =
            reading.marks.iter().copied().chain(kept.iter().map(|(mark, _)| *mark)).collect();
        if self.published.as_ref() == Some(&marks) {
            return None;
        }
        let mut parsed = Parsed::default();
        for (_, line) in reading.lines() {
            parsed.add(line);
        }
        for (_, line) in kept {
            parsed.add(line);
        }
        self.entries = parsed.mounts.len();
        self.bad_lines = parsed.bad_lines;
        self.published = Some(marks);
        Some(MountTable::new(parsed.mounts))
    }

    fn outcome(&self, table: Option<MountTable>, readings: u32) -> Scan {
        Scan {
            table,
            entries: self.entries,
            bad_lines: self.bad_lines + self.overlong,
            is_settled: self.suspects.is_empty(),
            readings,
        }
    }
}

/// The raw text of one pass over the table.
#[derive(Debug, Default)]
struct Reading {
    /// All lines, one after another, without newlines.
    text: Vec<u8>,
    /// For each line the place in `text` where it ends.
    ends: Vec<usize>,
    marks: Vec<Mark>,
    overlong: u64,
}

impl Reading {
    fn fill(&mut self, source: &mut dyn TableSource) -> Result<(), ScanError> {
        let mut lines = Lines::default();
        source.read(&mut |piece| lines.feed(piece, |line| self.add(line))).map_err(ScanError::Read)?;
        self.overlong = lines.finish(|line| self.add(line));
        if self.marks.is_empty() { Err(ScanError::Empty) } else { Ok(()) }
    }

    fn add(&mut self, line: &[u8]) {
        let mut hasher = DefaultHasher::new();
        line.hash(&mut hasher);
        self.text.extend_from_slice(line);
        self.ends.push(self.text.len());
        self.marks.push(Mark { hash: hasher.finish(), id: leading_id(line) });
    }

    fn line(&self, index: usize) -> Option<(Mark, &[u8])> {
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        Some((*self.marks.get(index)?, self.text.get(start..*self.ends.get(index)?)?))
    }

    fn lines(&self) -> impl Iterator<Item = (Mark, &[u8])> {
        (0..self.marks.len()).filter_map(|index| self.line(index))
    }

    fn positions(&self, wanted: impl Fn(&Mark) -> bool) -> impl Iterator<Item = usize> {
        self.marks.iter().enumerate().filter(move |(_, mark)| wanted(mark)).map(|(index, _)| index)
    }

    /// Sorted.
    fn ids(&self) -> Vec<MountId> {
        let mut ids: Vec<MountId> = self.marks.iter().filter_map(|mark| mark.id).collect();
        ids.sort_unstable();
        ids
    }

    /// Keeps the room for the next reading, but not the room of a table that was once much larger.
    fn emptied(mut self) -> Self {
        let (text, lines) = (self.text.len(), self.marks.len());
        self.text.clear();
        self.ends.clear();
        self.marks.clear();
        self.overlong = 0;
        self.text.shrink_to(2 * text);
        self.ends.shrink_to(2 * lines);
        self.marks.shrink_to(2 * lines);
        self
    }
}

#[cfg(test)]
mod tests;
