//! The dashboards: what they ask for exists, every panel has its place and says what it shows.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::promql::uses;
use super::vocabulary::Vocabulary;
use super::{FOLDER, files, stem, text};

/// The schema of the dashboards: that of Grafana 12.
const SCHEMA: u64 = 42;
/// The data source of every panel.
const SOURCE: &str = "${datasource}";
/// Columns of a dashboard.
const COLUMNS: u64 = 24;

/// One dashboard.
#[derive(Debug)]
pub(crate) struct Dashboard {
    /// The file, without its ending.
    pub(crate) name: String,
    json: Value,
}

/// One query of a panel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Query {
    /// The panel's title.
    pub(crate) panel: String,
    /// The query, with variables.
    pub(crate) expr: String,
}

/// Every dashboard.
pub(crate) fn read(root: &Path) -> Result<Vec<Dashboard>> {
    let one = |path: std::path::PathBuf| {
        let json = serde_json::from_str(&text(&path)?)
            .with_context(|| format!("{} is no dashboard", path.display()))?;
        Ok(Dashboard { name: stem(&path), json })
    };
    files(&root.join(FOLDER), "json")?.into_iter().map(one).collect()
}

impl Dashboard {
    /// Its panels, also those in rows.
    fn panels(&self) -> impl Iterator<Item = &Value> {
        let top = list(&self.json, "panels");
        top.iter().flat_map(|panel| std::iter::once(panel).chain(list(panel, "panels")))
    }

    /// The queries of its panels.
    pub(crate) fn queries(&self) -> Vec<Query> {
        let of_panel = |panel: &Value| -> Vec<Query> {
            let title = word(panel, "title");
            let targets = list(panel, "targets").iter();
            targets
                .map(|target| Query { panel: title.to_owned(), expr: word(target, "expr").to_owned() })
                .collect()
        };
        self.panels().flat_map(of_panel).collect()
    }

    /// A variable.
    fn variable(&self, name: &str) -> Option<&Value> {
        let variables = self.json.pointer("/templating/list").and_then(Value::as_array);
        variables.into_iter().flatten().find(|variable| word(variable, "name") == name)
    }

    /// The addresses of its links, also those of the fields of its panels.
    fn links(&self) -> Vec<String> {
        let overrides = self.panels().flat_map(|panel| {
            panel.pointer("/fieldConfig/overrides").and_then(Value::as_array).into_iter().flatten()
        });
        let properties = overrides.flat_map(|one| list(one, "properties"));
        let of_fields =
            properties.filter(|one| word(one, "id") == "links").flat_map(|one| list(one, "value"));
        let links = list(&self.json, "links").iter().chain(of_fields);
        links.map(|link| word(link, "url").to_owned()).collect()
    }

    /// The queries of its variables, as selectors with the label that is asked for.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let variables = self.json.pointer("/templating/list").and_then(Value::as_array);
        let queries =
            variables.into_iter().flatten().filter_map(|variable| variable.pointer("/query/query")?.as_str());
        let split = |query: &str| {
            let inside = query.strip_prefix("label_values(")?.strip_suffix(')')?;
            let (selector, label) = inside.rsplit_once(',')?;
            Some((selector.trim().to_owned(), label.trim().to_owned()))
        };
        queries.filter_map(split).collect()
    }
}

pub(super) fn check(dashboards: &[Dashboard], vocabulary: &Vocabulary<'_>) -> Vec<String> {
    let mut findings = Vec::new();
    let mut known = BTreeSet::new();
    for dashboard in dashboards {
        let mut wrong = wrong_queries(dashboard, vocabulary);
        wrong.extend(wrong_head(dashboard));
        wrong.extend(wrong_panels(dashboard));
        wrong.extend(wrong_signs(dashboard));
        wrong.extend(wrong_links(dashboard, dashboards));
        if !known.insert(word(&dashboard.json, "uid")) {
            wrong.push("another dashboard has its uid".to_owned());
        }
        findings.extend(wrong.into_iter().map(|wrong| format!("{}: {wrong}", dashboard.name)));
    }
    findings
}

fn wrong_queries(dashboard: &Dashboard, vocabulary: &Vocabulary<'_>) -> Vec<String> {
    let mut findings = Vec::new();
    for Query { panel, expr } in dashboard.queries() {
        let wrong = vocabulary.check(&expr).1.into_iter();
        findings.extend(wrong.map(|wrong| format!("panel {panel}: {wrong}")));
    }
    for (selector, label) in dashboard.variables() {
        let (labels, wrong) = vocabulary.check(&selector);
        findings.extend(wrong);
        if !labels.contains_key(&label) {
            findings.push(format!("no series of `{selector}` has the label `{label}`"));
        }
    }
    findings
}

