//! Sentinels that were put on volumes: what is pinned counts at once, and is kept beside the loop.

use std::sync::Arc;

use agent_core::engine::Input;
use agent_core::id::VolumeId;
use tracing::{info, warn};

use super::EventLoop;
use crate::app::plantings::{Done, Ended, Finished};
use crate::error_chain::chain;
use crate::export::SentinelAnswer;

impl EventLoop {
    /// A sentinel is in place, or is not. What is pinned counts at once; who asked is answered when it is on disk too, or
    /// cannot be. The superblock is free when the worker is gone.
    pub(super) fn take_planted(&mut self, ended: Ended) {
        let Finished { done, reply, is_new, hangs } = self.plantings.finish(ended);
        if let Some((order, began)) = hangs {
            self.feed(Input::ErrandHangs(order, began));
        }
        if is_new {
            self.feed(Input::Pins(self.plantings.sentinels()));
        }
        match reply {
            // Also what was pinned before: it may not have been written then.
            Ok(answer) if answer.pinned => {
                if is_new {
                    info!(volume = answer.volume, "A sentinel is pinned");
                }
                self.keep_pins(Some((done, answer)));
            }
            // Who stopped waiting needs no answer.
            reply => drop(done.send(reply)),
        }
    }

    /// Writes what is pinned, beside the loop, and then answers.
    pub(super) fn keep_pins(&self, waiting: Option<(Done, SentinelAnswer)>) {
        let writing = self.write_pins();
        tokio::spawn(async move {
            let kept = writing.await;
            if let Some((done, answer)) = waiting {
                // Who stopped waiting needs no answer.
                let _ = done.send(Ok(SentinelAnswer { kept, ..answer }));
            }
        });
    }

    /// The sentinel that was pinned for a volume does not count any more. The future says whether that is on disk; there
    /// is none where nothing was pinned.
    pub(super) fn unpin(&mut self, volume: &VolumeId) -> Option<impl Future<Output = bool> + use<>> {
        let was_pinned = self.plantings.unpin(volume);
        if was_pinned {
            self.feed(Input::Pins(self.plantings.sentinels()));
        }
        was_pinned.then(|| self.write_pins())
    }

    fn write_pins(&self) -> impl Future<Output = bool> + use<> {
        let writing = self.pin_file.write(self.plantings.pins().clone());
        let store = Arc::clone(&self.store);
        async move {
            let written = writing.await;
            if let Err(error) = &written {
                store.count_failure();
                warn!(error = %chain(error), "Pinned sentinels could not be written, continuing from memory");
            }
            written.is_ok()
        }
    }
}
