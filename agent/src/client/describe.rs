//! `mountie describe VOLUME`: the verdict explained to a person on call. What is wrong, since when, by which
//! evidence, what the agent did or would do, and what it means.

use std::path::Path;

use super::table::clean;
use super::{ClientError, Console, Output, age, http};
use crate::exit_code::ExitCode;
use crate::export::percent::PercentEncoded;
use crate::export::timestamp::Timestamp;
use crate::export::view::{LossView, PauseView, PlanPreview, VolumeAnswer, VolumeView};

mod consumers;
mod meaning;

/// Prints all that is known. Ends with 1 when the volume is sick.
pub async fn describe(socket: &Path, volume: &str, output: Output, console: &mut Console<'_>) -> ExitCode {
    let result = ask_and_print(socket, volume, output, console).await;
    console.end(result)
}

async fn ask_and_print(
    socket: &Path,
    volume: &str,
    output: Output,
    console: &mut Console<'_>,
) -> Result<ExitCode, ClientError> {
    let path = format!("/api/v1/volumes/{}", PercentEncoded(volume));
    let (_, answer): (_, VolumeAnswer) = http::get_json(socket, &path, (http::WITHIN, &[])).await?;
    // Of one that is only observed no plan is made until somebody asks what it would be.
    let plan = if is_only_observed(&answer.volume) { preview(socket, volume).await } else { None };
    console.show(&answer, output, |answer| render(answer, plan.as_ref()))?;
    Ok(if answer.volume.sick { ExitCode::FoundSick } else { ExitCode::Ok })
}

fn is_only_observed(volume: &VolumeView) -> bool {
    volume.sick && volume.mode == "observe" && volume.not_repaired.is_none()
}

/// What a repair would do. Without it the rest is told all the same.
async fn preview(socket: &Path, volume: &str) -> Option<PlanPreview> {
    let path = format!("/api/v1/plan/{}", PercentEncoded(volume));
    let answer: Result<(_, PlanPreview), _> = http::get_json(socket, &path, (http::WITHIN, &[])).await;
    answer.ok().map(|(_, plan)| plan)
}

/// The text so far: headed blocks of lines.
struct Page {
    text: String,
    at: Timestamp,
}

impl Page {
    fn heading(&mut self, heading: &str) {
        self.text.push_str(&format!("\n{heading}\n"));
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(&format!("  {}\n", clean(line)));
    }

    fn pair(&mut self, name: &str, value: &str) {
        self.line(&format!("{name:<17} {value}"));
    }

    /// The time and how long ago it was.
    fn moment(&self, time: Timestamp) -> String {
        if time > self.at {
            return format!("{}, in {}", time.whole_seconds(), age::span(time.since(self.at)));
        }
        format!("{}, {} ago", time.whole_seconds(), age::span(self.at.since(time)))
    }
}

fn render(answer: &VolumeAnswer, preview: Option<&PlanPreview>) -> String {
    let volume = &answer.volume;
    let mut page = Page { text: String::new(), at: answer.at };
    verdict(&mut page, volume);
    place(&mut page, volume);
    evidence(&mut page, volume);
    consumers::consumers(&mut page, volume);
    judgement(&mut page, volume);
    repair(&mut page, volume, preview);
    history(&mut page, volume);
    page.text
}

fn verdict(page: &mut Page, volume: &VolumeView) {
    let state = with_reason(&volume.state, volume.reason.as_deref());
    let since = page.moment(volume.since);
    page.text.push_str(&clean(&format!("{} is {state} since {since}", volume.id)));
    page.text.push('\n');
    if volume.recalled {
        page.line("This is what was known before the agent started; no look has decided anything since.");
    }
    page.line(&volume.message);
    // Of a volume that is good again, or only suspect, it would not be true.
    let reason = volume.reason.as_deref().filter(|_| volume.sick);
    if let Some(meaning) = reason.and_then(meaning::of_reason) {
        page.line(meaning);
    }
    if volume.state == "quarantined" {
        page.line("Nothing more is tried: a person must act. It ends when the volume is in order, or its settings change.");
    }
    for advice in &volume.advice {
        page.line(&format!("Also {advice}: {}", meaning::of_advice(advice)));
    }
}

fn place(page: &mut Page, volume: &VolumeView) {
    page.heading("Volume");
    page.pair("mount point", &volume.mountpoint);
    page.pair("type", &volume.fstype);
    page.pair("source", &volume.source);
    page.pair("device", volume.device.as_deref().unwrap_or("nothing is mounted"));
    if volume.stack_depth > 1 {
        page.pair("stack", &format!("{} mounts at this place; the topmost is judged", volume.stack_depth));
    }
    page.pair("known from", if volume.expected { "the configuration" } else { "the mount table" });
    if let Some(kubernetes) = &volume.kubernetes {
        page.pair("Kubernetes words", &format!("{}, {}", kubernetes.status, kubernetes.reason));
    }
}

