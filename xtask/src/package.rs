//! What is shipped: the Debian package, the container image, the Helm chart and the manifests, each built into
//! `target/package` and checked with what those who install it check it with. One table of steps; each kind is a file
//! below this one.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::command::{need_root, root, step};
use crate::quietly::quiet;
use crate::setup;

mod binary;
mod chart;
mod deb;
mod image;
mod licences;
mod tools;
mod unit;

use tools::Tools;

/// What `cargo xtask package` is told.
#[derive(Args)]
pub(crate) struct PackageArgs {
    /// Only what is needed for these: unit, deb, image, chart
    kinds: Vec<String>,
    /// Write deploy/kubernetes/mountie.yaml as the chart gives it, instead of holding it to the chart
    #[arg(long)]
    bless: bool,
}

/// One step towards a package, or one check of it.
struct Step {
    /// What it belongs to. When one fails, those of the same kind that follow are not run.
    kind: &'static str,
    name: &'static str,
    /// What was seen, in a few words; an error says what is wrong.
    run: fn(&Scene) -> Result<String>,
}

/// Every step, in order. The program is one: in the package and in the image.
const STEPS: &[&[Step]] = &[unit::STEPS, chart::STEPS, binary::STEPS, deb::STEPS, image::STEPS];

/// Kinds that consist of the program.
const OF_THE_PROGRAM: [&str; 2] = ["deb", "image"];

/// How `unshare` starts a trial: what it mounts and starts ends with it.
const OWN_NAMESPACES: [&str; 8] =
    ["--mount", "--propagation", "private", "--pid", "--fork", "--mount-proc", "--kill-child", "--"];

/// What steps are run with.
struct Scene {
    /// Where everything is put.
    folder: PathBuf,
    tools: Tools,
    /// The workspace's.
    version: String,
    bless: bool,
}

/// How a step ended.
struct Row {
    kind: &'static str,
    name: &'static str,
    took: Duration,
    /// `None`: not run, since an earlier one failed.
    result: Option<Result<String>>,
}

/// Runs the steps and prints the table; fails when one of them does.
pub(crate) fn run(args: &PackageArgs) -> Result<()> {
    carry_out(&args.kinds, args.bless).map(drop)
}

/// Only the steps of some kinds; how many there were.
pub(crate) fn check(kinds: &[String]) -> Result<usize> {
    carry_out(kinds, false)
}

fn carry_out(kinds: &[String], bless: bool) -> Result<usize> {
    need_root("package")?;
    let chosen = choose(kinds)?;
    if chosen.iter().any(|step| step.kind == binary::KIND) {
        setup::run()?;
    }
    let folder = root().join("target/package");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let tools = Tools::in_folder(&folder.join("tools"));
    let scene = Scene { folder, tools, version: version()?, bless };
    let mut rows: Vec<Row> = Vec::new();
    for next in chosen {
        let is_hopeless = rows.iter().any(|row| stands_in_the_way(row, next.kind));
        rows.push(if is_hopeless { not_run(next) } else { row(next, &scene) });
    }
    print!("{}", table(&rows));
    let failed = rows.iter().filter(|row| !matches!(row.result, Some(Ok(_)))).count();
    if failed > 0 {
        bail!("{failed} of {} steps failed or were not run", rows.len());
    }
    Ok(rows.len())
}

/// The steps of some kinds, with the program where one of them consists of it; all, where none is named.
fn choose(kinds: &[String]) -> Result<Vec<&'static Step>> {
    let all: Vec<&Step> = STEPS.iter().copied().flatten().collect();
    let mut known: Vec<&str> = all.iter().map(|step| step.kind).collect();
    known.dedup();
    if let Some(unknown) = kinds.iter().find(|kind| !known.contains(&kind.as_str())) {
        bail!("there is no {unknown}; there are: {}", known.join(", "));
    }
    let is_asked = |kind: &str| kinds.is_empty() || kinds.iter().any(|asked| asked == kind);
    let is_program_needed = OF_THE_PROGRAM.into_iter().any(is_asked);
    let is_needed = |step: &&Step| is_asked(step.kind) || (step.kind == binary::KIND && is_program_needed);
    Ok(all.into_iter().filter(is_needed).collect())
}

