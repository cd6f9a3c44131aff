//! One line of mountinfo into a [`Mount`]. Bytes in, facts out; no I/O. The only reader of such lines in the
//! agent.
//!
//! kernel: `show_mountinfo`, fs/proc_namespace.c; fields in Documentation/filesystems/proc.rst, since 2.6.26:
//!
//! ```text
//! 36 35 98:0 /root /mnt rw,noatime shared:1 master:2 - ext4 /dev/sda1 rw,errors=continue
//! id parent dev root mountpoint options  optional…   - fstype source super options
//! ```
//!
//! What makes this harder than it looks, and how it is read here:
//! * Fields are separated by exactly one space. Two spaces in a row are an empty field (a mount whose source
//!   is the empty string).
//! * Space, tab, newline, backslash and `#` are written as a backslash and three octal digits; so are other
//!   bytes where a file system asks for it (overlay writes a comma in a path as `\054`). All of them are undone;
//!   a backslash before anything else stands for itself.
//! * The separator is the first field after the sixth that is exactly `-`. A path cannot look like it.
//! * Options are split at commas first and unescaped after, so an escaped comma stays within its word.
//! * Super options reach to the end of the line: some file systems print a space there without escaping it.
//! * All text is bytes. A file-system type that is not UTF-8 (a FUSE subtype may be anything) is kept in its
//!   lossless escape.

use agent_core::id::{MountId, SuperblockId};
use agent_core::path::{self, BytePath};
use agent_core::topology::{Mount, Options, Propagation};
use thiserror::Error;

pub mod lines;
pub mod own;

use lines::Lines;

/// A whole table, parsed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parsed {
    /// The good lines, in their order.
    pub mounts: Vec<Mount>,
    /// How many lines could not be read.
    pub bad_lines: u64,
}

/// Why a line could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BadLine {
    /// The line ends too early.
    #[error("field `{0}` is missing")]
    Missing(&'static str),
    /// A number is not one, or does not fit.
    #[error("field `{0}` is not a number of 32 bits")]
    Number(&'static str),
    /// No field is `-`.
    #[error("there is no separator")]
    NoSeparator,
}

/// Parses a whole table. A bad line costs that line.
#[must_use]
pub fn parse_table(bytes: &[u8]) -> Parsed {
    let mut parsed = Parsed::default();
    let mut lines = Lines::default();
    lines.feed(bytes, |line| parsed.add(line));
    let overlong = lines.finish(|line| parsed.add(line));
    parsed.bad_lines += overlong;
    parsed
}

impl Parsed {
    /// Adds one line, without its newline.
    pub fn add(&mut self, line: &[u8]) {
        match parse_line(line) {
            Ok(mount) => self.mounts.push(mount),
            Err(_) => self.bad_lines += 1,
        }
    }
}

/// Parses one line, without its newline.
pub fn parse_line(line: &[u8]) -> Result<Mount, BadLine> {
    let mut fields = Fields { rest: Some(line) };
    let Place { id, parent, superblock, root, mountpoint } = place(&mut fields)?;
    let options = options_of(fields.next("options")?);
    let propagation = propagation(&mut fields)?;
    let fstype = text(unescape(fields.next("type")?));
    let source = unescape(fields.next("source")?);
    let super_options = options_to_the_end(&fields);
    Ok(Mount {
        unique: None,
        id,
        parent,
        superblock,
        root,
        mountpoint,
        options,
        propagation,
        fstype,
        source,
        super_options,
    })
}

/// The first five fields: what is where. Enough to look something up, and much less work than the whole line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Field 1.
    pub id: MountId,
    /// Field 2.
    pub parent: MountId,
    /// Field 3.
    pub superblock: SuperblockId,
    /// Field 4.
    pub root: BytePath,
    /// Field 5.
    pub mountpoint: BytePath,
}

/// Parses the first five fields of a line, whatever follows.
pub fn parse_place(line: &[u8]) -> Result<Place, BadLine> {
    place(&mut Fields { rest: Some(line) })
}

