//! `mountie events`: what has happened, and what happens.

use std::future::Future;
use std::path::Path;
use std::pin::pin;

use agent_core::path::visible_json;

use super::stream::{Following, News};
use super::table::clean;
use super::{ClientError, Console, Look, Output, http, written};
use crate::exit_code::ExitCode;
use crate::export::percent::PercentEncoded;
use crate::export::view::{EventList, EventView, LostView};

/// Events that are shown before those that come, when nobody says how many.
const BEFORE: usize = 10;
/// Begins each event in YAML: a stream of documents.
const DOCUMENT: &str = "---\n";

/// What was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventsRequest {
    /// Of one volume alone.
    pub volume: Option<String>,
    /// At most so many of those that have happened.
    pub limit: Option<usize>,
    /// Only those after this one, by its id.
    pub after: Option<String>,
    /// Go on with those that happen.
    pub follow: bool,
    /// How to print.
    pub output: Output,
}

impl EventsRequest {
    /// What is said when there are none.
    fn nothing(&self) -> &'static str {
        match self {
            Self { limit: Some(0), .. } => "no events were asked for",
            Self { after: Some(_), .. } => "nothing has happened since that event",
            Self { volume: Some(_), .. } => "nothing that is remembered has happened to that volume",
            Self { .. } => "nothing has happened since the agent started",
        }
    }
}

/// Prints events: those that are remembered, and with `follow` those that happen until `until`.
pub async fn events(
    socket: &Path,
    request: &EventsRequest,
    until: impl Future<Output = ()>,
    console: &mut Console<'_>,
) -> ExitCode {
    let result = async {
        let list = ask(socket, request).await?;
        if request.follow {
            follow(socket, request, list, until, console).await
        } else {
            let look = console.look;
            console.show(&list, request.output, |list| text(list, request.nothing(), look))?;
            Ok(ExitCode::Ok)
        }
    }
    .await;
    console.end(result)
}

async fn ask(socket: &Path, request: &EventsRequest) -> Result<EventList, ClientError> {
    // Nothing may be left out after an event that is named.
    let default = (request.follow && request.after.is_none()).then_some(BEFORE);
    let mut parts = Vec::new();
    parts.extend(request.limit.or(default).map(|limit| format!("limit={limit}")));
    parts.extend(request.after.as_deref().map(|after| format!("after={}", PercentEncoded(after))));
    parts.extend(request.volume.as_deref().map(|volume| format!("volume={}", PercentEncoded(volume))));
    let path = format!("/api/v1/events?{}", parts.join("&"));
    let (_, list) = http::get_json(socket, &path, (http::WITHIN, &[])).await?;
    Ok(list)
}

/// The list, oldest first, and then what happens after the last event that the list knew of.
async fn follow(
    socket: &Path,
    request: &EventsRequest,
    list: EventList,
    until: impl Future<Output = ()>,
    console: &mut Console<'_>,
) -> Result<ExitCode, ClientError> {
    let mut news = Following::begin(socket, request.volume.as_deref(), Some(list.last));
    let output = request.output;
    if let Some(lost) = missing(&list) {
        console.go_on(&one(&lost, None, output, || lost_line(&lost))?)?;
    }
    let look = console.look;
    for event in list.events.iter().rev() {
        console.go_on(&one(event, None, output, || line(event, look))?)?;
    }
    let mut until = pin!(until);
    loop {
        let heard = tokio::select! {
            () = &mut until => return Ok(ExitCode::Ok),
            heard = news.next() => heard,
        };
        match heard {
            News::Event(raw, event) => {
                console.go_on(&one(&*event, Some(raw), output, || line(&event, look))?)?;
            }
            News::Lost(raw, lost) => console.go_on(&one(&lost, Some(raw), output, || lost_line(&lost))?)?,
            News::Gone(error) => console.complain(&format_args!("{error}; waiting for it")),
            News::Back => console.complain(&"the agent answers again"),
        }
    }
}

/// What a list says about what is not in it, as a stream says it.
fn missing(list: &EventList) -> Option<LostView> {
    let message = match list.missed {
        _ if list.restarted => {
            "the agent has started anew; what happened between is not known here".to_owned()
        }
        Some(missed) => format!("{missed} events are no longer remembered"),
        None => return None,
    };
    Some(LostView { kind: "lost".to_owned(), at: list.at, id: list.last, missed: list.missed, message })
}

/// One thing that happened: a line for people, a line of JSON (as it was sent, where it was), or a document of YAML.
fn one<T: serde::Serialize>(
    value: &T,
    raw: Option<String>,
    output: Output,
    text: impl FnOnce() -> String,
) -> Result<String, ClientError> {
    match output {
        // The views hold nothing that JSON cannot.
        Output::Json => {
            let line = raw.unwrap_or_else(|| serde_json::to_string(value).unwrap_or_default());
            Ok(visible_json(&line) + "\n")
        }
        Output::Yaml => Ok(format!("{DOCUMENT}{}", written(value, output, |_| String::new())?)),
        Output::Table | Output::Wide | Output::Name => Ok(text()),
    }
}

/// A list for people: as a log, the newest last.
fn text(list: &EventList, nothing: &str, look: Look) -> String {
    let lost = missing(list).map(|lost| lost_line(&lost));
    let lines = list.events.iter().rev().map(|event| line(event, look));
    let text: String = lost.into_iter().chain(lines).collect();
    if text.is_empty() { format!("{nothing}\n") } else { text }
}

fn lost_line(lost: &LostView) -> String {
    clean(&format!("{}  {}", lost.at, lost.message)) + "\n"
}

/// An event in one line: when, about what, what, why.
fn line(event: &EventView, look: Look) -> String {
    let subject = match (&event.volume, event.volumes.len()) {
        (Some(volume), _) => volume.clone(),
        (None, 0) => "all volumes".to_owned(),
        (None, count) => format!("{count} volumes"),
    };
    let reason = event.reason.as_deref().map(|reason| format!(" ({})", clean(reason))).unwrap_or_default();
    let what = match (event.kind.as_str(), &event.from, &event.to) {
        ("transition", Some(from), Some(to)) => {
            format!("{} → {}", look.state(&clean(from)), look.state(&clean(to)))
        }
        (kind, ..) => clean(&kind.replace('_', " ")),
    };
    let number = event.incident.filter(|_| event.volume.is_none());
    let number = number.map(|number| format!(" {number}")).unwrap_or_default();
    let by = event.by.as_ref().map(|by| match by.comm.as_str() {
        "" => format!(" by uid {}", by.uid),
        comm => format!(" by uid {} ({})", by.uid, clean(comm)),
    });
    let by = by.unwrap_or_default();
    let message =
        if event.message.is_empty() { String::new() } else { format!(": {}", clean(&event.message)) };
    format!("{}  {}  {what}{number}{reason}{by}{message}\n", event.at, clean(&subject))
}

#[cfg(test)]
mod tests;
