//! Containers that hold a volume: they follow its repair, and whoever is left behind is found, counted and named.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::bindfs::{self, Bindfs};
use integration_tests::harness::case::Case;
use integration_tests::harness::container::Container;
use integration_tests::harness::mnt_ns::{detach, only_mount_at};
use integration_tests::harness::needs::Need;
use integration_tests::harness::wait::wait_for_some;
use serde_json::Value;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_container_follows_a_repair_and_its_old_files_are_named",
        needs: &[Need::Root, Need::Fuse, Need::Tool("bindfs")],
        timeout: Duration::from_secs(150),
        run: follows,
    },
    Case {
        name: "a_volume_repaired_by_hand_is_not_healthy_while_a_container_is_left",
        needs: &[Need::Root, Need::Fuse, Need::Tool("bindfs")],
        timeout: Duration::from_secs(150),
        run: left_behind,
    },
];

const SENTINEL: &str = "models-7f3a";

fn prepare(bench: &mut Bench) -> Result<(PathBuf, PathBuf, Bindfs)> {
    let source = bench.make_directory("source")?;
    bench.make_directory("source/inner")?;
    bench.write("source/.mountie", SENTINEL.as_bytes())?;
    bench.write("source/file", b"first")?;
    bench.write("source/inner/file", b"inner")?;
    let mountpoint = bench.make_directory("volume")?;
    let served = Bindfs::mount(&source, &mountpoint)?;
    Ok((source, mountpoint, served))
}

fn volume(source: &Path, mountpoint: &Path) -> Volume {
    Volume::at("v", mountpoint)
        .sentinel(SENTINEL)
        .set("source", &source.display().to_string())
        .set("fstype", bindfs::FSTYPE)
        .set("interval", "1s")
        .set("deadline", "2s")
}

/// What `mountie describe` says.
fn described(agent: &Agent) -> Result<String> {
    Ok(String::from_utf8_lossy(&agent.command(&["describe", "v"])?.stdout).into_owned())
}

fn follows(bench: &mut Bench) -> Result<()> {
    let (source, mountpoint, served) = prepare(bench)?;
    let mut agent = Agent::start(bench, &volume(&source, &mountpoint).repaired_by_mount().to_toml())?;
    let scrape = agent.wait_state("v", "healthy")?;
    for name in ["mountie_consumer_stale_mounts", "mountie_stale_open_files"] {
        ensure!(scrape.value(name, &[("volume", "v")])? == 0.0, "{name} is zero from the start");
    }
    let container = Container::start(bench, "container", &mountpoint, true)?;
    container.follows(&mountpoint)?;
    let old = only_mount_at(&mountpoint)?.device;
    served.kill()?;
    agent.wait_scrape("repaired", |scrape| {
        let labels = [("volume", "v"), ("method", "mount"), ("outcome", "changed")];
        Ok(scrape.sum("mountie_remediation_total", &labels) >= 1.0)
    })?;
    container.follows(&mountpoint)?;
    ensure!(only_mount_at(&mountpoint)?.device != old, "the same superblock");
    bench.write("source/file", b"fresh")?;
    for place in [&container.data, &container.readonly] {
        ensure!(container.read(&place.join("file"))? == "fresh");
    }
    ensure!(container.read(&container.inner.join("file"))? == "inner");
    ensure!(std::fs::read_to_string(mountpoint.join("file"))? == "fresh");

    // One file is open on what was replaced; that is told, and is no reason to call the volume sick.
    agent.wait_scrape("the open file is counted", |scrape| {
        let of = |name: &str| scrape.value(name, &[("volume", "v")]);
        Ok(of("mountie_stale_open_files")? == 1.0 && of("mountie_consumer_stale_mounts")? == 0.0)
    })?;
    agent.wait_state("v", "healthy")?;
    let text = described(&agent)?;
    ensure!(text.contains(&format!("1 of sleep (process {})", container.id())), "{text}");
    drop(container);
    agent.wait_scrape("nobody holds it any more", |scrape| {
        Ok(scrape.value("mountie_stale_open_files", &[("volume", "v")])? == 0.0)
    })?;
    agent.must_run()
}

fn left_behind(bench: &mut Bench) -> Result<()> {
    let (source, mountpoint, served) = prepare(bench)?;
    let mut agent = Agent::start(bench, &volume(&source, &mountpoint).to_toml())?;
    agent.wait_state("v", "healthy")?;
    let container = Container::start(bench, "container", &mountpoint, true)?;
    served.kill()?;
    agent.wait_degraded("v", "disconnected")?;
    // Whose mounts are not known when the old one goes is not followed: its number may be another one's after that.
    wait_for_some("all mounts of it are known", SOON, || {
        let view: Value = serde_json::from_str(&agent.get("/api/v1/volumes/v")?.body)?;
        let known = view.get("sick_mounts").and_then(Value::as_u64).context("no count of mounts")?;
        Ok((known == 5).then_some(()))
    })?;
    detach(&mountpoint)?;
    let _served = Bindfs::mount(&source, &mountpoint)?;
    let scrape = agent.wait_degraded("v", "consumer_stale")?;
    let mounts = scrape.value("mountie_consumer_stale_mounts", &[("volume", "v")])?;
    ensure!(mounts == 4.0, "three binds, and the mount that the namespace began with: {mounts}");
    let text = described(&agent)?;
    let process = container.id();
    let place = container.inner.display().to_string();
    ensure!(text.contains(&format!("{place} (its /inner)")), "{text}");
    ensure!(text.contains(&format!("of sleep (process {process})")), "{text}");
    drop(container);
    let scrape = agent.wait_state("v", "healthy")?;
    ensure!(scrape.value("mountie_consumer_stale_mounts", &[("volume", "v")])? == 0.0);
    agent.must_run()
}
