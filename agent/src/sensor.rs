//! Passive sources of facts. A sensor runs on a thread of its own, turns what the kernel says into
//! observations, and never touches a watched path.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_core::consumer::Consumers;
use agent_core::id::{SuperblockId, UniqueMountId};
use agent_core::incident::{Daemon, Device};
use agent_core::observation::{Census, KernelErrors, OwnErrors};
use agent_core::time::Monotonic;
use agent_core::topology::MountTable;

mod btrfs;
pub mod census;
pub mod cgroups;
pub mod consumers;
pub mod ebpf;
pub mod fanotify;
pub mod fuse_daemons;
pub mod mountinfo;
#[cfg(test)]
mod private_namespace;
pub mod sysfs_errors;
mod wake;

/// Takes a lock of a sensor. Nothing is done under one that could fail halfway, so a poisoned one is as good as a
/// sound one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The names of the sources, as in `mountie_source_up{source}`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SourceName {
    /// The kernel programs.
    Bpf,
    /// The census of tasks that wait.
    Census,
    /// Who still holds what was replaced.
    Consumers,
    /// fanotify's file-system errors.
    FanotifyFs,
    /// fanotify's mount events.
    FanotifyMnt,
    /// The ends of FUSE daemons.
    FuseDaemons,
    /// Whether what is watched is the host. Not a source of facts, but of trust in them.
    HostView,
    /// The mount table by unique id (`listmount`, `statmount`). Without it every change costs a reading of the
    /// whole table.
    Listmount,
    /// The mount table, by whichever reader.
    Mountinfo,
    /// The workers that look. Off when no more of them may hang: then nothing is looked at.
    Probes,
    /// Counters of errors that file systems show in sysfs.
    Sysfs,
}

impl SourceName {
    /// Every source, in label order.
    pub const ALL: [Self; 11] = [
        Self::Bpf,
        Self::Census,
        Self::Consumers,
        Self::FanotifyFs,
        Self::FanotifyMnt,
        Self::FuseDaemons,
        Self::HostView,
        Self::Listmount,
        Self::Mountinfo,
        Self::Probes,
        Self::Sysfs,
    ];

    /// The bounded label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Bpf => "bpf",
            Self::Census => "census",
            Self::Consumers => "consumers",
            Self::FanotifyFs => "fanotify_fs",
            Self::FanotifyMnt => "fanotify_mnt",
            Self::FuseDaemons => "fuse_daemons",
            Self::HostView => "host_view",
            Self::Listmount => "listmount",
            Self::Mountinfo => "mountinfo",
            Self::Probes => "probes",
            Self::Sysfs => "sysfs",
        }
    }

    /// Whether it tells of faults by itself.
    #[must_use]
    pub const fn is_sensor(self) -> bool {
        !matches!(self, Self::HostView | Self::Probes)
    }
}

/// Whether a source works, and if not, why and what is lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceState {
    /// Works in full.
    Running,
    /// Works in part: `mountie_source_up` is 0.5, the reason is shown.
    Degraded(String),
    /// Does not work: `mountie_source_up` is 0.
    Off(String),
}

/// What the listener to mount events tells the watcher of the mount table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MountChange {
    /// These mounts were attached, detached or moved.
    Mounts(Vec<UniqueMountId>),
    /// Something was, and nobody knows what.
    Lost,
    /// Nothing will be told any more.
    Ended,
}

