//! `POST /api/v1/ack/{id}`: a person knows of the data that a volume has lost. It changes something: only over the
//! unix socket, and only for root and for the agent's own user.

use std::sync::Arc;

use agent_core::engine::AckAnswer as Answer;
use agent_core::health::loss::Actor;
use axum::Extension;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;

use super::asked::Id;
use super::listen::Peer;
use super::volumes::{find, no_such_volume};
use super::{Command, Shared, failure};
use crate::export::view::AckAnswer;
use crate::sys::peer;

/// The event loop answers at once, the disk under the state within its own deadline.
const WITHIN: std::time::Duration = std::time::Duration::from_secs(8);

/// Takes an acknowledgement.
pub(super) async fn acknowledge(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    Id(id): Id,
) -> Response {
    let by = match actor(peer, peer::own_uid()) {
        Ok(by) => by,
        Err(error) => return failure(StatusCode::FORBIDDEN, error, Vec::new()),
    };
    let snapshot = shared.snapshot();
    let Some(volume) = find(&snapshot, &id).map(|volume| volume.id.clone()) else {
        return no_such_volume(&snapshot, &id);
    };
    let asked = shared.order(|done| Command::Acknowledge { volume: volume.clone(), by, done });
    match timeout(WITHIN, asked).await {
        Ok(Some((Answer::NoSuchVolume, _))) => no_such_volume(&snapshot, &id),
        Ok(Some((answer, kept))) => {
            let snapshot = shared.snapshot();
            let acknowledged = answer == Answer::Done;
            let body = AckAnswer {
                at: snapshot.timestamp(),
                volume: volume.to_string(),
                acknowledged,
                kept,
                message: sentence(acknowledged, kept).to_owned(),
            };
            let status = if acknowledged { StatusCode::OK } else { StatusCode::CONFLICT };
            (status, Json(body)).into_response()
        }
        Ok(None) | Err(_) => {
            let error = "the agent did not answer; ask it what it knows: mountie describe".to_owned();
            failure(StatusCode::SERVICE_UNAVAILABLE, error, Vec::new())
        }
    }
}

const fn sentence(acknowledged: bool, kept: bool) -> &'static str {
    match (acknowledged, kept) {
        (true, true) => "what was lost or damaged is acknowledged; what else is wrong with the volume stays",
        (true, false) => {
            "what was lost or damaged is acknowledged, but that could not be written to the state directory: a \
             restart of the agent forgets it"
        }
        (false, _) => "there is nothing to acknowledge: no loss of data and no damage is open on this volume",
    }
}

/// Who it is, if they may.
pub(super) fn actor(peer: Peer, own: u32) -> Result<Actor, String> {
    match peer {
        Peer::Remote(_) => {
            Err("changes are made through the agent's unix socket, by the commands of mountie on the node"
                .to_owned())
        }
        Peer::Local { uid, pid } if peer.may_change(own) => {
            Ok(Actor { uid, pid, comm: peer::name_of_process(pid) })
        }
        Peer::Local { uid, .. } => Err(format!(
            "this is for root and for the agent's own user (uid {own}), and uid {uid} asked; try again as root"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_own_user_may_over_the_socket_alone() {
        let local = |uid| Peer::Local { uid, pid: std::process::id() };
        for uid in [0, 1000] {
            let by = actor(local(uid), 1000).unwrap();
            assert_eq!((by.uid, by.pid), (uid, std::process::id()));
            assert!(!by.comm.is_empty());
        }
        let refused = actor(local(1001), 1000).unwrap_err();
        assert!(refused.contains("uid 1001 asked") && refused.contains("as root"), "{refused}");
        assert!(actor(Peer::Remote(None), 0).unwrap_err().contains("unix socket"));
    }
}
