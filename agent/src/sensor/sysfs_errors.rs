//! Counters of errors that file systems keep of themselves and show in sysfs: ext4 writes down every error it
//! finds, btrfs every failed request and every wrong checksum, also where no program ever sees one and no kernel
//! program or fanotify group listens.
//!
//! With ext4 it matters as well what follows from an error: that nothing is written any more may be the default which
//! its superblock was made with, and then no word of the mount table says so. The file in procfs does.
//!
//! One thread reads the counters of the watched superblocks every few seconds and reports growth. What a counter
//! says when it is first read is the base line: those errors are from before, ext4 keeps them on disk for years. The
//! engine is told of it, and knows it over a restart: what was found meanwhile is growth.
//! A superblock that is new gets its base line at once; the others are not read for that, however many come.
//!
//! The folder of a superblock has an inode number that is not used again: it tells a file system that was unmounted
//! and mounted at once from one that stayed. The ids of mounts do not: one superblock has many, which come and go. The
//! engine is told of the inode number, so that it knows after a restart whether what it remembers is of this one.
//!
//! Reading them cannot hang on a dead disk: the values are in memory, the functions that print them take no lock
//! of the file system and ask no device. The thread is on its own all the same, so that the event loop does not
//! have to believe that.
//!
//! kernel: `ext4_attr_show`, fs/ext4/sysfs.c; `btrfs_devinfo_error_stats_show`, fs/btrfs/sysfs.c, since 5.14.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::errno::Errno;
use agent_core::id::SuperblockId;
use agent_core::observation::{KernelErrors, Op, OwnErrors, Source};
use agent_core::time::Monotonic;
use agent_core::topology::Mount;
use tokio::sync::mpsc::Sender;

use self::table::{Counters, Name, Row, row_of};
use crate::sensor::wake::{Outbox, Running, Wake, no_thread};
use crate::sensor::{SensorEvent, SourceName, SourceState, lock};
use crate::sys::clock;

mod table;

/// Between two readings.
const PAUSE: Duration = Duration::from_secs(5);

/// The share of one processor that reading may cost, in tenths of a percent: with very many volumes the pause
/// is longer.
const PER_MILLE: u32 = 5;

/// The running reader. It ends when this is dropped.
#[derive(Debug)]
pub struct SysfsErrors {
    wake: Arc<Wake>,
    watched: Arc<Mutex<Watched>>,
    /// Kept for its end alone.
    _thread: Running,
}

/// What is to be read, by superblock.
type Watched = BTreeMap<SuperblockId, Arc<Mount>>;

impl SysfsErrors {
    /// Starts to read below `sysfs` and `proc`. Nothing is watched yet.
    #[must_use]
    pub fn start(sysfs: &Path, proc: &Path, events: Sender<SensorEvent>) -> (Option<Self>, SourceState) {
        match Self::try_start(sysfs, proc, events) {
            Ok(running) => (Some(running), SourceState::Running),
            Err(why) => (None, SourceState::Off(why)),
        }
    }

    fn try_start(sysfs: &Path, proc: &Path, events: Sender<SensorEvent>) -> Result<Self, String> {
        let folder = sysfs.join("fs");
        std::fs::read_dir(&folder)
            .map_err(|error| format!("`{}` cannot be read: {error}", folder.display()))?;
        let wake = Wake::for_thread()?;
        let watched = Arc::default();
        let outbox = Outbox::new(events, Arc::clone(&wake));
        let reader = Reader {
            sysfs: sysfs.to_owned(),
            proc: proc.to_owned(),
            watched: Arc::clone(&watched),
            known: BTreeMap::new(),
            outbox: outbox.clone(),
            wake: Arc::clone(&wake),
            not_before: Monotonic::default(),
            reported: SourceState::Running,
            lacking: BTreeSet::new(),
        };
        let thread = Running::start("sysfs-errors", SourceName::Sysfs, &outbox, move || reader.run())
            .map_err(no_thread)?;
        Ok(Self { wake, watched, _thread: thread })
    }

