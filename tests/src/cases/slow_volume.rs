//! Slow but completing is advice, and never `hung`; and what hung and answers again is healthy again.

use std::time::Duration;

use anyhow::{Result, ensure};
use integration_tests::harness::agent::{Agent, Volume, has_reason, is_in_state};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::needs::Need;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_hung_volume_that_answers_again_is_healthy_again",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(150),
        run: answers_again,
    },
    Case {
        name: "a_slow_volume_is_not_hung",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(150),
        run: slow,
    },
];

fn slow(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let volume = Volume::at("v", injector.mountpoint()).sentinel("here");
    let volume = volume.set("interval", "5s").set("deadline", "5s");
    let agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;
    // Half of the deadline is slow. The sentinel is read once, whatever else a probe asks.
    injector.set(&Mode::Slow(Duration::from_millis(2700), vec!["read".to_owned()]))?;
    agent.wait_scrape("slowness is told", |scrape| {
        ensure!(is_in_state(scrape, "v", "healthy")?, "a slow volume is not healthy");
        has_reason(scrape, "v", "slow")
    })?;
    injector.set(&Mode::Ok)?;
    agent.wait_scrape("slowness is over", |scrape| Ok(!has_reason(scrape, "v", "slow")?))?;
    let timeouts = agent.scrape()?.sum("mountie_probe_total", &[("volume", "v"), ("result", "timeout")]);
    ensure!(timeouts == 0.0, "{timeouts} probes timed out");
    Ok(())
}

fn answers_again(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let volume = Volume::at("v", injector.mountpoint()).sentinel("here");
    let volume = volume.set("interval", "1s").set("deadline", "2s");
    let agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;
    injector.set(&Mode::hang_all())?;
    agent.wait_degraded("v", "hung")?;
    injector.set(&Mode::Ok)?;
    agent.wait_state("v", "healthy")?;
    let scrape = agent.wait_scrape("no worker is abandoned any more", |scrape| {
        Ok(scrape.value("mountie_probe_abandoned_workers", &[])? == 0.0)
    })?;
    ensure!(scrape.value("mountie_probe_stuck_seconds", &[("volume", "v")])? == 0.0);
    Ok(())
}
