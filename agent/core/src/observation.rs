//! The closed list of facts that the core accepts from outside.

use alloc::{collections::BTreeSet, string::String, vec::Vec};
use core::net::IpAddr;
use core::time::Duration;

use crate::errno::Errno;
use crate::id::{Generation, MountId, PlanId, ProbeId, SuperblockId, VolumeId};
use crate::path::BytePath;
use crate::remediation::service::Service;
use crate::remediation::{Marks, Outcome};
use crate::time::Monotonic;

/// The kind of operation that failed: the `op` label.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Op {
    /// read, pread, readv, sendfile from the volume.
    Read,
    /// write, pwrite, writev.
    Write,
    /// fsync, fdatasync, sync_file_range, msync, syncfs.
    Sync,
    /// open and creat.
    Open,
    /// stat, statx, access, readlink, statfs, getxattr.
    Stat,
    /// getdents.
    List,
    /// rename, unlink, mkdir, truncate, chmod and other changes of names or attributes.
    Change,
    /// Page faults on mapped files.
    Fault,
    /// Write-back of dirty pages: nobody may ever have seen the error.
    Writeback,
    /// Anything else.
    Other,
    /// A request to the block device under the file system.
    Device,
    /// The file system's own report: corruption, shutdown, counters of errors it keeps on disk.
    Filesystem,
    /// A request to a user-space file system, or its connection.
    Request,
    /// A call on two files of which only one need have failed: nobody can tell which.
    Either,
}

impl Op {
    /// Every kind, in the order of the kernel side's numbers.
    pub const ALL: [Self; 14] = [
        Self::Read,
        Self::Write,
        Self::Sync,
        Self::Open,
        Self::Stat,
        Self::List,
        Self::Change,
        Self::Fault,
        Self::Writeback,
        Self::Other,
        Self::Device,
        Self::Filesystem,
        Self::Request,
        Self::Either,
    ];

    /// The bounded label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Open => "open",
            Self::Stat => "stat",
            Self::List => "list",
            Self::Change => "change",
            Self::Fault => "fault",
            Self::Writeback => "writeback",
            Self::Other => "other",
            Self::Device => "device",
            Self::Filesystem => "filesystem",
            Self::Request => "request",
            Self::Either => "either",
        }
    }
}

/// Where a count of errors comes from: the `source` label of `volume_errors_total`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
    /// The kernel programs.
    Bpf,
    /// The kernel programs, where nothing but the text of a name says that the call was about this volume: a symbolic
    /// link may have led elsewhere. A reason to look, which proves nothing.
    BpfName,
    /// fanotify's file-system errors.
    Fanotify,
    /// The agent's own probes.
    Probe,
    /// Counters of errors that file systems show in sysfs.
    Sysfs,
}

impl Source {
    /// Every source.
    pub const ALL: [Self; 5] = [Self::Bpf, Self::BpfName, Self::Fanotify, Self::Probe, Self::Sysfs];

    /// The bounded label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Bpf => "bpf",
            Self::BpfName => "bpf_name",
            Self::Fanotify => "fanotify",
            Self::Probe => "probe",
            Self::Sysfs => "sysfs",
        }
    }
}

/// Errors that somebody on this node met on a tracked superblock: a hint, never a verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelErrors {
    /// Who counted.
    pub source: Source,
    /// Where.
    pub superblock: SuperblockId,
    /// Inode number of the mount's root; `None` where the hook knows only the superblock.
    pub root_inode: Option<u64>,
    /// What.
    pub errno: Errno,
    /// Doing what.
    pub op: Op,
    /// How many calls this fact adds to the totals. Zero for a record whose count the counters carry.
    pub count: u64,
    /// When the last of them happened, on the kernel's clock.
    pub at: Monotonic,
    /// Where `at` is only when it was noticed: the last of them happened after this moment.
    pub after: Option<Monotonic>,
    /// Who met it first in this interval, where it is known.
    pub task: Option<Task>,
}

impl KernelErrors {
    /// Whether the last of them certainly happened later than this.
    #[must_use]
    pub fn is_later_than(&self, moment: Monotonic) -> bool {
        self.after.map_or(self.at > moment, |after| after >= moment)
    }
}

