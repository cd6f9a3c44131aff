//! The tables of faults and of repairs: storage that really breaks, on the kernel that is running, what the agent says
//! about it, and what it does. Each row is data: what is mounted, how it is broken, who touches it, which reasons are right.
//!
//! Only for a machine that belongs to the tests: servers, device-mapper and the firewall are everybody's.

use std::time::Duration;

use anyhow::Result;
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::needs::Need;

use self::watch::Watch;

mod block;
mod disks;
mod dm;
mod fault;
mod fuse;
mod nfs;
mod nfs_server;
mod smb;
mod stacked;
mod tools;
mod user;
mod watch;

/// For all rows of a case together. It is a machine that is slow and has patience, and some rows wait for a server's
/// lease.
const TIMEOUT: Duration = Duration::from_secs(300);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "faults::local_file_systems",
        needs: &[Need::Root, Need::Module("loop"), Need::Module("ext4"), Need::Tool("mkfs.ext4")],
        timeout: TIMEOUT,
        run: local,
    },
    Case {
        name: "faults::fuse",
        needs: &[Need::Root, Need::Module("fuse"), Need::Fuse, Need::Tool("bindfs")],
        timeout: TIMEOUT,
        run: |bench| in_one_watch(bench, fuse::run),
    },
    Case {
        name: "faults::nfs",
        needs: nfs::NEEDS,
        timeout: TIMEOUT,
        run: |bench| in_one_watch(bench, nfs::run),
    },
    Case {
        name: "faults::smb",
        needs: smb::NEEDS,
        timeout: TIMEOUT,
        run: |bench| in_one_watch(bench, smb::run),
    },
];

/// The same faults, repaired: while a container holds the volume, and until it follows.
pub(crate) const REPAIRS: &[Case] = &[
    Case {
        name: "repairs::local_file_systems",
        needs: &[Need::Root, Need::Module("loop"), Need::Module("ext4"), Need::Tool("mkfs.ext4")],
        timeout: TIMEOUT,
        run: |bench| in_one_watch(bench, block::run_repairs),
    },
    Case {
        name: "repairs::nfs",
        needs: nfs::NEEDS,
        timeout: TIMEOUT,
        run: |bench| in_one_watch(bench, nfs::run_repairs),
    },
    Case {
        name: "repairs::smb",
        needs: smb::NEEDS,
        timeout: TIMEOUT,
        run: |bench| in_one_watch(bench, smb::run_repairs),
    },
];

/// The rows of one of the cases.
pub(crate) fn rows_of(case: &Case) -> Vec<String> {
    match case.name {
        "faults::local_file_systems" => [block::rows(), disks::rows(), stacked::rows()].concat(),
        "faults::fuse" => fuse::rows(),
        "faults::nfs" => nfs::rows(),
        "faults::smb" => smb::rows(),
        "repairs::local_file_systems" => block::repairs(),
        "repairs::nfs" => nfs::repairs(),
        "repairs::smb" => smb::repairs(),
        _ => Vec::new(),
    }
}

fn local(bench: &mut Bench) -> Result<()> {
    in_one_watch(bench, |watch| {
        block::run(watch)?;
        disks::run(watch)?;
        stacked::run(watch)
    })
}

/// One agent for many rows: what is slow is its start, while it loads the kernel programs.
fn in_one_watch(bench: &Bench, rows: impl FnOnce(&mut Watch<'_>) -> Result<()>) -> Result<()> {
    let mut watch = Watch::start(bench)?;
    rows(&mut watch)?;
    watch.finish()
}
