//! Which volumes are worth a closer look at the tasks that wait: the census costs most where many tasks are.

use std::time::Duration;

use agent_core::status::VolumeStatus;
use agent_core::time::Monotonic;
use agent_core::verdict::{HealthState, Reason};

/// After this long the usual pace is enough: what has not shown by then is no matter of seconds.
const HASTE: Duration = Duration::from_secs(10 * 60);

/// Whether waiting tasks could tell more about it.
pub(super) fn is_in_doubt(volume: &VolumeStatus, now: Monotonic) -> bool {
    let is_recent = |since: Monotonic| now.since(since) < HASTE;
    volume.stuck_since.is_some_and(is_recent)
        || volume.blocked.iter().any(|blocked| is_recent(blocked.since))
        || (may_block(volume.condition.state, volume.condition.reason) && is_recent(volume.condition.since))
}

/// Whether tasks may wait for it. Nobody waits on what is not mounted, or only refuses to write.
const fn may_block(state: HealthState, reason: Option<Reason>) -> bool {
    match (state, reason) {
        (HealthState::Suspect, _) => true,
        (HealthState::Degraded, Some(reason)) => matches!(
            reason,
            Reason::Hung | Reason::HostDown | Reason::Disconnected | Reason::IoError | Reason::Stale
        ),
        (HealthState::Degraded, None)
        | (
            HealthState::Unknown
            | HealthState::Healthy
            | HealthState::Recovering
            | HealthState::Probation
            | HealthState::Quarantined,
            _,
        ) => false,
    }
}

#[cfg(test)]
mod tests {
    use agent_core::observation::{BlockedTask, Task};

    use super::*;
    use crate::export::sample::{quiet_volume, seconds};

    const SINCE: u64 = 1000;

    fn in_state(state: HealthState, reason: Option<Reason>) -> VolumeStatus {
        let mut volume = quiet_volume("v");
        (volume.condition.state, volume.condition.reason) = (state, reason);
        volume.condition.since = seconds(SINCE);
        volume
    }

    #[test]
    fn only_a_condition_in_which_tasks_may_wait_is_in_doubt_and_not_for_ever() {
        let wanted = [Reason::Hung, Reason::HostDown, Reason::Disconnected, Reason::IoError, Reason::Stale];
        for reason in Reason::ALL {
            let volume = in_state(HealthState::Degraded, Some(reason));
            assert_eq!(is_in_doubt(&volume, seconds(SINCE + 1)), wanted.contains(&reason), "{reason:?}");
            assert!(!is_in_doubt(&volume, seconds(SINCE + 600)), "{reason:?}");
        }
        assert!(is_in_doubt(&in_state(HealthState::Suspect, Some(Reason::Missing)), seconds(SINCE)));
        assert!(!is_in_doubt(&in_state(HealthState::Healthy, None), seconds(SINCE)));
    }

    #[test]
    fn a_probe_that_is_stuck_and_tasks_that_wait_are_for_a_while() {
        let mut stuck = in_state(HealthState::Healthy, None);
        stuck.stuck_since = Some(seconds(SINCE));
        let mut blocked = in_state(HealthState::Healthy, None);
        let task = Task { tid: 1, pid: 1, comm: String::from("cat"), cgroup: 0, mnt_ns: 0 };
        let wait = |since| BlockedTask {
            task: task.clone(),
            call: String::from("read"),
            since: seconds(since),
            is_deep: true,
            is_by_name: false,
        };
        blocked.blocked = vec![wait(SINCE)];
        for volume in [&stuck, &blocked] {
            assert!(is_in_doubt(volume, seconds(SINCE + 599)));
            assert!(!is_in_doubt(volume, seconds(SINCE + 600)));
        }
        blocked.blocked.push(wait(SINCE + 600));
        assert!(is_in_doubt(&blocked, seconds(SINCE + 600)), "a new one");
    }
}
