//! `cargo xtask …`: every task of a developer, and all that CI runs. Subcommands only; each task is a file.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod agent;
mod apt;
mod bench;
mod built;
mod ci;
mod command;
mod coverage;
mod cross;
mod docs;
mod ebpf;
mod fuzz;
mod operator;
mod package;
mod quietly;
mod scale;
mod setup;
mod shows;
mod surface;
mod test;
mod tidy;
mod unpacked;
mod vm;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Build, run, test and measure mountie", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what is missing for building and testing; does nothing the second time
    Setup,
    /// Build the kernel programs and the agent
    Build {
        /// With optimisation, to target/release/mountie
        #[arg(long)]
        release: bool,
    },
    /// Set up, build with optimisation, and run `mountie run` with the given arguments (as root)
    Run {
        /// Arguments of `mountie run`: put them after `--`
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Break and heal a volume before your eyes, in a mount namespace of its own (as root)
    Demo,
    /// Kill the agent, its helpers and FUSE daemons in the middle of repairs, and check what is left (as root)
    Chaos {
        /// How many rounds
        #[arg(long, default_value_t = 1000)]
        rounds: usize,
        /// Throw the dice of an earlier run
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Set up, then run all tests: units, properties, and the agent against real mounts (as root)
    Test {
        /// Only the integration cases whose name contains this
        filter: Option<String>,
    },
    /// Measure, side by side with what it is compared to
    Bench {
        #[command(subcommand)]
        what: bench::What,
    },
    /// Feed every decoder with inputs that are made to break it, or the engine with random sequences
    Fuzz(fuzz::FuzzArgs),
    /// Build the kernel programs and check the object: helpers, stack, sections
    Object,
    /// Build the agent for 64-bit ARM, and run what an emulator can run
    Cross {
        /// With optimisation
        #[arg(long)]
        release: bool,
    },
    /// Measure which lines of the deciding and decoding code unit tests run; fails where these are too few
    Coverage,
    /// Try what operators are given: metrics, rules, runbooks and dashboards, with a real Prometheus and a real agent
    /// beside broken volumes (as root)
    Surface {
        /// Only the checks whose name contains this
        filter: Option<String>,
    },
    /// Build what is shipped into target/package, and check it: Debian package, image, Helm chart, unit (as root)
    Package(package::PackageArgs),
    /// Write the pages that are made of tables in the code (docs/METRICS.md, docs/CONFIGURATION.md, docs/VERDICTS.md), and
    /// the manual pages
    Docs {
        /// Where the manual pages go
        #[arg(long, value_name = "DIR", default_value = "target/man")]
        man: std::path::PathBuf,
    },
    /// The project's own lints: layers, sizes, headings, kernel references, what operators are given
    Tidy,
    /// Run the integration tests, or a command, in guests with distributions' kernels (as root)
    Vm(vm::VmArgs),
    /// Everything that CI runs, in order
    Ci,
}

fn main() -> ExitCode {
    if let Some(end) = coverage::compile() {
        return end;
    }
    let result = match Cli::parse().task {
        Task::Setup => setup::run(),
        Task::Build { release: true } => agent::build(agent::Profile::Release).map(drop),
        Task::Build { release: false } => agent::build(agent::Profile::Debug).map(drop),
        Task::Run { args } => agent::run(&args),
        Task::Demo => shows::run("demo", 1),
        Task::Chaos { rounds, seed } => {
            let seed = seed.map(|seed| seed.to_string());
            let settings: Vec<_> = seed.iter().map(|seed| ("SHOW_SEED", seed)).collect();
            shows::run_with("chaos", rounds, &settings)
        }
        Task::Test { filter } => test::run(filter.as_deref()),
        Task::Bench { what } => bench::run(&what),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Object => ebpf::build(&command::root()).map(drop),
        Task::Cross { release } => cross::run(release).map(drop),
        Task::Coverage => coverage::run(),
        Task::Surface { filter } => surface::run(filter.as_deref()),
        Task::Package(args) => package::run(&args),
        Task::Docs { man } => docs::run(&man),
        Task::Tidy => tidy::run(),
        Task::Vm(args) => vm::run(&args),
        Task::Ci => ci::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
