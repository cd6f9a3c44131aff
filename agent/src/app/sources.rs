//! The sensors: starting them, feeding them what is tracked, ending them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_core::consumer::Dead;
use agent_core::engine::Tracked;
use agent_core::id::SuperblockId;
use agent_core::path::BytePath;
use agent_core::topology::{Mount, MountTable};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tracing::{debug, info};

use super::facts::Facts;
use super::marks::{MarkKey, Marks, key_of};
use super::reports::Reports;
use crate::config::Config;
use crate::error_chain::chain;
use crate::kernel::namespace::Namespace;
use crate::sensor::cgroups::{self, Cgroups};
use crate::sensor::fanotify::{self, FsErrors, MarkRefused, MountEvents, may_report};
use crate::sensor::fuse_daemons::FuseDaemons;
use crate::sensor::sysfs_errors::SysfsErrors;
use crate::sensor::{SensorEvent, SourceName, SourceState, census, consumers, ebpf, mountinfo};
use crate::sys::clock;

/// Setting a mark resolves a path, in a child that is given up after this.
const MARK_DEADLINE: Duration = Duration::from_secs(5);

/// Where processes are seen.
const PROC: &str = "/proc";
/// Where file systems show their counters. Not of any mount namespace: devices are the host's everywhere.
const SYSFS: &str = "/sys";

/// Everything that runs below the event loop and sends it facts.
pub(super) struct Sources {
    /// Verifying kernel programs can take seconds on a busy node: it is done beside the event loop.
    starting: Option<JoinHandle<ebpf::Started>>,
    ebpf: Option<ebpf::Handle>,
    /// They have not said yet that they count for what they were told first.
    is_unconfirmed: bool,
    /// Starts when it is known whether there is an iterator.
    census: Option<census::Handle>,
    cgroups: Option<Cgroups>,
    consumers: Option<consumers::Handle>,
    /// For sensors that start later.
    events: mpsc::WeakSender<SensorEvent>,
    mountinfo: Option<mountinfo::Handle>,
    /// Kept for its end alone.
    mount_events: Option<MountEvents>,
    mount_reports: Reports,
    fs_errors: Option<FsErrors>,
    fs_reports: Reports,
    /// Why the mark of a superblock was refused last.
    refusals: BTreeMap<SuperblockId, String>,
    fuse_daemons: Option<FuseDaemons>,
    marks: JoinSet<MarkEnd>,
    /// What the last table showed, for the places that must not be counted for a volume above them.
    table: MountTable,
    tracked: Vec<Tracked>,
    marked: Marks,
    sysfs: Option<SysfsErrors>,
}

/// What goes on beside the event loop and has ended.
pub(super) enum Ended {
    /// The start of the kernel programs; an error when it was lost.
    Start(Result<ebpf::Started, JoinError>),
    /// An attempt to set a mark.
    Mark(MarkEnd),
    /// The pause before another attempt.
    Pause,
}

/// What became of an attempt to set a mark.
pub(super) struct MarkEnd {
    key: MarkKey,
    mountpoint: BytePath,
    result: Result<(), MarkRefused>,
}

