//! The world of the checks: an agent beside broken volumes, in namespaces of its own, and a Prometheus that scrapes it.
//! Both listen on the loopback alone, and end with this.

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::http;
use super::tools::Tools;
use crate::command::{root, step};
use crate::operator;

/// What the show prints while all is well, before the agent's address.
const LISTENS: &str = "surface listens ";
/// What it prints when everything is broken as it should be.
const READY: &str = "surface ready";
/// What Prometheus logs when it answers.
const ANSWERS: &str = "Server is ready to receive web requests";
/// So many scrapes give every query over a minute something to work with.
const SCRAPES: f64 = 8.0;
/// How long something may take that others beside it may slow down.
const PATIENCE: Duration = Duration::from_secs(180);
/// Between two looks at whether something has come.
const PACE: Duration = Duration::from_millis(250);

/// How long an alert is pending here: longer than the repair takes that is to raise none.
const FOR: &str = "30s";
/// What it prints when one more has been.
const BROKEN: &str = "surface broken";

/// A series of an answer, and its value.
pub(super) type Sample = (Value, f64);

/// The world.
pub(super) struct World {
    pub(super) agent: SocketAddr,
    prometheus: SocketAddr,
    _server: Server,
    show: RefCell<Show>,
}

/// The show: it ends when nobody holds its input.
struct Show {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// Prometheus.
struct Server(Child);

impl World {
    /// Starts both, and waits until Prometheus has seen enough.
    pub(super) fn start(binary: &Path, bench: &Path, tools: &Tools) -> Result<Self> {
        let (show, agent) = Show::start(binary, bench)?;
        let prometheus = free_address()?;
        let server = Server::start(tools, prometheus, agent)?;
        let world = Self { agent, prometheus, _server: server, show: RefCell::new(show) };
        // What happened before its first scrape is no increase to Prometheus.
        wait_for("a scrape", || Ok(!world.query("mountie_build_info")?.is_empty()))?;
        world.show.borrow_mut().order("breaking volumes", READY)?;
        step("scraping");
        wait_for("enough scrapes", || {
            let seen = world.query("min(count_over_time(mountie_build_info[10m])) and min(up) == 1")?;
            Ok(seen.iter().any(|(_, scrapes)| *scrapes >= SCRAPES))
        })?;
        Ok(world)
    }

    /// Breaks one more volume, `models`.
    pub(super) fn break_more(&self) -> Result<()> {
        self.show.borrow_mut().order("breaking one more volume", BROKEN)
    }

    /// The answer to a query, now.
    pub(super) fn query(&self, query: &str) -> Result<Vec<Sample>> {
        let path = format!("/api/v1/query?query={}", http::escaped(query));
        let (body, _) = http::get(self.prometheus, &path, "*/*")?;
        let answer: Value = serde_json::from_str(&body).context("Prometheus does not answer in JSON")?;
        samples(&answer).with_context(|| format!("not a vector: {body}"))
    }
}

/// The series of an answer; a single number counts as one.
fn samples(answer: &Value) -> Option<Vec<Sample>> {
    let number = |value: &Value| value.get(1)?.as_str()?.parse().ok();
    let result = answer.pointer("/data/result")?;
    match answer.pointer("/data/resultType")?.as_str()? {
        "scalar" => Some(vec![(Value::Null, number(result)?)]),
        "vector" => result
            .as_array()?
            .iter()
            .map(|series| Some((series.get("metric")?.clone(), number(series.get("value")?)?)))
            .collect(),
        _ => None,
    }
}

/// Waits until something has come; what fails meanwhile has not come yet.
pub(super) fn wait_for(what: &str, mut look: impl FnMut() -> Result<bool>) -> Result<()> {
    let begin = Instant::now();
    loop {
        let found = look();
        if matches!(found, Ok(true)) {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            let why = found.err().map(|error| format!(": {error:#}")).unwrap_or_default();
            bail!("not within {PATIENCE:?}: {what}{why}");
        }
        std::thread::park_timeout(PACE);
    }
}

impl Show {
    fn start(binary: &Path, bench: &Path) -> Result<(Self, SocketAddr)> {
        step("starting an agent");
        let mut process = Command::new(bench)
            .args(["--show", "surface"])
            .env("MOUNTIE_BIN", binary)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", bench.display()))?;
        let input = process.stdin.take();
        let mut output = BufReader::new(process.stdout.take().context("the show has no output")?);
        let address = line_with(&mut output, LISTENS);
        let show = Self { process, input, output };
        let line = address.context("the show has ended before the agent was ready")?;
        let address = line.split(LISTENS).nth(1).unwrap_or_default().trim();
        let address = address.parse().with_context(|| format!("not an address: {address}"))?;
        Ok((show, address))
    }