/// What sensors send to the event loop.
#[derive(Debug)]
pub enum SensorEvent {
    /// A snapshot of the mount table that differs from the last one.
    Table(MountTable),
    /// Cost and defects of the last scan, also when nothing changed.
    Scan(ScanStats),
    /// Errors met by others.
    Kernel(KernelErrors),
    /// How many errors a file system has found in itself.
    OwnErrors(OwnErrors),
    /// Which file system has the number of a superblock, by something that is never used again.
    Instance(SuperblockId, u64),
    /// Something happened to these superblocks that only a look can judge.
    Look(BTreeSet<SuperblockId>),
    /// The number of a superblock belongs to another one by now; the old one was still there at that time.
    Renewed(SuperblockId, Monotonic),
    /// Who waits on tracked superblocks; replaces the last census.
    Blocked(Census),
    /// Who holds what volumes showed before.
    Consumers(Consumers),
    /// Which devices lie below which tracked superblocks, nearest first; replaces what was told.
    Devices(BTreeMap<SuperblockId, Vec<Device>>),
    /// Which processes serve which tracked FUSE file systems, as far as it is known now.
    Daemons(BTreeMap<SuperblockId, Daemon>),
    /// Paths of cgroups that were asked for, by id.
    Cgroups(BTreeMap<u64, String>),
    /// A source came up, went down or got worse.
    Source(SourceName, SourceState),
    /// A kernel program was attached after the start, or could not be.
    Program(ProgramStatus),
    /// The kernel has skipped a program while it ran for another task: additions to its total.
    Skipped {
        /// Which.
        program: &'static str,
        /// How often.
        runs: u64,
    },
    /// Records of errors that were lost: an addition to the total of this cause.
    Dropped(LossCause, u64),
    /// Mount events that were lost: an addition to their total.
    MountEventsDropped(u64),
}

/// Why records of errors are lost. The worst first: that is the one that is told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LossCause {
    /// No room in the kernel's map of counters.
    Counters,
    /// No room in the ring buffer.
    Ring,
    /// Names beyond the budget of the kernel side or of the agent.
    Names,
    /// The kernel does not let the agent see where a process has its directories.
    Refused,
    /// The mapping of a page that could not be read could not be looked at.
    Faults,
    /// The event loop had no room, or a record could not be read.
    Agent,
    /// The queue of fanotify was full, an event could not be read, or nobody asked for it in time.
    Fanotify,
}

impl LossCause {
    /// Every cause.
    pub const ALL: [Self; 7] =
        [Self::Counters, Self::Ring, Self::Names, Self::Refused, Self::Faults, Self::Agent, Self::Fanotify];

    /// The bounded label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Counters => "counters",
            Self::Ring => "ring",
            Self::Names => "names",
            Self::Refused => "refused",
            Self::Faults => "faults",
            Self::Agent => "agent",
            Self::Fanotify => "fanotify",
        }
    }
}

/// Cost and defects of one scan of the mount table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScanStats {
    /// Lines that were parsed.
    pub entries: usize,
    /// Lines that were not.
    pub bad_lines: u64,
    /// How many mounts there may be, where the kernel says.
    pub limit: Option<u64>,
    /// Reading and parsing.
    pub took: std::time::Duration,
}

/// One row of the table of kernel programs, as it turned out on this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramStatus {
    /// Name of the program.
    pub program: &'static str,
    /// `sys_exit`, `fexit`, `always` or `extra`.
    pub family: &'static str,
    /// Where it attaches.
    pub hook: &'static str,
    /// What is lost without it.
    pub lost_without: &'static str,
    /// What stands in for it.
    pub fallback: &'static str,
    /// Attached, or why not.
    pub state: ProgramState,
}

/// What became of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProgramState {
    /// Attached and counting.
    Attached,
    /// Not wanted: another family was chosen, or the configuration turns it off.
    NotChosen(String),
    /// Its hook belongs to a module that is not loaded; tried again when it is.
    Waits(String),
    /// Not needed: programs of this family do its work.
    Covered(&'static str),
    /// Left out with its family, and what is in use instead does not see what it sees: that is lost.
    Forgone(String),
    /// This kernel does not have what it hangs on or reads.
    Absent(String),
    /// Could not be loaded or attached, for this reason.
    Failed(String),
}

impl ProgramState {
    /// Whether what it sees is lost, but for what stands in for it.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        match self {
            Self::Absent(_) | Self::Failed(_) | Self::Forgone(_) => true,
            Self::Attached | Self::NotChosen(_) | Self::Waits(_) | Self::Covered(_) => false,
        }
    }
}
