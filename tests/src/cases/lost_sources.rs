//! What the agent may not do on this host lowers a source, with a reason, and never the agent. Whatever else
//! works goes on: the volumes are still probed and judged.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Setup, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::mnt_ns::bind;
use integration_tests::harness::needs::Need;
use nix::errno::Errno;
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(150);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "without_type_information_the_agent_runs_on_probes",
        needs: &[Need::Root, Need::Fuse, Need::Bpf],
        timeout: TIMEOUT,
        run: no_types,
    },
    Case {
        name: "without_permission_for_kernel_programs_the_agent_runs_on_probes",
        needs: &[Need::Root, Need::Fuse, Need::Tool("setpriv")],
        timeout: TIMEOUT,
        run: |bench| without(bench, "-bpf,-perfmon,-sys_admin", &["bpf"]),
    },
    Case {
        name: "the_kernel_programs_can_be_turned_off",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: turned_off,
    },
];

/// The kernel's type information.
const TYPES: &str = "/sys/kernel/btf/vmlinux";

fn no_types(bench: &mut Bench) -> Result<()> {
    let empty = bench.path("empty");
    File::create(&empty).context("cannot create an empty file")?;
    bind(&empty, Path::new(TYPES))?;
    let injector = Injector::start(bench, "volume", "here")?;
    let setup = setup(bench, &injector)?;
    runs_on_probes(bench, &injector, &setup, &["bpf"])
}

fn without(bench: &mut Bench, capabilities: &str, lost: &[&str]) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let mut setup = setup(bench, &injector)?;
    setup.wrapper = vec![
        "setpriv".to_owned(),
        format!("--bounding-set={capabilities}"),
        format!("--inh-caps={capabilities}"),
    ];
    runs_on_probes(bench, &injector, &setup, lost)
}

fn turned_off(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let mut setup = setup(bench, &injector)?;
    setup.body = format!("[kernel]\nfamily = \"off\"\n{}", setup.body);
    runs_on_probes(bench, &injector, &setup, &["bpf"])
}

fn setup(bench: &Bench, injector: &Injector) -> Result<Setup> {
    let volume = Volume::at("v", injector.mountpoint()).sentinel("here");
    Setup::new(bench, &volume.set("interval", "500ms").set("deadline", "2s").to_toml())
}

fn runs_on_probes(bench: &Bench, injector: &Injector, setup: &Setup, lost: &[&str]) -> Result<()> {
    let mut agent = Agent::start_with(bench, setup)?;
    let scrape = agent.wait_state("v", "healthy")?;
    let report: Value =
        serde_json::from_str(&agent.get("/api/v1/doctor")?.body).context("doctor is no JSON")?;
    for source in lost {
        ensure!(scrape.value("mountie_source_up", &[("source", source)])? == 0.0, "{source} is up");
        ensure!(gives_reason(&report, source), "no reason for {source}: {report}");
    }
    ensure!(scrape.value("mountie_source_up", &[("source", "mountinfo")])? == 1.0);
    injector.set(&Mode::fail(Errno::EIO, &["read"]))?;
    agent.wait_degraded("v", "io_error")?;
    injector.set(&Mode::Ok)?;
    agent.wait_state("v", "healthy")?;
    agent.must_run()
}

/// Whether the report has an object that names the source and has a text of some words beside it.
fn gives_reason(report: &Value, source: &str) -> bool {
    match report {
        Value::Array(items) => items.iter().any(|item| gives_reason(item, source)),
        Value::Object(fields) => {
            let texts: Vec<&str> = fields.values().filter_map(Value::as_str).collect();
            let keyed = fields.get(source).is_some_and(|found| found.to_string().contains(' '));
            keyed
                || (texts.contains(&source) && texts.iter().any(|text| text.contains(' ')))
                || fields.values().any(|field| gives_reason(field, source))
        }
        _ => false,
    }
}