/// The process that met an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub pid: u32,
    /// Name of the thread, at most 15 bytes, escaped.
    pub comm: String,
    /// cgroup v2 id; 0 when unknown.
    pub cgroup: u64,
    /// Inode number of its mount namespace; 0 when unknown.
    pub mnt_ns: u32,
}

/// One task that has waited in the same call since an earlier census.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockedTask {
    /// Who.
    pub task: Task,
    /// The system call, by name.
    pub call: String,
    /// The first census that found it in this call.
    pub since: Monotonic,
    /// Whether nothing but the end of its wait, or a fatal signal, wakes it (state `D`).
    pub is_deep: bool,
    /// Whether nothing but the text of a name says where it waits: a symbolic link may have led elsewhere.
    pub is_by_name: bool,
}

/// The tasks that wait on one mount root, as one census found them: those of which that is certain, or those of which
/// it is not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockedOn {
    /// Where.
    pub superblock: SuperblockId,
    /// Inode number of the mount's root; `None` where it is not known.
    pub root_inode: Option<u64>,
    /// How many there are.
    pub count: u64,
    /// Those that have waited longest, at most [`BlockedOn::MOST`].
    pub tasks: Vec<BlockedTask>,
}

impl BlockedOn {
    /// The most tasks that are told one by one.
    pub const MOST: usize = 64;
}

/// How many errors a file system says it has ever found in itself: when it is seen for the first time, and whenever
/// there are more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnErrors {
    /// Whose.
    pub superblock: SuperblockId,
    /// Tells it from another one that has its number later.
    pub instance: u64,
    /// How many there are.
    pub count: u64,
    /// What the last of them was.
    pub errno: Errno,
    /// By how many that grew since the count before, which were told as [`KernelErrors`]; 0 for the first count.
    pub told: u64,
    /// It writes nothing after an error, as it is mounted or by its own default, which the table does not show.
    pub ends_writes: bool,
    /// When this was read.
    pub at: Monotonic,
}

/// One census: everything that waits on tracked superblocks. What is not in it does not wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Census {
    /// When it was taken.
    pub at: Monotonic,
    /// What it found.
    pub blocked: Vec<BlockedOn>,
}

/// What one probe found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeReport {
    /// The order that is answered.
    pub id: ProbeId,
    /// The volume it was made for.
    pub volume: VolumeId,
    /// What was mounted when it was ordered.
    pub generation: Generation,
    /// When it began.
    pub started: Monotonic,
    /// How long it took, or how long it has taken so far when it timed out.
    pub took: Duration,
    /// What it found.
    pub result: ProbeResult,
}

/// How far a probe got, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ProbeStep {
    /// O_PATH and mount id: is it the mount that was meant?
    Identity,
    /// `statx` of the root, past the attribute cache.
    Root,
    /// Reading the sentinel, past the page cache.
    Sentinel,
    /// Reading a block of the device.
    Device,
    /// The opt-in write.
    Write,
}

impl ProbeStep {
    /// What it does, to follow "while" or to be followed by "failed".
    #[must_use]
    pub const fn doing(self) -> &'static str {
        match self {
            Self::Identity => "identifying the mount",
            Self::Root => "asking for the attributes of the root",
            Self::Sentinel => "reading the sentinel",
            Self::Device => "reading a block of the device",
            Self::Write => "writing a file of its own",
        }
    }
}

/// What one probe found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProbeResult {
    /// Everything that was asked for answered.
    Ok(ProbeOk),
    /// A step failed with an errno.
    Failed {
        /// The step.
        step: ProbeStep,
        /// The error.
        errno: Errno,
    },
    /// Everything up to the write answered, the write failed.
    WriteFailed {
        /// The error of the write.
        errno: Errno,
        /// What the steps before it learnt.
        read: ProbeOk,
    },
    /// Another superblock than the expected one is at the path.
    WrongMount {
        /// What is there.
        found: SuperblockId,
    },
    /// The sentinel that must be there is not (the root answered).
    SentinelMissing,
    /// The sentinel has other content (the root answered).
    SentinelDiffers,
    /// The sentinel is not a regular file, or too large, or on another mount (the root answered).
    SentinelUnusable,
    /// The deadline passed. The worker is abandoned; [`crate::engine::Input::ProbeReturned`] follows when
    /// it comes back or dies.
    TimedOut {
        /// The step it hung in.
        step: ProbeStep,
    },
    /// No look was possible, for a reason of the agent's own: never evidence about the volume.
    NotRun(NotRun),
}

