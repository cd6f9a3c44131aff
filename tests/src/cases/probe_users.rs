//! Probes look as the configured user where root is refused what that user may do.

use std::time::Duration;

use anyhow::{Result, ensure};
use integration_tests::harness::agent::{Agent, Volume, has_reason};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::needs::Need;
use nix::errno::Errno;

const USER: &str = "1000";

pub(crate) const CASES: &[Case] = &[Case {
    name: "a_private_fuse_mount_is_watched_as_its_owner",
    needs: &[Need::Root, Need::Fuse],
    timeout: Duration::from_secs(150),
    run: as_its_owner,
}];

fn as_its_owner(bench: &mut Bench) -> Result<()> {
    let injector = Injector::prepare(bench, "volume", "here")?;
    injector.mount(&["--private-to", USER])?;
    let named = |name: &str, probe: &str| {
        let volume = Volume::at(name, injector.mountpoint()).sentinel("here").line(probe);
        volume.set("interval", "200ms").set("deadline", "2s").line("write_probe = true").to_toml()
    };
    let as_root = Agent::start(bench, &named("v", "probe = {}"))?;
    as_root.wait_scrape("root is refused", |scrape| has_reason(scrape, "v", "inaccessible"))?;
    as_root.kill()?;

    let probe = format!("probe = {{ uid = {USER}, gid = {USER} }}");
    let mut agent = Agent::start(bench, &named("v", &probe))?;
    agent.wait_state("v", "healthy")?;
    let scrape = agent.wait_probes("v", 5.0)?;
    ensure!(!has_reason(&scrape, "v", "inaccessible")?, "the owner is refused");
    let good = injector.answers()?.good;
    for operation in ["read", "write", "create", "unlink"] {
        ensure!(good.get(operation).is_some_and(|count| *count > 0), "no {operation}: {good:?}");
    }
    injector.set(&Mode::fail_all(Errno::EIO))?;
    agent.wait_degraded("v", "io_error")?;
    injector.set(&Mode::hang_all())?;
    agent.wait_degraded("v", "hung")?;
    injector.set(&Mode::Ok)?;
    agent.wait_state("v", "healthy")?;
    agent.terminate(Duration::from_secs(30)).map(drop)
}
