//! What lasts is told once: a fault that nobody mends fills no log, and whoever looks on meanwhile is answered.

use std::time::Duration;

use anyhow::{Result, ensure};
use integration_tests::harness::agent::{Agent, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::{children, open_descriptors, status_number};
use integration_tests::harness::words;
use nix::errno::Errno;

pub(crate) const CASES: &[Case] = &[Case {
    name: "a_fault_that_lasts_is_logged_once_and_costs_nothing_more",
    needs: &[Need::Root, Need::Fuse],
    timeout: Duration::from_secs(180),
    run: lasts,
}];

/// Lines of one volume that are more than its changes of state.
const LINES: usize = 6;

fn lasts(bench: &mut Bench) -> Result<()> {
    let modes = [
        ("hung", Mode::hang_all(), "hung"),
        ("error", Mode::fail_all(Errno::EIO), "io_error"),
        ("private", Mode::fail_all(Errno::EACCES), "inaccessible"),
    ];
    let well = Injector::start(bench, "well", "here")?;
    let fast = |name: &str, injector: &Injector| {
        Volume::at(name, injector.mountpoint()).set("interval", "100ms").set("deadline", "1s").to_toml()
    };
    let mut body = fast("well", &well);
    let mut injectors = Vec::new();
    for (name, mode, _) in &modes {
        let injector = Injector::start(bench, name, "here")?;
        if *name == "private" {
            injector.set(mode)?;
        }
        body += &fast(name, &injector);
        injectors.push(injector);
    }
    let mut agent = Agent::start(bench, &body)?;
    agent.wait_state("well", "healthy")?;
    for (injector, (_, mode, _)) in injectors.iter().zip(&modes) {
        injector.set(mode)?;
    }
    agent.wait_degraded("hung", "hung")?;
    agent.wait_degraded("error", "io_error")?;
    agent.wait_scrape("it is inaccessible", |scrape| words::inaccessible(scrape, "private"))?;
    let measure = |agent: &Agent| {
        (open_descriptors(agent.id()), children(agent.id()).len(), status_number(agent.id(), "Threads"))
    };
    let before = measure(&agent);
    for _ in 0..5 {
        let scrape = agent.wait_probes("well", 10.0)?;
        ensure!(words::healthy(&scrape, "well")? && words::sick(&scrape, "hung", "hung")?);
        ensure!(scrape.value("mountie_probe_stuck_seconds", &[("volume", "hung")])? > 0.0);
    }
    let after = measure(&agent);
    ensure!(after.0 <= before.0 + 8 && after.1 <= before.1 + 2, "grown: {before:?} to {after:?}");
    ensure!(after.2 <= before.2.map(|threads| threads + 4), "threads: {before:?} to {after:?}");
    let log = agent.log()?;
    for (name, ..) in &modes {
        let lines = log.lines().filter(|line| line.contains(&format!("volume=\"{name}\""))).count();
        ensure!(lines <= LINES, "{lines} lines about {name}:\n{log}");
    }
    words::untouched(&agent.scrape()?)?;
    for injector in &injectors {
        injector.set(&Mode::Ok)?;
    }
    for (name, ..) in &modes {
        agent.wait_state(name, "healthy")?;
    }
    agent.must_run()
}
