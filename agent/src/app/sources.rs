//! The sensors: starting them, feeding them what is tracked, ending them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent_core::engine::Tracked;
use agent_core::id::{MountId, SuperblockId};
use agent_core::path::BytePath;
use agent_core::topology::MountTable;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tracing::{debug, info};

use super::facts::Facts;
use crate::config::Config;
use crate::error_chain::chain;
use crate::kernel::namespace::Namespace;
use crate::sensor::fanotify::{self, FsErrors, MarkRefused, MountEvents, may_report};
use crate::sensor::{SensorEvent, SourceName, SourceState, ebpf, mountinfo};

/// Setting a mark resolves a path, in a child that is given up after this.
const MARK_DEADLINE: Duration = Duration::from_secs(5);

/// Everything that runs below the event loop and sends it facts.
pub(super) struct Sources {
    /// Verifying kernel programs can take seconds on a busy node: it is done beside the event loop.
    starting: Option<JoinHandle<ebpf::Started>>,
    ebpf: Option<ebpf::Handle>,
    mountinfo: Option<mountinfo::Handle>,
    /// Kept for its end alone.
    mount_events: Option<MountEvents>,
    fs_errors: Option<FsErrors>,
    marks: JoinSet<MarkEnd>,
    /// What the last table showed, for the places that must not be counted for a volume above them.
    table: MountTable,
    tracked: Vec<Tracked>,
    /// Superblocks that have a mark, or were refused one.
    marked: BTreeSet<(SuperblockId, MountId)>,
}

/// What goes on beside the event loop and has ended.
pub(super) enum Ended {
    /// The start of the kernel programs; an error when it was lost.
    Start(Result<ebpf::Started, JoinError>),
    /// An attempt to set a mark.
    Mark(MarkEnd),
}

/// What became of an attempt to set a mark.
pub(super) struct MarkEnd {
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
            host_mnt_ns: namespace.inode,
            ..ebpf::Settings::default()
        };
        let ebpf_events = events.clone();
        let starting = tokio::task::spawn_blocking(move || ebpf::start(&settings, ebpf_events));

        let mountinfo =
            match mountinfo::start(mountinfo::Settings::new(namespace.mountinfo.clone()), events.clone()) {
                Ok(handle) => {
                    facts.source(SourceName::Mountinfo, SourceState::Running);
                    Some(handle)
                }
                Err(error) => {
                    facts.source(SourceName::Mountinfo, SourceState::Off(chain(&error)));
                    None
                }
            };
        let mount_events = mountinfo.as_ref().and_then(|handle| {
            let (running, state) =
                MountEvents::start(namespace.file(), Box::new(handle.rescanner()), events.clone());
            if state == SourceState::Running {
                handle.set_processor_percent(mountinfo::PERCENT_WITH_EVENTS);
            }
            facts.source(SourceName::FanotifyMnt, state);
            running
        });
        let program = vec![super::OWN_BINARY.into(), fanotify::MARK_SUBCOMMAND.into()];
        let settings = fanotify::Settings { program, enter: namespace.enter.clone() };
        let (fs_errors, state) = FsErrors::start(settings, events.clone());
        facts.source(SourceName::FanotifyFs, state);
        Self {
            starting: Some(starting),
            ebpf: None,
            mountinfo,
            mount_events,
            fs_errors,
            marks: JoinSet::new(),
            table: MountTable::default(),
            tracked: Vec::new(),
            marked: BTreeSet::new(),
        }
    }

    /// Takes in a new table.
    pub(super) fn table(&mut self, table: MountTable) {
        self.table = table;
        self.tell_kernel();
        self.mark();
    }

    /// Takes in a new set of what is tracked.
    pub(super) fn track(&mut self, tracked: Vec<Tracked>) {
        self.tracked = tracked;
        self.tell_kernel();
        self.mark();
    }

    fn tell_kernel(&self) {
        if let Some(ebpf) = &self.ebpf {
            let places = self.table.mounts().iter().map(|mount| &mount.mountpoint);
            ebpf.track(
                &self.tracked,
                &shadows(self.tracked.iter().map(|tracked| &tracked.mountpoint), places),
            );
        }
    }

    /// Asks for the errors of every tracked file system that may report some. A mark dies with its superblock, so
    /// each new mount gets its own.
    fn mark(&mut self) {
        let Some(fs_errors) = &self.fs_errors else { return };
        let tracked: BTreeMap<&BytePath, SuperblockId> =
            self.tracked.iter().map(|tracked| (&tracked.mountpoint, tracked.superblock)).collect();
        let mounts = self.table.mounts();
        let current: BTreeSet<_> = mounts.iter().map(|mount| (mount.superblock, mount.id)).collect();
        let shown: BTreeSet<_> = mounts.iter().map(|mount| mount.superblock).collect();
        self.marked.retain(|mark| {
            if !shown.contains(&mark.0) {
                fs_errors.forget(mark.0);
            }
            current.contains(mark)
        });
        for mount in mounts {
            let is_tracked = tracked.get(&mount.mountpoint) == Some(&mount.superblock);
            if !is_tracked || !may_report(&mount.fstype) || !self.marked.insert((mount.superblock, mount.id))
            {
                continue;
            }
            let (fs_errors, mount) = (fs_errors.clone(), mount.clone());
            self.marks.spawn(async move {
                let result = fs_errors.mark(&mount, MARK_DEADLINE).await;
                MarkEnd { mountpoint: mount.mountpoint, result }
            });
        }
    }

    /// The next thing that ended; never when nothing goes on.
    pub(super) async fn ended(&mut self) -> Ended {
        let Self { starting, marks, .. } = self;
        tokio::select! {
            Some(started) = join(starting) => {
                *starting = None;
                Ended::Start(started)
            }
            Some(Ok(end)) = marks.join_next() => Ended::Mark(end),
            else => std::future::pending().await,
        }
    }

    /// Whether the kernel programs are started, or have failed to.
    pub(super) const fn is_started(&self) -> bool {
        self.starting.is_none()
    }

    /// Takes in what ended.
    pub(super) fn take(&mut self, ended: Ended, facts: &mut Facts) {
        match ended {
            Ended::Start(Err(error)) => {
                facts.source(SourceName::Bpf, SourceState::Off(format!("its start failed: {error}")));
            }
            Ended::Start(Ok(started)) => {
                facts.programs = started.programs;
                facts.source(SourceName::Bpf, started.state);
                self.ebpf = started.handle;
                self.tell_kernel();
            }
            Ended::Mark(MarkEnd { mountpoint, result: Ok(()) }) => {
                debug!(%mountpoint, "File-system errors are reported");
            }
            // A refusal is that volume's alone.
            Ended::Mark(MarkEnd { mountpoint, result: Err(error) }) => {
                info!(%mountpoint, error = %chain(&error), "File-system errors are not reported here, continuing without");
            }
        }
    }

    /// Asks for a new table.
    pub(super) fn rescan(&self) {
        if let Some(handle) = &self.mountinfo {
            handle.rescan();
        }
    }

    /// Ends all sources.
    pub(super) fn stop(mut self) {
        self.marks.abort_all();
        drop(self.mount_events.take());
        drop(self.fs_errors.take());
        if let Some(handle) = self.mountinfo.take() {
            handle.stop();
        }
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
