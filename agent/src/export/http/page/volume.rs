//! The page of one volume: everything that is known of it.

use std::fmt::Display;

use super::filter::Filter;
use super::frame;
use super::html::{Document, Escaped};
use super::parts::{self, Ago, badge, look};
use crate::export::age;
use crate::export::percent::PercentEncoded;
use crate::export::timestamp::Timestamp;
use crate::export::view::doctor::HostFacts;
use crate::export::view::{ErrorCount, EventView, LossView, PlanView, VolumeView};

/// The page.
pub(super) fn page(volume: &VolumeView, now: Timestamp, events: &[EventView], host: &HostFacts) -> Document {
    let title = format!("{}: {} · mountie", volume.id, volume.state);
    frame::page((&title, now, host), &Filter::default(), |html| {
        head(html, volume, now);
        repair(html, volume, now);
        mount(html, volume, now);
        evidence(html, volume, now);
        tasks(html, volume, now);
        consumers(html, volume);
        html.put(format_args!("<section><h2>Events</h2>"));
        parts::events(html, events, now, false);
        html.put(format_args!("</section>"));
        html.put(format_args!(
            "<p class=\"pages\"><a href=\"/api/v1/volumes/{}\">as JSON</a></p>",
            PercentEncoded(&volume.id)
        ));
    })
}

/// What is shown where no volume has the name.
pub(super) fn not_there(id: &str, now: Timestamp, host: &HostFacts) -> Document {
    frame::page(("no such volume · mountie", now, host), &Filter::default(), |html| {
        html.put(format_args!(
            "<h1>There is no volume {}</h1><p>It was forgotten, or never was. <a href=\"/\">Show all</a></p>",
            Escaped(id)
        ));
    })
}

/// A list of names and values.
struct Pairs<'a>(&'a mut Document);

impl<'a> Pairs<'a> {
    fn begin(html: &'a mut Document, heading: &str) -> Self {
        html.put(format_args!("<section><h2>{heading}</h2><dl>"));
        Self(html)
    }

    fn put(&mut self, name: &str, value: impl Display) {
        self.0.put(format_args!("<dt>{name}</dt><dd>{}</dd>", Escaped(value)));
    }

    /// The value is part of a document already.
    fn put_made(&mut self, name: &str, value: impl Display) {
        self.0.put(format_args!("<dt>{name}</dt><dd>{value}</dd>"));
    }

    fn end(self) {
        self.0.put(format_args!("</dl></section>"));
    }
}

fn head(html: &mut Document, volume: &VolumeView, now: Timestamp) {
    let (class, _) = look(&volume.state);
    html.put(format_args!("<article class=\"one {class}\"><h1>{}</h1>", Escaped(&volume.id)));
    badge(html, &volume.state, volume.reason.as_deref());
    for advice in &volume.advice {
        html.put(format_args!(" <span class=\"advice\">{}</span>", Escaped(advice)));
    }
    html.put(format_args!(
        "<p class=\"since\">since {}</p><p class=\"why\">{}</p>",
        Ago { time: volume.since, now },
        Escaped(&volume.message)
    ));
    if let Some(done) = parts::done(volume, now) {
        html.put(format_args!("<p class=\"done\">{}</p>", Escaped(done)));
    }
    if let Some(incident) = &volume.incident {
        html.put(format_args!(
            "<p class=\"notice bad\">Part of incident {}: {} volumes of {} {} fail together",
            incident.id,
            incident.size,
            Escaped(&incident.kind),
            Escaped(&incident.cause)
        ));
        if !incident.others.is_empty() {
            html.put(format_args!(", with {}", Escaped(incident.others.join(", "))));
        }
        html.put(format_args!("</p>"));
    }
    html.put(format_args!("</article>"));
}

fn repair(html: &mut Document, volume: &VolumeView, now: Timestamp) {
    let mut pairs = Pairs::begin(html, "Repair");
    pairs.put("mode", &volume.mode);
    if volume.attempts > 0 {
        pairs.put("attempts", format_args!("{} in the last hour", volume.attempts));
    }
    if let Some(time) = volume.next_attempt {
        pairs.put_made("next attempt", Ago { time, now });
    }
    if let Some(why_not) = &volume.not_repaired {
        pairs.put("no plan", why_not);
    }
    if let Some(hook) = &volume.hook {
        let answer = hook.answer.as_deref().unwrap_or("no answer yet");
        pairs.put("hook", format_args!("{}: {answer} {}", hook.name, hook.detail));
    }
    if let Some(pause) = &volume.paused {
        pairs.put_made("paused", Ago { time: pause.since, now });
        match pause.until {
            Some(time) => pairs.put_made("goes on", Ago { time, now }),
            None => pairs.put("goes on", "when somebody lets it: mountie resume"),
        }
    }
    for (name, plan) in [("running plan", &volume.plan), ("plan that is due", &volume.due_plan)] {
        if let Some(plan) = plan {
            pairs.put(name, format_args!("plan {}, by {}", plan.id, plan.method));
            pairs.put_made("steps", Steps(&plan.steps));
            if let PlanView { done, .. } = plan
                && !done.is_empty()
            {
                pairs.put_made("done", Steps(done));
            }
        }
    }
    if let Some(last) = &volume.last_repair {
        let took = age::span_of_seconds(last.took_seconds);
        pairs.put_made("last repair", Ago { time: last.at, now });
        pairs.put("outcome", format_args!("{} ({}), after {took}", last.detail, last.outcome));
        pairs.put_made("what was done", Steps(&last.steps));
    }
    pairs.end();
}

