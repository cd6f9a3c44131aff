//! A person says that they know of a loss: it ends the condition, and stays in the history with their name.

use alloc::format;
use alloc::vec::Vec;

use crate::engine::volume::Volume;
use crate::engine::{AckAnswer, Engine, Output, Transition};
use crate::health::loss::{Actor, Loss};
use crate::id::VolumeId;
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
        let known = match self.recalled_mount.as_mut() {
            Some(mount) => &mut mount.loss,
            None => &mut self.evidence.lost,
        };
        let errno = known.as_ref().map(|loss| loss.errno)?;
        if !Loss::acknowledge(known, now, by.clone()) {
            return None;
        }
        let state = self.condition.state;
        let transition = Transition {
            volume: self.id.clone(),
            from: state,
            to: state,
            reason: Some(Reason::WritebackLost),
            at: now,
            evidence_at: None,
            message: format!("{by} acknowledged that dirty data was lost with {errno}"),
            incident: None,
            by: Some(by),
        };
        self.keep(transition.clone());
        Some(transition)
    }
}
