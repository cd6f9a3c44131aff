//! What operators are given, tried with its real counterparts: Prometheus and promtool beside a real agent whose
//! volumes are broken. One table of checks; each is a file below this one.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command::{need_root, root, step};
use crate::{agent, setup};

mod bench;
mod browser;
mod dashboards;
mod docker;
mod http;
mod metrics;
mod packages;
mod rules;
mod runbooks;
mod tools;
mod world;

use tools::Tools;
use world::World;

/// What a check needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Need {
    /// The agent's binary.
    Agent,
    /// The test bench.
    Bench,
    /// Docker's daemon.
    Docker,
    /// `promtool`.
    Promtool,
    /// The Python reader of OpenMetrics, which is strict.
    OpenMetricsReader,
    /// What packages are checked with.
    PackageTools,
    /// Node.js, with what looks at pages.
    Node,
    /// A browser.
    Chromium,
    /// An agent beside broken volumes, and a Prometheus that scrapes it.
    World,
}

impl Need {
    const fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Bench => "bench",
            Self::Docker => "Docker",
            Self::Promtool => "promtool",
            Self::OpenMetricsReader => "python3-prometheus-client",
            Self::PackageTools => "helm, linters",
            Self::Node => "Node.js",
            Self::Chromium => "Chromium",
            Self::World => "broken volumes, Prometheus",
        }
    }
}

/// One check.
#[derive(Clone, Copy)]
struct Check {
    name: &'static str,
    needs: &'static [Need],
    /// What was seen, in a few words; an error says what is wrong.
    run: fn(&Scene) -> Result<String>,
}

/// Every check, in order.
const CHECKS: [Check; 17] = [
    rules::SYNTAX,
    rules::TESTED,
    runbooks::COMMANDS,
    metrics::TEXT,
    metrics::OPEN_METRICS,
    metrics::COMPLETE,
    rules::ALERTS,
    dashboards::QUERIES,
    browser::TYPES,
    browser::OPENAPI,
    docker::PLUGIN,
    packages::LINTED,
    // One more volume breaks in the last of them.
    browser::PAGE[0],
    browser::PAGE[1],
    browser::PAGE[2],
    browser::PAGE[3],
    browser::PAGE[4],
];

/// What checks are run with.
struct Scene {
    /// The agent's binary.
    binary: Option<PathBuf>,
    bench: Option<PathBuf>,
    tools: Tools,
    /// Where programs of Node.js lie.
    programs: Option<PathBuf>,
    world: Option<World>,
}

impl Scene {
    /// The agent's binary, for checks that need it.
    fn binary(&self) -> Result<&Path> {
        self.binary.as_deref().context("the check does not say that it needs the agent")
    }

    /// The test bench, for checks that need it.
    fn bench(&self) -> Result<&Path> {
        self.bench.as_deref().context("the check does not say that it needs the bench")
    }

    /// The folder of programs of Node.js, for checks that need it.
    fn programs(&self) -> Result<&Path> {
        self.programs.as_deref().context("the check does not say that it needs Node.js")
    }

    /// The agent and its Prometheus, for checks that need them.
    fn world(&self) -> Result<&World> {
        self.world.as_ref().context("the check does not say that it needs the world")
    }
}

/// How a check ended.
struct Row {
    name: &'static str,
    needs: String,
    took: Duration,
    result: Result<String>,
}

/// Runs the checks and prints the table; fails when one of them does.
pub(crate) fn run(filter: Option<&str>) -> Result<()> {
    need_root("surface")?;
    setup::run()?;
    let chosen: Vec<&Check> =
        CHECKS.iter().filter(|check| filter.is_none_or(|part| check.name.contains(part))).collect();
    if chosen.is_empty() {
        bail!(
            "no check has such a name; there are: {}",
            CHECKS.iter().map(|check| check.name).collect::<Vec<_>>().join(", ")
        );
    }
    let is_needed = |need| chosen.iter().any(|check| check.needs.contains(&need));
    let is_world_needed = is_needed(Need::World);
    let binary = if is_world_needed || is_needed(Need::Agent) {
        Some(agent::build(agent::Profile::Debug)?)
    } else {
        None
    };
    let bench = if is_world_needed || is_needed(Need::Bench) { Some(bench::build()?) } else { None };
    let tools = Tools::find(&root().join("target/surface"))?;
    if is_needed(Need::Chromium) {
        browser::install(browser::CHROMIUM)?;
    }
    let programs = if is_needed(Need::Node) {
        browser::install(browser::NODE)?;
        Some(browser::prepare(&tools.folder)?)
    } else {
        None
    };
    let world = match (&binary, &bench) {
        (Some(binary), Some(bench)) if is_world_needed => Some(World::start(binary, bench, &tools)?),
        _ => None,
    };
    let scene = Scene { binary, bench, tools, programs, world };
    let rows: Vec<Row> = chosen.into_iter().map(|check| row(check, &scene)).collect();
    print!("{}", table(&rows));
    let failed = rows.iter().filter(|row| row.result.is_err()).count();
    if failed > 0 {
        bail!("{failed} of {} checks failed", rows.len());
    }
    Ok(())
}

fn row(check: &Check, scene: &Scene) -> Row {
    step(check.name);
    let begin = Instant::now();
    let result = (check.run)(scene);
    if let Err(error) = &result {
        eprintln!("{error:#}");
    }
    let needs = check.needs.iter().map(|need| need.word()).collect::<Vec<_>>().join(", ");
    Row { name: check.name, needs, took: begin.elapsed(), result }
}

/// The rows, as Markdown.
fn table(rows: &[Row]) -> String {
    let mut text = String::from("\n| check | needs | result | seconds | seen |\n|---|---|---|---|---|\n");
    for Row { name, needs, took, result } in rows {
        let (word, seen) = match result {
            Ok(seen) => ("ok", seen.clone()),
            Err(error) => ("FAILED", error.to_string()),
        };
        let seen = seen.lines().next().unwrap_or_default().replace('|', "/");
        text.push_str(&format!("| {name} | {needs} | {word} | {:.1} | {seen} |\n", took.as_secs_f64()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<&str> = CHECKS.iter().map(|check| check.name).collect();
        assert_eq!(names.len(), CHECKS.len());
    }

    #[test]
    fn the_table_shows_what_failed_and_why() {
        let row =
            |result| Row { name: "a", needs: "x".to_owned(), took: Duration::from_millis(1500), result };
        let text = table(&[row(Ok("3 | 4".to_owned())), row(Err(anyhow::anyhow!("why\nmore")))]);
        assert!(text.contains("| a | x | ok | 1.5 | 3 / 4 |\n"), "{text}");
        assert!(text.contains("| a | x | FAILED | 1.5 | why |\n"), "{text}");
    }
}
