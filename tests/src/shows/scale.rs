//! The agent on a node of many mounts: at rest, while a hundred of them hang, and while the table changes all the
//! time; with `prometheus-node-exporter` beside it on the same mounts.

mod exporter;
mod usage;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Setup, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::fleet::Fleet;
use integration_tests::harness::mnt_ns;
use integration_tests::harness::process::timed;
use integration_tests::harness::scrape::Scrape;
use integration_tests::harness::wait::{now, pause, wait_for_some};

use super::hand_out;
use super::spread::Spread;
use exporter::Exporter;
use usage::{Meter, cost_over, memory};

/// Mounts in all, for each run.
const SIZES: [usize; 2] = [1_000, 10_000];
const TRACKED: usize = 1_000;
const HUNG: usize = 100;
const REST: Duration = Duration::from_secs(30);
const SCRAPES: usize = 300;
const CHANGES_PER_SECOND: u32 = 200;
const CHURN: Duration = Duration::from_secs(60);
/// Volumes that are unmounted in the middle of the changes.
const UNMOUNTED: usize = 5;
const LIMIT: Duration = Duration::from_secs(300);

pub(super) fn run(bench: &mut Bench) -> Result<()> {
    let mut table = Table::default();
    for size in SIZES {
        println!("{size} mounts, {TRACKED} of them tracked");
        measure(bench, size, &mut table)?;
    }
    hand_out(&table.to_markdown())
}

fn measure(bench: &Bench, size: usize, table: &mut Table) -> Result<()> {
    let place = bench.make_directory(format!("mounts-{size}"))?;
    let before = mnt_ns::table()?.len();
    // One mount below all of them, so that they go with it: those of a dead fleet stay otherwise.
    mnt_ns::bind(&place, &place)?;
    let mut fleet = Fleet::start(&place.join("fleet"), TRACKED)?;
    more_mounts(&place, size.saturating_sub(TRACKED))?;
    let body: String = (0..TRACKED)
        .map(|number| Volume::at(&format!("v{number}"), &fleet.mountpoint(number)).to_toml())
        .collect();
    let mut agent = Agent::start_with(bench, &Setup::new(bench, &body)?)?;
    wait_states(&agent, "healthy", TRACKED)?;
    table.add(size, "entries of the mount table", mnt_ns::table()?.len().to_string(), "");
    at_rest(&agent, size, table)?;
    let exporter = Exporter::start(bench)?;
    if let Some(exporter) = &exporter {
        let seen = exporter.measure()?;
        table.add(size, "node_exporter: scrape, p50 / p99", both(&seen.well), "");
        table.add(size, "node_exporter: processor time of a scrape", format!("{:.0} ms", seen.cost), "");
        table.add(size, "node_exporter: resident", format!("{:.1} MiB", seen.memory.rss), "");
    }
    while_changing(&agent, (bench, &place), &fleet, (size, table))?;
    while_hanging(&agent, exporter.as_ref(), &mut fleet, (size, table))?;
    fleet.hang(0)?;
    wait_states(&agent, "healthy", TRACKED - UNMOUNTED)?;
    table.add(size, "all healthy again once they answer", "yes".to_owned(), "");
    agent.terminate(LIMIT)?;
    drop((exporter, fleet));
    mnt_ns::detach(&place)?;
    let after = mnt_ns::table()?.len();
    ensure!(after <= before, "{before} mounts before, {after} after");
    Ok(())
}

