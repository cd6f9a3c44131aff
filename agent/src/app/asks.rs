//! Questions that are out, to hooks and to servers: beside the loop, which takes their answers as inputs.

use agent_core::engine::{Input, ReachOrder};
use agent_core::id::VolumeId;
use agent_core::path::BytePath;
use agent_core::remediation::asking::Question;
use tokio::task::JoinSet;

use crate::asking::{Asker, Settings};

/// Everything that is asked before repairs.
pub(super) struct Asks {
    asker: Asker,
    out: JoinSet<Option<Input>>,
}

impl Asks {
    pub(super) fn new(settings: Settings) -> Self {
        Self { asker: Asker::new(settings), out: JoinSet::new() }
    }

    /// Asks a hook.
    pub(super) fn ask(&mut self, question: Question, evidence: Vec<u8>) {
        let asker = self.asker.clone();
        self.out.spawn(async move { Some(Input::Answered(asker.ask(question, evidence).await)) });
    }

    /// Tries a server.
    pub(super) fn reach(&mut self, order: ReachOrder) {
        let asker = self.asker.clone();
        self.out.spawn(async move { Some(Input::Reached(asker.reach(order).await)) });
    }

    /// Follows the mount point of a volume. Where nobody can tell there is no answer.
    pub(super) fn follow(&mut self, volume: VolumeId, path: BytePath) {
        let asker = self.asker.clone();
        self.out.spawn(async move { Some(Input::Leads(volume, asker.follow(&path).await?)) });
    }

    /// The next answer. What a fault of the agent has lost the engine misses by itself.
    pub(super) async fn answer(&mut self) -> Input {
        loop {
            match self.out.join_next().await {
                Some(Ok(Some(input))) => return input,
                Some(Ok(None)) => {}
                Some(Err(error)) => tracing::error!(%error, "A question was lost by a fault of the agent"),
                None => std::future::pending().await,
            }
        }
    }

    /// Ends what is out, and the programs of hooks with it.
    pub(super) fn end(&mut self) {
        self.out.abort_all();
    }
}
