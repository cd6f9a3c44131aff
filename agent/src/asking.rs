//! What is asked before a repair, and of whom: the operator's hook, whether the server can be reached, and where a mount
//! point leads at which nothing is mounted.
//!
//! Each question is one future with a deadline, beside the event loop. A hook's program is a process group of its own
//! that can be killed, started by way of a disposable child (`mountie ask`, [`run_ask_child`]); a server is tried by a disposable child in the network of those whose mounts are watched
//! (`mountie reach`, [`run_reach_child`]). Nothing here decides what an answer means.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use agent_core::engine::ReachOrder;
use agent_core::observation::{Reach, ReachReport};
use agent_core::path::BytePath;
use agent_core::remediation::asking::{Answer, AnswerReport, NoAnswer, Question};
use agent_core::secret::hide;
use agent_core::volume::{HookAddress, HookWay};
use tokio::sync::Semaphore;
use tokio::time::timeout;

pub(crate) mod answer;
mod exec;
mod follow;
mod launch;
mod places;
mod post;
mod reach;

pub use launch::{ASK_SUBCOMMAND, run_ask_child};
pub use reach::{ReachPlace, run_reach_child};

use crate::sys::clock;

/// An answer is one small object.
const ANSWER_LIMIT: usize = 64 * 1024;
/// What people are shown of what a hook says is no longer.
const TEXT_LIMIT: usize = 300;

/// What asking needs to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The binary whose `reach` command calls [`run_reach_child`].
    pub exe: PathBuf,
    /// The command that calls [`run_ask_child`] with the words that follow.
    pub launcher: Vec<OsString>,
    /// The mount namespace in which names of servers are looked up; `None`: the agent's own.
    pub namespace: Option<PathBuf>,
    /// The network namespace in which servers are tried; `None`: the agent's own.
    pub network: Option<PathBuf>,
}

/// So many paths are followed at a time.
const FOLLOWING_MAX: usize = 4;

/// Asks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Asker {
    settings: Arc<Settings>,
    /// Programs of hooks that were killed and live on.
    stuck: Arc<AtomicUsize>,
    /// Threads that look for hooks.
    connecting: Arc<AtomicUsize>,
    /// Children that try servers, or follow paths.
    trying: Arc<AtomicUsize>,
    /// Paths are followed a few at a time: at the start of a node there may be many, and each has its answer.
    following: Arc<Semaphore>,
}

/// Why there is no answer, and what people are told of it.
#[derive(Debug)]
struct Failure {
    why: NoAnswer,
    text: String,
}

impl Failure {
    fn new(why: NoAnswer, text: impl Into<String>) -> Self {
        Self { why, text: text.into() }
    }
}

impl Asker {
    /// Nothing is started before the first question.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let (stuck, connecting, trying) = (Arc::default(), Arc::default(), Arc::default());
        let following = Arc::new(Semaphore::new(FOLLOWING_MAX));
        Self { settings: Arc::new(settings), stuck, connecting, trying, following }
    }

    /// Asks a hook, with the evidence as JSON.
    pub async fn ask(&self, question: Question, evidence: Vec<u8>) -> AnswerReport {
        let begun = clock::now();
        let Question { id, volume, hook, .. } = question;
        let said = match &hook.how {
            HookWay::Exec(argv) => {
                let program = (self.settings.launcher.as_slice(), argv.as_slice());
                exec::ask(program, &evidence, hook.timeout, &self.stuck).await
            }
            HookWay::Post(address) => {
                let asked = timeout(hook.timeout, post::ask(address, evidence, &self.connecting)).await;
                asked.unwrap_or_else(|_| Err(Failure::new(NoAnswer::TimedOut, listener(address))))
            }
        };
        let understood = said.and_then(|body| {
            answer::parse(&body).map_err(|error| Failure::new(NoAnswer::Bad, error.to_string()))
        });
        let (answer, text) = match understood {
            Ok((answer, text)) => (answer, text),
            Err(Failure { why, text }) => (Answer::Nothing(why), text),
        };
        let took = clock::now().since(begun);
        AnswerReport { id, volume, answer, text: shown(&text), took }
    }

    /// Tries a server.
    pub async fn reach(&self, order: ReachOrder) -> ReachReport {
        let said = reach::ask(&self.settings, &order, &self.trying).await;
        let (reach, addresses) = said.unwrap_or_else(|error| {
            tracing::debug!(error = %crate::error_chain::chain(&error), "A server could not be tried");
            (Reach::Unknown, Vec::new())
        });
        ReachReport { service: order.service, reach, addresses }
    }

    /// Follows a path over symbolic links. `Some(None)`: it leads to no other. `None`: nobody can tell.
    pub async fn follow(&self, path: &BytePath) -> Option<Option<BytePath>> {
        // It is never closed.
        let _turn = self.following.acquire().await;
        let told = follow::ask(&self.settings, path, &self.trying).await;
        let note = |error: &reach::ReachError| {
            tracing::debug!(error = %crate::error_chain::chain(error), "A mount point could not be followed");
        };
        told.inspect_err(note).ok()
    }
}

fn listener(address: &HookAddress) -> String {
    match address {
        HookAddress::Http { authority, .. } => authority.clone(),
        HookAddress::Unix(path) => path.clone(),
    }
}

/// One line without secrets and of bounded length.
fn shown(text: &str) -> String {
    let line: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let hidden = hide(&line);
    if hidden.chars().count() <= TEXT_LIMIT {
        return hidden;
    }
    hidden.chars().take(TEXT_LIMIT).chain(['…']).collect()
}

#[cfg(test)]
mod tests;
