//! How many lines the log takes: what happens again and again must not fill it.
//!
//! Each subject (a volume, a source) has room for a burst, and after that for a line now and then; all of them together
//! have room as well. What finds no room is counted, and told as one line as soon as there is room for that: when it
//! began, how often, and what was the last of it. So whoever reads the log knows at every moment how things stand, and
//! that something was left out. Who has waited longest is told of first, and who was quiet is heard whatever the others
//! do. Pure: the time is handed in.

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
/// For all of them: a thousand volumes that fall with their server and are repaired, twice. Each time has about seven
/// lines: it is suspect, sick, being repaired, on probation and healthy, and its repair begins and ends.
pub const NODE: Room = Room { burst: 14_000, every: Duration::from_millis(500) };
/// Whoever had nothing to say for so long is quiet, and has its first line whatever the others have said: no flood hides
/// that one more volume falls. A thousand volumes have 6000 such lines an hour at most.
const QUIET: Duration = Duration::from_secs(600);

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

/// What a line says in short.
pub trait Short {
    /// What this says for those who were not told of `before`.
    #[must_use]
    fn after(self, before: Self) -> Self;
}

/// What was left out about one subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftOut<T> {
    /// How many lines.
    pub count: u64,
    /// When the first of them was.
    pub since: Monotonic,
    /// What the last of them said, and what of those before it is still so.
    pub last: T,
}

#[derive(Debug)]
struct Subject<T> {
    bucket: Bucket,
    /// When there was something to say of it, told or not.
    heard: Monotonic,
    left_out: Option<LeftOut<T>>,
}

impl<T> Subject<T> {
    const fn new(room: Room, now: Monotonic) -> Self {
        Self { bucket: Bucket::full(room, now), heard: now, left_out: None }
    }
}

/// The rooms of all subjects. `S` names one, `T` is what a line about it says in short.
#[derive(Debug)]
pub struct Flood<S, T> {
    room: Room,
    node_room: Room,
    node: Option<Bucket>,
    /// Some wait for room among all: it is theirs.
    is_crowded: bool,
    subjects: BTreeMap<S, Subject<T>>,
}

impl<S: Ord + Clone, T: Short> Flood<S, T> {
    /// Nothing was said yet.
    #[must_use]
    pub const fn new(room: Room, node_room: Room) -> Self {
        Self { room, node_room, node: None, is_crowded: false, subjects: BTreeMap::new() }
    }

    /// Whether there is room for a line about this subject. If not, it is counted.
    pub fn admits(&mut self, subject: &S, last: T, now: Monotonic) -> bool {
        self.is_crowded |= !self.has_node_room(now);
        let has_room = !self.is_crowded || !self.subjects.contains_key(subject);
        self.admits_where(has_room, subject, last, now)
    }

    /// The same for what concerns many at once: only its own room counts, however much the others say.
    pub fn admits_apart(&mut self, subject: &S, last: T, now: Monotonic) -> bool {
        self.admits_where(true, subject, last, now)
    }

    fn admits_where(&mut self, has_room: bool, subject: &S, last: T, now: Monotonic) -> bool {
        let entry = self.entry(subject, now);
        // What was left out is told before anything new is: the order of the log is that of the world.
        if has_room && entry.bucket.left > 0 && entry.left_out.is_none() {
            entry.bucket.left -= 1;
            if !self.is_crowded {
                self.take_from_node();
            }
            return true;
        }
        entry.left_out = Some(match entry.left_out.take() {
            None => LeftOut { count: 1, since: now, last },
            Some(before) => {
                LeftOut { count: before.count + 1, since: before.since, last: last.after(before.last) }
            }
        });
        false
    }

    /// A line that is written whether there is room or not. It says how things stand: what was left out of that is told
    /// with it.
    pub fn insists(&mut self, subject: &S, now: Monotonic) -> Option<LeftOut<T>> {
        let entry = self.entry(subject, now);
        entry.bucket.left = entry.bucket.left.saturating_sub(1);
        entry.left_out.take()
    }

    /// What was left out and may be told now, who waits longest first. Whoever is quiet is forgotten.
    pub fn due(&mut self, now: Monotonic) -> Vec<(S, LeftOut<T>)> {
        let room = self.room;
        let left = if self.has_node_room(now) { self.node.map_or(u32::MAX, |node| node.left) } else { 0 };
        let mut waiting = Vec::new();
        for (name, subject) in &mut self.subjects {
            subject.bucket.refill(room, now);
            if let Some(left_out) = subject.left_out.as_ref().filter(|_| subject.bucket.left > 0) {
                waiting.push((left_out.since, name.clone(), subject));
            }
        }
        waiting.sort_by_key(|(since, ..)| *since);
        let served = usize::try_from(left).unwrap_or(usize::MAX);
        self.is_crowded = waiting.len() > served;
        waiting.truncate(served);
        let due: Vec<_> = waiting
            .into_iter()
            .filter_map(|(_, name, subject)| {
                subject.bucket.left -= 1;
                Some((name, subject.left_out.take()?))
            })
            .collect();
        due.iter().for_each(|_| self.take_from_node());
        self.subjects.retain(|_, subject| {
            let is_quiet = now.since(subject.heard) >= QUIET && subject.bucket.left == room.burst;
            !is_quiet || subject.left_out.is_some()
        });
        due
    }

    /// Everything that was left out: nobody will be told later.
    pub fn rest(&mut self) -> Vec<(S, LeftOut<T>)> {
        let subjects = std::mem::take(&mut self.subjects).into_iter();
        subjects.filter_map(|(name, subject)| Some((name, subject.left_out?))).collect()
    }

    fn entry(&mut self, subject: &S, now: Monotonic) -> &mut Subject<T> {
        let room = self.room;
        let entry = self.subjects.entry(subject.clone()).or_insert_with(|| Subject::new(room, now));
        entry.bucket.refill(room, now);
        entry.heard = now;
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
mod tests;
