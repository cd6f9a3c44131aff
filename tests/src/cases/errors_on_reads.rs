//! Failed reads of an application are counted one by one, make the volume sick, and are forgotten when the
//! storage heals, without anybody's help.

use std::time::Duration;

use anyhow::{Result, ensure};
use integration_tests::harness::agent::{Agent, Volume, errors, is_in_state};
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
        name: "eio_on_reads_is_counted_exactly_and_degrades",
        needs: NEEDS,
        timeout: Duration::from_secs(150),
        run: |bench| on_reads(bench, Errno::EIO, "EIO", "io_error"),
    },
    Case {
        name: "estale_on_reads_is_counted_exactly_and_degrades",
        needs: NEEDS,
        timeout: Duration::from_secs(150),
        run: |bench| on_reads(bench, Errno::ESTALE, "ESTALE", "stale"),
    },
    Case {
        name: "errors_on_writes_that_no_probe_makes_are_counted_exactly",
        needs: NEEDS,
        timeout: Duration::from_secs(150),
        run: on_writes,
    },
    Case {
        name: "one_bad_file_does_not_condemn_a_volume_whose_sentinel_reads_well",
        needs: NEEDS,
        timeout: Duration::from_secs(150),
        run: one_bad_file,
    },
];

fn on_reads(bench: &mut Bench, errno: Errno, name: &str, reason: &str) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let volume = Volume::at("v", injector.mountpoint()).sentinel("here");
    let mut agent = Agent::start(bench, &volume.to_toml())?;
    let healthy = agent.wait_state("v", "healthy")?;
    ensure!(healthy.value("mountie_source_up", &[("source", "bpf")])? > 0.0, "no kernel programs");
    ensure!(errors(&healthy, "v", name, "read", "bpf") == 0.0);

    let path = injector.data(0);
    let reader = Reader::start(bench, "reader", Work::Read, &path, Duration::from_millis(10))?;
    injector.set(&Mode::fail(errno, &["read"]))?;
    agent.wait_degraded("v", reason)?;
    wait_for_some("a hundred reads failed", Duration::from_secs(30), || {
        Ok((reader.tally()?.failed("read", errno) >= 100).then_some(()))
    })?;
    injector.set(&Mode::Ok)?;
    agent.wait_state("v", "healthy")?;

    let tally = reader.finish()?;
    let failed = tally.failed("read", errno);
    ensure!(tally.all_failed() == failed, "the reader met other errors: {tally:?}");
    counted_exactly(&agent, name, "read", failed)?;
    agent.must_run()
}

fn on_writes(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let volume = Volume::at("v", injector.mountpoint()).sentinel("here");
    let agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;
    let path = injector.data(0);
    let writer = Reader::start(bench, "writer", Work::Write, &path, Duration::from_millis(10))?;
    injector.set(&Mode::fail(Errno::EIO, &["write"]))?;
    // Probes read, and reads are good: only the errors of others can say it.
    agent.wait_degraded("v", "io_error")?;
    injector.set(&Mode::Ok)?;
    let failed = writer.finish()?.failed("write", Errno::EIO);
    ensure!(failed > 0);
    counted_exactly(&agent, "EIO", "write", failed)
}

fn one_bad_file(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let volume = Volume::at("v", injector.mountpoint()).sentinel("here").set("interval", "500ms");
    let agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;
    let path = injector.data(3);
    let reader = Reader::start(bench, "reader", Work::Read, &path, Duration::from_millis(10))?;
    injector.set(&Mode::fail(Errno::EIO, &["read:data3"]))?;
    wait_for_some("three hundred reads failed", Duration::from_secs(60), || {
        ensure!(reader.tally()?.all_failed() >= 300);
        Ok(Some(()))
    })?;
    let scrape = agent.wait_probes("v", 3.0)?;
    ensure!(!is_in_state(&scrape, "v", "degraded")?, "one bad file condemned the volume");
    injector.set(&Mode::Ok)?;
    let failed = reader.finish()?.all_failed();
    counted_exactly(&agent, "EIO", "read", failed)?;
    let fell = agent.get("/api/v1/volumes/v")?.body.contains("\"degraded\"");
    ensure!(!fell, "the volume was degraded for a while");
    agent.wait_state("v", "healthy").map(drop)
}

/// The kernel's count reaches the application's own, and stays there.
fn counted_exactly(agent: &Agent, errno: &str, operation: &str, failed: u64) -> Result<()> {
    let failed = failed as f64;
    let count = |scrape: &_| errors(scrape, "v", errno, operation, "bpf");
    agent.wait_scrape(&format!("{failed} failed calls are counted"), |scrape| {
        ensure!(count(scrape) >= failed, "{} counted so far, {failed} made", count(scrape));
        Ok(true)
    })?;
    let later = agent.wait_probes("v", 1.0)?;
    ensure!(count(&later) == failed, "{} counted, {failed} made", count(&later));
    Ok(())
}
