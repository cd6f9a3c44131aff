//! Others who change what is mounted at the place of a sick volume. A plan that has shown nothing yet is stopped, and
//! the volume is looked at anew: two who heal the same thing at once do harm.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::engine::volume::Volume;
use crate::engine::{Engine, Output, Transition};
use crate::id::{MountId, PlanId, SuperblockId};
use crate::remediation::healers::{Healer, Sign};
use crate::time::Monotonic;
use crate::topology::{Mount, MountTable};
use crate::volume::Mode;

/// The topmost mount at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Top {
    superblock: SuperblockId,
    mount_id: MountId,
    unique: Option<u64>,
}

impl Top {
    fn of(mount: &Mount) -> Self {
        Self { superblock: mount.superblock, mount_id: mount.id, unique: mount.unique }
    }

    /// The same mount, also where only one of two readings knows its unique id.
    fn is(&self, other: &Self) -> bool {
        let is_other = self.unique.zip(other.unique).is_some_and(|(known, seen)| known != seen);
        self.superblock == other.superblock && self.mount_id == other.mount_id && !is_other
    }
}

/// What others do at the place of a volume.
#[derive(Clone, Default, Debug)]
pub(super) struct Others {
    /// Who else heals it.
    pub(super) healer: Option<Healer>,
    /// What the last table showed topmost at its place; `None` before the first.
    pub(super) top: Option<Option<Top>>,
    /// A plan of the agent's own may be what changes its place, until then.
    pub(super) own_until: Option<Monotonic>,
    /// Somebody else changed its place, and goes first until then.
    pub(super) first_until: Option<Monotonic>,
}

impl Volume {
    /// Who else heals it, by its place and by what is mounted there or should be.
    pub(super) fn other_healer(&self, mount: Option<&Mount>) -> Option<Healer> {
        let spec = self.spec.as_ref()?;
        let shown = mount.map(|mount| (mount.fstype.as_str(), mount.source.as_slice()));
        let wanted = (spec.fstype.as_deref().unwrap_or_default(), spec.source.as_deref().unwrap_or_default());
        let (fstype, source) = shown.unwrap_or(wanted);
        let of_mount = mount.into_iter().flat_map(|mount| mount.super_options.iter());
        let port = spec.options.iter().map(String::as_bytes).chain(of_mount).filter_map(port_of).last();
        let mountpoint = &self.mountpoint;
        Healer::of(&Sign { mountpoint, fstype, source, trap: self.automount, port })
    }

    /// Takes what is topmost at its place now. Says whether that is another mount than before, or none where there was one.
    fn take_top(&mut self, table: &MountTable) -> bool {
        let top = table.top_at(&self.mountpoint).map(Top::of);
        let Some(before) = self.others.top.replace(top) else { return false };
        match (before, top) {
            (None, None) => false,
            (Some(before), Some(top)) => !before.is(&top),
            (None, Some(_)) | (Some(_), None) => true,
        }
    }

    /// Whether it is sick, and the agent would repair it.
    fn is_patient(&self) -> bool {
        self.condition.state.is_sick() && self.watch.mode == Mode::Act && self.spec.is_some()
    }

    /// An entry of the history about a volume whose state is the same before and after.
    pub(super) fn tell(&mut self, message: String, now: Monotonic) -> Transition {
        self.told(None, None, message, now)
    }
}

fn port_of(option: &[u8]) -> Option<u16> {
    core::str::from_utf8(option.strip_prefix(b"port=")?).ok()?.parse().ok()
}

impl Engine {
    /// Takes from a new table who has changed what at the places of volumes.
    pub(super) fn notice_others(&mut self, table: &MountTable, now: Monotonic, outputs: &mut Vec<Output>) {
        let first_wait = self.policy.thresholds.others_first;
        for volume in self.volumes.values_mut() {
            if !volume.take_top(table) || !volume.is_patient() {
                continue;
            }
            let place = volume.mountpoint.clone();
            let top = volume.others.top.flatten();
            let did = if top.is_some() { "mounted at" } else { "unmounted" };
            let message = match volume.plan.and_then(|id| self.running.get_mut(&id)) {
                Some(running) => {
                    let is_old = top.is_some_and(|top| Some(top.superblock) == running.plan.old);
                    if running.shows || is_old {
                        continue;
                    }
                    if !core::mem::replace(&mut running.is_stopped, true) {
                        outputs.push(Output::Stop(running.plan.id));
                    }
                    format!("somebody else {did} {place}: plan {} is stopped", running.plan.id)
                }
                None if volume.others.own_until.is_some_and(|until| until > now) => continue,
                None => format!("somebody else {did} {place}: it is looked at anew before anything is done"),
            };
            volume.others.first_until = Some(now + first_wait);
            // It was asked and answered about another mount.
            volume.forget_asked();
            outputs.push(Output::Transition(volume.tell(message, now)));
            self.touched.insert(volume.id.clone());
        }
    }

    /// A plan is about to change the place itself.
    pub(super) fn plan_shows(&mut self, id: PlanId) {
        if let Some(running) = self.running.get_mut(&id) {
            running.shows = true;
        }
    }
}
