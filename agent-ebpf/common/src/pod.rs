//! Which types may be copied to and from map memory as bytes.

use crate::key::{CounterKey, CounterValue, NameValue, NameWindow, RootKey};
use crate::settings::{Filter, LowerDevice, ModuleOffsets, Offsets, SyscallRow};

macro_rules! plain_bytes {
    ($($type:ty),+ $(,)?) => {$(
        // SAFETY: `repr(C)`, integers only, no implicit padding (asserted in `layout`), every bit pattern valid.
        unsafe impl aya::Pod for $type {}
    )+};
}

plain_bytes!(
    CounterKey,
    CounterValue,
    NameValue,
    NameWindow,
    RootKey,
    SyscallRow,
    Filter,
    Offsets,
    ModuleOffsets,
    LowerDevice,
);
