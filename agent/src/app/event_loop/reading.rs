//! Reading the configuration again, beside the loop: its disk must not hold it up.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::config::{Config, ConfigErrors};

/// Reads the configuration again, from the same places.
pub(in crate::app) type Reload = Arc<dyn Fn() -> Result<Config, ConfigErrors> + Send + Sync>;

/// The configuration that is read again.
pub(super) struct Reading {
    reload: Reload,
    running: JoinSet<Result<Config, ConfigErrors>>,
    /// It was asked for again meanwhile.
    again: bool,
}

impl Reading {
    pub(super) fn new(reload: Reload) -> Self {
        Self { reload, running: JoinSet::new(), again: false }
    }

    /// Begins, or goes on after what runs: that may have read what was there before.
    pub(super) fn ask(&mut self) {
        self.again = !self.running.is_empty();
        if !self.again {
            let reload = Arc::clone(&self.reload);
            self.running.spawn_blocking(move || reload());
        }
    }

    /// What was read. Never ends while nothing is read.
    pub(super) async fn done(&mut self) -> Result<Config, ConfigErrors> {
        loop {
            match self.running.join_next().await {
                Some(Ok(read)) => {
                    if std::mem::take(&mut self.again) {
                        self.ask();
                    }
                    return read;
                }
                // Lost by a fault of the reader's own.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}
