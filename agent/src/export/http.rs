//! HTTP: metrics, liveness, the API and the status page.
//!
//! Everything is answered from the last snapshot; no handler touches a mount or waits for the event loop, but
//! for `?check=true`, which waits for one probe and not beyond its deadline. Over TCP, where anybody may ask, even that
//! has a look made only where none was made in the last second, and never at a healthy automount. What changes
//! something comes over the unix socket, from root and the agent's own user alone.
//!
//! What takes longer the more volumes there are is made beside the event loop, which has only one thread.
//!
//! The same routes are served on TCP and on the unix socket; [`listen`] binds and serves them, `routes.rs` is their
//! table.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use hyper::body::Bytes;
use serde::Serialize;
use tokio::sync::{Semaphore, mpsc, oneshot};

use self::scrape::Scrapes;
use self::texts::Texts;
use super::chronicle::Chronicle;
use super::event_id::EventId;
use super::metrics::Metrics;
use super::view::doctor::{DoctorReport, HostFacts};
use super::view::{ErrorBody, IncidentList};
use super::{Command, Snapshot, SnapshotReceiver};
use crate::sensor::{SourceName, SourceState};
use crate::sys::clock;

pub mod listen;

mod ack;
mod asked;
mod check;
mod events;
mod openapi;
mod orders;
mod page;
mod plugin;
mod routes;
mod scrape;
mod sentinel;
mod texts;
mod volumes;

use routes::{ROUTES, Route};

/// The event loop publishes a snapshot at least every second; without one for this long it is dead or stuck.
const ALIVE_WITHIN: Duration = Duration::from_secs(10);
/// Requests for one volume that wait for its probe at the same time: as many as can read on one listener, since each
/// costs a connection and one message, and however many ask about a volume, one look answers them all. So a crowd on
/// one listener is never refused, and two crowds hold no more.
const CHECKS_AT_ONCE: usize = listen::READERS;
/// The same for all volumes. Each costs a message and an answer for every volume there is, and a second one learns
/// nothing that the first does not.
const CHECKS_OF_ALL_AT_ONCE: usize = 2;
/// Answers that are made at the same time, each on a thread of its own.
const ANSWERS_AT_ONCE: usize = 4;
/// Questions what a plan would do that the event loop has at the same time; others wait for their turn. It answers each
/// at once, and has room for many more commands.
const PREVIEWS_AT_ONCE: usize = 4;
/// Scrapes that are made at the same time, beside these.
const SCRAPES_AT_ONCE: usize = 1;
/// What is posted is small.
const LARGEST_POST: usize = 16 << 10;
/// What browsers are told of everything that brings no rules of its own: nothing here is a document that may load
/// anything.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// What the routes need.
#[derive(Clone, Debug)]
pub struct Api {
    /// What is shown.
    pub snapshots: SnapshotReceiver,
    /// What is counted.
    pub metrics: Metrics,
    /// The way to the event loop.
    pub commands: mpsc::Sender<Command>,
    /// What has happened.
    pub chronicle: Arc<Chronicle>,
    /// What `doctor` says about the host.
    pub host: HostFacts,
}

/// What is served.
#[derive(Clone, Debug)]
pub struct Routers {
    /// Everything, on TCP and the agent's socket.
    pub all: Router,
    /// The volume plugin, on a socket of its own.
    pub plugin: Router,
}

/// What handlers share.
#[derive(Debug)]
struct Shared {
    snapshots: SnapshotReceiver,
    metrics: Metrics,
    commands: mpsc::Sender<Command>,
    chronicle: Arc<Chronicle>,
    host: HostFacts,
    /// A permit for each request that waits for the probe of one volume.
    checks: Semaphore,
    /// A permit for each that waits for those of all.
    checks_of_all: Semaphore,
    /// A permit for each question about a plan that the event loop has.
    previews: Semaphore,
    /// A permit for each answer that is being made.
    answers: Arc<Semaphore>,
    /// The permit for a scrape: no other answer can take it.
    scrapes: Arc<Semaphore>,
    /// What the last scrapes were given.
    scraped: Scrapes,
    /// What those were given who asked for every volume.
    listed: Texts<(), 1>,
    /// What those were given who asked for every event, up to this one.
    told: Texts<EventId, 1>,
}