fn evidence(page: &mut Page, volume: &VolumeView) {
    page.heading("Evidence");
    let last_ok =
        volume.last_ok.map_or_else(|| "never since the agent started".to_owned(), |time| page.moment(time));
    page.pair("last good probe", &last_ok);
    if let Some(probe) = &volume.last_probe {
        let took = age::span_of_seconds(probe.took_seconds);
        page.pair("last probe", &format!("{}, took {took}", page.moment(probe.started)));
        page.pair("", &probe.detail);
    }
    if let Some(seconds) = volume.stuck_seconds {
        page.pair("stuck", &format!("a probe has not come back for {}", age::span_of_seconds(seconds)));
    }
    for (number, claim) in volume.claims.iter().enumerate() {
        let since = page.moment(claim.since);
        let errors = if claim.count > 0 {
            format!(" ({} until {})", claim.count, page.moment(claim.last))
        } else {
            String::new()
        };
        let name = if number == 0 { "file system says" } else { "" };
        page.pair(name, &format!("{}{errors}, seen by {} since {since}", claim.what, claim.source));
    }
    if volume.errors.is_empty() {
        page.pair("errors", "none since the agent started");
    }
    for (number, error) in volume.errors.iter().enumerate() {
        let name = if number == 0 { "errors" } else { "" };
        let line = format!("{} × {} on {}, counted by {}", error.count, error.errno, error.op, error.source);
        page.pair(name, &line);
        if let (Some(first), Some(last)) = (error.first, error.last) {
            let (first, last) = (page.moment(first), page.moment(last));
            let times = if first == last { first } else { format!("first {first}; last {last}") };
            page.pair("", &format!("  {times}"));
        }
    }
    for (number, culprit) in volume.culprits.iter().enumerate() {
        let label = if number == 0 { "met by" } else { "" };
        let process = format!("{} (process {})", culprit.comm, culprit.pid);
        let at = page.moment(culprit.at);
        let name = if culprit.by_name { ", by its name" } else { "" };
        let line = format!("{process}, {} on {}{name}, {at}", culprit.errno, culprit.op);
        page.pair(label, &line);
        whereabouts(page, culprit.cgroup.as_deref(), culprit.mount_namespace);
    }
    waiting(page, volume);
}

/// What happened to the mount and stays until somebody knows.
fn lasting(page: &mut Page, what: &str, loss: &LossView, volume: &str) {
    let at = page.moment(loss.at);
    page.pair(what, &format!("{at}, with {}", loss.errno));
    match (loss.acknowledged, &loss.by) {
        (Some(at), by) => {
            let by = by.as_ref().map(|by| format!(" by uid {} ({}, process {})", by.uid, by.comm, by.pid));
            let at = page.moment(at);
            page.pair("", &format!("acknowledged{}, {at}", by.unwrap_or_default()));
        }
        (None, _) => page.pair("", &format!("not acknowledged: mountie ack {}", quoted(volume))),
    }
}

/// Why it is judged as it is: rule, incident, losses, damping.
fn judgement(page: &mut Page, volume: &VolumeView) {
    page.heading("Judgement");
    let none = if volume.sick { "none: nothing newer is known" } else { "none: nothing speaks against it" };
    page.pair("rule", volume.rule.as_deref().unwrap_or(none));
    if let Some(clears) = &volume.cleared_by {
        page.pair("cleared by", clears);
    }
    if let Some(incident) = &volume.incident {
        let began = page.moment(incident.began);
        let what =
            format!("{}: {} volumes of {} {}", incident.id, incident.size, incident.kind, incident.cause);
        page.pair("incident", &format!("{what} fail together since {began}"));
        page.pair("", &format!("with {}", incident.others.join(", ")));
    }
    for (what, loss) in [("data lost", &volume.loss), ("damage found", &volume.damage)] {
        if let Some(loss) = loss {
            lasting(page, what, loss, &volume.id);
        }
    }
    if volume.falls > 1 {
        page.pair(
            "falls",
            &format!("{} within the last ten minutes; repair and belief wait longer", volume.falls),
        );
    }
    if let Some(time) = volume.settles_at {
        let moment = page.moment(time);
        page.pair("believed", &format!("not before {moment}, if looks stay good"));
    }
}

/// Who waits, longest first.
fn waiting(page: &mut Page, volume: &VolumeView) {
    for (number, task) in volume.blocked.iter().enumerate() {
        let name = if number == 0 { "waiting" } else { "" };
        let thread = if task.tid == task.pid { String::new() } else { format!(", thread {}", task.tid) };
        let time = age::span_of_seconds(task.seconds);
        let line = format!(
            "{} (process {}{thread}), {} for {time}, state {}{}",
            task.comm,
            task.pid,
            task.call,
            task.state,
            if task.by_name { ", by its name" } else { "" }
        );
        page.pair(name, &line);
        whereabouts(page, task.cgroup.as_deref(), task.mount_namespace);
    }
    let shown = u64::try_from(volume.blocked.len()).unwrap_or(u64::MAX);
    let more = volume.blocked_tasks.saturating_sub(shown);
    if more > 0 {
        page.pair("", &format!("and {more} more"));
    }
}

