//! What a worker does besides looking, because a person asked for it. It takes the place of a look on its
//! superblock: while one is out no other is, and who comes later waits. A plan and an errand are never at work at the
//! same place: who comes first is let to its end, unless it hangs.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::discovery::Presence;
use crate::engine::probing::{Work, pop};
use crate::engine::{Engine, Output};
use crate::id::{SuperblockId, VolumeId};

/// Why a volume can be asked for nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoErrand {
    /// There is no such volume.
    NoSuchVolume,
    /// The volume is not what a path walk to its place ends on.
    NotThere,
    /// A look at it has not come back.
    Stuck,
    /// It is being repaired.
    Repaired,
}

/// Volumes that wait until their superblock is free.
#[derive(Clone, Debug, Default)]
pub(super) struct Errands(BTreeMap<SuperblockId, VecDeque<VolumeId>>);

impl Engine {
    /// Orders an errand for a volume, now or when its superblock is free, or says why not.
    pub(super) fn take_errand(&mut self, id: VolumeId, outputs: &mut Vec<Output>) {
        let superblock = match self.place_of_errand(&id) {
            Ok(superblock) => superblock,
            Err(why) => return outputs.push(Output::NoErrand { volume: id, why }),
        };
        if self.probing.is_busy(superblock) {
            self.errands.0.entry(superblock).or_default().push_back(id);
            return;
        }
        let order = self.volumes.get(&id).and_then(|volume| {
            let probe = self.probing.begin(superblock, volume, Work::Errand);
            volume.probe_order(probe)
        });
        outputs.extend(order.map(Output::Errand));
    }

    fn place_of_errand(&self, id: &VolumeId) -> Result<SuperblockId, NoErrand> {
        let volume = self.volumes.get(id).ok_or(NoErrand::NoSuchVolume)?;
        let shown = volume.shown.as_ref().filter(|_| volume.presence == Some(Presence::Present));
        let superblock = shown.ok_or(NoErrand::NotThere)?.superblock;
        if self
            .running
            .values()
            .any(|running| running.plan.volume == *id || running.superblock == Some(superblock))
        {
            return Err(NoErrand::Repaired);
        }
        if self.probing.stuck_since(superblock).is_some() { Err(NoErrand::Stuck) } else { Ok(superblock) }
    }

    /// A superblock is free, or will not be for long: who waits for it is served, or told.
    pub(super) fn serve_errands(&mut self, superblock: SuperblockId, outputs: &mut Vec<Output>) {
        while !self.probing.is_busy(superblock) || self.probing.stuck_since(superblock).is_some() {
            let Some(next) = pop(&mut self.errands.0, superblock) else { return };
            self.take_errand(next, outputs);
        }
    }
}
