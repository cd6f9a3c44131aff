//! The status page: `/`, and `/?volume=` for one volume. Documents without anything from elsewhere, whole without
//! scripts; the script that they carry only loads them anew when something happens, and says when it cannot.
//!
//! Browsers are told to run exactly that script and to use exactly that style, by their hashes, and to load nothing.

use std::sync::{Arc, LazyLock};

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::volumes::find;
use super::{Shared, Snapshot, failure};
use crate::export::view::doctor::DoctorReport;
use crate::export::view::{EventView, VolumeList, VolumeView};
use filter::Filter;
use html::Document;

mod filter;
mod frame;
mod html;
mod overview;
mod parts;
mod volume;

const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/live.js");
/// Events on the overview.
const EVENTS: usize = 30;
/// Events on the page of a volume.
const EVENTS_OF_ONE: usize = 100;

/// What browsers may do with a page.
static RULES: LazyLock<Option<HeaderValue>> = LazyLock::new(|| {
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
    let rules = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; img-src data:; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        hash(SCRIPT),
        hash(STYLE)
    );
    HeaderValue::try_from(rules).ok()
});

/// The query of the overview.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    q: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    from: usize,
    volume: Option<String>,
}

/// Every volume, or those that the filter takes. `?volume=` is the address of one that holds for any name: browsers
/// take `..` in a path for something else.
pub(super) async fn overview(
    State(shared): State<Arc<Shared>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Response {
    let asked = match asked {
        Ok(Query(asked)) => asked,
        Err(rejection) => {
            let error = format!("{}; the parameters are q, state, from and volume", rejection.body_text());
            return failure(StatusCode::BAD_REQUEST, error, Vec::new());
        }
    };
    if let Some(id) = asked.volume {
        return of_volume(&shared, id).await;
    }
    let made = shared.beside(move |shared, snapshot| {
        let filter = Filter::new(&asked.q, &asked.state, asked.from);
        let list = VolumeList::new(snapshot);
        let doctor = DoctorReport::of_agent(&shared.host, snapshot);
        let events = events(shared, snapshot, EVENTS, |_| true);
        served(StatusCode::OK, overview::page(&list, &filter, &events, &doctor))
    });
    made.await.into_response()
}

/// The last events, with their times as the snapshot has them.
fn events(
    shared: &Shared,
    snapshot: &Snapshot,
    most: usize,
    wanted: impl Fn(&EventView) -> bool,
) -> Vec<EventView> {
    let events = shared.chronicle.latest(most, wanted);
    events.iter().map(|event| event.as_of(snapshot.clock())).collect()
}

async fn of_volume(shared: &Arc<Shared>, id: String) -> Response {
    let made = shared.beside(move |shared, snapshot| match find(snapshot, &id) {
        Some(volume) => {
            let view = VolumeView::new(volume, snapshot);
            let events = events(shared, snapshot, EVENTS_OF_ONE, |event| event.is_about(&view.id));
            served(StatusCode::OK, volume::page(&view, snapshot.timestamp(), &events, &shared.host))
        }
        None => served(StatusCode::NOT_FOUND, not_there(&id, shared, snapshot)),
    });
    made.await.into_response()
}

fn not_there(id: &str, shared: &Shared, snapshot: &Snapshot) -> Document {
    volume::not_there(id, snapshot.timestamp(), &shared.host)
}

fn served(status: StatusCode, page: Document) -> Response {
    let mut answer = (status, Html(page.into_text())).into_response();
    if let Some(rules) = RULES.clone() {
        answer.headers_mut().insert(header::CONTENT_SECURITY_POLICY, rules);
    }
    answer.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    answer
}

#[cfg(test)]
mod tests;
