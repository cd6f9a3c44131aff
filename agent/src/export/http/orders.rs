//! What people order: `POST /api/v1/pause`, `/resume`, `/remount` and `/forget`, for one volume with its name behind
//! it. Over the unix socket alone, for root and the agent's own user. And `GET /api/v1/plan/{id}`, which changes
//! nothing.

use std::sync::Arc;
use std::time::Duration;

use agent_core::health::loss::Actor;
use agent_core::id::VolumeId;
use agent_core::order::{Done, Order, Refused};
use agent_core::pause::Scope;
use axum::Extension;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::ack::actor;
use super::asked::{Id, Posted};
use super::listen::Peer;
use super::volumes::{find, no_such_volume};
use super::{Command, Shared, failure};
use crate::export::view::{OrderAnswer, PauseOrder, PlanPreview};
use crate::export::words::orders;
use crate::sys::{clock, peer};

/// The event loop answers at once, the disk under the state within its own deadline; a look that is out ends within
/// the deadline of its volume.
const WITHIN: Duration = Duration::from_secs(8);
/// The pause before an order that waits for a look is given again.
const AGAIN: Duration = Duration::from_millis(50);
/// The longest pause: longer ones are without an end.
const LONGEST: u64 = 366 * 24 * 3600;
/// A reason is a sentence.
const LONGEST_REASON: usize = 500;

pub(super) async fn pause(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    id: Option<Id>,
    Posted(body): Posted,
) -> Response {
    let by = match who(peer) {
        Ok(by) => by,
        Err(error) => return forbidden(error),
    };
    let PauseOrder { seconds, reason } = match read(&body) {
        Ok(order) => order,
        Err(error) => return failure(StatusCode::BAD_REQUEST, error, Vec::new()),
    };
    let until = seconds.map(|seconds| clock::now() + Duration::from_secs(seconds));
    give(&shared, id, by, |scope| Order::Pause { scope, until, reason: reason.clone() }).await
}

pub(super) async fn resume(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    id: Option<Id>,
) -> Response {
    match who(peer) {
        Ok(by) => give(&shared, id, by, Order::Resume).await,
        Err(error) => forbidden(error),
    }
}

pub(super) async fn remount(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    Id(id): Id,
) -> Response {
    about_one(&shared, peer, id, Order::Remount).await
}

pub(super) async fn forget(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    Id(id): Id,
) -> Response {
    about_one(&shared, peer, id, Order::Forget).await
}

/// What a remount would do now. Anybody may ask: the permit is held until the event loop has answered, so that a crowd
/// never fills the queue in which orders stand.
pub(super) async fn plan(State(shared): State<Arc<Shared>>, Id(id): Id) -> Response {
    let name = id.clone();
    let found = shared.beside(move |_, snapshot| find(snapshot, &name).map(|volume| volume.id.clone()));
    let volume = match found.await {
        Ok(Some(volume)) => volume,
        Ok(None) => {
            let made = shared.beside(move |_, snapshot| no_such_volume(snapshot, &id));
            return made.await.into_response();
        }
        Err(status) => return status.into_response(),
    };
    let asked = async {
        // The semaphore is never closed.
        let _permit = shared.previews.acquire().await.ok()?;
        shared.order(|done| Command::Preview { volume, done }).await
    };
    match timeout(WITHIN, asked).await {
        Ok(Some(Ok(preview))) => {
            let made = shared.beside(move |_, snapshot| Json(PlanPreview::of(&preview, snapshot.clock())));
            made.await.into_response()
        }
        Ok(Some(Err(refused))) => no(&shared, &id, &refused),
        Ok(None) | Err(_) => silent(),
    }
}

fn who(peer: Peer) -> Result<Actor, String> {
    actor(peer, peer::own_uid())
}

fn forbidden(error: String) -> Response {
    failure(StatusCode::FORBIDDEN, error, Vec::new())
}

