//! A busy node: processes come and go, and calls fail all the time where nobody watches, or on a volume itself. One
//! error on another volume is still counted, and noticed at once; what is lost is told.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::matrix;
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::send;
use integration_tests::harness::scrape::Scrape;
use integration_tests::harness::wait::{now, wait_for_some};
use nix::errno::Errno;
use nix::sys::signal::Signal;

use super::attribution::{agent_with, read_byte};
use super::marks::{counts, key};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "io::one_error_is_noticed_in_a_storm_of_processes_and_of_errors_elsewhere",
        needs: &[Need::Root, Need::Fuse, Need::Bpf],
        timeout: Duration::from_secs(300),
        run: storm,
    },
    Case {
        name: "io::what_a_storm_on_a_volume_loses_is_told_until_it_is_over",
        // Another storm on the machine fills this agent's ring as well, before its own has begun.
        needs: &[Need::Root, Need::Fuse, Need::Bpf, Need::Alone],
        timeout: Duration::from_secs(420),
        run: storm_on_a_volume,
    },
];

/// Processes that have come and gone before the error, and calls that have failed.
const PROCESSES: u64 = 20_000;
const FAILED_CALLS: u64 = 200_000;
/// Processes whose names find no room while nobody reads: the ring has room for some 750 names.
const MORE_THAN_THE_RING: u64 = 3000;
/// So long the agent tells a loss after the last one.
const TOLD_FOR: Duration = Duration::from_mins(1);

