//! `/api/v1/volumes` and `/api/v1/volumes/{id}`.

use std::sync::Arc;
use std::time::Duration;

use agent_core::id::VolumeId;
use agent_core::status::VolumeStatus;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;

use super::asked::Id;
use super::check::{self, Turn, Unchecked};
use super::listen::Peer;
use super::{Shared, Snapshot, failure, json, written};
use crate::export::view::{VolumeAnswer, VolumeList, VolumeView};

/// Names that an error lists at most.
const NAMES_IN_AN_ERROR: usize = 100;

/// The query of both paths.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// Probe first.
    #[serde(default)]
    check: bool,
}

/// Every volume; with `?check=true` after a probe of each.
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Response {
    let Query(asked) = match asked {
        Ok(asked) => asked,
        Err(rejection) => return bad_request(&rejection.body_text()),
    };
    let mut unanswered = Vec::new();
    if asked.check {
        let snapshot = shared.snapshot();
        let due = |volume: &VolumeStatus| match check::turn(peer, volume) {
            Turn::In(pause) => Some((volume.id.clone(), pause)),
            Turn::Never => None,
        };
        let volumes = snapshot.volumes.iter().filter_map(due).collect();
        match check::all(&shared, volumes).await {
            Ok(missing) => unanswered = missing,
            Err(unchecked) => return busy(unchecked),
        }
    }
    if unanswered.is_empty() {
        let made = shared.with_permit_of(&shared.answers, |shared, snapshot| {
            json(shared.listed.text((), snapshot, || written(&VolumeList::new(snapshot))))
        });
        return made.await.into_response();
    }
    let made = shared.beside(move |_, snapshot| {
        let unanswered = unanswered.iter().map(ToString::to_string).collect();
        (StatusCode::GATEWAY_TIMEOUT, Json(VolumeList { unanswered, ..VolumeList::new(snapshot) }))
            .into_response()
    });
    made.await.into_response()
}

/// One volume; with `?check=true` after a probe of it.
pub(super) async fn one(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    Id(id): Id,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Response {
    let Query(Asked { check }) = match asked {
        Ok(asked) => asked,
        Err(rejection) => return bad_request(&rejection.body_text()),
    };
    let made = shared.beside(move |_, snapshot| match find(snapshot, &id) {
        Some(volume) => match check::turn(peer, volume) {
            Turn::In(pause) if check => Found::ToCheck(volume.id.clone(), pause),
            Turn::In(_) | Turn::Never => Found::Answered(answer(StatusCode::OK, snapshot, volume, None)),
        },
        None => Found::Answered(no_such_volume(snapshot, &id)),
    });
    match made.await {
        Ok(Found::Answered(response)) => response,
        Ok(Found::ToCheck(id, pause)) => checked(&shared, id, pause).await,
        Err(status) => status.into_response(),
    }
}

/// What became of a request for one volume.
enum Found {
    /// All of it.
    Answered(Response),
    /// The volume is probed first, after this pause.
    ToCheck(VolumeId, Duration),
}

/// One volume after a probe of it.
async fn checked(shared: &Arc<Shared>, id: VolumeId, pause: Duration) -> Response {
    let result = check::one(shared, id.clone(), pause).await;
    let made = shared.beside(move |shared, snapshot| match result {
        // Its times are turned by the newest pairing of the clocks.
        Ok(checked) => answer(StatusCode::OK, snapshot, &checked, None),
        Err(Unchecked::NoAnswer) => match snapshot.volumes.iter().find(|volume| volume.id == id) {
            Some(volume) => {
                let error = why_unanswered(shared, snapshot, volume);
                answer(StatusCode::GATEWAY_TIMEOUT, snapshot, volume, Some(error))
            }
            None => no_such_volume(snapshot, id.as_str()),
        },
        Err(Unchecked::Vanished) => no_such_volume(snapshot, id.as_str()),
        Err(unchecked @ (Unchecked::TooMany | Unchecked::Stopping)) => busy(unchecked),
    });
    made.await.into_response()
}

fn why_unanswered(shared: &Shared, snapshot: &Snapshot, volume: &VolumeStatus) -> String {
    match volume.stuck_since {
        // Its own is out, or none can be made beside the one that hangs.
        Some(since) if !volume.probing => format!(
            "no probe is possible: a worker on the same superblock has not come back for {} s",
            snapshot.at.since(since).as_secs()
        ),
        _ => format!("the probe has not answered within {} s", shared.check_deadline().as_secs_f64()),
    }
}

/// By name, by mount point, or by mount point without its first slash: `/api/v1/volumes/mnt/a`.
pub(super) fn find<'a>(snapshot: &'a Snapshot, id: &str) -> Option<&'a VolumeStatus> {
    let by_name = |name: &str| snapshot.volumes.iter().find(|volume| volume.id.as_str() == name);
    let by_place =
        |place: &str| snapshot.volumes.iter().find(|volume| volume.mountpoint.to_string() == place);
    by_name(id).or_else(|| by_place(id)).or_else(|| {
        let slashed = format!("/{id}");
        by_name(&slashed).or_else(|| by_place(&slashed))
    })
}

fn answer(status: StatusCode, snapshot: &Snapshot, volume: &VolumeStatus, error: Option<String>) -> Response {
    let volume = VolumeView::new(volume, snapshot);
    (status, Json(VolumeAnswer { at: snapshot.timestamp(), volume, error })).into_response()
}

pub(super) fn no_such_volume(snapshot: &Snapshot, id: &str) -> Response {
    let ids = snapshot.volumes.iter().map(|volume: &VolumeStatus| -> &VolumeId { &volume.id });
    let mut known: Vec<String> = ids.map(ToString::to_string).collect();
    known.sort();
    known.truncate(NAMES_IN_AN_ERROR);
    failure(StatusCode::NOT_FOUND, format!("there is no volume `{id}`"), known)
}

fn bad_request(reason: &str) -> Response {
    failure(StatusCode::BAD_REQUEST, format!("{reason}; the only parameter is check=true"), Vec::new())
}

fn busy(unchecked: Unchecked) -> Response {
    failure(StatusCode::SERVICE_UNAVAILABLE, unchecked.to_string(), Vec::new())
}
