//! `/api/v1/events`: what has happened, as a list and as a stream.
//!
//! A stream sends what happens from now on, or after the event that is named, as server-sent events or as lines of
//! JSON. Nothing is lost silently: who reads so slowly that events are no longer remembered is told so and the stream
//! ends; who comes back names the last event that it has seen, and is told what is missing since then. A stream that
//! takes nothing at all is broken off, without the end that a whole answer has.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http_body_util::channel::{Channel, Sender};
use hyper::body::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::listen::{Guest, try_again};
use super::volumes::{find, no_such_volume};
use super::{Shared, Snapshot, failure, json, written};
use crate::export::chronicle::Chronicle;
use crate::export::event_id::EventId;
use crate::export::timestamp::Timestamp;
use crate::export::view::{EventList, EventView, LostView, PulseView};
use crate::sys::clock;

/// A browser that lost the stream comes back after so many milliseconds.
const RETRY: u32 = 2000;
/// Events that are read at once.
const BATCH: usize = 64;
/// What names the last event that a browser has seen.
const LAST_EVENT_ID: &str = "last-event-id";
/// The types of a stream of lines.
const LINES: [&str; 2] = ["application/x-ndjson", "application/jsonl"];

/// The query.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    #[serde(default)]
    follow: bool,
    after: Option<EventId>,
    volume: Option<String>,
    limit: Option<usize>,
}

