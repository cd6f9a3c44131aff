//! Repairs that cannot succeed end, loudly, and make nothing worse.

use std::fs::File;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, STAGE, Volume, is_in_state};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector};
use integration_tests::harness::loop_dev::{Kind, LoopDevice};
use integration_tests::harness::mnt_ns::{detach, mounts_below, only_mount_at};
use integration_tests::harness::needs::Need;

const TIMEOUT: Duration = Duration::from_secs(180);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "repairs_that_fail_end_in_quarantine_and_a_person_can_heal_it",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: quarantine,
    },
    Case {
        name: "a_block_volume_in_use_is_not_torn_away",
        needs: &[Need::Root, Need::Loop, Need::Tool("mkfs.ext4")],
        timeout: TIMEOUT,
        run: busy,
    },
    Case {
        name: "a_dry_run_tells_and_does_nothing",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: dry_run,
    },
];

fn failing(injector: &Injector, command: &[String]) -> Volume {
    Volume::at("v", injector.mountpoint())
        .set("source", "injector")
        .set("fstype", FSTYPE)
        .set("interval", "500ms")
        .set("deadline", "2s")
        .repaired_by(command)
}

fn quarantine(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let command = ["/bin/false".to_owned(), "{target}".to_owned()];
    let body = failing(&injector, &command).to_toml() + "max_attempts = 2\n";
    let mut agent = Agent::start(bench, &body)?;
    agent.wait_state("v", "healthy")?;
    let before = only_mount_at(injector.mountpoint())?;
    injector.kill()?;
    let scrape = agent.wait_state("v", "quarantined")?;
    let failed = scrape.sum("mountie_remediation_total", &[("volume", "v"), ("outcome", "helper_failed")]);
    ensure!(failed == 2.0, "{failed} failed attempts, not 2");
    ensure!(only_mount_at(injector.mountpoint())? == before, "the mount point was changed");
    ensure!(mounts_below(STAGE.as_ref())?.is_empty(), "something is left at the stage");

    detach(injector.mountpoint())?;
    injector.mount(&[])?;
    agent.wait_state("v", "healthy")?;
    agent.must_run()
}

fn busy(bench: &mut Bench) -> Result<()> {
    let (device, mountpoint) = LoopDevice::mounted(bench, Kind::Ext4, "errors=remount-ro")?;
    let in_use = File::create(mountpoint.join("in-use")).context("cannot make a file")?;
    LoopDevice::settle(&mountpoint)?;
    let volume = Volume::at("v", &mountpoint)
        .set("source", &device.device().display().to_string())
        .set("fstype", "ext4")
        .set("interval", "500ms")
        .set("deadline", "2s")
        .repaired_by_mount();
    let mut agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;
    let before = only_mount_at(&mountpoint)?;
    device.trigger_error()?;
    agent.wait_scrape("the repair is refused", |scrape| {
        Ok(scrape.sum("mountie_remediation_total", &[("volume", "v"), ("outcome", "busy")]) >= 1.0)
    })?;
    let after = only_mount_at(&mountpoint)?;
    ensure!(after.id == before.id, "the mount was replaced under an open file: {after:?}");
    ensure!(in_use.metadata().is_ok(), "the open file was torn away");
    agent.must_run()
}

fn dry_run(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let mut command = injector.command()?;
    command.push("{target}".to_owned());
    let body = failing(&injector, &command).to_toml().replace("mode = \"act\"", "mode = \"dry-run\"");
    let agent = Agent::start(bench, &body)?;
    agent.wait_state("v", "healthy")?;
    let before = only_mount_at(injector.mountpoint())?;
    injector.kill()?;
    agent.wait_degraded("v", "disconnected")?;
    let scrape = agent.wait_probes("v", 10.0)?;
    ensure!(is_in_state(&scrape, "v", "degraded")?);
    ensure!(scrape.sum("mountie_remediation_total", &[]) == 0.0, "it acted");
    ensure!(only_mount_at(injector.mountpoint())? == before, "it touched the mount");
    let described = agent.command(&["describe", "v"])?;
    let text = String::from_utf8_lossy(&described.stdout).into_owned();
    ensure!(text.contains("dry-run"), "what it would do is not told:\n{text}");
    Ok(())
}
