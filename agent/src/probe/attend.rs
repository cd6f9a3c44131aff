//! One order, from the start of a worker to its answer or its abandonment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_core::engine::ProbeOrder;
use agent_core::id::ProbeId;
use agent_core::observation::{NotRun, ProbeReport, ProbeResult, ProbeStep};
use agent_core::time::Monotonic;
use tokio::sync::{mpsc, oneshot};

use super::Settings;
use super::process::{Lost, StartError, Worker};
use super::protocol::{Malformed, Reply, Request};
use crate::error_chain::chain;
use crate::sys::clock;

/// A probe that takes longer no longer holds a place that another could have. Longer than a healthy server
/// needs, and short enough that dozens of volumes that hang at once delay nobody by a deadline.
const PROMPT: Duration = Duration::from_millis(100);

/// What the dispatcher learns of an order. `Slow` and `Gone` may follow one another; each order ends with
/// exactly one of `Answered`, `Abandoned` and `Failed`.
pub(super) enum News {
    /// It is slow: its place is free for another.
    Slow(ProbeId),
    /// Answered in time; the worker is free again.
    Answered(ProbeReport, Box<Worker>),
    /// The deadline passed. `Gone` follows when the worker has come back, or has ended because this was dropped.
    Abandoned(ProbeReport, oneshot::Sender<()>),
    /// No answer, for a reason of the agent's own. The worker is being killed. `Gone` follows.
    Failed(ProbeReport),
    /// The worker's process has ended. With the order's id when it had been late, and with what it said then.
    Gone(Option<(ProbeId, Option<ProbeReport>)>),
}

/// What an order needs besides a worker.
pub(super) struct Attendant {
    pub(super) settings: Arc<Settings>,
    pub(super) news: mpsc::Sender<News>,
    /// Processes started so far, by all attendants.
    pub(super) started_total: Arc<AtomicU64>,
    /// Why the last one did not start, until one does.
    pub(super) start_error: Arc<Mutex<Option<Arc<str>>>>,
}

/// How a conversation about one request ended.
enum End {
    Answered(ProbeResult),
    Late(ProbeStep),
    /// It has not announced a step by the deadline: it has had no turn yet, and has not touched the volume.
    Unbegun,
    Lost(Lost),
}

/// Why an order has no worker, and what is left of the one that should have become it.
struct NoWorker {
    error: StartError,
    started: Option<Box<Worker>>,
}

impl Attendant {
    /// Carries out the order with a worker that is ready, or with a new one.
    pub(super) async fn attend(self, order: ProbeOrder, ready: Option<Box<Worker>>) {
        let id = order.id;
        let (mut worker, started, end) = match self.converse(&order, ready).await {
            Ok(conversation) => conversation,
            Err(NoWorker { error, started }) => {
                tracing::debug!(volume = %order.volume, error = %error, "No probe worker");
                let reason = match error {
                    StartError::Refused(_) => NotRun::Unreachable,
                    _ => NotRun::WorkerLost,
                };
                self.tell(News::Failed(report(order, clock::now(), ProbeResult::NotRun(reason)))).await;
                // After the answer: a process that hangs at its start may never end.
                if let Some(worker) = started {
                    worker.end().await;
                }
                return self.tell(News::Gone(None)).await;
            }
        };
        let returned = match end {
            End::Answered(result) => {
                return self.tell(News::Answered(report(order, started, result), worker)).await;
            }
            End::Late(step) => {
                let (letting_go, is_let_go) = oneshot::channel();
                let told = report(order.clone(), started, ProbeResult::TimedOut { step });
                self.tell(News::Abandoned(told, letting_go)).await;
                let late = tokio::select! {
                    reply = worker.next_reply() => match reply {
                        Ok(Reply::Done(result)) => Some(report(order, started, result)),
                        Ok(Reply::Ready | Reply::Refused(_) | Reply::Planted(_)) | Err(_) => None,
                    },
                    // Never a word, only the end of the other side.
                    _ = is_let_go => None,
                };
                Some((id, late))
            }
            End::Unbegun => {
                tracing::debug!(volume = %order.volume, "Probe worker has not begun");
                self.lose(order, started).await;
                None
            }
            End::Lost(lost) => {
                tracing::debug!(volume = %order.volume, error = %lost, "Probe worker lost");
                self.lose(order, started).await;
                None
            }
        };
        worker.end().await;
        self.tell(News::Gone(returned)).await;
    }

