//! Errors that the kernel counted, in buckets of time: how many, how spread out, since when.
//!
//! `now` is always passed in. Memory is bounded: a fixed number of classes and groups, and a fixed number of
//! cells for each. A good probe takes away what it has tried itself ([`KernelWindow::disprove`]); what no probe
//! tries stays until it leaves the window.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use crate::errno::ErrnoClass;
use crate::observation::Op;
use crate::time::Monotonic;

/// Kinds of operation that one step of a probe tries together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Group {
    /// Names and attributes: every probe tries them.
    Attributes,
    /// File data: tried by a probe that read some.
    Data,
    /// Changes: tried by a probe that wrote.
    Writes,
}

impl Group {
    /// Every group.
    pub const ALL: [Self; 3] = [Self::Attributes, Self::Data, Self::Writes];

    /// The group of an error. Refusals to write and lack of space concern writers, whatever call met them.
    #[must_use]
    pub const fn of(op: Op, class: ErrnoClass) -> Self {
        match (class, op) {
            (ErrnoClass::Readonly | ErrnoClass::Full, _)
            | (_, Op::Write | Op::Sync | Op::Change | Op::Writeback) => Self::Writes,
            (_, Op::Stat | Op::Open | Op::List) => Self::Attributes,
            (_, Op::Read | Op::Fault | Op::Other) => Self::Data,
        }
    }
}

/// Cells in one window.
pub const CELLS: u32 = 32;

/// The errors of one stretch of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cell {
    number: u128,
    first: Monotonic,
    last: Monotonic,
    count: u64,
}

/// What a window says about one kind of error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Calls that failed. Zero when only records have come so far, whose count the counters carry.
    pub count: u64,
    /// The earliest error that still counts.
    pub first: Monotonic,
    /// The latest.
    pub last: Monotonic,
}

impl Tally {
    /// How long the errors have been going on.
    #[must_use]
    pub fn spread(&self) -> Duration {
        self.last.since(self.first)
    }

    fn and(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }
}

/// The kernel's evidence about one mount.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelWindow {
    cells: BTreeMap<(ErrnoClass, Group), Vec<Cell>>,
    disproved: BTreeMap<Group, Monotonic>,
}

impl KernelWindow {
    /// Adds errors. Those that a good probe has already answered, and those older than the window, count no
    /// more; `false` then.
    pub fn add(&mut self, kind: (ErrnoClass, Group), at: Monotonic, count: u64, span: Span) -> bool {
        let at = at.min(span.now);
        let is_old = span.now.since(at) >= span.window;
        if is_old || self.disproved.get(&kind.1).is_some_and(|until| at <= *until) {
            return false;
        }
        self.expire(span);
        let number = at.since_boot().as_nanos() / (span.window / CELLS).as_nanos().max(1);
        let cells = self.cells.entry(kind).or_default();
        match cells.iter_mut().find(|cell| cell.number == number) {
            Some(cell) => {
                cell.first = cell.first.min(at);
                cell.last = cell.last.max(at);
                cell.count = cell.count.saturating_add(count);
            }
            None => cells.push(Cell { number, first: at, last: at, count }),
        }
        true
    }

    /// A probe that began at `started` tried these operations, and they worked: errors before it are answered.
    pub fn disprove(&mut self, group: Group, started: Monotonic) {
        let until = self.disproved.entry(group).or_insert(started);
        *until = (*until).max(started);
        for ((_, other), cells) in &mut self.cells {
            if *other == group {
                cells.retain(|cell| cell.last > started);
            }
        }
        self.cells.retain(|_, cells| !cells.is_empty());
    }

    /// Forgets what has left the window.
    pub fn expire(&mut self, span: Span) {
        for cells in self.cells.values_mut() {
            cells.retain(|cell| span.now.since(cell.last) < span.window);
        }
        self.cells.retain(|_, cells| !cells.is_empty());
    }

    /// What is in the window of this class, in these groups.
    #[must_use]
    pub fn tally(&self, class: ErrnoClass, wanted: impl Fn(Group) -> bool, span: Span) -> Option<Tally> {
        self.cells
            .iter()
            .filter(|((other, group), _)| *other == class && wanted(*group))
            .flat_map(|(_, cells)| cells)
            .filter(|cell| span.now.since(cell.last) < span.window)
            .map(|cell| Tally { count: cell.count, first: cell.first, last: cell.last })
            .reduce(Tally::and)
    }

    /// When the next errors leave the window.
    #[must_use]
    pub fn next_expiry(&self, window: Duration) -> Option<Monotonic> {
        self.cells.values().flatten().map(|cell| cell.last + window).min()
    }

    /// Whether nothing counts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }
}

/// A moment, and how far back evidence counts from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The moment.
    pub now: Monotonic,
    /// The length of the window.
    pub window: Duration,
}
