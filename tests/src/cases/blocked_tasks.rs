//! Who waits on a volume that does not answer is counted and named, with the call and for how long; who waits for
//! another program, on a pipe or a lock that lies on a volume, is not.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::{Background, run};
use integration_tests::harness::reader::{Reader, Work};
use integration_tests::harness::wait::wait_for_some;
use nix::mount::umount;
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(180);
const TOOLS: &[Need] = &[Need::Root, Need::Fuse, Need::Tool("unshare"), Need::Tool("flock")];

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "tasks_that_wait_are_named_by_the_iterator",
        needs: &[Need::Root, Need::Fuse, Need::Bpf, Need::Tool("unshare"), Need::Tool("flock")],
        timeout: TIMEOUT,
        run: |bench| named(bench, "auto", &["umount2"]),
    },
    Case {
        name: "tasks_that_wait_are_named_through_procfs",
        needs: TOOLS,
        timeout: TIMEOUT,
        run: |bench| named(bench, "off", &[]),
    },
];

const EVERY: Duration = Duration::from_millis(20);

/// `others`: what is seen besides, of calls whose failures are not counted.
fn named(bench: &mut Bench, family: &str, others: &[&str]) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let plain = bench.make_directory("plain")?;
    run("mount", &["-t".as_ref(), "tmpfs".as_ref(), "tmpfs".as_ref(), plain.as_os_str()])?;
    let _patient = wait_for_programs(&plain)?;
    let volumes = [
        Volume::at("volume", injector.mountpoint())
            .sentinel("here")
            .set("interval", "1s")
            .set("deadline", "2s"),
        Volume::at("plain", &plain).set("interval", "1s").set("deadline", "2s"),
    ];
    let mut setup = Setup::new(bench, &volumes.map(|volume| volume.to_toml()).concat())?;
    setup.body = format!("[kernel]\nfamily = \"{family}\"\n{}", setup.body);
    let mut agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("volume", "healthy")?;
    let scrape = agent.wait_scrape("the census is up", |scrape| {
        Ok(scrape.value("mountie_source_up", &[("source", "census")])? > 0.0)
    })?;
    ensure!(scrape.value("mountie_blocked_tasks", &[("volume", "volume")])? == 0.0, "zero from the start");

    let reads = Reader::start(bench, "reads", Work::Read, &injector.data(0), EVERY)?;
    let stats = Reader::start(bench, "stats", Work::Stat, &injector.data(1), EVERY)?;
    injector.set(&Mode::hang_all())?;
    let nested = nested(&injector.data(2))?;
    // A name that nobody has looked up yet: the kernel waits in its walk.
    let absent = injector.mountpoint().join("absent");
    let unmounts = std::thread::spawn(move || umount(&absent));
    let tasks = 3 + others.len();
    agent.wait_scrape("all tasks wait", |scrape| {
        Ok(scrape.value("mountie_blocked_tasks", &[("volume", "volume")])? == tasks as f64)
    })?;
    agent.wait_degraded("volume", "hung")?;
    wait_for_some("they have waited through some censuses", SOON, || {
        Ok(waits(&agent, "volume")?.iter().all(|task| seconds(task) > 3.0).then_some(()))
    })?;
    let waiting = waits(&agent, "volume")?;
    ensure!(waiting.len() == tasks, "{waiting:?}");
    let described = String::from_utf8_lossy(&agent.command(&["describe", "volume"])?.stdout).into_owned();
    for (process, name, calls) in [
        (reads.id(), "reader", &["pread64"] as &[&str]),
        (stats.id(), "reader", &["statx"]),
        (nested.id(), "cat", &["openat", "read", "newfstatat", "fstat", "execve"]),
    ] {
        let of = |call: &&&str| described.contains(&format!("{name} (process {process}), {call} for "));
        ensure!(calls.iter().any(|call| of(&call)), "{name} {process} is not told:\n{described}");
    }
    for call in others {
        ensure!(described.contains(&format!(", {call} for ")), "{call} is not told:\n{described}");
    }
    ensure!(described.contains("mount namespace "), "{described}");
    let message = agent.get("/api/v1/volumes/volume")?.body;
    ensure!(message.contains("waiting: "), "the verdict does not name them: {message}");
    let scrape = agent.scrape()?;
    ensure!(scrape.value("mountie_blocked_tasks", &[("volume", "plain")])? == 0.0, "{}", scrape.summary());
    ensure!(scrape.value("mountie_volume_state", &[("volume", "plain"), ("state", "healthy")])? == 1.0);

    injector.set(&Mode::Ok)?;
    ensure!(unmounts.join().is_ok_and(|result| result.is_err()), "what is not there was unmounted");
    agent.wait_scrape("nobody waits any more", |scrape| {
        Ok(scrape.value("mountie_blocked_tasks", &[("volume", "volume")])? == 0.0)
    })?;
    agent.wait_state("volume", "healthy")?;
    agent.must_run()
}

/// Processes that wait for others, on things that lie in a directory: to open a pipe, to read from one, for a lock.
fn wait_for_programs(directory: &Path) -> Result<Vec<Background>> {
    let pipe = directory.join("pipe");
    run("mkfifo", &[pipe.as_os_str()])?;
    File::create(directory.join("lock")).context("cannot make the lock")?;
    let script = |text: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", text]).current_dir(directory).stdin(Stdio::null());
        command.spawn().map(Background).context("cannot start a shell")
    };
    // The outer one holds the lock that the inner one waits for.
    let scripts = ["exec cat pipe", "exec cat 0<>pipe", "exec flock lock flock lock true"];
    scripts.into_iter().map(script).collect()
}

/// Reads a file in a mount namespace of its own.
fn nested(file: &Path) -> Result<Background> {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "cat"]).arg(file);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().map(Background).context("cannot start unshare")
}

fn waits(agent: &Agent, volume: &str) -> Result<Vec<Value>> {
    let body = agent.get(&format!("/api/v1/volumes/{volume}"))?.body;
    let view: Value = serde_json::from_str(&body).context("no JSON")?;
    Ok(view.get("blocked").and_then(Value::as_array).cloned().unwrap_or_default())
}

fn seconds(task: &Value) -> f64 {
    task.get("seconds").and_then(Value::as_f64).unwrap_or(0.0)
}