    /// Reads the counters of these mounts' superblocks from now on, as far as their file systems have any.
    pub fn watch(&self, mounts: impl Iterator<Item = Arc<Mount>>) {
        let with_counters = mounts.filter(|mount| row_of(&mount.fstype).is_some());
        let watched: Watched = with_counters.map(|mount| (mount.superblock, mount)).collect();
        let mut current = lock(&self.watched);
        // Options change often, and say nothing about whose counters these are.
        let is_new = !keys(&current).eq(keys(&watched));
        *current = watched;
        if is_new {
            self.wake.request();
        }
    }
}

/// Whose counters: device numbers are used again, so with the unique id where there is one.
fn keys(watched: &Watched) -> impl Iterator<Item = (SuperblockId, Option<u64>)> {
    watched.iter().map(|(superblock, mount)| (*superblock, mount.unique))
}

/// One superblock whose counters have been read.
#[derive(Debug)]
struct Known {
    /// The mount that was seen last. Another one is a reason to ask for the folder, and no more.
    unique: Option<u64>,
    row: &'static Row,
    folder: PathBuf,
    /// The inode number of the folder.
    instance: u64,
    /// When it was last found there.
    seen: Monotonic,
    last: Counters,
}

struct Reader {
    sysfs: PathBuf,
    proc: PathBuf,
    watched: Arc<Mutex<Watched>>,
    known: BTreeMap<SuperblockId, Known>,
    outbox: Outbox,
    wake: Arc<Wake>,
    /// When those that have a base line are read next.
    not_before: Monotonic,
    /// What was last said of this source.
    reported: SourceState,
    /// Those that showed none at the last reading that was due.
    lacking: BTreeSet<SuperblockId>,
}

impl Reader {
    fn run(mut self) {
        while !self.wake.is_stopping() {
            self.wake.take_request();
            let used = clock::thread_processor_time();
            let is_due = self.not_before <= clock::now();
            if !self.look(is_due) {
                return;
            }
            let (cost, now) = (clock::thread_processor_time().saturating_sub(used), clock::now());
            // A base line alone puts nothing off: mounts that come and go must not keep the others unread.
            if is_due {
                self.not_before = now + PAUSE.max(cost.saturating_mul(1000 - PER_MILLE) / PER_MILLE);
            }
            self.wake.wait(None, self.not_before.since(now));
        }
    }

    /// Takes base lines of what is new, and reads the others when they are due. `false`: nobody listens any more.
    fn look(&mut self, is_due: bool) -> bool {
        let watched = lock(&self.watched).clone();
        let again = self.keep_known(&watched);
        let mut without = Vec::new();
        let goes_on = again.into_iter().all(|event| self.outbox.send(event));
        let goes_on = goes_on
            && watched.values().all(|mount| {
                if self.known.contains_key(&mount.superblock) {
                    return !is_due || self.read(mount);
                }
                let Some(known) = first(&self.sysfs, mount) else {
                    without.push(mount);
                    return true;
                };
                let told = self.introduce(mount.superblock, &known);
                self.known.insert(mount.superblock, known);
                told
            });
        goes_on && (!is_due || self.report(&without))
    }

    /// Drops what is watched no more, or has become another file system. Gives what is to be said again: who listens
    /// may know of the other mount nothing yet.
    fn keep_known(&mut self, watched: &Watched) -> Vec<SensorEvent> {
        let mut again = Vec::new();
        self.known.retain(|superblock, known| {
            let Some(mount) = watched.get(superblock) else { return false };
            // The table may be read with ids at one time and without at another.
            let is_doubtful = known.unique.zip(mount.unique).is_some_and(|(known, seen)| known != seen);
            known.unique = mount.unique.or(known.unique);
            if !is_doubtful {
                return true;
            }
            let stays = instance(&known.folder) == Some(known.instance);
            again.extend(stays.then_some(SensorEvent::Instance(*superblock, known.instance)));
            stays
        });
        again
    }

