//! Which series there are, and which labels they have: the metrics, what the rules record, and what Prometheus adds.

use std::collections::{BTreeMap, BTreeSet};

use super::metrics::Metrics;
use super::promql::{Matcher, Selector, Uses, uses};
use super::rules::Rule;

/// Labels that every scraped series has; the first where there are several clusters.
const SCRAPED: [&str; 3] = [CLUSTER, "job", "instance"];
const CLUSTER: &str = "cluster";
/// Labels whose values are there once in each cluster.
const ONCE_A_CLUSTER: [&str; 2] = ["instance", "server"];
/// Series that Prometheus makes itself, with their labels beside those.
const ITS_OWN: [(&str, &[&str]); 3] =
    [("up", &[]), ("scrape_duration_seconds", &[]), ("ALERTS", &["alertname", "alertstate", "severity"])];

/// The labels that a series can have, with their values where these are words.
type Labels = BTreeMap<String, Option<BTreeSet<String>>>;

/// Every series by name.
pub(crate) struct Vocabulary<'a> {
    metrics: &'a Metrics,
    recorded: BTreeMap<&'a str, Labels>,
}

impl<'a> Vocabulary<'a> {
    /// With what the rules record; a rule that records of what is not there is a finding.
    pub(crate) fn new(metrics: &'a Metrics, rules: &'a [Rule]) -> (Self, Vec<String>) {
        let mut vocabulary = Self { metrics, recorded: BTreeMap::new() };
        let mut findings = Vec::new();
        for rule in rules {
            let Some(name) = rule.record.as_deref() else { continue };
            let (labels, wrong) = vocabulary.check(&rule.expr);
            findings.extend(wrong.into_iter().map(|wrong| format!("{name}: {wrong}")));
            vocabulary.recorded.insert(name, labels);
        }
        (vocabulary, findings)
    }

    /// What is wrong with a query, and which labels its result can have.
    pub(crate) fn check(&self, query: &str) -> (Labels, Vec<String>) {
        match uses(query) {
            Ok(uses) => self.check_uses(&uses),
            Err(wrong) => (Labels::new(), vec![format!("{wrong}: {query}")]),
        }
    }

    fn check_uses(&self, uses: &Uses) -> (Labels, Vec<String>) {
        let mut labels: Labels = uses.texts.iter().map(|text| (text.clone(), None)).collect();
        let mut findings = Vec::new();
        for selector in &uses.selectors {
            match self.labels_of(&selector.metric) {
                None => findings.push(format!("there is no series `{}`", selector.metric)),
                Some(own) => {
                    findings.extend(wrong_matchers(selector, &own));
                    labels.extend(own);
                }
            }
        }
        let strange = uses.labels.iter().filter(|label| !labels.contains_key(*label));
        findings.extend(strange.map(|label| format!("no series of the query has the label `{label}`")));
        let mixes = |keys: &&BTreeSet<String>| {
            ONCE_A_CLUSTER.iter().any(|label| keys.contains(*label)) && !keys.contains(CLUSTER)
        };
        let mixed = uses.keys.iter().filter(mixes);
        findings.extend(mixed.map(|keys| format!("it takes two clusters for one by {keys:?}")));
        (labels, findings)
    }

    /// The labels of a series, if there is one of that name.
    fn labels_of(&self, series: &str) -> Option<Labels> {
        let scraped = SCRAPED.iter().map(|label| ((*label).to_owned(), None));
        let mut labels: Labels = if let Some((metric, is_bucket)) = self.metrics.of_series(series) {
            let bound = is_bucket.then(|| ("le".to_owned(), None));
            metric.labels.clone().into_iter().chain(bound).collect()
        } else if let Some(labels) = self.recorded.get(series) {
            labels.clone()
        } else {
            let (_, own) = ITS_OWN.iter().find(|(name, _)| *name == series)?;
            own.iter().map(|label| ((*label).to_owned(), None)).collect()
        };
        labels.extend(scraped);
        Some(labels)
    }
}

fn wrong_matchers(selector: &Selector, labels: &Labels) -> Vec<String> {
    let metric = &selector.metric;
    let mut findings = Vec::new();
    for Matcher { label, value, .. } in &selector.matchers {
        match labels.get(label) {
            None => findings.push(format!("`{metric}` has no label `{label}`")),
            Some(Some(words)) if is_list_of_words(value) => {
                let strange = value.split('|').filter(|word| !word.is_empty() && !words.contains(*word));
                findings.extend(strange.map(|word| format!("`{label}` of `{metric}` is never `{word}`")));
            }
            Some(_) => {}
        }
    }
    findings
}

/// Not a pattern, and nothing that is filled in later.
fn is_list_of_words(value: &str) -> bool {
    value.chars().all(|c| c.is_ascii_alphanumeric() || "_-|".contains(c))
}

#[cfg(test)]
mod tests {
    use super::super::metrics::tests::sample;
    use super::*;

    #[test]
    fn what_is_not_there_is_found() {
        let metrics = sample();
        let record = Rule {
            record: Some("m:bad".to_owned()),
            expr: "m_state{state=\"bad\"} == 1".to_owned(),
            ..Rule::default()
        };
        let rules = [record];
        let (vocabulary, findings) = Vocabulary::new(&metrics, &rules);
        assert!(findings.is_empty(), "{findings:?}");
        for good in [
            "sum by (volume, cluster, instance) (m:bad)",
            "sum without (instance) (m:bad)",
            "m_state{state=~\"good|bad\", volume=~\"$volume\"} and on (job) up{job=\"x\"}",
            "sum by (le) (rate(m_time_seconds_bucket[5m]))",
            "sum by (made) (label_replace(m_state, \"made\", \"$1\", \"volume\", \"(.*)\"))",
            "m_state{state=~\".*\", state!=\"\"}",
        ] {
            assert_eq!(vocabulary.check(good).1, Vec::<String>::new(), "{good}");
        }
        for (query, wrong) in [
            ("m_states", "there is no series `m_states`"),
            ("m_time_seconds", "there is no series `m_time_seconds`"),
            ("m_state{stat=\"bad\"}", "`m_state` has no label `stat`"),
            ("m_state{state=~\"good|worse\"}", "`state` of `m_state` is never `worse`"),
            ("m:bad{state=\"worse\"}", "`state` of `m:bad` is never `worse`"),
            ("sum by (kind) (m_state)", "no series of the query has the label `kind`"),
            ("sum by (le) (m_time_seconds_sum)", "no series of the query has the label `le`"),
            ("sum by (instance) (m_state)", "it takes two clusters for one by {\"instance\"}"),
            ("m_state and on (instance) m_state", "it takes two clusters for one by {\"instance\"}"),
            ("m_state{", "not a matcher: None: m_state{"),
        ] {
            assert_eq!(vocabulary.check(query).1, [wrong], "{query}");
        }
    }
}