fn read(body: &[u8]) -> Result<PauseOrder, String> {
    if body.is_empty() {
        return Ok(PauseOrder::default());
    }
    let order: PauseOrder = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if order.seconds.is_some_and(|seconds| !(1..=LONGEST).contains(&seconds)) {
        return Err(
            "a pause lasts from one second to a year; leave its length out for one without an end".to_owned()
        );
    }
    if order.reason.as_ref().is_some_and(|reason| reason.len() > LONGEST_REASON) {
        return Err(format!("a reason has at most {LONGEST_REASON} bytes"));
    }
    Ok(order)
}

async fn about_one(shared: &Shared, peer: Peer, id: String, make: impl Fn(VolumeId) -> Order) -> Response {
    let by = match who(peer) {
        Ok(by) => by,
        Err(error) => return forbidden(error),
    };
    let name = VolumeId::new(id.clone());
    give(shared, Some(Id(id)), by, |scope| match scope {
        Scope::Volume(volume) => make(volume),
        Scope::Node => make(name.clone()),
    })
    .await
}

/// Gives the order and answers with what came of it.
async fn give(shared: &Shared, id: Option<Id>, by: Actor, make: impl Fn(Scope) -> Order) -> Response {
    let snapshot = shared.snapshot();
    let scope = match &id {
        None => Scope::Node,
        // A name that is not shown may still be one that something is kept of.
        Some(Id(id)) => Scope::Volume(
            find(&snapshot, id).map_or_else(|| VolumeId::new(id.as_str()), |found| found.id.clone()),
        ),
    };
    drop(snapshot);
    let begun = clock::now();
    let asked = async {
        loop {
            let (done, answer) = oneshot::channel();
            let command = Command::Order { order: make(scope.clone()), by: by.clone(), done };
            shared.commands.send(command).await.ok()?;
            match answer.await.ok()? {
                (Err(Refused::Looking), _) if clock::now().since(begun) < WITHIN / 2 => sleep(AGAIN).await,
                answer => return Some(answer),
            }
        }
    };
    match timeout(WITHIN, asked).await {
        Ok(Some((Ok(done), kept))) => yes(shared, scope, &done, kept),
        Ok(Some((Err(refused), _))) => no(shared, &named(&scope).unwrap_or_default(), &refused),
        Ok(None) | Err(_) => silent(),
    }
}

fn named(scope: &Scope) -> Option<String> {
    match scope {
        Scope::Node => None,
        Scope::Volume(id) => Some(id.to_string()),
    }
}

fn yes(shared: &Shared, scope: Scope, done: &Done, kept: bool) -> Response {
    let snapshot = shared.snapshot();
    let plan = match done {
        Done::Remounting(plan) => Some(PlanPreview::new(plan)),
        Done::Paused { .. } | Done::Resumed { .. } | Done::Forgotten { .. } => None,
    };
    let message = orders::done(done, kept, snapshot.clock());
    let answer =
        OrderAnswer { at: snapshot.timestamp(), volume: named(&scope), done: true, kept, message, plan };
    Json(answer).into_response()
}

fn no(shared: &Shared, id: &str, refused: &Refused) -> Response {
    let snapshot = shared.snapshot();
    let status = match refused {
        Refused::NoSuchVolume => return no_such_volume(&snapshot, id),
        // What the configuration says, or does not.
        Refused::Off | Refused::Found | Refused::Incomplete(_) => StatusCode::UNPROCESSABLE_ENTITY,
        Refused::NotPaused
        | Refused::Idle
        | Refused::Occupied
        | Refused::Paused(_)
        | Refused::Busy(_)
        | Refused::Unsettled
        | Refused::Looking => StatusCode::CONFLICT,
    };
    let subject = if id.is_empty() { String::new() } else { format!("{id}: ") };
    failure(status, format!("{subject}{}", orders::refused(refused, snapshot.clock())), Vec::new())
}

fn silent() -> Response {
    let error = "the agent did not answer; ask it what it knows: mountie describe".to_owned();
    failure(StatusCode::SERVICE_UNAVAILABLE, error, Vec::new())
}

#[cfg(test)]
mod tests;
