//! The agent under test: the real binary, with a configuration, a state directory, a socket and a port of its
//! own, asked only in the ways a user can ask it.

mod config;

use std::fs::{self, File, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;

pub use self::config::{Setup, Volume, toml_string};
use super::bench::Bench;
use super::http;
use super::process::{Background, arguments, run_within};
use super::scrape::Scrape;
use super::wait::wait_for_some;

/// The binary to test, where it is not the one beside this program.
const BINARY: &str = "MOUNTIE_BIN";

/// How long the agent may take for what it does at once. Wide: no case measures time with it.
pub const SOON: Duration = Duration::from_secs(30);

/// How long it may take to start. Verifying the kernel programs is slow on an emulated machine.
const START: Duration = Duration::from_secs(180);

/// How long an answer over HTTP may take.
const ANSWER: Duration = Duration::from_secs(5);

/// The directory under which plans make new mounts; the socket is beside it.
pub const STAGE: &str = "/run/mountie/stage";

/// A started agent. Killed when dropped.
#[derive(Debug)]
pub struct Agent {
    process: Background,
    listen: SocketAddr,
    socket: PathBuf,
    log: PathBuf,
}

impl Agent {
    /// Starts an agent with these volumes and settings, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not get ready.
    pub fn start(bench: &Bench, body: &str) -> Result<Self> {
        Self::start_with(bench, &Setup::new(bench, body)?)
    }

    /// The same with settings of one's own.
    ///
    /// # Errors
    /// When it does not get ready.
    pub fn start_with(bench: &Bench, setup: &Setup) -> Result<Self> {
        let mut agent = Self::spawn(bench, setup)?;
        agent.wait_ready()?;
        Ok(agent)
    }

    /// Starts an agent and does not wait.
    ///
    /// # Errors
    /// When the binary is not there.
    pub fn spawn(bench: &Bench, setup: &Setup) -> Result<Self> {
        let config = write_config(bench, setup)?;
        let log = bench.path(format!("{}.log", setup.name));
        let output =
            OpenOptions::new().create(true).append(true).open(&log).context("cannot open the log")?;
        let mut command = clean(setup.wrapper.iter().map(String::as_str))?;
        command.args(["run", "--config"]).arg(&config);
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("cannot duplicate the log")?)
            .stderr(output)
            .spawn()
            .context("cannot start the agent")?;
        Ok(Self { process: Background(child), listen: setup.listen, socket: setup.socket.clone(), log })
    }

    /// Gives it another configuration, and asks it to take it.
    ///
    /// # Errors
    /// When it cannot be written, or the agent is gone.
    pub fn reload(&self, bench: &Bench, setup: &Setup) -> Result<()> {
        write_config(bench, setup)?;
        self.process.signal(Signal::SIGHUP)
    }

    /// Stops it in the middle of whatever it does, or lets it go on.
    ///
    /// # Errors
    /// When it is gone.
    pub fn freeze(&self, frozen: bool) -> Result<()> {
        self.process.signal(if frozen { Signal::SIGSTOP } else { Signal::SIGCONT })
    }

    /// Waits until it says that it is ready.
    ///
    /// # Errors
    /// When it ends, or takes too long.
    pub fn wait_ready(&mut self) -> Result<()> {
        let ended = wait_for_some("the agent is ready", START, || {
            if let Some(status) = self.process.ended()? {
                return Ok(Some(Some(status)));
            }
            Ok((http::get(self.listen, "/readyz", ANSWER)?.status == 200).then_some(None))
        })?;
        match ended {
            None => Ok(()),
            Some(status) => bail!("the agent ended with {status}: {}", self.log()?),
        }
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Where it listens on TCP.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listen
    }

    /// What it has logged.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn log(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.log).context("cannot read the log")?).into_owned())
    }

    /// Asks over TCP.
    ///
    /// # Errors
    /// When it does not answer in time.
    pub fn get(&self, path: &str) -> Result<http::Response> {
        http::get(self.listen, path, ANSWER)
    }

    /// Its metrics, checked strictly.
    ///
    /// # Errors
    /// When it does not answer, or not as a server would accept.
    pub fn scrape(&self) -> Result<Scrape> {
        let response = self.get("/metrics")?;
        ensure!(response.status == 200, "/metrics answers {}", response.status);
        Scrape::parse(&response.body)
    }

    /// Waits until a metric is as wanted.
    ///
    /// # Errors
    /// When it does not become so.
    pub fn wait_scrape(&self, what: &str, mut wanted: impl FnMut(&Scrape) -> Result<bool>) -> Result<Scrape> {
        let mut last = None;
        let found = wait_for_some(what, SOON, || {
            let scrape = self.scrape()?;
            let is_so = wanted(&scrape);
            last = Some(scrape.clone());
            Ok(is_so?.then_some(scrape))
        });
        found.with_context(|| last.map_or_else(|| "no scrape".to_owned(), |scrape| scrape.summary()))
    }

    /// Waits until a volume is in a state, with exactly that one state set.
    ///
    /// # Errors
    /// When it does not get there.
    pub fn wait_state(&self, volume: &str, state: &str) -> Result<Scrape> {
        self.wait_scrape(&format!("{volume} is {state}"), |scrape| is_in_state(scrape, volume, state))
    }

    /// Waits until a volume is degraded for a reason.
    ///
    /// # Errors
    /// When it does not get there.
    pub fn wait_degraded(&self, volume: &str, reason: &str) -> Result<Scrape> {
        self.wait_scrape(&format!("{volume} is degraded ({reason})"), |scrape| {
            Ok(is_in_state(scrape, volume, "degraded")? && has_reason(scrape, volume, reason)?)
        })
    }

    /// Waits until that many more probes of a volume have ended, however they ended.
    ///
    /// # Errors
    /// When they do not come.
    pub fn wait_probes(&self, volume: &str, more: f64) -> Result<Scrape> {
        let probes = |scrape: &Scrape| scrape.sum("mountie_probe_total", &[("volume", volume)]);
        let before = probes(&self.scrape()?);
        self.wait_scrape(&format!("{more} more probes of {volume}"), |scrape| {
            Ok(probes(scrape) >= before + more)
        })
    }

    /// Runs a command of the binary against this agent: `status`, `describe`, ….
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn command(&self, arguments: &[&str]) -> Result<Output> {
        run_within(clean([].into_iter())?.args(arguments).arg("--socket").arg(&self.socket), SOON)
    }

    /// Asks it to end, and waits for that.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn terminate(&mut self, within: Duration) -> Result<ExitStatus> {
        self.process.signal(Signal::SIGTERM)?;
        self.process.ended_within(within).context("the agent after SIGTERM")
    }

    /// Kills it, as a crash would.
    ///
    /// # Errors
    /// When it does not end.
    pub fn kill(mut self) -> Result<()> {
        self.process.signal(Signal::SIGKILL)?;
        self.process.ended_within(SOON).map(drop)
    }

    /// Waits for an end that nobody asked for.
    ///
    /// # Errors
    /// When it goes on.
    pub fn ended_within(&mut self, within: Duration) -> Result<ExitStatus> {
        self.process.ended_within(within).context("the agent")
    }

    /// An error if it is not running.
    ///
    /// # Errors
    /// When it has ended.
    pub fn must_run(&mut self) -> Result<()> {
        match self.process.ended()? {
            None => Ok(()),
            Some(status) => bail!("the agent ended with {status}"),
        }
    }
}