/// Binds of directories in memory: cheap mounts that nobody tracks.
fn more_mounts(place: &Path, count: usize) -> Result<()> {
    let (store, more) = (place.join("store"), place.join("more"));
    for directory in [&store, &more] {
        fs::create_dir(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    }
    for number in 0..count {
        let target = more.join(number.to_string());
        fs::create_dir(&target).with_context(|| format!("cannot create {}", target.display()))?;
        mnt_ns::bind(&store, &target)?;
    }
    Ok(())
}

fn at_rest(agent: &Agent, size: usize, table: &mut Table) -> Result<()> {
    // What the start has left behind is over when a whole interval was quiet.
    pause(Duration::from_secs(15));
    let cost = cost_over(agent.id(), REST)?;
    let own = format!("{:.2} % ({:.2} % without its workers)", cost.percent, cost.own_percent);
    table.add(size, "at rest: processor", own, "≤ 1 % of one");
    let used = memory(agent.id())?;
    table.add(size, "at rest: resident", format!("{:.1} MiB", used.rss), "≤ 40 MiB");
    let shares = format!("{:.1} + {:.1} MiB", used.pss, used.children_pss);
    table.add(size, "at rest: share (PSS), agent + workers", shares, "");
    table.add(size, "scrape at rest, p50 / p99", both(&scrapes(agent)?), "p99 ≤ 20 ms");
    Ok(())
}

fn while_hanging(
    agent: &Agent,
    exporter: Option<&Exporter>,
    fleet: &mut Fleet,
    (size, table): (usize, &mut Table),
) -> Result<()> {
    let at = now();
    fleet.hang(HUNG)?;
    wait_states(agent, "degraded", HUNG + UNMOUNTED)?;
    let times = (0..HUNG).map(|number| reaction(agent, number, at)).collect::<Result<Vec<_>>>()?;
    let times = Spread::new(times);
    let shown = format!("{:.1} / {:.1} s", times.percentile(50) / 1e3, times.percentile(100) / 1e3);
    table.add(size, "100 hang, nobody reads → degraded, p50 / max", shown, "≤ 13 s");
    table.add(size, "100 hang: scrape, p50 / p99", both(&scrapes(agent)?), "p99 ≤ 20 ms");
    let cost = cost_over(agent.id(), REST)?;
    table.add(size, "100 hang: processor", format!("{:.2} %", cost.percent), "");
    if let Some(exporter) = exporter {
        let (outcomes, before, after) = exporter.while_hanging();
        table.add(size, "100 hang: three scrapes of node_exporter", outcomes.join(", "), "");
        table.add(size, "100 hang: threads of node_exporter", format!("{before}, then {after}"), "");
    }
    Ok(())
}

/// Mounts and unmounts at an even pace, and in between the ends of some volumes.
fn while_changing(
    agent: &Agent,
    (bench, place): (&Bench, &Path),
    fleet: &Fleet,
    (size, table): (usize, &mut Table),
) -> Result<()> {
    let (store, churn) = (
        bench.make_directory(format!("churn-{size}-store"))?,
        bench.make_directory(format!("churn-{size}"))?,
    );
    ensure!(place.is_dir(), "the mounts are gone");
    let step = Duration::from_secs(1) / CHANGES_PER_SECOND;
    let meter = Meter::start(agent.id())?;
    let (begin, mut due, mut changes, mut ends) = (now(), now(), 0_u32, Vec::new());
    while now() - begin < CHURN {
        if changes.is_multiple_of(2) {
            mnt_ns::bind(&store, &churn)?;
        } else {
            mnt_ns::detach(&churn)?;
        }
        changes += 1;
        let part = CHURN / u32::try_from(UNMOUNTED + 1)?;
        if ends.len() < UNMOUNTED && now() - begin > part * u32::try_from(ends.len() + 1)? {
            let number = TRACKED - 1 - ends.len();
            mnt_ns::detach(&fleet.mountpoint(number))?;
            ends.push((number, now()));
        }
        due += step;
        pause(due.saturating_sub(now()));
    }
    if !changes.is_multiple_of(2) {
        mnt_ns::detach(&churn)?;
    }
    let (rate, cost) = (f64::from(changes) / (now() - begin).as_secs_f64(), meter.stop()?);
    let times = ends.iter().map(|(number, at)| reaction(agent, *number, *at)).collect::<Result<Vec<_>>>()?;
    let times = Spread::new(times);
    let shown = format!("{:.1} / {:.1} ms", times.percentile(50), times.percentile(100));
    table.add(
        size,
        &format!("{rate:.0} changes a second: processor"),
        format!("{:.2} %", cost.percent),
        "≤ 5 %",
    );
    table.add(size, "unmount among them → degraded, p50 / max", shown, "");
    Ok(())
}

/// Milliseconds from a fault to the transition.
fn reaction(agent: &Agent, number: usize, at: Duration) -> Result<f64> {
    let path = format!("/api/v1/volumes/v{number}");
    let fell = wait_for_some(&format!("v{number} is degraded"), LIMIT, || {
        let view: serde_json::Value =
            serde_json::from_str(&agent.get(&path)?.body).context("the answer is no JSON")?;
        let history = view.get("history").and_then(|history| history.as_array()).context("no history")?;
        let fall = history.iter().find(|step| step.get("to").is_some_and(|to| to == "degraded"));
        Ok(fall.and_then(|fall| fall.get("since_boot")).and_then(serde_json::Value::as_f64))
    })?;
    Ok((fell - at.as_secs_f64()) * 1e3)
}

fn scrapes(agent: &Agent) -> Result<Spread> {
    let mut times = Vec::with_capacity(SCRAPES);
    for _ in 0..SCRAPES {
        let (answer, time) = timed(|| agent.get("/metrics"));
        ensure!(answer?.status == 200, "a scrape fails");
        times.push(time.as_secs_f64() * 1e3);
    }
    Ok(Spread::new(times))
}

fn wait_states(agent: &Agent, state: &str, count: usize) -> Result<Scrape> {
    wait_for_some(&format!("{count} volumes are {state}"), LIMIT, || {
        let scrape = agent.scrape()?;
        let found = scrape.sum("mountie_volume_state", &[("state", state)]);
        Ok((found >= count as f64).then_some(scrape))
    })
}

fn both(spread: &Spread) -> String {
    format!("{:.1} / {:.1} ms", spread.percentile(50), spread.percentile(99))
}

/// What was measured, by row and size.
#[derive(Default)]
struct Table {
    rows: Vec<Row>,
}

struct Row {
    what: String,
    budget: &'static str,
    values: Vec<(usize, String)>,
}

impl Table {
    fn add(&mut self, size: usize, what: &str, value: String, budget: &'static str) {
        println!("  {what}: {value}");
        match self.rows.iter_mut().find(|row| same_row(&row.what, what)) {
            Some(row) => row.values.push((size, value)),
            None => self.rows.push(Row { what: what.to_owned(), budget, values: vec![(size, value)] }),
        }
    }

    fn to_markdown(&self) -> String {
        let mut text = String::from(HEAD);
        let sizes: Vec<String> = SIZES.iter().map(|size| format!("{size} mounts")).collect();
        let _ =
            writeln!(text, "| | {} | budget |\n|---|{}---|", sizes.join(" | "), "---|".repeat(SIZES.len()));
        for row in &self.rows {
            let value = |size: &usize| {
                let found = row.values.iter().find(|(other, _)| other == size);
                found.map_or_else(|| "–".to_owned(), |(_, value)| value.clone())
            };
            let values: Vec<String> = SIZES.iter().map(value).collect();
            let _ = writeln!(text, "| {} | {} | {} |", row.what, values.join(" | "), row.budget);
        }
        text
    }
}

/// Rows differ by their words; the rate that was reached differs a little between runs.
fn same_row(one: &str, other: &str) -> bool {
    let words = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    words(one) == words(other)
}

const HEAD: &str = "\
# What the agent costs on a node of many mounts

Written by `cargo xtask bench scale`, on whatever machine it ran: compare columns and budgets, not machines.

1,000 volumes are tracked, each a FUSE file system of its own, looked at every 10 s; the other mounts are binds that
nobody tracks. 100 of the volumes hang. `prometheus-node-exporter` (Debian's, its collector of file systems alone), where
it can be had, runs on the same mounts in the same run. Processor time is that of one processor, with all child processes.

";
