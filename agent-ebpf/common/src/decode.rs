//! Bytes of the ring buffer into records. Pure; any input gives a record, nothing, or an error.

use crate::key::{CounterKey, NAME_BYTES};
use crate::record::{BlockedRecord, ErrorRecord, Header, KIND_ERROR, KIND_NAME, NameRecord, Who};

/// A record that this version knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "lives on the stack for the time of one record")]
pub enum Record {
    /// First error of an interval.
    Error(ErrorRecord),
    /// A name to place.
    Name(NameRecord),
    /// A kind from another version: skip it.
    Unknown {
        /// Its number.
        kind: u32,
    },
}

/// Why bytes are no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// Fewer bytes than the header or the kind needs.
    TooShort {
        /// Needed.
        need: usize,
        /// There.
        have: usize,
    },
    /// The header promises more bytes than there are, or a name longer than its field.
    BadLength,
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::TooShort { need, have } => write!(f, "record has {have} bytes, needs {need}"),
            Self::BadLength => f.write_str("record has a wrong length in it"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Decodes one item of the ring buffer. Bytes beyond the known fields are ignored.
///
/// # Errors
/// When the bytes are too few for what they say they are.
pub fn decode(bytes: &[u8]) -> Result<Record, DecodeError> {
    let mut reader = Reader { rest: bytes, total: bytes.len(), wanted: 0 };
    let header = Header { kind: reader.u32()?, len: reader.u32()?, ktime: reader.u64()? };
    let len = usize::try_from(header.len).map_err(|_| DecodeError::BadLength)?;
    if len < size_of::<Header>() || len > bytes.len() {
        return Err(DecodeError::BadLength);
    }
    match header.kind {
        KIND_ERROR => Ok(Record::Error(ErrorRecord { header, key: reader.key()?, who: reader.who()? })),
        KIND_NAME => reader.name(header).map(Record::Name),
        kind => Ok(Record::Unknown { kind }),
    }
}

/// Takes one record of the census off the front of what the iterator wrote; what follows it is in the second part.
///
/// # Errors
/// When there are fewer bytes than a record has.
pub fn decode_blocked(bytes: &[u8]) -> Result<(BlockedRecord, &[u8]), DecodeError> {
    let mut reader = Reader { rest: bytes, total: bytes.len(), wanted: 0 };
    let record = BlockedRecord {
        who: reader.who()?,
        root_ino: reader.u64()?,
        arguments: [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?],
        started: reader.u64()?,
        switches: reader.u64()?,
        calls: reader.u64()?,
        s_dev: reader.u32()?,
        syscall: reader.u32()?,
        state: reader.u32()?,
        by_text: reader.u32()?,
        by_name: reader.u32()?,
        reserved: reader.u32()?,
    };
    Ok((record, reader.rest))
}

/// Takes fields off the front.
struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
    wanted: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.wanted += N;
        match self.rest.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(*head)
            }
            None => Err(DecodeError::TooShort { need: self.wanted, have: self.total }),
        }
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.take().map(u64::from_ne_bytes)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.take().map(u16::from_ne_bytes)
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        self.take().map(u8::from_ne_bytes)
    }

    fn key(&mut self) -> Result<CounterKey, DecodeError> {
        Ok(CounterKey {
            root_ino: self.u64()?,
            s_dev: self.u32()?,
            errno: self.u16()?,
            op: self.u8()?,
            by_name: self.u8()?,
        })
    }

    fn who(&mut self) -> Result<Who, DecodeError> {
        Ok(Who {
            cgroup: self.u64()?,
            pid: self.u32()?,
            tgid: self.u32()?,
            mnt_ns: self.u32()?,
            reserved: self.u32()?,
            comm: self.take()?,
        })
    }

    fn name(&mut self, header: Header) -> Result<NameRecord, DecodeError> {
        let record = NameRecord {
            header,
            who: self.who()?,
            dir: self.take().map(i32::from_ne_bytes)?,
            errno: self.u16()?,
            op: self.u8()?,
            part: self.u8()?,
            path_len: self.u32()?,
            base_dev: self.u32()?,
            path: self.take::<NAME_BYTES>()?,
        };
        if usize::try_from(record.path_len).is_ok_and(|len| len <= NAME_BYTES) {
            Ok(record)
        } else {
            Err(DecodeError::BadLength)
        }
    }
}
