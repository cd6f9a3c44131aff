//! Since when volumes are away whose old file system a plan unmounted, and to which it then brought no new one: that
//! gap goes on until a later plan brings one.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use agent_core::id::VolumeId;
use agent_core::remediation::Plan;
use agent_core::time::Monotonic;

#[derive(Debug, Default)]
pub(super) struct Absences(Mutex<BTreeMap<VolumeId, Monotonic>>);

impl Absences {
    /// A plan begins: since when its volume is away by an earlier one. Where an old file system is, somebody has
    /// brought it since.
    pub(super) fn begin(&self, plan: &Plan) -> Option<Monotonic> {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.remove(&plan.volume).filter(|_| plan.old.is_none())
    }

    /// A plan has ended, and its volume is away since then.
    pub(super) fn end(&self, plan: &Plan, gone_at: Option<Monotonic>) {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.extend(gone_at.map(|at| (plan.volume.clone(), at)));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agent_core::id::SuperblockId;
    use agent_core::remediation::Outcome;

    use super::*;
    use crate::remediation::wire::Step;
    use crate::remediation::{Course, tests};

    const OLD: Option<SuperblockId> = Some(SuperblockId { major: 253, minor: 0 });

    fn plan(old: Option<SuperblockId>) -> Plan {
        Plan { old, ..tests::plan(Duration::ZERO) }
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic::from_nanos(seconds * 1_000_000_000)
    }

    /// The gap that a plan tells which comes to these steps.
    fn told(absences: &Absences, old: Option<SuperblockId>, steps: Vec<Step>) -> Option<Duration> {
        let plan = plan(old);
        let mut course = Course { gone_at: absences.begin(&plan), ..Course::begin() };
        for step in steps {
            course.record("step", (step, Duration::ZERO));
        }
        absences.end(&plan, course.gone_at);
        course.gap
    }

    fn unmounted(seconds: u64) -> Step {
        Step { gone_at: Some(at(seconds)), ..Step::new(Outcome::Changed, "") }
    }

    /// In the place of a guard, beneath it.
    fn shown(seconds: u64) -> Step {
        let gap = Some(Duration::ZERO);
        Step { shown_at: Some(at(seconds)), gap, ..Step::new(Outcome::Changed, "") }
    }

    #[test]
    fn a_gap_lasts_until_a_plan_brings_the_volume_back() {
        let absences = Absences::default();
        let failed = || Step::new(Outcome::HelperFailed(32), "");
        assert_eq!(told(&absences, OLD, vec![unmounted(5), failed()]), None);
        assert_eq!(told(&absences, None, vec![failed()]), None);
        assert_eq!(told(&absences, None, vec![shown(9)]), Some(Duration::from_secs(4)));
        assert_eq!(told(&absences, None, vec![shown(20)]), Some(Duration::ZERO));
        assert_eq!(told(&absences, OLD, vec![unmounted(30), shown(31)]), Some(Duration::from_secs(1)));
    }

    #[test]
    fn what_somebody_else_brought_back_is_not_away_any_more() {
        let absences = Absences::default();
        told(&absences, OLD, vec![unmounted(5)]);
        assert_eq!(told(&absences, OLD, Vec::new()), None);
        assert_eq!(told(&absences, None, vec![shown(90)]), Some(Duration::ZERO));
    }
}
