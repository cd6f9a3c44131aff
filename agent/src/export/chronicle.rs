//! What has happened since the agent started, numbered, for those who ask and for those who follow.
//!
//! The event loop writes, and waits for nobody. The last entries are kept; who wants older ones is told how
//! many are gone. What was written can be read once the snapshot that shows it is published: who hears of something
//! and then asks finds it so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::engine::Transition;
use agent_core::incident::{Incident, Moment};
use agent_core::observation::PlanReport;
use agent_core::order::NodeDeed;
use agent_core::remediation::Plan;
use tokio::sync::watch;

use super::event_id::EventId;
use super::timestamp::WallClock;
use super::view::EventView;
use crate::sys::clock;

/// Entries that are kept: some megabytes at most, and more than a burst in which every volume of a large node falls.
pub(crate) const KEPT: usize = 4096;

/// The entries.
#[derive(Debug)]
pub struct Chronicle {
    /// Tells the numbers of this run of the agent from those of others.
    run: u64,
    kept: Mutex<Kept>,
    /// The last number that may be read.
    shown: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Kept {
    entries: VecDeque<Arc<EventView>>,
    /// The number of the last entry.
    written: u64,
}

/// What was read.
#[derive(Debug)]
pub(crate) struct Read {
    /// Entries that were wanted and are gone.
    pub(crate) missed: u64,
    /// The last that could be read then.
    pub(crate) last: EventId,
    /// The entries, oldest first.
    pub(crate) events: Vec<Arc<EventView>>,
}

impl Chronicle {
    /// An empty one for this run of the agent.
    #[must_use]
    pub fn new() -> Self {
        let run = u64::try_from(clock::wall().as_millis()).unwrap_or(u64::MAX);
        Self { run, kept: Mutex::default(), shown: watch::Sender::new(0) }
    }

    /// A condition changed, or a person did something about it.
    pub fn transition(&self, transition: &Transition) {
        self.write(EventView::of_transition(transition, now()));
    }

    /// Somebody did something that is about no volume's history.
    pub fn deed(&self, deed: &NodeDeed) {
        self.write(EventView::of_deed(deed, now()));
    }

    /// Volumes fail together, or do no more.
    pub fn incident(&self, moment: Moment, incident: &Incident) {
        self.write(EventView::of_incident(moment, incident, now()));
    }

    /// A repair begins.
    pub fn repair_began(&self, plan: &Plan) {
        self.write(EventView::of_plan("repair_began", plan, now()));
    }

    /// A repair is due that the mode only tells about.
    pub fn repair_due(&self, plan: &Plan) {
        self.write(EventView::of_plan("repair_due", plan, now()));
    }

    /// A repair ended.
    pub fn repair_ended(&self, plan: &Plan, report: &PlanReport) {
        self.write(EventView::of_report(plan, report, now()));
    }

    /// What was written so far may be read: a snapshot shows it.
    pub fn show(&self) {
        let written = self.kept().written;
        self.shown.send_if_modified(|shown| std::mem::replace(shown, written) != written);
    }

    /// The last that may be read.
    pub(crate) fn last(&self) -> EventId {
        EventId::new(self.run, *self.shown.borrow())
    }

    /// Changes with [`Self::last`].
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.shown.subscribe()
    }

    /// At most so many of the entries after this number, oldest first.
    pub(crate) fn after(&self, number: u64, most: usize) -> Read {
        let shown = *self.shown.borrow();
        let kept = self.kept();
        let count = u64::try_from(kept.entries.len()).unwrap_or(u64::MAX);
        // The last one before the first that is kept.
        let gone = kept.written.saturating_sub(count);
        let missed = gone.min(shown).saturating_sub(number);
        let from = number.max(gone);
        let skip = usize::try_from(from - gone).unwrap_or(usize::MAX);
        let take = usize::try_from(shown.saturating_sub(from)).unwrap_or(usize::MAX).min(most);
        let last = EventId::new(self.run, shown);
        Read { missed, last, events: kept.entries.iter().skip(skip).take(take).cloned().collect() }
    }

