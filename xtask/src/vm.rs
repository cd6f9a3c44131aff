//! Distributions' kernels in emulated guests: the agent and its tests on each of them, and the table of what
//! works where.
//!
//! Everything a guest needs is kept in a folder, `target/vm` unless `MOUNTIE_VM_CACHE` names another: a root disk
//! made of the host's own Debian, and for each kernel its image and modules.

mod cache;
mod cpio;
mod guest;
mod host;
mod instructions;
mod kernel;
mod kernels;
mod modules;
mod packages;
mod pool;
mod qemu;
mod report;
mod root;
mod suite;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};

use crate::command::{cargo, must, need_root, root as workspace, step};
use crate::setup;

use cache::Cache;
use guest::{Bench, Ending, Job};
use kernel::Kernel;
pub(crate) use kernels::Series;
pub(crate) use packages::codename;
use qemu::Machine;
use suite::Wish;

/// Process 1 is built for this target, so that its flags do not rebuild anything else.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Arguments of `cargo xtask vm`.
#[derive(Args)]
pub(crate) struct VmArgs {
    /// Only this kernel (5.10, 6.1, 6.12, 6.18, 7.3); repeat for several
    #[arg(long = "kernel", short = 'k', value_parser = series)]
    kernels: Vec<&'static Series>,
    /// Only parts whose name contains this (programs and kinds of I/O, refusals, faults::local_file_systems, faults::fuse,
    /// faults::nfs, faults::smb, repairs::local_file_systems, repairs::nfs, repairs::smb (faults that end, the volume
    /// repaired by the agent, a container following), kernel_counts, swap, cases), or else only cases whose name does;
    /// the part `cases`, all other tests, runs only when it is asked for
    #[arg(long, conflicts_with = "command")]
    filter: Option<String>,
    /// Only rows of the table whose name contains this; several with semicolons between
    #[arg(long, conflicts_with = "command")]
    row: Option<String>,
    /// Only this family of hooks, for every part; kept in the table where the part has it
    #[arg(long, value_enum)]
    family: Option<Family>,
    /// How many guests run at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// The folder that a command finds as `/host`; default: target/debug of the workspace
    #[arg(long, value_name = "DIR", requires = "command")]
    share: Option<PathBuf>,
    /// Modules to load before a command
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "command")]
    modules: Vec<String>,
    /// End a guest with a command after this many seconds
    #[arg(long, default_value_t = 300, requires = "command")]
    timeout: u64,
    /// Memory of a guest in MiB
    #[arg(long, default_value_t = 1024)]
    memory: u32,
    /// Run this in the guests instead of the tests: put it after `--`
    #[arg(last = true)]
    command: Vec<String>,
}

/// The family of hooks that the agent is configured with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Family {
    /// What the agent prefers.
    Auto,
    /// Ends of kernel functions.
    Fexit,
    /// Ends of system calls.
    SysExit,
}

impl Family {
    const fn label(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fexit => "fexit",
            Self::SysExit => "sys_exit",
        }
    }
}

pub(crate) fn series(name: &str) -> Result<&'static Series, String> {
    kernels::find(name).ok_or_else(|| {
        let known: Vec<String> =
            kernels::ALL.iter().map(|series| format!("{} ({})", series.name, series.why)).collect();
        format!("there is no such kernel; there are: {}", known.join("; "))
    })
}

/// Measures what the kernel programs cost, in instructions.
pub(crate) fn instructions(series: &'static Series) -> Result<()> {
    need_root("bench instructions")?;
    instructions::run(series)
}

/// Runs the suite, or one command.
pub(crate) fn run(args: &VmArgs) -> Result<()> {
    need_root("vm")?;
    if args.command.is_empty() { run_suite(args) } else { run_command(args) }
}

