//! Active checks by a pool of disposable worker processes.
//!
//! The agent itself never looks at a watched path: a call on a dead mount may never return, and cannot be
//! called off. Workers look. A worker that misses its deadline is abandoned and its place is free at once. It is not
//! killed: where a signal ends the wait for a server, its end would say nothing, and an answer that comes late tells
//! a slow volume from one that hangs. The pool tells what it said at last, or that it is gone because it was let go. Workers
//! that answer in time are used again, so a healthy mount never costs a fork.
//!
//! At most one probe per superblock may be out: that is the engine's business, which waits for
//! [`ProbeEvent::Returned`] before it looks again at what hangs. The pool bounds the number of processes.

use std::path::PathBuf;
use std::sync::Arc;

use agent_core::engine::ProbeOrder;
use agent_core::id::ProbeId;
use agent_core::observation::ProbeReport;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

mod attend;
mod dispatch;
#[cfg(test)]
pub(crate) mod lab;
mod privileges;
pub mod plant;
pub mod planting;
pub mod process;
pub mod protocol;
pub mod steps;
pub mod worker;

use dispatch::Dispatcher;
use process::{StartError, Worker};

/// How the pool starts and bounds its workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The program; called as `EXE worker --parent PID [--namespace PATH]`.
    pub exe: PathBuf,
    /// The mount namespace to look in; the agent's own when absent.
    pub namespace: Option<PathBuf>,
    /// How many probes may run at once, not counting those that are already slow. At least 1.
    pub workers: usize,
    /// How many abandoned workers there may be before no probe is started any more. There are never more
    /// than this and `workers` processes together.
    pub abandoned_max: usize,
}

impl Default for Settings {
    /// `/proc/self/exe` is resolved by the child itself: it is this very program, also after an upgrade has
    /// replaced or removed the file.
    ///
    /// Each file system that hangs holds one abandoned worker, of half a mebibyte. With as many as are allowed the
    /// node is blind for all its other volumes: so the number is one that no filer with a hundred exports reaches.
    fn default() -> Self {
        Self { exe: PathBuf::from("/proc/self/exe"), namespace: None, workers: 8, abandoned_max: 256 }
    }
}

/// What comes back from the pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProbeEvent {
    /// The answer to an order. Exactly one for each.
    Report(ProbeReport),
    /// The worker of an order that was answered with `TimedOut` is gone: its superblock may be probed again.
    Returned(ProbeId),
    /// The same, and it has answered after all.
    Late(ProbeReport),
}

/// The pool in numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Probes that a worker has taken and not answered.
    pub inflight: usize,
    /// Workers that are late, or were killed and are not gone yet.
    pub abandoned: usize,
    /// Worker processes started so far.
    pub started_total: u64,
    /// Workers that are busy or ready.
    pub workers: usize,
    /// So many are abandoned that nothing is started any more.
    pub is_at_cap: bool,
    /// Why the last worker that should have started did not, until one does.
    pub start_error: Option<Arc<str>>,
}

/// What the dispatcher is asked for.
enum Wish {
    Look(ProbeOrder),
    LetGo(ProbeId),
}

/// The handle of the pool. Dropping it ends the pool like [`Pool::shutdown`], without waiting.
#[derive(Debug)]
pub struct Pool {
    /// Unbounded, since `start` must never wait; the engine orders at most one probe per superblock.
    wishes: mpsc::UnboundedSender<Wish>,
    stats: watch::Receiver<Stats>,
    /// Set to true, or dropped, it ends the dispatcher.
    closing: watch::Sender<bool>,
    dispatcher: JoinHandle<()>,
}

impl Pool {
    /// Starts the pool, without a worker yet. Needs a runtime whose thread lives as long as the agent.
    #[must_use]
    pub fn new(settings: Settings, events: mpsc::Sender<ProbeEvent>) -> Self {
        let (wishes, inbox) = mpsc::unbounded_channel();
        let (stats_sender, stats) = watch::channel(Stats::default());
        let (closing, closing_seen) = watch::channel(false);
        let dispatcher = Dispatcher::new(settings, events, stats_sender, closing_seen);
        Self { wishes, stats, closing, dispatcher: tokio::spawn(dispatcher.run(inbox)) }
    }

    /// Tries whether a worker can be started and can work here: for the start of the agent and for
    /// `mountie doctor`.
    ///
    /// # Errors
    /// Says why not, for people.
    pub async fn check(settings: &Settings) -> Result<(), StartError> {
        let mut worker = Worker::spawn(settings)?;
        let ready = worker.greet().await;
        worker.end().await;
        ready
    }

    /// Orders a probe. Never waits. The deadline counts from the moment at which a worker takes it.
    pub fn start(&self, order: ProbeOrder) {
        // Fails only after the pool has ended, when nobody waits for answers.
        let _ = self.wishes.send(Wish::Look(order));
    }

    /// Kills the worker of an order that was answered with `TimedOut`. Never waits; [`ProbeEvent::Returned`] follows
    /// when it is gone, unless the kernel holds it in its call for ever.
    pub fn let_go(&self, order: ProbeId) {
        // As above.
        let _ = self.wishes.send(Wish::LetGo(order));
    }

    /// The pool in numbers, as of its last change.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats.borrow().clone()
    }

    /// Kills every worker and returns without waiting for those that cannot be killed. What is out is not
    /// answered any more.
    pub async fn shutdown(self) {
        self.closing.send_replace(true);
        // Fails only when the runtime itself is ending.
        let _ = self.dispatcher.await;
    }
}

#[cfg(test)]
mod tests;
