//! The same path, the same source, and not the same file system: what counts is the superblock.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector, Mode};
use integration_tests::harness::loop_dev::{Kind, LoopDevice};
use integration_tests::harness::mnt_ns::{bind, detach, only_mount_at, unmount_when_free};
use integration_tests::harness::needs::Need;
use integration_tests::harness::words;

const TIMEOUT: Duration = Duration::from_secs(150);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_bind_of_a_dead_fuse_mount_is_sick_while_its_restarted_source_is_well",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: dead_binds,
    },
    Case {
        name: "a_sick_bind_is_repaired_from_its_source_which_is_left_alone",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: repaired_bind,
    },
    Case {
        name: "a_dead_ext4_that_is_mounted_again_while_it_is_in_use_is_still_dead",
        needs: &[Need::Root, Need::Loop, Need::Tool("mkfs.ext4")],
        timeout: TIMEOUT,
        run: |bench| same_again(bench, Kind::Ext4),
    },
    Case {
        name: "a_dead_xfs_that_is_mounted_again_while_it_is_in_use_is_still_dead",
        needs: &[Need::Root, Need::Loop, Need::Tool("mkfs.xfs"), Need::Tool("xfs_io")],
        timeout: TIMEOUT,
        run: |bench| same_again(bench, Kind::Xfs),
    },
    Case {
        name: "many_mounts_of_one_hung_superblock_cost_one_worker",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: one_worker,
    },
];

fn watched(name: &str, mountpoint: &Path) -> Volume {
    Volume::at(name, mountpoint).set("interval", "300ms").set("deadline", "2s")
}

fn dead_binds(bench: &mut Bench) -> Result<()> {
    let source = Injector::start(bench, "source", "here")?;
    let (first, second) = (bench.make_directory("first")?, bench.make_directory("second")?);
    bind(source.mountpoint(), &first)?;
    bind(&first, &second)?;
    let places = [("source", source.mountpoint()), ("first", &first), ("second", &second)];
    let body = places.map(|(name, place)| watched(name, place).to_toml()).concat();
    let agent = Agent::start(bench, &body)?;
    for (name, _) in places {
        agent.wait_state(name, "healthy")?;
    }
    source.kill()?;
    for (name, _) in places {
        agent.wait_degraded(name, "disconnected")?;
    }
    // The daemon is started again where it was.
    detach(source.mountpoint())?;
    source.mount(&[])?;
    agent.wait_state("source", "healthy")?;
    let scrape = agent.wait_probes("second", 3.0)?;
    for name in ["first", "second"] {
        ensure!(words::sick(&scrape, name, "disconnected")?, "{name}: {}", scrape.summary());
        ensure!(words::device(&scrape, name)? != words::device(&scrape, "source")?, "the split is not shown");
    }
    // A person repairs one of them.
    detach(&first)?;
    bind(source.mountpoint(), &first)?;
    agent.wait_state("first", "healthy")?;
    let scrape = agent.scrape()?;
    ensure!(words::sick(&scrape, "second", "disconnected")?);
    ensure!(words::device(&scrape, "first")? == words::device(&scrape, "source")?);
    words::untouched(&scrape)
}

fn repaired_bind(bench: &mut Bench) -> Result<()> {
    let source = Injector::start(bench, "source", "here")?;
    let place = bench.make_directory("bind")?;
    bind(source.mountpoint(), &place)?;
    let volume = watched("bind", &place)
        .set("source", &source.mountpoint().display().to_string())
        .set("fstype", FSTYPE)
        .line("options = [\"bind\"]")
        .repaired_by_mount();
    let body = [watched("source", source.mountpoint()).to_toml(), volume.to_toml()].concat();
    let agent = Agent::start(bench, &body)?;
    agent.wait_state("bind", "healthy")?;
    source.kill()?;
    agent.wait_degraded("source", "disconnected")?;
    detach(source.mountpoint())?;
    source.mount(&[])?;
    let well = only_mount_at(source.mountpoint())?;
    agent.wait_scrape("the bind is repaired", |scrape| {
        Ok(words::repairs(scrape, "bind", "changed") >= 1.0 && words::healthy(scrape, "bind")?)
    })?;
    agent.wait_state("source", "healthy")?;
    ensure!(only_mount_at(&place)?.device == well.device, "not the new daemon's");
    ensure!(only_mount_at(source.mountpoint())? == well, "the healthy source was touched");
    Ok(())
}

/// A file that is open keeps the dead superblock, and the device cannot have a second one.
fn same_again(bench: &mut Bench, kind: Kind) -> Result<()> {
    let options = if kind == Kind::Ext4 { "errors=remount-ro" } else { "" };
    let (device, mountpoint) = LoopDevice::mounted(bench, kind, options)?;
    fs::write(mountpoint.join(".mountie"), "here")?;
    LoopDevice::settle(&mountpoint)?;
    let user = File::open(&mountpoint).context("cannot open the root")?;
    let agent = Agent::start(bench, &watched("v", &mountpoint).sentinel("here").to_toml())?;
    agent.wait_state("v", "healthy")?;
    if kind == Kind::Ext4 {
        device.trigger_error()?;
    } else {
        LoopDevice::shut_down(&mountpoint)?;
    }
    agent.wait_state("v", "degraded")?;
    detach(&mountpoint)?;
    agent.wait_degraded("v", "missing")?;
    device.mount(&mountpoint, options)?;
    agent.wait_scrape("the mount is seen", |scrape| Ok(words::stack_depth(scrape, "v")? == 1.0))?;
    let scrape = agent.wait_probes("v", 4.0)?;
    ensure!(words::is_sick(&scrape, "v")?, "{}", scrape.summary());
    let states = words::history(&agent, "v")?;
    let after = states.iter().rposition(|(_, reason)| reason == "missing").unwrap_or(0);
    ensure!(!states.iter().skip(after).any(|(state, _)| state == "healthy"), "{states:?}");

    drop(user);
    unmount_when_free(&mountpoint)?;
    device.mount(&mountpoint, options)?;
    agent.wait_state("v", "healthy").map(drop)
}

fn one_worker(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let well = Injector::start(bench, "well", "here")?;
    let mut body =
        watched("v", injector.mountpoint()).to_toml() + &watched("well", well.mountpoint()).to_toml();
    let names: Vec<String> = (0..8).map(|number| format!("bind{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let place = bench.make_directory(name)?;
        // Half of them show a directory in it, as subpaths of volumes do.
        let part = if number % 2 == 0 {
            injector.mountpoint().to_owned()
        } else {
            injector.mountpoint().join("sub")
        };
        bind(&part, &place)?;
        body += &watched(name, &place).to_toml();
    }
    let agent = Agent::start(bench, &body)?;
    for name in &names {
        agent.wait_state(name, "healthy")?;
    }
    injector.set(&Mode::hang_all())?;
    for name in std::iter::once("v").chain(names.iter().map(String::as_str)) {
        agent.wait_degraded(name, "hung")?;
    }
    let scrape = agent.wait_probes("well", 5.0)?;
    let abandoned = scrape.value("mountie_probe_abandoned_workers", &[])?;
    ensure!(abandoned == 1.0, "{abandoned} workers for one superblock");
    ensure!(words::healthy(&scrape, "well")?);
    injector.set(&Mode::Ok)?;
    for name in &names {
        agent.wait_state(name, "healthy")?;
    }
    agent.wait_scrape("no worker is left", |scrape| {
        Ok(scrape.value("mountie_probe_abandoned_workers", &[])? == 0.0)
    })?;
    Ok(())
}
