//! The status page: one self-contained document, made from the views. Every value is escaped.

use std::fmt::{self, Display, Write};

use crate::export::percent::PercentEncoded;
use crate::export::view::doctor::{DoctorReport, ProgramWord, SourceWord};
use crate::export::view::{VolumeList, VolumeView};

/// Seconds between two loads of the page.
const REFRESH: u32 = 5;

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem}\
table{border-collapse:collapse;width:100%;margin-bottom:2rem}\
th,td{text-align:left;padding:.35rem .6rem;border-bottom:1px solid #8884;vertical-align:top}\
td{overflow-wrap:anywhere}\
.bad{color:#c62828;font-weight:600}.warn{color:#b26a00;font-weight:600}.good{color:#2e7d32}\
small{opacity:.7}";

/// The page.
pub(super) fn page(list: &VolumeList, doctor: &DoctorReport) -> String {
    let mut html = Document(String::new());
    let sick = list.volumes.iter().filter(|volume| volume.sick).count();
    html.put(format_args!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"refresh\" content=\"{REFRESH}\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>mountie: {sick} sick</title><style>{STYLE}</style></head><body><h1>mountie</h1>"
    ));
    html.put(format_args!(
        "<p class=\"{}\">{sick} of {} volumes sick</p>",
        if sick == 0 { "good" } else { "bad" },
        list.volumes.len()
    ));
    if !list.ready {
        html.put(format_args!("<p class=\"warn\">Not every volume has been looked at yet.</p>"));
    }
    for incident in &list.incidents {
        html.put(format_args!(
            "<p class=\"bad\">Incident {}: {} since {} ({} still sick)</p>",
            incident.id,
            Escaped(&incident.message),
            Escaped(incident.began.whole_seconds()),
            incident.sick
        ));
    }
    volumes(&mut html, list);
    sources(&mut html, doctor);
    html.put(format_args!(
        "<p><small>{} · mountie {} · kernel {} · <a href=\"/metrics\">metrics</a> · \
         <a href=\"/api/v1/volumes\">API</a> · <a href=\"/api/v1/events\">events</a></small></p></body></html>\n",
        Escaped(list.at.whole_seconds()),
        Escaped(&doctor.version),
        Escaped(&doctor.host.kernel_release)
    ));
    html.0
}

fn volumes(html: &mut Document, list: &VolumeList) {
    html.put(format_args!(
        "<table><thead><tr><th>Volume</th><th>State</th><th>Since</th><th>Mount point</th><th>Type</th>\
         <th>Errors</th><th>What is known</th></tr></thead><tbody>"
    ));
    for volume in &list.volumes {
        let errors: u64 = volume.errors.iter().map(|error| error.count).sum();
        html.put(format_args!(
            "<tr><td><a href=\"/api/v1/volumes/{}\">{}</a></td><td class=\"{}\">{}",
            PercentEncoded(&volume.id),
            Escaped(&volume.id),
            class(volume),
            Escaped(&volume.state)
        ));
        if let Some(reason) = &volume.reason {
            html.put(format_args!(" ({})", Escaped(reason)));
        }
        html.put(format_args!(
            "</td><td>{}</td><td>{}</td><td>{}</td><td>{errors}</td><td>{}",
            Escaped(volume.since.whole_seconds()),
            Escaped(&volume.mountpoint),
            Escaped(&volume.fstype),
            Escaped(&volume.message)
        ));
        for advice in &volume.advice {
            html.put(format_args!(" <span class=\"warn\">{}</span>", Escaped(advice)));
        }
        html.put(format_args!("</td></tr>"));
    }
    html.put(format_args!("</tbody></table>"));
}

fn sources(html: &mut Document, doctor: &DoctorReport) {
    html.put(format_args!("<table><thead><tr><th>Source</th><th>State</th><th>Why</th></tr></thead><tbody>"));
    for source in &doctor.sources {
        let (class, word) = match source.state {
            SourceWord::Running => ("good", "running"),
            SourceWord::Degraded => ("warn", "degraded"),
            SourceWord::Off => ("bad", "off"),
        };
        let reason = source.reason.as_deref().unwrap_or_default();
        html.put(format_args!(
            "<tr><td>{}</td><td class=\"{class}\">{word}</td><td>{}</td></tr>",
            Escaped(&source.name),
            Escaped(reason)
        ));
    }
    let attached = doctor.programs.iter().filter(|program| program.state == ProgramWord::Attached).count();
    html.put(format_args!(
        "</tbody></table><p><small>{attached} of {} kernel programs attached; \
         <a href=\"/api/v1/doctor\">which</a></small></p>",
        doctor.programs.len()
    ));
}

fn class(volume: &VolumeView) -> &'static str {
    match (volume.sick, volume.state.as_str()) {
        (true, _) => "bad",
        (false, "healthy") => "good",
        (false, _) => "warn",
    }
}

struct Document(String);

impl Document {
    fn put(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(text);
    }
}

/// A value as text or attribute of HTML.
struct Escaped<T>(T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.to_string().chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::sample::{sample_host, sample_snapshot};
    use super::*;

    #[test]
    fn nothing_from_outside_reaches_the_page_as_markup() {
        let mut snapshot = sample_snapshot();
        let evil = "<script>alert('x')</script>\"&";
        snapshot.volumes[0].id = agent_core::id::VolumeId::new(evil);
        snapshot.volumes[0].mountpoint = evil.into();
        snapshot.volumes[0].fstype = evil.to_owned();
        snapshot.volumes[0].condition.message = evil.to_owned();
        let doctor = DoctorReport::of_agent(&sample_host(), &snapshot);
        let html = page(&VolumeList::new(&snapshot), &doctor);
        assert!(!html.contains("<script"), "{html}");
        assert_eq!(html.matches("&lt;script&gt;alert(&#39;x&#39;)").count(), 4);
        assert!(html.contains("href=\"/api/v1/volumes/%3Cscript%3E"));
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let snapshot = sample_snapshot();
        let doctor = DoctorReport::of_agent(&sample_host(), &snapshot);
        let html = page(&VolumeList::new(&snapshot), &doctor);
        for word in ["http://", "https://", "src=", "url(", "@import", "<link"] {
            // The sample has one volume whose source is a URL; sources are not on the page.
            assert!(!html.contains(word), "{word}");
        }
        assert!(html.contains("2 of 4 volumes sick"));
        assert!(html.contains("1 of 3 kernel programs attached"));
    }
}
