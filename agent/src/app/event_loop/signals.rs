//! The signals that the loop hears.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Event;

/// Each of them, as it comes.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    pub(super) async fn recv(&mut self) -> Event {
        tokio::select! {
            _ = self.terminate.recv() => Event::End("SIGTERM"),
            _ = self.interrupt.recv() => Event::End("SIGINT"),
            _ = self.hang_up.recv() => Event::Reload,
        }
    }
}
