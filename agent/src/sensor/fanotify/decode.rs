//! Bytes that were read from a fanotify group into events. Pure; every length is checked.
//!
//! kernel: `struct fanotify_event_metadata` and `fanotify_event_info_*`, include/uapi/linux/fanotify.h:
//! ```text
//! event    0 u32 event_len | 4 u8 vers | 5 u8 | 6 u16 metadata_len | 8 u64 mask | 16 s32 fd | 20 s32 pid
//! then, up to event_len, records:
//! header   0 u8 type | 1 u8 | 2 u16 len (of the whole record)
//! FID      1: 4 s32 fsid[2] | 12 file handle          since 5.1
//! ERROR    5: 4 s32 error | 8 u32 count               since 5.16
//! MNT      7: 8 u64 unique mount id                   since 6.15
//! ```
//! Longer metadata, unknown record types and longer records are passed over by their length, as the manual asks
//! of every reader. A length that cannot be right is an error, and the rest of the buffer is given up.

use agent_core::errno::Errno;
use agent_core::id::UniqueMountId;
use thiserror::Error;

/// The queue was full and events were lost.
const FAN_Q_OVERFLOW: u64 = 0x4000;
const METADATA: usize = 24;
const RECORD_HEADER: usize = 4;
const VERSION: u8 = 3;
const RECORD_FID: u8 = 1;
const RECORD_ERROR: u8 = 5;
const RECORD_MOUNT: u8 = 7;

/// `f_fsid` as one number: how events name a file system. Unlike a device number it survives nothing and
/// promises nothing; two images with one UUID share it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fsid(pub u64);

impl Fsid {
    /// From the two halves, in the order of `__kernel_fsid_t`.
    #[must_use]
    pub fn from_halves(first: i32, second: i32) -> Self {
        Self((u64::from(second.cast_unsigned()) << 32) | u64::from(first.cast_unsigned()))
    }
}

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Event {
    /// What happened.
    pub mask: u64,
    /// Which file system, by the file-handle record.
    pub fsid: Option<Fsid>,
    /// The error record.
    pub error: Option<FsError>,
    /// The mount record. Not the id of mountinfo's field 1.
    pub mount: Option<UniqueMountId>,
}

impl Event {
    /// Whether events were lost before this one.
    #[must_use]
    pub fn is_overflow(&self) -> bool {
        self.mask & FAN_Q_OVERFLOW != 0
    }
}

/// Errors of one file system, merged by the kernel until they are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FsError {
    /// The first of them.
    pub errno: Errno,
    /// How many.
    pub count: u32,
}

/// What cannot be right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DecodeError {
    /// The buffer ends within an event.
    #[error("the buffer ends within an event")]
    Truncated,
    /// The version of the metadata is another one.
    #[error("events have version {0}, not 3")]
    Version(u8),
    /// A length is smaller than what it must cover, or larger than what there is.
    #[error("an event or record has an impossible length")]
    Length,
}

/// Goes over the events of a buffer. Ends after the first error.
pub fn decode(buffer: &[u8]) -> impl Iterator<Item = Result<Event, DecodeError>> {
    let mut rest = buffer;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        match next_event(rest) {
            Ok((event, after)) => {
                rest = after;
                Some(Ok(event))
            }
            Err(error) => {
                rest = &[];
                Some(Err(error))
            }
        }
    })
}

fn next_event(bytes: &[u8]) -> Result<(Event, &[u8]), DecodeError> {
    let length = u32_at(bytes, 0)? as usize;
    let [version] = array_at(bytes, 4)?;
    let metadata = usize::from(u16::from_ne_bytes(array_at(bytes, 6)?));
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    if metadata < METADATA || length < metadata {
        return Err(DecodeError::Length);
    }
    let (event, after) = bytes.split_at_checked(length).ok_or(DecodeError::Truncated)?;
    let mut decoded = Event { mask: u64::from_ne_bytes(array_at(event, 8)?), ..Event::default() };
    let mut records = event.get(metadata..).unwrap_or_default();
    while !records.is_empty() {
        let [kind] = array_at(records, 0).map_err(|_| DecodeError::Length)?;
        let length = array_at(records, 2).map_err(|_| DecodeError::Length)?;
        let length = usize::from(u16::from_ne_bytes(length));
        if length < RECORD_HEADER {
            return Err(DecodeError::Length);
        }
        let (record, next) = records.split_at_checked(length).ok_or(DecodeError::Length)?;
        add_record(&mut decoded, kind, record).map_err(|_| DecodeError::Length)?;
        records = next;
    }
    Ok((decoded, after))
}

fn add_record(event: &mut Event, kind: u8, record: &[u8]) -> Result<(), DecodeError> {
    match kind {
        RECORD_FID => {
            event.fsid = Some(Fsid::from_halves(i32_at(record, 4)?, i32_at(record, 8)?));
        }
        RECORD_ERROR => {
            // ext4 reports a positive number; nobody promised that others do.
            let number = i32_at(record, 4)?.unsigned_abs();
            event.error = Some(FsError {
                errno: Errno(u16::try_from(number).unwrap_or(u16::MAX)),
                count: u32_at(record, 8)?,
            });
        }
        RECORD_MOUNT => event.mount = Some(UniqueMountId(u64::from_ne_bytes(array_at(record, 8)?))),
        _ => {}
    }
    Ok(())
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, DecodeError> {
    array_at(bytes, at).map(u32::from_ne_bytes)
}

fn i32_at(bytes: &[u8], at: usize) -> Result<i32, DecodeError> {
    array_at(bytes, at).map(i32::from_ne_bytes)
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], DecodeError> {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().ok_or(DecodeError::Truncated)
}

#[cfg(test)]
mod tests;
