//! What stands in a path, and what is posted: where it is not understood, the answer is JSON like every other one.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, OptionalFromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;

use super::failure;

/// A volume's name or mount point in a path.
#[derive(Debug)]
pub(super) struct Id(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        match <Path<String> as FromRequestParts<S>>::from_request_parts(parts, state).await {
            Ok(Path(id)) => Ok(Self(id)),
            Err(rejection) => Err(failure(StatusCode::BAD_REQUEST, rejection.body_text(), Vec::new())),
        }
    }
}

impl<S: Send + Sync> OptionalFromRequestParts<S> for Id {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Option<Self>, Response> {
        match <Path<String> as OptionalFromRequestParts<S>>::from_request_parts(parts, state).await {
            Ok(id) => Ok(id.map(|Path(id)| Self(id))),
            Err(rejection) => Err(failure(StatusCode::BAD_REQUEST, rejection.body_text(), Vec::new())),
        }
    }
}

/// What is posted. It has an end, and is not longer than what may be posted.
#[derive(Debug)]
pub(super) struct Posted(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for Posted {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let posted: Result<Bytes, BytesRejection> =
            <Bytes as FromRequest<S>>::from_request(request, state).await;
        posted.map(Self).map_err(|rejection| failure(rejection.status(), rejection.body_text(), Vec::new()))
    }
}