    /// Says how this source does, when that has changed. A file system that has just been mounted may have no folder
    /// yet, and one that goes has none any more: only what shows none at two readings lacks something.
    fn report(&mut self, without: &[&Arc<Mount>]) -> bool {
        let now = without.iter().map(|mount| mount.superblock).collect();
        let before = std::mem::replace(&mut self.lacking, now);
        let without: Vec<_> = without.iter().filter(|mount| before.contains(&mount.superblock)).collect();
        let state = match without.as_slice() {
            [] => SourceState::Running,
            [first, ..] => SourceState::Degraded(format!(
                "{} file systems show no counters of their errors, as {} at `{}`",
                without.len(),
                first.fstype,
                first.mountpoint
            )),
        };
        if self.reported == state {
            return true;
        }
        self.reported = state.clone();
        self.outbox.send(SensorEvent::Source(SourceName::Sysfs, state))
    }

    /// Says which file system has a number now, then what it has counted.
    fn introduce(&self, superblock: SuperblockId, known: &Known) -> bool {
        let instance = SensorEvent::Instance(superblock, known.instance);
        self.outbox.send(instance) && self.tell(superblock, known, 0)
    }

    /// Says how many errors a file system has found in itself, of which so many were told. Of file systems that count
    /// other things as well nothing is said.
    fn tell(&self, superblock: SuperblockId, known: &Known, told: u64) -> bool {
        let Some(ends_writes) = known.row.ends_writes(&self.proc, &known.folder) else { return true };
        known.last.values().all(|(errno, count)| {
            self.outbox.send(SensorEvent::OwnErrors(OwnErrors {
                superblock,
                instance: known.instance,
                count: *count,
                errno: *errno,
                told,
                ends_writes,
                at: clock::now(),
            }))
        })
    }

    /// Reads the counters of one that has a base line.
    fn read(&mut self, mount: &Mount) -> bool {
        let superblock = mount.superblock;
        let Some(known) = self.known.get_mut(&superblock) else { return true };
        let now = clock::now();
        // Unmounted since it was last watched, or read in the moment of it.
        let (Some(instance), Some(counters)) = (instance(&known.folder), known.row.read(&known.folder))
        else {
            return true;
        };
        let seen = std::mem::replace(&mut known.seen, now);
        if std::mem::replace(&mut known.instance, instance) != instance {
            known.last = counters;
            let renewed = SensorEvent::Renewed(superblock, seen);
            let introduce = |known| self.introduce(superblock, known);
            return self.outbox.send(renewed) && self.known.get(&superblock).is_none_or(introduce);
        }
        let grown = growth(&known.last, &counters);
        known.last = counters;
        let told = grown.iter().map(|(_, count)| count).sum();
        let all = grown.into_iter().all(|(errno, count)| {
            self.outbox.send(SensorEvent::Kernel(KernelErrors {
                source: Source::Sysfs,
                superblock,
                root_inode: None,
                errno,
                op: Op::Filesystem,
                count,
                at: clock::now(),
                // It grew at some time since the reading before.
                after: Some(seen),
                task: None,
            }))
        });
        all && (told == 0 || self.tell_again(superblock, told))
    }

    fn tell_again(&self, superblock: SuperblockId, told: u64) -> bool {
        self.known.get(&superblock).is_none_or(|known| self.tell(superblock, known, told))
    }
}

/// Where the counters are, and the base line. `None` where there are none.
fn first(sysfs: &Path, mount: &Mount) -> Option<Known> {
    let row = row_of(&mount.fstype)?;
    let folder = row.find(sysfs, mount)?;
    let seen = clock::now();
    let (instance, last) = (instance(&folder)?, row.read(&folder)?);
    Some(Known { unique: mount.unique, row, folder, instance, seen, last })
}

/// kernel: `__kernfs_new_node`, fs/kernfs/dir.c: numbers are given out in turn, since 4.14.
fn instance(folder: &Path) -> Option<u64> {
    std::fs::metadata(folder).ok().map(|found| found.ino())
}

/// By how much each counter has grown. One that shrank was reset by somebody, or belongs to a file system that
/// took the place of another: it begins anew, and so does that of a device which was added.
fn growth(before: &Counters, after: &Counters) -> Vec<(Errno, u64)> {
    let grown = |(name, (errno, count)): (&Name, &(Errno, u64))| {
        let more = count.saturating_sub(before.get(name).map_or(*count, |(_, count)| *count));
        (more > 0).then_some((*errno, more))
    };
    after.iter().filter_map(grown).collect()
}

#[cfg(test)]
mod tests;
