//! The metrics of the agent, as scrapers read them.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::{Check, Need, Scene, http};
use crate::command::root;
use crate::operator::metrics::Metrics;
use crate::quietly::tail;

pub(super) const TEXT: Check =
    Check { name: "metrics: the text format is clean", needs: &[Need::Promtool, Need::World], run: text };

pub(super) const OPEN_METRICS: Check = Check {
    name: "metrics: OpenMetrics is read by a strict reader",
    needs: &[Need::OpenMetricsReader, Need::World],
    run: open_metrics,
};

pub(super) const COMPLETE: Check =
    Check { name: "metrics: Prometheus has all of the table", needs: &[Need::World], run: complete };

/// Labels that are always empty, which to Prometheus are none.
const EMPTY: [&str; 2] = ["namespace", "persistentvolumeclaim"];
/// What Prometheus asks for.
const OPEN: &str = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
/// Reads everything, and prints how much that was.
const READER: &str = "import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
families = list(text_string_to_metric_families(sys.stdin.read()))
print(len(families), 'families,', sum(len(family.samples) for family in families), 'samples')";

fn text(scene: &Scene) -> Result<String> {
    let (body, kind) = http::get(scene.world()?.agent, "/metrics", "text/plain")?;
    ensure!(kind.starts_with("text/plain; version=0.0.4"), "the answer is {kind}");
    let said = fed(&mut scene.tools.promtool(&["check", "metrics"]), &body)?;
    ensure!(said.trim().is_empty(), "promtool has something to say:\n{said}");
    Ok(format!("{} lines", body.lines().count()))
}

fn open_metrics(scene: &Scene) -> Result<String> {
    let (body, kind) = http::get(scene.world()?.agent, "/metrics", OPEN)?;
    ensure!(kind.starts_with("application/openmetrics-text; version=1.0.0"), "the answer is {kind}");
    Ok(fed(&mut scene.tools.python(READER), &body)?.trim().to_owned())
}

fn complete(scene: &Scene) -> Result<String> {
    let metrics = Metrics::read(&root())?;
    let world = scene.world()?;
    let mut missing = Vec::new();
    for (name, metric) in &metrics.0 {
        let series = if metric.kind == "histogram" { format!("{name}_count") } else { name.clone() };
        let found = world.query(&series)?;
        let Some((labels, _)) = found.first() else {
            missing.push(format!("{name} has no series"));
            continue;
        };
        let has = |label: &&String| labels.get(label.as_str()).is_some() || EMPTY.contains(&label.as_str());
        let lacking: BTreeSet<_> = metric.labels.keys().filter(|label| !has(label)).collect();
        // A label without a value is none to Prometheus: another series of it may have one.
        for label in lacking {
            if world.query(&format!("{series}{{{label}!=\"\"}}"))?.is_empty() {
                missing.push(format!("{name} has no label {label}"));
            }
        }
    }
    ensure!(missing.is_empty(), "{}", missing.join("; "));
    Ok(format!("{} metrics", metrics.0.len()))
}

/// Runs a program on a text; what it said, if it ended well.
fn fed(command: &mut Command, text: &str) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    let mut input = child.stdin.take().context("no input")?;
    // Both read all of their input before they say anything.
    input.write_all(text.as_bytes()).with_context(|| format!("{name} does not read on"))?;
    drop(input);
    let output = child.wait_with_output().with_context(|| format!("cannot wait for {name}"))?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if !output.status.success() {
        bail!("{name} ended with {}: {}", output.status, tail(&said, 20));
    }
    Ok(said)
}