/// Where a process belongs, as far as it is known.
fn whereabouts(page: &mut Page, cgroup: Option<&str>, mount_namespace: Option<u32>) {
    let cgroup = cgroup.map(|path| format!("cgroup {path}"));
    let namespace = mount_namespace.map(|number| format!("mount namespace {number}"));
    let words: Vec<String> = [cgroup, namespace].into_iter().flatten().collect();
    if !words.is_empty() {
        page.pair("", &format!("  in {}", words.join(", ")));
    }
}

fn repair(page: &mut Page, volume: &VolumeView, preview: Option<&PlanPreview>) {
    page.heading("Repair");
    page.pair("mode", &format!("{}: {}", volume.mode, meaning::of_mode(&volume.mode)));
    if let Some(pause) = &volume.paused {
        page.pair("paused", &paused(page, pause));
    }
    if let Some(why) = volume.not_repaired.as_deref().filter(|_| volume.mode != "off") {
        page.pair("observed only", why);
    }
    if volume.attempts > 0 {
        page.pair("attempts", &format!("{} within the last hour", volume.attempts));
    }
    if let Some(plan) = &volume.plan {
        page.pair("running", &format!("plan {}, by {}", plan.id, plan.method));
        steps(page, &plan.steps);
        for done in &plan.done {
            page.pair("done", done);
        }
    }
    if let Some(plan) = &volume.due_plan {
        page.pair("would be done", &format!("by {}, in mode \"act\"", plan.method));
        steps(page, &plan.steps);
    }
    if let Some(plan) = preview {
        page.pair(
            "would be done",
            &format!("by {}, in mode \"act\", or now by mountie remount", plan.method),
        );
        let what: Vec<String> = plan.steps.iter().map(|step| step.what.clone()).collect();
        steps(page, &what);
        if let Some(why) = &plan.hindered {
            page.pair("", &format!("it would not be begun now: {why}"));
        }
    }
    if let Some(last) = &volume.last_repair {
        page.pair("last attempt", &format!("plan {}, {}", last.id, page.moment(last.at)));
        page.pair("", &last.detail);
        steps(page, &last.steps);
    }
    if let Some(held) = &volume.held {
        let until = held.until.map(|until| format!(", until {}", until.whole_seconds())).unwrap_or_default();
        page.pair("held back", &format!("{}, since {}{until}", held.detail, page.moment(held.since)));
    }
    hook(page, volume);
    if let Some(time) = volume.next_attempt {
        let moment = page.moment(time);
        page.pair("next attempt", &format!("not before {moment}"));
    }
    if volume.sick && volume.mode == "observe" {
        page.line(&format!(
            "To have it repaired: mode = \"act\" for this volume. To look again: mountie probe {}",
            quoted(&volume.id)
        ));
    }
}

/// Who is asked before a repair, and what was said last.
fn hook(page: &mut Page, volume: &VolumeView) {
    let Some(hook) = &volume.hook else { return };
    page.pair("hook", &format!("{} is asked before each attempt", hook.name));
    let Some(asked) = hook.asked else { return };
    match (&hook.answer, hook.answered) {
        (Some(answer), Some(answered)) => {
            page.pair("", &format!("asked {}", page.moment(asked)));
            let text = if hook.detail.is_empty() { String::new() } else { format!(": {}", hook.detail) };
            page.pair("", &format!("{answer}{text}, {}", page.moment(answered)));
        }
        _ => page.pair("", &format!("is being asked, {}", page.moment(asked))),
    }
    if hook.put_off > 0 {
        page.pair("", &format!("put off {} times, one after the other", hook.put_off));
    }
}

/// Since when, by whom, until when and why.
fn paused(page: &Page, pause: &PauseView) -> String {
    let whom = if pause.all { "with all volumes, " } else { "" };
    let until = match pause.until {
        Some(until) => format!("until {}", page.moment(until)),
        None => "until mountie resume".to_owned(),
    };
    let by = format!("uid {} ({}, process {})", pause.by.uid, pause.by.comm, pause.by.pid);
    let reason = pause.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{whom}since {}, {until}, by {by}{reason}", page.moment(pause.since))
}

fn steps(page: &mut Page, steps: &[String]) {
    for (number, step) in (1..).zip(steps) {
        page.pair("", &format!("{number}. {step}"));
    }
}

fn history(page: &mut Page, volume: &VolumeView) {
    if volume.history.is_empty() {
        return;
    }
    page.heading("History, newest first");
    for transition in &volume.history {
        let to = with_reason(&transition.to, transition.reason.as_deref());
        page.line(&format!("{}  {} → {to}", transition.at.whole_seconds(), transition.from));
        page.line(&format!("  {}", transition.message));
    }
}

fn with_reason(state: &str, reason: Option<&str>) -> String {
    reason.map_or_else(|| state.to_owned(), |reason| format!("{state} ({reason})"))
}

/// A name as a word of the shell.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-".contains(c);
    if name.chars().all(is_plain) { name.to_owned() } else { format!("'{}'", name.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests;
