//! Repairs that are cut off at any moment: by a sudden end of the agent, of a helper, or of a FUSE daemon. After each
//! round everything is as if nothing had happened.
//!
//! There are two volumes: of a real FUSE daemon (bindfs), and of a device (ext4 on a loop device). At the beginning of
//! each round one of them falls, so that a repair begins: the daemon is killed, or the file system shuts itself down. A
//! container holds each in four places, one of them read-only.
//! Then something is killed after a random time, sometimes twice. A round ends when the volume is well again, and is
//! checked then. Prints the seed: a run with the same one throws the same dice, though no two runs go alike.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use integration_tests::harness::agent::{Agent, STAGE, Setup, Volume, is_in_state, run_binary};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::bindfs::{self, Bindfs};
use integration_tests::harness::container::{self, Container};
use integration_tests::harness::json::part;
use integration_tests::harness::loop_dev::{Kind, LoopDevice};
use integration_tests::harness::mnt_ns::{mounts_below, only_mount_at, table};
use integration_tests::harness::process::{arguments, descendants, send};
use integration_tests::harness::wait::{now, patiently, pause, wait_for_some};
use nix::sys::signal::Signal;
use serde_json::Value;

/// A round that has not ended by then is a violation: what is left half-made is tried again every ten seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// Kills come within this many milliseconds after the fault: a repair takes about as long.
const WITHIN: u64 = 600;
/// In so many rounds each kind of victim is hit many times over: a run without that shows nothing.
const ROUNDS_TO_HIT_ALL: usize = 40;
/// A run ends after so many violations: the next rounds would tell the same.
const ENOUGH: usize = 5;
const SENTINEL: &str = "chaos-7f3a";

/// What is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    Agent,
    /// The agent is told to end, and does.
    Told,
    /// A child of the agent's, or a helper below it.
    Helper,
    /// The daemon that serves the volume, or is about to.
    Daemon,
}

/// Random, by a seed.
struct Dice(u64);

impl Dice {
    /// Xorshift; a seed of 0 would stay 0.
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    fn victim(&mut self) -> Victim {
        match self.roll(5) {
            0 | 1 => Victim::Agent,
            2 => Victim::Helper,
            3 => Victim::Told,
            _ => Victim::Daemon,
        }
    }
}

/// How often each was hit.
#[derive(Default)]
struct Kills {
    agents: usize,
    told: usize,
    helpers: usize,
    daemons: usize,
}

/// What serves a volume.
enum Served {
    Daemon(Bindfs),
    Device(LoopDevice),
}

/// A volume, and a container that holds it.
struct Scene {
    name: &'static str,
    served: Served,
    /// As the mount table has it.
    source: PathBuf,
    mountpoint: PathBuf,
    container: Container,
    /// What was written before it fell last.
    token: String,
}

struct Chaos<'a> {
    bench: &'a Bench,
    setup: Setup,
    agent: Option<Agent>,
    scenes: [Scene; 2],
    /// Entries of the mount table while all is well.
    mounts: usize,
    dice: Dice,
    kills: Kills,
}

pub(super) fn run(bench: &mut Bench) -> Result<()> {
    let rounds = super::count(1000);
    let seed = std::env::var("SHOW_SEED").ok().and_then(|text| text.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| u64::from(now().subsec_nanos())).max(1);
    println!("seed {seed}, {rounds} rounds");
    let mut chaos = Chaos::begin(bench, seed)?;
    let mut violations: Vec<String> = Vec::new();
    let mut done = 0;
    for round in 1..=rounds {
        let checked = chaos.round(round);
        done = round;
        if let Err(violation) = checked {
            println!("round {round}: {violation:#}");
            violations.push(format!("round {round}: {violation:#}"));
            if violations.len() >= ENOUGH {
                break;
            }
        }
        if round % 25 == 0 || round == rounds {
            let Kills { agents, told, helpers, daemons } = chaos.kills;
            let found = violations.len();
            println!(
                "round {round}: killed {agents} agents, {helpers} helpers, {daemons} daemons, ended {told} agents; {found} violations"
            );
        }
    }
    println!("rounds {done}, violations {}", violations.len());
    ensure!(violations.is_empty(), "{}", violations.join("\n"));
    let Kills { agents, told, helpers, daemons } = chaos.kills;
    let is_short = done < ROUNDS_TO_HIT_ALL;
    ensure!(
        is_short || [agents, told, helpers, daemons].iter().all(|count| *count > 0),
        "not all kinds of victims were hit"
    );
    Ok(())
}

/// How many mounts there are. The first repair mounts the stage on itself, so that it is private.
fn mounts() -> Result<usize> {
    Ok(table()?.iter().filter(|line| line.mountpoint != Path::new(STAGE)).count())
}

