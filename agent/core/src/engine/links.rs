//! Mount points that are reached over a symbolic link. The table names every mount by where it really is, so that under
//! a path that leads over a link nothing is ever mounted, however well the volume works.
//!
//! Whoever can follow a path is asked where such a path leads, as long as nothing was ever seen at it. A volume that is
//! mounted at the other end is not missing: it is said, loudly, which path the configuration should name. Nothing is
//! looked at or repaired by the path over the link, which may lead elsewhere at any time.

use alloc::vec::Vec;
use alloc::{format, string::String};
use core::time::Duration;

use crate::discovery::{Presence, is_what_was_wanted};
use crate::engine::volume::Volume;
use crate::engine::{Engine, Note, Output};
use crate::id::{Generation, VolumeId};
use crate::path::{BytePath, escape};
use crate::time::Monotonic;
use crate::topology::{Mount, MountTable};

/// Whoever is asked has answered by then, or cannot tell, and is asked again no sooner.
const PAUSE: Duration = Duration::from_secs(5);

/// A path that leads over a link is followed anew after this long: the link may be gone. So is one of which nobody could
/// tell twice.
const AGAIN: Duration = Duration::from_secs(60);

/// What is known of the way to a volume that is not there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Link {
    asked: Option<Monotonic>,
    is_answered: bool,
    /// Nobody could tell when it was asked before.
    is_unknown: bool,
    /// Where the mount point leads over a link.
    leads: Option<BytePath>,
    /// The volume is mounted there.
    is_mounted: bool,
}

impl Link {
    /// The volume is mounted at the other end of a link.
    pub(super) const fn is_mounted(&self) -> bool {
        self.is_mounted
    }

    /// Until when an answer may come that says why nothing is mounted.
    pub(super) fn awaited(&self, now: Monotonic) -> Option<Monotonic> {
        let until = self.asked.filter(|_| !self.is_answered)? + PAUSE;
        (until > now).then_some(until)
    }

    /// When it is asked for again, whatever happens. What leads to no other path is asked for after a change alone.
    fn again_at(&self) -> Option<Monotonic> {
        let asked = self.asked.filter(|_| !self.is_answered || self.leads.is_some())?;
        Some(asked + if self.leads.is_some() || self.is_unknown { AGAIN } else { PAUSE })
    }

    /// Whether this line lies on the way to the other end.
    pub(super) fn passes(&self, mount: &Mount) -> bool {
        self.leads.as_ref().is_some_and(|path| path.is_within(&mount.mountpoint))
    }

    /// What people are told of it.
    pub(super) fn sentence(&self) -> Option<String> {
        let path = escape(self.leads.as_ref()?.as_bytes());
        let consequence = if self.is_mounted {
            "where it is mounted: nothing is known of it until the configuration names that path"
        } else {
            "which the configuration should name instead"
        };
        Some(format!("its mount point leads over a symbolic link to {path}, {consequence}"))
    }
}

impl Volume {
    /// Takes what the table says of the other end. Whatever is seen at the mount point itself needs no link.
    fn heed_link(&mut self, table: &MountTable) {
        if self.presence != Some(Presence::Missing) {
            self.link = Link::default();
            return;
        }
        let there = self.link.leads.as_ref().and_then(|path| table.visible_at(path));
        self.link.is_mounted =
            there.zip(self.spec.as_ref()).is_some_and(|(mount, spec)| is_what_was_wanted(spec, mount));
    }

    /// Whether its mount point may lead over a link.
    fn may_be_linked(&self) -> bool {
        self.spec.is_some()
            && self.is_watched()
            && self.generation == Generation::default()
            && self.presence == Some(Presence::Missing)
    }

    /// Whether it is time to ask where its mount point leads.
    fn asks_for_link(&self, now: Monotonic) -> bool {
        let next = self.link.again_at().or(self.link.asked.map(|at| at + PAUSE));
        self.may_be_linked() && next.is_none_or(|at| at <= now)
    }

    /// When it is asked for again.
    pub(super) fn link_due(&self) -> Option<Monotonic> {
        self.link.again_at().filter(|_| self.may_be_linked())
    }

    /// Whether it is not known yet why nothing is there. What was there in an earlier run was there without a link.
    pub(super) fn may_be_elsewhere(&self, now: Monotonic) -> bool {
        let is_first = !self.link.is_unknown && self.link.leads.is_none();
        is_first
            && self.known.is_none()
            && !self.condition.state.is_sick()
            && self.link.awaited(now).is_some()
    }

    fn ask_for_link(&mut self, now: Monotonic) -> Option<Output> {
        if !self.asks_for_link(now) {
            return None;
        }
        let link = &mut self.link;
        link.is_unknown = link.asked.is_some() && !link.is_answered;
        link.asked = Some(now);
        // What was answered holds until there is another answer.
        link.is_answered = link.leads.is_some();
        Some(Output::Follow(self.id.clone(), self.mountpoint.clone()))
    }
}

impl Engine {
    /// Heeds links after a new table, and asks for those that nobody has told of.
    pub(super) fn follow_links(&mut self, table: &MountTable, now: Monotonic, outputs: &mut Vec<Output>) {
        for volume in self.volumes.values_mut() {
            let before = volume.link.is_mounted;
            volume.heed_link(table);
            if before != volume.link.is_mounted {
                self.touched.insert(volume.id.clone());
            }
            outputs.extend(volume.ask_for_link(now));
        }
    }

    /// Asks again where a mount point leads, when it is time.
    pub(super) fn follow_link(&mut self, id: &VolumeId, now: Monotonic, outputs: &mut Vec<Output>) {
        let due = self.volumes.get_mut(id).filter(|volume| volume.link_due().is_some());
        outputs.extend(due.and_then(|volume| volume.ask_for_link(now)));
    }

    /// Takes where a mount point leads; `None`: to no other path.
    pub(super) fn take_link(&mut self, id: &VolumeId, leads: Option<BytePath>, outputs: &mut Vec<Output>) {
        let Some(table) = self.table.clone() else { return };
        let Some(volume) = self.volumes.get_mut(id).filter(|volume| volume.link.asked.is_some()) else {
            return;
        };
        let before = volume.link.sentence();
        (volume.link.is_answered, volume.link.is_unknown) = (true, false);
        volume.link.leads = leads.filter(|path| *path != volume.mountpoint);
        volume.heed_link(&table);
        self.touched.insert(id.clone());
        // It is asked for again and again, and said once.
        if let Some(text) = volume.link.sentence().filter(|text| before.as_ref() != Some(text)) {
            outputs.push(Output::Note(Note { volume: Some(id.clone()), text }));
        }
    }
}