/// Answers with the list, or begins a stream.
pub(super) async fn events(
    State(shared): State<Arc<Shared>>,
    Extension(guest): Extension<Arc<Guest>>,
    headers: HeaderMap,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Response {
    let asked = match asked.map_err(|rejection| rejection.body_text()) {
        Ok(Query(asked)) => seen_last(&headers).map(|seen| Asked { after: seen.or(asked.after), ..asked }),
        Err(error) => Err(error),
    };
    let asked = match asked.and_then(|asked| shared.has_been(asked.after).map(|()| asked)) {
        Ok(asked) => asked,
        Err(error) => {
            let error =
                format!("{error}; the parameters are follow=true, after=ID, volume=NAME and limit=NUMBER");
            return failure(StatusCode::BAD_REQUEST, error, Vec::new());
        }
    };
    let follows = asked.follow;
    let made = shared.with_permit_of(&shared.answers, move |shared, snapshot| {
        let volume = match asked.volume.as_deref().map(|name| shared.named(snapshot, name)).transpose() {
            Ok(volume) => volume,
            Err(refusal) => return Made::Answer(*refusal),
        };
        let wanted = Wanted { after: asked.after, volume, limit: asked.limit.unwrap_or(usize::MAX) };
        if follows { Made::Stream(wanted) } else { Made::Answer(list(shared, snapshot, &wanted)) }
    });
    match made.await {
        Ok(Made::Stream(wanted)) => follow(&shared, &guest, &headers, wanted),
        Ok(Made::Answer(answer)) => answer,
        Err(status) => status.into_response(),
    }
}

/// What became of a question.
enum Made {
    /// All of the answer.
    Answer(Response),
    /// A stream begins.
    Stream(Wanted),
}

/// What is asked, with the volume by the name that events have.
struct Wanted {
    after: Option<EventId>,
    volume: Option<String>,
    limit: usize,
}

/// The event that a browser names when it comes back. It counts more than the address, which is that of the first time.
fn seen_last(headers: &HeaderMap) -> Result<Option<EventId>, String> {
    let Some(value) = headers.get(LAST_EVENT_ID).filter(|value| !value.is_empty()) else { return Ok(None) };
    let text = value.to_str().map_err(|_| "the header Last-Event-ID is no text".to_owned())?;
    text.parse().map(Some).map_err(|error| format!("Last-Event-ID: {error}"))
}

fn list(shared: &Shared, snapshot: &Arc<Snapshot>, wanted: &Wanted) -> Response {
    let is_everything = wanted.after.is_none() && wanted.volume.is_none() && wanted.limit == usize::MAX;
    if is_everything {
        let last = shared.chronicle.last();
        return json(shared.told.text(last, snapshot, || written(&listed(shared, snapshot, wanted))));
    }
    Json(listed(shared, snapshot, wanted)).into_response()
}

fn listed(shared: &Shared, snapshot: &Snapshot, wanted: &Wanted) -> EventList {
    let chronicle = &shared.chronicle;
    let (number, restarted) = wanted.after.map_or((0, false), |after| after.place_in(chronicle.last()));
    let read = chronicle.after(number, usize::MAX);
    let mut last = read.last;
    let mut events: Vec<&Arc<EventView>> =
        read.events.iter().filter(|event| is_wanted(event, wanted.volume.as_deref())).collect();
    if let Some(too_many) = events.len().checked_sub(wanted.limit).filter(|too_many| *too_many > 0) {
        if wanted.after.is_some() {
            // Who goes on from where it was goes on from the last that it is given.
            events.truncate(wanted.limit);
            last = events.last().map_or(EventId::new(last.run(), number + read.missed), |event| event.id);
        } else {
            events.drain(..too_many);
        }
    }
    let clock = snapshot.clock();
    let events = events.into_iter().rev().map(|event| event.as_of(clock)).collect();
    let missed = wanted.after.filter(|_| !restarted && read.missed > 0).map(|_| read.missed);
    EventList { at: snapshot.timestamp(), last, missed, restarted, events }
}

fn is_wanted(event: &EventView, volume: Option<&str>) -> bool {
    volume.is_none_or(|volume| event.is_about(volume))
}

impl EventId {
    /// After which number to go on in the run of `last`, and whether this is an event of another run.
    fn place_in(self, last: Self) -> (u64, bool) {
        if self.run() == last.run() { (self.number(), false) } else { (0, true) }
    }
}

impl Shared {
    /// Nobody has seen an event that is still to come.
    fn has_been(&self, after: Option<EventId>) -> Result<(), String> {
        let last = self.chronicle.last();
        match after.filter(|after| after.run() == last.run() && after.number() > last.number()) {
            Some(after) => Err(format!("after: there is no event {after} yet, the last is {last}")),
            None => Ok(()),
        }
    }

    /// A volume by its name or place; one that is no more, by the name under which events tell of it.
    fn named(&self, snapshot: &Snapshot, name: &str) -> Result<String, Box<Response>> {
        if let Some(volume) = find(snapshot, name) {
            return Ok(volume.id.to_string());
        }
        let is_told_of =
            !self.chronicle.latest(1, |event| !event.is_about_all() && event.is_about(name)).is_empty();
        is_told_of.then(|| name.to_owned()).ok_or_else(|| Box::new(no_such_volume(snapshot, name)))
    }
}

fn follow(shared: &Shared, guest: &Arc<Guest>, headers: &HeaderMap, wanted: Wanted) -> Response {
    if !guest.follow() {
        return try_again("as many follow events as may; try again, or ask without follow=true".to_owned());
    }
    let form = Form::wanted(headers);
    let (sender, body) = Channel::new(1);
    let news = shared.chronicle.news();
    let last = shared.chronicle.last();
    let (at, restarted) = wanted.after.map_or((last.number(), false), |after| after.place_in(last));
    let chronicle = Arc::clone(&shared.chronicle);
    let (volume, takes_within, pulse) = (wanted.volume, guest.takes_within(), guest.pulse());
    let follower = Follower { chronicle, news, at, volume, form, takes_within, pulse };
    tokio::spawn(follower.run(restarted, sender, Arc::clone(guest)));
    let headers = [
        (header::CONTENT_TYPE, form.media_type()),
        (header::CACHE_CONTROL, "no-store"),
        // Proxies otherwise collect what they pass on.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::new(body)).into_response()
}

/// How a stream is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// As browsers read it.
    ServerSent,
    /// One JSON object a line.
    Lines,
}

impl Form {
    fn wanted(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut types = accepted.flat_map(|value| value.split(',')).filter_map(|one| one.split(';').next());
        if types.any(|one| LINES.contains(&one.trim())) { Self::Lines } else { Self::ServerSent }
    }

    const fn media_type(self) -> &'static str {
        match self {
            Self::ServerSent => "text/event-stream",
            Self::Lines => "application/x-ndjson",
        }
    }

    /// Where the stream begins: a browser that loses it at once comes back to here.
    fn beginning(self, id: EventId) -> String {
        match self {
            Self::ServerSent => format!("retry: {RETRY}\nid: {id}\n\n"),
            Self::Lines => String::new(),
        }
    }

    fn write(self, out: &mut String, id: EventId, what: &impl Serialize) {
        // The views hold nothing that JSON cannot, and JSON is one line.
        let json = serde_json::to_string(what).unwrap_or_default();
        let _ = match self {
            Self::ServerSent => write!(out, "id: {id}\ndata: {json}\n\n"),
            Self::Lines => writeln!(out, "{json}"),
        };
    }

    fn pulse(self, id: EventId) -> String {
        match self {
            // The id alone: a browser that comes back goes on from here, and not from what it was shown last.
            Self::ServerSent => format!(": nothing new\nid: {id}\n\n"),
            Self::Lines => {
                let mut line = String::new();
                self.write(&mut line, id, &PulseView { kind: "pulse".to_owned(), at: now(), id });
                line
            }
        }
    }
}

