//! The first page: how many are sick, which, why, since when, and what is done about it.

use super::filter::{Filter, ON_A_PAGE, STATES};
use super::frame;
use super::html::{Document, Escaped};
use super::parts::{self, Address, Ago, badge, look};
use crate::export::timestamp::Timestamp;
use crate::export::view::doctor::{DoctorReport, ProgramView, ProgramWord, SourceWord};
use crate::export::view::{EventView, VolumeList, VolumeView};

/// The page.
pub(super) fn page(
    list: &VolumeList,
    filter: &Filter,
    events: &[EventView],
    doctor: &DoctorReport,
) -> Document {
    let sick = list.volumes.iter().filter(|volume| volume.sick).count();
    let title = match (sick, doctor.host.node.as_str()) {
        (0, "") => "mountie".to_owned(),
        (0, node) => format!("{node} · mountie"),
        (sick, "") => format!("{sick} sick · mountie"),
        (sick, node) => format!("{sick} sick · {node} · mountie"),
    };
    frame::page((&title, list.at, &doctor.host), filter, |html| {
        summary(html, list, sick);
        states(html, list, filter, sick);
        incidents(html, list);
        volumes(html, list, filter);
        html.put(format_args!("<section><h2>Recent events</h2>"));
        parts::events(html, events, list.at, true);
        html.put(format_args!("</section>"));
        sources(html, doctor);
    })
}

fn summary(html: &mut Document, list: &VolumeList, sick: usize) {
    let total = list.volumes.len();
    let (class, sign) = look(if sick == 0 { "healthy" } else { "degraded" });
    html.put(format_args!("<h1 class=\"{class}\"><span class=\"sign\" aria-hidden=\"true\">{sign}</span> "));
    match (total, sick) {
        (0, _) => html.put(format_args!("No volume is watched")),
        (1, 0) => html.put(format_args!("The only volume is not sick")),
        (total, 0) => html.put(format_args!("None of {total} volumes is sick")),
        (total, sick) => html.put(format_args!("{sick} of {total} volumes sick")),
    }
    html.put(format_args!("</h1>"));
    if !list.ready {
        html.put(format_args!("<p class=\"notice\">Not every volume has been looked at yet.</p>"));
    }
    let of_node = |volume: &VolumeView| volume.paused.clone().filter(|pause| pause.all);
    if let Some(pause) = list.volumes.iter().find_map(of_node) {
        html.put(format_args!(
            "<p class=\"notice\"><strong>No volume is repaired:</strong> {}. <code>mountie resume --all</code> ends that.</p>",
            Escaped(parts::paused(&pause))
        ));
    }
}

fn states(html: &mut Document, list: &VolumeList, filter: &Filter, sick: usize) {
    html.put(format_args!("<nav aria-label=\"States\">"));
    let mut entry = |state: &str, words: &str, count: usize| {
        let current = if filter.state == state { " aria-current=\"true\"" } else { "" };
        let href = filter.in_state(state).to_string();
        html.put(format_args!("<a href=\"{}\"{current}>{count} {words}</a> ", Escaped(href)));
    };
    entry("", "in all", list.volumes.len());
    if sick > 0 {
        entry("sick", "sick", sick);
    }
    for state in STATES {
        let count = list.volumes.iter().filter(|volume| volume.state == state).count();
        if count > 0 {
            entry(state, state, count);
        }
    }
    html.put(format_args!("</nav>"));
}

fn incidents(html: &mut Document, list: &VolumeList) {
    for incident in &list.incidents {
        html.put(format_args!(
            "<p class=\"notice bad\"><strong>Incident {}:</strong> {}, since {}, {} still sick</p>",
            incident.id,
            Escaped(&incident.message),
            Ago { time: incident.began, now: list.at },
            incident.sick
        ));
    }
}

fn volumes(html: &mut Document, list: &VolumeList, filter: &Filter) {
    let picked = filter.pick(&list.volumes);
    html.put(format_args!("<section><h2>Volumes</h2>"));
    if picked.is_empty() {
        let words = if list.volumes.is_empty() {
            "Name one in the configuration, or mount one that discovery takes in."
        } else {
            "No volume is like that."
        };
        html.put(format_args!("<p class=\"none\">{words}</p>"));
    }
    if !filter.is_empty() {
        html.put(format_args!(
            "<p class=\"shown\">{} of {} volumes match. <a href=\"/\">Show all</a></p>",
            picked.len(),
            list.volumes.len()
        ));
    }
    html.put(format_args!("<ul class=\"volumes\">"));
    for volume in picked.iter().skip(filter.from).take(ON_A_PAGE) {
        card(html, volume, list.at);
    }
    html.put(format_args!("</ul>"));
    pages(html, filter, picked.len());
    html.put(format_args!("</section>"));
}

