//! Real plans on real mounts that really break, in a mount namespace of this process's own: whatever a test
//! leaves behind goes with the process.
//!
//! The binary is also the child that acts (`swap act`), as the agent's own binary is, and the programs `hammer` and
//! `apart`.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

#[path = "swap/block.rs"]
mod block;
#[path = "swap/consumers.rs"]
mod consumers;
#[path = "swap/container.rs"]
mod container;
#[path = "swap/children.rs"]
mod children;
#[path = "swap/fuse.rs"]
mod fuse;
#[path = "swap/lab.rs"]
mod lab;
#[path = "swap/late.rs"]
mod late;
#[path = "swap/methods.rs"]
mod methods;
#[path = "swap/nested.rs"]
mod nested;
#[path = "common/patience.rs"]
mod patience;
#[path = "swap/propagation.rs"]
mod propagation;
#[path = "swap/table.rs"]
mod table;
#[path = "swap/without_a_gap.rs"]
mod without_a_gap;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == "act") {
        return agent::remediation::run_act().into();
    }
    if std::env::args_os().nth(1).is_some_and(|argument| argument == "hammer") {
        return container::hammer();
    }
    if std::env::args_os().nth(1).is_some_and(|argument| argument == "apart") {
        return lab::apart();
    }
    let arguments = Arguments::from_args();
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: mounts need root");
        return ExitCode::SUCCESS;
    }
    lab::enter_own_namespace();
    let groups = [
        block::TESTS,
        children::TESTS,
        consumers::TESTS,
        fuse::TESTS,
        late::TESTS,
        methods::TESTS,
        nested::TESTS,
        propagation::TESTS,
        table::TESTS,
        without_a_gap::TESTS,
    ];
    let trials = groups.concat().into_iter().map(|(name, test)| Trial::test(name, move || run(test)));
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// A named test.
type Test = (&'static str, fn());

fn run(test: fn()) -> Result<(), Failed> {
    test();
    Ok(())
}
