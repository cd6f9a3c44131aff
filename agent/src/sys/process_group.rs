//! Process groups of children.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::Child;

/// The group of a child that is listened to and not reaped yet, so that the number means that group. Killed when it is
/// dropped: nobody waits any more, and nobody else would end what the child has started.
#[derive(Debug)]
pub struct Group(Option<Pid>);

impl Group {
    /// That of a child which leads one of its own.
    #[must_use]
    pub fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw))
    }

    /// Lets the group live.
    pub fn release(mut self) {
        self.0 = None;
    }

    /// Kills the group, and tells which it was.
    #[must_use]
    pub fn kill(self) -> Option<Pid> {
        self.0
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // ESRCH: all of it is gone already.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}
