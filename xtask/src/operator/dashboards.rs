//! The dashboards: what they ask for exists, every panel has its place and says what it shows.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

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
        let variables = json!([{"name": "datasource"}, {"name": "node", "query": query}]);
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
            (panel(2, 12, "m_state{volume=\"$volume\"}"), "there is no variable `volume`"),
            (panel(2, 12, "m_nothing"), "there is no series `m_nothing`"),
        ] {
            let findings = found(&[good.clone(), other]);
            assert!(matches!(findings.as_slice(), [one] if one.ends_with(wrong)), "{findings:?}");
        }
        let mut mute = good.clone();
        mute["description"] = json!("");
        mute["targets"][0]["datasource"]["uid"] = json!("mine");
        assert_eq!(found(&[mute]).len(), 2);
        let same = check(&[dashboard(&[]), dashboard(&[])], &vocabulary);
        assert_eq!(same, ["d: another dashboard has its uid"]);
    }
}
