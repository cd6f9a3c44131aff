//! What the agent costs a system call that does not fail.
//!
//! The same loop of one-byte reads of /dev/zero runs with and without the agent, turn and turn about, and the
//! order within a pair alternates, so that a drift of the machine hits both sides alike.

use std::fs::File;
use std::io::Read;

use anyhow::{Context, Result};
use integration_tests::harness::agent::{Agent, SOON};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::wait::now;

use super::count;
use super::spread::Spread;

const READS: u32 = 1_000_000;

pub(super) fn run(bench: &mut Bench) -> Result<()> {
    let pairs = count(15);
    println!("read(2) of one byte of /dev/zero: {pairs} interleaved pairs of {READS} reads, ns a call");
    // Once for nothing: caches, frequency.
    nanos_per_read()?;
    let (mut without, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        let (bare, watched) = if pair % 2 == 0 {
            let bare = nanos_per_read()?;
            (bare, watched(bench)?)
        } else {
            let watched = watched(bench)?;
            (nanos_per_read()?, watched)
        };
        println!(
            "  pair {:2}: without {bare:6.1}, with {watched:6.1}, ratio {:.3}",
            pair + 1,
            watched / bare
        );
        without.push(bare);
        with.push(watched);
        ratios.push(watched / bare);
    }
    let (without, with) = (Spread::new(without), Spread::new(with));
    println!("without the agent  {without}");
    println!("with the agent     {with}");
    println!("ratio              {}", Spread::new(ratios));
    println!("difference of the medians: {:+.1} ns a call", with.percentile(50) - without.percentile(50));
    Ok(())
}

/// With an agent that watches what it finds, and one series to prove that its programs are attached.
fn watched(bench: &Bench) -> Result<f64> {
    let mut agent = Agent::start(bench, "[discovery]\nenabled = true\n")?;
    agent.wait_scrape("the kernel programs count", |scrape| {
        Ok(scrape.value("mountie_source_up", &[("source", "bpf")])? == 1.0)
    })?;
    let nanos = nanos_per_read()?;
    // The next one wants the lock.
    agent.terminate(SOON)?;
    Ok(nanos)
}

fn nanos_per_read() -> Result<f64> {
    let mut zero = File::open("/dev/zero").context("cannot open /dev/zero")?;
    let mut byte = [0];
    let begin = now();
    for _ in 0..READS {
        zero.read_exact(&mut byte).context("cannot read /dev/zero")?;
    }
    Ok((now().saturating_sub(begin)).as_secs_f64() * 1e9 / f64::from(READS))
}
