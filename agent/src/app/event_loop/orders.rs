//! What people order by hand: taken to the engine, and answered when it is on disk or cannot be.

use std::sync::Arc;

use agent_core::engine::{AckAnswer, Input, Output};
use agent_core::health::loss::Actor;
use agent_core::id::VolumeId;
use agent_core::order::{Done, Order, Refused};
use agent_core::pause::Pauses;
use tokio::sync::oneshot;

use super::{EventLoop, told};
use crate::sys::clock;

impl EventLoop {
    /// The person is answered when it is on disk, or cannot be.
    pub(super) fn acknowledge(
        &mut self,
        volume: VolumeId,
        by: Actor,
        done: oneshot::Sender<(AckAnswer, bool)>,
    ) {
        let outputs = self.engine.handle(clock::now(), Input::Acknowledge { volume, by });
        let answer = outputs.iter().find_map(|output| match output {
            Output::Acknowledged { answer, .. } => Some(*answer),
            _ => None,
        });
        self.carry_out(outputs);
        let store = Arc::clone(&self.store);
        tokio::spawn(async move {
            let answer = answer.unwrap_or(AckAnswer::NoSuchVolume);
            let is_kept = answer == AckAnswer::Done && store.is_kept().await;
            // Who stopped waiting needs no answer.
            let _ = done.send((answer, is_kept));
        });
    }

    /// As for an acknowledgement. What is kept of a pause is a file of its own.
    pub(super) fn take_order(
        &mut self,
        order: Order,
        by: Actor,
        done: oneshot::Sender<(Result<Done, Refused>, bool)>,
    ) {
        let forgotten = match &order {
            Order::Forget(volume) => Some(volume.clone()),
            Order::Pause { .. } | Order::Resume(_) | Order::Remount(_) => None,
        };
        let mut outputs = self.engine.handle(clock::now(), Input::Order { order, by });
        let mut answer = Err(Refused::NoSuchVolume);
        let mut pauses = None;
        outputs.retain(|output| match output {
            Output::Ordered(came) => {
                answer = Result::clone(came);
                false
            }
            Output::Pauses(all) => {
                pauses = Some(all.clone());
                false
            }
            _ => true,
        });
        self.changes.is_urgent = true;
        self.carry_out(outputs);
        let store = Arc::clone(&self.store);
        // Handed over now: what is ordered next is written next.
        let written = pauses.map(|pauses| store.pauses(pauses));
        let unpinned = forgotten.filter(|_| answer.is_ok()).and_then(|volume| self.unpin(&volume));
        tokio::spawn(async move {
            let mut is_kept = match written {
                Some(written) => {
                    let written = written.await;
                    let is_kept = written.is_ok();
                    told(written);
                    is_kept
                }
                None => answer.is_ok() && store.is_kept().await,
            };
            if let Some(unpinned) = unpinned {
                is_kept &= unpinned.await;
            }
            let _ = done.send((answer, is_kept));
        });
    }

    /// Pauses have ended by themselves.
    pub(super) fn keep_pauses(&self, pauses: Pauses) {
        let written = self.store.pauses(pauses);
        tokio::spawn(async move { told(written.await) });
    }
}
