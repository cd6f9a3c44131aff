//! What doctor says of the kernel programs is true: an agent attaches the same ones, and the kernel shows as many.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Setup, run_binary};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::matrix::{self, Row};
use integration_tests::harness::needs::Need;
use integration_tests::harness::scrape::Scrape;
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use serde_json::Value;

pub(crate) const CASES: &[Case] = &[Case {
    name: "every_program_attaches_or_says_why",
    needs: &[Need::Root, Need::Bpf],
    timeout: Duration::from_secs(240),
    run: every_program,
}];

/// The rows that the case adds with the family that is asked for: the agent has the same table everywhere.
pub(crate) fn rows() -> Result<Vec<String>> {
    let (programs, _) = ask_doctor("auto")?;
    let family = matrix::family();
    Ok(programs
        .into_iter()
        .filter(|program| program.is_tried_with(&family))
        .map(|program| program.name)
        .collect())
}

/// The hook of a program that is run once and never attached.
const RUN_ONCE: &str = "BPF_PROG_TEST_RUN";

/// What hooks of iterators begin with.
const ITERATORS: &str = "iter/";

/// How much of a reason fits into the table.
const REASON: usize = 60;

/// One program, as doctor has it.
struct Program {
    name: String,
    family: String,
    hook: String,
    state: String,
    reason: String,
    /// Whether doctor says that what it sees is lost.
    is_lost: bool,
}

/// What doctor says of programs that tell the place of a call alone: without them the text of its name does, which may
/// lead elsewhere.
const BY_NAMES: &str = "by the names that calls are given";

/// The programs without which doctor says that something is lost, or told by names only.
pub(crate) fn lost_with(family: &str) -> Result<BTreeSet<String>> {
    let (programs, _) = ask_doctor(family)?;
    Ok(programs
        .into_iter()
        .filter(|program| program.is_lost || program.reason.ends_with(BY_NAMES))
        .map(|program| program.name)
        .collect())
}

fn every_program(bench: &mut Bench) -> Result<()> {
    let family = matrix::family();
    let (programs, sources) = ask_doctor(&family)?;
    for program in programs.iter().filter(|program| program.is_tried_with(&family)) {
        matrix::add(&program.row())?;
    }
    for program in &programs {
        ensure!(program.is_attached() || !program.reason.is_empty(), "no reason for {}", program.name);
    }

    let mut agent =
        Agent::start_with(bench, &Setup::new(bench, &format!("[kernel]\nfamily = \"{family}\"\n"))?)?;
    agent.wait_scrape("the agent has what doctor has", |scrape| {
        agrees(scrape, &programs, &sources).map(|()| true)
    })?;
    let links = Links::of(agent.id())?;
    let attached: Vec<&Program> = programs.iter().filter(|program| program.is_hooked()).collect();
    let names: Vec<&str> = attached.iter().map(|program| program.name.as_str()).collect();
    let found = links.programs.len() + links.functions.len();
    ensure!(found == attached.len(), "attached are {names:?}, the kernel has {links:?}");
    for hook in links.tracepoints.union(&links.functions) {
        let has = attached.iter().any(|program| program.hook == *hook);
        ensure!(has, "the agent is attached to {hook}, doctor says {names:?}");
    }
    agent.must_run()
}

