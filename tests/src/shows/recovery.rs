//! From `Degraded` to good again, for each method of repair, and how long nothing stood at the path meanwhile; beside
//! what mount(8) takes for the same file system on its own.
//!
//! Each round has a volume of its own, so that no budget and no damping of an earlier round slows it.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Volume};
use integration_tests::harness::bench::{Bench, in_memory, write_program};
use integration_tests::harness::bindfs::{self, Bindfs};
use integration_tests::harness::loop_dev::{Kind, LoopDevice};
use integration_tests::harness::mnt_ns::{bind, only_mount_at, unmount};
use integration_tests::harness::needs::{self, Need};
use integration_tests::harness::process::timed;
use integration_tests::harness::wait::wait_for_some;

use super::count;
use super::spread::Spread;

const SENTINEL: &str = "models-7f3a";
const PATIENCE: Duration = Duration::from_secs(60);

/// One way to repair one kind of volume.
struct Way {
    name: &'static str,
    /// What the names of its volumes begin with.
    prefix: &'static str,
    needs: &'static [Need],
    /// Makes a mounted volume, by the number of the round.
    make: fn(&Bench, usize) -> Result<Broken>,
    /// How many rounds there are for one of the first way.
    one_in: usize,
}

const WAYS: &[Way] = &[
    Way {
        name: "mount, a FUSE daemon (bindfs) killed",
        prefix: "mount",
        needs: &[Need::Fuse, Need::Tool("bindfs")],
        make: |bench, number| fuse(bench, number, "mount", by_mount),
        one_in: 1,
    },
    Way {
        name: "fstab, a FUSE daemon (bindfs) killed",
        prefix: "fstab",
        needs: &[Need::Fuse, Need::Tool("bindfs")],
        make: |bench, number| fuse(bench, number, "fstab", by_fstab),
        one_in: 1,
    },
    Way {
        name: "command, a FUSE daemon (bindfs) killed",
        prefix: "command",
        needs: &[Need::Fuse, Need::Tool("bindfs")],
        make: |bench, number| fuse(bench, number, "command", by_command),
        one_in: 1,
    },
    // No systemd runs in the world of a show: what is measured is all but the time of systemd itself.
    Way {
        name: "systemd (a script stands for systemctl), a FUSE daemon (bindfs) killed",
        prefix: "systemd",
        needs: &[Need::Fuse, Need::Tool("bindfs")],
        make: |bench, number| fuse(bench, number, "systemd", by_unit),
        one_in: 2,
    },
    Way {
        name: "mount, ext4 on a loop device shut down",
        prefix: "ext4",
        needs: &[Need::Loop, Need::Tool("mkfs.ext4"), Need::Tool("xfs_io")],
        make: ext4,
        one_in: 2,
    },
];

/// A volume, and how it is broken.
struct Broken {
    volume: Volume,
    mountpoint: PathBuf,
    /// What mount(8) took for it on its own.
    own: Duration,
    fault: Box<dyn Fn() -> Result<()>>,
}

pub(super) fn run(bench: &mut Bench) -> Result<()> {
    let rounds = count(40);
    for way in WAYS {
        match needs::first_unmet(way.needs) {
            Some(lack) => println!("{}: not measured: {lack}", way.name),
            None => measure(bench, way, (rounds / way.one_in).max(1))?,
        }
    }
    Ok(())
}

fn measure(bench: &Bench, way: &Way, rounds: usize) -> Result<()> {
    let made: Vec<Broken> = (0..rounds).map(|number| (way.make)(bench, number)).collect::<Result<_>>()?;
    let body: String = made.iter().map(|broken| broken.volume.to_toml()).collect();
    let mut agent = Agent::start(bench, &body)?;
    let (mut good, mut settled, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
    for (number, broken) in made.iter().enumerate() {
        let name = format!("{}-{number}", way.prefix);
        agent.wait_state(&name, "healthy")?;
        let before = gap(&agent)?;
        (broken.fault)()?;
        let times =
            wait_for_some(&format!("{name} is healthy again"), PATIENCE, || transitions(&agent, &name))?;
        let at = |state: &str| times.get(state).copied().with_context(|| format!("{name} was never {state}"));
        good.push((at("probation")? - at("degraded")?) * 1e3);
        settled.push((at("healthy")? - at("degraded")?) * 1e3);
        gaps.push((gap(&agent)? - before) * 1e3);
        only_mount_at(&broken.mountpoint)?;
        let read = fs::read_to_string(broken.mountpoint.join(".mountie"));
        ensure!(read.is_ok_and(|text| text == SENTINEL), "{name} is healthy and cannot be read");
    }
    agent.terminate(PATIENCE)?;
    println!("{}, {rounds} rounds, ms:", way.name);
    println!("  Degraded → good again   {}", Spread::new(good));
    println!("  Degraded → Healthy      {}", Spread::new(settled));
    let own = made.iter().map(|broken| broken.own.as_secs_f64() * 1e3).collect();
    println!("  mount(8) on its own     {}", Spread::new(own));
    println!("  nothing at the path     {}", Spread::new(gaps));
    made.iter().try_for_each(|broken| unmount(&broken.mountpoint))
}

/// When the volume last came to each state, in seconds since boot, once it is healthy after a fall.
fn transitions(agent: &Agent, name: &str) -> Result<Option<BTreeMap<String, f64>>> {
    let body = agent.get(&format!("/api/v1/volumes/{name}"))?.body;
    let view: serde_json::Value = serde_json::from_str(&body).context("the answer is no JSON")?;
    let history = view.get("history").and_then(|history| history.as_array()).context("no history")?;
    let mut times = BTreeMap::new();
    for step in history {
        let to = step.get("to").and_then(serde_json::Value::as_str).context("a step to nowhere")?;
        let at =
            step.get("since_boot").and_then(serde_json::Value::as_f64).context("a step without a time")?;
        // Newest first.
        times.entry(to.to_owned()).or_insert(at);
    }
    let is_back = times.get("degraded").is_some_and(|fell| times.get("healthy").is_some_and(|at| at > fell));
    Ok(is_back.then_some(times))
}

/// Seconds in which nothing stood at a path, over all repairs.
fn gap(agent: &Agent) -> Result<f64> {
    agent.scrape()?.value("mountie_remediation_gap_seconds_sum", &[])
}

/// What a volume that bindfs serves is made of.
struct Served<'a> {
    bench: &'a Bench,
    number: usize,
    source: &'a Path,
    mountpoint: &'a Path,
}

