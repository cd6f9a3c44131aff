//! A volume breaks and heals before your eyes.
//!
//! The volume is a real FUSE daemon (bindfs) over a disk that can be told to fail. First the disk answers EIO,
//! then the daemon is killed. An application reads the volume all the while; a second one opens the path as fast
//! as it can and would notice a moment in which the bare directory shows.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::bindfs::{self, Bindfs};
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::mnt_ns::only_mount_at;
use integration_tests::harness::reader::{Reader, Work};
use integration_tests::harness::wait::wait_for_some;
use integration_tests::harness::watcher::Watcher;
use nix::errno::Errno;

const SENTINEL: &str = "models-7f3a";
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn run(bench: &mut Bench) -> Result<()> {
    let disk = Injector::start(bench, "disk", SENTINEL)?;
    let mountpoint = bench.make_directory("models")?;
    let daemon = Bindfs::mount(disk.mountpoint(), &mountpoint)?;
    let volume = Volume::at("models", &mountpoint)
        .set("source", &disk.mountpoint().display().to_string())
        .set("fstype", bindfs::FSTYPE)
        .sentinel(SENTINEL)
        .repaired_by_mount();
    say("a volume `models`, served by a real FUSE daemon (bindfs), watched in mode `act`");
    print!("{}", volume.to_toml());
    let mut agent = Agent::start(bench, &volume.to_toml())?;
    let mut story = Story::default();
    agent.wait_state("models", "healthy")?;
    story.tell_until(&agent, "source=\"bpf\"")?;
    status(&agent)?;

    let reader = Reader::start(
        bench,
        "reader",
        Work::OpenAndRead,
        &mountpoint.join("data0"),
        Duration::from_millis(10),
    )?;
    let watcher = Watcher::start(bench, &mountpoint, ".mountie", SENTINEL)?;

    say("1. the disk under it answers EIO to every read");
    disk.set(&Mode::fail(Errno::EIO, &["read"]))?;
    story.tell_until(&agent, "to=\"degraded\"")?;
    story.tell_until(&agent, "Repair f")?;
    describe(&agent)?;
    say("   … and is well again: nothing else could have helped, so nothing was swapped");
    disk.set(&Mode::Ok)?;
    story.tell_until(&agent, "to=\"healthy\"")?;

    say("2. the daemon is killed (SIGKILL)");
    let old = only_mount_at(&mountpoint)?;
    daemon.kill()?;
    story.tell_until(&agent, "to=\"degraded\"")?;
    story.tell_until(&agent, "to=\"healthy\"")?;
    agent.wait_state("models", "healthy")?;
    let new = only_mount_at(&mountpoint)?;
    ensure!(new.device != old.device, "the volume still shows the dead superblock {}", old.device);
    status(&agent)?;

    let (read, watched) = (reader.finish()?, watcher.finish()?);
    say("what the applications saw");
    println!(
        "   superblock {} was replaced by {}, the mount point is one mount deep",
        old.device, new.device
    );
    let gap = agent.scrape()?.value("mountie_remediation_gap_seconds_sum", &[])?;
    println!("   repair:  gap {gap} s between the old file system and the new one");
    println!(
        "   reader:  {} good reads, {} that failed while the volume was sick",
        read.good,
        read.all_failed()
    );
    println!("   watcher: {} good looks, the bare directory was seen {} times", watched.good, watched.gaps);
    ensure!(watched.gaps == 0, "the bare directory was seen");
    agent.must_run()
}

fn say(text: &str) {
    println!("\n▶ {text}");
}

fn status(agent: &Agent) -> Result<()> {
    println!("\n$ mountie status");
    print!("{}", String::from_utf8_lossy(&agent.command(&["status"])?.stdout));
    Ok(())
}

fn describe(agent: &Agent) -> Result<()> {
    println!("\n$ mountie describe models");
    print!("{}", String::from_utf8_lossy(&agent.command(&["describe", "models"])?.stdout));
    Ok(())
}

/// A line of the log without the date and the module, which say nothing here.
fn shorten(line: &str) -> String {
    let mut words = line.split_whitespace();
    let time = words.next().and_then(|stamp| stamp.split_once('T')).map_or("", |(_, time)| time);
    let level = words.next().unwrap_or_default();
    let rest =
        line.split_once("agent::").and_then(|(_, rest)| rest.split_once(": ")).map_or(line, |(_, rest)| rest);
    format!("{} {level:5} {rest}", time.get(..12).unwrap_or(time))
}

/// The new state in one word, where a line tells one: `Degraded(io_error)`.
fn verdict(line: &str) -> Option<String> {
    let field =
        |name: &str| line.split_once(&format!(" {name}=\""))?.1.split_once('"').map(|(value, _)| value);
    let (first, rest) = field("to")?.split_at_checked(1)?;
    let reason = field("reason").map(|reason| format!("({reason})")).unwrap_or_default();
    Some(format!("{}{rest}{reason}", first.to_uppercase()))
}

/// The agent's log, told as it grows.
#[derive(Default)]
struct Story {
    told: usize,
    ahead: VecDeque<String>,
}

impl Story {
    /// Prints the log up to and with the first new line that holds `sign`.
    fn tell_until(&mut self, agent: &Agent, sign: &str) -> Result<()> {
        wait_for_some(&format!("the log says `{sign}`"), PATIENCE, || {
            let log = agent.log()?;
            let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
            let lines: Vec<&str> = whole.lines().collect();
            self.ahead.extend(lines.iter().skip(self.told).map(|line| (*line).to_owned()));
            self.told = lines.len();
            while let Some(line) = self.ahead.pop_front() {
                println!("   {}", shorten(&line));
                if let Some(verdict) = verdict(&line) {
                    println!("   ⇒ {verdict}");
                }
                if line.contains(sign) {
                    return Ok(Some(()));
                }
            }
            Ok(None)
        })
        .context("the demonstration did not go as it should")
    }
}