impl Sources {
    /// Starts all sources. What does not start is told in `facts` and left out.
    pub(super) fn start(
        config: &Config,
        namespace: &Namespace,
        events: &mpsc::Sender<SensorEvent>,
        facts: &mut Facts,
    ) -> Self {
        let settings = ebpf::Settings {
            family: config.kernel.family,
            btf: config.kernel.btf.clone(),
            host_mnt_ns: namespace.inode,
        };
        let ebpf_events = events.clone();
        let starting = tokio::task::spawn_blocking(move || ebpf::start(&settings, ebpf_events));

        let settings = mountinfo::Settings {
            namespace: namespace.enter.clone(),
            ..mountinfo::Settings::new(namespace.mountinfo.clone())
        };
        // Whether it works is known after the first reading, and told then.
        let mountinfo = mountinfo::start(settings, events.clone())
            .inspect_err(|error| facts.source(SourceName::Mountinfo, SourceState::Off(chain(error))))
            .ok();
        let not_started = || (None, SourceState::Off("not started".to_owned()));
        let (mount_events, mount_state) = mountinfo.as_ref().map_or_else(not_started, |handle| {
            let (running, state) =
                MountEvents::start(namespace.file(), Box::new(handle.changes()), events.clone());
            if state == SourceState::Running {
                handle.has_events();
            }
            (running, state)
        });
        facts.source(SourceName::FanotifyMnt, mount_state.clone());
        let program = vec![super::OWN_BINARY.into(), fanotify::MARK_SUBCOMMAND.into()];
        let settings = fanotify::Settings { program, enter: namespace.enter.clone() };
        let (fs_errors, fs_state) = FsErrors::start(settings, events.clone());
        facts.source(SourceName::FanotifyFs, fs_state.clone());
        let (fuse_daemons, state) = FuseDaemons::start(PROC.into(), events.clone());
        facts.source(SourceName::FuseDaemons, state);
        let program = vec![super::OWN_BINARY.into(), consumers::CONSUMERS_SUBCOMMAND.into()];
        let (consumers, state) = consumers::start(program, events.clone());
        facts.source(SourceName::Consumers, state);
        let (sysfs, state) = SysfsErrors::start(Path::new(SYSFS), Path::new(PROC), events.clone());
        facts.source(SourceName::Sysfs, state);
        Self {
            starting: Some(starting),
            ebpf: None,
            is_unconfirmed: false,
            census: None,
            cgroups: Cgroups::start(cgroups::ROOTS.map(PathBuf::from).to_vec(), events.clone()),
            consumers,
            events: events.downgrade(),
            mountinfo,
            mount_events,
            mount_reports: Reports::new(mount_state, "the whole mount table was read instead"),
            fs_errors,
            fs_reports: Reports::new(fs_state, "every volume that may have had some was looked at instead"),
            refusals: BTreeMap::new(),
            fuse_daemons,
            marks: JoinSet::new(),
            table: MountTable::default(),
            tracked: Vec::new(),
            marked: Marks::default(),
            sysfs,
        }
    }

    /// Takes in a new table.
    pub(super) fn table(&mut self, table: MountTable) {
        self.table = table;
        self.tell_all();
    }

    /// Another superblock has this number: what was attached to the old one is gone with it.
    pub(super) fn renewed(&mut self, superblock: SuperblockId) {
        self.marked.renew(superblock);
        self.tell_all();
    }

    /// Takes in a new set of what is tracked.
    pub(super) fn track(&mut self, tracked: Vec<Tracked>) {
        self.tracked = tracked;
        self.tell_all();
    }

    fn tell_all(&mut self) {
        self.tell_census();
        self.tell_kernel();
        let mounts = self.tracked_mounts();
        self.mark(&mounts);
        self.watch(&mounts);
    }

    fn tell_census(&self) {
        if let Some(census) = &self.census {
            census.track(&self.tracked);
        }
    }

    /// Takes in whose mounts and open files are to be found.
    pub(super) fn find_consumers(&self, dead: Vec<Dead>) {
        if let Some(consumers) = &self.consumers {
            consumers.ask(dead);
        }
    }

    /// Whether a volume is in doubt: then waiting tasks are looked for more often.
    pub(super) fn haste(&self, is_in_haste: bool) {
        if let Some(census) = &self.census {
            census.set_haste(is_in_haste);
        }
    }

    /// Asks for the path of a cgroup; it comes as an event.
    pub(super) fn ask_cgroup(&mut self, id: u64) {
        if let Some(cgroups) = &mut self.cgroups {
            cgroups.ask(id);
        }
    }

    /// The paths of cgroups that were told are not kept any more: each may be asked for again.
    pub(super) fn forget_cgroups(&mut self) {
        if let Some(cgroups) = &mut self.cgroups {
            cgroups.forget();
        }
    }

    fn start_census(&mut self, iterator: Result<ebpf::TaskIterator, String>, facts: &mut Facts) {
        let Some(events) = self.events.upgrade() else { return };
        let program = vec![super::OWN_BINARY.into(), census::CENSUS_SUBCOMMAND.into()];
        let (running, state) = census::start(census::Settings { program }, iterator, events);
        facts.source(SourceName::Census, state);
        self.census = running;
        self.tell_census();
    }

