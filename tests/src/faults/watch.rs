//! The agent that watches, and the rows that it is put through, one after the other.

mod repairs;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};
use integration_tests::harness::agent::{Agent, Setup, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::loop_dev::LoopDevice;
use integration_tests::harness::matrix::{self, Row};
use integration_tests::harness::needs::first_unmet;
use integration_tests::harness::wait::{is_there, now, pause, wait_for_some};
use serde_json::Value;

use super::fault::{Fault, Place, World};
use super::user::{AtWork, DATA};

/// Names the rows to run, by parts of their names with semicolons between. All of them when it is not set.
const ONLY: &str = "MOUNTIE_FAULT";

/// Loading the kernel programs is slow in an emulated machine.
const PROGRAMS: Duration = Duration::from_secs(180);

/// A sound volume must be healthy within this. The reconnection of an NFS client takes most of it.
const HEALTHY: Duration = Duration::from_secs(90);

/// A fault must be found within this: the first request on a soft NFSv4 mount waits for a lease.
const FOUND: Duration = Duration::from_secs(60);

/// Often enough to be quick, and seldom enough to leave the machine to the agent. The times that count are
/// those of the agent.
const PERIOD: Duration = Duration::from_millis(100);

/// A running agent, and what its rows came to.
pub(crate) struct Watch<'a> {
    bench: &'a Bench,
    agent: Agent,
    setup: Setup,
    rows: usize,
    failures: Vec<String>,
}

/// What came of a row.
struct Found {
    took: Duration,
    detail: String,
}

impl Found {
    fn word(&self) -> String {
        format!("detected in {} ms", self.took.as_millis())
    }
}

/// Where a row ended that did not come to its end.
enum Failed {
    /// The volume could not be made, or was not healthy when it was sound.
    SetUp(Error),
    /// The fault could not be made, or was not found.
    Missed(Error),
    /// It was found; what is beside it was not judged rightly, or it did not become healthy again.
    After(Found, Error),
}

/// Whether the start of the kernel programs is over: then the agent has a table of them.
fn settled(agent: &Agent) -> Result<Option<()>> {
    let report: Value =
        serde_json::from_slice(agent.get("/api/v1/doctor")?.body.as_ref()).context("no JSON")?;
    let programs = report.get("programs").and_then(Value::as_array).context("no table of programs")?;
    Ok((!programs.is_empty()).then_some(()))
}

impl<'a> Watch<'a> {
    /// Starts an agent that watches nothing yet, and waits until its kernel programs are in place or refused.
    pub(crate) fn start(bench: &'a Bench) -> Result<Self> {
        let setup = Setup::new(bench, &body(""))?;
        let mut agent = Agent::spawn(bench, &setup)?;
        wait_for_some("the agent is ready", PROGRAMS, || {
            agent.must_run()?;
            Ok((agent.get("/readyz")?.status == 200).then_some(()))
        })?;
        if matrix::family() != "off" {
            wait_for_some("the kernel programs are in place, or refused", PROGRAMS, || settled(&agent))?;
        }
        Ok(Self { bench, agent, setup, rows: 0, failures: Vec::new() })
    }

    /// The directory of the case.
    pub(crate) fn directory(&self) -> &Path {
        self.bench.directory()
    }

    /// Runs rows that share a world. A row that fails does not keep the next from running.
    pub(crate) fn run<W: World>(&mut self, world: &mut W, faults: &[Fault<W>]) -> Result<()> {
        for fault in faults {
            let row = fault.name();
            let Some(place) = self.place_for(&row)? else { continue };
            if fault.beside.is_some() {
                self.bench.make_directory(&place.beside().name)?;
            }
            self.run_one(world, fault, &row, &place)?;
        }
        Ok(())
    }

    /// Where the volume of the next row is; `None`: the row is not wanted.
    fn place_for(&mut self, row: &str) -> Result<Option<Place>> {
        let only = std::env::var(ONLY).unwrap_or_default();
        if !only.split(';').any(|part| row.contains(part)) {
            return Ok(None);
        }
        self.rows += 1;
        let name = format!("v{}", self.rows);
        let mountpoint = self.bench.make_directory(&name)?;
        Ok(Some(Place { name, mountpoint }))
    }

