//! At most one mount helper per server at a time: helpers that wait for a dead server must not pile up, and
//! must not hold up the mounts of any other server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use agent_core::remediation::plan::server_name;
use tokio::sync::Semaphore;

/// One place per server.
#[derive(Debug, Default)]
pub(super) struct Servers(Mutex<HashMap<Vec<u8>, Arc<Semaphore>>>);

impl Servers {
    /// The place of the server that the source names. A helper that cannot be killed keeps it while it lives.
    pub(super) fn of(&self, source: &[u8]) -> Option<Arc<Semaphore>> {
        let server = server_name(source)?;
        // The map stays whole whatever panicked while it was locked.
        let mut servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = servers.entry(server.to_vec()).or_insert_with(|| Arc::new(Semaphore::new(1)));
        Some(Arc::clone(place))
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
}
