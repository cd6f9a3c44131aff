//! What the agent costs system calls that do not fail, in time, on the machine as it is.
//!
//! The same loops run under nothing, under an empty program at the end of every system call, and under the agent, in turn,
//! and each round begins with another, so that a drift of the machine hits all alike. Only ratios within a round are
//! compared. Instructions, which repeat, are counted by [`super::instructions`].

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use integration_tests::harness::bench::Bench;

use super::Column;
use super::empty::Empty;
use super::instructions::with_agent;
use super::workload::{self, WORKLOADS};
use crate::shows::spread::Spread;
use crate::shows::{count, hand_out};

/// Each loop runs for so long each time.
const TURN: Duration = Duration::from_millis(60);

/// What the loops run under.
const UNDER: [Under; 3] = [
    Under { name: "nothing", measure: |_, loops| loops() },
    Under { name: "empty sys_exit", measure: under_empty },
    Under { name: "mountie sys_exit", measure: under_agent },
];

struct Under {
    name: &'static str,
    measure: fn(&Bench, &dyn Fn() -> Result<Column>) -> Result<Column>,
}

pub(in crate::shows) fn run(bench: &mut Bench) -> Result<()> {
    let rounds = count(15);
    let ground = workload::prepare(bench)?;
    let loops = || -> Result<Column> { WORKLOADS.iter().map(|one| one.cost_over(&ground, TURN)).collect() };
    println!("{rounds} rounds, each under {}", UNDER.map(|under| under.name).join(", "));
    // Once for nothing: caches, frequency.
    loops()?;
    let mut seen = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let mut columns = [const { Vec::new() }; UNDER.len()];
        let mut turns: Vec<_> = UNDER.iter().zip(&mut columns).collect();
        turns.rotate_left(round % UNDER.len());
        for (under, column) in turns {
            *column = (under.measure)(bench, &loops).with_context(|| format!("under {}", under.name))?;
        }
        seen.push(columns);
        println!("  round {} of {rounds}", round + 1);
    }
    hand_out(&to_markdown(&seen))
}

fn under_empty(_: &Bench, loops: &dyn Fn() -> Result<Column>) -> Result<Column> {
    let _empty = Empty::attach_sys_exit().context("an empty program on sys_exit")?;
    loops()
}

fn under_agent(bench: &Bench, loops: &dyn Fn() -> Result<Column>) -> Result<Column> {
    with_agent(bench, "sys_exit", &loops).map(|(column, _)| column)
}

/// Loops as rows, what they ran under as columns.
fn to_markdown(rounds: &[[Column; UNDER.len()]]) -> String {
    let mut text = format!("{HEAD}{} rounds.\n\n", rounds.len());
    let [bare, empty, agent] = UNDER.map(|under| under.name);
    let _ = writeln!(
        text,
        "| loop | {bare} | {empty} | {agent} | {agent} : {empty} |\n|---|---:|---:|---:|---:|"
    );
    for (number, workload) in WORKLOADS.iter().enumerate() {
        let of = |column: &Column| column.get(number).copied().unwrap_or(f64::NAN);
        let spread = |value: fn(f64, f64, f64) -> f64| {
            let values = rounds.iter().map(|[bare, empty, agent]| value(of(bare), of(empty), of(agent)));
            Spread::new(values.collect())
        };
        let ratios = [spread(|bare, empty, _| empty / bare), spread(|bare, _, agent| agent / bare)];
        let [empty, agent] = ratios.map(|ratios| shown(&ratios));
        let both = shown(&spread(|_, empty, agent| agent / empty));
        let bare = time(spread(|bare, _, _| bare).percentile(50));
        let _ = writeln!(text, "| {} | {bare} | {empty} | {agent} | {both} |", workload.name);
    }
    text
}

fn shown(ratios: &Spread) -> String {
    let [low, median, high] = [10, 50, 90].map(|percent| ratios.percentile(percent));
    format!("{median:.3} ({low:.2} to {high:.2})")
}

fn time(nanos: f64) -> String {
    if nanos < 10_000.0 { format!("{nanos:.0} ns") } else { format!("{:.0} µs", nanos / 1e3) }
}

const HEAD: &str = "\
# What the kernel programs cost in time

Written by `cargo xtask bench overhead`, on whatever machine it ran: compare columns, not machines. No call of these loops
fails. A cell is how many times the time under nothing in the same round: the median, and from the tenth to the ninetieth
percentile of the rounds. `empty` is a program that returns at once, on the same hook. `tar` packs a tree of 200 files
into a pipe; `echo` is one byte there and back over loopback TCP. What the same costs in instructions is in
[OVERHEAD.md](OVERHEAD.md).

";
