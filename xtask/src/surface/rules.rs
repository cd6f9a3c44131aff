//! The rules, by promtool and in a running Prometheus.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::world::{Sample, wait_for};
use super::{Check, Need, Scene};
use crate::command::root;
use crate::operator::{self, RULES, TESTS};
use crate::quietly::quiet;

pub(super) const SYNTAX: Check =
    Check { name: "rules: promtool accepts them", needs: &[Need::Promtool], run: syntax };

pub(super) const TESTED: Check =
    Check { name: "rules: every alert fires and ends", needs: &[Need::Promtool], run: tests };

pub(super) const ALERTS: Check =
    Check { name: "rules: broken volumes raise their alerts", needs: &[Need::World], run: alerts };

/// What is broken in the world, and the alert that it must raise. The one that a pause raises is due after a day.
const EXPECTED: [(&str, &str, &str); 6] = [
    ("MountieVolumeDegraded", "volume", "errors"),
    ("MountieVolumeHung", "volume", "hung"),
    ("MountieVolumeMissing", "volume", "missing"),
    ("MountieVolumeReadOnly", "volume", "readonly"),
    ("MountieVolumeQuarantined", "volume", "given-up"),
    ("MountieSharedCause", "kind", "daemon"),
];
/// What is well, or told by the alert of its incident.
const SILENT: [&str; 4] = ["models", "repaired", "shared-a", "shared-b"];

fn syntax(scene: &Scene) -> Result<String> {
    let said = quiet(scene.tools.promtool(&["check", "rules", RULES]).current_dir(root()))?;
    Ok(said.lines().find(|line| line.contains("rules found")).unwrap_or_default().trim().to_owned())
}

fn tests(scene: &Scene) -> Result<String> {
    let files = operator::files(&root().join(TESTS), "yml")?;
    ensure!(!files.is_empty(), "there are no tests in {TESTS}");
    quiet(scene.tools.promtool(&["test", "rules"]).args(&files).current_dir(root()))?;
    let rules = operator::rules::read(&root())?;
    Ok(format!("{} alerts, {} files", operator::rules::alerts(&rules).len(), files.len()))
}

fn alerts(scene: &Scene) -> Result<String> {
    let world = scene.world()?;
    let mut last: Vec<Sample> = Vec::new();
    let told = |(labels, _): &Sample| format!("{} of {}", word(labels, "alertname"), word(labels, "volume"));
    let all_there = wait_for("an alert for each broken volume", || {
        last = world.query("ALERTS{alertstate=\"firing\"}")?;
        Ok(EXPECTED.iter().all(|expected| last.iter().any(|(labels, _)| is(labels, *expected))))
    });
    let found: BTreeSet<String> = last.iter().map(told).collect();
    ensure!(all_there.is_ok(), "an alert is missing; there are: {found:?}");
    // At any time since the start, not only now.
    let ever = world.query("count_over_time(ALERTS{alertstate=\"firing\"}[1h])")?;
    let loud: BTreeSet<String> =
        ever.iter().filter(|(labels, _)| SILENT.contains(&word(labels, "volume"))).map(told).collect();
    ensure!(loud.is_empty(), "alerts that should not be: {loud:?}");
    Ok(format!("{} alerts fire, none has of what is well", found.len()))
}

fn is(labels: &Value, (alert, label, value): (&str, &str, &str)) -> bool {
    word(labels, "alertname") == alert && word(labels, label) == value
}

fn word<'a>(labels: &'a Value, label: &str) -> &'a str {
    labels.get(label).and_then(Value::as_str).unwrap_or_default()
}
