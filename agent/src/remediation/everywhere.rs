//! Carries out the consumers' part of a plan: in every mount namespace that it concerns, with one child for each, so
//! that one that hangs keeps no other from its share.

use std::future::pending;
use std::time::Duration;

use agent_core::remediation::{Action, Outcome, Plan, Refusal};

use super::wire::{Known, Step, WireAction, WireNamespace, WireWanted};
use super::{Course, Executor, Limits, line, name};
use crate::sys::clock;

/// What is done in each namespace, and in which order.
struct Work {
    wanted: WireWanted,
    act: fn(WireWanted) -> WireAction,
    /// The new mount comes to the host first. Away from the old one go the others first, so that they can come back
    /// to what the host still shows.
    is_host_first: bool,
    /// Where one fails, the others are seen to all the same.
    goes_on: bool,
}

impl Work {
    fn of(action: &Action) -> Option<Self> {
        match action {
            Action::CoverConsumers { holding, reach } => Some(Self {
                wanted: WireWanted::new(Some(holding), None, *reach),
                act: WireAction::CoverConsumers,
                is_host_first: false,
                goes_on: false,
            }),
            Action::SwapConsumers { holding, ids, reach } => Some(Self {
                wanted: WireWanted::new(holding.as_ref(), ids.as_ref(), *reach),
                act: WireAction::SwapConsumers,
                is_host_first: true,
                goes_on: true,
            }),
            Action::CheckSource { .. }
            | Action::Stage { .. }
            | Action::CheckStaged { .. }
            | Action::MountAgain
            | Action::AbortConnection { .. }
            | Action::RestartUnit { .. }
            | Action::UnmountOld
            | Action::Swap { .. }
            | Action::RunInPlace { .. }
            | Action::Verify { .. }
            | Action::DetachTop
            | Action::Unstage => None,
        }
    }

    fn places(&self, found: Vec<WireNamespace>) -> Vec<Option<WireNamespace>> {
        let mut places: Vec<Option<WireNamespace>> = found.into_iter().map(Some).collect();
        places.insert(if self.is_host_first { 0 } else { places.len() }, None);
        places
    }
}

impl Executor {
    /// The mounts that are to follow, as long as the old one is mounted where the plan begins: later its number may be
    /// another one's.
    pub(super) async fn find_consumers(
        &self,
        plan: &Plan,
        limits: Limits,
        stop: impl Future<Output = ()>,
    ) -> Step {
        let is_about = |action: &Action| match action {
            Action::SwapConsumers { holding: Some(holding), ids: None, reach } => {
                Some(WireWanted::new(Some(holding), None, *reach))
            }
            _ => None,
        };
        // All of these are taken away before the new one comes.
        if plan.actions.iter().any(|action| matches!(action, Action::CoverConsumers { .. })) {
            return Step::new(Outcome::AlreadySo, "");
        }
        let Some(wanted) = plan.actions.iter().find_map(is_about) else {
            return Step::new(Outcome::AlreadySo, "");
        };
        self.ask(plan, WireAction::FindShown(wanted), limits, (Known::default(), stop)).await
    }

    /// Carries out an action that is about consumers; `None` for any other.
    pub(super) async fn everywhere(
        &self,
        plan: &Plan,
        action: &Action,
        limits: Limits,
        course: &mut Course,
    ) -> Option<(Step, Duration)> {
        let mut work = Work::of(action)?;
        if matches!(action, Action::SwapConsumers { holding: Some(_), .. }) && work.wanted.ids.is_none() {
            work.wanted.ids = Some(course.consumers.clone());
        }
        let begun = clock::now();
        let left = || limits.wait.saturating_sub(clock::now().since(begun));
        let one = || Limits { wait: left(), act: limits.act.min(left()) };
        let find = WireAction::FindConsumers(work.wanted.clone());
        let found = self.ask(plan, find, one(), (course.known.clone(), pending())).await;
        if !found.outcome.is_success() {
            return Some((found, clock::now().since(begun)));
        }
        let places = work.places(found.namespaces);
        for namespace in places.iter().filter(|_| !work.goes_on) {
            let ask = WireAction::MayCover(WireWanted { namespace: *namespace, ..work.wanted.clone() });
            let step = self.ask(plan, ask, one(), (course.known.clone(), pending())).await;
            if !step.outcome.is_success() {
                return Some((step, clock::now().since(begun)));
            }
        }
        let mut sum = Sum::default();
        for namespace in places {
            let ask = (work.act)(WireWanted { namespace, ..work.wanted.clone() });
            let at = clock::now();
            let step = self.ask(plan, ask, one(), (course.known.clone(), pending())).await;
            let took = clock::now().since(at);
            if step.outcome != Outcome::AlreadySo {
                course.steps.push(line(&format!("{} {}", name(action), place(namespace)), &step, took));
            }
            course.left_behind.extend(step.detached.iter().copied());
            if !sum.add(step) && !work.goes_on {
                break;
            }
        }
        Some((sum.into_step(course.gap, work.goes_on), clock::now().since(begun)))
    }
}

