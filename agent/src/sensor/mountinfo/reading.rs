//! Which reader is in use: by unique id where the kernel has it, else the text of mountinfo.

use std::collections::BTreeSet;
use std::path::Path;

use agent_core::time::Monotonic;
use agent_core::topology::MountTable;

use super::by_id::{ById, ByIdError, Mounts};
use super::pace::BACKSTOP;
use super::snapshot::{ScanError, Scanner};
use super::source::TableSource;
use crate::sensor::SourceState;
use crate::sys::mountinfo::parse_table;
use crate::sys::statmount::MountCalls;
use crate::sys::{allocator, clock};

/// Readings of mountinfo before the two readers are said to disagree.
const COMPARISONS: u32 = 3;

/// What one look at the table gave.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// The snapshot, when it differs from the last.
    pub(super) table: Option<MountTable>,
    /// Lines in the last snapshot.
    pub(super) entries: usize,
    /// Lines that could not be understood.
    pub(super) bad_lines: u64,
    /// Whether another look should follow.
    pub(super) is_settled: bool,
}

/// The readers.
pub(super) struct Reading {
    pub(super) text: Box<dyn TableSource>,
    scanner: Scanner,
    /// `None`: there is none, for good.
    by_id: Option<ById>,
    /// When it is compared with mountinfo, before which it is not believed; `None`: it has agreed.
    compare_at: Option<Monotonic>,
    /// Why it is not in use.
    why: Option<String>,
}

impl Reading {
    /// By the text alone.
    pub(super) fn by_text(text: Box<dyn TableSource>, why: &str) -> Self {
        let why = Some(why.to_owned());
        Self { text, scanner: Scanner::default(), by_id: None, compare_at: None, why }
    }

    /// By unique id in this namespace (`None`: the thread's own), if that turns out to work.
    pub(super) fn by_id(text: Box<dyn TableSource>, namespace: Option<&Path>) -> Self {
        let calls = match namespace {
            None => Ok(MountCalls::own()),
            Some(namespace) => MountCalls::of(namespace),
        };
        match calls {
            Ok(calls) => Self::with(text, Box::new(calls)),
            Err(error) => Self::by_text(text, &format!("the namespace has no id to ask for: {error}")),
        }
    }

    /// The same with any kernel.
    pub(super) fn with(text: Box<dyn TableSource>, kernel: Box<dyn Mounts>) -> Self {
        let (by_id, compare_at) = (Some(ById::new(kernel)), Some(Monotonic::default()));
        Self { text, scanner: Scanner::default(), by_id, compare_at, why: None }
    }

    /// How the reader by id does.
    pub(super) fn state(&self) -> SourceState {
        self.why.clone().map_or(SourceState::Running, SourceState::Off)
    }

    /// Whether changes can be asked for one by one.
    pub(super) const fn is_by_id(&self) -> bool {
        self.by_id.is_some() && self.compare_at.is_none()
    }

    /// Reads everything.
    pub(super) fn all(&mut self) -> Result<Look, ScanError> {
        if self.by_id.is_some() && self.compare_at.is_some_and(|at| at <= clock::now()) {
            let look = self.compare();
            // Three tables and their text were in memory.
            allocator::give_back();
            return look;
        }
        self.by_id_or_text(ById::read)
    }

    /// Asks for what changed.
    pub(super) fn patch(&mut self, ids: &BTreeSet<u64>) -> Result<Look, ScanError> {
        self.by_id_or_text(|by_id| by_id.patch(ids))
    }

    /// Asks for what changed, for the options of the volumes, and whether any other mount came or went.
    pub(super) fn refresh(
        &mut self,
        ids: &BTreeSet<u64>,
        volumes: &BTreeSet<u64>,
    ) -> Result<Look, ScanError> {
        self.by_id_or_text(|by_id| Ok(by_id.patch(ids)? | by_id.refresh(volumes)?))
    }

    fn by_id_or_text(
        &mut self,
        ask: impl FnOnce(&mut ById) -> Result<bool, ByIdError>,
    ) -> Result<Look, ScanError> {
        let look = if self.is_by_id() { self.try_by_id(ask) } else { None };
        look.map_or_else(|| self.all_by_text(), Ok)
    }

    /// `None`: not by id now.
    fn try_by_id(&mut self, ask: impl FnOnce(&mut ById) -> Result<bool, ByIdError>) -> Option<Look> {
        let by_id = self.by_id.as_mut()?;
        match ask(by_id) {
            Ok(differs) => Some(Look {
                table: differs.then(|| by_id.table()),
                entries: by_id.entries(),
                bad_lines: 0,
                is_settled: true,
            }),
            Err(error) => {
                self.leave(&error);
                None
            }
        }
    }

    /// The text is read from here on: for good, or until the two are compared again.
    fn leave(&mut self, error: &ByIdError) {
        self.why = Some(error.to_string());
        self.compare_at = Some(clock::now() + BACKSTOP);
        if error.is_final() {
            self.by_id = None;
        }
    }

    fn all_by_text(&mut self) -> Result<Look, ScanError> {
        let scan = self.scanner.scan(self.text.as_mut())?;
        let (table, entries, bad_lines) = (scan.table, scan.entries, scan.bad_lines);
        Ok(Look { table, entries, bad_lines, is_settled: scan.is_settled })
    }

    /// Compares the two readers and chooses. A table that changes meanwhile is no disagreement.
    fn compare(&mut self) -> Result<Look, ScanError> {
        for attempt in 1..=COMPARISONS {
            let before = self.whole_text()?;
            let Some(look) = self.try_by_id(ById::read) else { break };
            let after = self.whole_text()?;
            let Some(by_id) = &self.by_id else { break };
            match by_id.agrees(&before, &after) {
                Ok(()) => {
                    let table = Some(by_id.table());
                    (self.compare_at, self.why) = (None, None);
                    // What it last gave is not what was last told, should it be needed again.
                    self.scanner = Scanner::default();
                    return Ok(Look { table, ..look });
                }
                Err(error) if attempt == COMPARISONS => self.leave(&error),
                Err(_) => {}
            }
        }
        self.all_by_text()
    }

    fn whole_text(&mut self) -> Result<MountTable, ScanError> {
        let mut text = Vec::new();
        self.text.read(&mut |piece| text.extend_from_slice(piece)).map_err(ScanError::Read)?;
        Ok(MountTable::new(parse_table(&text).mounts))
    }
}

#[cfg(test)]
mod tests;