    fn tell_kernel(&self) {
        if let Some(ebpf) = &self.ebpf {
            let places = self.table.mounts().iter().map(|mount| &mount.mountpoint);
            let shadows = shadows(self.tracked.iter().map(|tracked| &tracked.mountpoint), places);
            let sources = device_sources(&self.tracked, &self.table);
            let subvolumes = btrfs(&self.tracked, &self.table);
            let shown = self.tracked_mounts();
            let directories =
                shown.iter().map(|mount| (mount.mountpoint.clone(), mount.directory().to_vec())).collect();
            let tracked = self.tracked.clone();
            ebpf.track(ebpf::Watched { tracked, shadows, subvolumes, sources, directories });
        }
    }

    /// Asks for the errors of every tracked superblock that may report some, through one of its mounts.
    fn mark(&mut self, tracked: &[Arc<Mount>]) {
        let Some(fs_errors) = &self.fs_errors else { return };
        let current = self.table.mounts().iter().map(|mount| key_of(mount)).collect();
        for superblock in self.marked.keep(&current) {
            fs_errors.forget(superblock);
            self.refusals.remove(&superblock);
        }
        let now = clock::now();
        let mut superblocks: BTreeMap<SuperblockId, Vec<&Arc<Mount>>> = BTreeMap::new();
        for mount in tracked.iter().filter(|mount| may_report(&mount.fstype)) {
            superblocks.entry(mount.superblock).or_default().push(mount);
        }
        for mounts in superblocks.values() {
            let asked = self.marked.ask_one(mounts.iter().map(|mount| key_of(mount)), now);
            let Some((key, mount)) = asked
                .and_then(|key| mounts.iter().find(|mount| key_of(mount) == key).map(|mount| (key, *mount)))
            else {
                continue;
            };
            let (fs_errors, mount) = (fs_errors.clone(), Arc::clone(mount));
            let is_automount = self.table.automount_of(&mount).is_some();
            self.marks.spawn(async move {
                let result = fs_errors.mark(&mount, is_automount, MARK_DEADLINE).await;
                MarkEnd { key, mountpoint: mount.mountpoint.clone(), result }
            });
        }
        self.marked.drop_due(now);
    }

    /// A mount was refused a mark for good: another one of its superblock, if there is one, may not be.
    fn mark_through_another(&mut self, superblock: SuperblockId) {
        if self.tracked.iter().filter(|tracked| tracked.superblock == superblock).count() > 1 {
            self.mark(&self.tracked_mounts());
        }
    }

    /// The mounts of what is tracked. Goes through the whole table, so it is asked once for each.
    fn tracked_mounts(&self) -> Vec<Arc<Mount>> {
        let tracked: BTreeMap<&BytePath, SuperblockId> =
            self.tracked.iter().map(|tracked| (&tracked.mountpoint, tracked.superblock)).collect();
        let mounts = self.table.mounts().iter();
        mounts.filter(|mount| tracked.get(&mount.mountpoint) == Some(&mount.superblock)).cloned().collect()
    }

    /// Tells the watcher of the table and the reader of sysfs what to look at.
    fn watch(&self, tracked: &[Arc<Mount>]) {
        if let Some(mountinfo) = &self.mountinfo {
            mountinfo.watch(tracked.iter().filter_map(|mount| mount.unique).collect());
        }
        if let Some(sysfs) = &self.sysfs {
            sysfs.watch(tracked.iter().cloned());
        }
        if let Some(fuse_daemons) = &self.fuse_daemons {
            let served = tracked.iter().filter(|mount| is_served(&mount.fstype));
            fuse_daemons.track(served.map(|mount| mount.superblock).collect());
        }
    }

