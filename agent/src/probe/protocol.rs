//! What the pool and a worker say to each other, as bytes. Pure: no sockets here.
//!
//! A frame is a little-endian length of four bytes and a body. The pool sends requests; the worker sends one
//! [`Reply::Ready`] or [`Reply::Refused`] when it has started, then one [`Reply::Done`] or [`Reply::Planted`] for
//! each request.
//! Paths are bytes and arrive as they were sent.
//!
//! Which step a probe is in does not travel here: a message for every step would wake the agent five times a
//! probe. The worker writes the step as one byte into its progress file (a memfd), and the pool reads that
//! byte when the deadline has passed. See [`step_to_byte`].
//!
//! Decoding never panics; whatever is malformed is an error, and the pool throws such a worker away.

use agent_core::engine::ProbeOrder;
use agent_core::errno::Errno;
use agent_core::id::{MountId, SuperblockId};
use agent_core::observation::{NotRun, ProbeOk, ProbeResult, ProbeStep};
use agent_core::path::BytePath;
use agent_core::volume::{ProbeUser, Sentinel};
use bytes::{Buf as _, BytesMut};

mod fields;
mod planting;

use super::planting::{PlantFault, Planted, Planting};
use fields::{Reader, Writer};

/// The longest body. Far above any real one (a path and the content of a sentinel).
pub const BODY_MAX: usize = 1 << 20;

/// Bytes in front of a body.
pub const HEADER: usize = 4;

/// What a worker is asked to do: a [`ProbeOrder`] without what only the pool needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Where.
    pub mountpoint: BytePath,
    /// What must be found there.
    pub superblock: SuperblockId,
    /// What must be found there.
    pub mount_id: MountId,
    /// The directory of the superblock that is shown there.
    pub root: BytePath,
    /// The type, for the choice of steps.
    pub fstype: String,
    /// The configured sentinel.
    pub sentinel: Option<Sentinel>,
    /// Whether to write.
    pub write: bool,
    /// As whom to look.
    pub user: Option<ProbeUser>,
    /// Whether the mount lies on an automount trap.
    pub is_automount: bool,
    /// The sentinel to put there instead of looking.
    pub planting: Option<Planting>,
}

/// What a worker says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// It has started and waits for requests.
    Ready,
    /// It cannot work here, for this reason. It ends by itself.
    Refused(String),
    /// The answer to a request to look.
    Done(ProbeResult),
    /// The answer to a request to put a sentinel there.
    Planted(Result<Planted, PlantFault>),
}

/// Bytes that are no message of this protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// The body ends before the message does.
    #[error("message is cut short")]
    Short,
    /// The message ends before the body does.
    #[error("message is followed by more bytes")]
    Long,
    /// A length above [`BODY_MAX`].
    #[error("message of {0} bytes is too long")]
    TooLong(usize),
    /// A number that names nothing.
    #[error("unknown {what} {value}")]
    Unknown {
        /// What it should name.
        what: &'static str,
        /// The number.
        value: u8,
    },
    /// Text that is not UTF-8.
    #[error("text is not UTF-8")]
    NotText,
}

/// A body with its length in front.
///
/// # Errors
/// When the body is longer than [`BODY_MAX`].
pub fn frame(body: &[u8]) -> Result<Vec<u8>, Malformed> {
    let length = u32::try_from(body.len()).map_err(|_| Malformed::TooLong(body.len()))?;
    if body.len() > BODY_MAX {
        return Err(Malformed::TooLong(body.len()));
    }
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(body);
    Ok(bytes)
}

/// The length that a header announces.
///
/// # Errors
/// When it is above [`BODY_MAX`].
pub fn body_length(header: [u8; HEADER]) -> Result<usize, Malformed> {
    let length = usize::try_from(u32::from_le_bytes(header)).unwrap_or(usize::MAX);
    if length > BODY_MAX { Err(Malformed::TooLong(length)) } else { Ok(length) }
}