/// Writes the configuration file of a set-up.
fn write_config(bench: &Bench, setup: &Setup) -> Result<PathBuf> {
    let config = bench.write(format!("{}.toml", setup.name), setup.to_toml().as_bytes())?;
    // The agent refuses a file that others may write, whatever this process's umask is.
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).context("cannot protect the file")?;
    Ok(config)
}

/// Whether a process is a running agent, and not one of the workers that it started.
#[must_use]
pub fn is_agent(process: u32) -> bool {
    let words = arguments(process);
    let is_binary = |word: &Vec<u8>| binary().is_ok_and(|binary| binary.as_os_str().as_bytes() == *word);
    words.first().is_some_and(is_binary) && words.get(1).is_some_and(|word| word == b"run")
}

/// Runs the binary with arguments that need no running agent, to its end.
///
/// # Errors
/// When it does not end in time.
pub fn run_binary(arguments: &[&str]) -> Result<Output> {
    run_binary_with(&[], arguments)
}

/// The same, with variables.
///
/// # Errors
/// When it cannot be started, or has not ended in time.
pub fn run_binary_with(variables: &[(&str, &str)], arguments: &[&str]) -> Result<Output> {
    let mut command = clean([].into_iter())?;
    run_within(command.envs(variables.iter().copied()).args(arguments), SOON)
}

/// Whether exactly this state of a volume is set.
///
/// # Errors
/// When the volume has no states, or not exactly one is set.
pub fn is_in_state(scrape: &Scrape, volume: &str, state: &str) -> Result<bool> {
    let set = scrape.sum("mountie_volume_state", &[("volume", volume)]);
    ensure!((set - 1.0).abs() < 1e-9, "{set} states of {volume} are set");
    Ok(scrape.value("mountie_volume_state", &[("volume", volume), ("state", state)])? > 0.0)
}

/// Whether a reason or advice of a volume is set.
///
/// # Errors
/// When there is no such series.
pub fn has_reason(scrape: &Scrape, volume: &str, reason: &str) -> Result<bool> {
    Ok(scrape.value("mountie_volume_condition_reason", &[("volume", volume), ("reason", reason)])? > 0.0)
}

/// Failed operations of a volume as one source counted them.
#[must_use]
pub fn errors(scrape: &Scrape, volume: &str, errno: &str, operation: &str, source: &str) -> f64 {
    let labels = [("volume", volume), ("errno", errno), ("op", operation), ("source", source)];
    scrape.sum("mountie_volume_errors_total", &labels)
}

/// Failed calls of programs, whether their place is certain or known by a name alone.
#[must_use]
pub fn errors_of_calls(scrape: &Scrape, volume: &str, errno: &str, operation: &str) -> f64 {
    ["bpf", "bpf_name"].iter().map(|source| errors(scrape, volume, errno, operation, source)).sum()
}

/// The binary in a clean environment: the bench's own variables are none of its settings.
fn clean<'a>(mut wrapper: impl Iterator<Item = &'a str>) -> Result<Command> {
    let binary = binary()?;
    let mut command = match wrapper.next() {
        None => Command::new(binary),
        Some(program) => {
            let mut command = Command::new(program);
            command.args(wrapper).arg(binary);
            command
        }
    };
    command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    Ok(command)
}

/// The binary under test: beside this program, or where the environment says.
fn binary() -> Result<PathBuf> {
    let this_program = std::env::current_exe().context("cannot find this program")?;
    let folders = this_program.ancestors().skip(1).take(2);
    let named = std::env::var_os(BINARY).map(PathBuf::from);
    named
        .into_iter()
        .chain(folders.map(|folder: &Path| folder.join("mountie")))
        .find(|candidate| {
            File::open(candidate).is_ok_and(|file| file.metadata().is_ok_and(|found| found.is_file()))
        })
        .with_context(|| {
            format!("no mountie beside {}; build it first, or set {BINARY}", this_program.display())
        })
}