fn place(namespace: Option<WireNamespace>) -> String {
    match namespace {
        None => "on the host".to_owned(),
        Some(WireNamespace { number, process }) => {
            format!("in mount namespace {number} (process {process})")
        }
    }
}

/// What it came to in all of them.
#[derive(Default)]
struct Sum {
    looked: usize,
    changed: usize,
    failed: Vec<Step>,
    gap: Option<Duration>,
}

impl Sum {
    /// False when it failed there.
    fn add(&mut self, step: Step) -> bool {
        self.looked += 1;
        self.changed += usize::from(step.outcome == Outcome::Changed);
        self.gap = self.gap.max(step.gap);
        let is_good = step.outcome.is_success();
        if !is_good {
            self.failed.push(step);
        }
        is_good
    }

    fn into_step(self, host_gap: Option<Duration>, goes_on: bool) -> Step {
        let Self { looked, changed, failed, gap } = self;
        let text = format!("{changed} of {looked} mount namespaces changed, {} failed", failed.len());
        let outcome = match failed.into_iter().next() {
            None if changed > 0 => Outcome::Changed,
            None => Outcome::AlreadySo,
            Some(_) if goes_on => Outcome::Refused(Refusal::ConsumersLeft),
            Some(first) => first.outcome,
        };
        let mut step = Step::new(outcome, text);
        // The longest of all, where any is known.
        step.gap = host_gap.max(gap);
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::volume::Reach;

    fn step(outcome: Outcome, gap: Option<u64>) -> Step {
        let mut step = Step::new(outcome, "");
        step.gap = gap.map(Duration::from_micros);
        step
    }

    #[test]
    fn the_host_comes_first_to_the_new_and_last_from_the_old() {
        let found = || vec![WireNamespace { number: 1, process: 2 }, WireNamespace { number: 3, process: 4 }];
        let holding = agent_core::remediation::consumers::Holding {
            root: "/".into(),
            fstype: "ext4".to_owned(),
            source: Vec::new(),
        };
        let reach = Reach::Unowned;
        let swap = Work::of(&Action::SwapConsumers { holding: None, ids: None, reach }).unwrap();
        assert!(swap.places(found()).first().unwrap().is_none());
        let cover = Work::of(&Action::CoverConsumers { holding, reach }).unwrap();
        assert!(cover.places(found()).last().unwrap().is_none());
        assert!(Work::of(&Action::Unstage).is_none());
    }

    #[test]
    fn one_that_is_left_makes_the_whole_incomplete() {
        let mut sum = Sum::default();
        assert!(sum.add(step(Outcome::Changed, Some(0))));
        assert!(!sum.add(step(Outcome::TimedOut, None)));
        assert!(sum.add(step(Outcome::AlreadySo, Some(70))));
        let whole = sum.into_step(Some(Duration::ZERO), true);
        assert_eq!(whole.outcome, Outcome::Refused(Refusal::ConsumersLeft));
        assert_eq!(whole.gap, Some(Duration::from_micros(70)));
        let mut sum = Sum::default();
        sum.add(step(Outcome::Refused(Refusal::Busy), None));
        assert_eq!(sum.into_step(None, false).outcome, Outcome::Refused(Refusal::Busy));
    }
}
