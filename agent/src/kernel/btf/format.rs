//! The bytes of type information before the parser sees them: read with a limit, looked over once, and cut where
//! a kind begins that is newer than this agent.
//!
//! A type does not tell its length but through its kind. So nothing after an unknown kind can be read; what
//! comes before it can, and is kept.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Larger files are not believed: real ones have 3 to 15 MB.
pub(super) const LARGEST: u64 = 64 << 20;

/// Where the header says how long the part with the types is.
const TYPES_LEN_AT: usize = 12;

/// Bytes that every type begins with: name, kind with count, size or type.
const TYPE_HEAD: usize = 12;

/// Reads the file. Never waits for a writer, as opening a pipe would, and never takes more than the limit.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What the parser may read.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Prepared<'a> {
    /// The file, or as much of it as is understood.
    pub bytes: Cow<'a, [u8]>,
    /// What was cut off, in words.
    pub cut: Option<String>,
}

/// Refuses what cannot be type information before the parser reserves memory for it, and cuts off what it would
/// refuse.
///
/// kernel: `struct btf_header`, include/uapi/linux/btf.h, since 4.18.
pub(super) fn prepare(bytes: &[u8]) -> Result<Prepared<'_>, &'static str> {
    if bytes.is_empty() {
        return Err("the file is empty");
    }
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > LARGEST {
        return Err("the file is too large");
    }
    if bytes.first_chunk::<2>() != Some(&0xeb9f_u16.to_ne_bytes()) {
        return Err("it does not begin with the mark of type information");
    }
    let (Some(header), Some(types), Some(types_len), Some(strings), Some(strings_len)) =
        (word(bytes, 4), word(bytes, 8), word(bytes, TYPES_LEN_AT), word(bytes, 16), word(bytes, 20))
    else {
        return Err("the header is cut");
    };
    let end = |start: usize, len: usize| header.checked_add(start)?.checked_add(len);
    let (Some(types_end), Some(strings_end)) = (end(types, types_len), end(strings, strings_len)) else {
        return Err("the header is wrong");
    };
    let start = header.saturating_add(types);
    let Some(section) = bytes.get(start..types_end).filter(|_| strings_end <= bytes.len()) else {
        return Err("the file is cut");
    };
    let Some(unknown) = first_unknown(section) else {
        return Ok(Prepared { bytes: Cow::Borrowed(bytes), cut: None });
    };
    let mut shorter = bytes.to_vec();
    let length = u32::try_from(unknown.at).unwrap_or(0).to_ne_bytes();
    if let Some(field) = shorter.get_mut(TYPES_LEN_AT..).and_then(|rest| rest.first_chunk_mut()) {
        *field = length;
    }
    let cut = format!(
        "type {} is of the unknown kind {}, nothing from there on can be read",
        unknown.id, unknown.kind
    );
    Ok(Prepared { bytes: Cow::Owned(shorter), cut: Some(cut) })
}

/// Where reading ends.
struct Unknown {
    at: usize,
    id: u32,
    kind: u32,
}

/// Goes over the types, each of which costs its length: the time is that of reading the section once.
fn first_unknown(section: &[u8]) -> Option<Unknown> {
    let (mut at, mut id) = (0_usize, 1_u32);
    while let Some(info) = word(section, at.saturating_add(4)) {
        let kind = u32::try_from(info).ok()? >> 24 & 0x1f;
        let Some(rest) = length_after_head(kind, info & 0xffff) else {
            return Some(Unknown { at, id, kind });
        };
        at = at.saturating_add(TYPE_HEAD).saturating_add(rest);
        id = id.saturating_add(1);
    }
    None
}

/// Bytes of a type after its head, by kind and by its count of members.
///
/// kernel: `BTF_KIND_*`, include/uapi/linux/btf.h; up to 15 since 5.2, `FLOAT` since 5.13, `DECL_TAG` since 5.16,
/// `TYPE_TAG` since 5.17, `ENUM64` since 6.0.
const fn length_after_head(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        // INT, VAR, DECL_TAG.
        1 | 14 | 17 => 4,
        // PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG.
        2 | 7..=12 | 16 | 18 => 0,
        // ARRAY.
        3 => 12,
        // STRUCT, UNION, DATASEC, ENUM64.
        4 | 5 | 15 | 19 => 12 * members,
        // ENUM, FUNC_PROTO.
        6 | 13 => 8 * members,
        _ => return None,
    })
}

/// A word of the file, in this machine's order: the kernel writes its own.
fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let field = bytes.get(at..)?.first_chunk::<4>()?;
    usize::try_from(u32::from_ne_bytes(*field)).ok()
}
