//! Requests for a sentinel, and the answers to them.

use agent_core::errno::Errno;
use agent_core::path::BytePath;

use super::fields::{Reader, Writer};
use super::{Malformed, PlantFault, Planted, Planting};

pub(super) fn encode(out: &mut Writer, planting: &Planting) {
    out.bytes(planting.path.as_bytes());
    out.bytes(&planting.content);
    out.flag(planting.is_chosen);
    out.flag(planting.may_adopt);
}

pub(super) fn decode(from: &mut Reader<'_>) -> Result<Planting, Malformed> {
    Ok(Planting {
        path: BytePath::new(from.bytes()?),
        content: from.bytes()?.to_vec(),
        is_chosen: from.flag()?,
        may_adopt: from.flag()?,
    })
}

pub(super) fn encode_result(out: &mut Writer, result: &Result<Planted, PlantFault>) {
    let mut content = |kind, content: &[u8]| {
        out.u8(kind);
        out.bytes(content);
    };
    match result {
        Ok(Planted::Written(bytes)) => content(0, bytes),
        Ok(Planted::Found(bytes)) => content(1, bytes),
        Ok(Planted::Adopted(bytes)) => content(2, bytes),
        Err(PlantFault::Look(result)) => {
            out.u8(3);
            super::encode_result(out, result);
        }
        Err(PlantFault::Exists) => out.u8(4),
        Err(PlantFault::Empty) => out.u8(5),
        Err(PlantFault::Unusable) => out.u8(6),
        Err(PlantFault::NoDirectory) => out.u8(7),
        Err(PlantFault::NoRoom) => out.u8(8),
        Err(PlantFault::Write(errno)) => {
            out.u8(9);
            out.u16(errno.0);
        }
        Err(PlantFault::ReadBack { errno, is_removed }) => {
            out.u8(10);
            // No errno is zero.
            out.u16(errno.map_or(0, |errno| errno.0));
            out.flag(*is_removed);
        }
    }
}

pub(super) fn decode_result(from: &mut Reader<'_>) -> Result<Result<Planted, PlantFault>, Malformed> {
    Ok(match from.u8()? {
        0 => Ok(Planted::Written(from.bytes()?.to_vec())),
        1 => Ok(Planted::Found(from.bytes()?.to_vec())),
        2 => Ok(Planted::Adopted(from.bytes()?.to_vec())),
        3 => Err(PlantFault::Look(super::decode_result(from)?)),
        4 => Err(PlantFault::Exists),
        5 => Err(PlantFault::Empty),
        6 => Err(PlantFault::Unusable),
        7 => Err(PlantFault::NoDirectory),
        8 => Err(PlantFault::NoRoom),
        9 => Err(PlantFault::Write(Errno(from.u16()?))),
        10 => {
            let errno = Some(from.u16()?).filter(|number| *number != 0).map(Errno);
            Err(PlantFault::ReadBack { errno, is_removed: from.flag()? })
        }
        value => return Err(Malformed::Unknown { what: "answer about a sentinel", value }),
    })
}
