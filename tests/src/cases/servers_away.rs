//! An outage of a server is waited out: nothing is mounted and no attempt is spent until its port answers.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use integration_tests::harness::agent::{Agent, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::mnt_ns::mounts_at;
use integration_tests::harness::needs::Need;
use integration_tests::harness::words;

pub(crate) const CASES: &[Case] = &[Case {
    name: "volumes_wait_for_the_port_of_their_server_and_begin_when_it_answers",
    needs: &[Need::Root, Need::Fuse, Need::Tool("bindfs")],
    timeout: Duration::from_secs(180),
    run: waits,
}];

fn volume(name: &str, place: &Path, source: &Path, port: u16) -> String {
    let source = source.display().to_string();
    let command = ["bindfs", "-o", "subtype=glusterfs", &source, "{target}"].map(str::to_owned);
    Volume::at(name, place)
        .set("source", &format!("127.0.0.1:/{name}"))
        .set("fstype", "fuse.glusterfs")
        .line(&format!("options = [\"port={port}\"]"))
        .set("interval", "500ms")
        .set("deadline", "2s")
        .repaired_by(&command)
        .to_toml()
}

fn waits(bench: &mut Bench) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    // From here on the port refuses.
    drop(listener);
    let source = bench.make_directory("source")?;
    let (one, other) = (bench.make_directory("a")?, bench.make_directory("b")?);
    let body = volume("a", &one, &source, address.port()) + &volume("b", &other, &source, address.port());
    let mut agent = Agent::start(bench, &body)?;
    for name in ["a", "b"] {
        agent.wait_degraded(name, "missing")?;
    }
    let held = |scrape: &integration_tests::harness::scrape::Scrape| {
        scrape.sum("mountie_remediation_suppressed_total", &[("cause", "server_unreachable")])
    };
    agent.wait_scrape("both wait for the server", |scrape| Ok(held(scrape) == 2.0))?;
    let waits = format!("waits for server {address} (connection refused)");
    let described = agent.command(&["describe", "a"])?;
    let text = String::from_utf8_lossy(&described.stdout).into_owned();
    ensure!(text.contains(&waits) && text.contains("since"), "{text}");
    let scrape = agent.wait_scrape("it is tried again", |_| {
        let wide = agent.command(&["status", "-o", "wide"])?;
        Ok(String::from_utf8_lossy(&wide.stdout).matches(&waits).count() == 2)
    })?;
    ensure!(scrape.sum("mountie_remediation_total", &[]) == 0.0, "an attempt was spent");
    for place in [&one, &other] {
        ensure!(mounts_at(place)?.is_empty(), "something was mounted");
    }

    let _server = TcpListener::bind(address)?;
    for name in ["a", "b"] {
        agent.wait_scrape("it is repaired", |scrape| Ok(words::repairs(scrape, name, "changed") == 1.0))?;
        agent.wait_state(name, "healthy")?;
    }
    let told = agent.get("/api/v1/events")?.body;
    ensure!(told.contains(&waits) && told.contains("is back"), "{told}");
    agent.must_run()
}
