//! What each family of hooks costs, in instructions.
//!
//! Meant for an emulated machine whose clock counts instructions (`cargo xtask bench instructions`): there a
//! nanosecond is an instruction and the numbers repeat. Elsewhere they are nanoseconds. The same loops run under
//! nothing, under an empty program on the same hooks, under the agent, and under a general tracing tool that
//! counts the same failures.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use integration_tests::harness::agent::{Agent, SOON, Setup};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::matrix::{self, Row};
use serde_json::Value;

use super::Column;
use super::empty::Empty;
use super::peer;
use super::workload::{self, Ground, WORKLOADS, Workload};

/// The cheapest of so many runs counts: whatever else the machine does only adds.
const RUNS: usize = 5;

pub(in crate::shows) fn run(bench: &mut Bench) -> Result<()> {
    let ground = workload::prepare(bench)?;
    let mut table = Table::default();
    let measure = || measure(&ground);
    table.add("nothing", &measure()?)?;
    let empty = Empty::attach_sys_exit().context("an empty program on sys_exit")?;
    table.add("empty sys_exit", &measure()?)?;
    drop(empty);
    let (column, _) = with_agent(bench, "sys_exit", &measure)?;
    table.add("mountie sys_exit", &column)?;
    match with_agent(bench, "fexit", &measure) {
        Ok((column, hooks)) => {
            let empty = Empty::attach_fexit(&hooks).context("empty programs on the fexit hooks")?;
            table.add("empty fexit", &measure()?)?;
            drop(empty);
            table.add("mountie fexit", &column)?;
        }
        Err(error) => println!("fexit cannot be measured here: {error:#}"),
    }
    for peer in peer::PEERS {
        match peer.start(bench) {
            Ok(running) => {
                table.add(peer.name, &measure()?)?;
                drop(running);
            }
            Err(error) => println!("{} cannot be measured here: {error:#}", peer.name),
        }
    }
    Ok(())
}

fn measure(ground: &Ground) -> Result<Column> {
    WORKLOADS.iter().map(|workload| cheapest(workload, ground)).collect()
}

fn cheapest(workload: &Workload, ground: &Ground) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        best = best.min(workload.cost(ground).with_context(|| format!("workload {}", workload.name))?);
    }
    Ok(best)
}

/// Measures with an agent of a family; also the hooks that it is attached to.
pub(super) fn with_agent(
    bench: &Bench,
    family: &str,
    measure: &impl Fn() -> Result<Column>,
) -> Result<(Column, Vec<String>)> {
    let body = format!("[kernel]\nfamily = \"{family}\"\n[discovery]\nenabled = true\n");
    let mut agent = Agent::start_with(bench, &Setup::new(bench, &body)?)?;
    agent.wait_scrape("the kernel programs are started", |scrape| {
        Ok(scrape.sum("mountie_program_attached", &[("family", family)]) > 0.0)
    })?;
    let hooks = hooks(&agent, family)?;
    let column = measure()?;
    // The next one wants the lock.
    agent.terminate(SOON)?;
    Ok((column, hooks))
}

fn says(program: &Value, key: &str, word: &str) -> bool {
    program.get(key).and_then(Value::as_str) == Some(word)
}

/// The hooks of a family's programs that are attached, each once.
fn hooks(agent: &Agent, family: &str) -> Result<Vec<String>> {
    let report: Value =
        serde_json::from_slice(agent.get("/api/v1/doctor")?.body.as_ref()).context("no JSON")?;
    let programs = report.get("programs").and_then(Value::as_array).context("no programs")?;
    let attached = programs
        .iter()
        .filter(|program| says(program, "family", family) && says(program, "state", "attached"));
    let hooks: BTreeSet<&str> = attached.filter_map(|program| program.get("hook")?.as_str()).collect();
    Ok(hooks.into_iter().map(str::to_owned).collect())
}

/// Prints as it grows: a line for each thing that was attached.
#[derive(Default)]
struct Table {
    bare: Option<Column>,
}

impl Table {
    fn add(&mut self, name: &str, column: &[f64]) -> Result<()> {
        let bare = match &self.bare {
            None => {
                let names: Vec<String> =
                    WORKLOADS.iter().map(|workload| format!("{:>18}", workload.name)).collect();
                println!("{:<26}{}", "instructions", names.concat());
                self.bare.insert(column.to_vec()).clone()
            }
            Some(bare) => bare.clone(),
        };
        let mut line = String::new();
        for ((workload, cost), bare) in WORKLOADS.iter().zip(column).zip(&bare) {
            let more = (cost - bare) / bare * 100.0;
            let cell = format!("{cost:.0} ({more:+.1} %)");
            line.push_str(&format!("{cell:>18}"));
            matrix::add(&Row { table: "instructions", row: name, result: workload.name, detail: &cell })?;
        }
        println!("{name:<26}{line}");
        Ok(())
    }
}
