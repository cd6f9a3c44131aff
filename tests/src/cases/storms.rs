//! A storm of failing calls on a volume that nobody tracks fills nothing, and a tracked volume is counted exactly
//! in the middle of it.

use std::time::Duration;

use anyhow::{Result, ensure};
use integration_tests::harness::agent::{Agent, Volume, errors};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::needs::Need;
use integration_tests::harness::reader::{Reader, Work};
use integration_tests::harness::wait::wait_for_some;
use nix::errno::Errno;

const TIMEOUT: Duration = Duration::from_secs(240);
const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Bpf];

pub(crate) const CASES: &[Case] = &[Case {
    name: "a_storm_on_an_untracked_volume_fills_nothing",
    needs: NEEDS,
    timeout: TIMEOUT,
    run: untracked,
}];

/// Calls of a storm that are waited for: far more than any buffer holds.
const STORM: u64 = 10_000;

/// Failed reads by descriptor and failed opens by name, as fast as they go.
fn untracked(bench: &mut Bench) -> Result<()> {
    let tracked = Injector::start(bench, "tracked", "here")?;
    let other = Injector::start(bench, "other", "there")?;
    let agent = Agent::start(bench, &Volume::at("v", tracked.mountpoint()).sentinel("here").to_toml())?;
    agent.wait_state("v", "healthy")?;
    let reads = Reader::start(bench, "reads", Work::Read, &other.data(0), Duration::ZERO)?;
    let opens = Reader::start(bench, "opens", Work::OpenAndRead, &other.data(1), Duration::ZERO)?;
    other.set(&Mode::fail(Errno::EIO, &["read", "open"]))?;
    wait_for_some("the storm", Duration::from_secs(120), || {
        let made = (reads.tally()?.all_failed(), opens.tally()?.all_failed());
        Ok((made.0 >= STORM && made.1 >= STORM).then_some(()))
    })?;
    // In the middle of it, the tracked volume is counted exactly.
    let reader = Reader::start(bench, "reader", Work::Read, &tracked.data(0), Duration::from_millis(10))?;
    tracked.set(&Mode::fail(Errno::EIO, &["read"]))?;
    agent.wait_degraded("v", "io_error")?;
    tracked.set(&Mode::Ok)?;
    let failed = reader.finish()?.failed("read", Errno::EIO) as f64;
    let counted = |scrape: &_| errors(scrape, "v", "EIO", "read", "bpf");
    let scrape = agent.wait_scrape("the failed reads are counted", |scrape| Ok(counted(scrape) >= failed))?;
    ensure!(counted(&scrape) == failed, "{} counted, {failed} made", counted(&scrape));
    let lost = scrape.sum("mountie_ebpf_records_dropped_total", &[]);
    ensure!(lost == 0.0, "{lost} records were lost");
    reads.finish()?;
    opens.finish()?;
    agent.wait_state("v", "healthy").map(drop)
}
