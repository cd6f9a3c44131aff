//! What the agent may not do on this host lowers a source, with a reason, and never the agent. Whatever else
//! works goes on: the volumes are still probed and judged.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Setup, Volume, run_binary, toml_string};
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
        name: "type_information_that_is_not_this_kernels_is_named_and_costs_the_kernel_programs_alone",
        needs: &[Need::Root, Need::Fuse, Need::Bpf],
        timeout: TIMEOUT,
        run: odd_types,
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

/// What may be wrong with the file, and a word of what is said about it.
fn odd_types(bench: &mut Bench) -> Result<()> {
    let real = fs::read(TYPES).context("cannot read the kernel's types")?;
    let mut unknown_kind = real.clone();
    set_word(&mut unknown_kind, word(&real, 4)? + 4, 30 << 24)?;
    let files: [(&str, Vec<u8>, &str); 5] = [
        ("empty", Vec::new(), "the file is empty"),
        ("garbage", vec![0x5a; 1 << 20], "does not begin with the mark"),
        ("half", real.get(..real.len() / 2).unwrap_or_default().to_vec(), "the file is cut"),
        ("newer", unknown_kind, "unknown kind 30"),
        ("other", of_another_kernel(&real)?, "not that of the running kernel"),
    ];
    for (name, bytes, word) in files {
        let types = bench.write(name, &bytes)?;
        let mut setup = Setup::new(bench, "")?;
        setup.body = format!("[kernel]\nbtf = {}\n{}", toml_string(&types.display().to_string()), setup.body);
        let config = bench.write(format!("{name}.toml"), setup.to_toml().as_bytes())?;
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).context("cannot protect the file")?;
        let said = run_binary(&["doctor", "--config", &config.display().to_string()])?;
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let line = text.lines().find(|line| line.starts_with("bpf ")).unwrap_or_default();
        ensure!(line.contains(" off ") && line.contains(word), "{name}: {text}");
        ensure!(
            matches!(said.status.code(), Some(0 | 77)),
            "{name}: doctor ends with {}: {text}",
            said.status
        );
        fs::remove_file(&types).context("cannot remove the copy")?;
    }
    // And an agent with the last kind of fault, the one that is hardest to see, runs on.
    let types = bench.write("types", &of_another_kernel(&real)?)?;
    let injector = Injector::start(bench, "volume", "here")?;
    let mut setup = setup(bench, &injector)?;
    setup.body = format!("[kernel]\nbtf = {}\n{}", toml_string(&types.display().to_string()), setup.body);
    runs_on_probes(bench, &injector, &setup, &["bpf"])
}

/// The same types, but every member with the name `tgid` lies elsewhere: whatever has that name and, two words on,
/// what looks like an offset far into a structure.
fn of_another_kernel(real: &[u8]) -> Result<Vec<u8>> {
    let (header, types, types_len) = (word(real, 4)?, word(real, 8)?, word(real, 12)?);
    let strings = header + word(real, 16)?;
    let names = real.get(strings..).context("the file is cut")?;
    let at = names.windows(6).position(|text| text == b"\0tgid\0").context("no name tgid")? + 1;
    let mut changed = real.to_vec();
    let start = header + types;
    // A member is three words: name, type, offset in bits.
    for place in (start..start + types_len).step_by(4) {
        if word(real, place)? == at
            && let Ok(offset) = word(real, place + 8)
            && (1 << 12..1 << 20).contains(&offset)
            && offset.is_multiple_of(32)
        {
            set_word(&mut changed, place + 8, offset + 64)?;
        }
    }
    Ok(changed)
}

fn word(bytes: &[u8], at: usize) -> Result<usize> {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).context("the file is cut")?;
    usize::try_from(u32::from_ne_bytes(*field)).context("a word too large")
}

fn set_word(bytes: &mut [u8], at: usize, value: usize) -> Result<()> {
    let value = u32::try_from(value).context("a word too large")?;
    let field =
        bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()).context("the file is cut")?;
    *field = value.to_ne_bytes();
    Ok(())
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