struct Counted<'a> {
    error: &'a ErrorCount,
    now: Timestamp,
}

impl Display for Counted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ErrorCount { errno, op, source, count, first, last } = self.error;
        write!(f, "{count} × {} on {}, counted by {}", Escaped(errno), Escaped(op), Escaped(source))?;
        if let (Some(first), Some(last)) = (*first, *last) {
            let now = self.now;
            write!(f, "; first {}, last {}", Ago { time: first, now }, Ago { time: last, now })?;
        }
        Ok(())
    }
}

struct Steps<'a>(&'a [String]);

impl Display for Steps<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<ol class=\"steps\">")?;
        for step in self.0 {
            write!(f, "<li>{}</li>", Escaped(step))?;
        }
        f.write_str("</ol>")
    }
}

fn mount(html: &mut Document, volume: &VolumeView, now: Timestamp) {
    let mut pairs = Pairs::begin(html, "Mount");
    pairs.put("mount point", &volume.mountpoint);
    pairs.put("type", &volume.fstype);
    if !volume.source.is_empty() {
        pairs.put("source", &volume.source);
    }
    pairs.put("device", volume.device.as_deref().unwrap_or("nothing is mounted"));
    pairs.put("known from", if volume.expected { "the configuration" } else { "the mount table" });
    if volume.stack_depth > 1 {
        pairs.put("mounts at this place", volume.stack_depth);
    }
    match volume.last_ok {
        Some(time) => pairs.put_made("last in order", Ago { time, now }),
        None => pairs.put("last in order", "never since the agent started"),
    }
    if let Some(probe) = &volume.last_probe {
        let took = age::span_of_seconds(probe.took_seconds);
        pairs.put_made("last look", Ago { time: probe.started, now });
        pairs.put("it found", format_args!("{} ({took})", probe.detail));
    }
    if let Some(seconds) = volume.stuck_seconds {
        pairs.put("look that hangs", format_args!("for {}", age::span_of_seconds(seconds)));
    }
    pairs.end();
}

fn evidence(html: &mut Document, volume: &VolumeView, now: Timestamp) {
    let is_empty = volume.rule.is_none()
        && volume.errors.is_empty()
        && volume.claims.is_empty()
        && volume.culprits.is_empty()
        && volume.loss.is_none()
        && volume.damage.is_none();
    if is_empty {
        return;
    }
    let mut pairs = Pairs::begin(html, "Evidence");
    if let Some(rule) = &volume.rule {
        pairs.put("rule", rule);
        pairs.put("cleared by", volume.cleared_by.as_deref().unwrap_or_default());
    }
    for (name, loss) in [("data lost", &volume.loss), ("damage found", &volume.damage)] {
        if let Some(LossView { at, errno, acknowledged, .. }) = loss {
            let told = if acknowledged.is_some() { "acknowledged" } else { "not acknowledged yet" };
            pairs.put_made(name, Ago { time: *at, now });
            pairs.put("with", format_args!("{errno}, {told}"));
        }
    }
    for claim in &volume.claims {
        pairs.put("said", format_args!("{} (by the {})", claim.what, claim.source));
    }
    for error in &volume.errors {
        pairs.put_made("errors", Counted { error, now });
    }
    for culprit in &volume.culprits {
        pairs.put(
            "met by",
            format_args!(
                "{} (process {}): {} on {}{}, {} ago",
                culprit.comm,
                culprit.pid,
                culprit.errno,
                culprit.op,
                by_name(culprit.by_name),
                age::span(now.since(culprit.at))
            ),
        );
    }
    pairs.end();
}

fn tasks(html: &mut Document, volume: &VolumeView, now: Timestamp) {
    if volume.blocked_tasks == 0 {
        return;
    }
    let mut pairs = Pairs::begin(html, "Tasks that wait");
    pairs.put("how many", volume.blocked_tasks);
    for task in &volume.blocked {
        pairs.put(
            "task",
            format_args!(
                "{} (process {}) in {}{}, for {}",
                task.comm,
                task.pid,
                task.call,
                by_name(task.by_name),
                age::span(now.since(task.since))
            ),
        );
    }
    pairs.end();
}

/// Says that the place is told by a name alone.
const fn by_name(is_by_name: bool) -> &'static str {
    if is_by_name { " (by its name)" } else { "" }
}

fn consumers(html: &mut Document, volume: &VolumeView) {
    if volume.stale_mounts == 0 && volume.stale_open_files == 0 {
        return;
    }
    let mut pairs = Pairs::begin(html, "Who still holds what was replaced");
    pairs.put("mounts", volume.stale_mounts);
    for mount in &volume.stale {
        pairs.put(
            "mount",
            format_args!("{} in the namespace of {} (process {})", mount.mountpoint, mount.comm, mount.pid),
        );
    }
    pairs.put("open files", volume.stale_open_files);
    for holder in &volume.stale_holders {
        pairs.put(
            "held by",
            format_args!(
                "{} (process {}): {} files, such as {}",
                holder.comm, holder.pid, holder.files, holder.path
            ),
        );
    }
    pairs.end();
}
