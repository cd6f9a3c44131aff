//! Who is heard in a flood, when, and what of the rest is told.

use super::*;

const ROOM: Room = Room { burst: 3, every: Duration::from_secs(10) };
const WIDE: Room = Room { burst: 100, every: Duration::from_secs(1) };

impl Short for u32 {
    fn after(self, _: Self) -> Self {
        self
    }
}

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
    assert!(flood.due(at(700)).is_empty() && flood.subjects.is_empty());
    assert_eq!(said(&mut flood, "a", 700..703), 3);
}

/// Room for four lines of all together, and one more each second.
const NARROW: Room = Room { burst: 4, every: Duration::from_secs(1) };

#[test]
fn all_together_have_their_limit_and_are_told_as_room_comes() {
    let mut flood: Flood<&str, u32> = Flood::new(ROOM, NARROW);
    let names = ["f", "e", "d", "c", "b", "a"];
    // The first of each is heard: nobody had said anything before.
    assert_eq!(names.iter().filter(|name| flood.admits(*name, 0, at(0))).count(), 6);
    assert_eq!(names.iter().filter(|name| flood.admits(*name, 0, at(0))).count(), 0);
    assert!(flood.due(at(0)).is_empty());
    let told: Vec<_> = (1..=6).flat_map(|second| flood.due(at(second))).map(|(name, _)| name).collect();
    assert_eq!(told, ["a", "b", "c", "d", "e", "f"]);
}

#[test]
fn who_waits_longest_is_told_of_first_and_nobody_for_ever() {
    let mut flood: Flood<u32, u32> = Flood::new(ROOM, NARROW);
    let (count, mut told) = (100, BTreeMap::new());
    for second in 0..600 {
        // The first of them by name say the most, and the last of them begins last.
        for name in 0..count {
            if second % u64::from(name + 1) == 0 && second >= u64::from(name) {
                flood.admits(&name, 0, at(second));
            }
        }
        for (name, left_out) in flood.due(at(second)) {
            let waited = at(second).since(left_out.since).as_secs();
            assert!(waited <= u64::from(count) + 10, "{name} waited for {waited} s");
            *told.entry(name).or_insert(0) += 1;
        }
    }
    assert!((0..50).all(|name| told.contains_key(&name)), "{told:?}");
}

#[test]
fn the_first_line_of_who_was_quiet_and_what_concerns_many_are_heard_in_every_flood() {
    let mut flood: Flood<u32, u32> = Flood::new(ROOM, NARROW);
    for second in 0..700 {
        for name in 0..10 {
            flood.admits(&name, 0, at(second));
        }
        flood.due(at(second));
    }
    assert!(!flood.admits(&1, 0, at(700)), "it floods");
    assert!(flood.admits(&77, 0, at(700)), "it was quiet");
    assert!(!flood.admits(&77, 0, at(701)), "once");
    assert!(flood.admits_apart(&99, 0, at(700)) && flood.admits_apart(&99, 0, at(701)));
    assert!(flood.admits_apart(&99, 0, at(702)) && !flood.admits_apart(&99, 0, at(703)), "its own room");
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
