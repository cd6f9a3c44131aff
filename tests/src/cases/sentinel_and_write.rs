//! The sentinel alone never condemns a volume; and probes that write leave nothing behind.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Volume, has_reason, is_in_state};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector, Mode};
use integration_tests::harness::needs::Need;
use integration_tests::harness::wait::wait_for_some;
use nix::errno::Errno;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse];
const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_changed_or_removed_sentinel_is_suspect_and_never_repaired",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: sentinel,
    },
    Case { name: "a_write_probe_leaves_nothing_behind", needs: NEEDS, timeout: TIMEOUT, run: write_probe },
    Case {
        name: "a_write_probe_that_was_killed_midway_leaves_nothing_after_the_next",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: killed_midway,
    },
    Case {
        name: "a_write_probe_without_space_or_quota_is_advice_and_leaves_nothing",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: no_quota,
    },
    Case {
        name: "a_write_probe_finds_storage_that_only_reads",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: refused_writes,
    },
    Case { name: "a_default_probe_writes_nothing", needs: NEEDS, timeout: TIMEOUT, run: no_writes },
];

fn fast(injector: &Injector) -> Volume {
    Volume::at("v", injector.mountpoint()).set("interval", "200ms").set("deadline", "2s")
}

fn sentinel(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let mut command = injector.command()?;
    command.push("{target}".to_owned());
    let volume = fast(&injector).sentinel("here").set("source", "injector").set("fstype", FSTYPE);
    let agent = Agent::start(bench, &volume.repaired_by(&command).to_toml())?;
    agent.wait_state("v", "healthy")?;
    let file = injector.mountpoint().join(".mountie");
    for step in ["changed", "removed"] {
        match step {
            "changed" => fs::write(&file, "gone")?,
            _ => fs::remove_file(&file)?,
        }
        agent.wait_state("v", "suspect").context(step)?;
        let scrape = agent.wait_probes("v", 5.0)?;
        ensure!(is_in_state(&scrape, "v", "suspect")?, "{step}: more than suspect");
        ensure!(scrape.sum("mountie_remediation_total", &[]) == 0.0, "{step}: it repaired");
    }
    fs::write(&file, "here")?;
    agent.wait_state("v", "healthy").map(drop)
}

fn write_probe(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let before = names(&injector)?;
    let mut agent = Agent::start(bench, &fast(&injector).line("write_probe = true").to_toml())?;
    agent.wait_state("v", "healthy")?;
    agent.wait_probes("v", 5.0)?;
    agent.terminate(Duration::from_secs(30))?;
    let good = injector.answers()?.good;
    ensure!(good.get("write").is_some_and(|count| *count > 0), "nothing was written: {good:?}");
    ensure!(names(&injector)? == before, "left behind: {:?}", names(&injector)?);
    Ok(())
}

fn killed_midway(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let before = names(&injector)?;
    let volume = Volume::at("v", injector.mountpoint()).set("interval", "200ms").set("deadline", "500ms");
    let mut agent = Agent::start(bench, &volume.line("write_probe = true").to_toml())?;
    agent.wait_state("v", "healthy")?;
    // The file is there, and its content does not arrive: the worker is killed at its deadline.
    injector.set(&Mode::Hang(vec!["write".to_owned(), "unlink".to_owned()]))?;
    agent.wait_degraded("v", "hung")?;
    injector.set(&Mode::fail(Errno::EIO, &["unlink"]))?;
    wait_for_some("a file is left behind", SOON, || {
        Ok(names(&injector)?.iter().any(|name| name.starts_with(".mountie-probe-")).then_some(()))
    })?;
    injector.set(&Mode::Ok)?;
    agent.wait_state("v", "healthy")?;
    agent.wait_probes("v", 3.0)?;
    agent.terminate(SOON)?;
    ensure!(names(&injector)? == before, "left behind: {:?}", names(&injector)?);
    Ok(())
}

fn no_quota(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let before = names(&injector)?;
    let mut agent = Agent::start(bench, &fast(&injector).line("write_probe = true").to_toml())?;
    agent.wait_state("v", "healthy")?;
    // Space is refused when writing, a quota of a server perhaps only when the file is synced or closed.
    for (errno, operation) in [
        (Errno::ENOSPC, "write"),
        (Errno::EDQUOT, "fsync"),
        (Errno::EDQUOT, "flush"),
        (Errno::EDQUOT, "create"),
    ] {
        injector.set(&Mode::fail(errno, &[operation]))?;
        agent.wait_scrape(&format!("{operation} tells it is full"), |scrape| {
            has_reason(scrape, "v", "full")
        })?;
        let scrape = agent.wait_probes("v", 3.0)?;
        ensure!(!is_in_state(&scrape, "v", "degraded")?, "{operation}: it is degraded");
        // A probe that is under way may have its file for a moment.
        wait_for_some(&format!("{operation} leaves nothing behind"), SOON, || {
            Ok((names(&injector)? == before).then_some(()))
        })?;
        injector.set(&Mode::Ok)?;
        agent.wait_scrape("there is room again", |scrape| Ok(!has_reason(scrape, "v", "full")?))?;
    }
    agent.terminate(SOON).map(drop)
}

fn refused_writes(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let agent = Agent::start(bench, &fast(&injector).line("write_probe = true").to_toml())?;
    agent.wait_state("v", "healthy")?;
    injector.set(&Mode::fail(Errno::EROFS, &["create", "write", "unlink"]))?;
    agent.wait_degraded("v", "readonly")?;
    injector.set(&Mode::Ok)?;
    agent.wait_state("v", "healthy").map(drop)
}

fn no_writes(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let agent = Agent::start(bench, &fast(&injector).sentinel("here").to_toml())?;
    agent.wait_state("v", "healthy")?;
    agent.wait_probes("v", 5.0)?;
    let good = injector.answers()?.good;
    // Nor is the root listed: it may have millions of entries.
    for operation in ["write", "create", "unlink", "setattr", "fsync", "opendir", "readdir"] {
        ensure!(!good.contains_key(operation), "a probe asked for {operation}: {good:?}");
    }
    ensure!(good.get("read").is_some_and(|count| *count > 0), "the sentinel was not read: {good:?}");
    Ok(())
}

fn names(injector: &Injector) -> Result<Vec<String>> {
    let entries = fs::read_dir(injector.mountpoint()).context("cannot list the volume")?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}
