//! Fixtures and random bytes.

use agent_common::decode::{DecodeError, Record, decode, decode_blocked};
use agent_common::record::{BlockedRecord, KIND_ERROR, KIND_NAME, SLEEPS_DEEP};
use agent_common::settings::op as number;
use proptest::prelude::*;

use super::*;

/// The bytes of an error record as the kernel side writes them.
fn error_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(KIND_ERROR.to_ne_bytes());
    bytes.extend(72u32.to_ne_bytes());
    bytes.extend(1_500_000_000u64.to_ne_bytes());
    bytes.extend(256u64.to_ne_bytes());
    bytes.extend(((7u32 << 20) | 3).to_ne_bytes());
    bytes.extend(5u16.to_ne_bytes());
    bytes.extend([number::READ, 0]);
    bytes.extend(77u64.to_ne_bytes());
    bytes.extend(12u32.to_ne_bytes());
    bytes.extend(11u32.to_ne_bytes());
    bytes.extend(4_026_531_841u32.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(*b"c\xe9t\0rubbish\0\0\0\0\0");
    bytes
}

#[test]
fn an_error_record_becomes_an_observation_without_a_count() {
    let Ok(Record::Error(record)) = decode(&error_bytes()) else { panic!("no error record") };
    let errors = first(&record);
    assert_eq!(errors.superblock, SuperblockId { major: 7, minor: 3 });
    assert_eq!((errors.errno, errors.op, errors.count), (Errno(5), Op::Read, 0));
    assert_eq!(errors.root_inode, Some(256));
    assert_eq!(errors.at, Monotonic::from_nanos(1_500_000_000));
    let task = errors.task.unwrap();
    assert_eq!((task.tid, task.pid, task.comm.as_str()), (12, 11, "c\\xe9t"));
}

#[test]
fn longer_records_are_read_and_unknown_kinds_are_skipped() {
    let mut longer = error_bytes();
    longer.extend([9; 8]);
    longer[4] = 80;
    assert!(matches!(decode(&longer), Ok(Record::Error(_))));
    longer[0] = 200;
    assert_eq!(decode(&longer), Ok(Record::Unknown { kind: 200 }));
}

#[test]
fn short_records_say_what_they_need() {
    let bytes = error_bytes();
    assert_eq!(decode(&bytes[..3]), Err(DecodeError::TooShort { need: 4, have: 3 }));
    let mut cut = bytes[..70].to_vec();
    cut[4] = 70;
    assert_eq!(decode(&cut), Err(DecodeError::TooShort { need: 72, have: 70 }));
    assert_eq!(decode(&bytes[..70]), Err(DecodeError::BadLength));
}

#[test]
fn a_name_longer_than_its_field_is_refused() {
    let mut bytes = vec![0; 328];
    bytes[..4].copy_from_slice(&KIND_NAME.to_ne_bytes());
    bytes[4..8].copy_from_slice(&328u32.to_ne_bytes());
    assert!(matches!(decode(&bytes), Ok(Record::Name(_))));
    bytes[64..68].copy_from_slice(&257u32.to_ne_bytes());
    assert_eq!(decode(&bytes), Err(DecodeError::BadLength));
}

/// A record of the census: each field has a number of its own.
fn blocked_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(77u64.to_ne_bytes());
    bytes.extend([12u32, 11, 4_026_531_841, 0].map(u32::to_ne_bytes).concat());
    bytes.extend(*b"cat\0\0\0\0\0\0\0\0\0\0\0\0\0");
    bytes.extend((256..=265u64).flat_map(u64::to_ne_bytes));
    bytes.extend([46, 0, SLEEPS_DEEP, 1, 0, 0].map(u32::to_ne_bytes).concat());
    bytes
}

#[test]
fn records_of_the_census_follow_one_another() {
    let bytes = [blocked_bytes(), blocked_bytes(), vec![1, 2, 3]].concat();
    let (first, rest) = decode_blocked(&bytes).unwrap();
    let expected = BlockedRecord {
        who: first.who,
        root_ino: 256,
        arguments: [257, 258, 259, 260, 261, 262],
        started: 263,
        switches: 264,
        calls: 265,
        s_dev: 46,
        syscall: 0,
        state: SLEEPS_DEEP,
        by_text: 1,
        by_name: 0,
        reserved: 0,
    };
    assert_eq!(first, expected);
    assert_eq!((first.who.cgroup, first.who.pid, first.who.tgid), (77, 12, 11));
    let (second, rest) = decode_blocked(rest).unwrap();
    assert_eq!((second, rest), (expected, [1, 2, 3].as_slice()));
    assert_eq!(decode_blocked(rest), Err(DecodeError::TooShort { need: 8, have: 3 }));
}

