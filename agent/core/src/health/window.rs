//! Errors that the kernel counted, in buckets of time: how many, how spread out, since when.
//!
//! `now` is always passed in. Memory is bounded: a fixed number of classes and groups, and a fixed number of
//! cells for each. A good probe takes away what it has tried itself ([`KernelWindow::disprove`]); what no probe
//! tries stays until it leaves the window.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use crate::errno::{Errno, ErrnoClass};
use crate::observation::{Op, Source};
use crate::time::Monotonic;

/// Kinds of operation that one step of a probe tries together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Group {
    /// Names and attributes: every probe tries them.
    Attributes,
    /// The content of files and directories, and opening them: tried by a probe that read some.
    Data,
    /// Changes: tried by a probe that wrote.
    Writes,
    /// Page faults on mapped files. No errno comes with them: a store to a volume that is full ends like a load from
    /// one that is broken. So they are a reason to look, and prove nothing by themselves.
    Faults,
    /// What goes on below the file system, for whatever reason: requests to a device or to a daemon. And what may as
    /// well have gone on elsewhere: a call on two files, or on a name that a link may lead away. A report is a reason to
    /// look, and a good look answers it; however many there are, they prove nothing by themselves.
    Below,
}

impl Group {
    /// Every group.
    pub const ALL: [Self; 5] = [Self::Attributes, Self::Data, Self::Writes, Self::Faults, Self::Below];

    /// Whether errors of this group, if there are enough, prove something without a failed look.
    #[must_use]
    pub const fn can_prove(self) -> bool {
        match self {
            Self::Attributes | Self::Data | Self::Writes => true,
            Self::Faults | Self::Below => false,
        }
    }

    /// The group of an error. Refusals to write and lack of space concern writers, whatever call met them.
    #[must_use]
    pub fn of((source, op): (Source, Op), errno: Errno, class: ErrnoClass) -> Self {
        if source == Source::BpfName {
            return Self::Below;
        }
        match (class, op) {
            (_, Op::Device | Op::Request | Op::Either) => Self::Below,
            (ErrnoClass::Readonly | ErrnoClass::Full, _)
            | (_, Op::Write | Op::Sync | Op::Change | Op::Writeback) => Self::Writes,
            // A file system that has shut down may refuse every open and still answer for attributes from its
            // cache.
            (ErrnoClass::IoError, Op::Open | Op::List) if !of_special_files(errno) => Self::Data,
            (_, Op::Stat | Op::Open | Op::List) => Self::Attributes,
            (_, Op::Fault) => Self::Faults,
            (_, Op::Read | Op::Other | Op::Filesystem) => Self::Data,
        }
    }
}

/// Whether an error speaks of storage: not of a special file that has nothing behind it, and not of something below
/// the file system, which may have had another go, or elsewhere.
#[must_use]
pub const fn speaks_of_storage((source, op): (Source, Op), errno: Errno, class: ErrnoClass) -> bool {
    let is_of_file = matches!(op, Op::Open | Op::List) && of_special_files(errno);
    let is_below = matches!(op, Op::Device | Op::Request | Op::Either) || matches!(source, Source::BpfName);
    matches!(class, ErrnoClass::IoError) && !is_of_file && !is_below
}

/// What the open of a socket, a FIFO that nobody reads or a device node answers on any file system, however sound:
/// ENXIO, ENODEV, ENOMEDIUM.
const fn of_special_files(errno: Errno) -> bool {
    matches!(errno.0, 6 | 19 | 123)
}

/// Who counts. One error may be met by a call, reported by the file system to several sensors, and seen below: each
/// of them counts it once, so their counts are never added up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counter {
    /// Calls that failed.
    Calls,
    /// The file system's reports, by the kernel programs.
    Reports,
    /// Its reports, by fanotify.
    Fanotify,
    /// Its counters in sysfs.
    Sysfs,
    /// Requests to the device or daemon below, and calls that may have failed elsewhere.
    Below,
}

impl Counter {
    /// Every one.
    const ALL: [Self; 5] = [Self::Calls, Self::Reports, Self::Fanotify, Self::Sysfs, Self::Below];