    /// The next thing that ended; never when nothing goes on.
    pub(super) async fn ended(&mut self) -> Ended {
        let pause = self.marked.next().map(|at| at.since(clock::now()));
        let Self { starting, marks, .. } = self;
        tokio::select! {
            Some(started) = join(starting) => {
                *starting = None;
                Ended::Start(started)
            }
            Some(Ok(end)) = marks.join_next() => Ended::Mark(end),
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => Ended::Pause,
            else => std::future::pending().await,
        }
    }

    /// Whether the kernel programs count for what is tracked, or never will: until then a failed call may be missed.
    pub(super) const fn is_watching(&self) -> bool {
        self.is_started() && !self.is_unconfirmed
    }

    /// The kernel programs have said something of themselves: they do so when they count for a new set.
    pub(super) const fn confirm(&mut self) {
        self.is_unconfirmed = false;
    }

    /// Whether the kernel programs are started, or have failed to.
    pub(super) const fn is_started(&self) -> bool {
        self.starting.is_none()
    }

    /// Takes in what ended.
    pub(super) fn take(&mut self, ended: Ended, facts: &mut Facts) {
        match ended {
            Ended::Start(Err(error)) => {
                let reason = format!("its start failed: {error}");
                facts.source(SourceName::Bpf, SourceState::Off(reason.clone()));
                self.start_census(Err(reason), facts);
            }
            Ended::Start(Ok(started)) => {
                facts.programs = started.programs;
                facts.source(SourceName::Bpf, started.state);
                self.ebpf = started.handle;
                self.is_unconfirmed = self.ebpf.is_some();
                self.tell_kernel();
                self.start_census(started.census, facts);
            }
            Ended::Mark(MarkEnd { mountpoint, result: Ok(()), .. }) => {
                debug!(%mountpoint, "File-system errors are reported");
            }
            // A refusal is that volume's alone.
            Ended::Mark(MarkEnd { key, mountpoint, result: Err(error) }) => {
                let again = self.marked.refused(key, &error, clock::now());
                let error = chain(&error);
                self.refusals.insert(key.0, error.clone());
                if again.is_some() {
                    debug!(%mountpoint, error, "File-system errors cannot be asked for now, trying again later");
                } else {
                    info!(%mountpoint, error, "File-system errors are not reported here, continuing without");
                    self.mark_through_another(key.0);
                }
            }
            Ended::Pause => self.mark(&self.tracked_mounts()),
        }
        self.settle(facts);
    }

    /// Takes in what a source says of itself; how it does.
    pub(super) fn said(&mut self, name: SourceName, state: SourceState) -> SourceState {
        match self.reports(name) {
            Some(reports) => {
                reports.says(state);
                reports.state(clock::now())
            }
            None => state,
        }
    }

    /// Reports of a source are lost.
    pub(super) fn lost(&mut self, name: SourceName, facts: &mut Facts) {
        if let Some(reports) = self.reports(name) {
            reports.lost(clock::now());
        }
        self.settle(facts);
    }

    /// Tells how the sources do that are told by more than their own words: a loss is over some time later, and a
    /// volume that gave no reports may be gone.
    pub(super) fn settle(&mut self, facts: &mut Facts) {
        let silent = self.tracked.iter().find(|tracked| self.marked.is_silent(tracked.superblock));
        let missing = silent.map(|tracked| {
            let why = self.refusals.get(&tracked.superblock).map_or("refused", String::as_str);
            format!("some volumes report no errors of their file system, as `{}`: {why}", tracked.mountpoint)
        });
        self.fs_reports.missing(missing);
        let now = clock::now();
        facts.source(SourceName::FanotifyFs, self.fs_reports.state(now));
        facts.source(SourceName::FanotifyMnt, self.mount_reports.state(now));
    }

    const fn reports(&mut self, name: SourceName) -> Option<&mut Reports> {
        match name {
            SourceName::FanotifyFs => Some(&mut self.fs_reports),
            SourceName::FanotifyMnt => Some(&mut self.mount_reports),
            _ => None,
        }
    }

    /// Asks for a new table.
    pub(super) fn rescan(&self) {
        if let Some(handle) = &self.mountinfo {
            handle.rescan();
        }
    }

    /// Asks for the options of the volumes, where that costs less than a new table.
    pub(super) fn refresh(&self) {
        if let Some(handle) = &self.mountinfo {
            handle.refresh();
        }
    }

