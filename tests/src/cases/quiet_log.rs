//! The log of a real agent: constant messages with fields, priorities for the journal, and no volume that fills it.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector, Mode};
use integration_tests::harness::json::part;
use integration_tests::harness::needs::Need;
use integration_tests::harness::wait::wait_for;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use serde_json::Value;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "the_log_is_lines_of_json_with_constant_messages_and_one_line_for_each_transition_and_repair",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(150),
        run: lines_of_json,
    },
    Case {
        name: "a_volume_that_flaps_does_not_fill_the_journal_and_what_was_left_out_is_counted",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(300),
        run: flapping,
    },
    Case {
        name: "a_log_that_nobody_reads_does_not_stop_the_agent",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(200),
        run: unread,
    },
];

fn lines_of_json(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let mut command = injector.command()?;
    command.push("{target}".to_owned());
    let volume = Volume::at("v", injector.mountpoint())
        .set("source", "injector")
        .set("fstype", FSTYPE)
        .set("interval", "1s")
        .set("deadline", "2s")
        .repaired_by(&command);
    let setup =
        Setup { agent_lines: "log_format = \"json\"\n".to_owned(), ..Setup::new(bench, &volume.to_toml())? };
    let mut agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("v", "healthy")?;
    injector.kill()?;
    agent.wait_scrape("it was repaired", |scrape| {
        Ok(scrape.sum("mountie_remediation_total", &[("volume", "v"), ("outcome", "changed")]) > 0.0)
    })?;
    agent.wait_state("v", "healthy")?;
    let events: Value = serde_json::from_str(&agent.get("/api/v1/events")?.body)?;
    agent.terminate(SOON)?;

    let log = agent.log()?;
    let mut lines = Vec::new();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))?;
        let has_all =
            ["/level", "/message", "/timestamp", "/target"].iter().all(|key| !part(&line, key).is_null());
        ensure!(has_all, "{line}");
        lines.push(line);
    }
    let of =
        |message: &str| lines.iter().filter(|line| part(line, "/message") == message).collect::<Vec<_>>();
    ensure!(of("Repair started").len() == 1 && of("Repair finished").len() == 1, "{log}");
    let sick = of("Volume is sick");
    let sick = sick.first().context("no line says that it is sick")?;
    ensure!(
        part(sick, "/level") == "WARN"
            && part(sick, "/volume") == "v"
            && part(sick, "/reason") == "disconnected",
        "{sick}"
    );
    // One line for each transition: what the events say, the log says.
    let said: Vec<_> =
        lines.iter().filter(|line| !part(line, "/from").is_null()).map(|line| part(line, "/to")).collect();
    let kinds = part(&events, "/events").as_array().into_iter().flatten();
    let transitions =
        kinds.filter(|event| part(event, "/kind") == "transition").map(|event| part(event, "/to"));
    let mut transitions: Vec<_> = transitions.collect();
    transitions.reverse();
    ensure!(said == transitions, "the log has {said:?}, the events {transitions:?}");
    // Constant: the data is in fields.
    let messages: BTreeSet<_> = lines.iter().filter_map(|line| part(line, "/message").as_str()).collect();
    let has_data = |message: &&&str| message.contains(|c: char| c.is_ascii_digit() || c == '/');
    ensure!(!messages.iter().any(|message| has_data(&message)), "{messages:?}");
    Ok(())
}

fn flapping(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let volume =
        Volume::at("v", injector.mountpoint()).set("interval", "100ms").set("deadline", "2s").to_toml();
    let mut setup = Setup::new(bench, &format!("[kernel]\nfamily = \"off\"\n{volume}"))?;
    // The log is what the journal would get: the agent tells it by its number.
    let place = bench.path("agent.log");
    File::create(&place).context("cannot create the log")?;
    let found = fs::metadata(&place).context("the log is not there")?;
    setup.wrapper = vec!["env".to_owned(), format!("JOURNAL_STREAM={}:{}", found.dev(), found.ino())];
    let mut agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("v", "healthy")?;
    let lines = |text: &str| text.lines().filter(|line| line.contains("volume=\"v\"")).count();
    let transitions = || -> Result<usize> {
        let events: Value = serde_json::from_str(&agent.get("/api/v1/events?volume=v")?.body)?;
        Ok(part(&events, "/events").as_array().map_or(0, Vec::len))
    };
    let mut fails = false;
    wait_for("it has changed its state more often than the log has room for", SOON * 8, || {
        fails = !fails;
        let mode = if fails { Mode::fail_all(Errno::EIO) } else { Mode::Ok };
        let before = transitions().unwrap_or_default();
        let is_set = injector.set(&mode).is_ok();
        let moved = || transitions().is_ok_and(|count| count > before);
        is_set && wait_for("its state changes", SOON, moved).is_ok() && before > 90
    })?;
    let log = agent.log()?;
    let all_have_one = log.lines().all(|line| {
        let mut bytes = line.bytes();
        bytes.next() == Some(b'<') && bytes.next().is_some_and(|byte| b"3467".contains(&byte))
    });
    ensure!(all_have_one, "a line without a priority: {log}");
    ensure!(lines(&log) < 75, "{} lines about one volume: {log}", lines(&log));
    injector.set(&Mode::Ok)?;
    agent.terminate(SOON)?;
    let log = agent.log()?;
    let left_out = log.lines().filter(|line| line.contains("Lines about a volume were left out"));
    let counts =
        left_out.filter_map(|line| line.split("count=").nth(1)?.split(' ').next()?.parse::<usize>().ok());
    let counted: usize = counts.sum();
    ensure!(counted > 20, "{counted} lines were left out: {log}");
    Ok(())
}

/// The log is a pipe that is full before the agent starts.
fn unread(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let volume =
        Volume::at("v", injector.mountpoint()).set("interval", "100ms").set("deadline", "2s").to_toml();
    let mut setup = Setup::new(bench, &format!("[kernel]\nfamily = \"off\"\n{volume}"))?;
    let place = bench.path("pipe");
    nix::unistd::mkfifo(&place, nix::sys::stat::Mode::S_IRWXU).context("cannot make a pipe")?;
    let pipe = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(&place)
        .context("cannot open the pipe")?;
    while (&pipe).write(&[b'\n'; 4096]).is_ok() {}
    while (&pipe).write(b"\n").is_ok() {}
    let line = format!("exec \"$@\" > {0} 2>&1", place.display());
    setup.wrapper = ["sh", "-c", &line, "sh"].map(str::to_owned).to_vec();
    let mut agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("v", "healthy")?;
    injector.set(&Mode::fail_all(Errno::EIO))?;
    agent.wait_state("v", "degraded")?;
    injector.set(&Mode::Ok)?;
    agent.wait_state("v", "healthy")?;
    let status = agent.terminate(SOON)?;
    ensure!(status.success(), "it ended with {status}");
    drop(pipe);
    Ok(())
}
