//! The task that owns all workers: hands out orders, keeps the bounds, counts.
//!
//! The bounds, and what each is for:
//! * `workers` probes may be *prompt* at once: that bounds what a burst costs.
//! * A probe that has taken longer than a moment is *slow* and no longer counts there. So a hundred volumes
//!   that hang at the same time do not keep the healthy ones waiting for a hundred deadlines.
//! * `workers + abandoned_max` processes may exist in all, slow and abandoned ones included. Orders above
//!   that wait.
//! * With `abandoned_max` workers abandoned nothing is started: orders are answered with `TooManyAbandoned`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_core::engine::ProbeOrder;
use agent_core::id::ProbeId;
use agent_core::observation::{NotRun, ProbeReport, ProbeResult};
use agent_core::time::Monotonic;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::attend::{Attendant, News, report};
use super::process::Worker;
use super::{ProbeEvent, Settings, Stats, Wish};
use crate::sys::clock;

/// A worker that was not needed for so long is ended. Longer than any usual interval between probes.
const SPARE_TIME: Duration = Duration::from_secs(60);

/// A worker without an order.
struct Idle {
    worker: Box<Worker>,
    since: Monotonic,
}

/// The owner of all workers.
pub(super) struct Dispatcher {
    settings: Arc<Settings>,
    /// To the event loop. Waiting for room here is fine: the loop never waits for the pool.
    events: mpsc::Sender<ProbeEvent>,
    stats: watch::Sender<Stats>,
    /// Turns true, or loses its sender, when the pool must end. Checked in every wait for the event loop,
    /// which may have stopped reading by then.
    closing: watch::Receiver<bool>,
    /// Given to each attendant.
    news_sender: mpsc::Sender<News>,
    news: mpsc::Receiver<News>,
    /// One task for each order that a worker has taken, until the worker is free or gone. Dropping it kills
    /// their workers.
    attendants: JoinSet<()>,
    started_total: Arc<AtomicU64>,
    start_error: Arc<Mutex<Option<Arc<str>>>>,
    queue: VecDeque<ProbeOrder>,
    /// Last in, first out: what is not needed stays unused, and is ended after a while.
    idle: Vec<Idle>,
    running: BTreeSet<ProbeId>,
    /// Those of `running` that no longer count as prompt.
    slow: BTreeSet<ProbeId>,
    /// Those whose deadline has passed. Dropping the other end has the worker killed.
    late: BTreeMap<ProbeId, oneshot::Sender<()>>,
    abandoned: usize,
}

impl Dispatcher {
    pub(super) fn new(
        settings: Settings,
        events: mpsc::Sender<ProbeEvent>,
        stats: watch::Sender<Stats>,
        closing: watch::Receiver<bool>,
    ) -> Self {
        // Attendants wait while the dispatcher waits for the event loop; nobody waits for an attendant.
        let (news_sender, news) = mpsc::channel(settings.workers.max(1));
        let settings = Settings { workers: settings.workers.max(1), ..settings };
        Self {
            settings: Arc::new(settings),
            events,
            stats,
            closing,
            news_sender,
            news,
            attendants: JoinSet::new(),
            started_total: Arc::default(),
            start_error: Arc::default(),
            queue: VecDeque::new(),
            idle: Vec::new(),
            running: BTreeSet::new(),
            slow: BTreeSet::new(),
            late: BTreeMap::new(),
            abandoned: 0,
        }
    }

    /// Runs until the handle is dropped or asks for the end.
    pub(super) async fn run(mut self, mut wishes: mpsc::UnboundedReceiver<Wish>) {
        let mut closing = self.closing.clone();
        loop {
            tokio::select! {
                () = wait_for_closing(&mut closing) => break,
                wish = wishes.recv() => match wish {
                    Some(Wish::Look(order)) => self.queue.push_back(order),
                    Some(Wish::LetGo(id)) => drop(self.late.remove(&id)),
                    None => break,
                },
                // This object holds a sender, so the channel never ends.
                Some(news) = self.news.recv() => self.take(news).await,
                Some(_) = self.attendants.join_next() => {}
            }
            self.hand_out().await;
            self.stats.send_replace(self.count());
        }
        self.idle.clear();
        self.attendants.shutdown().await;
    }

