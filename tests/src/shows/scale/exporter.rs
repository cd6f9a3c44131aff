//! `prometheus-node-exporter` on the same mounts, with its collector of file systems alone.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::http;
use integration_tests::harness::process::{Background, status_number, timed};
use integration_tests::harness::wait::wait_for_some;

use super::usage::{Memory, Meter, memory};
use crate::shows::spread::Spread;

/// The program, by its path.
const PROGRAM: &str = "NODE_EXPORTER";
/// What a scraper waits for by default.
const SCRAPE_LIMIT: Duration = Duration::from_secs(10);
const SCRAPES: usize = 20;

/// What was seen of it.
pub(super) struct Seen {
    /// Milliseconds of a scrape while all mounts answer.
    pub(super) well: Spread,
    /// Processor time of one scrape, in milliseconds.
    pub(super) cost: f64,
    pub(super) memory: Memory,
}

/// The exporter, running. Ended when dropped.
pub(super) struct Exporter {
    process: Background,
    listen: SocketAddr,
}

impl Exporter {
    /// `None` where no program is named.
    pub(super) fn start(bench: &Bench) -> Result<Option<Self>> {
        let Some(program) = std::env::var_os(PROGRAM) else { return Ok(None) };
        let listen = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.local_addr())
            .context("no port is free")?;
        let log = std::fs::File::create(bench.path("exporter.log")).context("cannot write its log")?;
        let process = Command::new(program)
            .args(["--collector.disable-defaults", "--collector.filesystem"])
            .arg(format!("--web.listen-address={listen}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("cannot start the exporter")?;
        let exporter = Self { process: Background(process), listen };
        wait_for_some("the exporter answers", Duration::from_secs(60), || {
            Ok(http::get(listen, "/", Duration::from_secs(5)).ok())
        })?;
        Ok(Some(exporter))
    }

    /// Scrapes while everything answers.
    pub(super) fn measure(&self) -> Result<Seen> {
        self.scrape()?;
        let (meter, mut times) = (Meter::start(self.process.id())?, Vec::new());
        let begin = integration_tests::harness::wait::now();
        for _ in 0..SCRAPES {
            times.push(self.scrape()?.as_secs_f64() * 1e3);
        }
        let elapsed = (integration_tests::harness::wait::now() - begin).as_secs_f64();
        let cost = meter.stop()?.percent / 100.0 * elapsed * 1e3 / SCRAPES as f64;
        Ok(Seen { well: Spread::new(times), cost, memory: memory(self.process.id())? })
    }

    fn scrape(&self) -> Result<Duration> {
        let (answer, time) = timed(|| http::get(self.listen, "/metrics", Duration::from_secs(60)));
        anyhow::ensure!(answer?.body.contains("node_filesystem_"), "the exporter shows no file system");
        Ok(time)
    }

    /// Three scrapes while mounts hang, each with a scraper's patience: what came of each, and the threads that it
    /// has before and after.
    pub(super) fn while_hanging(&self) -> (Vec<String>, u64, u64) {
        let threads = || status_number(self.process.id(), "Threads").unwrap_or(0);
        let before = threads();
        let outcome = || match timed(|| http::get(self.listen, "/metrics", SCRAPE_LIMIT)) {
            (Ok(answer), time) => format!("{} after {:.1} s", answer.status, time.as_secs_f64()),
            (Err(_), time) => format!("no answer in {:.0} s", time.as_secs_f64()),
        };
        let outcomes = (0..3).map(|_| outcome()).collect();
        (outcomes, before, threads())
    }
}
