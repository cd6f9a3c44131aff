//! The rules and their tests. Every alert fires and ends in a test, says how bad it is and where to read on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::promql::uses;
use super::vocabulary::Vocabulary;
use super::{RULES, RUNBOOKS, TESTS, files, stem, text};

/// How bad an alert can be.
const SEVERITIES: [&str; 3] = ["critical", "warning", "info"];
/// What every alert says to a person.
const ANNOTATIONS: [&str; 3] = ["description", "runbook_url", "summary"];

/// A label that service discovery adds: a test may have it, a rule must not ask for it.
const DISCOVERED: &str = "has no label `pod`";

#[derive(Deserialize)]
struct RulesFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

/// One rule: it records a series, or it alerts.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Rule {
    pub(crate) record: Option<String>,
    pub(crate) alert: Option<String>,
    pub(crate) expr: String,
    pub(crate) keep_firing_for: Option<String>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// One file of tests.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct TestFile {
    #[serde(default, skip)]
    name: String,
    tests: Vec<Test>,
}

#[derive(Debug, Deserialize)]
struct Test {
    name: String,
    input_series: Vec<Series>,
    alert_rule_test: Vec<AlertTest>,
}

#[derive(Debug, Deserialize)]
struct Series {
    series: String,
}

#[derive(Debug, Deserialize)]
struct AlertTest {
    eval_time: String,
    alertname: String,
    exp_alerts: Vec<IgnoredAny>,
}

/// Every rule, in order.
pub(crate) fn read(root: &Path) -> Result<Vec<Rule>> {
    let file: RulesFile = yaml(&root.join(RULES))?;
    Ok(file.groups.into_iter().flat_map(|group| group.rules).collect())
}

/// Every file of tests.
pub(crate) fn read_tests(root: &Path) -> Result<Vec<TestFile>> {
    let named = |path: std::path::PathBuf| Ok(TestFile { name: stem(&path), ..yaml(&path)? });
    files(&root.join(TESTS), "yml")?.into_iter().map(named).collect()
}

fn yaml<T: DeserializeOwned>(path: &Path) -> Result<T> {
    serde_saphyr::from_str(&text(path)?).with_context(|| format!("{} is not as expected", path.display()))
}

/// The names of the alerts.
pub(crate) fn alerts(rules: &[Rule]) -> BTreeSet<&str> {
    rules.iter().filter_map(|rule| rule.alert.as_deref()).collect()
}

/// What is wrong with the alerts themselves.
pub(super) fn check(rules: &[Rule], vocabulary: &Vocabulary<'_>) -> Vec<String> {
    let mut findings = Vec::new();
    for rule in rules {
        let Some(name) = rule.alert.as_deref() else { continue };
        let (labels, wrong) = vocabulary.check(&rule.expr);
        let mut find = |wrong: String| findings.push(format!("{name}: {wrong}"));
        wrong.into_iter().for_each(&mut find);
        if !rule.labels.get("severity").is_some_and(|severity| SEVERITIES.contains(&severity.as_str())) {
            find(format!("its severity is none of {SEVERITIES:?}"));
        }
        if rule.annotations.keys().map(String::as_str).ne(ANNOTATIONS) {
            find(format!("its annotations are not {ANNOTATIONS:?}"));
        }
        if labels.contains_key("volume") && rule.keep_firing_for.is_none() {
            find("it tells of volumes and ends with a failed scrape: it has no keep_firing_for".to_owned());
        }
        if rule.annotations.get("runbook_url").is_none_or(|page| *page != format!("{RUNBOOKS}/{name}.md")) {
            find("its runbook is another page".to_owned());
        }
        for text in rule.annotations.values() {
            let strange = labels_in(text).filter(|label| !labels.contains_key(*label));
            strange.for_each(|label| find(format!("it tells the label `{label}`, which it has not")));
        }
    }
    findings
}

/// What is recorded and neither a rule nor a dashboard reads.
pub(super) fn unread(rules: &[Rule], queries: &[String]) -> Vec<String> {
    let all = rules.iter().map(|rule| rule.expr.as_str()).chain(queries.iter().map(String::as_str));
    let read: BTreeSet<String> = all
        .filter_map(|query| uses(query).ok())
        .flat_map(|uses| uses.selectors.into_iter().map(|selector| selector.metric))
        .collect();
    let recorded = rules.iter().filter_map(|rule| rule.record.as_deref());
    recorded.filter(|name| !read.contains(*name)).map(|name| format!("{name}: nobody reads it")).collect()
}

/// The labels that a text tells.
fn labels_in(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split("$labels.").skip(1).map(move |rest| rest.split(|c| !is_name(c)).next().unwrap_or(rest))
}