/// A volume that bindfs serves from a directory of its own.
fn fuse(
    bench: &Bench,
    number: usize,
    kind: &str,
    repaired: fn(Volume, &Served<'_>) -> Result<Volume>,
) -> Result<Broken> {
    let (source, mountpoint) = places(bench, kind, number)?;
    let (daemon, own) = timed(|| Bindfs::mount(&source, &mountpoint));
    let daemon = daemon?;
    let volume = volume(&format!("{kind}-{number}"), &mountpoint, &source, bindfs::FSTYPE);
    let volume = repaired(volume, &Served { bench, number, source: &source, mountpoint: &mountpoint })?;
    Ok(Broken { volume, mountpoint, own, fault: Box::new(move || daemon.kill()) })
}

fn by_mount(volume: Volume, _: &Served<'_>) -> Result<Volume> {
    Ok(volume.repaired_by_mount())
}

/// By an entry of a file that covers `/etc/fstab`.
fn by_fstab(volume: Volume, served: &Served<'_>) -> Result<Volume> {
    if served.number == 0 {
        bind(&served.bench.write("fstab", b"")?, Path::new("/etc/fstab"))?;
    }
    let mut fstab = OpenOptions::new().append(true).open(served.bench.path("fstab"))?;
    let (source, mountpoint) = (served.source.display(), served.mountpoint.display());
    writeln!(fstab, "{source} {mountpoint} {} nosuid 0 0", bindfs::FSTYPE)
        .context("cannot write the table")?;
    Ok(volume.repaired(&[("method", "fstab")]))
}

fn by_command(volume: Volume, served: &Served<'_>) -> Result<Volume> {
    let source = served.source.display().to_string();
    Ok(volume.repaired_by(&["mount", "-t", bindfs::FSTYPE, &source, "{target}"].map(str::to_owned)))
}

/// Unmounts and mounts, as systemd does for a unit that mounts.
const SYSTEMCTL: &str = r#"#!/bin/sh
number=${5#bench-}
number=${number%.mount}
case "$3 $4" in
"show "*) printf 'LoadState=loaded\nExecMainPID=0\nWhere=\n' ;;
"restart --") umount -l "DIRECTORY/systemd-$number"
    exec mount -t TYPE "DIRECTORY/systemd-source-$number" "DIRECTORY/systemd-$number" ;;
*) exit 92 ;;
esac
"#;

fn by_unit(volume: Volume, served: &Served<'_>) -> Result<Volume> {
    if served.number == 0 {
        in_memory(Path::new("/usr/local/sbin"))?;
        let directory = served.bench.directory().display().to_string();
        let script = SYSTEMCTL.replace("DIRECTORY", &directory).replace("TYPE", bindfs::FSTYPE);
        write_program(Path::new("/usr/local/sbin/systemctl"), &script)?;
    }
    Ok(volume.repaired(&[("method", "systemd"), ("unit", &format!("bench-{}.mount", served.number))]))
}

fn ext4(bench: &Bench, number: usize) -> Result<Broken> {
    let (_, mountpoint) = places(bench, "ext4", number)?;
    let device = LoopDevice::make(bench, &format!("ext4-{number}"), Kind::Ext4)?;
    let (mounted, own) = timed(|| device.mount(&mountpoint, ""));
    mounted?;
    write_sentinel(&mountpoint)?;
    LoopDevice::settle(&mountpoint)?;
    let volume = volume(&format!("ext4-{number}"), &mountpoint, device.device(), device.fstype());
    let place = mountpoint.clone();
    let fault = move || {
        // The device stays attached as long as this is there.
        let _ = &device;
        LoopDevice::shut_down(&place)
    };
    Ok(Broken { volume: volume.repaired_by_mount(), mountpoint, own, fault: Box::new(fault) })
}

fn volume(name: &str, mountpoint: &Path, source: &Path, fstype: &str) -> Volume {
    Volume::at(name, mountpoint)
        .set("source", &source.display().to_string())
        .set("fstype", fstype)
        .sentinel(SENTINEL)
}

/// A directory with a sentinel in it, and a mount point.
fn places(bench: &Bench, kind: &str, number: usize) -> Result<(PathBuf, PathBuf)> {
    let source = bench.make_directory(format!("{kind}-source-{number}"))?;
    write_sentinel(&source)?;
    Ok((source, bench.make_directory(format!("{kind}-{number}"))?))
}

fn write_sentinel(directory: &Path) -> Result<()> {
    let path = directory.join(".mountie");
    fs::write(&path, SENTINEL).with_context(|| format!("cannot write {}", path.display()))
}