    /// The last entries that `wanted` takes, newest first.
    pub(crate) fn latest(&self, most: usize, wanted: impl Fn(&EventView) -> bool) -> Vec<Arc<EventView>> {
        let mut events = self.after(0, usize::MAX).events;
        events.retain(|event| wanted(event));
        events.reverse();
        events.truncate(most);
        events
    }

    fn write(&self, event: EventView) {
        let mut kept = self.kept();
        kept.written += 1;
        let id = EventId::new(self.run, kept.written);
        if kept.entries.len() >= KEPT {
            kept.entries.pop_front();
        }
        kept.entries.push_back(Arc::new(EventView { id, ..event }));
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // It is whole after every statement.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Chronicle {
    fn default() -> Self {
        Self::new()
    }
}

fn now() -> WallClock {
    WallClock { at: clock::now(), wall: clock::wall() }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{detection, failed_repair, incident, mount_plan, seconds};
    use super::*;

    fn numbers(read: &Read) -> Vec<u64> {
        read.events.iter().map(|event| event.id.number()).collect()
    }

    fn falls(chronicle: &Chronicle, count: usize) {
        for _ in 0..count {
            chronicle.transition(&detection("models", seconds(808), None));
        }
    }

    #[test]
    fn what_happens_is_read_in_order_once_it_is_shown() {
        let chronicle = Chronicle::new();
        let plan = mount_plan("models");
        chronicle.transition(&detection("models", seconds(808), None));
        chronicle.incident(Moment::Began, &incident());
        chronicle.repair_began(&plan);
        assert!(chronicle.after(0, 10).events.is_empty(), "no snapshot shows it yet");
        chronicle.show();
        chronicle.repair_ended(&plan, &failed_repair());
        let read = chronicle.after(0, 10);
        let kinds: Vec<_> = read.events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, ["transition", "incident_began", "repair_began"]);
        assert_eq!(read.events[1].volumes, ["models", "scratch"]);
        assert_eq!(read.events[2].plan, Some(7));
        chronicle.show();
        let read = chronicle.after(2, 1);
        assert_eq!((numbers(&read), read.missed), (vec![3], 0));
        let last = chronicle.latest(1, |event| event.volume.as_deref() == Some("models"));
        assert_eq!(
            (last[0].kind.as_str(), last[0].outcome.as_deref()),
            ("repair_ended", Some("helper_failed"))
        );
        assert_eq!(last[0].id, chronicle.last());
        assert!(!last[0].message.contains("Zx9"), "{}", last[0].message);
    }

    #[test]
    fn who_comes_too_late_is_told_how_much_is_gone() {
        let chronicle = Chronicle::new();
        falls(&chronicle, KEPT + 3);
        assert_eq!(chronicle.after(0, 1).missed, 0, "nothing of it was shown");
        chronicle.show();
        let read = chronicle.after(1, 2);
        assert_eq!((read.missed, numbers(&read)), (2, vec![4, 5]));
        let read = chronicle.after(3, 1);
        assert_eq!((read.missed, numbers(&read)), (0, vec![4]));
        // More is written than is kept before any of it is shown.
        falls(&chronicle, KEPT + 1);
        let read = chronicle.after(3, 10);
        let shown = chronicle.last().number();
        assert_eq!((read.missed, read.events.len()), (shown - 3, 0));
        chronicle.show();
        assert_eq!(numbers(&chronicle.after(shown, 1)), [shown + 2]);
    }

    #[test]
    fn those_who_wait_hear_of_news_and_of_nothing_else() {
        let chronicle = Chronicle::new();
        let mut news = chronicle.news();
        news.borrow_and_update();
        chronicle.show();
        assert!(!news.has_changed().unwrap());
        falls(&chronicle, 1);
        chronicle.show();
        assert!(news.has_changed().unwrap());
    }
}