    /// Says how it went: an error when any row failed.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.agent.must_run()?;
        ensure!(
            self.failures.is_empty(),
            "{} rows failed:\n{}",
            self.failures.len(),
            self.failures.join("\n")
        );
        Ok(())
    }

    fn run_one<W: World>(&mut self, world: &mut W, fault: &Fault<W>, row: &str, place: &Place) -> Result<()> {
        if let Some(reason) = first_unmet(fault.needs) {
            return tell("faults", row, &reason, "");
        }
        let (word, error, detail) = match self.put_through(world, fault, place) {
            Ok(found) => (found.word(), None, found.detail),
            Err(Failed::SetUp(error)) => ("not set up".to_owned(), Some(error), String::new()),
            Err(Failed::Missed(error)) => ("missed".to_owned(), Some(error), String::new()),
            Err(Failed::After(found, error)) => {
                (format!("{}, wrong afterwards", found.word()), Some(error), found.detail)
            }
        };
        let detail = self.close(world, (row, place), error, detail);
        tell("faults", row, &word, &detail)
    }

    /// Clears away what is left of a row, and keeps what failed; returns the detail with that.
    fn close<W: World>(
        &mut self,
        world: &mut W,
        (row, place): (&str, &Place),
        error: Option<Error>,
        mut detail: String,
    ) -> String {
        if let Err(error) = world.clear(place) {
            self.failures.push(format!("{row}: left behind: {error:#}"));
        }
        if let Some(error) = error {
            self.failures.push(format!("{row}: {error:#}"));
            detail += &format!(" {error:#}");
        }
        detail
    }

    /// The whole row, but for what must be cleared away.
    fn put_through<W>(&self, world: &mut W, fault: &Fault<W>, place: &Place) -> Result<Found, Failed> {
        self.set_up(world, fault, place).map_err(Failed::SetUp)?;
        let mut found = self.break_it(world, fault, place).map_err(Failed::Missed)?;
        match self.afterwards(world, fault, place) {
            Ok(note) => {
                found.detail += &note;
                Ok(found)
            }
            Err(error) => Err(Failed::After(found, error)),
        }
    }

    /// Mounts the volume, and lets the agent see it while it is sound.
    fn set_up<W>(&self, world: &mut W, fault: &Fault<W>, place: &Place) -> Result<()> {
        (fault.set_up)(world, place).context("cannot be set up")?;
        fill(fault, place)?;
        self.watch(fault, place)?;
        self.wait_healthy(place)?;
        match fault.beside {
            Some(_) => self.wait_healthy(&place.beside()),
            None => Ok(()),
        }
    }

    /// Breaks it, and waits until that is found.
    fn break_it<W>(&self, world: &mut W, fault: &Fault<W>, place: &Place) -> Result<Found> {
        let begin = now();
        (fault.break_it)(world, place).context("cannot be broken")?;
        let mut user = AtWork::new(self.bench, fault.user, place);
        self.wait_degraded(fault, place, begin, &mut user)
    }

    /// Looks at the volume beside it, and where it can be repaired, waits until that is seen.
    fn afterwards<W>(&self, world: &mut W, fault: &Fault<W>, place: &Place) -> Result<String> {
        let mut notes = String::new();
        if let Some(check) = fault.beside {
            let beside = place.beside();
            let note = wait_for_some("the other volume is as it should be", FOUND, || {
                let view = self.view(&beside)?;
                let note = check(&view).with_context(|| summary(&view))?;
                Ok(Some(format!("; beside it, {note}: {}", summary(&view))))
            });
            notes += &note?;
        }
        if let Some(repair) = fault.repair {
            let (begin, repaired) = (now(), repair(world, place));
            repaired.context("cannot be repaired")?;
            self.wait_healthy(place).context("after the repair")?;
            let took = now().saturating_sub(begin).as_millis();
            notes += &format!("; healthy {took} ms after the repair began");
        }
        Ok(notes)
    }

    /// Tells the agent to watch this volume, and no other.
    fn watch<W>(&self, fault: &Fault<W>, place: &Place) -> Result<()> {
        let volume = |place: &Place| {
            let volume = Volume::at(&place.name, &place.mountpoint);
            let volume = volume.set("interval", "2s").set("deadline", fault.deadline);
            if fault.sentinel { volume.sentinel("here").to_toml() } else { volume.to_toml() }
        };
        let mut volumes = volume(place);
        if fault.beside.is_some() {
            volumes += &volume(&place.beside());
        }
        self.take(&volumes)
    }

    /// Has the agent watch these volumes, and no others.
    fn take(&self, volumes: &str) -> Result<()> {
        self.agent.reload(self.bench, &Setup { body: body(volumes), ..self.setup.clone() })
    }

    fn view(&self, place: &Place) -> Result<Value> {
        let answer = self.agent.get(&format!("/api/v1/volumes/{}", place.name))?;
        ensure!(answer.status == 200, "no volume {}: {}", place.name, answer.body);
        serde_json::from_str(&answer.body).context("not an answer")
    }

    fn wait_healthy(&self, place: &Place) -> Result<()> {
        let begin = now();
        loop {
            let view = self.view(place);
            if view.as_ref().is_ok_and(|view| word(view, "state") == "healthy") {
                return Ok(());
            }
            if now().saturating_sub(begin) > HEALTHY {
                bail!("not healthy: {}", view.map_or_else(|error| error.to_string(), |view| summary(&view)));
            }
            pause(PERIOD);
        }
    }

    fn wait_degraded<W>(
        &self,
        fault: &Fault<W>,
        place: &Place,
        begin: Duration,
        user: &mut AtWork,
    ) -> Result<Found> {
        loop {
            user.go_on()?;
            // An agent that is busy may answer late.
            let view = self.view(place);
            let found = view.as_ref().ok().and_then(|view| fall(view, fault.reasons, begin));
            let seen = view.map_or_else(|error| format!("{error:#}"), |view| summary(&view));
            let saw = user.complaint();
            let saw = if saw.is_empty() { saw } else { format!("a program saw \"{saw}\"; ") };
            if let Some((at, first)) = found {
                return Ok(Found { took: at.saturating_sub(begin), detail: format!("{saw}{first}{seen}") });
            }
            ensure!(now().saturating_sub(begin) <= FOUND, "{saw}{seen}");
            pause(PERIOD);
        }
    }
}

