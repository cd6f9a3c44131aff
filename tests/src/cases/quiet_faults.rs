//! Faults that wake nobody: no program writes, no probe is due, no sensor is told. The options in the table and
//! the counters in sysfs say them to whoever asks.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Setup, Volume, errors};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::{Case, Skip};
use integration_tests::harness::loop_dev::{Kind, LoopDevice};
use integration_tests::harness::matrix::{self, Row};
use integration_tests::harness::mnt_ns::{detach, only_mount_at};
use integration_tests::harness::needs::Need;
use integration_tests::harness::wait::now;

const TIMEOUT: Duration = Duration::from_secs(150);
const EXT4: &[Need] =
    &[Need::Root, Need::Loop, Need::Tool("mkfs.ext4"), Need::Tool("xfs_io"), Need::Tool("setpriv")];

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "an_ext4_that_went_read_only_is_found_without_a_write_a_probe_or_a_report",
        needs: EXT4,
        timeout: TIMEOUT,
        run: read_only,
    },
    Case {
        name: "an_ext4_that_shut_down_is_found_without_a_write_a_probe_or_a_report",
        needs: EXT4,
        timeout: TIMEOUT,
        run: shut_down,
    },
    Case {
        name: "errors_that_ext4_counts_and_goes_on_after_are_counted_from_sysfs",
        needs: EXT4,
        timeout: TIMEOUT,
        run: goes_on,
    },
    Case {
        name: "a_superblock_that_is_mounted_again_is_watched_for_errors_again",
        needs: EXT4,
        timeout: TIMEOUT,
        run: mounted_again,
    },
];

fn mounted(bench: &Bench, options: &str) -> Result<(LoopDevice, PathBuf)> {
    let mounted = LoopDevice::mounted(bench, Kind::Ext4, options)?;
    LoopDevice::settle(&mounted.1)?;
    Ok(mounted)
}

/// An agent that neither fanotify nor a kernel program tells anything, and that has no reason to probe.
fn deaf_agent(bench: &Bench, mountpoint: &std::path::Path) -> Result<Agent> {
    let volume = Volume::at("v", mountpoint).set("interval", "10m").set("deadline", "2s");
    let mut setup = Setup::new(bench, &format!("[kernel]\nfamily = \"off\"\n{}", volume.to_toml()))?;
    let without = "-sys_admin,-bpf,-perfmon";
    setup.wrapper =
        vec!["setpriv".to_owned(), format!("--bounding-set={without}"), format!("--inh-caps={without}")];
    let agent = Agent::start_with(bench, &setup)?;
    let scrape = agent.wait_state("v", "healthy")?;
    for source in ["fanotify_fs", "fanotify_mnt", "bpf"] {
        ensure!(scrape.value("mountie_source_up", &[("source", source)])? == 0.0, "{source} is up");
    }
    for source in ["mountinfo", "sysfs"] {
        ensure!(scrape.value("mountie_source_up", &[("source", source)])? == 1.0, "{source} is down");
    }
    Ok(agent)
}

fn read_only(bench: &mut Bench) -> Result<()> {
    let (device, mountpoint) = mounted(bench, "errors=remount-ro")?;
    let agent = deaf_agent(bench, &mountpoint)?;
    let started = now();
    device.trigger_error()?;
    let line = only_mount_at(&mountpoint)?;
    let says_so = line.super_options.split(',').any(|word| word == "emergency_ro" || word == "ro");
    if !says_so {
        // The counter is all that tells. It is a hint; a look that answers contradicts it.
        agent.wait_scrape("the error is counted", |scrape| {
            Ok(errors(scrape, "v", "EUCLEAN", "filesystem", "sysfs") >= 1.0)
        })?;
        let row = "ext4 read-only by error, nobody writes";
        let detail = &line.super_options;
        return matrix::add(&Row { table: "faults", row, result: "counted in sysfs, not degraded", detail });
    }
    agent.wait_degraded("v", "readonly")?;
    found("ext4 read-only by error, nobody writes", started, &line.super_options)?;
    let described = agent.command(&["describe", "v"])?;
    let text = String::from_utf8_lossy(&described.stdout);
    ensure!(text.contains("seen by mount table since"), "{text}");
    Ok(())
}

fn shut_down(bench: &mut Bench) -> Result<()> {
    let (_device, mountpoint) = mounted(bench, "")?;
    let agent = deaf_agent(bench, &mountpoint)?;
    let started = now();
    LoopDevice::shut_down(&mountpoint)?;
    let line = only_mount_at(&mountpoint)?;
    if !line.super_options.split(',').any(|word| word == "shutdown") {
        return Err(Skip("this kernel does not tell of it in the table".to_owned()).into());
    }
    agent.wait_degraded("v", "fs_shutdown")?;
    found("ext4 shut down, nobody writes", started, &line.super_options)
}

fn found(row: &str, started: Duration, options: &str) -> Result<()> {
    let took = now().saturating_sub(started).as_millis();
    let result = format!("detected in {took} ms");
    matrix::add(&Row { table: "faults", row, result: &result, detail: options })
}

fn goes_on(bench: &mut Bench) -> Result<()> {
    let (device, mountpoint) = mounted(bench, "errors=continue")?;
    // An error from before the agent: its base line.
    device.trigger_error()?;
    let agent = deaf_agent(bench, &mountpoint)?;
    agent.wait_probes("v", 0.0)?;
    ensure!(errors(&agent.scrape()?, "v", "EUCLEAN", "filesystem", "sysfs") == 0.0);
    let counted = |wanted: f64| {
        agent.wait_scrape("the errors are counted", |scrape| {
            Ok(errors(scrape, "v", "EUCLEAN", "filesystem", "sysfs") >= wanted)
        })
    };
    device.trigger_error()?;
    counted(1.0)?;
    device.trigger_error()?;
    device.trigger_error()?;
    let scrape = counted(3.0)?;
    ensure!(errors(&scrape, "v", "EUCLEAN", "filesystem", "sysfs") == 3.0, "{}", scrape.summary());
    fs::write(mountpoint.join("new"), b"x").context("it goes on, and so must writing")
}

/// The mark of fanotify dies with the superblock. Also where the new one has the numbers of the old.
fn mounted_again(bench: &mut Bench) -> Result<()> {
    let (device, mountpoint) = mounted(bench, "errors=continue")?;
    let volume = Volume::at("v", &mountpoint).set("interval", "10m").set("deadline", "2s");
    let agent = Agent::start(bench, &volume.to_toml())?;
    let scrape = agent.wait_state("v", "healthy")?;
    if scrape.value("mountie_source_up", &[("source", "fanotify_fs")])? == 0.0 {
        return Err(Skip("needs error events of fanotify".to_owned()).into());
    }
    let mut before = 0.0;
    for round in 0..3 {
        agent
            .wait_scrape("an error is reported", |scrape| {
                // Until the mark is set errors are reported to nobody, so there is one more with each look.
                device.trigger_error()?;
                Ok(errors(scrape, "v", "EUCLEAN", "filesystem", "fanotify") > before)
            })
            .with_context(|| format!("round {round}"))?;
        detach(&mountpoint)?;
        device.mount(&mountpoint, "errors=continue")?;
        before = errors(&agent.scrape()?, "v", "EUCLEAN", "filesystem", "fanotify");
    }
    Ok(())
}