    async fn take(&mut self, news: News) {
        match news {
            News::Slow(id) => {
                if self.running.contains(&id) {
                    self.slow.insert(id);
                }
            }
            News::Answered(report, worker) => {
                self.finish(report).await;
                self.keep(worker);
            }
            News::Abandoned(report, letting_go) => {
                self.abandoned += 1;
                self.late.insert(report.id, letting_go);
                self.finish(report).await;
            }
            News::Failed(report) => {
                self.abandoned += 1;
                self.finish(report).await;
            }
            News::Gone(returned) => {
                self.abandoned = self.abandoned.saturating_sub(1);
                if let Some((id, late)) = returned {
                    self.late.remove(&id);
                    self.send(late.map_or(ProbeEvent::Returned(id), ProbeEvent::Late)).await;
                }
            }
        }
    }

    async fn finish(&mut self, report: ProbeReport) {
        self.running.remove(&report.id);
        self.slow.remove(&report.id);
        self.send(ProbeEvent::Report(report)).await;
    }

    async fn send(&self, event: ProbeEvent) {
        let mut closing = self.closing.clone();
        tokio::select! {
            // Fails only when the event loop has ended; the pool ends right after.
            _ = self.events.send(event) => {}
            () = wait_for_closing(&mut closing) => {}
        }
    }

    fn keep(&mut self, worker: Box<Worker>) {
        let now = clock::now();
        if self.idle.len() < self.settings.workers {
            self.idle.push(Idle { worker, since: now });
        } else {
            self.attendants.spawn(worker.end());
        }
        // The first has been unused for the longest time. One always stays ready.
        while self.idle.len() > 1 && self.idle.first().is_some_and(|idle| now.since(idle.since) > SPARE_TIME)
        {
            self.attendants.spawn(self.idle.remove(0).worker.end());
        }
    }

    async fn hand_out(&mut self) {
        while !self.queue.is_empty() {
            if self.abandoned >= self.settings.abandoned_max {
                for order in std::mem::take(&mut self.queue) {
                    let result = ProbeResult::NotRun(NotRun::TooManyAbandoned);
                    self.send(ProbeEvent::Report(report(order, clock::now(), result))).await;
                }
                return;
            }
            if !self.has_room() {
                return;
            }
            let Some(order) = self.queue.pop_front() else { return };
            self.running.insert(order.id);
            let attendant = Attendant {
                settings: Arc::clone(&self.settings),
                news: self.news_sender.clone(),
                started_total: Arc::clone(&self.started_total),
                start_error: Arc::clone(&self.start_error),
            };
            let ready = self.idle.pop().map(|idle| idle.worker);
            self.attendants.spawn(attendant.attend(order, ready));
        }
    }

    fn has_room(&self) -> bool {
        let prompt = self.running.len().saturating_sub(self.slow.len());
        let bound = self.settings.workers + self.settings.abandoned_max;
        prompt < self.settings.workers && self.running.len() + self.abandoned < bound
    }

    fn count(&self) -> Stats {
        Stats {
            inflight: self.running.len(),
            abandoned: self.abandoned,
            started_total: self.started_total.load(Ordering::Relaxed),
            workers: self.running.len() + self.idle.len(),
            is_at_cap: self.abandoned >= self.settings.abandoned_max,
            start_error: self.start_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

/// Returns when the pool must end.
async fn wait_for_closing(closing: &mut watch::Receiver<bool>) {
    // An error means that the handle was dropped: the same.
    let _ = closing.wait_for(|closing| *closing).await;
}
