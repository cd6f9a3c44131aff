//! What an interrupted plan left half-made, read from the mount table: never guessed, never done twice.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::id::VolumeId;
use crate::path::{BytePath, escape};
use crate::remediation::Action;
use crate::remediation::consumers::is_guard;
use crate::remediation::plan::Place;
use crate::topology::MountTable;

/// The actions that finish or undo what is left; empty when nothing is.
#[must_use]
pub fn leftovers(place: &Place, table: &MountTable) -> Vec<Action> {
    let mut actions = Vec::new();
    if is_cut_off_swap(place, table) {
        actions.push(Action::DetachTop);
    }
    if table.mounts().iter().any(|mount| mount.mountpoint.is_within(&place.stage)) {
        actions.push(Action::Unstage);
    }
    actions
}

/// The new mount lies beneath the old one already; only the old one is still to go.
fn is_cut_off_swap(place: &Place, table: &MountTable) -> bool {
    let stack = table.stack_at(&place.mountpoint);
    match (place.old, stack.as_slice()) {
        (Some(old), [.., beneath, top]) => {
            let was_there = place.marks.as_ref().is_some_and(|marks| marks.others.contains(&beneath.id));
            let is_new = beneath.superblock != old && beneath.fstype != "autofs" && !is_guard(beneath);
            let is_new = is_new && !was_there;
            let is_old = place.marks.as_ref().is_some_and(|marks| marks.prove(table, top));
            top.superblock == old && is_old && is_new
        }
        _ => false,
    }
}

/// The private places with mounts on or below them, one for each entry of the directory of private places. A
/// mount on that directory itself is how it is kept private.
#[must_use]
pub fn places_in_use(stage_root: &BytePath, table: &MountTable) -> Vec<BytePath> {
    let mut places = BTreeSet::new();
    for mount in table.mounts().iter().filter(|mount| mount.mountpoint.is_within(stage_root)) {
        let below = mount.mountpoint.as_bytes().get(stage_root.as_bytes().len()..).unwrap_or_default();
        let name = below.split(|byte| *byte == b'/').find(|name| !name.is_empty());
        places.extend(name.map(|name| stage_root.join(name)));
    }
    places.into_iter().collect()
}

/// A private place that belongs to no plan. No volume is known for it, so it goes by its own name.
#[must_use]
pub fn stray(stage: &BytePath) -> Place {
    Place {
        volume: VolumeId::new(escape(stage.as_bytes())),
        mountpoint: stage.clone(),
        stage: stage.clone(),
        old: None,
        marks: None,
    }
}

#[cfg(test)]
mod tests;
