//! Events made by hand, byte for byte, and random ones.

use proptest::prelude::*;

use super::*;

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(RECORD_HEADER + content.len()).unwrap();
    [[kind, 0].as_slice(), &length.to_ne_bytes(), content].concat()
}

fn event_with(mask: u64, metadata: u16, records: &[Vec<u8>]) -> Vec<u8> {
    let records = records.concat();
    let length = u32::from(metadata) + u32::try_from(records.len()).unwrap();
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&[VERSION, 0]);
    bytes.extend_from_slice(&metadata.to_ne_bytes());
    bytes.extend_from_slice(&mask.to_ne_bytes());
    bytes.extend_from_slice(&(-1_i32).to_ne_bytes());
    bytes.extend_from_slice(&0_i32.to_ne_bytes());
    bytes.resize(usize::from(metadata), 0xaa);
    bytes.extend_from_slice(&records);
    bytes
}

fn event(mask: u64, records: &[Vec<u8>]) -> Vec<u8> {
    event_with(mask, 24, records)
}

fn fid(first: i32, second: i32) -> Vec<u8> {
    // An empty handle of the invalid type, as ext4 gives it: 8 bytes.
    let handle = [0_u32.to_ne_bytes(), 0xff_i32.to_ne_bytes()].concat();
    record(RECORD_FID, &[first.to_ne_bytes().as_slice(), &second.to_ne_bytes(), &handle].concat())
}

fn error(errno: i32, count: u32) -> Vec<u8> {
    record(RECORD_ERROR, &[errno.to_ne_bytes(), count.to_ne_bytes()].concat())
}

fn mount(id: u64) -> Vec<u8> {
    record(RECORD_MOUNT, &[[0; 4].as_slice(), &id.to_ne_bytes()].concat())
}

fn all(bytes: &[u8]) -> Vec<Event> {
    decode(bytes).collect::<Result<_, _>>().unwrap()
}

#[test]
fn an_error_event_names_file_system_errno_and_count() {
    let events = all(&event(0x8000, &[fid(0x1122_3344, -1), error(117, 3)]));
    assert_eq!(
        events,
        [Event {
            mask: 0x8000,
            fsid: Some(Fsid(0xffff_ffff_1122_3344)),
            error: Some(FsError { errno: Errno(117), count: 3 }),
            mount: None,
        }]
    );
    assert_eq!(all(&event(0x8000, &[error(-5, 1)]))[0].error.unwrap().errno, Errno(5));
}

#[test]
fn mount_events_carry_the_unique_id_and_a_move_is_one_event() {
    let id = 9_223_510_721_348_763_648;
    let bytes = [event(0x0100_0000, &[mount(id)]), event(0x0300_0000, &[mount(7)])].concat();
    assert_eq!(bytes.len(), 80);
    let events = all(&bytes);
    assert_eq!(events[0].mount, Some(UniqueMountId(id)));
    assert_eq!((events[1].mask, events[1].mount), (0x0300_0000, Some(UniqueMountId(7))));
}

#[test]
fn an_overflow_has_no_records() {
    let events = all(&event(0x4000, &[]));
    assert!(events[0].is_overflow());
    assert!(!all(&event(0x8000, &[]))[0].is_overflow());
}

#[test]
fn unknown_and_longer_records_and_longer_metadata_are_passed_over() {
    let longer_error = record(RECORD_ERROR, &[117_i32.to_ne_bytes(), 2_u32.to_ne_bytes(), [9; 4]].concat());
    let bytes = event_with(0x8000, 40, &[record(200, b"new"), longer_error, record(6, &[]), fid(1, 0)]);
    let bytes = [bytes, event(0x4000, &[])].concat();
    let events = all(&bytes);
    assert_eq!(events.len(), 2);
    assert_eq!(events[0].error, Some(FsError { errno: Errno(117), count: 2 }));
    assert_eq!(events[0].fsid, Some(Fsid(1)));
}

#[test]
fn lengths_that_cannot_be_right_are_errors_after_the_good_events() {
    let good = event(0x8000, &[error(117, 1)]);
    let mut other_version = good.clone();
    other_version[4] = 4;
    let mut metadata_too_short = good.clone();
    metadata_too_short[6..8].copy_from_slice(&8_u16.to_ne_bytes());
    let mut event_shorter_than_metadata = good.clone();
    event_shorter_than_metadata[..4].copy_from_slice(&20_u32.to_ne_bytes());
    let mut no_length = good.clone();
    no_length[..4].copy_from_slice(&0_u32.to_ne_bytes());
    let mut empty_record = good.clone();
    empty_record[26..28].copy_from_slice(&0_u16.to_ne_bytes());
    let mut record_beyond_event = good.clone();
    record_beyond_event[26..28].copy_from_slice(&13_u16.to_ne_bytes());
    let cases = [
        (good[..30].to_vec(), DecodeError::Truncated),
        (good[..3].to_vec(), DecodeError::Truncated),
        (other_version, DecodeError::Version(4)),
        (metadata_too_short, DecodeError::Length),
        (event_shorter_than_metadata, DecodeError::Length),
        (no_length, DecodeError::Length),
        (empty_record, DecodeError::Length),
        (record_beyond_event, DecodeError::Length),
        (event(0x8000, &[record(RECORD_ERROR, &[1, 2])]), DecodeError::Length),
        (event(0x8000, &[record(RECORD_MOUNT, &[0; 8])]), DecodeError::Length),
        (event(0x8000, &[vec![1, 2, 3]]), DecodeError::Length),
    ];
    for (bad, why) in cases {
        let results: Vec<_> = decode(&[good.as_slice(), &bad].concat()).collect();
        assert_eq!(results.len(), 2, "{why}");
        assert!(results[0].is_ok());
        assert_eq!(results[1], Err(why), "{bad:?}");
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic_and_always_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let results: Vec<_> = decode(&bytes).collect();
        prop_assert!(results.len() <= bytes.len() / METADATA + 1);
    }

    #[test]
    fn a_damaged_event_never_panics(
        count in any::<u32>(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut bytes = [event(0x8000, &[fid(1, 2), error(5, count), mount(9)]), event(0x4000, &[])].concat();
        prop_assert_eq!(decode(&bytes).filter(Result::is_ok).count(), 2);
        let position = at.index(bytes.len());
        bytes[position] = byte;
        let _ = decode(&bytes).count();
        let _ = decode(&bytes[..position]).count();
    }
}