/// Workers that look, and children that read procfs, are no part of a repair.
fn is_of_repair(process: u32) -> bool {
    let others: [&[u8]; 3] = [b"worker", b"census", b"consumers"];
    !arguments(process).get(1).is_some_and(|word| others.contains(&word.as_slice()))
}

impl Scene {
    fn of_daemon(bench: &Bench) -> Result<Self> {
        let (source, mountpoint) = (bench.make_directory("source")?, bench.make_directory("volume")?);
        fill(&source)?;
        let served = Served::Daemon(Bindfs::mount(&source, &mountpoint)?);
        Self::held(bench, "models", served, source, mountpoint)
    }

    fn of_device(bench: &Bench) -> Result<Self> {
        let mountpoint = bench.make_directory("disk")?;
        let device = LoopDevice::make(bench, "device", Kind::Ext4)?;
        device.mount(&mountpoint, "")?;
        fill(&mountpoint)?;
        let source = device.device().to_owned();
        Self::held(bench, "disk", Served::Device(device), source, mountpoint)
    }

    fn held(
        bench: &Bench,
        name: &'static str,
        served: Served,
        source: PathBuf,
        mountpoint: PathBuf,
    ) -> Result<Self> {
        let container = Container::start(bench, &format!("pod-{name}"), &mountpoint, false)?;
        Ok(Self { name, served, source, mountpoint, container, token: String::new() })
    }

    fn volume(&self) -> Volume {
        let fstype = match &self.served {
            Served::Daemon(_) => bindfs::FSTYPE,
            Served::Device(device) => device.fstype(),
        };
        Volume::at(self.name, &self.mountpoint)
            .set("source", &self.source.display().to_string())
            .set("fstype", fstype)
            .set("interval", "200ms")
            .set("deadline", "2s")
            .sentinel(SENTINEL)
            .repaired_by_mount()
    }

    /// Its daemons; a device has none.
    fn daemons(&self) -> Vec<u32> {
        match &self.served {
            Served::Daemon(daemon) => daemon.daemons(),
            Served::Device(_) => Vec::new(),
        }
    }

    /// Writes something by which it is known again, and lets it fall.
    fn fall(&mut self, token: &str) -> Result<()> {
        token.clone_into(&mut self.token);
        let place = match &self.served {
            Served::Daemon(_) => &self.source,
            Served::Device(_) => &self.mountpoint,
        };
        fs::write(place.join("token"), token).context("cannot write the token")?;
        if let Served::Device(_) = &self.served {
            LoopDevice::settle(&self.mountpoint)?;
            return LoopDevice::shut_down(&self.mountpoint);
        }
        for daemon in self.daemons() {
            send(daemon, Signal::SIGKILL).ok();
        }
        Ok(())
    }

    /// Mounted once, and the right superblock: of that source, and alive. A dead one answers nothing; its number may be
    /// that of the new one, once two repairs have followed each other.
    fn is_whole(&self) -> Result<()> {
        let mount = only_mount_at(&self.mountpoint)?;
        ensure!(Path::new(&mount.source) == self.source, "another source: {mount:?}");
        let read =
            |name| fs::read_to_string(self.mountpoint.join(name)).context("the volume does not answer");
        ensure!(self.token.is_empty() || read("token")? == self.token, "another token");
        ensure!(read(".mountie")? == SENTINEL, "another sentinel");
        // A running container has followed, whatever was cut off.
        self.container.follows(&self.mountpoint)?;
        self.container.shares(&self.mountpoint, &self.token)?;
        let (daemons, due) = (self.daemons(), usize::from(matches!(self.served, Served::Daemon(_))));
        ensure!(daemons.len() == due, "daemons: {daemons:?}");
        Ok(())
    }
}

/// What a volume has in it.
fn fill(root: &Path) -> Result<()> {
    fs::write(root.join(".mountie"), SENTINEL).context("cannot write the sentinel")?;
    fs::create_dir(root.join(container::INNER)).context("cannot make a directory of the volume")
}

impl<'a> Chaos<'a> {
    fn begin(bench: &'a Bench, seed: u64) -> Result<Self> {
        let scenes = [Scene::of_daemon(bench)?, Scene::of_device(bench)?];
        let mut body = String::from("[kernel]\nfamily = \"off\"\n");
        for scene in &scenes {
            body.push_str(&format!("{}max_attempts = 1000\ntimeout = \"20s\"\n", scene.volume().to_toml()));
        }
        let setup = Setup::new(bench, &body)?;
        let agent = Agent::start_with(bench, &setup)?;
        for scene in &scenes {
            agent.wait_state(scene.name, "healthy")?;
        }
        let (mounts, dice, kills) = (mounts()?, Dice(seed), Kills::default());
        Ok(Self { bench, setup, agent: Some(agent), scenes, mounts, dice, kills })
    }

