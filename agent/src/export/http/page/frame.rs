//! What every page has around what it says.

use super::filter::{Filter, STATES};
use super::html::{Document, Escaped};
use super::{SCRIPT, STYLE};
use crate::export::timestamp::Timestamp;
use crate::export::view::doctor::HostFacts;

/// Seconds after which a browser without scripts loads the page again. Time enough to write a filter.
const AGAIN: u32 = 60;
/// A picture of its own keeps browsers from asking for one elsewhere.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath \
                    d='M1 14 6 3l3 6 2-3 4 8z' fill='%23607d8b'/%3E%3C/svg%3E";

/// Writes a page: `inside` is what the script replaces.
pub(super) fn page(
    (title, at, host): (&str, Timestamp, &HostFacts),
    filter: &Filter,
    inside: impl FnOnce(&mut Document),
) -> Document {
    let mut html = Document::new();
    html.put(format_args!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <noscript><meta http-equiv=\"refresh\" content=\"{AGAIN}\"></noscript>\
         <title>{}</title><link rel=\"icon\" href=\"{ICON}\"><style>{STYLE}</style></head><body>\
         <header><a class=\"brand\" href=\"/\">mountie</a>",
        Escaped(title)
    ));
    if !host.node.is_empty() {
        html.put(format_args!("<span class=\"node\">{}</span>", Escaped(&host.node)));
    }
    search(&mut html, filter);
    html.put(format_args!("</header>\n<p id=\"live\" role=\"status\"></p>\n<main>"));
    inside(&mut html);
    html.put(format_args!(
        "<p class=\"asof\">As of <time datetime=\"{0}\">{0}</time></p></main>\n<footer>mountie {1} · kernel {2} · \
         <a href=\"/metrics\">metrics</a> · <a href=\"/api/v1/volumes\">volumes as JSON</a> · \
         <a href=\"/api/v1/events\">events</a> · <a href=\"/api/v1/doctor\">doctor</a> · \
         <a href=\"/api/v1/openapi.json\">API</a></footer>\n<script>{SCRIPT}</script></body></html>\n",
        at.whole_seconds(),
        Escaped(env!("CARGO_PKG_VERSION")),
        Escaped(&host.kernel_release)
    ));
    html
}

fn search(html: &mut Document, filter: &Filter) {
    html.put(format_args!(
        "<form action=\"/\" role=\"search\"><input type=\"search\" name=\"q\" value=\"{}\" \
         placeholder=\"Name, path, type, server…\" aria-label=\"Filter volumes\" autocomplete=\"off\">\
         <select name=\"state\" aria-label=\"State\"><option value=\"\">any state</option>",
        Escaped(&filter.words)
    ));
    for state in ["sick"].iter().chain(&STATES) {
        let selected = if filter.state == **state { " selected" } else { "" };
        html.put(format_args!("<option{selected}>{state}</option>"));
    }
    html.put(format_args!("</select><button>Filter</button></form>"));
}
