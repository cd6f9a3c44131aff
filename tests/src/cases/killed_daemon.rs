//! A FUSE daemon is killed: the same place serves again, from a new mount, and nobody ever sees the bare
//! directory in between.

use std::time::Duration;

use anyhow::{Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, STAGE, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::bindfs::{self, Bindfs};
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector};
use integration_tests::harness::matrix;
use integration_tests::harness::mnt_ns::{mounts_below, only_mount_at};
use integration_tests::harness::needs::Need;
use integration_tests::harness::scrape::Scrape;
use integration_tests::harness::wait::{now, wait_for};
use integration_tests::harness::watcher::Watcher;
use nix::errno::Errno;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_killed_bindfs_is_served_again_without_a_gap",
        needs: &[Need::Root, Need::Fuse, Need::Tool("bindfs")],
        timeout: Duration::from_secs(150),
        run: killed_bindfs,
    },
    Case {
        name: "a_killed_daemon_is_found_though_nobody_reads",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(150),
        run: nobody_reads,
    },
    Case {
        name: "observe_never_repairs",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(150),
        run: observed_only,
    },
];

const SENTINEL: &str = "models-7f3a";

fn killed_bindfs(bench: &mut Bench) -> Result<()> {
    let source = bench.make_directory("source")?;
    bench.write("source/.mountie", SENTINEL.as_bytes())?;
    let mountpoint = bench.make_directory("volume")?;
    let served = Bindfs::mount(&source, &mountpoint)?;
    let volume = Volume::at("v", &mountpoint)
        .sentinel(SENTINEL)
        .set("source", &source.display().to_string())
        .set("fstype", bindfs::FSTYPE)
        .set("interval", "1s")
        .set("deadline", "2s")
        .repaired_by_mount();
    let mut agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;

    for repairs in [1.0, 2.0] {
        let old = only_mount_at(&mountpoint)?;
        let watcher = Watcher::start(bench, &mountpoint, ".mountie", SENTINEL)?;
        served.kill()?;
        watcher.sees_more(50, Duration::from_secs(60))?;
        let scrape = wait_repaired(&agent, "mount", repairs)?;
        let new = only_mount_at(&mountpoint)?;
        ensure!(new.device != old.device && new.id != old.id, "the same mount: {old:?}, {new:?}");
        let tally = watcher.finish()?;
        ensure!(tally.gaps == 0, "the bare directory was seen {} times", tally.gaps);
        let dead = tally.failed("open", Errno::ENOTCONN) + tally.failed("open", Errno::ECONNABORTED);
        ensure!(tally.all_failed() == dead, "other errors than those of a dead mount: {tally:?}");
        ensure!(scrape.value("mountie_mount_stack_depth", &[("volume", "v")])? == 1.0);
        nothing_staged()?;
    }
    agent.must_run()
}

fn nobody_reads(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", SENTINEL)?;
    let volume = Volume::at("v", injector.mountpoint()).sentinel(SENTINEL).set("interval", "10m");
    let agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;
    let daemons = injector.daemons();
    wait_for("the agent watches the daemon", SOON, || {
        daemons.iter().all(|daemon| watches(agent.id(), *daemon))
    })?;
    let begin = now();
    injector.kill()?;
    agent.wait_degraded("v", "disconnected")?;
    let result = format!("detected in {} ms", now().saturating_sub(begin).as_millis());
    let row = "FUSE daemon killed, probed every 10 minutes";
    matrix::add(&matrix::Row { table: "faults", row, result: &result, detail: "nobody reads" })
}

/// Whether a process has a handle on the end of another.
///
/// kernel: `pidfd_show_fdinfo`, fs/pidfs.c (kernel/fork.c before 6.9): the line `Pid:`, since 5.4.
fn watches(watcher: u32, watched: u32) -> bool {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{watcher}/fdinfo")) else { return false };
    descriptors.flatten().any(|descriptor| {
        let text = std::fs::read_to_string(descriptor.path()).unwrap_or_default();
        text.lines()
            .any(|line| line.strip_prefix("Pid:").is_some_and(|number| number.trim() == watched.to_string()))
    })
}

fn observed_only(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", SENTINEL)?;
    let mut command = injector.command()?;
    command.push("{target}".to_owned());
    let acting = Volume::at("v", injector.mountpoint())
        .set("source", "injector")
        .set("fstype", FSTYPE)
        .set("interval", "200ms")
        .set("deadline", "2s")
        .repaired_by(&command);
    let observing = acting.to_toml().replace("mode = \"act\"", "mode = \"observe\"");
    let agent = Agent::start(bench, &observing)?;
    agent.wait_state("v", "healthy")?;
    let before = only_mount_at(injector.mountpoint())?;
    injector.kill()?;
    agent.wait_degraded("v", "disconnected")?;
    let scrape = agent.wait_probes("v", 10.0)?;
    ensure!(scrape.sum("mountie_remediation_total", &[]) == 0.0, "it repaired");
    ensure!(only_mount_at(injector.mountpoint())? == before, "it touched the mount");
    Ok(())
}

fn wait_repaired(agent: &Agent, method: &str, times: f64) -> Result<Scrape> {
    let labels = [("volume", "v"), ("method", method), ("outcome", "changed")];
    agent.wait_scrape(&format!("repaired {times} times"), |scrape| {
        Ok(scrape.sum("mountie_remediation_total", &labels) >= times)
    })?;
    agent.wait_state("v", "healthy")
}

fn nothing_staged() -> Result<()> {
    let left = mounts_below(STAGE.as_ref())?;
    ensure!(left.is_empty(), "left at the stage: {left:?}");
    Ok(())
}
