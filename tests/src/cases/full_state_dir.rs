//! No room for the agent's own state: it says so in a counter and goes on.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use integration_tests::harness::agent::{Agent, Setup, Volume};
use integration_tests::harness::bench::{Bench, mount_tmpfs};
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector};
use integration_tests::harness::needs::Need;
use integration_tests::harness::scrape::Scrape;

pub(crate) const CASES: &[Case] = &[Case {
    name: "a_full_state_directory_is_counted_and_survived",
    needs: &[Need::Root, Need::Fuse],
    timeout: Duration::from_secs(150),
    run: full,
}];

fn full(bench: &mut Bench) -> Result<()> {
    let state = bench.make_directory("state")?;
    mount_tmpfs(&state, "size=256k,mode=0700")?;
    let old = Injector::start(bench, "volume", "here")?;
    let new = Injector::prepare(bench, "successor", "here")?;
    let mut command = new.command()?;
    command.push("{target}".to_owned());
    let volume = Volume::at("v", old.mountpoint())
        .set("source", "injector")
        .set("fstype", FSTYPE)
        .set("interval", "500ms")
        .set("deadline", "2s")
        .repaired_by(&command);
    let ballast = state.join("ballast");
    let mut file = fs::OpenOptions::new().create(true).append(true).open(&ballast)?;
    while std::io::Write::write_all(&mut file, &[b'x'; 512]).is_ok() {}
    drop(file);

    let mut agent = Agent::start_with(bench, &Setup::new(bench, &volume.to_toml())?)?;
    agent.wait_state("v", "healthy")?;
    let failures = |scrape: &Scrape| scrape.value("mountie_state_persist_errors_total", &[]);
    let at_start = failures(&agent.scrape()?)?;
    ensure!(at_start > 0.0, "the failed write at the start is not counted");
    old.kill()?;
    // Neither the intent nor the outcome can be written.
    agent.wait_scrape("it is repaired without a journal", |scrape| {
        let repairs = [("volume", "v"), ("outcome", "changed"), ("method", "command")];
        Ok(scrape.value("mountie_remediation_total", &repairs)? == 1.0 && failures(scrape)? >= at_start + 2.0)
    })?;
    agent.must_run()?;
    ensure!(agent.get("/healthz")?.status == 200);

    // With room again, the journal is written again.
    fs::remove_file(&ballast)?;
    let counted = failures(&agent.scrape()?)?;
    new.kill()?;
    let scrape = agent.wait_scrape("it is repaired once more", |scrape| {
        let repairs = [("volume", "v"), ("outcome", "changed"), ("method", "command")];
        Ok(scrape.value("mountie_remediation_total", &repairs)? == 2.0)
    })?;
    ensure!(failures(&scrape)? == counted, "a write failed although there is room");
    ensure!(fs::read_to_string(state.join("journal"))?.contains("Outcome"));
    agent.must_run()
}
