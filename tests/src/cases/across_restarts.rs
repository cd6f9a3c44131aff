//! What the agent knows across its own end: troubles with their beginning, what was readable, acknowledgements. And
//! that no end, however sudden, spoils what it keeps.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, Volume, has_reason};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::json::part;
use integration_tests::harness::needs::Need;
use integration_tests::harness::wait::wait_for_some;
use nix::errno::Errno;
use serde_json::Value;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse];
const TIMEOUT: Duration = Duration::from_secs(240);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_sick_volume_stays_sick_across_a_restart_and_is_told_once",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: told_once,
    },
    Case {
        name: "what_was_readable_before_a_restart_and_is_refused_after_it_is_degraded",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: refused_after,
    },
    Case {
        name: "an_agent_killed_at_any_moment_finds_its_state_whole",
        needs: NEEDS,
        timeout: Duration::from_secs(400),
        run: killed_at_any_moment,
    },
    Case {
        name: "a_spoilt_file_of_one_volume_costs_the_past_of_that_volume_alone",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: spoilt,
    },
];

/// Without kernel programs, which have nothing to do with it and take their time to start.
fn setup(bench: &Bench, injectors: &[(&str, &Injector)]) -> Result<Setup> {
    let volume = |(name, injector): &(&str, &Injector)| {
        let volume = Volume::at(name, injector.mountpoint()).sentinel("here");
        volume.set("interval", "200ms").set("deadline", "2s").to_toml()
    };
    let volumes: String = injectors.iter().map(volume).collect();
    Setup::new(bench, &format!("[kernel]\nfamily = \"off\"\n{volumes}"))
}

fn file_of(setup: &Setup, volume: &str) -> PathBuf {
    setup.state_dir.join("volumes").join(format!("{volume}.json"))
}

fn stored(setup: &Setup, volume: &str) -> Result<Value> {
    let text = fs::read_to_string(file_of(setup, volume)).context("no file")?;
    serde_json::from_str(&text).context("no JSON")
}

/// Waits until the state directory says so.
fn wait_stored(setup: &Setup, volume: &str, wanted: impl Fn(&Value) -> bool) -> Result<()> {
    wait_for_some("it is on disk", SOON, || Ok(wanted(&stored(setup, volume)?).then_some(())))
}

fn view(agent: &Agent, volume: &str) -> Result<Value> {
    let answer = agent.get(&format!("/api/v1/volumes/{volume}"))?;
    serde_json::from_str(&answer.body).with_context(|| answer.body.clone())
}

fn told_once(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let setup = setup(bench, &[("v", &injector)])?;
    let agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("v", "healthy")?;
    injector.set(&Mode::fail_all(Errno::ESTALE))?;
    agent.wait_degraded("v", "stale")?;
    wait_stored(&setup, "v", |file| part(file, "/trouble/reason") == "stale")?;
    let before = part(&view(&agent, "v")?, "/since").clone();
    agent.kill()?;

    let setup = Setup { name: "again".to_owned(), ..setup };
    let agent = Agent::start_with(bench, &setup)?;
    let scrape = agent.wait_degraded("v", "stale")?;
    agent.wait_probes("v", 5.0)?;
    let now = view(&agent, "v")?;
    // To the second: the two clocks are paired anew in each run.
    let second = |time: &Value| time.as_str().and_then(|text| text.get(..17)).map(str::to_owned);
    ensure!(
        second(part(&now, "/since")) == second(&before) || near(part(&now, "/since"), &before),
        "{before} {now}"
    );
    ensure!(*part(&now, "/history") == Value::Array(Vec::new()), "told again: {now}");
    ensure!(!agent.log()?.contains("Volume is sick"), "logged again: {}", agent.log()?);
    ensure!(scrape.value("mountie_detection_seconds_count", &[])? == 0.0, "a detection without evidence");

    injector.set(&Mode::Ok)?;
    agent.wait_state("v", "healthy")?;
    wait_stored(&setup, "v", |file| part(file, "/trouble").is_null())
}

/// The same moment but for what pairing two clocks costs, where that crosses a whole second.
fn near(one: &Value, other: &Value) -> bool {
    let seconds = |time: &Value| {
        let text = time.as_str()?;
        let minute: f64 = text.get(14..16)?.parse().ok()?;
        let second: f64 = text.get(17..)?.trim_end_matches('Z').parse().ok()?;
        Some(minute * 60.0 + second)
    };
    matches!((seconds(one), seconds(other)), (Some(one), Some(other)) if (one - other).abs() < 1.0)
}

