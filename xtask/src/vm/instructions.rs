//! The price of each family of hooks in instructions, on a guest whose clock counts them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::command::{root as workspace, step};
use crate::setup;

use super::guest::{Bench, Ending, Job, ROWS, binaries, remove_leftovers};
use super::kernel::Kernel;
use super::kernels::Series;
use super::qemu::Machine;
use super::{build_init, cache, host, root, suite};

/// The document that a full measurement writes.
const FILE: &str = "tests/OVERHEAD.md";

/// What the guests need beside the usual: the tool that is compared.
const PEERS: &[&str] = &["bpftrace"];

/// Compiling and verifying programs takes minutes where every instruction is emulated.
const DEADLINE: Duration = Duration::from_secs(3000);

/// One measured value, as the show wrote it.
#[derive(Deserialize)]
struct Row {
    table: String,
    /// What was attached.
    row: String,
    /// The workload.
    result: String,
    /// The value.
    detail: String,
}

/// Measures on one kernel; writes the document.
pub(crate) fn run(series: &'static Series) -> Result<()> {
    setup::run()?;
    let binaries = binaries();
    suite::build(&binaries)?;
    let init = build_init()?;
    let cache = cache::Cache::open()?;
    host::prepare(cache.folder())?;
    remove_leftovers()?;
    let kernel = Kernel::prepare(series, &cache)?;
    // One virtual nanosecond is one instruction, and an idle guest does not wait.
    let counting = ["-icount", "shift=0,sleep=off"].map(str::to_owned).to_vec();
    let machine =
        Machine { accelerator: "tcg,thread=single".to_owned(), more: counting, ..Machine::default() };
    let root = root::prepare(&cache, PEERS)?;
    let bench = Bench { root, init, share: binaries.clone(), machine, live: true };
    step(&format!("instructions on {} (every one is emulated: this takes some minutes)", series.name));
    let job = Job {
        name: "instructions".to_owned(),
        command: ["/host/cases", "--show", "instructions"].map(str::to_owned).to_vec(),
        environment: [("MOUNTIE_BIN", "/host/mountie"), ("MOUNTIE_MATRIX", ROWS)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .to_vec(),
        modules: Vec::new(),
        deadline: DEADLINE,
        silence: DEADLINE,
    };
    let outcome = bench.run(&kernel, &job)?;
    cache::clear(&binaries)?;
    match outcome.ending {
        Ending::Exited(0) => {}
        Ending::Exited(code) => bail!("the measurement ended with {code}"),
        Ending::TimedOut(console) | Ending::Silent(console) | Ending::Died(console) => {
            bail!("the guest did not finish; the end of its console:\n{console}")
        }
    }
    let document = document(series.name, &outcome.rows)?;
    let path = workspace().join(FILE);
    fs::write(&path, document).with_context(|| format!("cannot write {}", path.display()))?;
    step(&format!("written: {FILE}"));
    Ok(())
}

const HEAD: &str = "# What the kernel programs cost\n\n\
    Written by `cargo xtask bench instructions`; do not edit. Instructions an operation on an emulated machine \
    whose clock counts them, and how many more than with nothing attached. No call of these loops fails.\n\n\
    `empty` is a program that returns at once, on the same hooks: what attaching there costs by itself. `tar` packs \
    a tree of 200 files into a pipe; `echo` is one byte there and back over loopback TCP, both ends.\n\n\
    `auto` tries the family first that costs less on reads, writes and mixed work.\n\n";

/// The table: what was attached as rows, workloads as columns.
fn document(kernel: &str, rows: &str) -> Result<String> {
    let rows: Vec<Row> = rows
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("a bad row: {line}")))
        .collect::<Result<_>>()?;
    let rows = rows.iter().filter(|row| row.table == "instructions");
    let (mut workloads, mut names) = (Vec::new(), Vec::new());
    let mut cells = BTreeMap::new();
    for row in rows {
        if !workloads.contains(&&row.result) {
            workloads.push(&row.result);
        }
        if !names.contains(&&row.row) {
            names.push(&row.row);
        }
        cells.insert((row.row.as_str(), row.result.as_str()), row.detail.as_str());
    }
    if cells.is_empty() {
        bail!("nothing was measured");
    }
    let mut text = String::from(HEAD);
    let heads: Vec<&str> = workloads.iter().map(|workload| workload.as_str()).collect();
    writeln!(text, "| {kernel} | {} |", heads.join(" | "))?;
    writeln!(text, "|---|{}", "---:|".repeat(heads.len()))?;
    for name in names {
        let line: Vec<&str> = workloads
            .iter()
            .map(|workload| cells.get(&(name.as_str(), workload.as_str())).copied().unwrap_or_default())
            .collect();
        writeln!(text, "| {name} | {} |", line.join(" | "))?;
    }
    let missed = missed(&cells, &heads);
    writeln!(
        text,
        "\n{}",
        if missed.is_empty() { "Every budget is met.".to_owned() } else { missed.join("\n") }
    )?;
    Ok(text)
}

