//! When the agent is ready: what it shows was looked at. Once it is, it stays so: a mount that comes later is one more
//! volume, not another start.

use agent_core::status::VolumeStatus;
use agent_core::verdict::{Advice, HealthState};
use agent_core::volume::Mode;

/// Whether it was ready before.
#[derive(Debug, Default)]
pub(super) struct Ready(bool);

impl Ready {
    /// Takes what is shown now, and whether everything that looks and counts has started.
    pub(super) fn update(&mut self, has_started: bool, volumes: &[VolumeStatus]) -> bool {
        self.0 |= has_started && !volumes.iter().any(waits_for_a_look);
        self.0
    }
}

/// Whether somebody will look and has not: a volume in any state but `unknown` was looked at, unless that is memory.
/// Where a look hangs on the superblock that is all that looking will say.
fn waits_for_a_look(volume: &VolumeStatus) -> bool {
    (volume.condition.state == HealthState::Unknown || volume.condition.is_recalled)
        && volume.last_probe.is_none()
        && volume.stuck_since.is_none()
        && volume.superblock.is_some()
        && volume.mode != Mode::Off
        && !volume.condition.advice.contains(&Advice::Idle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample::{quiet_volume, seconds};

    fn new() -> VolumeStatus {
        let mut volume = quiet_volume("new");
        (volume.condition.state, volume.last_probe) = (HealthState::Unknown, None);
        volume
    }

    #[test]
    fn every_volume_is_looked_at_before_it_is_ready() {
        let is_ready = |volume: VolumeStatus| Ready::default().update(true, &[quiet_volume("a"), volume]);
        assert!(!is_ready(new()));
        assert!(is_ready(quiet_volume("b")));
        assert!(is_ready(VolumeStatus { superblock: None, ..new() }), "nothing is there to look at");
        assert!(is_ready(VolumeStatus { mode: Mode::Off, ..new() }));
        let behind = VolumeStatus { stuck_since: Some(seconds(5)), ..new() };
        assert!(is_ready(behind), "nobody can look where a look hangs");
        assert!(!Ready::default().update(false, &[quiet_volume("b")]));
    }

    #[test]
    fn a_mount_that_comes_later_does_not_take_it_back() {
        let mut ready = Ready::default();
        assert!(ready.update(true, &[quiet_volume("a")]));
        assert!(ready.update(true, &[quiet_volume("a"), new()]));
        assert!(ready.update(false, &[]));
    }
}
