//! Attached and detached mounts, told by the kernel at once by their unique ids: what the watcher of the mount
//! table has to ask for.
//!
//! An event says only that something happened to that mount; the table says what. Remounts send nothing.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::PollFlags;
use tokio::sync::mpsc::Sender;

use super::group::{Group, reason};
use crate::sensor::wake::{Outbox, Running, Wake, Woken, no_thread};
use crate::sensor::{MountChange, SensorEvent, SourceName, SourceState};

/// Without any event the thread looks this often, for no other purpose than to be robust.
const IDLE: Duration = Duration::from_secs(60);

/// After a batch of events the thread rests, so that a storm costs fifty wake-ups a second and not one an event.
/// The first event after the rest is not delayed, and a reading of the table takes about as long.
const REST: Duration = Duration::from_millis(20);

const SINCE: &str = "mount events need Linux 6.15; changes are noticed by polling the mount table";

/// The running listener. It ends when this is dropped.
#[derive(Debug)]
pub struct MountEvents {
    /// Kept for its end alone.
    _thread: Running,
}

impl MountEvents {
    /// Listens to the mount namespace whose file is `namespace`, and calls `tell` on every change, on lost events,
    /// and when it has to give up. Without it nothing is lost but time: the mount table's own poll remains.
    #[must_use]
    pub fn start(
        namespace: &Path,
        tell: Box<dyn Fn(MountChange) + Send>,
        events: Sender<SensorEvent>,
    ) -> (Option<Self>, SourceState) {
        match Self::try_start(namespace, tell, events) {
            Ok(running) => (Some(running), SourceState::Running),
            Err(why) => (None, SourceState::Off(why)),
        }
    }

    fn try_start(
        namespace: &Path,
        tell: Box<dyn Fn(MountChange) + Send>,
        events: Sender<SensorEvent>,
    ) -> Result<Self, String> {
        let group = Group::for_mounts().map_err(|errno| reason(errno, SINCE))?;
        let file = File::open(namespace)
            .map_err(|error| format!("cannot open the mount namespace `{}`: {error}", namespace.display()))?;
        group.mark_namespace(file.as_fd()).map_err(|errno| reason(errno, SINCE))?;
        let wake = Wake::for_thread()?;
        let outbox = Outbox::new(events, Arc::clone(&wake));
        let listener = Listener { group, tell, outbox: outbox.clone(), wake: Arc::clone(&wake) };
        Ok(Self {
            _thread: Running::start("mount-events", SourceName::FanotifyMnt, &outbox, move || listener.run())
                .map_err(no_thread)?,
        })
    }
}

struct Listener {
    group: Group,
    tell: Box<dyn Fn(MountChange) + Send>,
    outbox: Outbox,
    wake: Arc<Wake>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Who relies on these events must not wait for them.
        if std::thread::panicking() {
            (self.tell)(MountChange::Ended);
        }
    }
}

impl Listener {
    fn run(self) {
        while !self.wake.is_stopping() {
            if self.wake.wait(Some((self.group.as_fd(), PollFlags::POLLIN)), IDLE) != Woken::Ready {
                continue;
            }
            if let Err(errno) = self.read_once() {
                // The mount table's own poll goes on, so losing this source loses no change.
                let state = SourceState::Off(format!("reading mount events failed: {errno}"));
                self.outbox.send(SensorEvent::Source(SourceName::FanotifyMnt, state));
                (self.tell)(MountChange::Ended);
                return;
            }
            // Ends early only when the thread has to end.
            self.wake.wait(None, REST);
        }
    }

    fn read_once(&self) -> Result<(), Errno> {
        let batch = self.group.read()?;
        // What could not be decoded is as good as lost.
        let lost = batch.events.iter().filter(|event| event.is_overflow()).count()
            + usize::from(batch.defect.is_some());
        if lost > 0 {
            self.outbox.send(SensorEvent::MountEventsDropped(lost as u64));
        }
        // An event without a mount says that there was a change, and not which.
        let ids: Vec<_> = batch.events.iter().filter_map(|event| event.mount).collect();
        if lost > 0 || ids.len() < batch.events.len() {
            (self.tell)(MountChange::Lost);
        } else if !ids.is_empty() {
            (self.tell)(MountChange::Mounts(ids));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
