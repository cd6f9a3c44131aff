//! The dashboards' queries, asked of a Prometheus that scrapes an agent with broken volumes.

use anyhow::{Result, ensure};

use super::{Check, Need, Scene};
use crate::command::root;
use crate::operator::dashboards::{Dashboard, Query, read};

pub(super) const QUERIES: Check =
    Check { name: "dashboards: every query has an answer", needs: &[Need::World], run: queries };

/// Panels that have nothing to show in this world, and why. They are asked all the same: they must be accepted.
const EMPTY: &[(&str, &str, &str)] = &[
    (
        "mountie-fleet",
        "Sick volumes by server",
        "nothing in it is mounted from a server; the tests of the rules have such volumes",
    ),
    ("mountie-fleet", "Agents down", "the only one answers"),
    ("mountie-agent", "Do not answer", "the only one answers"),
    ("mountie-agent", "Sources off that all depends on", "none is"),
    ("mountie-agent", "Sources that are not on", "a kernel may have all of them"),
];
/// What a query gives where it has found nothing: no data.
const NOTHING: &str = " or vector(0)";

/// What stands for variables. Of clusters all are chosen, of volumes one whose name is no pattern of itself.
const VARIABLES: [(&str, &str); 4] =
    [("$__rate_interval", "1m"), ("$__range", "10m"), ("$cluster", ".*"), ("$volume", "readonly(1)")];
/// The node, compared as it is. Elsewhere it is a pattern, as Grafana makes one of several values.
const ONE_NODE: &str = "=\"$node\"";

fn queries(scene: &Scene) -> Result<String> {
    let (mut asked, mut empty) = (0, 0);
    let mut wrong = Vec::new();
    let node = scene.world()?.agent.to_string();
    for dashboard in read(&root())? {
        for Query { panel, expr } in dashboard.queries() {
            asked += 1;
            let found = scene.world()?.query(filled_in(&expr, &node).trim_end_matches(NOTHING));
            let has_data = found.as_ref().is_ok_and(|found| found.iter().any(|(_, value)| !value.is_nan()));
            match found {
                Err(error) => wrong.push(format!("{}: {panel}: {error:#}", dashboard.name)),
                Ok(_) if has_data => {}
                Ok(_) if may_be_empty(&dashboard, &panel) => empty += 1,
                Ok(_) => wrong.push(format!("{}: {panel}: no data for {expr}", dashboard.name)),
            }
        }
        for (selector, label) in dashboard.variables() {
            asked += 1;
            let query = format!("count by ({label}) ({})", filled_in(&selector, &node));
            if scene.world()?.query(&query)?.is_empty() {
                wrong.push(format!("{}: no values for the variable of {selector}", dashboard.name));
            }
        }
    }
    ensure!(wrong.is_empty(), "{} of {asked} queries: {}", wrong.len(), wrong.join("\n"));
    Ok(format!("{asked} queries, {empty} of them with nothing to show here"))
}

fn may_be_empty(dashboard: &Dashboard, panel: &str) -> bool {
    EMPTY.iter().any(|(name, title, _)| *name == dashboard.name && *title == panel)
}

fn filled_in(expr: &str, node: &str) -> String {
    let one = expr.replace(ONE_NODE, &format!("=\"{node}\""));
    let several = one.replace("$node", &format!("({})", node.replace('.', "\\\\.")));
    VARIABLES.iter().fold(several, |text, (variable, value)| text.replace(variable, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_empty_is_a_panel() {
        let dashboards = read(&root()).unwrap();
        for (name, panel, why) in EMPTY {
            let dashboard = dashboards.iter().find(|dashboard| dashboard.name == *name).unwrap();
            assert!(dashboard.queries().iter().any(|query| query.panel == *panel), "{panel}: {why}");
        }
    }

    #[test]
    fn variables_are_filled_in() {
        let filled_in = |expr| filled_in(expr, "10.0.0.1:9747");
        assert_eq!(
            filled_in("rate(m{a=~\"$node|\"}[$__rate_interval])"),
            "rate(m{a=~\"(10\\\\.0\\\\.0\\\\.1:9747)|\"}[1m])"
        );
        assert_eq!(filled_in("m{a=\"$node\",v=\"$volume\"}"), "m{a=\"10.0.0.1:9747\",v=\"readonly(1)\"}");
    }
}