impl Shared {
    fn new(api: Api) -> Self {
        let Api { snapshots, metrics, commands, chronicle, host } = api;
        Self {
            snapshots,
            metrics,
            commands,
            chronicle,
            host,
            checks: Semaphore::new(CHECKS_AT_ONCE),
            checks_of_all: Semaphore::new(CHECKS_OF_ALL_AT_ONCE),
            previews: Semaphore::new(PREVIEWS_AT_ONCE),
            answers: Arc::new(Semaphore::new(ANSWERS_AT_ONCE)),
            scrapes: Arc::new(Semaphore::new(SCRAPES_AT_ONCE)),
            scraped: Scrapes::default(),
            listed: Texts::default(),
            told: Texts::default(),
        }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshots.borrow())
    }

    /// Has the event loop do something. `None`: the agent is about to end.
    async fn order<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (done, answer) = oneshot::channel();
        self.commands.send(command(done)).await.ok()?;
        answer.await.ok()
    }

    /// How long `?check=true` waits.
    fn check_deadline(&self) -> Duration {
        self.snapshots.borrow().check_deadline.min(listen::LONGEST_CHECK)
    }

    /// Makes an answer of a snapshot beside the event loop: thousands of volumes take milliseconds to write, and its
    /// one thread has better things to do.
    async fn beside<T: Send + 'static>(
        self: &Arc<Self>,
        make: impl FnOnce(&Self, &Snapshot) -> T + Send + 'static,
    ) -> Result<T, StatusCode> {
        self.with_permit_of(&self.answers, |shared, snapshot| make(shared, snapshot)).await
    }

    async fn with_permit_of<T: Send + 'static>(
        self: &Arc<Self>,
        permits: &Arc<Semaphore>,
        make: impl FnOnce(&Self, &Arc<Snapshot>) -> T + Send + 'static,
    ) -> Result<T, StatusCode> {
        // The semaphore is never closed.
        let permit = Arc::clone(permits).acquire_owned().await;
        let (shared, snapshot) = (Arc::clone(self), self.snapshot());
        let made = tokio::task::spawn_blocking(move || {
            let made = make(&shared, &snapshot);
            drop(permit);
            made
        });
        made.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// The routes. The results are cheap to clone and are served on as many listeners as there are.
pub fn routers(api: Api) -> Routers {
    let shared = Arc::new(Shared::new(api));
    Routers { all: routes(Arc::clone(&shared)), plugin: plugin::routes(shared) }
}

fn routes(shared: Arc<Shared>) -> Router {
    let offered =
        ROUTES.iter().fold(Router::new(), |router, route| router.route(route.path, (route.handler)()));
    offered
        .fallback(no_such_path)
        .method_not_allowed_fallback(read_only)
        .layer(DefaultBodyLimit::max(LARGEST_POST))
        .layer(map_response(with_rules))
        .with_state(shared)
}

/// Answers are what they say they are, and nothing else; they are not kept, and not shown inside other pages.
async fn with_rules(mut answer: Response) -> Response {
    let headers = answer.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(NOTHING));
    answer
}

async fn alive(State(shared): State<Arc<Shared>>) -> Response {
    match stalled_for(&shared.snapshot()) {
        None => "ok\n".into_response(),
        Some(age) => not_alive(age),
    }
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let snapshot = shared.snapshot();
    match stalled_for(&snapshot) {
        Some(age) => not_alive(age),
        // Ready all the same: nothing becomes better by waiting, and everything that is seen is watched.
        None if snapshot.ready => match snapshot.sources.get(&SourceName::HostView) {
            Some(SourceState::Off(reason)) => format!("ready\nhost_view: {reason}\n").into_response(),
            Some(SourceState::Running | SourceState::Degraded(_)) | None => "ready\n".into_response(),
        },
        None => {
            (StatusCode::SERVICE_UNAVAILABLE, "not every volume has been looked at yet\n").into_response()
        }
    }
}

/// For how long the event loop has been silent, if that is too long.
fn stalled_for(snapshot: &Snapshot) -> Option<Duration> {
    let age = clock::now().since(snapshot.at);
    (age > ALIVE_WITHIN).then_some(age)
}

fn not_alive(age: Duration) -> Response {
    let text = format!("the event loop has been silent for {} s\n", age.as_secs());
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn incidents(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    shared.beside(|_, snapshot| Json(IncidentList::new(snapshot)).into_response()).await
}

async fn doctor(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    shared
        .beside(|shared, snapshot| Json(DoctorReport::of_agent(&shared.host, snapshot)).into_response())
        .await
}

/// An answer as JSON. The views hold nothing that JSON cannot.
fn written(answer: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(answer).unwrap_or_default()
}

/// JSON that is written already.
fn json(text: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

async fn no_such_path(uri: Uri) -> Response {
    let shown = |route: &Route| route.shown() + if route.changes { " (POST)" } else { "" };
    let known = ROUTES.iter().map(shown).collect();
    failure(StatusCode::NOT_FOUND, format!("there is nothing at {}", uri.path()), known)
}

async fn read_only(method: Method) -> Response {
    let error = if [Method::GET, Method::HEAD].contains(&method) {
        format!("{method} is not offered here: this path changes something, with POST over the unix socket")
    } else {
        format!(
            "{method} is not offered here: everything is read with GET, and changed with POST over the unix socket"
        )
    };
    failure(StatusCode::METHOD_NOT_ALLOWED, error, Vec::new())
}

fn failure(status: StatusCode, error: String, known: Vec<String>) -> Response {
    (status, Json(ErrorBody { error, known })).into_response()
}

#[cfg(test)]
mod tests;
