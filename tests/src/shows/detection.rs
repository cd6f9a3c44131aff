//! From an application's first failing read to `Degraded`, over many faults.
//!
//! This program is the application: it reads until a read fails, notes when that read returned, and waits for
//! the agent to say `degraded`. The time of the transition is the agent's own; both clocks are the kernel's
//! monotonic one. Faults go round several volumes, so that one heals while the next breaks.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::wait::{now, pause, wait_for_some};
use nix::errno::Errno;

use super::count;
use super::spread::Spread;

const VOLUMES: usize = 8;
const SENTINEL: &str = "models-7f3a";
/// A detection that takes longer is told with what the agent did meanwhile.
const SLOW_MILLIS: f64 = 50.0;
/// Between two reads of the application.
const PACE: Duration = Duration::from_millis(10);

pub(super) fn run(bench: &mut Bench) -> Result<()> {
    let faults = count(200);
    let mut injectors = Vec::new();
    let mut body = String::new();
    for number in 0..VOLUMES {
        let name = format!("v{number}");
        let injector = Injector::start(bench, &name, SENTINEL)?;
        body += &Volume::at(&name, injector.mountpoint()).sentinel(SENTINEL).to_toml();
        injectors.push((name, injector));
    }
    let agent = Agent::start(bench, &body)?;
    println!("{faults} faults on {VOLUMES} volumes: EIO on read, an application that reads every {PACE:?}");
    let mut times = Vec::new();
    for fault in 0..faults {
        let (name, injector) = injectors.get(fault % VOLUMES).context("no volume")?;
        wait_state(&agent, name, &["healthy", "probation"])?;
        let millis = one_fault(&agent, name, injector)?;
        times.push(millis);
        injector.set(&Mode::Ok)?;
        if (fault + 1) % 20 == 0 {
            println!("  {:4} faults, the last took {millis:.2} ms", fault + 1);
        }
    }
    println!("first failing read → Degraded, ms: {}", Spread::new(times));
    Ok(())
}

/// Milliseconds from the return of the failing read to the transition.
fn one_fault(agent: &Agent, name: &str, injector: &Injector) -> Result<f64> {
    // A volume that breaks again at once is looked at at most every 100 ms: that is not what is measured.
    wait_for_some("the last fault is a second old", Duration::from_secs(30), || {
        let last = last_fall(agent, name)?.unwrap_or_default();
        Ok((now().as_secs_f64() - last > 1.0).then_some(()))
    })?;
    let file = File::open(injector.data(0)).context("cannot open the data")?;
    let mut byte = [0];
    file.read_at(&mut byte, 0).context("the volume is not well before the fault")?;
    injector.set(&Mode::fail(Errno::EIO, &["read"]))?;
    let failed_at = loop {
        let begin = now();
        match file.read_at(&mut byte, 0) {
            Ok(_) => pause(PACE),
            Err(error) => {
                ensure!(error.raw_os_error() == Some(Errno::EIO as i32), "another error: {error}");
                break begin.max(now());
            }
        }
    };
    let degraded_at = wait_for_some("the volume is degraded", Duration::from_secs(30), || {
        last_fall(agent, name).map(|at| at.filter(|at| *at >= failed_at.as_secs_f64() - 0.05))
    })?;
    let millis = (degraded_at - failed_at.as_secs_f64()) * 1e3;
    if millis > SLOW_MILLIS {
        tell_slow(name, &view(agent, name)?, failed_at);
    }
    Ok(millis)
}

/// What the agent did around a slow detection, so that the tail can be understood.
fn tell_slow(name: &str, view: &serde_json::Value, failed_at: Duration) {
    println!("  slow on {name}, in ms from the failing read:");
    let history = view.get("history").and_then(|history| history.as_array());
    for transition in history.into_iter().flatten().take(4) {
        let word = |key: &str| transition.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
        let at = transition.get("since_boot").and_then(serde_json::Value::as_f64).unwrap_or_default();
        let millis = (at - failed_at.as_secs_f64()) * 1e3;
        println!("    {millis:9.1}  {} → {}: {}", word("from"), word("to"), word("message"));
    }
}

/// When the volume last became degraded, in seconds since boot.
fn last_fall(agent: &Agent, name: &str) -> Result<Option<f64>> {
    let view = view(agent, name)?;
    let history = view.get("history").and_then(|history| history.as_array()).context("no history")?;
    let fall = history.iter().find(|transition| transition.get("to").is_some_and(|to| to == "degraded"));
    Ok(fall.and_then(|fall| fall.get("since_boot")).and_then(serde_json::Value::as_f64))
}

fn wait_state(agent: &Agent, name: &str, states: &[&str]) -> Result<()> {
    wait_for_some(&format!("{name} is one of {states:?}"), Duration::from_secs(120), || {
        let view = view(agent, name)?;
        let state = view.get("state").and_then(|state| state.as_str()).unwrap_or_default();
        Ok(states.contains(&state).then_some(()))
    })
}

fn view(agent: &Agent, name: &str) -> Result<serde_json::Value> {
    let body = agent.get(&format!("/api/v1/volumes/{name}"))?.body;
    serde_json::from_str(&body).context("the answer is no JSON")
}