    /// Taking in a table has cost this much processor time.
    pub(super) fn spent(&self, cost: Duration) {
        if let Some(handle) = &self.mountinfo {
            handle.spent(cost);
        }
    }

    /// Ends all sources.
    pub(super) fn stop(mut self) {
        self.marks.abort_all();
        drop(self.mount_events.take());
        drop(self.fs_errors.take());
        drop(self.fuse_daemons.take());
        drop(self.sysfs.take());
        drop(self.consumers.take());
        drop(self.mountinfo.take());
        drop(self.census.take());
        if let Some(handle) = self.ebpf.take() {
            handle.stop();
        }
    }
}

async fn join<T>(task: &mut Option<JoinHandle<T>>) -> Option<Result<T, JoinError>> {
    match task {
        Some(task) => Some(task.await),
        None => None,
    }
}

/// Whether a process serves file systems of this type.
fn is_served(fstype: &str) -> bool {
    matches!(fstype, "fuse" | "fuseblk") || fstype.starts_with("fuse.") || fstype.starts_with("fuseblk.")
}

/// The mount points that lie below a tracked one and are not tracked themselves: an error on a name below them
/// is not the tracked volume's. Asked for every table of perhaps ten thousand mounts: nothing is copied but the
/// answer.
fn shadows<'a>(
    tracked: impl Iterator<Item = &'a BytePath>,
    places: impl Iterator<Item = &'a BytePath>,
) -> Vec<BytePath> {
    let tracked: BTreeSet<&[u8]> = tracked.map(BytePath::as_bytes).collect();
    let is_shadow = |place: &&BytePath| {
        let bytes = place.as_bytes();
        !tracked.contains(bytes) && ancestors(bytes).any(|above| tracked.contains(above))
    };
    let shadows: BTreeSet<&BytePath> = places.filter(is_shadow).collect();
    shadows.into_iter().cloned().collect()
}

/// What tracked superblocks with a number of their own were mounted from, where that is a device.
fn device_sources(tracked: &[Tracked], table: &MountTable) -> BTreeMap<SuperblockId, Vec<u8>> {
    let anonymous: BTreeSet<SuperblockId> =
        tracked.iter().map(|tracked| tracked.superblock).filter(|superblock| superblock.major == 0).collect();
    let mounts = table.mounts().iter();
    mounts
        .filter(|mount| anonymous.contains(&mount.superblock) && mount.source.starts_with(b"/dev/"))
        .map(|mount| (mount.superblock, mount.source.clone()))
        .collect()
}

/// The tracked superblocks of btrfs.
fn btrfs(tracked: &[Tracked], table: &MountTable) -> BTreeSet<SuperblockId> {
    let tracked: BTreeSet<SuperblockId> = tracked.iter().map(|tracked| tracked.superblock).collect();
    let is_one = |mount: &&Mount| mount.fstype == "btrfs" && tracked.contains(&mount.superblock);
    table.mounts().iter().map(|mount| &**mount).filter(is_one).map(|mount| mount.superblock).collect()
}

/// The directories above a path, nearest first.
fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let cuts = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    cuts.filter_map(move |at| path.get(..at.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_untracked_mounts_below_tracked_ones_are_shadows() {
        let tracked = [BytePath::from("/mnt/a"), BytePath::from("/mnt/a/b")];
        let places = ["/", "/mnt", "/mnt/a", "/mnt/a/b", "/mnt/a/b/c", "/mnt/a/x", "/mnt/ab", "/mnt/a/x"];
        let places = places.map(BytePath::from);
        let shadows = shadows(tracked.iter(), places.iter());
        assert_eq!(shadows, [BytePath::from("/mnt/a/b/c"), BytePath::from("/mnt/a/x")]);
    }

    #[test]
    fn everything_is_below_a_tracked_root() {
        let root = BytePath::from("/");
        let places = [BytePath::from("/"), BytePath::from("/proc")];
        assert_eq!(shadows([&root].into_iter(), places.iter()), [BytePath::from("/proc")]);
    }
}
