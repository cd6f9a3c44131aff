//! Every decoder and the engine under very many inputs.
//!
//! Decoders are fed by libFuzzer, guided by the code that inputs reach. The instrumentation is LLVM's own, through
//! options that every toolchain has; libFuzzer is compiled from the sources in its crate, by the C++ compiler of
//! this host. The engine is tried with random sequences of inputs, optimised.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::command::{cargo, must, root, step};

/// The target that is no decoder.
const ENGINE: &str = "engine";
/// Sequences of inputs for each property of the engine.
const SEQUENCES: u32 = 100_000;
/// Where inputs and findings are kept.
const FOLDER: &str = "target/fuzz-inputs";

/// Marks each place that code can reach, and hands over what is compared with what.
const INSTRUMENTED: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];

/// What is tried, and for how long.
#[derive(Args)]
pub(crate) struct FuzzArgs {
    /// One target, or `engine`; all decoders when left out
    target: Option<String>,
    /// For each decoder: 90s, 5m, 1h
    #[arg(long = "for", default_value = "60s", value_parser = duration)]
    time: Duration,
    /// Sequences for each property of the engine
    #[arg(long, default_value_t = SEQUENCES)]
    sequences: u32,
}

/// Runs until the time is over or something is found.
pub(crate) fn run(args: &FuzzArgs) -> Result<()> {
    if args.target.as_deref() == Some(ENGINE) {
        return engine(args.sequences);
    }
    let names = targets()?;
    let chosen: Vec<&String> =
        names.iter().filter(|name| args.target.as_ref().is_none_or(|target| target == *name)).collect();
    if chosen.is_empty() {
        bail!("there is no such target; there are {ENGINE} {}", names.join(" "));
    }
    let program = build()?;
    let mut found = Vec::new();
    for name in chosen {
        step(&format!("{name}, for {:?}", args.time));
        if let Err(error) = feed(&program, name, args.time) {
            eprintln!("{error:#}");
            found.push(name.as_str());
        }
    }
    if found.is_empty() { Ok(()) } else { bail!("something was found in: {}", found.join(" ")) }
}

/// The names in the agent's own table.
fn targets() -> Result<Vec<String>> {
    let table = root().join("agent/src/fuzz/targets.rs");
    let text = fs::read_to_string(&table).with_context(|| format!("cannot read {}", table.display()))?;
    Ok(names_in(&text))
}

fn names_in(text: &str) -> Vec<String> {
    let name = |line: &str| Some(line.trim().strip_prefix("name: \"")?.strip_suffix("\",")?.to_owned());
    text.lines().filter_map(name).collect()
}

/// For this machine by name, so that only what runs is instrumented and not what builds it.
fn build() -> Result<std::path::PathBuf> {
    let machine = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let arguments = [
        "build",
        "--package",
        "agent",
        "--features",
        "fuzz",
        "--bin",
        "fuzz",
        "--profile",
        "fuzz",
        "--target",
    ];
    must(cargo().args(arguments).arg(&machine).env("RUSTFLAGS", INSTRUMENTED.join(" ")))
        .context("it needs a C++ compiler (Debian: g++) for libFuzzer")?;
    Ok(root().join("target").join(machine).join("fuzz/fuzz"))
}

/// Targets that have to do with a limit of a mebibyte: inputs must be able to pass it.
const LONG: &[&str] = &["mountinfo"];

fn feed(program: &Path, name: &str, time: Duration) -> Result<()> {
    let folder = root().join(FOLDER).join(name);
    let found = folder.join("found");
    for part in [folder.join("corpus"), found.clone()] {
        fs::create_dir_all(&part).with_context(|| format!("cannot create {}", part.display()))?;
    }
    let mut fuzzer = Command::new(program);
    fuzzer
        .arg(format!("-max_total_time={}", time.as_secs()))
        .arg(format!("-max_len={}", if LONG.contains(&name) { 3 << 19 } else { 16384 }))
        .args(["-timeout=60", "-rss_limit_mb=2048", "-verbosity=0", "-print_final_stats=1"])
        .arg(format!("-dict={}", folder.join("words").display()))
        .arg(format!("-artifact_prefix={}/", found.display()))
        .arg(folder.join("corpus"))
        .env("MOUNTIE_TEST_FUZZ_TARGET", name)
        .env("MOUNTIE_TEST_FUZZ_FOLDER", &folder);
    must(&mut fuzzer).with_context(|| format!("{name}: the input is in {}", found.display()))
}

fn engine(sequences: u32) -> Result<()> {
    step(&format!("the engine, {sequences} sequences for each property"));
    must(
        cargo()
            .args(["test", "--profile", "fuzz", "--package", "agent-core", "--lib", "--"])
            .args(["engine::properties", "health::model"])
            .env("PROPTEST_CASES", sequences.to_string()),
    )
}

/// A number with a unit.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text.strip_prefix(digits).unwrap_or_default() {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err("a number with one of s, m, h".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|error| format!("{digits}: {error}"))?;
    number.checked_mul(factor).map(Duration::from_secs).ok_or_else(|| "too long".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert!(duration("5").is_err() && duration("x").is_err() && duration("1d").is_err());
        assert!(duration("18446744073709551615h").is_err());
    }

    #[test]
    fn the_names_of_targets_are_found_in_their_table() {
        let names = targets().unwrap();
        for name in ["mountinfo", "statmount", "fanotify", "records", "btf", "config", "journal"] {
            assert!(names.iter().any(|found| found == name), "{name}");
        }
    }
}
