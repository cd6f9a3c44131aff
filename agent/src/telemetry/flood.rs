//! How many lines the log takes: what happens again and again must not fill it.
//!
//! Each subject (a volume, a source) has room for a burst, and after that for a line now and then; all of them together
//! have room as well. What finds no room is counted, and told as one line as soon as there is room for that: when it
//! began, how often, and what was the last of it. So whoever reads the log knows at every moment how things stand, and
//! that something was left out. Pure: the time is handed in.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_core::time::Monotonic;

/// How many lines fit at once, and how long it takes until one more does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// At once.
    pub burst: u32,
    /// One more after this time.
    pub every: Duration,
}

/// For one subject: more than any fault and its repairs have to tell, and 120 lines an hour for what never ends.
pub const SUBJECT: Room = Room { burst: 60, every: Duration::from_secs(30) };
/// For all of them: a thousand volumes that fall with their server, twice.
pub const NODE: Room = Room { burst: 6000, every: Duration::from_millis(500) };

/// Lines that are left, and since when the next is on its way.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: u32,
    since: Monotonic,
}

impl Bucket {
    const fn full(room: Room, now: Monotonic) -> Self {
        Self { left: room.burst, since: now }
    }

    fn refill(&mut self, room: Room, now: Monotonic) {
        let passed = now.since(self.since).as_nanos() / room.every.as_nanos().max(1);
        let more = u32::try_from(passed).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(more).min(room.burst);
        self.since = if self.left == room.burst { now } else { self.since + room.every.saturating_mul(more) };
    }
}

/// What was left out about one subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftOut<T> {
    /// How many lines.
    pub count: u64,
    /// When the first of them was.
    pub since: Monotonic,
    /// What the last of them said.
    pub last: T,
}

#[derive(Debug)]
struct Subject<T> {
    bucket: Bucket,
    left_out: Option<LeftOut<T>>,
}

/// The rooms of all subjects. `S` names one, `T` is what a line about it says in short.
#[derive(Debug)]
pub struct Flood<S, T> {
    room: Room,
    node_room: Room,
    node: Option<Bucket>,
    subjects: BTreeMap<S, Subject<T>>,
}

impl<S: Ord + Clone, T> Flood<S, T> {
    /// Nothing was said yet.
    #[must_use]
    pub const fn new(room: Room, node_room: Room) -> Self {
        Self { room, node_room, node: None, subjects: BTreeMap::new() }
    }

    /// Whether there is room for a line about this subject. If not, it is counted.
    pub fn admits(&mut self, subject: &S, last: T, now: Monotonic) -> bool {
        let has_room = self.has_node_room(now);
        let entry = self.entry(subject, now);
        // What was left out is told before anything new is: the order of the log is that of the world.
        if has_room && entry.bucket.left > 0 && entry.left_out.is_none() {
            entry.bucket.left -= 1;
            self.take_from_node();
            return true;
        }
        let (count, since) = entry.left_out.take().map_or((0, now), |before| (before.count, before.since));
        entry.left_out = Some(LeftOut { count: count + 1, since, last });
        false
    }

    /// A line that is written whether there is room or not. It says how things stand: what was left out of that is told
    /// with it.
    pub fn insists(&mut self, subject: &S, now: Monotonic) -> Option<LeftOut<T>> {
        let entry = self.entry(subject, now);
        entry.bucket.left = entry.bucket.left.saturating_sub(1);
        entry.left_out.take()
    }

    /// What was left out and may be told now. Whoever has nothing more to tell is forgotten.
    pub fn due(&mut self, now: Monotonic) -> Vec<(S, LeftOut<T>)> {
        let mut due = Vec::new();
        let room = self.room;
        let mut left = if self.has_node_room(now) { self.node.map_or(u32::MAX, |node| node.left) } else { 0 };
        for (name, subject) in &mut self.subjects {
            subject.bucket.refill(room, now);
            if left == 0 || subject.bucket.left == 0 {
                continue;
            }
            if let Some(left_out) = subject.left_out.take() {
                subject.bucket.left -= 1;
                left -= 1;
                due.push((name.clone(), left_out));
            }
        }
        due.iter().for_each(|_| self.take_from_node());
        self.subjects.retain(|_, subject| subject.bucket.left < room.burst || subject.left_out.is_some());
        due
    }

