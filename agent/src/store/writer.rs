//! Brings what is known of volumes to the disk: on a thread of its own, the newest of each volume, at most so often.
//!
//! A volume that flaps changes faster than a disk should be written; what is overtaken is never written. What could
//! not be written is tried again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_core::id::VolumeId;
use agent_core::memory::Memory;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::StoreError;
use super::shelf::Shelf;

/// The pause between two rounds of writing.
const PAUSE: Duration = Duration::from_millis(200);
/// The pause before what could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// What is known of each volume.
type Volumes = BTreeMap<VolumeId, Option<Memory>>;

/// The side that hands over.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    pending: Mutex<Pending>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Pending {
    /// The newest of each volume; `None`: nothing is to be kept.
    volumes: Volumes,
    waiting: Vec<oneshot::Sender<bool>>,
    /// No more will be handed over.
    is_over: bool,
    /// Nobody writes any more.
    is_gone: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        // It is whole after every statement.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for so long. Whoever waits for the disk ends it.
    fn rest<'a>(&self, pending: MutexGuard<'a, Pending>, time: Duration) -> MutexGuard<'a, Pending> {
        let rests = |pending: &mut Pending| pending.waiting.is_empty() && !pending.is_over;
        let rested = self.changed.wait_timeout_while(pending, time, rests);
        rested.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Writer {
    /// Starts to write as soon as there is a shelf. Until then, and without one, all stays in memory.
    pub(super) fn new(failures: Arc<AtomicU64>) -> (Self, oneshot::Sender<Shelf>) {
        let (shelves, shelf) = oneshot::channel();
        let shared = Arc::new(Shared::default());
        let mut round = Round { shared: Arc::clone(&shared), failures, has_failed: false };
        let spawned = std::thread::Builder::new().name("store-volumes".to_owned()).spawn(move || {
            if let Ok(shelf) = shelf.blocking_recv() {
                round.serve(shelf);
            }
            // Nobody waits for what will not be written.
            let mut pending = round.shared.lock();
            pending.is_gone = true;
            pending.waiting.clear();
        });
        if let Err(error) = spawned {
            warn!(%error, "What is known of volumes is not kept");
        }
        (Self { shared }, shelves)
    }

    /// Hands over the newest of a volume.
    pub(super) fn put(&self, volume: VolumeId, memory: Option<Memory>) {
        self.shared.lock().volumes.insert(volume, memory);
        self.shared.changed.notify_one();
    }

    /// Waits until all that was handed over is on disk; `false` when some could not be written.
    pub(super) async fn done(&self) -> bool {
        let (told, done) = oneshot::channel();
        self.wait(told);
        done.await.unwrap_or(false)
    }

    fn wait(&self, told: oneshot::Sender<bool>) {
        let mut pending = self.shared.lock();
        if !pending.is_gone {
            pending.waiting.push(told);
        }
        self.shared.changed.notify_one();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_one();
    }
}

/// The side that writes.
struct Round {
    shared: Arc<Shared>,
    failures: Arc<AtomicU64>,
    has_failed: bool,
}

impl Round {
    fn serve(&mut self, mut shelf: Shelf) {
        let mut wait = None;
        while let Some((volumes, waiting)) = self.take(wait) {
            let before = self.failures.load(Ordering::Relaxed);
            let left = self.write(&mut shelf, volumes);
            let is_whole = left.is_empty() && self.failures.load(Ordering::Relaxed) == before;
            for told in waiting {
                // Who stopped waiting needs no answer.
                let _ = told.send(is_whole);
            }
            wait = (!left.is_empty()).then_some(AGAIN);
            let mut pending = self.shared.lock();
            for (volume, memory) in left {
                pending.volumes.entry(volume).or_insert(memory);
            }
            drop(self.shared.rest(pending, PAUSE));
        }
    }

    /// Waits for something to write. `None`: no more will come, and all is written that could be.
    fn take(&self, failed: Option<Duration>) -> Option<(Volumes, Vec<oneshot::Sender<bool>>)> {
        let mut pending = self.shared.lock();
        // What failed is not tried again at once, unless somebody waits for it.
        if let Some(time) = failed {
            pending = self.shared.rest(pending, time);
            if pending.is_over {
                return None;
            }
        }
        let rests = |pending: &mut Pending| {
            pending.volumes.is_empty() && pending.waiting.is_empty() && !pending.is_over
        };
        let mut pending =
            self.shared.changed.wait_while(pending, rests).unwrap_or_else(PoisonError::into_inner);
        if pending.volumes.is_empty() && pending.waiting.is_empty() {
            return None;
        }
        Some((std::mem::take(&mut pending.volumes), std::mem::take(&mut pending.waiting)))
    }

    /// Writes all, and returns what could not be.
    fn write(&mut self, shelf: &mut Shelf, volumes: Volumes) -> Volumes {
        if volumes.is_empty() {
            return volumes;
        }
        let mut left = Volumes::new();
        for (volume, memory) in volumes {
            match shelf.put(&volume, memory.as_ref()) {
                Ok(()) => {}
                // Trying again changes nothing: it was told at the start.
                Err(StoreError::LeftAlone { .. }) => drop(self.failures.fetch_add(1, Ordering::Relaxed)),
                Err(error) => {
                    self.failed(&error);
                    left.insert(volume, memory);
                }
            }
        }
        match shelf.sync() {
            Ok(()) if left.is_empty() && self.has_failed => {
                self.has_failed = false;
                info!("What is known of volumes is kept on disk again");
            }
            Ok(()) => {}
            Err(error) => self.failed(&error),
        }
        left
    }

    /// Counts a failure. Told once, until writing works again.
    fn failed(&mut self, error: &StoreError) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        if !std::mem::replace(&mut self.has_failed, true) {
            let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            warn!(%error, cause, "What is known of volumes cannot be written, continuing from memory");
        }
    }
}

#[cfg(test)]
mod tests;