/// The programs, and for each source whether it works.
fn ask_doctor(family: &str) -> Result<(Vec<Program>, BTreeMap<String, bool>)> {
    let words = ["doctor", "--output", "json", "--mount-namespace", "self", "--kernel-family", family];
    let output = run_binary(&words)?;
    ensure!(output.status.success(), "doctor ended with {}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout).context("doctor is no JSON")?;
    let text =
        |object: &Value, key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let list =
        |key: &str| report.get(key).and_then(Value::as_array).with_context(|| format!("doctor has no {key}"));
    let programs = list("programs")?.iter().map(|program| Program {
        name: text(program, "program"),
        family: text(program, "family"),
        hook: text(program, "hook"),
        state: text(program, "state"),
        reason: text(program, "reason"),
        is_lost: program.get("is_lost").and_then(Value::as_bool).unwrap_or_default(),
    });
    let programs: Vec<Program> = programs.collect();
    ensure!(!programs.is_empty(), "doctor has no programs");
    let sources =
        list("sources")?.iter().map(|source| (text(source, "name"), text(source, "state") != "off"));
    Ok((programs, sources.collect()))
}

/// An error unless the metrics say the same as doctor.
fn agrees(scrape: &Scrape, programs: &[Program], sources: &BTreeMap<String, bool>) -> Result<()> {
    for program in programs {
        let labels = [("program", program.name.as_str()), ("family", program.family.as_str())];
        let attached = scrape.value("mountie_program_attached", &labels)? > 0.0;
        ensure!(attached == program.is_attached(), "{} is attached: {attached}", program.name);
    }
    for (source, works) in sources {
        let up = scrape.value("mountie_source_up", &[("source", source)])? > 0.0;
        ensure!(up == *works, "{source} is up: {up}");
    }
    Ok(())
}

impl Program {
    fn is_attached(&self) -> bool {
        self.state == "attached"
    }

    /// Attached to a hook, not just run; the iterator has a link only while it is read.
    fn is_hooked(&self) -> bool {
        self.is_attached() && self.hook != RUN_ONCE && !self.hook.starts_with(ITERATORS)
    }

    fn is_tried_with(&self, family: &str) -> bool {
        family == "auto" || self.family == family || self.family == "always" || self.family == "extra"
    }

    fn row(&self) -> Row<'_> {
        let result = if self.is_attached() { "attached" } else { shortened(&self.reason) };
        Row { table: "programs", row: &self.name, result, detail: &self.reason }
    }
}

/// As much of a reason as fits, up to the end of a word.
fn shortened(reason: &str) -> &str {
    match reason.char_indices().nth(REASON) {
        None => reason,
        Some((end, _)) => {
            let start = reason.get(..end).unwrap_or(reason);
            start.rsplit_once(' ').map_or(start, |(words, _)| words)
        }
    }
}

/// What the kernel says of the links that a process holds: without the agent's help.
///
/// kernel: `bpf_link_show_fdinfo`, kernel/bpf/syscall.c, since 5.8.
#[derive(Debug, Default)]
struct Links {
    /// Numbers of the programs that are attached.
    programs: BTreeSet<String>,
    /// Names of the raw tracepoints that have one.
    tracepoints: BTreeSet<String>,
    /// Names of functions whose links no descriptor holds, but a file system that is nowhere mounted.
    functions: BTreeSet<String>,
}

impl Links {
    fn of(process: u32) -> Result<Self> {
        let mut links = Self::default();
        let folder = format!("/proc/{process}/fdinfo");
        for descriptor in fs::read_dir(&folder).with_context(|| format!("cannot list {folder}"))? {
            // A descriptor may be closed meanwhile; links stay.
            let descriptor = descriptor?;
            let Ok(text) = fs::read_to_string(descriptor.path()) else { continue };
            links.take(&text);
            let open = Path::new(&format!("/proc/{process}/fd")).join(descriptor.file_name());
            if statfs(&open).is_ok_and(|found| found.filesystem_type() == BPF_FS_MAGIC) {
                let names = fs::read_dir(&open).context("cannot list the links")?;
                let names = names.flatten().map(|name| name.file_name().display().to_string());
                // The kernel's own iterators there have a dot in their names.
                links.functions.extend(names.filter(|name| !name.contains('.')));
            }
        }
        Ok(links)
    }

    fn take(&mut self, text: &str) {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        if let (Some(_), Some(program)) = (field("link_type"), field("prog_id")) {
            self.programs.insert(program.to_owned());
            self.tracepoints.extend(field("tp_name").map(str::to_owned));
        }
    }
}
