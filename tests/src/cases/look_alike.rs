//! A directory that looks like the volume is not the volume: what is mounted decides, not what can be read.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Volume};
use integration_tests::harness::bench::{Bench, mount_tmpfs};
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector};
use integration_tests::harness::mnt_ns::{detach, mounts_at, move_mount, unmount_when_free};
use integration_tests::harness::needs::Need;
use integration_tests::harness::reader::{Reader, Work};
use integration_tests::harness::words;

const TIMEOUT: Duration = Duration::from_secs(150);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_volume_that_was_detached_is_missing_while_a_copy_is_readable_and_writers_go_on",
        needs: &[Need::Root],
        timeout: TIMEOUT,
        run: detached,
    },
    Case {
        name: "a_volume_that_was_moved_away_or_went_with_its_parent_is_missing",
        needs: &[Need::Root],
        timeout: TIMEOUT,
        run: moved,
    },
    Case {
        name: "an_empty_volume_is_healthy_and_a_full_directory_is_missing",
        needs: &[Need::Root],
        timeout: TIMEOUT,
        run: empty,
    },
    Case {
        name: "files_under_a_mount_point_survive_every_repair",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: files_survive,
    },
];

fn watched(mountpoint: &Path) -> Volume {
    Volume::at("v", mountpoint).set("interval", "200ms").set("deadline", "2s")
}

/// Everything in a directory, with what changes when somebody writes there.
fn content(directory: &Path) -> Result<Vec<(PathBuf, u64, i64, i64)>> {
    let mut found = vec![directory.to_owned()];
    for entry in fs::read_dir(directory).context("cannot list")? {
        found.push(entry.context("cannot list")?.path());
    }
    found.sort();
    let facts = |path: PathBuf| {
        let data = fs::symlink_metadata(&path).with_context(|| path.display().to_string())?;
        Ok((path, data.len(), data.mtime(), data.mtime_nsec()))
    };
    found.into_iter().map(facts).collect()
}

fn detached(bench: &mut Bench) -> Result<()> {
    let mountpoint = bench.make_directory("volume")?;
    fs::write(mountpoint.join(".mountie"), "here")?;
    let bare = content(&mountpoint)?;
    mount_tmpfs(&mountpoint, "size=1m")?;
    fs::write(mountpoint.join(".mountie"), "here")?;
    let log = mountpoint.join("log");
    fs::write(&log, "")?;
    let writer = Reader::start(bench, "writer", Work::Write, &log, Duration::from_millis(5))?;
    let volume = watched(&mountpoint).sentinel("here").line("write_probe = true");
    let agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;

    for way in ["detached", "unmounted"] {
        if way == "detached" {
            detach(&mountpoint)?;
        } else {
            unmount_when_free(&mountpoint)?;
        }
        agent.wait_degraded("v", "missing").context(way)?;
        ensure!(fs::read(mountpoint.join(".mountie"))? == b"here", "the copy is not there");
        let scrape = agent.scrape()?;
        ensure!(words::stack_depth(&scrape, "v")? == 0.0 && words::device(&scrape, "v")?.is_empty());
        let checked = agent.get("/api/v1/volumes/v?check=true")?;
        ensure!(checked.body.contains("missing"), "{checked:?}");
        ensure!(content(&mountpoint)? == bare, "{way}: somebody wrote into the bare directory");
        mount_tmpfs(&mountpoint, "size=1m")?;
        fs::write(mountpoint.join(".mountie"), "here")?;
        agent.wait_state("v", "healthy").context(way)?;
    }
    ensure!(writer.finish()?.all_failed() == 0, "the writer met the end of the mount");
    Ok(())
}

fn moved(bench: &mut Bench) -> Result<()> {
    let parent = bench.make_directory("parent")?;
    mount_tmpfs(&parent, "size=1m")?;
    let mountpoint = parent.join("volume");
    fs::create_dir(&mountpoint)?;
    mount_tmpfs(&mountpoint, "size=1m")?;
    let elsewhere = bench.make_directory("elsewhere")?;
    let agent = Agent::start(bench, &watched(&mountpoint).to_toml())?;
    agent.wait_state("v", "healthy")?;
    // Nothing but the place of it changes.
    move_mount(&mountpoint, &elsewhere)?;
    agent.wait_degraded("v", "missing")?;
    move_mount(&elsewhere, &mountpoint)?;
    agent.wait_state("v", "healthy")?;
    // One call takes the parent and everything below it.
    detach(&parent)?;
    agent.wait_degraded("v", "missing")?;
    ensure!(mounts_at(&mountpoint)?.is_empty());
    words::untouched(&agent.scrape()?)
}

fn empty(bench: &mut Bench) -> Result<()> {
    let (mounted, bare) = (bench.make_directory("mounted")?, bench.make_directory("bare")?);
    mount_tmpfs(&mounted, "size=1m")?;
    for number in 0..20 {
        fs::write(bare.join(format!("file{number}")), "not empty")?;
    }
    let body = [
        Volume::at("empty", &mounted).set("interval", "200ms").to_toml(),
        Volume::at("bare", &bare).set("interval", "200ms").to_toml(),
    ];
    let agent = Agent::start(bench, &body.concat())?;
    agent.wait_state("empty", "healthy")?;
    agent.wait_degraded("bare", "missing")?;
    agent.wait_probes("empty", 3.0)?;
    words::was_never_sick(&agent, "empty")
}

/// Beneath the volume, and at the private place where new mounts are made.
fn files_survive(bench: &mut Bench) -> Result<()> {
    let old = Injector::prepare(bench, "volume", "here")?;
    for number in 0..5 {
        fs::write(old.mountpoint().join(format!("beneath{number}")), "precious")?;
    }
    fs::create_dir(old.mountpoint().join("folder"))?;
    File::create(old.mountpoint().join("folder/file"))?;
    let beneath = content(old.mountpoint())?;
    old.mount(&[])?;
    let new = Injector::prepare(bench, "successor", "here")?;
    let mut command = new.command()?;
    command.push("{target}".to_owned());
    let volume = watched(old.mountpoint()).set("source", "injector").set("fstype", FSTYPE);
    let agent = Agent::start(bench, &volume.repaired_by(&command).to_toml())?;
    agent.wait_state("v", "healthy")?;
    // Dead and in use, so that a plain unmount would fail.
    let user = File::open(old.data(0))?;
    old.kill()?;
    agent.wait_scrape("it is repaired", |scrape| Ok(words::repairs(scrape, "v", "changed") == 1.0))?;
    agent.wait_state("v", "healthy")?;
    // Gone altogether: mounted over the bare directory.
    detach(old.mountpoint())?;
    agent.wait_scrape("it is mounted", |scrape| Ok(words::repairs(scrape, "v", "changed") == 2.0))?;
    agent.wait_state("v", "healthy")?;
    drop(agent);
    drop(user);
    while !mounts_at(old.mountpoint())?.is_empty() {
        detach(old.mountpoint())?;
    }
    ensure!(content(old.mountpoint())? == beneath, "{:?}", content(old.mountpoint())?);
    ensure!(fs::read(old.mountpoint().join("beneath4"))? == b"precious");
    Ok(())
}