/// Work that goes on in threads until it is stopped, and counts its turns.
struct Background {
    stop: Arc<AtomicBool>,
    turns: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    fn start(threads: usize, work: impl Fn() -> bool + Clone + Send + 'static) -> Self {
        let (stop, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = (0..threads).map(|_| {
            let (stop, turns, work) = (Arc::clone(&stop), Arc::clone(&turns), work.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if work() {
                        turns.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        });
        let threads = threads.collect();
        Self { stop, turns, threads }
    }

    fn wait(&self, what: &str, turns: u64) -> Result<()> {
        wait_for_some(what, Duration::from_secs(120), || {
            Ok((self.turns.load(Ordering::Relaxed) >= turns).then_some(()))
        })
    }

    fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // A thread that panicked has printed why; the counts say whether that matters.
            let _ = thread.join();
        }
    }
}

fn storm(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let elsewhere = Injector::start(bench, "elsewhere", "x")?;
    let agent = agent_with(bench, &[Volume::at("v", injector.mountpoint()).sentinel("here")])?;
    agent.wait_state("v", "healthy")?;
    let file = File::open(injector.data(0))?;
    // Without a daemon everything fails there, and fast.
    elsewhere.kill()?;

    // Each process is one that cannot be started: the new process fails in `execve`, by a name that only the
    // agent could place, and ends.
    let program = climbing(elsewhere.mountpoint())?;
    let processes = Background::start(2, move || is_dead(Command::new(&program).spawn().map(drop)));
    let absent = elsewhere.mountpoint().join("absent");
    let calls = Background::start(1, move || is_dead(File::open(&absent).map(drop)));
    processes.wait("processes have come and gone", PROCESSES)?;
    calls.wait("calls have failed elsewhere", FAILED_CALLS)?;
    let quiet = agent.scrape()?;
    ensure!(counts(&quiet, "v").values().sum::<u64>() == 0, "counted for the wrong volume: {quiet:?}");
    let volume = agent.get("/api/v1/volumes/v")?.body;
    ensure!(!volume.contains("\"suspect\""), "suspected for nothing: {volume}");

    injector.set(&Mode::fail(Errno::EIO, &["read:data0"]))?;
    let begin = now();
    ensure!(read_byte(&file) == Errno::EIO as i32);
    let counted = |scrape: &_| counts(scrape, "v").get(&key(Errno::EIO, "read")).copied().unwrap_or(0);
    agent.wait_scrape("the error is counted", |scrape| Ok(counted(scrape) == 1))?;
    let took = now().saturating_sub(begin);
    injector.set(&Mode::Ok)?;
    processes.finish();
    calls.finish();

    let volume = agent.get("/api/v1/volumes/v")?.body;
    ensure!(volume.contains("\"suspect\""), "it was not noticed: {volume}");
    ensure!(counted(&agent.wait_probes("v", 1.0)?) == 1, "counted more than once");
    let lost = agent.scrape()?.sum("mountie_ebpf_records_dropped_total", &[]);
    let detail = format!("{lost} records of names elsewhere were beyond the budget");
    let result = format!("counted in {} ms", took.as_millis());
    matrix::add(&matrix::Row { table: "io", row: "one error in a storm", result: &result, detail: &detail })
}

/// A storm on a volume itself, by names that only the agent can place. First more names than the budget has room
/// for; then, while the agent does not read, more than the ring has room for. What is lost is told, another volume is
/// counted exactly meanwhile, and a while later nothing is told any more.
fn storm_on_a_volume(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let stormy = Injector::start(bench, "stormy", "here")?;
    let volumes =
        [Volume::at("v", injector.mountpoint()).sentinel("here"), Volume::at("stormy", stormy.mountpoint())];
    let agent = agent_with(bench, &volumes)?;
    for volume in ["v", "stormy"] {
        agent.wait_state(volume, "healthy")?;
    }
    let file = File::open(injector.data(0))?;
    ensure!(bpf(&agent)?.is_empty(), "something is lost before the storm: {}", bpf(&agent)?);
    let dropped = |scrape: &Scrape| scrape.sum("mountie_ebpf_records_dropped_total", &[]);
    let quiet = dropped(&agent.scrape()?);

    stormy.set(&Mode::fail(Errno::EIO, &["lookup"]))?;
    let absent = climbing(stormy.mountpoint())?;
    let program = absent.clone();
    let calls = Background::start(2, move || failed_with(Errno::EIO, File::open(&absent).map(drop)));
    wait_until_told(&agent, "processes send more than")?;
    one_error(&injector, &agent, &file, 1)?;
    calls.finish();
    let of_names = agent.wait_scrape("lost names are counted", |scrape| Ok(dropped(scrape) > quiet))?;

    send(agent.id(), Signal::SIGSTOP)?;
    let processes =
        Background::start(2, move || failed_with(Errno::EIO, Command::new(&program).spawn().map(drop)));
    let filled = processes.wait("more processes have failed than the ring has room for", MORE_THAN_THE_RING);
    send(agent.id(), Signal::SIGCONT)?;
    filled?;
    wait_until_told(&agent, "the ring buffer is full")?;
    one_error(&injector, &agent, &file, 2)?;
    processes.finish();
    let of_records = agent.scrape()?;
    ensure!(dropped(&of_records) > dropped(&of_names), "no more is lost than before");

    stormy.set(&Mode::Ok)?;
    wait_for_some("nothing is lost any more", TOLD_FOR.saturating_mul(2), || {
        Ok(bpf(&agent)?.is_empty().then_some(()))
    })?;
    one_error(&injector, &agent, &file, 3)?;
    ensure!(!stormy.daemons().is_empty(), "the storm has killed the injector");
    let detail = format!("{} records lost, told with their cause", dropped(&agent.scrape()?) - quiet);
    let row =
        matrix::Row { table: "io", row: "a storm on a volume", result: "told and over", detail: &detail };
    matrix::add(&row)
}

/// What the agent says that the kernel programs lose; empty when all that are attached run in full.
fn bpf(agent: &Agent) -> Result<String> {
    let report: serde_json::Value = serde_json::from_str(&agent.get("/api/v1/doctor")?.body)?;
    let sources = report.get("sources").and_then(|sources| sources.as_array()).context("no sources")?;
    let is_bpf = |source: &&serde_json::Value| source.get("name").is_some_and(|name| name == "bpf");
    let source = sources.iter().find(is_bpf).context("no source bpf")?;
    let word = |key: &str| source.get(key).and_then(|word| word.as_str()).unwrap_or_default().to_owned();
    match word("state").as_str() {
        "running" => Ok(String::new()),
        "degraded" if word("reason").starts_with("without ") => Ok(String::new()),
        state => Ok(format!("{state}: {}", word("reason"))),
    }
}

fn wait_until_told(agent: &Agent, cause: &str) -> Result<()> {
    let mut last = String::new();
    let told = wait_for_some(&format!("it is told: {cause}"), Duration::from_secs(30), || {
        last = bpf(agent)?;
        Ok((last.starts_with("degraded: ") && last.contains(cause)).then_some(()))
    });
    told.with_context(|| format!("told is {last:?}"))?;
    let up = agent.scrape()?.value("mountie_source_up", &[("source", "bpf")])?;
    ensure!(up == 0.5, "the source is {up} while records are lost");
    Ok(())
}

/// One more read fails on the volume, and is counted exactly: before the agent is asked, and a look later.
fn one_error(injector: &Injector, agent: &Agent, file: &File, expected: u64) -> Result<()> {
    let counted = |scrape: &Scrape| counts(scrape, "v").get(&key(Errno::EIO, "read")).copied().unwrap_or(0);
    injector.set(&Mode::fail(Errno::EIO, &["read:data0"]))?;
    ensure!(read_byte(file) == Errno::EIO as i32);
    agent.wait_scrape("the error is counted", |scrape| Ok(counted(scrape) == expected))?;
    injector.set(&Mode::Ok)?;
    ensure!(counted(&agent.wait_probes("v", 1.0)?) == expected, "counted more than once");
    Ok(())
}

/// A place below the mount point by a name with `..` in it.
fn climbing(mountpoint: &Path) -> Result<PathBuf> {
    let parent = mountpoint.parent().context("no parent")?;
    let name = mountpoint.file_name().context("no name")?;
    let mut control = name.to_owned();
    control.push(".control");
    Ok(parent.join(control).join("..").join(name).join("absent"))
}

fn is_dead(result: std::io::Result<()>) -> bool {
    failed_with(Errno::ENOTCONN, result)
}

fn failed_with(errno: Errno, result: std::io::Result<()>) -> bool {
    result.err().and_then(|error| error.raw_os_error()) == Some(errno as i32)
}