    fn round(&mut self, number: usize) -> Result<()> {
        // Falls and attempts of the rounds before would make each repair wait longer.
        let agent = self.agent.as_ref().context("no agent runs")?;
        for scene in &self.scenes {
            wait_for_some("what the last round left is forgotten", patiently(PATIENCE), || {
                let forgotten = agent.command(&["state", "forget", scene.name])?;
                ensure!(forgotten.status.success(), "{}", String::from_utf8_lossy(&forgotten.stderr));
                Ok(Some(()))
            })?;
        }
        let falls = self.dice.roll(2) == 0;
        let [models, disk] = &mut self.scenes;
        if falls { models } else { disk }.fall(&format!("round {number}"))?;
        let mut killed = Vec::new();
        for _ in 0..=self.dice.roll(2) {
            let after = Duration::from_millis(self.dice.roll(WITHIN));
            pause(after);
            killed.push((after, self.kill_one()?));
        }
        if self.agent.is_none() {
            self.agent =
                Some(Agent::start_with(self.bench, &self.setup).context("the agent does not start")?);
        }
        wait_for_some("all is as before", patiently(PATIENCE), || self.is_whole().map(Some))
            .with_context(|| format!("{} fell, killed {killed:?}", if falls { "models" } else { "disk" }))
    }

    fn kill_one(&mut self) -> Result<Victim> {
        let victim = self.dice.victim();
        match victim {
            Victim::Agent => {
                if let Some(agent) = self.agent.take() {
                    agent.kill()?;
                    self.kills.agents += 1;
                }
            }
            Victim::Told => {
                if let Some(mut agent) = self.agent.take() {
                    agent.terminate(patiently(PATIENCE))?;
                    self.kills.told += 1;
                }
            }
            Victim::Helper => {
                let below = self.agent.as_ref().map(|agent| descendants(agent.id())).unwrap_or_default();
                let below: Vec<u32> = below.into_iter().filter(|process| is_of_repair(*process)).collect();
                let sides = u64::try_from(below.len()).unwrap_or(1);
                if let Some(victim) = below.get(usize::try_from(self.dice.roll(sides.max(1)))?) {
                    // It may have ended by itself.
                    self.kills.helpers += usize::from(send(*victim, Signal::SIGKILL).is_ok());
                }
            }
            Victim::Daemon => {
                for daemon in self.scenes.iter().flat_map(Scene::daemons) {
                    self.kills.daemons += usize::from(send(daemon, Signal::SIGKILL).is_ok());
                }
            }
        }
        Ok(victim)
    }

    /// What must hold after every round.
    fn is_whole(&mut self) -> Result<()> {
        let agent = self.agent.as_mut().context("no agent runs")?;
        agent.must_run()?;
        let scrape = agent.scrape()?;
        for Scene { name, .. } in &self.scenes {
            let is_well = is_in_state(&scrape, name, "healthy")? || is_in_state(&scrape, name, "probation")?;
            ensure!(is_well, "{name} is not well: {}", scrape.summary());
        }
        for scene in &self.scenes {
            scene.is_whole().context(scene.name)?;
        }
        // Nothing is left.
        let left = mounts_below(STAGE.as_ref())?;
        ensure!(left.is_empty(), "mounts at the stage: {left:?}");
        let names = fs::read_dir(STAGE).context("no stage")?.flatten().map(|entry| entry.file_name());
        let names: Vec<_> = names.collect();
        ensure!(names.is_empty(), "directories at the stage: {names:?}");
        let mounts = mounts()?;
        ensure!(mounts == self.mounts, "{mounts} mounts, and {} before", self.mounts);
        self.is_state_readable()
    }

    fn is_state_readable(&self) -> Result<()> {
        let dir = self.setup.state_dir.display().to_string();
        let output = run_binary(&["state", "export", "--state-dir", &dir])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!("the state is not readable: {text}{}", String::from_utf8_lossy(&output.stderr));
        }
        let state: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        for list in ["/problems", "/unfinished"] {
            let entries = part(&state, list).as_array().with_context(|| format!("no {list}: {text}"))?;
            ensure!(entries.is_empty(), "{list}: {entries:?}");
        }
        let is_bad = |path: PathBuf| path.to_string_lossy().contains(".bad-");
        let folders = [self.setup.state_dir.clone(), self.setup.state_dir.join("volumes")];
        let files = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        ensure!(!files.map(|file| file.path()).any(is_bad), "a file was set aside");
        Ok(())
    }
}
