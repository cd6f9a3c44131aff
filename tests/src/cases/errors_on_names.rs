//! Calls on names that fail before there is a descriptor: opening, and asking for attributes.

use std::time::Duration;

use anyhow::{Result, ensure};
use integration_tests::harness::agent::{Agent, Volume, errors_of_calls};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::needs::Need;
use integration_tests::harness::reader::{Reader, Work};
use integration_tests::harness::wait::wait_for_some;
use nix::errno::Errno;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Bpf];

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "failed_opens_are_counted_and_degrade",
        needs: NEEDS,
        timeout: Duration::from_secs(150),
        run: |bench| on_names(bench, Work::OpenAndRead, "open", &["open"]),
    },
    Case {
        name: "failed_stats_are_counted_and_degrade",
        needs: NEEDS,
        timeout: Duration::from_secs(150),
        run: |bench| on_names(bench, Work::Stat, "stat", &["lookup", "getattr"]),
    },
];

fn on_names(bench: &mut Bench, work: Work, operation: &str, injected: &[&str]) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let volume = Volume::at("v", injector.mountpoint()).sentinel("here");
    let agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;

    let path = injector.data(0);
    let reader = Reader::start(bench, "reader", work, &path, Duration::from_millis(10))?;
    injector.set(&Mode::fail(Errno::EIO, injected))?;
    agent.wait_degraded("v", "io_error")?;
    wait_for_some("a hundred calls failed", Duration::from_secs(30), || {
        Ok((reader.tally()?.failed(operation, Errno::EIO) >= 100).then_some(()))
    })?;
    injector.set(&Mode::Ok)?;
    agent.wait_state("v", "healthy")?;

    let failed = reader.finish()?.failed(operation, Errno::EIO) as f64;
    let counted = |scrape: &_| errors_of_calls(scrape, "v", "EIO", operation);
    let scrape = agent.wait_scrape("the failed calls are counted", |scrape| Ok(counted(scrape) >= failed))?;
    ensure!(counted(&scrape) == failed, "{} counted, {failed} made", counted(&scrape));
    Ok(())
}
