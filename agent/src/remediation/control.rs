//! The line between a plan that runs and whoever gave the order.

use agent_core::id::PlanId;
use tokio::sync::{mpsc, watch};

/// Stops a plan, as long as nobody but itself has seen anything of it.
#[derive(Debug)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    /// Stops it. Without effect once the plan shows its new mount.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// What a plan hears and says while it runs.
#[derive(Debug)]
pub struct Control {
    stop: watch::Receiver<bool>,
    shows: Option<mpsc::UnboundedSender<PlanId>>,
}

impl Control {
    /// A plan that can be stopped, and that says when it is about to change its volume's place.
    #[must_use]
    pub fn new(shows: mpsc::UnboundedSender<PlanId>) -> (Stop, Self) {
        let (sender, stop) = watch::channel(false);
        (Stop(sender), Self { stop, shows: Some(shows) })
    }

    /// A plan that nobody stops or listens to.
    #[must_use]
    pub fn none() -> Self {
        Self { stop: watch::channel(false).1, shows: None }
    }

    /// Ends when the plan is to stop.
    pub(super) async fn stopped(&self) {
        if self.stop.clone().wait_for(|stop| *stop).await.is_err() {
            // Nobody is left who could stop it.
            std::future::pending().await
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// The plan is about to change its volume's place. Said before it happens.
    pub(super) fn shows(&self, plan: PlanId) {
        if let Some(shows) = &self.shows {
            // Who does not listen any more needs not know.
            let _ = shows.send(plan);
        }
    }
}