/// Why no look was possible.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NotRun {
    /// The cap on abandoned workers is reached.
    TooManyAbandoned,
    /// A worker could not be started, or died without an answer.
    WorkerLost,
    /// The path is in the table but not reachable from here.
    Unreachable,
    /// A worker may not become the user as whom it should look.
    NotThatUser,
}

/// What a good probe learnt.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProbeOk {
    /// Inode number of the mount's root, or what stands for it: the second half of the kernel's key.
    pub root_inode: u64,
    /// Whether file data was read past the cache, through the file system (the sentinel).
    pub read_data: bool,
    /// Whether a block of the device under the file system was read. It says nothing about files.
    pub read_device: bool,
    /// Whether data was written.
    pub wrote_data: bool,
    /// `f_fsid`, 16 hexadecimal digits, where asked.
    pub fsid: Option<String>,
    /// UUID of the file system, as `blkid` prints it, where the kernel tells it.
    pub uuid: Option<String>,
}

/// The end of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanReport {
    /// Which plan.
    pub id: PlanId,
    /// What became of it.
    pub outcome: Outcome,
    /// One line for each action that was begun, in their order, and after them what was undone. For people.
    pub steps: Vec<String>,
    /// How long the mount point showed neither the old nor the new file system. Zero with beneath.
    pub gap: Option<Duration>,
    /// How long the whole plan took.
    pub took: Duration,
    /// Mounts of the old superblock that it took out of the tables, by their ids: files may be open on them.
    pub left_behind: BTreeSet<MountId>,
    /// Other mounts of the old superblock that there were when it began, by their ids.
    pub consumers: BTreeSet<MountId>,
    /// The old file system was taken away, no new one came, and its device is shown again, read-only.
    pub put_back: bool,
    /// How many of the plan's actions were begun.
    pub actions_begun: usize,
}

impl PlanReport {
    /// One that tells of nothing but its end.
    #[must_use]
    pub const fn of(id: PlanId, outcome: Outcome, took: Duration) -> Self {
        Self {
            id,
            outcome,
            steps: Vec::new(),
            gap: None,
            took,
            left_behind: BTreeSet::new(),
            consumers: BTreeSet::new(),
            put_back: false,
            actions_begun: 0,
        }
    }
}

/// What came of trying a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReachReport {
    /// Which.
    pub service: Service,
    /// Whether it was reached.
    pub reach: Reach,
    /// The addresses that the first of its names has now; none where that is not a name, or nobody could tell.
    pub addresses: Vec<IpAddr>,
}

/// Whether a server was reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// It took the connection.
    Yes,
    /// It did not: why, for people.
    No(String),
    /// It could not be tried. That says nothing of the server.
    Unknown,
}

/// A plan that was written down before it acted and has no outcome: found in the journal at the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unfinished {
    /// The plan's id.
    pub plan: PlanId,
    /// For which volume.
    pub volume: VolumeId,
    /// The mount point it worked on.
    pub mountpoint: BytePath,
    /// The private place it used.
    pub stage: BytePath,
    /// The superblock it wanted to replace.
    pub old: Option<SuperblockId>,
    /// What that one's mounts are known by.
    pub marks: Option<Marks>,
    /// Mounts of that one elsewhere, to which the plan had to come as well.
    pub holders: BTreeSet<MountId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_unique() {
        let ops: BTreeSet<_> = Op::ALL.into_iter().map(Op::label).collect();
        assert_eq!(ops.len(), Op::ALL.len());
        assert_eq!(Source::ALL.map(Source::label), ["bpf", "bpf_name", "fanotify", "probe", "sysfs"]);
    }
}
