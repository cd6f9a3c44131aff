//! Who follows events hears of a fault at once, goes on from where they were, and is told when something is missing.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector};
use integration_tests::harness::json::part;
use integration_tests::harness::needs::Need;
use integration_tests::harness::wait::patiently;
use serde_json::Value;

pub(crate) const CASES: &[Case] = &[Case {
    name: "who_follows_events_hears_of_faults_and_repairs_in_order_and_of_what_is_missing",
    needs: &[Need::Root, Need::Fuse],
    timeout: Duration::from_secs(150),
    run: followed,
}];

/// A stream of lines, as any program reads it.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(agent: &Agent, query: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(agent.address())?;
        stream.set_read_timeout(Some(patiently(SOON)))?;
        let path = format!("/api/v1/events?follow=true{query}");
        // HTTP/1.0: the lines come as they are.
        write!(stream, "GET {path} HTTP/1.0\r\nAccept: application/x-ndjson\r\n\r\n")?;
        let mut this = Self(BufReader::new(stream));
        let status = this.line()?;
        ensure!(status.contains(" 200 "), "{status}");
        while !this.line()?.trim().is_empty() {}
        Ok(this)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).context("nothing more is sent")?;
        ensure!(read > 0, "the stream ended");
        Ok(line)
    }

    /// The next one that is wanted, and those before it.
    fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Result<Vec<Value>> {
        let mut seen = Vec::new();
        loop {
            let event: Value = serde_json::from_str(&self.line()?).context("a line is no JSON")?;
            if part(&event, "/kind") == "pulse" {
                continue;
            }
            let is_last = wanted(&event);
            seen.push(event);
            if is_last {
                return Ok(seen);
            }
        }
    }
}

fn followed(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let mut command = injector.command()?;
    command.push("{target}".to_owned());
    let volume = Volume::at("v", injector.mountpoint())
        .set("source", "injector")
        .set("fstype", FSTYPE)
        .set("interval", "1s")
        .set("deadline", "2s")
        .repaired_by(&command);
    let setup = Setup::new(bench, &volume.to_toml())?;
    let agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("v", "healthy")?;

    let mut stream = Stream::open(&agent, "&volume=v")?;
    injector.kill()?;
    let to = |state: &'static str| move |event: &Value| part(event, "/to") == state;
    let mut told = stream.until(to("degraded"))?;
    let fall = told.last().context("nothing")?.clone();
    // Who hears of it and then asks finds it so.
    let shown = agent.get("/api/v1/volumes/v")?.body;
    ensure!(!shown.contains("\"state\":\"healthy\""), "{shown}");
    told.extend(stream.until(to("healthy"))?);
    let kinds: Vec<&Value> = told.iter().map(|event| part(event, "/kind")).collect();
    let place = |kind: &str| kinds.iter().position(|found| **found == kind);
    let (began, ended) = (place("repair_began"), place("repair_ended"));
    ensure!(began.is_some() && began < ended, "{told:?}");
    let ended = ended.and_then(|place| told.get(place)).context("no end")?;
    ensure!(part(ended, "/outcome") == "changed", "{ended}");

    // Again from the fall on: the same events in the same order.
    let id = part(&fall, "/id").as_str().context("no id")?.to_owned();
    let again = Stream::open(&agent, &format!("&volume=v&after={id}"))?.until(to("healthy"))?;
    let after_the_fall = told.iter().position(|event| *event == fall).context("the fall is not there")? + 1;
    ensure!(told.get(after_the_fall..) == Some(again.as_slice()), "{again:?}");
    agent.kill()?;

    let setup = Setup { name: "again".to_owned(), ..setup };
    let mut agent = Agent::start_with(bench, &setup)?;
    let told = Stream::open(&agent, &format!("&after={id}"))?.until(|_| true)?;
    let lost = told.first().context("nothing is told")?;
    ensure!(part(lost, "/kind") == "lost" && part(lost, "/missed").is_null(), "{lost}");
    agent.must_run()
}
