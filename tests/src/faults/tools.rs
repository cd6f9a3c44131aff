//! Programs of the machine that set a fault up. Each is ended when it takes too long: it may have met the fault.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::mnt_ns::{detach, mounts_at};
use integration_tests::harness::process::{Background, all, arguments, run_within, send};
use integration_tests::harness::wait::wait_for;
use nix::sys::signal::Signal;

/// Emulated machines are slow; a program that takes longer hangs.
pub(crate) const TOOL_TIME: Duration = Duration::from_secs(60);

/// Runs a program to its end and returns what it printed. Not for one that leaves a daemon behind.
pub(crate) fn tool(program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    // Without udev device-mapper makes its nodes itself.
    command.args(arguments).env("DM_DISABLE_UDEV", "1");
    let output = run_within(&mut command, TOOL_TIME)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}: {said}", arguments.join(" "), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Starts a server in the foreground, as a child that ends with its owner. What it says is kept as a log.
pub(crate) fn daemon(directory: &Path, program: &str, arguments: &[&str]) -> Result<Background> {
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(directory.join(format!("{program}.log")))
        .context("cannot open a log")?;
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("cannot duplicate the log")?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    Ok(Background(child))
}

/// Signals every process of a server in the case's own process namespace, the children that serve its clients
/// too.
pub(crate) fn signal_all(program: &str, signal: Signal) -> Result<Vec<u32>> {
    let is_one = |id: &u32| {
        let words = arguments(*id);
        let name =
            words.first().and_then(|word| word.rsplit(|byte| *byte == b'/').next()).unwrap_or_default();
        // A server may write its role behind its name.
        name.split(|byte| *byte == b':').next() == Some(program.as_bytes())
    };
    let servers: Vec<u32> = all().into_iter().filter(is_one).collect();
    ensure!(!servers.is_empty(), "no {program} runs");
    for id in &servers {
        // One that has just ended is no failure.
        let _ = send(*id, signal);
    }
    Ok(servers)
}

/// Waits until a server listens. It is not connected to: some servers serve one client and end.
///
/// kernel: `get_tcp4_sock`, net/ipv4/tcp_ipv4.c: local address, remote address, state; 0A is `TCP_LISTEN`.
pub(crate) fn wait_listening(port: u16) -> Result<()> {
    let is_it = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1).is_some_and(|local| local.ends_with(&format!(":{port:04X}")))
            && words.get(3) == Some(&"0A")
    };
    wait_for(&format!("a server listens at port {port}"), TOOL_TIME, || {
        ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
            let text = fs::read_to_string(table).unwrap_or_default();
            text.lines().any(is_it)
        })
    })
}

/// Mounts with the program that people use.
pub(crate) fn mount(fstype: &str, source: &str, target: &Path, options: &str) -> Result<()> {
    let options = if options.is_empty() { "rw" } else { options };
    tool("mount", &["-t", fstype, "-o", options, source, text(target)?]).map(drop)
}

/// Takes away all that is mounted at a place, used or not.
pub(crate) fn detach_all(place: &Path) -> Result<()> {
    for _ in mounts_at(place)? {
        detach(place)?;
    }
    Ok(())
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("not text: {}", path.display()))
}

/// Writes a switch of the kernel.
pub(crate) fn switch(path: impl Into<PathBuf>, value: &str) -> Result<()> {
    let path = path.into();
    fs::write(&path, value).with_context(|| format!("cannot write {}", path.display()))
}