/// Takes the first whole body out of the bytes received so far; `None` when it is not complete yet.
///
/// # Errors
/// When the announced length is above [`BODY_MAX`].
pub fn take_body(received: &mut BytesMut) -> Result<Option<BytesMut>, Malformed> {
    let Some(header) = received.first_chunk::<HEADER>() else { return Ok(None) };
    let end = HEADER + body_length(*header)?;
    if received.len() < end {
        return Ok(None);
    }
    // What follows stays where it is: nothing is moved, however many small messages come at once.
    let mut body = received.split_to(end);
    body.advance(HEADER);
    Ok(Some(body))
}

/// The byte in the progress file: 0 means that no step has begun.
#[must_use]
pub const fn step_to_byte(step: ProbeStep) -> u8 {
    match step {
        ProbeStep::Identity => 1,
        ProbeStep::Root => 2,
        ProbeStep::Sentinel => 3,
        ProbeStep::Device => 4,
        ProbeStep::Write => 5,
    }
}

/// The inverse of [`step_to_byte`]; `None` for 0 and for anything else.
#[must_use]
pub const fn step_from_byte(byte: u8) -> Option<ProbeStep> {
    match byte {
        1 => Some(ProbeStep::Identity),
        2 => Some(ProbeStep::Root),
        3 => Some(ProbeStep::Sentinel),
        4 => Some(ProbeStep::Device),
        5 => Some(ProbeStep::Write),
        _ => None,
    }
}

impl From<&ProbeOrder> for Request {
    fn from(order: &ProbeOrder) -> Self {
        Self {
            mountpoint: order.mountpoint.clone(),
            superblock: order.superblock,
            mount_id: order.mount_id,
            root: order.root.clone(),
            fstype: order.fstype.clone(),
            sentinel: order.sentinel.clone(),
            write: order.write,
            user: order.user.clone(),
            is_automount: order.is_automount,
            planting: None,
        }
    }
}

impl Request {
    /// The body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.bytes(self.mountpoint.as_bytes());
        out.superblock(self.superblock);
        out.u32(self.mount_id.0);
        out.bytes(self.root.as_bytes());
        out.bytes(self.fstype.as_bytes());
        out.option(self.sentinel.as_ref(), |out, sentinel| {
            out.bytes(sentinel.path.as_bytes());
            out.option(sentinel.content.as_deref(), Writer::bytes);
        });
        out.flag(self.write);
        out.option(self.user.as_ref(), |out, user| {
            out.u32(user.uid);
            out.u32(user.gid);
            out.list(&user.groups, |out, group| out.u32(*group));
        });
        out.flag(self.is_automount);
        out.option(self.planting.as_ref(), planting::encode);
        out.into_bytes()
    }

    /// The inverse of [`Request::encode`].
    ///
    /// # Errors
    /// When the body is anything else.
    pub fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let request = Self {
            mountpoint: BytePath::new(from.bytes()?),
            superblock: from.superblock()?,
            mount_id: MountId(from.u32()?),
            root: BytePath::new(from.bytes()?),
            fstype: from.text()?,
            sentinel: from.option(|from| {
                Ok(Sentinel {
                    path: BytePath::new(from.bytes()?),
                    content: from.option(|from| Ok(from.bytes()?.to_vec()))?,
                })
            })?,
            write: from.flag()?,
            user: from.option(|from| {
                let (uid, gid) = (from.u32()?, from.u32()?);
                Ok(ProbeUser { uid, gid, groups: from.list(Reader::u32)? })
            })?,
            is_automount: from.flag()?,
            planting: from.option(planting::decode)?,
        };
        from.end()?;
        Ok(request)
    }
}

