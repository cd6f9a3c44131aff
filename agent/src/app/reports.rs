//! How a source of fanotify does: what it says of itself, whether reports of it are lost, and who gives none.

use std::time::Duration;

use agent_core::time::Monotonic;

use crate::sensor::SourceState;

/// A loss is told for this long.
const TOLD_FOR: Duration = Duration::from_mins(1);

/// One source.
#[derive(Debug)]
pub(super) struct Reports {
    said: SourceState,
    /// When some were last lost.
    lost: Option<Monotonic>,
    /// What is lost with them.
    cost: &'static str,
    /// Whose reports are missing, and why.
    missing: Option<String>,
}

impl Reports {
    /// As it has started.
    pub(super) const fn new(said: SourceState, cost: &'static str) -> Self {
        Self { said, lost: None, cost, missing: None }
    }

    /// Takes in what it says of itself.
    pub(super) fn says(&mut self, state: SourceState) {
        self.said = state;
    }

    /// Some of its reports are lost.
    pub(super) const fn lost(&mut self, now: Monotonic) {
        self.lost = Some(now);
    }

    /// Takes in whose reports are missing, if anybody's are.
    pub(super) fn missing(&mut self, whose: Option<String>) {
        self.missing = whose;
    }

    /// The worst of it.
    pub(super) fn state(&self, now: Monotonic) -> SourceState {
        let goes_on = self.lost.is_some_and(|at| now.since(at) < TOLD_FOR);
        match (&self.said, &self.missing) {
            (SourceState::Off(_), _) => self.said.clone(),
            _ if goes_on => SourceState::Degraded(format!("reports of the kernel are lost: {}", self.cost)),
            (SourceState::Running, Some(missing)) => SourceState::Degraded(missing.clone()),
            (said, _) => said.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::from_nanos(seconds * 1_000_000_000)
    }

    fn is_degraded(state: SourceState, by: &str) -> bool {
        matches!(state, SourceState::Degraded(reason) if reason.contains(by))
    }

    #[test]
    fn a_loss_lowers_the_source_while_it_goes_on_and_for_a_minute() {
        let mut reports = Reports::new(SourceState::Running, "every volume is looked at");
        assert_eq!(reports.state(at(1)), SourceState::Running);
        reports.lost(at(10));
        reports.lost(at(40));
        assert!(is_degraded(reports.state(at(99)), "every volume is looked at"));
        assert_eq!(reports.state(at(100)), SourceState::Running);
    }

    #[test]
    fn whose_reports_are_missing_is_told_until_there_is_nobody() {
        let mut reports = Reports::new(SourceState::Running, "");
        reports.missing(Some("no reports of `/mnt`".to_owned()));
        assert!(is_degraded(reports.state(at(1)), "/mnt"));
        reports.missing(None);
        assert_eq!(reports.state(at(1)), SourceState::Running);
    }

    #[test]
    fn a_source_that_is_off_is_not_raised_by_what_it_has_lost() {
        let off = SourceState::Off("reading error events failed: EIO".to_owned());
        let mut reports = Reports::new(SourceState::Running, "");
        reports.lost(at(1));
        reports.missing(Some("no reports of `/mnt`".to_owned()));
        reports.says(off.clone());
        assert_eq!(reports.state(at(2)), off);
    }
}