/// By row and workload.
type Cells<'a> = BTreeMap<(&'a str, &'a str), &'a str>;

/// Mixed work, and how many percent more instructions it may cost.
const MIXED: &[&str] = &["tar", "echo"];
const BUDGET: f64 = 2.0;

/// Each family, its hooks without a program of ours, and a tool that counts by the same kind of hook.
const FAMILIES: &[[&str; 3]] = &[
    ["mountie sys_exit", "empty sys_exit", "bpftrace sys_exit"],
    ["mountie fexit", "empty fexit", "bpftrace kretfunc"],
];

/// What of the budgets is not met, in words.
fn missed(cells: &Cells<'_>, workloads: &[&str]) -> Vec<String> {
    let share = |row, workload: &str| cells.get(&(row, workload)).and_then(|cell| percent(cell));
    let mut lines = Vec::new();
    for [own, empty, peer] in FAMILIES {
        let over: Vec<String> = MIXED
            .iter()
            .filter_map(|work| {
                Some((work, share(own, work).filter(|share| *share > BUDGET)?, share(empty, work)?))
            })
            .map(|(work, share, alone)| format!("{work} {share:+.1} % (attaching alone {alone:+.1} %)"))
            .collect();
        if !over.is_empty() {
            lines.push(format!(
                "* Missed: mixed work may cost {BUDGET:.0} % more. {own}: {}.",
                over.join(", ")
            ));
        }
        let dearer =
            |work: &&&str| share(own, work).zip(share(peer, work)).is_some_and(|(own, peer)| own > peer);
        let dearer: Vec<&str> = workloads.iter().filter(dearer).copied().collect();
        if !dearer.is_empty() {
            lines.push(format!("* Missed: {own} is dearer than {peer} on {}.", dearer.join(", ")));
        }
    }
    lines
}

/// The share out of a cell such as `541 (+0.0 %)`.
fn percent(cell: &str) -> Option<f64> {
    cell.split_once('(')?.1.split_once(" %")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_a_table_and_none_is_an_error() {
        let rows = r#"{"table":"instructions","family":"auto","row":"nothing","result":"read","detail":"541 (+0.0 %)"}
{"table":"instructions","family":"auto","row":"empty","result":"read","detail":"676 (+25.0 %)"}
{"table":"instructions","family":"auto","row":"empty","result":"stat","detail":"9"}
"#;
        let text = document("6.12", rows).unwrap();
        assert!(text.contains("| 6.12 | read | stat |\n|---|---:|---:|\n"));
        assert!(text.contains("| nothing | 541 (+0.0 %) |  |\n| empty | 676 (+25.0 %) | 9 |\n"));
        assert!(text.ends_with("\nEvery budget is met.\n"), "{text}");
        assert!(document("6.12", "").is_err());
    }

    #[test]
    fn what_misses_the_budget_is_said() {
        let cell = |row, work, share: &str| {
            let detail = format!("1 ({share} %)");
            serde_json::json!({"table": "instructions", "row": row, "result": work, "detail": detail})
                .to_string()
        };
        let rows = [
            cell("empty sys_exit", "tar", "+2.9"),
            cell("mountie sys_exit", "tar", "+3.7"),
            cell("mountie sys_exit", "echo", "+2.0"),
            cell("mountie fexit", "tar", "-0.1"),
            cell("mountie fexit", "stat", "+9.9"),
            cell("bpftrace kretfunc", "stat", "+9.8"),
            cell("bpftrace kretfunc", "tar", "+1.0"),
        ];
        let text = document("6.12", &rows.join("\n")).unwrap();
        let missed: Vec<&str> = text.lines().filter(|line| line.starts_with("* Missed")).collect();
        assert_eq!(
            missed,
            [
                "* Missed: mixed work may cost 2 % more. mountie sys_exit: tar +3.7 % (attaching alone +2.9 %).",
                "* Missed: mountie fexit is dearer than bpftrace kretfunc on stat.",
            ]
        );
    }
}
