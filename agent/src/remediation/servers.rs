//! At most one helper per volume and one mount helper per server at a time: helpers that wait for a dead server, or
//! that cannot be killed, must not pile up, and must not hold up the mounts of any other server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use agent_core::id::VolumeId;
use agent_core::remediation::plan::server_name;
use tokio::sync::Semaphore;

/// For what there is one place.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Owner {
    Server(Vec<u8>),
    Volume(VolumeId),
}

/// One place per server, and one per volume.
#[derive(Debug, Default)]
pub(super) struct Servers(Mutex<HashMap<Owner, Arc<Semaphore>>>);

impl Servers {
    /// The place of the server that the source names. A helper that cannot be killed keeps it while it lives.
    pub(super) fn of(&self, source: &[u8]) -> Option<Arc<Semaphore>> {
        Some(self.place(Owner::Server(server_name(source)?.to_vec())))
    }

    /// The place of a volume, likewise.
    pub(super) fn of_volume(&self, volume: &VolumeId) -> Arc<Semaphore> {
        self.place(Owner::Volume(volume.clone()))
    }

    fn place(&self, owner: Owner) -> Arc<Semaphore> {
        // The map stays whole whatever panicked while it was locked.
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(places.entry(owner).or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_place_is_free_per_server() {
        let servers = Servers::default();
        let first = servers.of(b"filer1:/a").unwrap().try_acquire_owned().unwrap();
        assert!(servers.of(b"filer1:/b").unwrap().try_acquire_owned().is_err());
        assert!(servers.of(b"filer2:/b").unwrap().try_acquire_owned().is_ok());
        drop(first);
        assert!(servers.of(b"filer1:/b").unwrap().try_acquire_owned().is_ok());
    }

    #[test]
    fn a_volume_of_the_name_of_a_server_has_a_place_of_its_own() {
        let servers = Servers::default();
        let first = servers.of_volume(&VolumeId::new("filer1")).try_acquire_owned().unwrap();
        assert!(servers.of_volume(&VolumeId::new("filer1")).try_acquire_owned().is_err());
        assert!(servers.of(b"filer1:/a").unwrap().try_acquire_owned().is_ok());
        drop(first);
    }
}