fn now() -> Timestamp {
    Timestamp::from_epoch(clock::wall())
}

/// Somebody who follows.
struct Follower {
    chronicle: Arc<Chronicle>,
    news: watch::Receiver<u64>,
    /// The number of the last event that was dealt with.
    at: u64,
    volume: Option<String>,
    form: Form,
    takes_within: Duration,
    pulse: Duration,
}

/// Why a stream ends.
#[derive(Debug)]
enum End {
    /// All that can be said was said.
    Told,
    /// Nobody reads any more.
    Gone,
    /// Nothing was taken for too long.
    Stalled,
}

/// What breaks an answer off.
#[derive(Debug)]
struct BrokenOff;

impl fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reader takes nothing")
    }
}

impl std::error::Error for BrokenOff {}

type Out = Sender<Bytes, BrokenOff>;

impl Follower {
    async fn run(mut self, restarted: bool, mut out: Out, guest: Arc<Guest>) {
        let end = tokio::select! {
            end = self.tell(restarted, &mut out) => end,
            // Its place is free at once, not only when there is something to send.
            () = guest.until_gone() => End::Gone,
        };
        match end {
            End::Told | End::Gone => drop(out),
            End::Stalled => out.abort(BrokenOff),
        }
        guest.is_over();
    }

    async fn tell(&mut self, restarted: bool, out: &mut Out) -> End {
        let mut text = self.form.beginning(EventId::new(self.chronicle.last().run(), self.at));
        if restarted {
            self.write_lost(&mut text, None);
        }
        // What is gone since its last visit is no reason to turn it away again.
        let mut is_new = true;
        let mut sent = Instant::now();
        loop {
            self.news.borrow_and_update();
            let read = self.chronicle.after(self.at, BATCH);
            if read.missed > 0 {
                self.at += read.missed;
                // Of another run nothing is counted, and it was said already.
                if !is_new || !restarted {
                    self.write_lost(&mut text, Some(read.missed));
                }
                if !is_new {
                    return self.send(text, out).await.err().unwrap_or(End::Told);
                }
            }
            is_new = false;
            for event in &read.events {
                self.at = event.id.number();
                if is_wanted(event, self.volume.as_deref()) {
                    self.form.write(&mut text, event.id, &**event);
                }
            }
            if !text.is_empty() {
                if let Err(end) = self.send(std::mem::take(&mut text), out).await {
                    return end;
                }
                sent = Instant::now();
            }
            if read.events.is_empty() {
                // What others hear of is no sign of life for this one.
                match timeout_at(sent + self.pulse, self.news.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return End::Told,
                    Err(_) => text.push_str(&self.form.pulse(self.place())),
                }
            }
        }
    }

    /// Sends a text as soon as there is room for it.
    async fn send(&self, text: String, out: &mut Out) -> Result<(), End> {
        match timeout(self.takes_within, out.send_data(Bytes::from(text))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Gone),
            Err(_) => Err(End::Stalled),
        }
    }

    fn write_lost(&self, text: &mut String, missed: Option<u64>) {
        let message = match missed {
            Some(missed) => {
                format!("{missed} events are no longer remembered; ask /api/v1/volumes how things stand")
            }
            None => "the agent has started anew; what happened between is not known here".to_owned(),
        };
        let id = self.place();
        let lost = LostView { kind: "lost".to_owned(), at: now(), id, missed, message };
        self.form.write(text, id, &lost);
    }

    fn place(&self) -> EventId {
        EventId::new(self.chronicle.last().run(), self.at)
    }
}
