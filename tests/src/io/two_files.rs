//! Calls on two files: nothing says which of them failed. Neither volume may be condemned for the other, and neither
//! failure goes unseen.

use std::fs::{File, OpenOptions};
use std::io::{Error, Result as IoResult};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::Volume;
use integration_tests::harness::bench::Bench;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::attribution::{CALLS, Counted, agent_with, only};
use super::marks::Counts;
use super::raw::sys;

/// A sound volume, one that fails, and things that are on neither.
struct World {
    good: Injector,
    dead: Injector,
    good_file: File,
    dead_file: File,
    unconnected: OwnedFd,
}

/// One kind of call.
struct Row {
    name: &'static str,
    /// What the failing volume refuses.
    refused: &'static [&'static str],
    answer: Errno,
    call: fn(&World, u64) -> IoResult<()>,
    /// Whether each of the two volumes gets a hint.
    hints: [bool; 2],
}

const ROWS: &[Row] = &[
    // The kernel walks both names before it says that they lie on different mounts.
    Row {
        name: "rename to a volume that fails",
        refused: &["lookup"],
        answer: Errno::EIO,
        call: |world, turn| std::fs::rename(world.good.data(1), below(&world.dead, turn)),
        hints: [true, true],
    },
    Row {
        name: "rename from a volume that fails",
        refused: &["lookup"],
        answer: Errno::ETIMEDOUT,
        call: |world, turn| std::fs::rename(below(&world.dead, turn), world.good.mountpoint().join("new")),
        hints: [true, true],
    },
    // Where the first name leads only the agent could tell.
    Row {
        name: "link from an untracked working directory",
        refused: &["lookup"],
        answer: Errno::EIO,
        call: |world, turn| std::fs::hard_link("outside", below(&world.dead, turn)),
        hints: [false, true],
    },
    Row {
        name: "sendfile from a volume that fails",
        refused: &["read"],
        answer: Errno::EIO,
        call: |world, _| send(&world.good_file, &world.dead_file),
        hints: [true, true],
    },
    // kernel: `unix_stream_sendmsg`, net/unix/af_unix.c: ENOTCONN without a peer, all versions.
    Row {
        name: "sendfile to a socket that refuses",
        refused: &[],
        answer: Errno::ENOTCONN,
        call: |world, _| send(&world.unconnected, &world.good_file),
        hints: [true, false],
    },
];

fn below(volume: &Injector, turn: u64) -> std::path::PathBuf {
    volume.mountpoint().join(format!("absent{turn}")).join("x")
}

fn send(to: &impl AsRawFd, from: &impl AsRawFd) -> IoResult<()> {
    let [to, from] = [to.as_raw_fd(), from.as_raw_fd()].map(i64::from);
    sys!(SYS_sendfile, to, from, 0, 16).map(drop).map_err(Error::from)
}

/// The case.
pub(super) fn case(bench: &mut Bench) -> Result<&'static str> {
    let good = Injector::start(bench, "good", "here")?;
    let dead = Injector::start(bench, "dead", "here")?;
    let place = bench.make_directory("place")?;
    std::env::set_current_dir(&place).context("cannot go there")?;
    std::fs::write("outside", b"x").context("cannot make a file")?;
    let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path).context("cannot open");
    let (good_file, dead_file) = (open(&good.data(0))?, open(&dead.data(0))?);
    let unconnected = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let names = ["good", "dead"];
    let volumes = [Volume::at("good", good.mountpoint()), Volume::at("dead", dead.mountpoint())];
    let mut agent = agent_with(bench, &volumes)?;
    for volume in names {
        agent.wait_state(volume, "healthy")?;
    }
    let world = World { good, dead, good_file, dead_file, unconnected };
    let mut counted = Counted::new(&world.good, &agent, "good")?;
    for row in ROWS {
        let expected = row.hints.map(|hint| if hint { only(row.answer, "either") } else { Counts::new() });
        counted
            .must_rise(&names, || fail(&world, row), |rises| rises == expected.as_slice())
            .context(row.name)?;
    }
    agent.must_run()?;
    Ok("a hint for each")
}

fn fail(world: &World, row: &Row) -> Result<()> {
    if !row.refused.is_empty() {
        world.dead.set(&Mode::fail(row.answer, row.refused))?;
    }
    let met: Vec<_> = (0..CALLS).map(|turn| (row.call)(world, turn)).collect();
    world.dead.set(&Mode::Ok)?;
    for result in met {
        let errno = result.err().and_then(|error| error.raw_os_error());
        ensure!(errno == Some(row.answer as i32), "the call met {errno:?}, not {}", row.answer);
    }
    Ok(())
}
