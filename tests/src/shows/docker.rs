//! A real daemon of Docker asks about healthy, failing and hung volumes, and people ask it. The daemon lives in the world
//! of this show, with its files in memory, and makes no container.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::json::part;
use integration_tests::harness::process::{Background, run_within};
use integration_tests::harness::wait::wait_for;
use nix::errno::Errno;
use serde_json::Value;

/// Where Docker looks for plugins.
const PLUGIN: &str = "/run/docker/plugins/mountie.sock";
/// The programs' folders, as in `PATH`, from the command line through the environment.
const PROGRAMS: &str = "SHOW_DOCKER";
/// A daemon needs its time to come up.
const STARTS: Duration = Duration::from_secs(60);

pub(super) fn run(bench: &mut Bench) -> Result<()> {
    let docker = Docker::start(bench)?;
    let start = |name: &str| Injector::start(bench, name, "here");
    let (good, failing, hung) = (start("good")?, start("failing")?, start("hung")?);
    let volume = |name: &str, injector: &Injector| {
        Volume::at(name, injector.mountpoint()).sentinel("here").set("interval", "60s").set("deadline", "2s")
    };
    let volumes = [volume("good", &good), volume("failing", &failing), volume("hung", &hung)];
    let mut setup = Setup::new(bench, &volumes.iter().map(Volume::to_toml).collect::<String>())?;
    setup.agent_lines = format!("docker_plugin = \"{PLUGIN}\"\n");
    let mut agent = Agent::start_with(bench, &setup)?;
    for name in ["good", "failing", "hung"] {
        agent.wait_state(name, "healthy")?;
    }

    failing.set(&Mode::fail_all(Errno::EIO))?;
    hung.set(&Mode::hang_all())?;
    let names = docker.ask(&["volume", "ls", "--format", "{{.Driver}} {{.Name}}"])?;
    for name in ["good", "failing", "hung"] {
        ensure!(names.lines().any(|line| line == format!("mountie {name}")), "not in the list: {names}");
    }
    // The last look was good: these are found out because Docker asks.
    for (name, sick, checked) in [("good", false, true), ("failing", true, true), ("hung", true, false)] {
        let status = docker.status(name)?;
        let is_healthy = part(&status, "/State") == "healthy";
        ensure!(part(&status, "/Checked") == checked, "{name}: {status}");
        ensure!(!sick || !checked || !is_healthy, "{name} is not told as it is: {status}");
        println!("{name}: {status}");
    }
    agent.wait_degraded("hung", "hung")?;
    ensure!(part(&docker.status("hung")?, "/Reason") == "hung");
    ensure!(docker.ask(&["volume", "rm", "good"]).is_err(), "it was removed");
    hung.set(&Mode::Ok)?;
    agent.wait_state("hung", "healthy")?;
    agent.terminate(SOON)?;
    // Without the agent Docker goes on with its own volumes.
    docker.ask(&["volume", "create", "own"])?;
    ensure!(docker.ask(&["volume", "ls", "--quiet"])?.contains("own"));
    println!("docker: 3 volumes told, none changed; without the agent Docker goes on");
    Ok(())
}

/// The daemon, and the way to ask it.
struct Docker {
    _daemon: Background,
    socket: String,
    path: String,
}

impl Docker {
    fn start(bench: &Bench) -> Result<Self> {
        let programs =
            std::env::var(PROGRAMS).with_context(|| format!("{PROGRAMS} names no folders of programs"))?;
        let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
        let folder =
            |name: &str| bench.make_directory(name).map(|folder: PathBuf| folder.display().to_string());
        let (data, exec) = (folder("docker-data")?, folder("docker-exec")?);
        let socket = format!("unix://{}", bench.path("docker.sock").display());
        let log = File::create(bench.path("docker.log")).context("cannot make a log")?;
        let daemon = Command::new("dockerd")
            .env("PATH", &path)
            .args(["--bridge=none", "--iptables=false", "--ip6tables=false", "--storage-driver=vfs"])
            .args(["--host", &socket, "--data-root", &data, "--exec-root", &exec])
            .arg("--pidfile")
            .arg(bench.path("docker.pid"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share a log")?)
            .stderr(log)
            .spawn()
            .context("cannot start dockerd")?;
        let docker = Self { _daemon: Background(daemon), socket, path };
        wait_for("Docker answers", STARTS, || docker.ask(&["version"]).is_ok())?;
        Ok(docker)
    }

    fn ask(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("docker");
        command.env("PATH", &self.path).env("DOCKER_HOST", &self.socket).args(arguments);
        let output = run_within(&mut command, STARTS)?;
        ensure!(
            output.status.success(),
            "docker {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What `docker volume inspect` shows under `Status`.
    fn status(&self, volume: &str) -> Result<Value> {
        let text = self.ask(&["volume", "inspect", volume])?;
        let told: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        ensure!(part(&told, "/0/Driver") == "mountie", "{told}");
        Ok(part(&told, "/0/Status").clone())
    }
}
