//! Data that an application wrote without an error and that never reached the storage.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::{Case, Skip};
use integration_tests::harness::loop_dev::LoopDevice;
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::run;
use integration_tests::harness::wait::wait_for;

pub(crate) const CASES: &[Case] = &[Case {
    name: "a_lost_write_back_is_told_until_it_is_acknowledged_and_not_again_after_a_restart",
    needs: &[Need::Root, Need::Loop, Need::Bpf, Need::Tool("mkfs.ext4")],
    timeout: Duration::from_secs(240),
    run: lost,
}];

fn lost(bench: &mut Bench) -> Result<()> {
    let (_device, mountpoint) = LoopDevice::without_room(bench)?;
    let volume = Volume::at("v", &mountpoint).set("interval", "1s").set("deadline", "2s");
    let setup = Setup::new(bench, &volume.to_toml())?;
    let agent = Agent::start_with(bench, &setup)?;
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
    agent.wait_degraded("v", "writeback_lost")?;
    drop(file);
    // From here on there is room: nothing more is lost.
    let room = bench.path("room");
    run("mount", &["-o".as_ref(), "remount,size=256m".as_ref(), room.as_os_str()])?;

    // A restart forgets neither the loss nor who knows of it.
    let kept = || std::fs::read_to_string(setup.state_dir.join("volumes/v.json")).unwrap_or_default();
    wait_for("the loss is on disk", SOON, || kept().contains("\"errno\""))?;
    agent.kill()?;
    let agent = Agent::start_with(bench, &setup)?;
    agent.wait_probes("v", 3.0)?;
    agent.wait_degraded("v", "writeback_lost")?;
    let acknowledged = agent.command(&["ack", "v"])?;
    ensure!(acknowledged.status.code() == Some(0), "{acknowledged:?}");
    ensure!(kept().contains("\"acknowledged\": {"), "it was said before it was on disk: {}", kept());
    agent.wait_state("v", "healthy")?;
    let again = agent.command(&["ack", "v"])?;
    ensure!(again.status.code() == Some(1), "{again:?}");
    ensure!(String::from_utf8_lossy(&again.stdout).contains("nothing to acknowledge"), "{again:?}");
    ensure!(agent.command(&["ack", "nobody"])?.status.code() == Some(64));
    let events = agent.get("/api/v1/events")?.body;
    ensure!(events.contains("\"kind\":\"acknowledgement\"") && events.contains("\"uid\":0"), "{events}");
    agent.kill()?;

    let agent = Agent::start_with(bench, &setup)?;
    agent.wait_probes("v", 3.0)?;
    agent.wait_state("v", "healthy")?;
    let described = String::from_utf8(agent.command(&["describe", "v"])?.stdout)?;
    ensure!(described.contains("acknowledged by uid 0 ("), "{described}");
    Ok(())
}
