//! What a kernel may refuse to the kernel programs, made so for real: what the agent says of it, and that it watches on.
//!
//! Only for a machine that belongs to the tests: a kernel that was locked down stays so until it is booted again.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Setup, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::{Case, Skip};
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::matrix::{self, Row};
use integration_tests::harness::needs::Need;
use integration_tests::harness::wait::wait_for_some;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(300);
/// Loading the kernel programs is slow in an emulated machine.
const PROGRAMS: Duration = Duration::from_secs(180);
const NEEDS: &[Need] =
    &[Need::Root, Need::Module("fuse"), Need::Fuse, Need::Bpf, Need::Tool("prlimit"), Need::Tool("setpriv")];

/// One way in which programs are refused.
struct Refusal {
    /// Its row in the table of kernels.
    row: &'static str,
    /// What the agent is started by.
    wrapper: &'static [&'static str],
    /// The mode in which the kernel is locked down before.
    lockdown: Option<&'static str>,
    /// What the reason must say where the programs are off.
    why: &'static str,
}

const LOCKED_MEMORY: Refusal = Refusal {
    row: "64 KiB of locked memory, without CAP_SYS_RESOURCE",
    wrapper: &[
        "prlimit",
        "--memlock=65536:65536",
        "setpriv",
        "--bounding-set=-sys_resource",
        "--inh-caps=-sys_resource",
    ],
    lockdown: None,
    why: "before 5.11 raise RLIMIT_MEMLOCK or grant CAP_SYS_RESOURCE",
};
const INTEGRITY: Refusal = Refusal {
    row: "lockdown: integrity",
    wrapper: &[],
    lockdown: Some("integrity"),
    why: "lockdown: integrity",
};
const CONFIDENTIALITY: Refusal = Refusal {
    row: "lockdown: confidentiality",
    lockdown: Some("confidentiality"),
    why: "programs may not read kernel memory (lockdown: confidentiality)",
    ..INTEGRITY
};

/// In this order: no mode of lockdown can be taken back.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "refusals::locked_memory",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: |b| watches(b, &LOCKED_MEMORY),
    },
    Case { name: "refusals::integrity", needs: NEEDS, timeout: TIMEOUT, run: |b| watches(b, &INTEGRITY) },
    Case {
        name: "refusals::confidentiality",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: |b| watches(b, &CONFIDENTIALITY),
    },
];

/// The row that one of the cases adds.
pub(crate) fn rows_of(case: &Case) -> Vec<String> {
    let row = match case.name {
        "refusals::locked_memory" => LOCKED_MEMORY.row,
        "refusals::integrity" => INTEGRITY.row,
        _ => CONFIDENTIALITY.row,
    };
    vec![row.to_owned()]
}

fn watches(bench: &mut Bench, refusal: &Refusal) -> Result<()> {
    refusal.lockdown.map_or(Ok(()), lock)?;
    let injector = Injector::start(bench, "volume", "here")?;
    let volume = Volume::at("v", injector.mountpoint()).sentinel("here");
    let mut setup = Setup::new(bench, &volume.set("interval", "500ms").set("deadline", "2s").to_toml())?;
    setup.wrapper = refusal.wrapper.iter().map(|&word| word.to_owned()).collect();
    let mut agent = Agent::start_with(bench, &setup)?;
    let reason = wait_for_some("the kernel programs are in place or refused", PROGRAMS, || programs(&agent))?;
    let result =
        reason.as_ref().map_or_else(|| "programs run".to_owned(), |why| format!("no programs: {why}"));
    matrix::add(&Row { table: "refusals", row: refusal.row, result: &result, detail: "" })?;
    if let Some(reason) = &reason {
        ensure!(reason.contains(refusal.why), "the programs are off because: {reason}");
        ensure!(agent.log()?.contains(refusal.why), "the log does not say why: {}", agent.log()?);
    }
    if let Some(mode) = refusal.lockdown {
        let said = String::from_utf8_lossy(&agent.command(&["doctor"])?.stdout).into_owned();
        ensure!(said.contains(&format!("the kernel is locked down ({mode})")), "{said}");
    }
    injector.set(&Mode::fail(Errno::EIO, &["read"]))?;
    agent.wait_degraded("v", "io_error")?;
    injector.set(&Mode::Ok)?;
    agent.wait_state("v", "healthy")?;
    agent.must_run()
}

/// Why the kernel programs are off, or that they run (`None`), as soon as the agent has tried them.
fn programs(agent: &Agent) -> Result<Option<Option<String>>> {
    let report: Value =
        serde_json::from_slice(agent.get("/api/v1/doctor")?.body.as_ref()).context("no JSON")?;
    let tried = report.get("programs").and_then(Value::as_array).is_some_and(|programs| !programs.is_empty());
    let sources = report.get("sources").and_then(Value::as_array).context("no sources")?;
    let word =
        |source: &Value, key: &str| source.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let bpf = sources.iter().find(|source| word(source, "name") == "bpf").context("no source bpf")?;
    let reason = (word(bpf, "state") == "off").then(|| word(bpf, "reason"));
    Ok((tried || reason.as_ref().is_some_and(|reason| !reason.is_empty())).then_some(reason))
}

/// Locks the kernel down, until the next boot.
fn lock(mode: &str) -> Result<()> {
    let security = Path::new("/sys/kernel/security");
    let file = security.join("lockdown");
    if file.symlink_metadata().is_err() {
        let none = None::<&str>;
        mount(none, security, Some("securityfs"), MsFlags::empty(), none)
            .context("cannot mount securityfs")?;
    }
    if file.symlink_metadata().is_err() {
        return Err(Skip("this kernel cannot be locked down".to_owned()).into());
    }
    std::fs::write(&file, mode).with_context(|| format!("cannot lock the kernel down ({mode})"))
}