    /// Who counted an error that this source told of.
    #[must_use]
    pub const fn of(source: Source, op: Op) -> Self {
        match (source, op) {
            (Source::Fanotify, _) => Self::Fanotify,
            (Source::Sysfs, _) => Self::Sysfs,
            (Source::BpfName, _) => Self::Below,
            (Source::Bpf | Source::Probe, Op::Filesystem) => Self::Reports,
            (Source::Bpf | Source::Probe, Op::Device | Op::Request | Op::Either) => Self::Below,
            (Source::Bpf | Source::Probe, _) => Self::Calls,
        }
    }
}

/// A count by each of them, in the order of [`Counter::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts([u64; Counter::ALL.len()]);

impl Counts {
    fn add(&mut self, counter: Counter, count: u64) {
        let own = Counter::ALL.iter().zip(&mut self.0).find(|(other, _)| **other == counter);
        if let Some((_, sum)) = own {
            *sum = sum.saturating_add(count);
        }
    }

    fn and(mut self, other: Self) -> Self {
        for (counter, count) in Counter::ALL.into_iter().zip(other.0) {
            self.add(counter, count);
        }
        self
    }

    fn largest(self) -> u64 {
        self.0.into_iter().max().unwrap_or_default()
    }
}

/// Which processes met errors, as far as records have told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Met {
    /// Nobody said.
    #[default]
    Unknown,
    /// One process, and no other that is known.
    By(u32),
    /// More than one.
    BySeveral,
}

impl Met {
    const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, met) | (met, Self::Unknown) => met,
            (Self::By(one), Self::By(another)) if one == another => self,
            (Self::By(_) | Self::BySeveral, Self::By(_) | Self::BySeveral) => Self::BySeveral,
        }
    }
}

/// Errors, as one source told of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// Who counted them.
    pub counter: Counter,
    /// How many.
    pub count: u64,
    /// Which process met one of them, where that is known.
    pub process: Option<u32>,
}

/// Cells in one window.
pub const CELLS: u32 = 32;

/// The errors of one stretch of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cell {
    number: u128,
    first: Monotonic,
    last: Monotonic,
    counts: Counts,
    met: Met,
}

impl Cell {
    fn and(self, other: Self) -> Self {
        Self {
            number: self.number,
            first: self.first.min(other.first),
            last: self.last.max(other.last),
            counts: self.counts.and(other.counts),
            met: self.met.and(other.met),
        }
    }
}

/// What a window says about one kind of error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Errors, by the counter that saw most. Zero when only records have come so far, whose count the counters carry.
    pub count: u64,
    /// The earliest error that still counts.
    pub first: Monotonic,
    /// The latest.
    pub last: Monotonic,
    /// Who met them.
    pub met: Met,
}

impl Tally {
    /// How long the errors have been going on.
    #[must_use]
    pub fn spread(&self) -> Duration {
        self.last.since(self.first)
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
    pub fn add(&mut self, kind: (ErrnoClass, Group), at: Monotonic, counted: Counted, span: Span) -> bool {
        let at = at.min(span.now);
        let is_old = span.now.since(at) >= span.window;
        if is_old || self.disproved.get(&kind.1).is_some_and(|until| at <= *until) {
            return false;
        }
        self.expire(span);
        let number = at.since_boot().as_nanos() / (span.window / CELLS).as_nanos().max(1);
        let cells = self.cells.entry(kind).or_default();
        let met = counted.process.map_or(Met::Unknown, Met::By);
        let mut new = Cell { number, first: at, last: at, counts: Counts::default(), met };
        new.counts.add(counted.counter, counted.count);
        match cells.iter_mut().find(|cell| cell.number == number) {
            Some(cell) => *cell = cell.and(new),
            None => cells.push(new),
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
            .copied()
            .reduce(Cell::and)
            .map(|cell| Tally {
                count: cell.counts.largest(),
                first: cell.first,
                last: cell.last,
                met: cell.met,
            })
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
