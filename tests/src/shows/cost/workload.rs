//! The loops whose cost is measured. None of their calls fails.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::wait::now;

/// One loop.
pub(super) struct Workload {
    pub(super) name: &'static str,
    /// How many operations one run does.
    operations: u32,
    run: fn(&Ground, u32) -> Result<()>,
}

/// What is measured, cheap calls first.
pub(super) const WORKLOADS: &[Workload] = &[
    Workload { name: "getppid", operations: 20_000, run: getppid },
    Workload { name: "read", operations: 20_000, run: read },
    Workload { name: "write", operations: 20_000, run: write },
    Workload { name: "open+close", operations: 5_000, run: open_close },
    Workload { name: "stat", operations: 5_000, run: stat },
    Workload { name: "tar", operations: 1, run: tar },
    Workload { name: "echo", operations: 1_000, run: echo },
];

/// Files of the source tree that is packed.
const FILES: usize = 200;

/// What the loops work on.
pub(super) struct Ground {
    file: PathBuf,
    tree: PathBuf,
}

/// Makes a small file and a tree.
pub(super) fn prepare(bench: &Bench) -> Result<Ground> {
    let file = bench.write("small", b"small")?;
    let tree = bench.path("tree");
    for number in 0..FILES {
        let folder = tree.join(format!("module{}", number % 20));
        fs::create_dir_all(&folder).context("cannot make the tree")?;
        let text = format!("fn number() -> usize {{ {number} }}\n").repeat(1 + number % 50);
        fs::write(folder.join(format!("file{number}.rs")), text).context("cannot fill the tree")?;
    }
    Ok(Ground { file, tree })
}

impl Workload {
    /// Nanoseconds an operation, by the monotonic clock.
    pub(super) fn cost(&self, ground: &Ground) -> Result<f64> {
        self.cost_over(ground, Duration::ZERO)
    }

    /// The same over as many runs as at least this time has room for.
    pub(super) fn cost_over(&self, ground: &Ground, time: Duration) -> Result<f64> {
        let (begin, mut runs) = (now(), 0_u32);
        loop {
            (self.run)(ground, self.operations)?;
            runs += 1;
            let took = now().saturating_sub(begin);
            if took >= time {
                return Ok(took.as_secs_f64() * 1e9 / (f64::from(runs) * f64::from(self.operations)));
            }
        }
    }
}

fn getppid(_: &Ground, operations: u32) -> Result<()> {
    for _ in 0..operations {
        std::hint::black_box(nix::unistd::getppid());
    }
    Ok(())
}

fn read(_: &Ground, operations: u32) -> Result<()> {
    let mut zero = File::open("/dev/zero").context("cannot open /dev/zero")?;
    let mut byte = [0];
    for _ in 0..operations {
        zero.read_exact(&mut byte).context("cannot read /dev/zero")?;
    }
    Ok(())
}

fn write(_: &Ground, operations: u32) -> Result<()> {
    let mut null = File::options().write(true).open("/dev/null").context("cannot open /dev/null")?;
    for _ in 0..operations {
        null.write_all(b"x").context("cannot write /dev/null")?;
    }
    Ok(())
}

fn open_close(ground: &Ground, operations: u32) -> Result<()> {
    for _ in 0..operations {
        drop(File::open(&ground.file).context("cannot open the small file")?);
    }
    Ok(())
}

fn stat(ground: &Ground, operations: u32) -> Result<()> {
    for _ in 0..operations {
        let found = fs::metadata(&ground.file).context("cannot look at the small file")?;
        std::hint::black_box(found.len());
    }
    Ok(())
}

/// Packs the tree into a pipe that is emptied.
fn tar(ground: &Ground, operations: u32) -> Result<()> {
    for _ in 0..operations {
        let mut packing = Command::new("tar")
            .arg("--create")
            .arg("--directory")
            .arg(&ground.tree)
            .arg(".")
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start tar")?;
        let mut pipe = packing.stdout.take().context("no pipe")?;
        std::io::copy(&mut pipe, &mut std::io::sink()).context("cannot empty the pipe")?;
        ensure!(packing.wait().context("cannot wait for tar")?.success(), "tar failed");
    }
    Ok(())
}

/// One byte there and back over loopback.
fn echo(_: &Ground, operations: u32) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
    let address = listener.local_addr().context("no address")?;
    let server = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut peer, _) = listener.accept()?;
        peer.set_nodelay(true)?;
        let mut byte = [0];
        while peer.read(&mut byte)? == 1 {
            peer.write_all(&byte)?;
        }
        Ok(())
    });
    let mut client = TcpStream::connect(address).context("cannot connect")?;
    client.set_nodelay(true).context("cannot turn delay off")?;
    let mut byte = [0];
    for _ in 0..operations {
        client.write_all(b"x").context("cannot send")?;
        client.read_exact(&mut byte).context("no echo")?;
    }
    drop(client);
    server.join().ok().context("the server panicked")?.context("the server failed")
}
