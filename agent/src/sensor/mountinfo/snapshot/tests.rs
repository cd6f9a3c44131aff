//! Snapshots from readers that lose lines, as older kernels do.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use agent_core::path::BytePath;

use super::*;

/// Gives the readings it was told to give; the last one for ever.
struct Scripted {
    readings: VecDeque<Vec<u8>>,
    made: u32,
}

impl Scripted {
    fn new(readings: &[&[u32]]) -> Self {
        Self { readings: readings.iter().map(|ids| table(ids)).collect(), made: 0 }
    }
}

impl TableSource for Scripted {
    fn read(&mut self, piece: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        self.made += 1;
        let text =
            if self.readings.len() > 1 { self.readings.pop_front() } else { self.readings.front().cloned() };
        piece(&text.unwrap_or_default());
        Ok(())
    }

    fn changes(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn table(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| format!("{id} 1 0:{id} / /m/{id} rw - tmpfs t rw\n").into_bytes()).collect()
}

fn ids(scan: &Scan) -> Option<Vec<u32>> {
    scan.table.as_ref().map(|table| table.mounts().iter().map(|mount| mount.id.0).collect())
}

/// Loses one line in every twentieth reading; which one moves on. The table grows by one mount a scan, so that
/// every scan has something to publish.
struct Lossy {
    mounts: Vec<u32>,
    made: u32,
}

impl TableSource for Lossy {
    fn read(&mut self, piece: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        self.made += 1;
        let lost = (self.made.is_multiple_of(20)).then(|| self.made as usize % self.mounts.len());
        for (index, id) in self.mounts.iter().enumerate() {
            if lost != Some(index) {
                piece(&table(&[*id]));
            }
        }
        Ok(())
    }

    fn changes(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[test]
fn a_reader_that_loses_lines_never_makes_a_mount_look_absent() {
    for grows in [false, true] {
        let mut source = Lossy { mounts: (1..=30).collect(), made: 0 };
        let mut scanner = Scanner::default();
        let mut shown: Vec<u32> = Vec::new();
        let mut lossy_scans = 0;
        for round in 0..1000 {
            let before = source.made;
            let scan = scanner.scan(&mut source).unwrap();
            assert_eq!(scan.readings, source.made - before);
            assert!(scan.readings <= 3, "no more than two extra readings");
            lossy_scans += u32::from((before + 1..=source.made).any(|reading| reading.is_multiple_of(20)));
            if let Some(now) = ids(&scan) {
                // No mount ever goes away here, so what was shown once must be shown for ever.
                let absent: Vec<&u32> = shown.iter().filter(|id| !now.contains(id)).collect();
                assert!(absent.is_empty(), "round {round}: {absent:?}");
                shown = now;
            }
            if grows {
                source.mounts.push(1000 + round);
            }
        }
        assert!(lossy_scans >= 45, "the reader did lose lines: {lossy_scans}");
        assert!(shown.len() >= if grows { 1020 } else { 30 });
    }
}

#[test]
fn a_real_absence_is_published_by_the_scan_that_sees_it() {
    let mut source = Scripted::new(&[&[1, 2, 3], &[1, 2, 3], &[1, 3]]);
    let mut scanner = Scanner::default();
    assert_eq!(ids(&scanner.scan(&mut source).unwrap()), Some(vec![1, 2, 3]));
    let scan = scanner.scan(&mut source).unwrap();
    assert_eq!((ids(&scan), scan.readings, scan.is_settled), (Some(vec![1, 3]), 2, true));
}

#[test]
fn what_only_the_second_reading_lacks_stays_until_the_next_scan() {
    let mut source = Scripted::new(&[&[1, 2, 3], &[1, 2, 3], &[1, 3], &[1], &[1]]);
    let mut scanner = Scanner::default();
    scanner.scan(&mut source).unwrap();
    let scan = scanner.scan(&mut source).unwrap();
    assert_eq!((ids(&scan), scan.is_settled), (Some(vec![1, 3]), false));
    // The next reading is the second in a row without mount 3: no extra one is needed.
    let scan = scanner.scan(&mut source).unwrap();
    assert_eq!((ids(&scan), scan.readings, scan.is_settled), (Some(vec![1]), 1, true));
}

#[test]
fn a_suspect_that_comes_back_was_never_gone() {
    let mut source = Scripted::new(&[&[1, 2, 3], &[1, 2, 3], &[1, 3], &[1, 2], &[1, 2, 3]]);
    let mut scanner = Scanner::default();
    scanner.scan(&mut source).unwrap();
    // One reading lacks 2, the next lacks 3: both are still there, as they were published.
    let scan = scanner.scan(&mut source).unwrap();
    assert_eq!((ids(&scan), scan.readings, scan.is_settled), (None, 2, false));
    let scan = scanner.scan(&mut source).unwrap();
    assert_eq!((ids(&scan), scan.is_settled), (None, true));
}

#[test]
fn the_first_snapshot_is_the_union_of_two_readings() {
    let mut source = Scripted::new(&[&[1, 3], &[1, 2]]);
    let scan = Scanner::default().scan(&mut source).unwrap();
    assert_eq!((ids(&scan), scan.is_settled), (Some(vec![1, 2, 3]), false));
}

#[test]
fn the_same_id_with_other_facts_is_news_and_costs_no_second_reading() {
    let mut scanner = Scanner::default();
    scanner.scan(&mut Scripted::new(&[&[1, 2]])).unwrap();
    let mut source = Scripted::new(&[&[1]]);
    source.readings[0].extend_from_slice(b"2 1 0:99 / /other rw - tmpfs t rw\n");
    let scan = scanner.scan(&mut source).unwrap();
    assert_eq!(scan.readings, 1);
    assert_eq!(scan.table.unwrap().mounts()[1].mountpoint, BytePath::from("/other"));
}

#[test]
fn nothing_is_published_twice_and_defects_are_counted_in_every_scan() {
    let mut source = Scripted::new(&[&[1, 2]]);
    source.readings[0].extend_from_slice(b"broken\n");
    let mut scanner = Scanner::default();
    let scan = scanner.scan(&mut source).unwrap();
    assert_eq!((ids(&scan), scan.entries, scan.bad_lines), (Some(vec![1, 2]), 2, 1));
    let again = scanner.scan(&mut source).unwrap();
    assert_eq!((ids(&again), again.entries, again.bad_lines, again.readings), (None, 2, 1, 1));
}

#[test]
fn an_empty_table_is_an_error_and_not_the_end_of_all_mounts() {
    let mut scanner = Scanner::default();
    scanner.scan(&mut Scripted::new(&[&[1, 2]])).unwrap();
    assert!(matches!(scanner.scan(&mut Scripted::new(&[&[]])), Err(ScanError::Empty)));
    let mut source = Scripted::new(&[&[1, 2]]);
    assert_eq!(ids(&scanner.scan(&mut source).unwrap()), None);
}
