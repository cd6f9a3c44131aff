//! Who is asked for a mark, when again, and who is silent.

use super::*;

const KEY: MarkKey = (SuperblockId { major: 7, minor: 1 }, MountId(30), Some(1));

fn at(seconds: u64) -> Monotonic {
    Monotonic::from_nanos(seconds * 1_000_000_000)
}

#[test]
fn a_refusal_is_tried_again_at_growing_pauses_and_not_for_ever() {
    let (mut marks, mut now, mut pauses) = (Marks::default(), at(0), Vec::new());
    while marks.ask(KEY, now) {
        assert!(!marks.ask(KEY, now), "one at a time");
        let Some(again) = marks.refused(KEY, &MarkRefused::TimedOut, now) else { break };
        assert!(!marks.ask(KEY, now) && marks.next() == Some(again));
        pauses.push(again.since(now).as_secs());
        now = again;
    }
    assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320]);
    assert_eq!((marks.next(), marks.ask(KEY, at(1_000_000))), (None, false));
}

#[test]
fn what_another_try_cannot_change_is_not_tried_again() {
    use crate::sensor::fanotify::MarkStep;
    let refused = |step, errno| MarkRefused::Refused { step, errno: agent_core::errno::Errno(errno) };
    let mut marks = Marks::default();
    assert!(marks.ask(KEY, at(0)));
    assert_eq!(marks.refused(KEY, &refused(MarkStep::Mark, 95), at(0)), None);
    let other = (KEY.0, KEY.1, Some(2));
    assert!(marks.ask(other, at(0)));
    assert_eq!(marks.refused(other, &refused(MarkStep::Open, 5), at(0)), Some(at(5)));
}

#[test]
fn a_superblock_that_was_renewed_unseen_by_the_table_gets_a_new_mark() {
    let other = (SuperblockId { major: 7, minor: 2 }, KEY.1, None);
    let mut marks = Marks::default();
    assert!(marks.ask(KEY, at(0)) && marks.ask(other, at(0)));
    marks.renew(KEY.0);
    assert!(marks.ask(KEY, at(1)) && !marks.ask(other, at(1)));
}

#[test]
fn of_the_mounts_that_show_a_superblock_one_is_asked_for() {
    use crate::sensor::fanotify::MarkStep;
    let binds: Vec<MarkKey> = (30..33).map(|id| (KEY.0, MountId(id), Some(u64::from(id)))).collect();
    let mut marks = Marks::default();
    let ask = |marks: &mut Marks, of: &[MarkKey], seconds| {
        marks.ask_one(of.iter().copied(), at(seconds)).map(|key| key.1.0)
    };
    assert_eq!(ask(&mut marks, &binds, 0), Some(30));
    assert_eq!(ask(&mut marks, &binds, 0), None, "it is under way");
    marks.refused(binds[0], &MarkRefused::Busy, at(0));
    assert_eq!(ask(&mut marks, &binds, 4), None, "the pause is the superblock's");
    assert_eq!(ask(&mut marks, &binds, 5), Some(30));
    // A subvolume cannot be marked, the mount of the whole file system can.
    let subvolume = MarkRefused::Refused { step: MarkStep::Mark, errno: agent_core::errno::Errno(18) };
    marks.refused(binds[0], &subvolume, at(5));
    assert_eq!(ask(&mut marks, &binds, 5), Some(31));
    assert_eq!(ask(&mut marks, &binds, 6), None, "it is set");
    // The one through which it was set is gone: a superblock of the same number may be another.
    marks.keep(&[binds[0], binds[2]].into());
    assert_eq!(ask(&mut marks, &[binds[0], binds[2]], 7), Some(32));
    marks.refused(binds[2], &subvolume, at(7));
    assert_eq!(ask(&mut marks, &[binds[0], binds[2]], 8), None);
}

#[test]
fn a_superblock_is_silent_once_every_mount_of_it_was_given_up() {
    use crate::sensor::fanotify::MarkStep;
    let refused =
        |errno| MarkRefused::Refused { step: MarkStep::Mark, errno: agent_core::errno::Errno(errno) };
    let (first, second) = (KEY, (KEY.0, MountId(31), Some(2)));
    let other = (SuperblockId { major: 7, minor: 2 }, MountId(32), Some(3));
    let mut marks = Marks::default();
    assert!(!marks.is_silent(KEY.0), "nobody was asked");
    assert!(marks.ask(first, at(0)) && marks.ask(second, at(0)) && marks.ask(other, at(0)));
    marks.refused(first, &refused(18), at(0));
    assert!(!marks.is_silent(KEY.0), "the other mount is asked for");
    marks.refused(second, &MarkRefused::Busy, at(0));
    assert!(!marks.is_silent(KEY.0), "it is tried again");
    assert!(marks.ask(second, at(5)));
    marks.refused(second, &refused(18), at(5));
    assert!(marks.is_silent(KEY.0));
    // What its type cannot report is not lost.
    marks.refused(other, &refused(95), at(5));
    assert!(!marks.is_silent(other.0));
}

#[test]
fn a_mount_that_is_not_tracked_any_more_is_not_waited_for() {
    let mut marks = Marks::default();
    assert!(marks.ask(KEY, at(0)));
    marks.refused(KEY, &MarkRefused::Busy, at(0));
    marks.drop_due(at(4));
    assert_eq!(marks.next(), Some(at(5)));
    marks.drop_due(at(5));
    assert_eq!(marks.next(), None);
    assert!(marks.ask(KEY, at(6)), "tracked again");
}

#[test]
fn a_new_mount_with_old_numbers_gets_its_own_mark() {
    let mut marks = Marks::default();
    let again = (KEY.0, KEY.1, Some(2));
    assert!(marks.ask(KEY, at(0)));
    assert!(marks.keep(&[again].into()).is_empty(), "the superblock is still shown");
    assert!(marks.ask(again, at(1)));
    assert_eq!(marks.keep(&BTreeSet::new()), [KEY.0].into());
    // The end of an attempt on a mount that is gone.
    assert_eq!(marks.refused(KEY, &MarkRefused::NoAnswer, at(2)), None);
}
