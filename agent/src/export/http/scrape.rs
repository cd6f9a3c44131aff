//! `/metrics`: in the format that was asked for, made once for all scrapes of a moment.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;

use super::Shared;
use super::texts::Texts;
use crate::export::text::Format;

/// What the last scrapes were given, one text for each format.
pub(super) type Scrapes = Texts<Format, { Format::ALL.len() }>;

pub(super) async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> impl IntoResponse {
    let wishes = headers.get_all(header::ACCEPT).iter().filter_map(|wish| wish.to_str().ok());
    let format = preferred(wishes);
    let text = shared.with_permit_of(&shared.scrapes, move |shared, snapshot| {
        shared.scraped.text(format, snapshot, || shared.metrics.render(snapshot, format))
    });
    let told = [(header::CONTENT_TYPE, format.content_type()), (header::VARY, "accept")];
    text.await.map(|body| (told, body))
}

/// OpenMetrics for who names it, in a version that is offered, and likes it at least as well as plain text.
fn preferred<'a>(wishes: impl Iterator<Item = &'a str>) -> Format {
    let (mut open, mut plain) = (0.0, 0.0);
    for wish in wishes.flat_map(|line| line.split(',')) {
        let mut words = wish.split(';').map(str::trim);
        let kind = words.next().unwrap_or_default();
        let parameters: Vec<(&str, &str)> = words
            .filter_map(|word| word.split_once('='))
            .map(|(key, value)| (key.trim(), value.trim()))
            .collect();
        let value = |name: &str| {
            parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
        };
        let quality: f64 = value("q").map_or(1.0, |quality| quality.parse().unwrap_or(0.0));
        let is_offered = value("version").is_none_or(|version| version.trim_matches('"') == "1.0.0");
        if kind.eq_ignore_ascii_case("application/openmetrics-text") && is_offered {
            open = quality.max(open);
        } else if kind.eq_ignore_ascii_case("text/plain") {
            plain = quality.max(plain);
        }
    }
    if open > 0.0 && open >= plain { Format::OpenMetrics } else { Format::Prometheus }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_is_for_who_prefers_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let newer = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;q=0.4";
        for (accept, format) in [
            (prometheus, Format::OpenMetrics),
            (newer, Format::OpenMetrics),
            ("Application/OpenMetrics-Text", Format::OpenMetrics),
            ("application/openmetrics-text; version=\"1.0.0\"", Format::OpenMetrics),
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("text/plain", Format::Prometheus),
            ("application/openmetrics-text;version=9.0.0", Format::Prometheus),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("application/openmetrics-text;q=x", Format::Prometheus),
            ("application/openmetrics-text;q=0.1, text/plain", Format::Prometheus),
        ] {
            assert_eq!(preferred([accept].into_iter()), format, "{accept}");
        }
        assert_eq!(
            preferred(["text/plain;q=0.1", "application/openmetrics-text"].into_iter()),
            Format::OpenMetrics
        );
        assert_eq!(preferred([].into_iter()), Format::Prometheus);
    }
}