    /// Has it do what comes next, and waits until it says that it has.
    fn order(&mut self, what: &str, done: &str) -> Result<()> {
        step(what);
        let input = self.input.as_mut().context("the show has no input")?;
        input.write_all(b"next\n").context("the show does not listen")?;
        line_with(&mut self.output, done)
            .with_context(|| format!("the show has ended while {what}"))
            .map(drop)
    }
}

impl Drop for Show {
    fn drop(&mut self) {
        drop(self.input.take());
        let process = &mut self.process;
        // It takes its namespaces with it; only when it does not is it killed, and they with it.
        if wait_for("the end of the show", || Ok(process.try_wait()?.is_some())).is_err() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Server {
    fn start(tools: &Tools, address: SocketAddr, agent: SocketAddr) -> Result<Self> {
        step("starting Prometheus");
        let data = tools.folder.join("data");
        if data.is_dir() {
            fs::remove_dir_all(&data).with_context(|| format!("cannot remove {}", data.display()))?;
        }
        let config = tools.folder.join("prometheus.yml");
        let rules = tools.folder.join("mountie.rules.yml");
        let text = operator::text(&root().join(operator::RULES))?;
        fs::write(&rules, hurried(&text)).context("cannot write the rules")?;
        fs::write(&config, configuration(&rules, agent)).context("cannot write Prometheus' configuration")?;
        // Should this program be killed, Prometheus goes with it.
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(&tools.prometheus)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start Prometheus")?;
        let log = process.stderr.take().context("Prometheus has no log")?;
        let server = Self(process);
        let mut log = BufReader::new(log);
        line_with(&mut log, ANSWERS).context("Prometheus has ended")?;
        // Nobody reads on: it must not wait for that.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The rules with so short a `for` that what is pending fires while somebody waits; how long it is meant to be, promtool
/// has tried.
fn hurried(rules: &str) -> String {
    let line = |line: &str| match line.split_once("for: ") {
        Some((indent, _)) if indent.trim().is_empty() => format!("{indent}for: {FOR}\n"),
        Some(_) | None => format!("{line}\n"),
    };
    rules.lines().map(line).collect()
}

fn configuration(rules: &Path, agent: SocketAddr) -> String {
    format!(
        "global: {{ scrape_interval: 5s, scrape_timeout: 5s, evaluation_interval: 5s }}\n\
         rule_files: [{rules}]\n\
         scrape_configs:\n- job_name: mountie\n  static_configs: [{{ targets: ['{agent}'] }}]\n",
        rules = rules.display()
    )
}

/// The first line that holds a sign; `None` at the end.
fn line_with(lines: &mut impl BufRead, sign: &str) -> Option<String> {
    let mut line = String::new();
    loop {
        line.clear();
        match lines.read_line(&mut line) {
            Ok(0) | Err(_) => return None,
            Ok(_) if line.contains(sign) => return Some(line),
            Ok(_) => eprint!("{line}"),
        }
    }
}

/// An address that was free a moment ago.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    listener.local_addr().context("the listener has no address")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn vectors_and_numbers_are_read_and_a_string_is_none() {
        let vector = json!({"data": {"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [1, "NaN"]}]}});
        assert!(samples(&vector).is_some_and(|found| found[0].0 == json!({"a": "b"}) && found[0].1.is_nan()));
        let number = json!({"data": {"resultType": "scalar", "result": [1, "2.5"]}});
        assert_eq!(samples(&number), Some(vec![(Value::Null, 2.5)]));
        assert_eq!(samples(&json!({"data": {"resultType": "string", "result": [1, "x"]}})), None);
    }

    #[test]
    fn only_the_time_of_pending_is_cut() {
        let rules =
            "      - alert: A\n        expr: x # for: all\n        for: 10m\n        keep_firing_for: 5m\n";
        let wanted = rules.replace("for: 10m", "for: 30s");
        assert_eq!(hurried(rules), wanted);
    }

    #[test]
    fn the_line_with_the_sign_is_found() {
        let mut lines = BufReader::new("a\nx ready 1\nb\n".as_bytes());
        assert_eq!(line_with(&mut lines, "ready ").as_deref(), Some("x ready 1\n"));
        assert_eq!(line_with(&mut lines, "ready "), None);
    }
}
