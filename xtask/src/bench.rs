//! Measurements, each side by side with what it is compared to, in one run.

use anyhow::Result;
use clap::Subcommand;

use crate::command::root;
use crate::{scale, shows, vm};

/// What can be measured.
#[derive(Subcommand)]
pub(crate) enum What {
    /// What the agent costs calls that do not fail, in time on this machine: in turn under nothing, an empty program
    /// and the agent. Writes tests/TIMES.md
    Overhead {
        /// How many rounds
        #[arg(long, default_value_t = 15)]
        rounds: usize,
    },
    /// From an application's first failing read to `Degraded`, over many faults
    Detection {
        /// How many faults
        #[arg(long, default_value_t = 200)]
        faults: usize,
    },
    /// From `Degraded` to good again for each method of repair, and how long nothing stood at the path, beside what
    /// mount(8) takes on its own
    Recovery {
        /// How many repairs of the first method; of slower ones it is a part
        #[arg(long, default_value_t = 40)]
        rounds: usize,
    },
    /// What each family of hooks costs in instructions, on an emulated machine whose clock counts them
    Instructions {
        /// On which kernel (5.10, 6.1, 6.12, 6.18, 7.3)
        #[arg(long, short, default_value = "6.12", value_parser = vm::series)]
        kernel: &'static vm::Series,
    },
    /// The agent on a node of 1,000 and of 10,000 mounts, of which 100 hang: at rest, scraped, while the table
    /// changes; beside node_exporter. Writes tests/SCALE.md
    Scale,
}

/// Measures.
pub(crate) fn run(what: &What) -> Result<()> {
    match *what {
        What::Overhead { rounds } => {
            let table = root().join("tests/TIMES.md");
            shows::run_with("overhead", rounds, &[("SHOW_OUTPUT", table.as_path())])
        }
        What::Detection { faults } => shows::run("detection", faults),
        What::Recovery { rounds } => shows::run("recovery", rounds),
        What::Instructions { kernel } => vm::instructions(kernel),
        What::Scale => scale::run(),
    }
}
