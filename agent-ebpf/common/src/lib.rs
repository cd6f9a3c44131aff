//! What crosses the boundary between kernel programs and agent: records, map keys and values, settings, names.
//!
//! Rules for adding a record: `repr(C)`; integers only; padding is a named field that is always zero; the
//! length stands in the header; a new kind gets a new number and old numbers are never used again. The reader
//! skips kinds it does not know and ignores bytes beyond the fields it knows. Sizes are asserted in `layout`.
#![no_std]

pub mod decode;
pub mod key;
mod layout;
pub mod names;
#[cfg(feature = "user")]
mod pod;
pub mod record;
pub mod settings;
pub mod subvolume;
