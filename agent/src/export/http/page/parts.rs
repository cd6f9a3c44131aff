//! What several pages show: states, times, events.

use std::fmt::{self, Display};
use std::time::Duration;

use super::html::{Document, Escaped};
use crate::export::age;
use crate::export::percent::PercentEncoded;
use crate::export::timestamp::Timestamp;
use crate::export::view::{ActorView, EventView, PauseView, PlanView, VolumeView};

/// The look of a state, and a sign that tells it without colour.
pub(super) fn look(state: &str) -> (&'static str, &'static str) {
    match state {
        "healthy" => ("good", "✓"),
        "suspect" => ("warn", "!"),
        "degraded" => ("bad", "✕"),
        "recovering" => ("busy", "↻"),
        "probation" => ("busy", "◐"),
        "quarantined" => ("bad", "■"),
        _ => ("dim", "?"),
    }
}

/// A state with its sign, and its reason.
pub(super) fn badge(html: &mut Document, state: &str, reason: Option<&str>) {
    let (class, sign) = look(state);
    html.put(format_args!(
        "<span class=\"badge {class}\"><span class=\"sign\" aria-hidden=\"true\">{sign}</span> {}",
        Escaped(state)
    ));
    if let Some(reason) = reason {
        html.put(format_args!(" · {}", Escaped(reason)));
    }
    html.put(format_args!("</span>"));
}

/// The address of a volume's page.
pub(super) struct Address<'a>(pub(super) &'a str);

impl Display for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/?volume={}", PercentEncoded(self.0))
    }
}

/// What is so little ahead of a snapshot has happened while it was made.
const NOW: Duration = Duration::from_secs(1);

/// A time, and how long ago it was.
pub(super) struct Ago {
    pub(super) time: Timestamp,
    pub(super) now: Timestamp,
}

impl Display for Ago {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.time.whole_seconds();
        write!(f, "<time datetime=\"{time}\" title=\"{time}\">")?;
        // A moment later than what is shown is no time to come.
        let is_now = self.time > self.now && self.time.since(self.now) < NOW;
        if is_now {
            f.write_str("now</time>")
        } else if self.time > self.now {
            write!(f, "in {}</time>", age::span(self.time.since(self.now)))
        } else {
            write!(f, "{} ago</time>", age::span(self.now.since(self.time)))
        }
    }
}

/// Who has stopped repairs, and why.
pub(super) fn paused(pause: &PauseView) -> String {
    let ActorView { uid, comm, .. } = &pause.by;
    let who = if comm.is_empty() { format!("uid {uid}") } else { format!("uid {uid} ({comm})") };
    let why = pause.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("paused by {who}{why}")
}

/// What is done about a sick volume, or was, in one sentence; nothing where there is nothing to tell.
pub(super) fn done(volume: &VolumeView, now: Timestamp) -> Option<String> {
    if let Some(plan) = &volume.plan {
        let step = plan.done.last().or(plan.steps.first());
        let step = step.map(|step| format!(": {step}")).unwrap_or_default();
        return Some(format!("Being repaired by plan {} ({}){step}", plan.id, plan.method));
    }
    if let Some(pause) = &volume.paused {
        let whose = if pause.all { "All repairs are" } else { "Its repairs are" };
        return Some(format!("{whose} {}", paused(pause)));
    }
    if let Some(held) = &volume.held {
        return Some(format!("The repair waits: {}", held.detail));
    }
    if let Some(plan) = &volume.due_plan {
        let PlanView { id, method, .. } = plan;
        return Some(format!("Plan {id} ({method}) would be carried out; mode dry-run only tells of it"));
    }
    let last = volume
        .last_repair
        .as_ref()
        .map(|repair| format!("Last repair, {} ago: {}", age::span(now.since(repair.at)), repair.detail));
    if !volume.sick {
        return last;
    }
    let next = volume.next_attempt.map(|at| format!("the next attempt is in {}", age::span(at.since(now))));
    // Where nothing would be done, what is missing for it is no news.
    let watches = (volume.mode == "observe").then(|| "Nothing is done: mode observe only watches".to_owned());
    let why_not = watches.or_else(|| volume.not_repaired.clone());
    let told: Vec<String> = last.into_iter().chain(why_not).chain(next).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// Events, newest first.
pub(super) fn events(html: &mut Document, events: &[EventView], now: Timestamp, names: bool) {
    if events.is_empty() {
        html.put(format_args!("<p class=\"none\">Nothing has happened since the agent started.</p>"));
        return;
    }
    html.put(format_args!("<ol class=\"events\">"));
    for event in events {
        html.put(format_args!("<li><span class=\"when\">{}</span> ", Ago { time: event.at, now }));
        if names {
            match &event.volume {
                Some(volume) => html.put(format_args!(
                    "<a class=\"name\" href=\"{}\">{}</a> ",
                    Address(volume),
                    Escaped(volume)
                )),
                None if event.is_about_all() => {
                    html.put(format_args!("<span class=\"name\">all volumes</span> "))
                }
                None => html
                    .put(format_args!("<span class=\"name\">{}</span> ", Escaped(event.volumes.join(", ")))),
            }
        }
        match (&event.from, &event.to) {
            (Some(from), Some(to)) if from != to => {
                html.put(format_args!("{} → ", Escaped(from)));
                badge(html, to, event.reason.as_deref());
            }
            _ => html
                .put(format_args!("<span class=\"kind\">{}</span>", Escaped(event.kind.replace('_', " ")))),
        }
        html.put(format_args!("<span class=\"what\">{}</span></li>", Escaped(&event.message)));
    }
    html.put(format_args!("</ol>"));
}