/// A variable of one value is compared as it is: Grafana does not make a pattern of it. One of several values is a pattern.
fn wrong_signs(dashboard: &Dashboard) -> Vec<String> {
    let mut findings = Vec::new();
    let queries = dashboard.queries().into_iter().map(|query| query.expr);
    let queries = queries.chain(dashboard.variables().into_iter().map(|(selector, _)| selector));
    for matcher in queries
        .filter_map(|query| uses(&query).ok())
        .flat_map(|uses| uses.selectors)
        .flat_map(|one| one.matchers)
    {
        let Some(several) = matcher.value.strip_prefix('$').and_then(|rest| {
            let name = rest.trim_end_matches('|');
            dashboard.variable(name).map(|variable| is_true(variable, "multi"))
        }) else {
            continue;
        };
        if matcher.sign.contains('~') != several {
            findings
                .push(format!("`{}{}\"{}\"` is the wrong sign", matcher.label, matcher.sign, matcher.value));
        }
    }
    findings
}

/// Links to a dashboard hand it variables that it has, and never several values for one.
fn wrong_links(dashboard: &Dashboard, all: &[Dashboard]) -> Vec<String> {
    let mut findings = Vec::new();
    for url in dashboard.links() {
        let Some((uid, handed)) = url.strip_prefix("/d/").and_then(|rest| rest.split_once('?')) else {
            continue;
        };
        let Some(other) = all.iter().find(|other| word(&other.json, "uid") == uid) else {
            findings.push(format!("there is no dashboard for {url}"));
            continue;
        };
        for part in handed.split('&') {
            let all_of = part.strip_prefix("${").and_then(|rest| rest.strip_suffix(":queryparam}"));
            let one_of =
                part.strip_prefix("var-").and_then(|rest| rest.split_once('=')).map(|(name, _)| name);
            let several =
                |of: &Dashboard, name| of.variable(name).is_some_and(|found| is_true(found, "multi"));
            let fits = match (all_of, one_of) {
                (Some(name), _) => {
                    other.variable(name).is_some() && (several(other, name) || !several(dashboard, name))
                }
                (None, Some(name)) => other.variable(name).is_some(),
                (None, None) => false,
            };
            if !fits {
                findings.push(format!("{uid} cannot take `{part}` of {url}"));
            }
        }
    }
    findings
}

fn wrong_head(dashboard: &Dashboard) -> Vec<String> {
    let mut findings = Vec::new();
    let json = &dashboard.json;
    if json.get("schemaVersion").and_then(Value::as_u64) != Some(SCHEMA) {
        findings.push(format!("its schemaVersion is not {SCHEMA}"));
    }
    if word(json, "uid").is_empty() || word(json, "description").is_empty() {
        findings.push("it has no uid or no description".to_owned());
    }
    let variables = json.pointer("/templating/list").and_then(Value::as_array);
    let names: BTreeSet<&str> =
        variables.into_iter().flatten().map(|variable| word(variable, "name")).collect();
    let missing = ["datasource", "node"].into_iter().filter(|name| !names.contains(name));
    findings.extend(missing.map(|name| format!("it has no variable `{name}`")));
    let texts = dashboard.queries().into_iter().map(|query| query.expr);
    for text in texts.chain(dashboard.variables().into_iter().map(|(selector, _)| selector)) {
        let used = text.split('$').skip(1).map(|rest| {
            rest.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().unwrap_or(rest).to_owned()
        });
        let strange = used.filter(|name| !name.starts_with("__") && !names.contains(name.as_str()));
        findings.extend(strange.map(|name| format!("there is no variable `{name}`")));
    }
    findings
}

fn wrong_panels(dashboard: &Dashboard) -> Vec<String> {
    let mut findings = Vec::new();
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in dashboard.panels() {
        let title = word(panel, "title");
        let mut find = |wrong: &str| findings.push(format!("panel {title}: {wrong}"));
        if !ids.insert(panel.get("id").and_then(Value::as_u64)) {
            find("another panel has its id");
        }
        let place =
            |key: &str| panel.pointer(&format!("/gridPos/{key}")).and_then(Value::as_u64).unwrap_or(0);
        let (x, y, w, h) = (place("x"), place("y"), place("w"), place("h"));
        let cells = (x..x + w).flat_map(|column| (y..y + h).map(move |row| (column, row)));
        // Not `all`, which would stop at the first.
        let overlaps = cells.filter(|cell| !taken.insert(*cell)).count();
        if w == 0 || h == 0 || x + w > COLUMNS || overlaps > 0 {
            find("its place is not its own");
        }
        if word(panel, "type") == "row" {
            continue;
        }
        if word(panel, "description").is_empty() || title.is_empty() {
            find("it does not say what it shows");
        }
        let targets = list(panel, "targets");
        let refs: BTreeSet<&str> = targets.iter().map(|target| word(target, "refId")).collect();
        // Whatever labels service discovery adds would be columns, too.
        let is_chosen = |change: &Value| word(change, "id") == "filterFieldsByName";
        if word(panel, "type") == "table" && !list(panel, "transformations").iter().any(is_chosen) {
            find("it does not choose its columns");
        }
        if targets.is_empty() || refs.len() != targets.len() {
            find("it has no queries, or two of one name");
        }
        let sources = targets.iter().chain([panel]).map(|part| part.pointer("/datasource/uid"));
        if sources.into_iter().any(|uid| uid.and_then(Value::as_str) != Some(SOURCE)) {
            find("it asks another data source");
        }
    }
    findings
}

