//! Kernel programs: counters and records into observations.
//!
//! [`start`] loads, attaches and starts one thread; it never fails, it says what it could not do. The thread
//! sends records at once and the growth of the counters right after them. What is watched is set with
//! [`Handle::track`].

mod counters;
mod coverage;
pub(crate) mod decode;
mod explain;
mod io_operations;
mod layout;
mod links;
mod loader;
mod losses;
mod maps;
pub(super) mod names;
mod pairs;
pub(super) mod places;
pub mod programs;
mod reader;
mod rows;
mod skipped;
mod stacks;
pub(super) mod syscalls;
mod task_iterator;
mod trampolines;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

pub use self::task_iterator::TaskIterator;
use agent_core::engine::Tracked;
use agent_core::id::SuperblockId;
use agent_core::path::BytePath;
use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::sync::mpsc::Sender;

use super::wake::LastWords;
use super::{ProgramStatus, SensorEvent, SourceName, SourceState};
use crate::error_chain::chain;
use crate::kernel::btf;
use crate::kernel::namespace::number_of_link;

/// Stopping takes no longer than this.
const STOP_TIME: Duration = Duration::from_secs(1);

/// Which family of hooks to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Family {
    /// The family that costs less, if all of it attaches; else the other one.
    #[default]
    Auto,
    /// Ends of file functions.
    Fexit,
    /// Ends of system calls.
    SysExit,
    /// No kernel programs.
    Off,
}

/// What the source needs to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Which family.
    pub family: Family,
    /// Where the kernel describes its structures.
    pub btf: PathBuf,
    /// Inode number of the mount namespace that tracked mount points are in; `None`: this process's own.
    pub host_mnt_ns: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { family: Family::Auto, btf: PathBuf::from(btf::VMLINUX), host_mnt_ns: None }
    }
}

/// What [`start`] came to.
#[derive(Debug)]
pub struct Started {
    /// The running source, if it runs.
    pub handle: Option<Handle>,
    /// The table of programs as it turned out.
    pub programs: Vec<ProgramStatus>,
    /// Running, in part, or off and why.
    pub state: SourceState,
    /// The census by iterator, or why there is none.
    pub census: Result<TaskIterator, String>,
}

/// What is watched.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Watched {
    /// The mounts to count for.
    pub tracked: Vec<Tracked>,
    /// The mount points that are not tracked: a name below one of them is not on the tracked mount above it.
    pub shadows: Vec<BytePath>,
    /// Superblocks of btrfs: their subvolumes are told apart by name.
    pub subvolumes: BTreeSet<SuperblockId>,
    /// Devices of superblocks whose number is not that of a device (btrfs): what they were mounted from.
    pub sources: BTreeMap<SuperblockId, Vec<u8>>,
    /// Which directory of its superblock each tracked mount point shows.
    pub directories: BTreeMap<BytePath, Vec<u8>>,
}

/// What the thread is told.
#[derive(Debug)]
enum Command {
    /// Watch these and only these.
    Track(Watched),
    /// End.
    Stop,
}

/// The running source. Dropping it stops the source without waiting.
#[derive(Debug)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    /// Wakes the thread after a command was put into `commands`.
    wake: Arc<EventFd>,
    /// Disconnected when the thread has ended.
    ended: mpsc::Receiver<()>,
    thread: JoinHandle<()>,
}

impl Handle {
    /// Sets what is watched; replaces the last set. Returns at once.
    pub fn track(&self, watched: Watched) {
        self.tell(Command::Track(watched));
    }

    /// Detaches the programs and ends the thread; waits a second at most.
    pub fn stop(self) {
        self.tell(Command::Stop);
        if self.ended.recv_timeout(STOP_TIME) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!("Reader of kernel programs does not end, leaving it behind");
            return;
        }
        if self.thread.join().is_err() {
            tracing::warn!("Reader of kernel programs had ended early");
        }
    }

    fn tell(&self, command: Command) {
        // A thread that is gone has said so through the source's state, as its last words if not before.
        let _ = self.commands.send(command);
        let _ = self.wake.write(1);
    }
}

/// Loads and attaches the programs and starts reading. Never fails: what does not work is in the answer.
#[must_use]
pub fn start(settings: &Settings, events: Sender<SensorEvent>) -> Started {
    let off = |reason: String| Started {
        handle: None,
        programs: loader::not_tried(&reason, settings.family),
        census: Err(reason.clone()),
        state: SourceState::Off(reason),
    };
    let Some(host_mnt_ns) = settings.host_mnt_ns.or_else(own_mnt_ns) else {
        return off("the mount namespace of this process is unknown: is /proc mounted?".to_owned());
    };
    let mut loaded = match loader::load(settings, host_mnt_ns) {
        Ok(loaded) => loaded,
        Err(error) => return off(chain(&error)),
    };
    let census = loaded.attacher.take_census().map(TaskIterator::new);
    let programs = loaded.attacher.programs();
    let maps = match maps::Maps::take(&mut loaded.attacher.ebpf) {
        Ok(maps) => maps,
        Err(error) => return off(error.to_string()),
    };
    let names = names::Names::new(PathBuf::from("/proc"), host_mnt_ns, loaded.same_ids);
    let state = loaded.state.clone();
    match spawn((maps, loaded), names, events) {
        Ok(handle) => Started { handle: Some(handle), programs, state, census },
        Err(error) => off(format!("failed to start the reading thread: {error}")),
    }
}

fn spawn(
    kernel: (maps::Maps, loader::Loaded),
    names: names::Names,
    events: Sender<SensorEvent>,
) -> std::io::Result<Handle> {
    let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
    let (commands, receiver) = mpsc::channel();
    let (alive, ended) = mpsc::channel::<()>();
    let link = reader::Link { commands: receiver, wake: Arc::clone(&wake) };
    let last_words = LastWords::new(SourceName::Bpf, events.clone());
    let reader = reader::Reader::new(kernel, names, events, link);
    let thread = std::thread::Builder::new().name("ebpf".to_owned()).spawn(move || {
        let _last_words = last_words;
        reader.run();
        drop(alive);
    })?;
    Ok(Handle { commands, wake, ended, thread })
}

/// Inode number of this process's mount namespace, from the text of a link.
fn own_mnt_ns() -> Option<u32> {
    number_of_link(std::fs::read_link("/proc/self/ns/mnt").ok()?.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_and_unusable_types_start_nothing_and_say_why() {
        for (family, btf, expected) in [
            (Family::Off, btf::VMLINUX, "turned off"),
            (Family::Auto, "/nonexistent/btf", "/nonexistent/btf"),
        ] {
            let (events, _receiver) = tokio::sync::mpsc::channel(4);
            let settings = Settings { family, btf: btf.into(), host_mnt_ns: None };
            let started = start(&settings, events);
            assert!(started.handle.is_none());
            assert_eq!(started.programs.len(), programs::PROGRAMS.len());
            let SourceState::Off(reason) = started.state else { panic!("not off") };
            assert!(reason.contains(expected) || reason.contains("built without"), "{reason}");
        }
    }
}