fn refused_after(bench: &mut Bench) -> Result<()> {
    let readable = Injector::start(bench, "readable", "here")?;
    let never = Injector::start(bench, "never", "here")?;
    never.set(&Mode::fail_all(Errno::EACCES))?;
    let setup = setup(bench, &[("readable", &readable), ("never", &never)])?;
    let agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("readable", "healthy")?;
    agent.wait_scrape("never is inaccessible", |scrape| has_reason(scrape, "never", "inaccessible"))?;
    wait_stored(&setup, "readable", |file| part(file, "/wasReadable") == true)?;
    agent.kill()?;
    readable.set(&Mode::fail_all(Errno::EACCES))?;

    let agent = Agent::start_with(bench, &setup)?;
    agent.wait_degraded("readable", "auth")?;
    let scrape = agent.wait_probes("never", 5.0)?;
    ensure!(has_reason(&scrape, "never", "inaccessible")? && !has_reason(&scrape, "never", "auth")?);
    agent.wait_state("never", "unknown").map(drop)
}

fn killed_at_any_moment(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let mut setup = setup(bench, &[("v", &injector)])?;
    let (mut last, mut is_bad) = (String::new(), false);
    for round in 0..10_u32 {
        setup.name = format!("round{round}");
        let agent = Agent::start_with(bench, &setup)?;
        // The volume falls and recovers until the file has changed a few times; then the agent is killed, whatever it
        // is doing.
        for _ in 0..=round % 4 {
            is_bad = !is_bad;
            injector.set(&if is_bad { Mode::fail_all(Errno::ESTALE) } else { Mode::Ok })?;
            last = wait_for_some("the file changes", SOON, || {
                let text = fs::read_to_string(file_of(&setup, "v")).context("no file")?;
                Ok((text != last).then_some(text))
            })?;
        }
        agent.kill()?;
        whole(&setup)?;
        let log = bench.path(format!("round{round}.log"));
        let log = fs::read_to_string(log).context("no log")?;
        ensure!(!log.contains("State is not as it should be"), "{log}");
    }
    injector.set(&Mode::Ok)?;
    setup.name = "last".to_owned();
    let agent = Agent::start_with(bench, &setup)?;
    // Not yet believed: each fall has doubled the settle time.
    agent.wait_state("v", "probation")?;
    ensure!(
        part(&view(&agent, "v")?, "/falls").as_u64().is_some_and(|falls| falls >= 3),
        "falls are forgotten"
    );
    agent.wait_scrape("it flaps", |scrape| has_reason(scrape, "v", "flapping")).map(drop)
}

/// What is there can be read as a whole.
fn whole(setup: &Setup) -> Result<()> {
    let file = stored(setup, "v")?;
    ensure!(part(&file, "/apiVersion") == "mountie/v2" && part(&file, "/volume") == "v", "{file}");
    let names = fs::read_dir(setup.state_dir.join("volumes")).context("no directory")?.flatten();
    let is_bad = |path: &Path| path.to_string_lossy().contains(".bad-");
    ensure!(!names.map(|entry| entry.path()).any(|path| is_bad(&path)), "a file was set aside");
    Ok(())
}

fn spoilt(bench: &mut Bench) -> Result<()> {
    let (a, b) = (Injector::start(bench, "a", "here")?, Injector::start(bench, "b", "here")?);
    let setup = setup(bench, &[("a", &a), ("b", &b)])?;
    let agent = Agent::start_with(bench, &setup)?;
    for (name, injector) in [("a", &a), ("b", &b)] {
        injector.set(&Mode::fail_all(Errno::ESTALE))?;
        agent.wait_degraded(name, "stale")?;
        wait_stored(&setup, name, |file| part(file, "/trouble/reason") == "stale")?;
    }
    agent.kill()?;
    fs::write(file_of(&setup, "a"), "{ \"apiVersion\": \"moun").context("cannot spoil the file")?;
    let setup = Setup { name: "again".to_owned(), ..setup };
    let agent = Agent::start_with(bench, &setup)?;
    agent.wait_degraded("a", "stale")?;
    agent.wait_degraded("b", "stale")?;
    let (a, b) = (view(&agent, "a")?, view(&agent, "b")?);
    ensure!(
        part(&a, "/history") != part(&b, "/history") && *part(&b, "/history") == Value::Array(Vec::new()),
        "{a} {b}"
    );
    ensure!(agent.log()?.contains("only that volume's past is lost"), "{}", agent.log()?);
    ensure!(agent.scrape()?.value("mountie_state_persist_errors_total", &[])? == 1.0);
    Ok(())
}
