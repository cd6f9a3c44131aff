//! The dashboards' queries, asked of a Prometheus that scrapes an agent with broken volumes.

use anyhow::{Context, Result, ensure};

use super::world::Sample;
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

/// What stands for variables. Of clusters all are chosen.
const VARIABLES: [(&str, &str); 3] = [("$__rate_interval", "1m"), ("$__range", "10m"), ("$cluster", ".*")];
/// One volume for which every panel has something to show.
const NAMED: &str = "readonly";
/// How the name of another one ends that was found, and whose name is another one as a pattern; and the panel that has
/// nothing to show of it.
const FOUND: &str = "found(1)";
const NOT_OF_FOUND: &str = "Repairs by outcome";
/// The node, compared as it is. Elsewhere it is a pattern, as Grafana makes one of several values.
const ONE_NODE: &str = "=\"$node\"";

fn queries(scene: &Scene) -> Result<String> {
    let (mut asked, mut empty) = (0, 0);
    let mut wrong = Vec::new();
    let node = scene.world()?.agent.to_string();
    let found = awkward(scene.world()?.query("mountie_volume_info")?).context("no volume was found")?;
    for dashboard in read(&root())? {
        for Query { panel, expr } in dashboard.queries() {
            asked += 1;
            let of_found = (expr.contains("$volume") && panel != NOT_OF_FOUND).then_some(&*found);
            for volume in [Some(NAMED), of_found].into_iter().flatten() {
                let query = filled_in(&expr, (&node, volume));
                let answer = scene.world()?.query(query.trim_end_matches(NOTHING));
                let has_data = answer.as_ref().is_ok_and(|all| all.iter().any(|(_, value)| !value.is_nan()));
                match answer {
                    Err(error) => wrong.push(format!("{}: {panel}: {error:#}", dashboard.name)),
                    Ok(_) if has_data => {}
                    Ok(_) if may_be_empty(&dashboard, &panel) => empty += 1,
                    Ok(_) => wrong.push(format!("{}: {panel}: no data for {query}", dashboard.name)),
                }
            }
        }
        for (selector, label) in dashboard.variables() {
            asked += 1;
            let query = format!("count by ({label}) ({})", filled_in(&selector, (&node, NAMED)));
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

/// The name of the volume that was found.
fn awkward(volumes: Vec<Sample>) -> Option<String> {
    let names = volumes.iter().filter_map(|(labels, _)| labels.get("volume")?.as_str());
    names.into_iter().find(|name| name.ends_with(FOUND)).map(str::to_owned)
}

fn filled_in(expr: &str, (node, volume): (&str, &str)) -> String {
    let one = expr.replace(ONE_NODE, &format!("=\"{node}\""));
    let several = one.replace("$node", &format!("({})", node.replace('.', "\\\\.")));
    let named = several.replace("$volume", volume);
    VARIABLES.iter().fold(named, |text, (variable, value)| text.replace(variable, value))
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
        let filled_in = |expr| filled_in(expr, ("10.0.0.1:9747", "/mnt/found(1)"));
        assert_eq!(
            filled_in("rate(m{a=~\"$node|\"}[$__rate_interval])"),
            "rate(m{a=~\"(10\\\\.0\\\\.0\\\\.1:9747)|\"}[1m])"
        );
        assert_eq!(filled_in("m{a=\"$node\",v=\"$volume\"}"), "m{a=\"10.0.0.1:9747\",v=\"/mnt/found(1)\"}");
    }
}
