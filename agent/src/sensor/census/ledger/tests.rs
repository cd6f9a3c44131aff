//! Censuses one after the other: who waits on, who is new, and who is not believed any more.

use agent_common::record::{SLEEPS, Who};

use super::*;

/// Every process was looked at.
const NONE: fn(u32) -> bool = |_| false;

fn at(seconds: u64) -> Monotonic {
    Monotonic::from_nanos(seconds * 1_000_000_000)
}

fn waits(tid: u32, s_dev: u32) -> BlockedRecord {
    let who = Who { pid: tid, tgid: 7, comm: *b"cat\0rubbish.....", ..Who::default() };
    BlockedRecord { who, s_dev, root_ino: 2, syscall: 0, state: SLEEPS, switches: 9, ..Default::default() }
}

fn count(ledger: &Ledger) -> u64 {
    ledger.blocked(|_| true).iter().map(|on| on.count).sum()
}

#[test]
fn only_the_same_call_at_the_next_census_counts() {
    let mut ledger = Ledger::default();
    ledger.take(at(1), &[waits(10, 5), waits(11, 5)], NONE);
    assert!(ledger.has_any(|s_dev| s_dev == 5) && count(&ledger) == 0);
    let other = BlockedRecord { arguments: [1; 6], ..waits(11, 5) };
    ledger.take(at(2), &[waits(10, 5), other], NONE);
    let blocked = ledger.blocked(|s_dev| s_dev == 5);
    assert_eq!((blocked[0].count, blocked[0].root_inode), (1, Some(2)));
    let task = &blocked[0].tasks[0];
    assert_eq!((task.since, task.task.comm.as_str(), task.is_deep), (at(1), "cat", false));
    assert!(ledger.blocked(|s_dev| s_dev == 6).is_empty());
    ledger.take(at(3), &[], NONE);
    assert!(!ledger.has_any(|_| true) && count(&ledger) == 0);
}

#[test]
fn another_thread_of_the_same_number_is_another_call() {
    let mut ledger = Ledger::default();
    ledger.take(at(1), &[waits(10, 5)], NONE);
    ledger.take(at(2), &[BlockedRecord { started: 1, ..waits(10, 5) }], NONE);
    assert_eq!(count(&ledger), 0);
}

#[test]
fn a_program_that_reads_on_and_on_does_not_wait() {
    let mut ledger = Ledger::default();
    for second in 1..60 {
        let record = BlockedRecord { calls: second, switches: second, ..waits(10, 5) };
        let stat = BlockedRecord { switches: second * 2, syscall: 4, ..waits(11, 5) };
        ledger.take(at(second), &[record, stat], NONE);
        let longest =
            ledger.blocked(|_| true).iter().flat_map(|on| on.tasks.clone()).map(|task| task.since).min();
        assert!(longest.is_none_or(|since| at(second).since(since) < Duration::from_secs(3)));
    }
}

#[test]
fn a_waiter_that_the_kernel_wakes_every_ten_seconds_waits_on() {
    let mut ledger = Ledger::default();
    for second in 1..100 {
        ledger.take(at(second), &[BlockedRecord { switches: second / 10, ..waits(10, 5) }], NONE);
    }
    assert_eq!(ledger.blocked(|_| true)[0].tasks[0].since, at(1));
}

#[test]
fn names_are_placed_by_their_text_once_they_have_waited() {
    let mut ledger = Ledger::default();
    let named = |tid| BlockedRecord { by_text: 1, ..waits(tid, 5) };
    ledger.take(at(1), &[named(10), named(11), waits(12, 5)], NONE);
    assert!(ledger.unplaced(9, NONE).is_empty());
    ledger.take(at(2), &[named(10), named(11), waits(12, 5)], NONE);
    assert_eq!(ledger.unplaced(9, NONE), BTreeSet::from([(7, 10), (7, 11)]));
    assert_eq!(ledger.unplaced(1, NONE), BTreeSet::from([(7, 10)]));
    assert!(ledger.unplaced(9, |process| process == 7).is_empty(), "what is avoided is not asked for");
    assert_eq!(count(&ledger), 1, "not before they are placed");
    ledger.place(10, 6);
    assert_eq!(ledger.unplaced(9, NONE), BTreeSet::from([(7, 11)]), "what was not told is asked again");
    ledger.place(11, 5);
    ledger.take(at(3), &[named(10), named(11), waits(12, 5)], NONE);
    assert!(ledger.unplaced(9, NONE).is_empty(), "what was looked at is kept");
    let places: Vec<_> = ledger
        .blocked(|_| true)
        .iter()
        .map(|on| (on.superblock.to_kernel(), on.root_inode, on.count))
        .collect();
    assert_eq!(places, [(5, Some(2), 1), (5, Some(2), 1), (6, None, 1)], "the certain one apart");
}

#[test]
fn what_only_a_name_places_is_told_apart() {
    let mut ledger = Ledger::default();
    let records = [
        waits(10, 5),
        BlockedRecord { by_name: 1, ..waits(11, 5) },
        BlockedRecord { by_text: 1, ..waits(12, 5) },
    ];
    ledger.take(at(1), &records, NONE);
    ledger.place(12, 5);
    ledger.take(at(2), &records, NONE);
    let told: Vec<_> = ledger
        .blocked(|_| true)
        .iter()
        .map(|on| (on.count, on.tasks.iter().map(|task| task.is_by_name).collect::<Vec<_>>()))
        .collect();
    assert_eq!(told, [(1, vec![false]), (2, vec![true, true])]);
}

#[test]
fn some_are_told_and_all_are_counted() {
    let mut ledger = Ledger::default();
    let all: Vec<_> = (1..1000).map(|tid| waits(tid, 5)).collect();
    ledger.take(at(1), &all, NONE);
    ledger.take(at(2), &all, NONE);
    let blocked = ledger.blocked(|_| true);
    assert_eq!((blocked[0].count, blocked[0].tasks.len()), (999, BlockedOn::MOST));
}

#[test]
fn who_was_not_looked_at_waits_on() {
    let mut ledger = Ledger::default();
    let of = |process, tid| {
        let mut record = waits(tid, 5);
        record.who.tgid = process;
        record
    };
    ledger.take(at(1), &[of(7, 10), of(8, 11), of(8, 12)], NONE);
    // The pass ended within process 8, after its first thread, which is in another call by now.
    let other = BlockedRecord { arguments: [1; 6], ..of(8, 11) };
    ledger.take(at(2), &[other], |process| process >= 8);
    assert_eq!(count(&ledger), 1);
    assert_eq!(ledger.blocked(|_| true)[0].tasks[0].task.tid, 12);
    ledger.take(at(3), &[of(8, 12)], NONE);
    assert_eq!(ledger.blocked(|_| true)[0].tasks[0].since, at(1));
    ledger.take(at(302), &[], |_| true);
    assert_eq!(count(&ledger), 1);
    ledger.take(at(303), &[], |_| true);
    assert_eq!(count(&ledger), 0, "it may be gone since long ago");
}
