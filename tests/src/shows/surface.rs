//! A node on which much is broken, for those who look at an agent from outside: metrics, rules, dashboards, pages.
//!
//! It prints where the agent listens while all is well, breaks things at the first line of its input, says when everything
//! is as it should be, breaks one more volume at the second line, and goes on until its input ends.

use std::io::{BufRead, Read, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Setup, Volume, has_reason, is_in_state, toml_string};
use integration_tests::harness::bench::{Bench, in_memory};
use integration_tests::harness::fuse_fs::{FSTYPE, Injector, Mode};
use integration_tests::harness::mnt_ns::{bind, make_bind_readonly};
use integration_tests::harness::reader::{Reader, Work};
use nix::errno::Errno;

/// Volumes that are well at first.
const WELL: [&str; 9] =
    ["models", "repaired", "errors", "hung", "readonly", "given-up", "paused", "shared-a", "shared-b"];
/// A place whose name is another one as a pattern: a volume that is found there is called so, and who asks for it must
/// not make a pattern of it.
const FOUND: &str = "found(1)";
/// How often applications read.
const PACE: Duration = Duration::from_millis(50);

pub(super) fn run(bench: &mut Bench) -> Result<()> {
    let start = |name: &str| Injector::start(bench, name, "here");
    let (models, repaired, errors) = (start("models")?, start("repaired")?, start("errors")?);
    let (hung, given_up, idle) = (start("hung")?, start("given-up")?, start("paused")?);
    let shared = start("shared-a")?;
    let second = bench.make_directory("shared-b")?;
    bind(shared.mountpoint(), &second)?;
    let (readonly, missing) = (bench.make_directory("readonly")?, bench.make_directory("missing")?);
    let found = bench.make_directory(FOUND)?;
    in_memory(&readonly)?;
    in_memory(&found)?;

    let mut command = repaired.command()?;
    command.push("{target}".to_owned());
    let useless = ["/bin/false".to_owned(), "{target}".to_owned()];
    let volumes = [
        watched("models", models.mountpoint()).sentinel("here"),
        served("repaired", &repaired).repaired_by(&command),
        watched("errors", errors.mountpoint()).sentinel("here"),
        watched("hung", hung.mountpoint()),
        watched("paused", idle.mountpoint()),
        watched("shared-a", shared.mountpoint()),
        watched("shared-b", &second),
        watched("readonly", &readonly),
        watched("missing", &missing).set("fstype", "nfs4").set("source", "filer1:/export/missing"),
        // The last, because a line follows.
        served("given-up", &given_up).repaired_by(&useless),
    ];
    let setup = Setup::new(bench, &settings(&found, &volumes))?;
    let mut agent = Agent::start_with(bench, &setup)?;
    let found_name = found.display().to_string();
    for name in WELL.into_iter().chain([found_name.as_str()]) {
        agent.wait_state(name, "healthy")?;
    }

    say(&format!("surface listens {}", setup.listen))?;
    // Who counts must have seen it well before.
    next_line()?;
    let reads = Reader::start(bench, "reads", Work::OpenAndRead, &errors.data(0), PACE)?;
    let waits = Reader::start(bench, "waits", Work::Stat, &hung.data(0), PACE)?;
    repaired.kill()?;
    agent.wait_scrape("one volume is repaired", |scrape| {
        Ok(scrape.sum("mountie_remediation_total", &[("volume", "repaired"), ("outcome", "changed")]) > 0.0)
    })?;
    errors.set(&Mode::fail(Errno::EIO, &["read"]))?;
    hung.set(&Mode::hang_all())?;
    shared.set(&Mode::fail_all(Errno::ESTALE))?;
    given_up.kill()?;
    make_bind_readonly(&readonly)?;
    make_bind_readonly(&found)?;
    let paused = agent.command(&["pause", "paused", "--reason", "for show"])?;
    ensure!(paused.status.success(), "it cannot be paused: {}", String::from_utf8_lossy(&paused.stderr));
    is_told(&agent)?;
    agent.wait_degraded(&found_name, "readonly")?;

    say("surface ready")?;
    if next_line()? {
        models.set(&Mode::fail_all(Errno::EIO))?;
        agent.wait_degraded("models", "io_error")?;
        say("surface broken")?;
    }
    std::io::stdin().read_to_end(&mut Vec::new()).context("cannot read the input")?;
    agent.must_run()?;
    drop((reads, waits));
    Ok(())
}

/// The volumes, and where one is found.
fn settings(found: &Path, volumes: &[Volume]) -> String {
    let pattern = toml_string(&found.display().to_string());
    let volumes: String = volumes.iter().map(Volume::to_toml).collect();
    format!(
        "[discovery]\nenabled = true\ninclude = [{{ mountpoint = {pattern} }}]\n[defaults]\ninterval = \"1s\"\n\
         {volumes}max_attempts = 1\n"
    )
}

/// Waits until everything that was broken shows.
fn is_told(agent: &Agent) -> Result<()> {
    for (name, reason) in
        [("errors", "io_error"), ("hung", "hung"), ("readonly", "readonly"), ("missing", "missing")]
    {
        agent.wait_degraded(name, reason)?;
    }
    agent.wait_scrape("the one that cannot be repaired is given up", |scrape| {
        Ok(is_in_state(scrape, "given-up", "quarantined")? && has_reason(scrape, "given-up", "disconnected")?)
    })?;
    agent.wait_scrape("two volumes of one daemon are an incident", |scrape| {
        Ok(scrape.value("mountie_incidents", &[("kind", "daemon")])? > 0.0)
    })?;
    agent.wait_state("repaired", "healthy").map(drop)
}

/// Waits for a line of the input. `false`: it has ended.
fn next_line() -> Result<bool> {
    let read = std::io::stdin().lock().read_line(&mut String::new()).context("cannot read the input")?;
    Ok(read > 0)
}

fn say(text: &str) -> Result<()> {
    println!("{text}");
    std::io::stdout().flush().context("cannot say so")
}

fn watched(name: &str, place: &Path) -> Volume {
    Volume::at(name, place).set("interval", "1s").set("deadline", "5s")
}

fn served(name: &str, injector: &Injector) -> Volume {
    watched(name, injector.mountpoint()).set("source", "injector").set("fstype", FSTYPE)
}
