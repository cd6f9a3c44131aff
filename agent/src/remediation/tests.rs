//! What a plan gives its steps.

use agent_core::id::VolumeId;

use super::*;

/// A plan that does nothing.
pub(super) fn plan(timeout: Duration) -> Plan {
    Plan {
        id: PlanId(7),
        volume: VolumeId::new("models"),
        reason: None,
        mountpoint: "/mnt/models".into(),
        stage: "/run/mountie/stage/7".into(),
        server: None,
        dead: None,
        marks: None,
        old: None,
        actions: Vec::new(),
        undo: Vec::new(),
        timeout,
        helper_timeout: Duration::ZERO,
    }
}

#[test]
fn what_is_good_is_shown_and_looked_at_also_when_the_time_of_the_plan_is_used_up() {
    let verify = Action::Verify {
        sentinel: None,
        identity: agent_core::volume::Identity::default(),
        source: None,
        fstype: None,
    };
    let shows = [Action::Swap { readonly: false }, verify];
    for (timeout, least) in [(Duration::ZERO, SHOW_LIMIT), (Duration::from_secs(600), Duration::from_secs(9))]
    {
        let plan = plan(timeout);
        for action in &shows {
            let Limits { wait, act } = Course::begin().limits(&plan, action);
            assert!(wait >= least && act >= least.min(plan.limit(action)), "{action:?}: {act:?}");
        }
    }
    let after = Course { has_begun_to_swap: true, ..Course::begin() };
    assert!(after.limits(&plan(Duration::ZERO), &Action::Unstage).act >= SHOW_LIMIT);
    let limits = Course::begin().limits(&plan(Duration::ZERO), &Action::Unstage);
    assert_eq!((limits.wait, limits.act), (Duration::ZERO, Duration::ZERO));
}
