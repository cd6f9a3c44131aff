//! The volume-plugin protocol of Docker, as far as it only asks: an orchestrator that asks about a volume gets the
//! truth in its `Status`. Nothing is created, mounted or removed.
//!
//! `VolumeDriver.Get` has the volume looked at first, within a deadline, at most once a second, and healthy automounts
//! never: such questions are asked over and over by programs.
//!
//! Known are only volumes that have a name of their own, by exactly that name: the daemon asks every driver for a name
//! that it does not know, and keeps to the one that has it. Names with a leading slash are not allowed by the protocol.

use std::sync::Arc;
use std::time::Duration;

use agent_core::status::VolumeStatus;
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::timeout;

use super::check::{self, Turn, Unchecked};
use super::listen::Peer;
use super::{LARGEST_POST, Shared, Snapshot};
use crate::export::timestamp::Timestamp;
use crate::export::view::VolumeView;

/// The type of every answer.
const MEDIA_TYPE: &str = "application/vnd.docker.plugins.v1.1+json";
/// Who asks waits no longer than this, whatever deadlines volumes have.
const WITHIN: Duration = Duration::from_secs(20);
/// What must be changed elsewhere.
const CHANGES: [&str; 4] =
    ["/VolumeDriver.Create", "/VolumeDriver.Remove", "/VolumeDriver.Mount", "/VolumeDriver.Unmount"];

/// The routes.
pub(super) fn routes(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/Plugin.Activate", post(activate))
        .route("/VolumeDriver.Capabilities", post(capabilities))
        .route("/VolumeDriver.List", post(list))
        .route("/VolumeDriver.Get", post(get))
        .route("/VolumeDriver.Path", post(path))
        .fallback(not_offered)
        .method_not_allowed_fallback(only_posted)
        .layer(DefaultBodyLimit::max(LARGEST_POST))
        .with_state(shared)
}

type Posted = Result<Bytes, BytesRejection>;

/// What is asked. Fields that only changes have are left alone.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Question {
    name: String,
}

/// A volume.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Volume {
    name: String,
    mountpoint: String,
    status: Status,
}

/// How it is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Status {
    state: String,
    sick: bool,
    reason: Option<String>,
    since: Timestamp,
    message: String,
    advice: Vec<String>,
    last_ok: Option<Timestamp>,
    /// Whether it was looked at for this answer.
    checked: bool,
    /// Why it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_checked: Option<String>,
}

impl Volume {
    fn new(volume: &VolumeStatus, snapshot: &Snapshot, looked: Result<(), String>) -> Self {
        let view = VolumeView::new(volume, snapshot);
        let status = Status {
            state: view.state,
            sick: view.sick,
            reason: view.reason,
            since: view.since,
            message: view.message,
            advice: view.advice,
            last_ok: view.last_ok,
            checked: looked.is_ok(),
            not_checked: looked.err(),
        };
        Self { name: view.id, mountpoint: place(volume), status }
    }
}

/// As the kernel has it: programs take it for a path. Nothing where it is no text.
fn place(volume: &VolumeStatus) -> String {
    std::str::from_utf8(volume.mountpoint.as_bytes()).unwrap_or_default().to_owned()
}

/// The volumes that have a name of their own.
fn named(snapshot: &Snapshot) -> impl Iterator<Item = &VolumeStatus> {
    snapshot.volumes.iter().filter(|volume| !volume.id.as_str().starts_with('/'))
}

async fn activate() -> Response {
    answer(StatusCode::OK, &json!({ "Implements": ["VolumeDriver"] }))
}

async fn capabilities() -> Response {
    answer(StatusCode::OK, &json!({ "Capabilities": { "Scope": "local" } }))
}

async fn list(State(shared): State<Arc<Shared>>) -> Response {
    let made = shared.beside(|_, snapshot| {
        let named = named(snapshot);
        let known = || Err("the list is what is known; ask for one volume".to_owned());
        let volumes: Vec<Volume> = named.map(|volume| Volume::new(volume, snapshot, known())).collect();
        answer(StatusCode::OK, &json!({ "Volumes": volumes, "Err": "" }))
    });
    made.await.into_response()
}

async fn get(State(shared): State<Arc<Shared>>, body: Posted) -> Response {
    let name = match name(body) {
        Ok(name) => name,
        Err(refusal) => return *refusal,
    };
    let snapshot = shared.snapshot();
    let Some(volume) = named(&snapshot).find(|volume| volume.id.as_str() == name) else {
        return no_such_volume(&name);
    };
    let id = volume.id.clone();
    let (looked, status) = match check::turn(Peer::Remote(None), volume) {
        Turn::Never => (Err("an automount that is in order is not kept from expiring".to_owned()), None),
        Turn::In(pause) => match timeout(WITHIN, check::one(&shared, id.clone(), pause)).await {
            Ok(Ok(status)) => (Ok(()), Some(status)),
            Ok(Err(unchecked)) => (Err(unchecked.to_string()), None),
            Err(_) => (Err(Unchecked::NoAnswer.to_string()), None),
        },
    };
    let snapshot = shared.snapshot();
    let known = || snapshot.volumes.iter().find(|volume| volume.id == id).cloned();
    match status.or_else(known) {
        Some(status) => {
            let volume = Volume::new(&status, &snapshot, looked);
            answer(StatusCode::OK, &json!({ "Volume": volume, "Err": "" }))
        }
        None => no_such_volume(&name),
    }
}

async fn path(State(shared): State<Arc<Shared>>, body: Posted) -> Response {
    match name(body) {
        Ok(name) => match named(&shared.snapshot()).find(|volume| volume.id.as_str() == name) {
            Some(volume) => answer(StatusCode::OK, &json!({ "Mountpoint": place(volume), "Err": "" })),
            None => no_such_volume(&name),
        },
        Err(refusal) => *refusal,
    }
}

async fn not_offered(uri: Uri) -> Response {
    if CHANGES.contains(&uri.path()) {
        return refuse(
            StatusCode::INTERNAL_SERVER_ERROR,
            "mountie only tells how volumes are; it creates, mounts and removes none: use the mount point itself",
        );
    }
    refuse(StatusCode::NOT_FOUND, &format!("there is nothing at {}", uri.path()))
}

async fn only_posted() -> Response {
    refuse(StatusCode::METHOD_NOT_ALLOWED, "questions are posted")
}

fn name(body: Posted) -> Result<String, Box<Response>> {
    let body = body.map_err(|rejection| Box::new(refuse(rejection.status(), &rejection.body_text())))?;
    let question: Result<Question, _> = serde_json::from_slice(&body);
    question.map(|question| question.name).map_err(|error| {
        Box::new(refuse(StatusCode::BAD_REQUEST, &format!("the question is not understood: {error}")))
    })
}

/// The protocol has no status for it: what is not there is an error like others.
fn no_such_volume(name: &str) -> Response {
    refuse(StatusCode::INTERNAL_SERVER_ERROR, &format!("there is no volume `{name}`"))
}

fn refuse(status: StatusCode, error: &str) -> Response {
    answer(status, &json!({ "Err": error }))
}

fn answer(status: StatusCode, body: &serde_json::Value) -> Response {
    (status, [(header::CONTENT_TYPE, MEDIA_TYPE)], body.to_string()).into_response()
}
