//! A person says that they know of a loss, or of damage: it ends the condition or the advice, and stays in the history
//! with their name.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::engine::volume::Volume;
use crate::engine::{AckAnswer, Engine, Output, Transition};
use crate::errno::Errno;
use crate::health::loss::{Actor, Loss};
use crate::id::VolumeId;
use crate::order::Deed;
use crate::time::Monotonic;
use crate::verdict::Reason;

impl Engine {
    /// Takes an acknowledgement. What it ends is judged in the same turn.
    pub(super) fn acknowledge(&mut self, id: VolumeId, by: Actor, now: Monotonic, outputs: &mut Vec<Output>) {
        let answer = match self.volumes.get_mut(&id).map(|volume| volume.acknowledge(by, now)) {
            None => AckAnswer::NoSuchVolume,
            Some(None) => AckAnswer::Nothing,
            Some(Some(transition)) => {
                outputs.push(Output::Transition(transition));
                self.touched.insert(id.clone());
                AckAnswer::Done
            }
        };
        outputs.push(Output::Acknowledged { volume: id, answer });
    }
}

impl Volume {
    fn acknowledge(&mut self, by: Actor, now: Monotonic) -> Option<Transition> {
        // Before the first table, what is known of the mount is what an earlier run knew.
        let (lost, damage) = match self.recalled_mount.as_mut() {
            Some(mount) => (&mut mount.loss, &mut mount.damage),
            None => (&mut self.evidence.lost, &mut self.evidence.damage),
        };
        let mut known: Vec<String> = Vec::new();
        let errno = |loss: &Option<Loss>| loss.as_ref().map_or(Errno::OTHER, |loss| loss.errno);
        let is_lost = Loss::acknowledge(lost, now, by.clone());
        if is_lost {
            known.push(format!("that dirty data was lost with {}", errno(lost)));
        }
        if Loss::acknowledge(damage, now, by.clone()) {
            known.push(format!("that the file system found damage in itself ({})", errno(damage)));
        }
        if known.is_empty() {
            return None;
        }
        let state = self.condition.state;
        let transition = Transition {
            volume: self.id.clone(),
            from: state,
            to: state,
            reason: if is_lost { Some(Reason::WritebackLost) } else { self.condition.reason },
            at: now,
            evidence_at: None,
            message: format!("{by} acknowledged {}", known.join(", and ")),
            incident: None,
            deed: Some(Deed::Acknowledgement),
            by: Some(by),
        };
        self.keep(transition.clone());
        Some(transition)
    }
}
