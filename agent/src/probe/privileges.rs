//! What a worker may do: as little as looking needs.
//!
//! `CAP_DAC_READ_SEARCH` reads whatever the owner of a volume has closed. `CAP_DAC_OVERRIDE` is kept in
//! reserve for the opt-in write and is in effect only during it. Everything else is given up for good.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
};

/// Gives up everything but reading, and writing in reserve. A process without privileges keeps none.
pub(super) fn reduce() -> Result<(), Errno> {
    // Ambient capabilities exist since 4.3 and only matter to an exec, which a worker never does.
    let _ = clear_ambient_capability_set();
    let now = capabilities(None)?;
    let permitted = now.permitted & (CapabilitySet::DAC_READ_SEARCH | CapabilitySet::DAC_OVERRIDE);
    let effective = permitted & CapabilitySet::DAC_READ_SEARCH;
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })
}

/// Runs `act` with the reserve in effect. Without a reserve it runs all the same: a volume that belongs to
/// the worker's own user can be written without it.
pub(super) fn with_write_override<T>(act: impl FnOnce() -> T) -> T {
    let before = capabilities(None).ok();
    if let Some(before) = before {
        let effective = before.effective | (before.permitted & CapabilitySet::DAC_OVERRIDE);
        let _ = set_capabilities(None, CapabilitySets { effective, ..before });
    }
    let result = act();
    if let Some(before) = before {
        let _ = set_capabilities(None, before);
    }
    result
}
