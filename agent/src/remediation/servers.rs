//! At most one helper per volume and one helper per server at a time: helpers that wait for a dead server, or that cannot
//! be killed, must not pile up, and must not hold up the mounts of any other server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use agent_core::id::VolumeId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// For what there is one place.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Owner {
    Server(Vec<u8>),
    Volume(VolumeId),
}

/// One place per server, and one per volume.
#[derive(Debug, Default)]
pub(super) struct Servers(Mutex<HashMap<Owner, Place>>);

impl Servers {
    /// The place of a server. A helper that cannot be killed keeps it while it lives.
    pub(super) fn of(&self, server: &[u8]) -> Place {
        self.place(Owner::Server(server.to_vec()))
    }

    /// The place of a volume, likewise.
    pub(super) fn of_volume(&self, volume: &VolumeId) -> Place {
        self.place(Owner::Volume(volume.clone()))
    }

    fn place(&self, owner: Owner) -> Place {
        // The map stays whole whatever panicked while it was locked.
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.entry(owner).or_default().clone()
    }
}

/// What one helper at a time may have.
#[derive(Clone, Debug)]
pub(super) struct Place {
    free: Arc<Semaphore>,
    /// Who has it was killed, and has not ended.
    is_stuck: Arc<AtomicBool>,
}

impl Default for Place {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(1)), is_stuck: Arc::default() }
    }
}

impl Place {
    /// Waits until it is free.
    pub(super) async fn take(self) -> Option<Permit> {
        // No semaphore is ever closed.
        let permit = self.free.acquire_owned().await.ok()?;
        Some(Permit { is_stuck: self.is_stuck, _permit: permit })
    }

    /// Whether whoever has it may never give it back.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }
}

/// The place is had until this is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    is_stuck: Arc<AtomicBool>,
    _permit: OwnedSemaphorePermit,
}

impl Permit {
    /// For whoever sees that the helper does not end.
    pub(super) fn mark(&self) -> Mark {
        Mark(Arc::clone(&self.is_stuck))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // Before the place is free again, which it is after this.
        self.is_stuck.store(false, Ordering::Relaxed);
    }
}

/// Says of a place that whoever has it does not end.
#[derive(Debug)]
pub(super) struct Mark(Arc<AtomicBool>);

impl Mark {
    pub(super) fn set_stuck(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn try_take(place: Place) -> Option<Permit> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let take =
            async { tokio::time::timeout(std::time::Duration::ZERO, place.take()).await.ok().flatten() };
        runtime.block_on(take)
    }

    #[test]
    fn only_one_place_is_free_per_server() {
        let servers = Servers::default();
        let first = try_take(servers.of(b"filer1")).unwrap();
        assert!(try_take(servers.of(b"filer1")).is_none());
        assert!(try_take(servers.of(b"filer2")).is_some());
        drop(first);
        assert!(try_take(servers.of(b"filer1")).is_some());
    }

    #[test]
    fn a_volume_of_the_name_of_a_server_has_a_place_of_its_own() {
        let servers = Servers::default();
        let first = try_take(servers.of_volume(&VolumeId::new("filer1"))).unwrap();
        assert!(try_take(servers.of_volume(&VolumeId::new("filer1"))).is_none());
        assert!(try_take(servers.of(b"filer1")).is_some());
        drop(first);
    }

    #[test]
    fn a_place_is_stuck_as_long_as_a_killed_helper_has_it() {
        let servers = Servers::default();
        let first = try_take(servers.of(b"filer1")).unwrap();
        assert!(!servers.of(b"filer1").is_stuck());
        first.mark().set_stuck();
        assert!(servers.of(b"filer1").is_stuck() && !servers.of(b"filer2").is_stuck());
        drop(first);
        assert!(!servers.of(b"filer1").is_stuck());
    }
}
