//! Sizes and offsets that both sides rely on, checked when this compiles. They are equal on both targets:
//! `repr(C)` with explicit padding has one layout wherever integers are aligned to their size.

use core::mem::{offset_of, size_of};

use crate::key::{CounterKey, CounterValue, NameValue, NameWindow, RootKey};
use crate::record::{BlockedRecord, ErrorRecord, Header, NameRecord, Who};
use crate::settings::{Filter, LowerDevice, ModuleOffsets, Offsets, SyscallRow};

const _: () = assert!(size_of::<CounterKey>() == 16);
const _: () = assert!(offset_of!(CounterKey, op) == 14);
const _: () = assert!(size_of::<CounterValue>() == 24);
const _: () = assert!(size_of::<RootKey>() == 16);
const _: () = assert!(size_of::<NameValue>() == 16);
const _: () = assert!(size_of::<NameWindow>() == 24);
const _: () = assert!(size_of::<SyscallRow>() == 8);
const _: () = assert!(size_of::<Filter>() == 80);
const _: () = assert!(size_of::<Offsets>() == 87 * 4);
const _: () = assert!(size_of::<ModuleOffsets>() == 12 * 4);
const _: () = assert!(size_of::<LowerDevice>() == 32 * 4);

const _: () = assert!(size_of::<Header>() == 16);
const _: () = assert!(size_of::<Who>() == 40);
const _: () = assert!(size_of::<ErrorRecord>() == 72);
const _: () = assert!(offset_of!(ErrorRecord, key) == 16 && offset_of!(ErrorRecord, who) == 32);
const _: () = assert!(size_of::<NameRecord>() == 328 && size_of::<NameRecord>() <= 512);
const _: () = assert!(offset_of!(NameRecord, dir) == 56 && offset_of!(NameRecord, path) == 72);
const _: () = assert!(size_of::<BlockedRecord>() == 144 && offset_of!(BlockedRecord, s_dev) == 120);