fn stands_in_the_way(row: &Row, kind: &str) -> bool {
    let is_before = row.kind == kind || (row.kind == binary::KIND && OF_THE_PROGRAM.contains(&kind));
    is_before && !matches!(row.result, Some(Ok(_)))
}

fn not_run(step: &Step) -> Row {
    Row { kind: step.kind, name: step.name, took: Duration::ZERO, result: None }
}

fn row(next: &Step, scene: &Scene) -> Row {
    step(&format!("{}: {}", next.kind, next.name));
    let begin = Instant::now();
    let result = (next.run)(scene);
    if let Err(error) = &result {
        eprintln!("{error:#}");
    }
    Row { kind: next.kind, name: next.name, took: begin.elapsed(), result: Some(result) }
}

/// The rows, as Markdown.
fn table(rows: &[Row]) -> String {
    let mut text = String::from("\n| kind | step | result | seconds | seen |\n|---|---|---|---|---|\n");
    for Row { kind, name, took, result } in rows {
        let (word, seen) = match result {
            Some(Ok(seen)) => ("ok", seen.clone()),
            Some(Err(error)) => ("FAILED", error.to_string()),
            None => ("not run", String::new()),
        };
        let seen = seen.lines().next().unwrap_or_default().replace('|', "/");
        text.push_str(&format!("| {kind} | {name} | {word} | {:.1} | {seen} |\n", took.as_secs_f64()));
    }
    text
}

/// When the last change was made, in seconds since 1970.
fn time_of_commit() -> Result<String> {
    git(&["log", "-1", "--format=%ct"])
}

/// The last change; marked where files differ from it.
fn revision() -> Result<String> {
    let is_dirty = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Ok(git(&["rev-parse", "HEAD"])? + if is_dirty { "-dirty" } else { "" })
}

fn git(arguments: &[&str]) -> Result<String> {
    Ok(quiet(Command::new("git").current_dir(root()).args(arguments))?.trim().to_owned())
}

/// The version of the workspace.
fn version() -> Result<String> {
    let path = root().join("Cargo.toml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let manifest: toml::Table = text.parse().with_context(|| format!("cannot read {}", path.display()))?;
    let package = manifest.get("workspace").and_then(|workspace| workspace.get("package"));
    let version = package.and_then(|package| package.get("version")).and_then(toml::Value::as_str);
    version.map(str::to_owned).context("the workspace has no version")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_of(kind: &'static str, result: Option<Result<String>>) -> Row {
        Row { kind, name: "x", took: Duration::from_millis(1500), result }
    }

    #[test]
    fn the_program_is_built_where_a_package_consists_of_it() {
        let kinds = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|&kind| kind.to_owned()).collect();
            let mut kinds: Vec<&str> = choose(&asked).unwrap().iter().map(|step| step.kind).collect();
            kinds.dedup();
            kinds
        };
        assert_eq!(kinds(&["deb"]), [binary::KIND, "deb"]);
        assert_eq!(kinds(&["chart", "unit"]), ["unit", "chart"]);
        assert_eq!(kinds(&[]), ["unit", "chart", binary::KIND, "deb", "image"]);
        assert!(choose(&["rpm".to_owned()]).is_err());
    }

    #[test]
    fn what_rests_on_a_failure_is_not_run() {
        let failed = |kind| row_of(kind, Some(Err(anyhow::anyhow!("no"))));
        assert!(stands_in_the_way(&failed(binary::KIND), "deb"));
        assert!(stands_in_the_way(&failed("deb"), "deb"));
        assert!(!stands_in_the_way(&failed("deb"), "image"));
        assert!(!stands_in_the_way(&row_of("deb", Some(Ok(String::new()))), "deb"));
    }

    #[test]
    fn the_table_shows_what_failed_and_what_was_not_run() {
        let failed = Some(Err(anyhow::anyhow!("why\nmore")));
        let text =
            table(&[row_of("a", Some(Ok("3 | 4".to_owned()))), row_of("b", failed), row_of("b", None)]);
        assert!(text.contains("| a | x | ok | 1.5 | 3 / 4 |\n"), "{text}");
        assert!(text.contains("| b | x | FAILED | 1.5 | why |\n"), "{text}");
        assert!(text.contains("| b | x | not run | 1.5 |  |\n"), "{text}");
    }
}
