//! Containers that hold a volume: they follow its repair, and whoever is left behind is found, counted and named.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::bindfs::{self, Bindfs};
use integration_tests::harness::case::Case;
use integration_tests::harness::mnt_ns::{detach, only_mount_at};
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::Background;
use integration_tests::harness::wait::{wait_for, wait_for_some};
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

/// A mount namespace of its own with binds of the volume, and a process in it that has a file of it open.
struct Container {
    process: Background,
    data: PathBuf,
    readonly: PathBuf,
    inner: PathBuf,
}

impl Container {
    fn start(bench: &Bench, volume: &Path) -> Result<Self> {
        let place = |name: &str| bench.make_directory(format!("container-{name}"));
        let (data, readonly, inner) = (place("data")?, place("readonly")?, place("inner")?);
        let script = "mount --bind $0 $1 && mount --bind $0 $2 && mount -o remount,bind,ro,nosuid $2 && \
                      mount --bind $0/inner $3 && exec sleep 600 < $1/file";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(volume);
        command.args([&data, &readonly, &inner]).stdin(Stdio::null());
        let process = Background(command.spawn().context("cannot start a container")?);
        let container = Self { process, data, readonly, inner };
        let name = format!("/proc/{}/comm", container.process.id());
        wait_for("the container runs", SOON, || {
            std::fs::read_to_string(&name).is_ok_and(|comm| comm == "sleep\n")
        })?;
        Ok(container)
    }

    /// Device number and options of what is mounted at a place in it, bottom first.
    fn mounts_at(&self, place: &Path) -> Result<Vec<(String, String)>> {
        let table = std::fs::read_to_string(format!("/proc/{}/mountinfo", self.process.id()))?;
        let place = place.to_str().context("a place that is text")?;
        let fields = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let here = fields.filter(|fields| fields.get(4) == Some(&place));
        Ok(here
            .filter_map(|fields| Some(((*fields.get(2)?).to_owned(), (*fields.get(5)?).to_owned())))
            .collect())
    }

    /// One deep everywhere, on the superblock that the host shows, with the options that it had.
    fn follows(&self, volume: &Path) -> Result<()> {
        let device = only_mount_at(volume)?.device;
        for place in [volume, &self.data, &self.readonly, &self.inner] {
            let mounts = self.mounts_at(place)?;
            let is_one = matches!(mounts.as_slice(), [(shown, _)] if *shown == device);
            ensure!(is_one, "{} in the container: {mounts:?}, on the host {device}", place.display());
        }
        let readonly = self.mounts_at(&self.readonly)?;
        let words: Vec<&str> = readonly.iter().flat_map(|(_, options)| options.split(',')).collect();
        ensure!(words.contains(&"ro") && words.contains(&"nosuid"), "{words:?}");
        Ok(())
    }

    /// Reads a file as a program in the container does.
    fn read(&self, path: &Path) -> Result<String> {
        let seen = format!("/proc/{}/root{}", self.process.id(), path.display());
        std::fs::read_to_string(&seen).with_context(|| format!("cannot read {seen}"))
    }
}

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
    let container = Container::start(bench, &mountpoint)?;
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
    ensure!(text.contains(&format!("1 of sleep (process {})", container.process.id())), "{text}");
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
    let container = Container::start(bench, &mountpoint)?;
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
    let process = container.process.id();
    let place = container.inner.display().to_string();
    ensure!(text.contains(&format!("{place} (its /inner)")), "{text}");
    ensure!(text.contains(&format!("of sleep (process {process})")), "{text}");
    drop(container);
    let scrape = agent.wait_state("v", "healthy")?;
    ensure!(scrape.value("mountie_consumer_stale_mounts", &[("volume", "v")])? == 0.0);
    agent.must_run()
}