    /// Everything that was left out: nobody will be told later.
    pub fn rest(&mut self) -> Vec<(S, LeftOut<T>)> {
        let subjects = std::mem::take(&mut self.subjects).into_iter();
        subjects.filter_map(|(name, subject)| Some((name, subject.left_out?))).collect()
    }

    fn entry(&mut self, subject: &S, now: Monotonic) -> &mut Subject<T> {
        let room = self.room;
        let new = || Subject { bucket: Bucket::full(room, now), left_out: None };
        let entry = self.subjects.entry(subject.clone()).or_insert_with(new);
        entry.bucket.refill(room, now);
        entry
    }

    fn has_node_room(&mut self, now: Monotonic) -> bool {
        let room = self.node_room;
        let node = self.node.get_or_insert(Bucket::full(room, now));
        node.refill(room, now);
        node.left > 0
    }

    fn take_from_node(&mut self) {
        if let Some(node) = &mut self.node {
            node.left = node.left.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { burst: 3, every: Duration::from_secs(10) };
    const WIDE: Room = Room { burst: 100, every: Duration::from_secs(1) };

    fn at(seconds: u64) -> Monotonic {
        Monotonic::from_nanos(seconds * 1_000_000_000)
    }

    fn said(flood: &mut Flood<&str, u32>, subject: &'static str, seconds: std::ops::Range<u64>) -> usize {
        seconds.filter(|second| flood.admits(&subject, u32::try_from(*second).unwrap(), at(*second))).count()
    }

    #[test]
    fn what_goes_on_and_on_is_counted_and_told_in_one_line_with_the_last_of_it() {
        let mut flood = Flood::new(ROOM, WIDE);
        assert_eq!(said(&mut flood, "a", 0..9), 3);
        assert!(flood.due(at(9)).is_empty(), "no room yet");
        let left_out = LeftOut { count: 6, since: at(3), last: 8 };
        assert_eq!(flood.due(at(10)), [("a", left_out)]);
        assert!(flood.due(at(11)).is_empty(), "told once");
        // An hour of a line a second: a line every ten seconds, and none of the others is forgotten.
        let mut lines = 0;
        let mut left_out = 0;
        for second in 11..3611 {
            lines += usize::from(flood.admits(&"a", 0, at(second)));
            for (_, told) in flood.due(at(second)) {
                lines += 1;
                left_out += told.count;
            }
        }
        assert!((359..=361).contains(&lines), "{lines}");
        assert!((3590..=3600).contains(&left_out), "{left_out}");
    }

    #[test]
    fn one_that_floods_takes_no_room_from_the_others() {
        let mut flood = Flood::new(ROOM, WIDE);
        assert_eq!(said(&mut flood, "a", 0..50), 3);
        assert_eq!(said(&mut flood, "b", 50..53), 3);
        // Quiet for long enough: all of its room is back, and nothing of it is kept.
        assert_eq!(flood.due(at(60)).len(), 1);
        assert!(flood.due(at(600)).is_empty() && flood.subjects.is_empty());
        assert_eq!(said(&mut flood, "a", 600..603), 3);
    }

    #[test]
    fn all_together_have_their_limit_and_are_told_as_room_comes() {
        let mut flood: Flood<&str, u32> = Flood::new(ROOM, Room { burst: 4, every: Duration::from_secs(1) });
        let names = ["a", "b", "c", "d", "e", "f"];
        assert_eq!(names.iter().filter(|name| flood.admits(*name, 0, at(0))).count(), 4);
        assert!(flood.due(at(0)).is_empty());
        let told: Vec<_> = (1..=3).flat_map(|second| flood.due(at(second))).map(|(name, _)| name).collect();
        assert_eq!(told, ["e", "f"]);
    }

    #[test]
    fn what_must_be_said_is_said_with_what_was_left_out_before_it() {
        let mut flood = Flood::new(ROOM, WIDE);
        assert_eq!(said(&mut flood, "a", 0..5), 3);
        assert_eq!(flood.insists(&"a", at(5)).map(|left_out| left_out.count), Some(2));
        assert_eq!(flood.insists(&"a", at(5)), None);
        assert_eq!(said(&mut flood, "a", 5..7), 0);
        let rest = flood.rest();
        assert_eq!((rest.len(), rest[0].1.count), (1, 2), "{rest:?}");
        assert!(flood.rest().is_empty());
    }
}