#[test]
fn a_record_that_is_cut_anywhere_is_refused_and_says_what_is_missing() {
    let name = |length: u32| {
        let mut bytes = [KIND_NAME, length].map(u32::to_ne_bytes).concat();
        bytes.resize(length.try_into().unwrap(), 0);
        bytes
    };
    for length in 16..328 {
        let cut = decode(&name(length));
        let Err(error @ DecodeError::TooShort { need, have }) = cut else { panic!("{length}: {cut:?}") };
        assert!(have < need && need <= 328, "{length}: {cut:?}");
        assert_eq!(error.to_string(), format!("record has {have} bytes, needs {need}"));
    }
    for length in 0..blocked_bytes().len() {
        let cut = decode_blocked(&blocked_bytes()[..length]).unwrap_err();
        assert!(matches!(cut, DecodeError::TooShort { have, .. } if have == length), "{length}: {cut}");
    }
    for length in [0, 15, 329, u32::MAX] {
        let mut bytes = name(328);
        bytes[4..8].copy_from_slice(&length.to_ne_bytes());
        let refused = decode(&bytes).unwrap_err();
        assert_eq!(refused.to_string(), "record has a wrong length in it", "{length}");
    }
}

#[test]
fn a_name_keeps_its_bytes_and_one_call_is_one_error() {
    let mut bytes = [KIND_NAME, 328].map(u32::to_ne_bytes).concat();
    bytes.extend(1_500_000_000u64.to_ne_bytes());
    // On behalf of nobody.
    bytes.extend([0; 40]);
    bytes.extend((-100i32).to_ne_bytes());
    bytes.extend(116u16.to_ne_bytes());
    bytes.extend([number::STAT, 0]);
    bytes.extend([7u32, 46].map(u32::to_ne_bytes).concat());
    bytes.extend(*b"caf\xe9/\n\0rest");
    bytes.resize(328, 0);
    let Ok(Record::Name(record)) = decode(&bytes) else { panic!("no name") };
    assert_eq!((record.dir, record.errno, record.op, record.base_dev), (-100, 116, number::STAT, 46));
    assert_eq!(&record.path[..7], b"caf\xe9/\n\0");
    let key = CounterKey { s_dev: 46, errno: record.errno, op: record.op, ..CounterKey::default() };
    let errors = placed(&record.header, &record.who, &key);
    assert_eq!((errors.count, errors.errno, errors.op), (1, Errno(116), Op::Stat));
    assert_eq!((errors.root_inode, errors.task), (None, None));
}

#[test]
fn what_only_a_name_has_placed_is_of_another_source() {
    let source = |by_name| counted(&CounterKey { s_dev: 46, by_name, ..CounterKey::default() }, 1, 2).source;
    assert_eq!([0, 1].map(source), [Source::Bpf, Source::BpfName]);
}

#[test]
fn an_error_that_nobody_tells_has_the_same_number_on_both_sides() {
    assert_eq!(Errno(agent_common::settings::UNKNOWN_ERRNO), Errno::UNKNOWN);
}

#[test]
fn operations_have_the_same_numbers_on_both_sides() {
    for (number, expected) in [
        (number::READ, Op::Read),
        (number::WRITE, Op::Write),
        (number::SYNC, Op::Sync),
        (number::OPEN, Op::Open),
        (number::STAT, Op::Stat),
        (number::LIST, Op::List),
        (number::CHANGE, Op::Change),
        (number::FAULT, Op::Fault),
        (number::WRITEBACK, Op::Writeback),
        (number::OTHER, Op::Other),
        (250, Op::Other),
    ] {
        assert_eq!(op(number), expected);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(Record::Error(record)) = decode(&bytes) {
            prop_assert_eq!(first(&record).count, 0);
        }
    }

    #[test]
    fn a_right_header_with_any_rest_never_panics(
        kind in 0u32..4,
        rest in proptest::collection::vec(any::<u8>(), 8..400),
    ) {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(u32::try_from(rest.len() + 8).unwrap().to_ne_bytes());
        bytes.extend(rest);
        let _ = decode(&bytes);
    }
}