fn place(fields: &mut Fields<'_>) -> Result<Place, BadLine> {
    Ok(Place {
        id: MountId(number(fields.next("mount id")?, "mount id")?),
        parent: MountId(number(fields.next("parent id")?, "parent id")?),
        superblock: device(fields.next("device")?)?,
        root: BytePath::new(unescape(fields.next("root")?)),
        mountpoint: BytePath::new(unescape(fields.next("mount point")?)),
    })
}

/// Field 1 alone, which names the mount even where the rest of the line is not understood.
#[must_use]
pub fn leading_id(line: &[u8]) -> Option<MountId> {
    number(line.split(|byte| *byte == b' ').next()?, "mount id").ok().map(MountId)
}

/// What is left of a line.
struct Fields<'line> {
    /// `None` after the last field; an empty rest is one more, empty, field.
    rest: Option<&'line [u8]>,
}

impl<'line> Fields<'line> {
    fn next(&mut self, name: &'static str) -> Result<&'line [u8], BadLine> {
        let rest = self.rest.ok_or(BadLine::Missing(name))?;
        match rest.iter().position(|byte| *byte == b' ') {
            Some(end) => {
                let (field, after) = rest.split_at(end);
                self.rest = Some(after.get(1..).unwrap_or_default());
                Ok(field)
            }
            None => {
                self.rest = None;
                Ok(rest)
            }
        }
    }
}

/// Reads the optional fields and the separator. Tags that are not known are passed over: new ones may come.
fn propagation(fields: &mut Fields<'_>) -> Result<Propagation, BadLine> {
    let mut propagation = Propagation::default();
    loop {
        let field = fields.next("separator").map_err(|_| BadLine::NoSeparator)?;
        if field == b"-" {
            return Ok(propagation);
        }
        if let Some(group) = field.strip_prefix(b"shared:") {
            propagation.shared = Some(number(group, "shared")?);
        } else if let Some(group) = field.strip_prefix(b"master:") {
            propagation.master = Some(number(group, "master")?);
        } else if field == b"unbindable" {
            propagation.unbindable = true;
        }
    }
}

/// Options as the kernel prints them: split at commas, then unescaped.
pub(super) fn options_of(field: &[u8]) -> Options {
    Options::from_words(field.split(|byte| *byte == b',').map(unescape))
}

fn options_to_the_end(fields: &Fields<'_>) -> Options {
    fields.rest.map(options_of).unwrap_or_default()
}

fn device(field: &[u8]) -> Result<SuperblockId, BadLine> {
    let colon = field.iter().position(|byte| *byte == b':').ok_or(BadLine::Number("device"))?;
    let (major, minor) = field.split_at(colon);
    Ok(SuperblockId {
        major: number(major, "device")?,
        minor: number(minor.get(1..).unwrap_or_default(), "device")?,
    })
}

/// Decimal digits only: the kernel prints no sign and no space, and a reader that accepts them hides a fault.
fn number(field: &[u8], name: &'static str) -> Result<u32, BadLine> {
    if field.is_empty() {
        return Err(BadLine::Number(name));
    }
    field
        .iter()
        .try_fold(0_u32, |value, byte| {
            let digit = byte.is_ascii_digit().then(|| u32::from(byte - b'0'))?;
            value.checked_mul(10)?.checked_add(digit)
        })
        .ok_or(BadLine::Number(name))
}

/// A name that should be text; else its lossless escape.
pub(super) fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| path::escape(error.as_bytes()))
}

/// Undoes `\ooo`.
///
/// kernel: `string_escape_mem` with `ESCAPE_OCTAL`, lib/string_helpers.c, called by `mangle` and `seq_escape`.
#[must_use]
pub fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        match octal(rest) {
            Some((byte, after_escape)) => {
                out.push(byte);
                rest = after_escape;
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

fn octal(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..] = bytes else {
        return None;
    };
    Some((((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'), rest))
}

#[cfg(test)]
mod tests;
