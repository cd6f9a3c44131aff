//! Data that an application wrote without an error and that never reached the storage.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::{Case, Skip};
use integration_tests::harness::loop_dev::LoopDevice;
use integration_tests::harness::needs::Need;

pub(crate) const CASES: &[Case] = &[Case {
    name: "a_lost_write_back_is_told_though_every_write_succeeded",
    needs: &[Need::Root, Need::Loop, Need::Bpf, Need::Tool("mkfs.ext4")],
    timeout: Duration::from_secs(150),
    run: lost,
}];

fn lost(bench: &mut Bench) -> Result<()> {
    let (_device, mountpoint) = LoopDevice::without_room(bench)?;
    let volume = Volume::at("v", &mountpoint).set("interval", "1s").set("deadline", "2s");
    let agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;
    let program = [("program", "filemap_set_wb_err")];
    if agent.scrape()?.sum("mountie_program_attached", &program) == 0.0 {
        return Err(Skip("no program for write-back errors attaches here".to_owned()).into());
    }

    let mut file = OpenOptions::new().create(true).append(true).open(mountpoint.join("big"))?;
    let block = vec![b'x'; 1 << 20];
    for _ in 0..24 {
        file.write_all(&block).context("a write itself failed")?;
    }
    let synced = file.sync_all();
    ensure!(synced.is_err(), "the storage took it all");
    agent.wait_degraded("v", "writeback_lost").map(drop)
}