fn run_command(args: &VmArgs) -> Result<()> {
    let share = args.share.clone().unwrap_or_else(|| workspace().join("target").join("debug"));
    let share = std::path::absolute(&share).context("cannot find the folder to share")?;
    if !share.is_dir() {
        bail!("{} is no folder: name one with --share", share.display());
    }
    let chosen = chosen(args);
    let job = Job {
        name: args.command.join(" "),
        command: args.command.clone(),
        environment: vec![("MOUNTIE_BIN".to_owned(), "/host/mountie".to_owned())],
        modules: args.modules.clone(),
        deadline: Duration::from_secs(args.timeout),
        silence: Duration::from_secs(args.timeout),
    };
    let (kernels, bench) = prepare(args, &chosen, share, chosen.len() == 1)?;
    let tasks: Vec<_> = kernels.iter().map(|kernel| (kernel, &job)).collect();
    let mut failed = Vec::new();
    pool::run(
        args.jobs,
        &tasks,
        |(kernel, job)| bench.run(kernel, job),
        |(kernel, _), outcome| {
            let outcome = outcome?;
            let how = report::ending(&outcome, job.deadline);
            if !bench.live {
                print!("── {}\n{}", kernel.name, outcome.output);
            }
            if let Some(console) = outcome.ending.console() {
                eprintln!("── {}: the end of its console\n{console}", kernel.name);
            }
            eprintln!("── {}: {how}, {:.1} s", kernel.name, outcome.took.as_secs_f64());
            if outcome.ending != Ending::Exited(0) {
                failed.push(kernel.name);
            }
            Ok(())
        },
    )?;
    if failed.is_empty() { Ok(()) } else { bail!("failed on {}", failed.join(", ")) }
}

fn run_suite(args: &VmArgs) -> Result<()> {
    setup::run()?;
    let binaries = guest::binaries();
    suite::build(&binaries)?;
    let wish = Wish { family: args.family, filter: args.filter.as_deref(), row: args.row.as_deref() };
    let planned = suite::plan(&binaries, &wish)?;
    if planned.is_empty() {
        bail!("no part, case or row has such a name");
    }
    let known = suite::rows(&binaries)?;
    let (kernels, bench) = prepare(args, &chosen(args), binaries.clone(), false)?;
    let tasks: Vec<_> =
        planned.iter().flat_map(|planned| kernels.iter().map(move |kernel| (kernel, planned))).collect();
    let anew =
        args.kernels.is_empty() && args.family.is_none() && (&args.filter, &args.row) == (&None, &None);
    let mut report = report::Report::new(workspace().join(report::FILE), known, anew)?;
    pool::run(
        args.jobs,
        &tasks,
        |(kernel, planned)| bench.run(kernel, &planned.job),
        |(kernel, planned), outcome| report.take(kernel, planned, &outcome?),
    )?;
    cache::clear(&binaries)?;
    report.finish()
}

/// The kernels that were asked for: all, unless some are named; in the order of the table.
fn chosen(args: &VmArgs) -> Vec<&'static Series> {
    kernels::ALL.iter().filter(|series| args.kernels.is_empty() || args.kernels.contains(series)).collect()
}

/// Brings host and cache to where the guests can run.
fn prepare(
    args: &VmArgs,
    chosen: &[&'static Series],
    share: PathBuf,
    live: bool,
) -> Result<(Vec<Kernel>, Bench)> {
    let init = build_init()?;
    let cache = Cache::open()?;
    host::prepare(cache.folder())?;
    guest::remove_leftovers()?;
    let root = root::prepare(&cache, &[])?;
    let kernels = chosen.iter().map(|series| Kernel::prepare(series, &cache)).collect::<Result<_>>()?;
    let machine = Machine { memory: args.memory, ..Machine::default() };
    Ok((kernels, Bench { root, init, share, machine, live }))
}

/// Builds process 1 of the guests: linked statically, because the initramfs has no libraries.
fn build_init() -> Result<PathBuf> {
    step("building process 1 of the guests");
    let mut build = cargo();
    build.args(["build", "--quiet", "--release", "--package", "vm-init", "--target", TARGET]);
    build.env("RUSTFLAGS", "-C target-feature=+crt-static -C strip=symbols");
    must(&mut build)?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    Ok(target.join(TARGET).join("release").join("vm-init"))
}