impl Reply {
    /// The body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Ready => out.u8(0),
            Self::Refused(reason) => {
                out.u8(1);
                out.bytes(reason.as_bytes());
            }
            Self::Done(result) => {
                out.u8(2);
                encode_result(&mut out, result);
            }
            Self::Planted(result) => {
                out.u8(3);
                planting::encode_result(&mut out, result);
            }
        }
        out.into_bytes()
    }

    /// The inverse of [`Reply::encode`].
    ///
    /// # Errors
    /// When the body is anything else.
    pub fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let reply = match from.u8()? {
            0 => Self::Ready,
            1 => Self::Refused(from.text()?),
            2 => Self::Done(decode_result(&mut from)?),
            3 => Self::Planted(planting::decode_result(&mut from)?),
            value => return Err(Malformed::Unknown { what: "reply", value }),
        };
        from.end()?;
        Ok(reply)
    }
}

fn encode_result(out: &mut Writer, result: &ProbeResult) {
    match result {
        ProbeResult::Ok(ok) => {
            out.u8(0);
            encode_ok(out, ok);
        }
        ProbeResult::Failed { step, errno } => {
            out.u8(1);
            out.u8(step_to_byte(*step));
            out.u16(errno.0);
        }
        ProbeResult::WrongMount { found } => {
            out.u8(2);
            out.superblock(*found);
        }
        ProbeResult::SentinelMissing => out.u8(3),
        ProbeResult::SentinelDiffers => out.u8(4),
        ProbeResult::SentinelUnusable => out.u8(5),
        ProbeResult::TimedOut { step } => {
            out.u8(6);
            out.u8(step_to_byte(*step));
        }
        ProbeResult::NotRun(NotRun::TooManyAbandoned) => out.u8(7),
        ProbeResult::NotRun(NotRun::WorkerLost) => out.u8(8),
        ProbeResult::NotRun(NotRun::Unreachable) => out.u8(9),
        ProbeResult::NotRun(NotRun::NotThatUser) => out.u8(10),
        ProbeResult::WriteFailed { errno, read } => {
            out.u8(11);
            out.u16(errno.0);
            encode_ok(out, read);
        }
    }
}

fn encode_ok(out: &mut Writer, ok: &ProbeOk) {
    out.u64(ok.root_inode);
    out.flag(ok.read_data);
    out.flag(ok.read_device);
    out.flag(ok.wrote_data);
    out.option(ok.fsid.as_deref(), |out, fsid| out.bytes(fsid.as_bytes()));
    out.option(ok.uuid.as_deref(), |out, uuid| out.bytes(uuid.as_bytes()));
}

fn decode_result(from: &mut Reader<'_>) -> Result<ProbeResult, Malformed> {
    Ok(match from.u8()? {
        0 => ProbeResult::Ok(decode_ok(from)?),
        1 => ProbeResult::Failed { step: decode_step(from)?, errno: Errno(from.u16()?) },
        2 => ProbeResult::WrongMount { found: from.superblock()? },
        3 => ProbeResult::SentinelMissing,
        4 => ProbeResult::SentinelDiffers,
        5 => ProbeResult::SentinelUnusable,
        6 => ProbeResult::TimedOut { step: decode_step(from)? },
        7 => ProbeResult::NotRun(NotRun::TooManyAbandoned),
        8 => ProbeResult::NotRun(NotRun::WorkerLost),
        9 => ProbeResult::NotRun(NotRun::Unreachable),
        10 => ProbeResult::NotRun(NotRun::NotThatUser),
        11 => ProbeResult::WriteFailed { errno: Errno(from.u16()?), read: decode_ok(from)? },
        value => return Err(Malformed::Unknown { what: "result", value }),
    })
}

fn decode_ok(from: &mut Reader<'_>) -> Result<ProbeOk, Malformed> {
    Ok(ProbeOk {
        root_inode: from.u64()?,
        read_data: from.flag()?,
        read_device: from.flag()?,
        wrote_data: from.flag()?,
        fsid: from.option(Reader::text)?,
        uuid: from.option(Reader::text)?,
    })
}

fn decode_step(from: &mut Reader<'_>) -> Result<ProbeStep, Malformed> {
    let value = from.u8()?;
    step_from_byte(value).ok_or(Malformed::Unknown { what: "step", value })
}

#[cfg(test)]
mod tests;
