//! What is worth telling and no fault: the agent may not look, or there is no space. Never a reason to repair.

use std::time::Duration;

use anyhow::{Result, ensure};
use integration_tests::harness::agent::{Agent, Volume, errors, has_reason, is_in_state};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector, Mode};
use integration_tests::harness::mnt_ns::only_mount_at;
use integration_tests::harness::needs::Need;
use integration_tests::harness::reader::{Reader, Work};
use integration_tests::harness::scrape::Scrape;
use nix::errno::Errno;

const TIMEOUT: Duration = Duration::from_secs(150);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_volume_that_root_could_never_read_is_inaccessible_and_not_degraded",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: never_readable,
    },
    Case {
        name: "a_private_fuse_mount_of_a_user_is_inaccessible_and_not_degraded",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: private,
    },
    Case {
        name: "a_volume_that_was_readable_and_is_refused_now_is_degraded",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: refused_now,
    },
    Case {
        name: "no_space_is_advice_and_counted_exactly",
        needs: &[Need::Root, Need::Fuse, Need::Bpf],
        timeout: TIMEOUT,
        run: |bench| no_room(bench, Errno::ENOSPC, "ENOSPC"),
    },
    Case {
        name: "no_quota_is_advice_and_counted_exactly",
        needs: &[Need::Root, Need::Fuse, Need::Bpf],
        timeout: TIMEOUT,
        run: |bench| no_room(bench, Errno::EDQUOT, "EDQUOT"),
    },
];

/// In mode `act`, so that a wrong verdict would also be a wrong repair.
fn acting(injector: &Injector) -> Result<String> {
    let mut command = injector.command()?;
    command.push("{target}".to_owned());
    let volume = Volume::at("v", injector.mountpoint());
    let volume = volume.set("source", "injector").set("fstype", FSTYPE);
    let volume = volume.set("interval", "200ms").set("deadline", "2s");
    Ok(volume.repaired_by(&command).to_toml())
}

fn inaccessible(agent: &Agent, injector: &Injector) -> Result<()> {
    let before = only_mount_at(injector.mountpoint())?;
    agent.wait_scrape("it is inaccessible", |scrape| has_reason(scrape, "v", "inaccessible"))?;
    let scrape = agent.wait_probes("v", 10.0)?;
    not_sick(&scrape)?;
    ensure!(only_mount_at(injector.mountpoint())? == before, "the mount was touched");
    Ok(())
}

fn not_sick(scrape: &Scrape) -> Result<()> {
    for state in ["degraded", "recovering", "quarantined"] {
        ensure!(!is_in_state(scrape, "v", state)?, "the volume is {state}");
    }
    ensure!(scrape.sum("mountie_remediation_total", &[]) == 0.0, "it repaired");
    Ok(())
}

fn never_readable(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    injector.set(&Mode::fail_all(Errno::EACCES))?;
    let agent = Agent::start(bench, &acting(&injector)?)?;
    inaccessible(&agent, &injector)
}

fn private(bench: &mut Bench) -> Result<()> {
    let injector = Injector::prepare(bench, "volume", "here")?;
    injector.mount(&["--private-to", "1000"])?;
    let agent = Agent::start(bench, &acting(&injector)?)?;
    inaccessible(&agent, &injector)
}

fn refused_now(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let volume = Volume::at("v", injector.mountpoint()).set("interval", "200ms").set("deadline", "2s");
    let agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;
    injector.set(&Mode::fail_all(Errno::EACCES))?;
    agent.wait_degraded("v", "auth")?;
    injector.set(&Mode::Ok)?;
    agent.wait_state("v", "healthy").map(drop)
}

fn no_room(bench: &mut Bench, errno: Errno, name: &str) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let agent = Agent::start(bench, &acting(&injector)?)?;
    agent.wait_state("v", "healthy")?;
    let path = injector.data(0);
    let writer = Reader::start(bench, "writer", Work::Write, &path, Duration::from_millis(5))?;
    injector.set(&Mode::fail(errno, &["write", "create"]))?;
    agent.wait_scrape("it is full", |scrape| has_reason(scrape, "v", "full"))?;
    not_sick(&agent.wait_probes("v", 10.0)?)?;
    injector.set(&Mode::Ok)?;
    let failed = writer.finish()?.failed("write", errno) as f64;
    let counted = |scrape: &_| errors(scrape, "v", name, "write", "bpf");
    let scrape =
        agent.wait_scrape("all failed writes are counted", |scrape| Ok(counted(scrape) >= failed))?;
    ensure!(counted(&scrape) == failed, "{} counted, {failed} made", counted(&scrape));
    not_sick(&scrape)
}
