//! An expected volume that is not there is a fault, from the start on and whatever the directory holds; in mode
//! `act` it is mounted. What is mounted over a volume, or instead of it, is told apart.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, Volume};
use integration_tests::harness::bench::{Bench, in_memory};
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector};
use integration_tests::harness::loop_dev::{Kind, LoopDevice};
use integration_tests::harness::mnt_ns::{detach, mounts_at, only_mount_at, unmount};
use integration_tests::harness::needs::Need;
use serde_json::Value;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "an_expected_volume_that_is_not_mounted_is_missing",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(120),
        run: missing,
    },
    Case {
        name: "a_missing_volume_is_mounted_in_mode_act",
        needs: &[Need::Root, Need::Loop, Need::Tool("mkfs.ext4")],
        timeout: Duration::from_secs(120),
        run: mounted,
    },
    Case {
        name: "something_mounted_over_a_volume_is_covered",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(120),
        run: covered,
    },
    Case {
        name: "something_else_in_place_of_a_volume_is_a_wrong_mount",
        needs: &[Need::Root],
        timeout: Duration::from_secs(120),
        run: wrong_mount,
    },
    Case {
        name: "a_watched_volume_can_be_unmounted_at_any_time",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(120),
        run: not_pinned,
    },
];

fn missing(bench: &mut Bench) -> Result<()> {
    let injector = Injector::prepare(bench, "volume", "here")?;
    // A stale copy of the sentinel in the bare directory proves nothing.
    bench.write("volume/.mountie", b"here")?;
    let volume = Volume::at("v", injector.mountpoint()).sentinel("here").set("fstype", FSTYPE);
    let agent = Agent::start(bench, &volume.to_toml())?;
    let scrape = agent.wait_degraded("v", "missing")?;
    ensure!(scrape.value("mountie_mount_stack_depth", &[("volume", "v")])? == 0.0);
    let status = agent.command(&["status", "-o", "json"])?;
    ensure!(status.status.code() == Some(1), "a sick volume, but status ends with {}", status.status);
    let shown: Value = serde_json::from_slice(&status.stdout).context("status prints no JSON")?;
    let shown = shown.to_string();
    ensure!(shown.contains("\"v\"") && shown.contains("missing"), "{shown}");

    injector.mount(&[])?;
    agent.wait_state("v", "healthy")?;
    ensure!(agent.command(&["status", "-o", "json"])?.status.code() == Some(0));
    detach(injector.mountpoint())?;
    agent.wait_degraded("v", "missing").map(drop)
}

fn mounted(bench: &mut Bench) -> Result<()> {
    let device = LoopDevice::make(bench, "disk", Kind::Ext4)?;
    let mountpoint = bench.make_directory("volume")?;
    let volume = Volume::at("v", &mountpoint)
        .set("source", &device.device().display().to_string())
        .set("fstype", device.fstype())
        .line("options = [\"noatime\", \"errors=remount-ro\"]")
        .set("interval", "1s")
        .set("deadline", "2s")
        .repaired_by_mount();
    let agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;
    let line = only_mount_at(&mountpoint)?;
    ensure!(line.fstype == "ext4" && line.options.split(',').any(|word| word == "noatime"), "{line:?}");
    // And again when somebody takes it away.
    unmount(&mountpoint)?;
    agent.wait_scrape("mounted twice", |scrape| {
        Ok(scrape.sum("mountie_remediation_total", &[("volume", "v"), ("outcome", "changed")]) >= 2.0)
    })?;
    agent.wait_state("v", "healthy")?;
    only_mount_at(&mountpoint).map(drop)
}

fn covered(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let volume = Volume::at("v", injector.mountpoint()).sentinel("here").set("fstype", FSTYPE);
    let agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;
    in_memory(injector.mountpoint())?;
    let scrape = agent.wait_degraded("v", "covered")?;
    ensure!(scrape.value("mountie_mount_stack_depth", &[("volume", "v")])? == 2.0);
    unmount(injector.mountpoint())?;
    agent.wait_state("v", "healthy")?;
    ensure!(mounts_at(injector.mountpoint())?.len() == 1);
    Ok(())
}

fn wrong_mount(bench: &mut Bench) -> Result<()> {
    let mountpoint = bench.make_directory("volume")?;
    in_memory(&mountpoint)?;
    let volume = Volume::at("v", &mountpoint).set("source", "/dev/nothing").set("fstype", "ext4");
    let agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_degraded("v", "wrong_mount").map(drop)
}

fn not_pinned(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let volume = Volume::at("v", injector.mountpoint()).sentinel("here");
    let volume = volume.set("interval", "60s").set("deadline", "3s").to_toml();
    let mut agent = Agent::start_with(bench, &Setup::new(bench, &volume)?)?;
    agent.wait_state("v", "healthy")?;
    unmount(injector.mountpoint()).context("between two probes the agent holds the volume")?;
    agent.wait_degraded("v", "missing")?;
    agent.terminate(SOON).map(drop)
}
