//! What is shown to a person and not judged: the demonstration and the measurements. Each runs in a world of
//! its own, like a case, and prints as it goes.

mod chaos;
mod cost;
mod demo;
mod detection;
mod docker;
mod recovery;
mod scale;
mod spread;
mod surface;

use std::time::Duration;

use anyhow::{Context, Result};
use integration_tests::harness::case::Case;
use integration_tests::harness::needs::Need;

/// Every show.
pub(crate) const SHOWS: &[Case] = &[
    Case {
        name: "demo",
        needs: &[Need::Root, Need::Fuse, Need::Tool("bindfs")],
        timeout: Duration::from_secs(300),
        run: demo::run,
    },
    Case {
        name: "chaos",
        needs: &[
            Need::Root,
            Need::Fuse,
            Need::Loop,
            Need::Tool("bindfs"),
            Need::Tool("mkfs.ext4"),
            Need::Tool("xfs_io"),
        ],
        timeout: Duration::from_secs(6 * 3600),
        run: chaos::run,
    },
    Case {
        name: "overhead",
        needs: &[Need::Root],
        timeout: Duration::from_secs(3600),
        run: cost::overhead::run,
    },
    Case {
        name: "detection",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(3600),
        run: detection::run,
    },
    Case { name: "recovery", needs: &[Need::Root], timeout: Duration::from_secs(3600), run: recovery::run },
    Case {
        name: "instructions",
        needs: &[Need::Root, Need::Bpf],
        timeout: Duration::from_secs(3600),
        run: cost::instructions::run,
    },
    Case {
        name: "surface",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(3600),
        run: surface::run,
    },
    Case {
        name: "docker",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(600),
        run: docker::run,
    },
    Case {
        name: "scale",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(3600),
        run: scale::run,
    },
];

/// How often something is to be done, from the command line through the environment.
fn count(default: usize) -> usize {
    std::env::var("SHOW_COUNT").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Shows a table, and writes it where whoever runs the show wants it.
fn hand_out(table: &str) -> Result<()> {
    println!("{table}");
    match std::env::var_os("SHOW_OUTPUT") {
        Some(path) => {
            std::fs::write(&path, table).with_context(|| format!("cannot write {}", path.display()))
        }
        None => Ok(()),
    }
}
