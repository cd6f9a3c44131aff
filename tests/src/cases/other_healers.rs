//! Somebody else heals the volume while a plan for it runs: the plan stops, leaves nothing, and the volume is looked at.

use std::time::Duration;

use anyhow::{Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, STAGE, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector};
use integration_tests::harness::mnt_ns::{detach, mounts_at, mounts_below};
use integration_tests::harness::needs::Need;
use integration_tests::harness::process;
use integration_tests::harness::wait::{is_there, wait_for};
use integration_tests::harness::words;

const TIMEOUT: Duration = Duration::from_secs(180);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_plan_stops_when_somebody_mounts_over_the_path_while_its_helper_runs",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: mounted_over,
    },
    Case {
        name: "a_plan_stops_when_somebody_unmounts_and_mounts_while_its_helper_runs",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: mounted_anew,
    },
];

/// How long the helper sleeps: its mark among all processes.
const MARK: &str = "987321";

fn sleepers() -> usize {
    let sleeps = |one: &u32| {
        process::is_running(*one) && process::arguments(*one).iter().any(|word| word == MARK.as_bytes())
    };
    process::all().into_iter().filter(sleeps).count()
}

/// A volume whose daemon has died, and whose helper runs and never comes back by itself.
fn with_helper(bench: &Bench, old: &Injector) -> Result<Agent> {
    let started = bench.path("started");
    let script = format!("touch {}\nsleep {MARK} &\nsleep {MARK}\n", started.display());
    let script = bench.write("helper.sh", script.as_bytes())?;
    let command = ["/bin/sh".to_owned(), script.display().to_string(), "{target}".to_owned()];
    let volume = Volume::at("v", old.mountpoint())
        .set("source", "injector")
        .set("fstype", FSTYPE)
        .set("interval", "500ms")
        .set("deadline", "2s")
        .repaired_by(&command);
    let agent = Agent::start(bench, &(volume.to_toml() + "timeout = \"30m\"\n"))?;
    agent.wait_state("v", "healthy")?;
    old.kill()?;
    agent.wait_state("v", "recovering")?;
    wait_for("the helper runs", SOON, || is_there(&started))?;
    Ok(agent)
}

fn stopped(agent: &mut Agent, did: &str) -> Result<()> {
    agent.wait_scrape("the plan is stopped", |scrape| {
        Ok(words::repairs(scrape, "v", "table_changed") >= 1.0)
    })?;
    agent.wait_state("v", "healthy")?;
    wait_for("nothing of the helper is left", SOON, || sleepers() == 0)?;
    ensure!(mounts_below(STAGE.as_ref())?.is_empty(), "something is left at the stage");
    let told = agent.get("/api/v1/events")?.body;
    ensure!(told.contains(&format!("somebody else {did}")) && told.contains("is stopped"), "{told}");
    let scrape = agent.scrape()?;
    // One that began when the other one took its time was stopped as well.
    let ended = scrape.sum("mountie_remediation_total", &[("volume", "v")]);
    ensure!(ended == words::repairs(&scrape, "v", "table_changed"), "a plan was not stopped");
    agent.must_run()
}

fn mounted_over(bench: &mut Bench) -> Result<()> {
    let old = Injector::start(bench, "volume", "here")?;
    let mut agent = with_helper(bench, &old)?;
    let control = bench.make_directory("other.control")?;
    Injector::between(control, old.mountpoint().to_owned(), "here")?.mount(&[])?;
    stopped(&mut agent, "mounted at")?;
    ensure!(mounts_at(old.mountpoint())?.len() == 2, "what others have mounted was taken away");
    Ok(())
}

fn mounted_anew(bench: &mut Bench) -> Result<()> {
    let old = Injector::start(bench, "volume", "here")?;
    let mut agent = with_helper(bench, &old)?;
    detach(old.mountpoint())?;
    agent.wait_degraded("v", "missing")?;
    old.mount(&[])?;
    stopped(&mut agent, "unmounted")?;
    ensure!(mounts_at(old.mountpoint())?.len() == 1);
    Ok(())
}
