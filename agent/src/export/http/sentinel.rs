//! `POST /api/v1/sentinel`: has a worker put a sentinel on a volume. On the unix socket alone, for
//! root and the agent's own user alone.

use std::sync::Arc;

use agent_core::id::VolumeId;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use tokio::time::timeout;

use super::listen::{LONGEST_CHECK, Peer};
use super::{Shared, failure};
use crate::export::view::SentinelOrder;
use crate::export::{Command, SentinelRefusal, SentinelWish};
use crate::sys::peer::own_uid;

pub(super) async fn plant(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    order: Result<Json<SentinelOrder>, JsonRejection>,
) -> Response {
    // The order of these checks matters: who may not ask learns nothing about volumes.
    if !peer.may_change(own_uid()) {
        let error = "only root and the agent's own user may have something written, over the agent's unix socket; try \
                     again as root";
        return failure(StatusCode::FORBIDDEN, error.to_owned(), Vec::new());
    }
    let SentinelOrder { volume, path, content, adopt } = match order {
        Ok(Json(order)) => order,
        Err(rejection) => return failure(StatusCode::BAD_REQUEST, rejection.body_text(), Vec::new()),
    };
    let (volume, wish) = (VolumeId::new(volume), SentinelWish { path, content, adopt });
    let asked = shared.order(|done| Command::PlantSentinel { volume, wish, done });
    let about_to_end = || Err(SentinelRefusal::NoAnswer("the agent is about to end".to_owned()));
    let no_answer = "no worker has answered in time; if one is already at it, the sentinel may still be put there; see \
                     `mountie describe`";
    match timeout(LONGEST_CHECK, asked).await.map(|answer| answer.unwrap_or_else(about_to_end)) {
        Ok(Ok(answer)) => (StatusCode::OK, Json(answer)).into_response(),
        Ok(Err(refusal)) => failure(status_of(&refusal), refusal.to_string(), Vec::new()),
        Err(_) => failure(StatusCode::GATEWAY_TIMEOUT, no_answer.to_owned(), Vec::new()),
    }
}

const fn status_of(refusal: &SentinelRefusal) -> StatusCode {
    match refusal {
        SentinelRefusal::NoSuchVolume(_) => StatusCode::NOT_FOUND,
        SentinelRefusal::Wrong(_) => StatusCode::BAD_REQUEST,
        SentinelRefusal::Exists(_) => StatusCode::PRECONDITION_FAILED,
        SentinelRefusal::Sick(_) => StatusCode::CONFLICT,
        SentinelRefusal::NoAnswer(_) => StatusCode::GATEWAY_TIMEOUT,
    }
}
