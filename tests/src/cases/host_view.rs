//! An agent that watches something other than the host says so at once, wherever people look; and one that enters the
//! namespace of process 1 watches what is mounted there later.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, Volume, has_reason};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::needs::Need;
use integration_tests::harness::wait::wait_for_some;
use nix::errno::Errno;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Tool("unshare")];
const TIMEOUT: Duration = Duration::from_secs(150);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "an_agent_in_a_private_namespace_says_that_it_does_not_see_the_host",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: private,
    },
    Case {
        name: "an_agent_in_a_namespace_of_its_own_watches_what_process_one_mounts_later",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: entered,
    },
];

const PRIVATE: [&str; 4] = ["unshare", "--mount", "--propagation", "private"];

fn wrapped(bench: &Bench, words: &[&str], body: &str) -> Result<Setup> {
    let wrapper = words.iter().map(|word| (*word).to_owned()).collect();
    Ok(Setup { wrapper, ..Setup::new(bench, body)? })
}

fn private(bench: &mut Bench) -> Result<()> {
    let injector = Injector::prepare(bench, "volume", "here")?;
    // It was mounted before, so the agent sees it: a clock for what it should see later.
    let other = Injector::start(bench, "other", "here")?;
    let volume = |name, injector: &Injector| {
        Volume::at(name, injector.mountpoint()).set("interval", "200ms").to_toml()
    };
    let body = volume("v", &injector) + &volume("other", &other);
    let mut agent = Agent::start_with(bench, &wrapped(bench, &PRIVATE, &body)?)?;
    let scrape = agent.scrape()?;
    ensure!(scrape.value("mountie_source_up", &[("source", "host_view")])? == 0.0, "it believes its view");
    let word = "the watched mount namespace is private";
    let ready = agent.get("/readyz")?;
    ensure!(ready.status == 200 && ready.body.contains(word), "{ready:?}");
    ensure!(agent.log()?.contains(word), "{}", agent.log()?);
    let doctor = String::from_utf8_lossy(&agent.command(&["doctor"])?.stdout).into_owned();
    let line = doctor.lines().find(|line| line.starts_with("host_view")).context("no host_view")?;
    ensure!(line.contains("off") && line.contains(word), "{line}");
    // And it is so: the volume that process 1 mounts now never arrives.
    injector.mount(&[])?;
    let scrape = agent.wait_probes("other", 10.0)?;
    ensure!(scrape.value("mountie_volume_state", &[("volume", "v"), ("state", "degraded")])? == 1.0);
    ensure!(has_reason(&scrape, "v", "missing")?, "{}", scrape.summary());
    agent.terminate(SOON)?;

    let mut agent = Agent::start_with(bench, &Setup { name: "own".into(), ..Setup::new(bench, &body)? })?;
    let scrape = agent.wait_state("v", "healthy")?;
    ensure!(scrape.value("mountie_source_up", &[("source", "host_view")])? == 1.0, "{}", agent.log()?);
    ensure!(agent.get("/readyz")?.body == "ready\n");
    agent.terminate(SOON).map(drop)
}

fn entered(bench: &mut Bench) -> Result<()> {
    let injector = Injector::prepare(bench, "volume", "here")?;
    let body = Volume::at("v", injector.mountpoint()).sentinel("here").set("interval", "200ms").to_toml();
    // It must override the file of the bench.
    let words = [&["env", "MOUNTIE_AGENT_MOUNT_NAMESPACE=/proc/1/ns/mnt"], &PRIVATE[..]].concat();
    let mut agent = Agent::start_with(bench, &wrapped(bench, &words, &body)?)?;
    agent.wait_degraded("v", "missing")?;
    injector.mount(&[])?;
    agent.wait_state("v", "healthy")?;
    let own = std::fs::read_to_string(format!("/proc/{}/mountinfo", agent.id()))?;
    let place = injector.mountpoint().display().to_string();
    ensure!(!own.contains(&place), "the agent's own namespace shows the volume, so nothing is proved");
    injector.set(&Mode::fail_all(Errno::ESTALE))?;
    agent.wait_degraded("v", "stale")?;
    injector.set(&Mode::Ok)?;
    agent.wait_state("v", "healthy")?;
    // Process 1 of this bench is no host's, and that is what is said; the namespace itself is the right one.
    let log = wait_for_some("the view is judged", SOON, || {
        let log = agent.log()?;
        Ok(log.contains("process 1 is not the host's").then_some(log))
    })?;
    ensure!(!log.contains("is private"), "{log}");
    agent.terminate(SOON).map(drop)
}