fn is_true(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::metrics::tests::sample;
    use super::*;

    fn panel(id: u64, x: u64, expr: &str) -> Value {
        let source = json!({"type": "prometheus", "uid": SOURCE});
        json!({"id": id, "type": "stat", "title": "T", "description": "D", "datasource": source,
               "gridPos": {"x": x, "y": 0, "w": 12, "h": 4}, "targets": [{"refId": "A", "datasource": source, "expr": expr}]})
    }

    fn dashboard(panels: &[Value]) -> Dashboard {
        let query = json!({"query": "label_values(m_state{volume=~\"$node\"}, instance)"});
        let variables = json!([{"name": "datasource"}, {"name": "node", "multi": true, "query": query},
                               {"name": "volume"}]);
        let json = json!({"uid": "u", "description": "D", "schemaVersion": SCHEMA, "panels": panels,
                          "templating": {"list": variables}});
        Dashboard { name: "d".to_owned(), json }
    }

    #[test]
    fn faults_of_panels_are_found() {
        let metrics = sample();
        let (vocabulary, _) = Vocabulary::new(&metrics, &[]);
        let found = |panels: &[Value]| check(&[dashboard(panels)], &vocabulary);
        let good = panel(1, 0, "m_state{volume=~\"$node\"}");
        assert_eq!(found(&[good.clone(), panel(2, 12, "m_errors_total")]), Vec::<String>::new());
        for (other, wrong) in [
            (panel(1, 12, "m_state"), "another panel has its id"),
            (panel(2, 6, "m_state"), "its place is not its own"),
            (panel(2, 13, "m_state"), "its place is not its own"),
            (panel(2, 12, "m_state{volume=\"$other\"}"), "there is no variable `other`"),
            (panel(2, 12, "m_state{volume=~\"$volume\"}"), "`volume=~\"$volume\"` is the wrong sign"),
            (panel(2, 12, "m_state{volume=\"$node\"}"), "`volume=\"$node\"` is the wrong sign"),
            (panel(2, 12, "m_nothing"), "there is no series `m_nothing`"),
        ] {
            let findings = found(&[good.clone(), other]);
            assert!(matches!(findings.as_slice(), [one] if one.ends_with(wrong)), "{findings:?}");
        }
        let mut mute = good.clone();
        mute["description"] = json!("");
        mute["targets"][0]["datasource"]["uid"] = json!("mine");
        assert_eq!(found(&[mute]).len(), 2);
        let mut table = good.clone();
        table["type"] = json!("table");
        assert_eq!(found(&[table]), ["d: panel T: it does not choose its columns"]);
        let same = check(&[dashboard(&[]), dashboard(&[])], &vocabulary);
        assert_eq!(same, ["d: another dashboard has its uid"]);
    }

    #[test]
    fn links_hand_over_what_the_other_dashboard_takes() {
        let metrics = sample();
        let (vocabulary, _) = Vocabulary::new(&metrics, &[]);
        let wrong = |url: &str| {
            let mut from = dashboard(&[]);
            from.json["links"] = json!([{"url": url}]);
            check(&[from], &vocabulary).len()
        };
        let rights =
            ["/d/u?${node:queryparam}&${volume:queryparam}", "/d/u?var-volume=${__data.fields.volume}"];
        assert_eq!(rights.map(wrong), [0, 0]);
        assert_eq!(["/d/v?${node:queryparam}", "/d/u?var-x=1", "/d/u?x"].map(wrong), [1, 1, 1]);
        let mut one = dashboard(&[]);
        one.json["uid"] = json!("one");
        one.json["templating"]["list"][1]["multi"] = json!(false);
        one.json["templating"]["list"][1]["query"] = json!("");
        let mut several = dashboard(&[]);
        several.json["links"] = json!([{"url": "/d/one?${node:queryparam}"}]);
        assert_eq!(check(&[several, one], &vocabulary).len(), 1);
    }
}