    async fn lose(&self, order: ProbeOrder, started: Monotonic) {
        let result = ProbeResult::NotRun(NotRun::WorkerLost);
        self.tell(News::Failed(report(order, started, result))).await;
    }

    /// A worker that was ready may have died since (the kernel's out-of-memory killer, say). When it had not
    /// begun, a new one takes over.
    async fn converse(
        &self,
        order: &ProbeOrder,
        ready: Option<Box<Worker>>,
    ) -> Result<(Box<Worker>, Monotonic, End), NoWorker> {
        let request = Request::from(order);
        if let Some(mut worker) = ready {
            let started = clock::now();
            let end = self.wait_for_answer(&mut worker, order, &request).await;
            if !matches!(end, End::Lost(_)) || worker.step().is_some() {
                return Ok((worker, started, end));
            }
            // Killed, and reaped by the runtime. It had begun nothing, so nobody has to wait for its end.
            drop(worker);
        }
        let mut worker = self.start().await?;
        let started = clock::now();
        let end = self.wait_for_answer(&mut worker, order, &request).await;
        Ok((worker, started, end))
    }

    async fn start(&self) -> Result<Box<Worker>, NoWorker> {
        let started = self.try_to_start().await;
        let error = started.as_ref().err().map(|none| chain(&none.error).into());
        *self.start_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
        started
    }

    async fn try_to_start(&self) -> Result<Box<Worker>, NoWorker> {
        let worker = Worker::spawn(&self.settings).map_err(|error| NoWorker { error, started: None })?;
        let mut worker = Box::new(worker);
        self.started_total.fetch_add(1, Ordering::Relaxed);
        match worker.greet().await {
            Ok(()) => Ok(worker),
            Err(error) => Err(NoWorker { error, started: Some(worker) }),
        }
    }

    async fn wait_for_answer(&self, worker: &mut Worker, order: &ProbeOrder, request: &Request) -> End {
        if let Err(lost) = worker.ask(request).await {
            return End::Lost(lost);
        }
        let deadline = tokio::time::sleep(order.deadline);
        let slow = tokio::time::sleep(PROMPT);
        tokio::pin!(deadline, slow);
        let mut is_slow = false;
        loop {
            tokio::select! {
                // The answer first: when the agent itself was late, the worker was not.
                biased;
                reply = worker.next_reply() => return match reply {
                    Ok(Reply::Done(result)) => End::Answered(result),
                    Ok(Reply::Ready | Reply::Refused(_) | Reply::Planted(_)) => {
                        End::Lost(Lost::Malformed(Malformed::Unknown { what: "reply to a request", value: 0 }))
                    }
                    Err(lost) => End::Lost(lost),
                },
                () = &mut deadline => return worker.step().map_or(End::Unbegun, End::Late),
                () = &mut slow, if !is_slow => {
                    is_slow = true;
                    self.tell(News::Slow(order.id)).await;
                }
            }
        }
    }

    async fn tell(&self, news: News) {
        // Fails only when the dispatcher has ended, and this task with it.
        let _ = self.news.send(news).await;
    }
}

/// The report of a probe that began at `started` and ends now.
pub(super) fn report(order: ProbeOrder, started: Monotonic, result: ProbeResult) -> ProbeReport {
    let took = clock::now().since(started);
    ProbeReport { id: order.id, volume: order.volume, generation: order.generation, started, took, result }
}
