//! The table of metrics, as `docs/METRICS.md` has it. A test of the agent holds that page to the table in the code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, ensure};

use super::text;

/// The page.
const PAGE: &str = "docs/METRICS.md";

/// One metric.
#[derive(Debug, Default)]
pub(crate) struct Metric {
    /// `gauge`, `counter` or `histogram`.
    pub(crate) kind: String,
    /// Its labels, and their values where they are words.
    pub(crate) labels: BTreeMap<String, Option<BTreeSet<String>>>,
}

/// Every metric, by name.
#[derive(Debug, Default)]
pub(crate) struct Metrics(pub(crate) BTreeMap<String, Metric>);

impl Metrics {
    /// Reads the page.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let metrics = Self::parse(&text(&root.join(PAGE))?);
        ensure!(!metrics.0.is_empty(), "{PAGE} has no metrics");
        Ok(metrics)
    }

    /// Takes the two tables: rows of seven bars are metrics, rows of five are labels.
    fn parse(page: &str) -> Self {
        let mut metrics = Self::default();
        for line in page.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            match cells.as_slice() {
                [name, kind, _unit, labels, _stability, _help] => {
                    let labels = words(labels).map(|label| (label, None)).collect();
                    metrics.0.extend(words(name).map(|name| {
                        (name, Metric { kind: (*kind).to_owned(), labels: BTreeMap::clone(&labels) })
                    }));
                }
                [label, _meaning, of, values] => metrics.take_values(label, of, values),
                _ => {}
            }
        }
        metrics
    }

    fn take_values(&mut self, label: &str, of: &str, values: &str) {
        if !values.starts_with('`') {
            return;
        }
        let known: BTreeSet<String> = words(values).collect();
        for label in words(label) {
            for metric in words(of) {
                let place = self.0.get_mut(&metric).and_then(|metric| metric.labels.get_mut(&label));
                if let Some(place) = place {
                    *place = Some(known.clone());
                }
            }
        }
    }

    /// The metric that a series belongs to; histograms have series with suffixes, and no others.
    pub(crate) fn of_series(&self, series: &str) -> Option<(&Metric, bool)> {
        let histogram = ["_bucket", "_sum", "_count"].into_iter().find_map(|suffix| {
            let metric = self.0.get(series.strip_suffix(suffix)?)?;
            (metric.kind == "histogram").then_some((metric, suffix == "_bucket"))
        });
        let plain =
            || self.0.get(series).filter(|metric| metric.kind != "histogram").map(|metric| (metric, false));
        histogram.or_else(plain)
    }
}

/// The words that stand as code in a cell.
fn words(cell: &str) -> impl Iterator<Item = String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::operator) const SAMPLE: &str = "\
| metric | type | unit | labels | stability | meaning |
|---|---|---|---|---|---|
| `m_state` | gauge |  | `volume` `state` | stable | Says `x`. |
| `m_errors_total` | counter |  | `volume` | stable | Counts. |
| `m_time_seconds` | histogram | seconds | `volume` | stable | Times. |

| label | meaning | in | values |
|---|---|---|---|
| `state` | What | `m_state` | `good` `bad` |
| `volume` | Which | every metric of a volume | one for each volume |
";

    pub(in crate::operator) fn sample() -> Metrics {
        Metrics::parse(SAMPLE)
    }

    #[test]
    fn the_tables_of_the_page_are_read() {
        let metrics = sample();
        assert_eq!(metrics.0.keys().collect::<Vec<_>>(), ["m_errors_total", "m_state", "m_time_seconds"]);
        let state = &metrics.0["m_state"].labels;
        assert_eq!(state["state"].as_ref().map(BTreeSet::len), Some(2));
        assert_eq!(state["volume"], None);
        assert!(
            metrics.of_series("m_time_seconds").is_none() && metrics.of_series("m_state_count").is_none()
        );
        assert!(metrics.of_series("m_time_seconds_bucket").is_some_and(|(_, is_bucket)| is_bucket));
        assert!(metrics.of_series("m_time_seconds_sum").is_some_and(|(_, is_bucket)| !is_bucket));
    }
}
