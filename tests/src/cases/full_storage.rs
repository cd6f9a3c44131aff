//! Full storage is not broken storage, however the lack of room is told.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Volume};
use integration_tests::harness::bench::{Bench, mount_tmpfs};
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::needs::Need;
use integration_tests::harness::wait::wait_for_some;
use integration_tests::harness::words;
use nix::errno::Errno;

const TIMEOUT: Duration = Duration::from_secs(150);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_full_file_system_is_full_and_a_probe_that_writes_leaves_nothing_in_it",
        needs: &[Need::Root],
        timeout: TIMEOUT,
        run: full,
    },
    Case {
        name: "a_quota_that_is_told_only_when_a_file_is_synced_or_closed_is_full",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: late,
    },
];

fn full(bench: &mut Bench) -> Result<()> {
    let places = [("blocks", "size=256k"), ("inodes", "size=256k,nr_inodes=20")];
    let mut body = String::new();
    for (name, options) in places {
        let place = bench.make_directory(name)?;
        mount_tmpfs(&place, options)?;
        fs::write(place.join(".mountie"), "here")?;
        let volume = Volume::at(name, &place).sentinel("here").line("write_probe = true");
        body += &volume.set("interval", "200ms").set("deadline", "2s").to_toml();
    }
    let agent = Agent::start(bench, &body)?;
    for (name, _) in places {
        agent.wait_state(name, "healthy")?;
    }
    let ballast = bench.path("blocks/ballast");
    let mut file = OpenOptions::new().create(true).append(true).open(&ballast)?;
    while file.write_all(&[b'x'; 4096]).is_ok() {}
    drop(file);
    let mut made = 0;
    while fs::write(bench.path(format!("inodes/file{made}")), "").is_ok() {
        made += 1;
    }
    for (name, _) in places {
        agent.wait_scrape("it is full", |scrape| words::full(scrape, name)).context(name)?;
        agent.wait_probes(name, 5.0)?;
        words::was_never_sick(&agent, name)?;
    }
    // A probe that is under way may have its file for a moment.
    for (name, files) in [("blocks", 2), ("inodes", made + 1)] {
        wait_for_some("nothing is left behind", SOON, || {
            let names = names(bench, name)?;
            ensure!(names.len() == files, "{name}: {names:?}");
            Ok(Some(()))
        })?;
    }
    fs::remove_file(&ballast)?;
    fs::remove_file(bench.path("inodes/file0"))?;
    for (name, _) in places {
        agent.wait_scrape("it is full no more", |scrape| {
            Ok(!words::full(scrape, name)? && words::healthy(scrape, name)?)
        })?;
    }
    Ok(())
}

fn names(bench: &Bench, place: &str) -> Result<Vec<String>> {
    let entries = fs::read_dir(bench.path(place)).context("cannot list")?;
    Ok(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

/// As network file systems do: every write is taken.
fn late(bench: &mut Bench) -> Result<()> {
    let mut volumes = Vec::new();
    let mut body = String::new();
    for (name, operation) in [("sync", "fsync"), ("close", "flush")] {
        let injector = Injector::start(bench, name, "here")?;
        let volume = Volume::at(name, injector.mountpoint()).sentinel("here").line("write_probe = true");
        body += &volume.set("interval", "200ms").set("deadline", "2s").to_toml();
        volumes.push((name, operation, injector, names(bench, name)?.len()));
    }
    let agent = Agent::start(bench, &body)?;
    for (name, operation, injector, _) in &volumes {
        agent.wait_state(name, "healthy")?;
        injector.set(&Mode::fail(Errno::EDQUOT, &[operation]))?;
    }
    for (name, _, injector, before) in &volumes {
        agent.wait_scrape("it is full", |scrape| words::full(scrape, name)).context(*name)?;
        agent.wait_probes(name, 5.0)?;
        words::was_never_sick(&agent, name)?;
        injector.set(&Mode::Ok)?;
        agent.wait_scrape("it is full no more", |scrape| Ok(!words::full(scrape, name)?))?;
        wait_for_some("nothing is left behind", SOON, || {
            let files = names(bench, name)?;
            ensure!(files.len() == *before, "{name}: {files:?}");
            Ok(Some(()))
        })?;
    }
    Ok(())
}
