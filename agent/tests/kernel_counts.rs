//! The kernel programs count what others do, exactly, and nothing of what the agent does itself.
//!
//! Needs root. This process makes a mount namespace of its own with a few small file systems, starts itself again
//! in the agent's role, makes calls fail, and compares the totals that the agent's role was told. Where kernel
//! programs are not permitted it says so and passes. Nothing is left behind: the mounts go with the namespace.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "kernel_counts/agent_role.rs"]
mod agent_role;
#[path = "kernel_counts/cases.rs"]
mod cases;
#[path = "kernel_counts/changes.rs"]
mod changes;
#[path = "kernel_counts/completions.rs"]
mod completions;
#[path = "kernel_counts/full.rs"]
mod full;
#[path = "kernel_counts/harness.rs"]
mod harness;
#[path = "common/patience.rs"]
mod patience;
#[path = "kernel_counts/reports.rs"]
mod reports;
#[path = "kernel_counts/skipped.rs"]
mod skipped;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some(agent_role::ARGUMENT) => agent_role::run(arguments.get(2).map_or("auto", String::as_str)),
        Some("--list") => ExitCode::SUCCESS,
        filter => run_cases(filter.filter(|word| !word.starts_with('-')).unwrap_or_default()),
    }
}

fn run_cases(filter: &str) -> ExitCode {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: kernel_counts needs root");
        return ExitCode::SUCCESS;
    }
    let family = std::env::var("MOUNTIE_TEST_FAMILY").unwrap_or_else(|_| "auto".to_owned());
    let mut failed = false;
    for (name, case) in cases::ALL.iter().filter(|(name, _)| name.contains(filter)) {
        match std::panic::catch_unwind(|| case(&family)) {
            Ok(harness::Verdict::Passed) => println!("ok: {name}"),
            Ok(harness::Verdict::Skipped(reason)) => println!("skipped: {name}: {reason}"),
            Err(_) => {
                println!("FAILED: {name}");
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