fn body(volumes: &str) -> String {
    format!("[discovery]\nenabled = false\n[kernel]\nfamily = \"{}\"\n{volumes}", matrix::family())
}

/// Gives the volume something to read, through its mount, while it is sound. What the row brought stays.
fn fill<W>(fault: &Fault<W>, place: &Place) -> Result<()> {
    let sentinel = if fault.sentinel { "here" } else { "" };
    for (name, content) in [(DATA, vec![b'd'; fault.data]), (".mountie", sentinel.into())] {
        let path = place.mountpoint.join(name);
        if !content.is_empty() && !is_there(&path) {
            fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    LoopDevice::settle(&place.mountpoint)
}

/// When the volume fell for one of these reasons, if that is what it still is for, and what else it was called
/// before.
fn fall(view: &Value, reasons: &[&str], begin: Duration) -> Option<(Duration, String)> {
    if word(view, "state") != "degraded" || !reasons.contains(&word(view, "reason")) {
        return None;
    }
    let falls = changes_to(view, "degraded", begin);
    let (at, _) = falls.iter().filter(|(_, reason)| reasons.contains(reason)).min()?;
    let others = falls.iter().filter(|(_, reason)| !reasons.contains(reason));
    let others: Vec<String> = others.map(|(_, reason)| format!("first called {reason}; ")).collect();
    Some((*at, others.concat()))
}

/// When the volume came to a state since then, newest first, and for which reasons.
fn changes_to<'v>(view: &'v Value, state: &str, since: Duration) -> Vec<(Duration, &'v str)> {
    let history = view.get("history").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let changes = history.iter().filter(|change| word(change, "to") == state).filter_map(|change| {
        let at = Duration::from_secs_f64(change.get("since_boot")?.as_f64()?);
        (at >= since).then_some((at, word(change, "reason")))
    });
    changes.collect()
}

/// Tells what a row came to.
fn tell(table: &str, row: &str, result: &str, detail: &str) -> Result<()> {
    println!("{row}: {result}: {detail}");
    matrix::add(&Row { table, row, result, detail })
}

fn word<'v>(view: &'v Value, key: &str) -> &'v str {
    view.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// State, reason, who counted what, and the sentence for people.
fn summary(view: &Value) -> String {
    let errors = view.get("errors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let counted: Vec<String> = errors
        .iter()
        .map(|error| {
            let count = error.get("count").and_then(Value::as_u64).unwrap_or(0);
            format!("{} {} by {} x{count}", word(error, "errno"), word(error, "op"), word(error, "source"))
        })
        .collect();
    format!(
        "{} {} [{}] {}",
        word(view, "state"),
        word(view, "reason"),
        counted.join(", "),
        word(view, "message")
    )
}

/// Failed operations of a volume that one source counted.
pub(crate) fn counted_by(view: &Value, source: &str) -> u64 {
    let errors = view.get("errors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let from_it = errors.iter().filter(|error| word(error, "source") == source);
    from_it.filter_map(|error| error.get("count").and_then(Value::as_u64)).sum()
}