fn pages(html: &mut Document, filter: &Filter, total: usize) {
    let next = filter.from.saturating_add(ON_A_PAGE);
    if filter.from == 0 && next >= total {
        return;
    }
    html.put(format_args!("<p class=\"pages\">"));
    if filter.from > 0 {
        let before = filter.starting_at(filter.from.min(total).saturating_sub(ON_A_PAGE));
        html.put(format_args!("<a rel=\"prev\" href=\"{}\">before</a> ", Escaped(before)));
    }
    let last = next.min(total);
    html.put(format_args!("{} to {last} of {total}", filter.from.saturating_add(1).min(last)));
    if next < total {
        html.put(format_args!(" <a rel=\"next\" href=\"{}\">more</a>", Escaped(filter.starting_at(next))));
    }
    html.put(format_args!("</p>"));
}

fn card(html: &mut Document, volume: &VolumeView, now: Timestamp) {
    let (class, _) = look(&volume.state);
    html.put(format_args!(
        "<li class=\"{class}\"><h3><a href=\"{}\">{}</a></h3> ",
        Address(&volume.id),
        Escaped(&volume.id)
    ));
    badge(html, &volume.state, volume.reason.as_deref());
    for advice in &volume.advice {
        html.put(format_args!(" <span class=\"advice\">{}</span>", Escaped(advice)));
    }
    html.put(format_args!(
        "<p class=\"since\">since {}</p><p class=\"where\">",
        Ago { time: volume.since, now }
    ));
    if volume.mountpoint != volume.id {
        html.put(format_args!("<span>{}</span> ", Escaped(&volume.mountpoint)));
    }
    html.put(format_args!("<span>{}</span>", Escaped(&volume.fstype)));
    if !volume.source.is_empty() {
        html.put(format_args!(" <span>{}</span>", Escaped(&volume.source)));
    }
    let errors: u64 = volume.errors.iter().map(|error| error.count).sum();
    if errors > 0 {
        html.put(format_args!(" <span>{errors} errors</span>"));
    }
    html.put(format_args!("</p>"));
    let is_quiet = volume.state == "healthy" && volume.advice.is_empty();
    if !is_quiet {
        html.put(format_args!("<p class=\"why\">{}</p>", Escaped(&volume.message)));
    }
    if let Some(done) = parts::done(volume, now) {
        html.put(format_args!("<p class=\"done\">{}</p>", Escaped(done)));
    }
    html.put(format_args!("</li>"));
}

fn sources(html: &mut Document, doctor: &DoctorReport) {
    let off = doctor.sources.iter().filter(|source| source.state != SourceWord::Running).count();
    let attached = doctor.programs.iter().filter(|program| program.state == ProgramWord::Attached).count();
    let failed_programs =
        doctor.programs.iter().filter(|program| program.state == ProgramWord::Failed).count();
    let total = doctor.sources.len();
    html.put(format_args!("<section><details id=\"sources\"><summary><h2>Sources</h2> "));
    if off == 0 {
        html.put(format_args!("all {total} run"));
    } else {
        html.put(format_args!("{off} of {total} do not run in full"));
    }
    html.put(format_args!("; kernel programs: {attached} attached"));
    if failed_programs > 0 {
        html.put(format_args!(", {failed_programs} failed"));
    }
    html.put(format_args!("</summary><ul class=\"sources\">"));
    for source in &doctor.sources {
        let (class, sign, word) = match source.state {
            SourceWord::Running => ("good", "✓", "running"),
            SourceWord::Degraded => ("warn", "!", "in part"),
            SourceWord::Off => ("bad", "✕", "off"),
        };
        html.put(format_args!(
            "<li><span class=\"badge {class}\"><span class=\"sign\" aria-hidden=\"true\">{sign}</span> {word}</span> \
             <strong>{}</strong> {}</li>",
            Escaped(&source.name),
            Escaped(source.reason.as_deref().unwrap_or_default())
        ));
    }
    for program in doctor.programs.iter().filter(|program| program.state == ProgramWord::Failed) {
        failed(html, program);
    }
    html.put(format_args!("</ul>"));
    for note in &doctor.host.notes {
        html.put(format_args!("<p>{}</p>", Escaped(note)));
    }
    html.put(format_args!("</details></section>"));
}

/// A kernel program that was wanted: what is lost without it, and what is left.
fn failed(html: &mut Document, program: &ProgramView) {
    html.put(format_args!(
        "<li><span class=\"badge bad\"><span class=\"sign\" aria-hidden=\"true\">✕</span> failed</span> \
         <strong>{}</strong> {}; lost without it: {}",
        Escaped(&program.program),
        Escaped(program.reason.as_deref().unwrap_or_default()),
        Escaped(&program.lost_without)
    ));
    if !program.fallback.is_empty() {
        html.put(format_args!("; left: {}", Escaped(&program.fallback)));
    }
    html.put(format_args!("</li>"));
}
