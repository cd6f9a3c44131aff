//! Passive sources of facts. A sensor runs on a thread of its own, turns what the kernel says into
//! observations, and never touches a watched path.

use agent_core::observation::KernelErrors;
use agent_core::topology::MountTable;

pub mod ebpf;
pub mod fanotify;
pub mod mountinfo;
#[cfg(test)]
mod private_namespace;
mod wake;

/// The names of the sources, as in `mountie_source_up{source}`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SourceName {
    /// The kernel programs.
    Bpf,
    /// fanotify's file-system errors.
    FanotifyFs,
    /// fanotify's mount events.
    FanotifyMnt,
    /// The mount table.
    Mountinfo,
}

impl SourceName {
    /// Every source, in label order.
    pub const ALL: [Self; 4] = [Self::Bpf, Self::FanotifyFs, Self::FanotifyMnt, Self::Mountinfo];

    /// The bounded label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Bpf => "bpf",
            Self::FanotifyFs => "fanotify_fs",
            Self::FanotifyMnt => "fanotify_mnt",
            Self::Mountinfo => "mountinfo",
        }
    }
}

/// Whether a source works, and if not, why and what is lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceState {
    /// Works in full.
    Running,
    /// Works in part: `source_up` is 1, the reason is shown.
    Degraded(String),
    /// Does not work: `source_up` is 0.
    Off(String),
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
    /// A source came up, went down or got worse.
    Source(SourceName, SourceState),
    /// Records that were lost on the way: additions to totals.
    Dropped {
        /// Kernel records (ring buffer full, map full).
        records: u64,
        /// Mount events (fanotify queue overflow).
        mount_events: u64,
    },
}

/// Cost and defects of one scan of the mount table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScanStats {
    /// Lines that were parsed.
    pub entries: usize,
    /// Lines that were not.
    pub bad_lines: u64,
    /// Reading and parsing.
    pub took: std::time::Duration,
}

/// One row of the table of kernel programs, as it turned out on this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramStatus {
    /// Name of the program.
    pub program: &'static str,
    /// `sys_exit`, `fexit` or `always`.
    pub family: &'static str,
    /// Where it attaches.
    pub hook: &'static str,
    /// What is lost without it.
    pub lost_without: &'static str,
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
    /// Could not be loaded or attached, for this reason.
    Failed(String),
}