/// What is wrong with the tests: an alert must fire, and then end, in one of them.
pub(super) fn check_tests(rules: &[Rule], files: &[TestFile], vocabulary: &Vocabulary<'_>) -> Vec<String> {
    let alerts = alerts(rules);
    let mut findings = Vec::new();
    let mut fired_and_ended = BTreeSet::new();
    for (file, test) in files.iter().flat_map(|file| file.tests.iter().map(move |test| (file, test))) {
        let mut find = |wrong: String| findings.push(format!("{}: {}: {wrong}", file.name, test.name));
        for series in &test.input_series {
            let wrong = vocabulary.check(&series.series).1.into_iter();
            wrong.filter(|wrong| !wrong.ends_with(DISCOVERED)).for_each(&mut find);
        }
        let mut fired = BTreeMap::new();
        for step in &test.alert_rule_test {
            let (name, Some(at)) = (step.alertname.as_str(), minutes(&step.eval_time)) else {
                find(format!("not a time in minutes: {}", step.eval_time));
                continue;
            };
            if !alerts.contains(name) {
                find(format!("there is no alert {name}"));
            }
            let first = fired.get(name).copied();
            if !step.exp_alerts.is_empty() {
                fired.insert(name, at);
            } else if first.is_some_and(|first| first < at) {
                fired_and_ended.insert(name);
            }
        }
    }
    let untested = alerts.difference(&fired_and_ended);
    findings.extend(untested.map(|name| format!("{name}: it fires and ends in no test")));
    findings
}

fn minutes(time: &str) -> Option<u64> {
    time.strip_suffix('m')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::metrics::tests::sample;
    use super::*;

    fn alert(runbook: &str, summary: &str) -> Rule {
        let annotations = [("description", "x"), ("runbook_url", runbook), ("summary", summary)];
        Rule {
            alert: Some("Bad".to_owned()),
            expr: "m_state{state=\"bad\"} == 1".to_owned(),
            keep_firing_for: Some("5m".to_owned()),
            labels: BTreeMap::from([("severity".to_owned(), "critical".to_owned())]),
            annotations: annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..Rule::default()
        }
    }

    #[test]
    fn an_alert_says_how_bad_it_is_where_to_read_on_and_only_labels_that_it_has() {
        let metrics = sample();
        let (vocabulary, _) = Vocabulary::new(&metrics, &[]);
        let good = alert("docs/runbooks/Bad.md", "{{ $labels.volume }} on {{ $labels.instance }} is bad.");
        assert_eq!(check(std::slice::from_ref(&good), &vocabulary), Vec::<String>::new());
        let other = alert("docs/runbooks/Good.md", "{{ $labels.kind }}");
        let brief = Rule { keep_firing_for: None, ..good.clone() };
        let nothing = Rule { labels: BTreeMap::new(), annotations: BTreeMap::new(), ..good };
        assert_eq!(check(&[other], &vocabulary).len(), 2);
        assert_eq!(check(&[nothing], &vocabulary).len(), 3);
        assert_eq!(check(&[brief], &vocabulary).len(), 1);
    }

    #[test]
    fn what_is_recorded_for_nobody_is_found() {
        let record = |name: &str, expr: &str| Rule {
            record: Some(name.to_owned()),
            expr: expr.to_owned(),
            ..Rule::default()
        };
        let rules = [record("m:a", "m_state"), record("m:b", "m:a"), record("m:c", "m_state")];
        assert_eq!(unread(&rules, &["sum(m:c)".to_owned()]), ["m:b: nobody reads it"]);
    }

    #[test]
    fn an_alert_that_only_fires_in_its_test_is_found() {
        let metrics = sample();
        let (vocabulary, _) = Vocabulary::new(&metrics, &[]);
        let rules = [alert("docs/runbooks/Bad.md", "x")];
        let file = |steps: &str| -> TestFile {
            let text = format!(
                "tests:\n- name: t\n  input_series: [{{series: 'm_state{{volume=\"a\"}}', values: '1x5'}}]\n  alert_rule_test:\n{steps}"
            );
            serde_saphyr::from_str(&text).unwrap()
        };
        let fires = "  - {eval_time: 2m, alertname: Bad, exp_alerts: [{}]}\n";
        let ends = "  - {eval_time: 3m, alertname: Bad, exp_alerts: []}\n";
        let found = |steps: &str| check_tests(&rules, &[file(steps)], &vocabulary);
        assert_eq!(found(&format!("{fires}{ends}")), Vec::<String>::new());
        assert_eq!(found(fires), ["Bad: it fires and ends in no test"]);
        assert_eq!(found(&format!("{ends}{fires}")).len(), 1);
        assert_eq!(
            found(&format!("{fires}{ends}  - {{eval_time: 4m, alertname: Worse, exp_alerts: []}}\n")).len(),
            1
        );
    }
}
