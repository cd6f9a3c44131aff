//! The rows, by group.

mod changes;
mod elsewhere;
mod looks;
mod mapped;
mod transfers;

use super::row::Row;

pub(super) use self::changes::{CHANGES, NAMES};
pub(super) use self::elsewhere::{HARMLESS, PLACES};
pub(super) use self::looks::{LOOKS, OPENS};
pub(super) use self::mapped::{FAULTS, RINGS, SYNCS};
pub(super) use self::transfers::{READS, TRANSFERS, WRITES};

/// Every row.
pub(super) fn all() -> impl Iterator<Item = &'static Row> {
    [READS, WRITES, TRANSFERS, SYNCS, OPENS, LOOKS, NAMES, CHANGES, FAULTS, RINGS, HARMLESS, PLACES]
        .into_iter()
        .flatten()
}
