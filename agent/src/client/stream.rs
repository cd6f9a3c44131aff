//! Follows what happens, across restarts of the agent: nothing is shown twice, and what is missing is said.
//!
//! A task of its own reads, so that whoever listens may do something else meanwhile. It comes back by itself, for the
//! event after the last one that it has handed on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{ClientError, http};
use crate::export::event_id::EventId;
use crate::export::percent::PercentEncoded;
use crate::export::view::{EventView, LostView, PulseView};

/// The pause before a connection is tried again, at first …
const PAUSE: Duration = Duration::from_millis(100);
/// … and at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// What may wait for whoever listens. Beyond that the agent is told to wait, and tells what it could not keep.
const QUEUE: usize = 64;

/// What is heard.
#[derive(Debug)]
pub(super) enum News {
    /// Something happened: as it was sent, and as it is understood.
    Event(String, Box<EventView>),
    /// Something is missing.
    Lost(String, LostView),
    /// The agent does not answer, and is waited for.
    Gone(ClientError),
    /// It answers again.
    Back,
}

/// The task that reads. Ends when this is dropped.
pub(super) struct Following {
    news: mpsc::Receiver<News>,
    task: JoinHandle<()>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Following {
    /// Follows from now on, or from after an event.
    pub(super) fn begin(socket: &Path, volume: Option<&str>, after: Option<EventId>) -> Self {
        let (out, news) = mpsc::channel(QUEUE);
        let reader = Reader { socket: socket.to_owned(), volume: volume.map(str::to_owned), after, out };
        Self { news, task: tokio::spawn(reader.run()) }
    }

    /// The next thing. Nothing is lost when this is given up for something else.
    pub(super) async fn next(&mut self) -> News {
        match self.news.recv().await {
            Some(news) => news,
            // The task ends only after its listener.
            None => std::future::pending().await,
        }
    }

    /// Takes what has come already.
    pub(super) fn drain(&mut self) {
        while self.news.try_recv().is_ok() {}
    }
}

struct Reader {
    socket: PathBuf,
    volume: Option<String>,
    /// The last event that was handed on, or after which to begin.
    after: Option<EventId>,
    out: mpsc::Sender<News>,
}

/// Nobody listens any more.
struct NobodyListens;

impl Reader {
    async fn run(mut self) {
        let mut pause = PAUSE;
        let mut told: Option<String> = None;
        loop {
            let mut lines = match http::lines(&self.socket, &self.path()).await {
                Ok(lines) => lines,
                Err(error) => {
                    let text = error.to_string();
                    if told.as_ref() != Some(&text) && self.say(News::Gone(error)).await.is_err() {
                        return;
                    }
                    told = Some(text);
                    sleep(pause).await;
                    pause = LONGEST_PAUSE.min(pause * 2);
                    continue;
                }
            };
            if told.take().is_some() && self.say(News::Back).await.is_err() {
                return;
            }
            // However it ends: what matters is whether the agent can be reached again.
            while let Ok(Some(line)) = lines.next().await {
                pause = PAUSE;
                if self.take(line).await.is_err() {
                    return;
                }
            }
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    fn path(&self) -> String {
        let after = self.after.map(|after| format!("&after={after}")).unwrap_or_default();
        let volume = self.volume.as_deref();
        let volume = volume.map(|volume| format!("&volume={}", PercentEncoded(volume))).unwrap_or_default();
        format!("/api/v1/events?follow=true{after}{volume}")
    }

    async fn take(&mut self, line: String) -> Result<(), NobodyListens> {
        // What every line has. A line of another kind than this version knows is passed over, and so is not missing.
        let Ok(PulseView { kind, id, .. }) = serde_json::from_str(&line) else { return Ok(()) };
        let is_known =
            self.after.is_some_and(|after| after.run() == id.run() && id.number() <= after.number());
        match kind.as_str() {
            "pulse" => {}
            "lost" => {
                if let Ok(lost) = serde_json::from_str(&line) {
                    self.say(News::Lost(line, lost)).await?;
                }
            }
            _ if is_known => return Ok(()),
            _ => {
                if let Ok(event) = serde_json::from_str(&line) {
                    self.say(News::Event(line, event)).await?;
                }
            }
        }
        self.after = Some(id);
        Ok(())
    }

    async fn say(&self, news: News) -> Result<(), NobodyListens> {
        self.out.send(news).await.map_err(|_| NobodyListens)
    }
}
