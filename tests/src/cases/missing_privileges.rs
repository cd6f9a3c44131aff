//! Each privilege that the agent lacks costs what needs it and nothing else: `doctor` names it, the source that is
//! off gives it as its reason, and the volumes are probed and judged all the same.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::SOON;
use integration_tests::harness::agent::{Agent, Setup, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::{Case, Skip};
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::run_within;
use integration_tests::harness::without_bpf;
use nix::errno::Errno;
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(150);
const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Bpf, Need::Tool("setpriv")];

/// What one privilege costs.
#[derive(Debug)]
struct Loss {
    /// Its name in `doctor`.
    privilege: &'static str,
    /// What `setpriv` takes away: the privilege, and what would stand in for it.
    taken: &'static str,
    /// Sources that must be off, with a word of the reason each gives.
    off: &'static [(&'static str, &'static str)],
    /// Sources that must run.
    on: &'static [&'static str],
}

const BPF: Loss = Loss {
    privilege: "CAP_BPF",
    taken: "-bpf,-sys_admin",
    off: &[("bpf", "CAP_BPF is missing"), ("fanotify_fs", "CAP_SYS_ADMIN")],
    on: &["mountinfo"],
};
const PERFMON: Loss = Loss {
    privilege: "CAP_PERFMON",
    taken: "-perfmon,-sys_admin",
    off: &[("bpf", "CAP_PERFMON is missing"), ("fanotify_fs", "CAP_SYS_ADMIN")],
    on: &["mountinfo"],
};
const SYS_ADMIN: Loss = Loss {
    privilege: "CAP_SYS_ADMIN",
    taken: "-sys_admin",
    off: &[("fanotify_fs", "CAP_SYS_ADMIN"), ("fanotify_mnt", "CAP_SYS_ADMIN")],
    on: &["bpf", "mountinfo"],
};
const SYS_PTRACE: Loss = Loss {
    privilege: "CAP_SYS_PTRACE",
    taken: "-sys_ptrace",
    off: &[],
    on: &["bpf", "fanotify_fs", "mountinfo"],
};
const DAC_READ_SEARCH: Loss = Loss {
    privilege: "CAP_DAC_READ_SEARCH",
    taken: "-dac_read_search,-dac_override",
    off: &[],
    on: &["bpf", "fanotify_fs", "mountinfo"],
};
/// A filter that answers EPERM.
const FORBIDDEN: Loss = Loss {
    privilege: "",
    taken: "",
    off: &[("bpf", "refused by a seccomp filter")],
    on: &["fanotify_fs", "mountinfo"],
};
/// A filter that answers ENOSYS.
const HIDDEN: Loss =
    Loss { off: &[("bpf", "a seccomp filter refuses the bpf system call: allow it")], ..FORBIDDEN };

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "without_cap_bpf_the_agent_runs_and_says_so",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: |bench| without(bench, &BPF),
    },
    Case {
        name: "without_cap_perfmon_the_agent_runs_and_says_so",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: |bench| without(bench, &PERFMON),
    },
    Case {
        name: "without_cap_sys_admin_kernel_programs_run_on_cap_bpf_and_cap_perfmon",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: |bench| without(bench, &SYS_ADMIN),
    },
    Case {
        name: "without_cap_sys_ptrace_the_agent_runs_and_says_so",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: |bench| without(bench, &SYS_PTRACE),
    },
    Case {
        name: "without_cap_dac_read_search_the_agent_runs_and_says_so",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: |bench| without(bench, &DAC_READ_SEARCH),
    },
    Case {
        name: "without_cap_sys_resource_nothing_is_lost_where_memory_is_not_limited_by_it",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: sys_resource,
    },
    Case {
        name: "in_a_user_namespace_privileges_do_not_count_and_doctor_says_so",
        needs: &[Need::Root, Need::Fuse, Need::Bpf, Need::Tool("unshare")],
        timeout: TIMEOUT,
        run: user_namespace,
    },
    Case {
        name: "where_a_filter_forbids_the_bpf_call_the_agent_runs_and_says_so",
        needs: &[Need::Root, Need::Fuse, Need::Bpf],
        timeout: TIMEOUT,
        run: |bench| filtered(bench, Errno::EPERM, &FORBIDDEN),
    },
    Case {
        name: "where_a_filter_hides_the_bpf_call_the_agent_runs_and_says_so",
        needs: &[Need::Root, Need::Fuse, Need::Bpf],
        timeout: TIMEOUT,
        run: |bench| filtered(bench, Errno::ENOSYS, &HIDDEN),
    },
];

/// The exit code of `doctor` when a privilege is missed.
const MISSED: i32 = 77;

fn without(bench: &mut Bench, loss: &Loss) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let mut setup = setup(bench, &injector)?;
    setup.wrapper = setpriv(loss.taken);
    let mut agent = runs(bench, &injector, &setup, loss)?;
    let said = agent.command(&["doctor"])?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    ensure!(said.status.code() == Some(MISSED), "doctor ends with {}: {text}", said.status);
    ensure!(held(&text, loss.privilege) == Some("no"), "{} is not missed: {text}", loss.privilege);
    ensure!(text.contains("AmbientCapabilities= with") && text.contains(loss.privilege), "no remedy: {text}");
    let log = agent.log()?;
    ensure!(log.contains(loss.privilege), "the log does not name {}: {log}", loss.privilege);
    agent.must_run()
}

fn sys_resource(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let mut setup = setup(bench, &injector)?;
    setup.wrapper = setpriv("-sys_resource");
    let loss =
        Loss { privilege: "CAP_SYS_RESOURCE", taken: "", off: &[], on: &["bpf", "fanotify_fs", "mountinfo"] };
    let agent = runs(bench, &injector, &setup, &loss)?;
    let said = agent.command(&["doctor"])?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    // Kernels before 5.11 want it; there the limit that is left decides.
    let told = held(&text, loss.privilege).context("doctor has no such line")?;
    ensure!(told == "no", "{told}: {text}");
    let needed =
        !text.lines().any(|line| line.starts_with(loss.privilege) && line.contains("not needed here"));
    ensure!(
        said.status.code() == Some(if needed { MISSED } else { 0 }),
        "doctor ends with {}: {text}",
        said.status
    );
    Ok(())
}

fn user_namespace(bench: &mut Bench) -> Result<()> {
    let wrapper = ["unshare", "--user", "--map-root-user"].map(str::to_owned).to_vec();
    let tried =
        run_within(std::process::Command::new("unshare").args(["--user", "--map-root-user", "true"]), SOON)?;
    if !tried.status.success() {
        return Err(Skip("user namespaces are not permitted".to_owned()).into());
    }
    let injector = Injector::start(bench, "volume", "here")?;
    let mut setup = setup(bench, &injector)?;
    setup.wrapper = wrapper;
    let loss = Loss { privilege: "", taken: "", off: &[("bpf", "user namespace")], on: &["mountinfo"] };
    let agent = runs(bench, &injector, &setup, &loss)?;
    let text = String::from_utf8_lossy(&agent.command(&["doctor"])?.stdout).into_owned();
    ensure!(text.contains("this process is in a user namespace"), "{text}");
    Ok(())
}

/// Some runtimes of containers refuse the system call, others answer as if the kernel had none.
fn filtered(bench: &mut Bench, errno: Errno, loss: &Loss) -> Result<()> {
    let (_, reason) = loss.off.first().context("nothing is off")?;
    let injector = Injector::start(bench, "volume", "here")?;
    let mut setup = setup(bench, &injector)?;
    setup.wrapper = without_bpf::wrapper(errno)?;
    let mut agent = runs(bench, &injector, &setup, loss)?;
    let said = agent.command(&["doctor"])?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with("bpf ")).unwrap_or_default();
    ensure!(line.contains(" off ") && line.contains(*reason), "{text}");
    ensure!(text.contains("a seccomp filter may refuse"), "the filter is not told: {text}");
    // No privilege is missed, and there are other sources.
    ensure!(said.status.code() == Some(0), "doctor ends with {}: {text}", said.status);
    let log = agent.log()?;
    ensure!(log.contains(*reason), "the log does not say why: {log}");
    agent.must_run()
}

fn setpriv(taken: &str) -> Vec<String> {
    vec!["setpriv".to_owned(), format!("--bounding-set={taken}"), format!("--inh-caps={taken}")]
}

fn setup(bench: &Bench, injector: &Injector) -> Result<Setup> {
    let volume = Volume::at("v", injector.mountpoint()).sentinel("here");
    Setup::new(bench, &volume.set("interval", "500ms").set("deadline", "2s").to_toml())
}

/// The second word of a line of the table of privileges.
fn held<'a>(text: &'a str, privilege: &str) -> Option<&'a str> {
    text.lines().find(|line| line.starts_with(privilege))?.split_whitespace().nth(1)
}

/// Starts the agent and shows that it judges, and that exactly the named sources are off, with their reasons.
fn runs(bench: &Bench, injector: &Injector, setup: &Setup, loss: &Loss) -> Result<Agent> {
    let agent = Agent::start_with(bench, setup)?;
    agent.wait_state("v", "healthy")?;
    let up = |scrape: &_, source: &str| -> Result<f64> {
        integration_tests::harness::scrape::Scrape::value(scrape, "mountie_source_up", &[("source", source)])
    };
    // The kernel programs start beside everything else.
    let scrape = agent.wait_scrape("the sources that can run", |scrape| {
        loss.on.iter().try_fold(true, |all, source| Ok(all && up(scrape, source)? == 1.0))
    })?;
    for (source, _) in loss.off {
        ensure!(up(&scrape, source)? == 0.0, "{source} is up");
    }
    let report: Value =
        serde_json::from_str(&agent.get("/api/v1/doctor")?.body).context("doctor is no JSON")?;
    for (source, word) in loss.off {
        let reason = reason(&report, source).with_context(|| format!("no reason for {source}: {report}"))?;
        ensure!(reason.contains(word), "{source} is off because: {reason}");
    }
    injector.set(&Mode::fail(Errno::EIO, &["read"]))?;
    agent.wait_degraded("v", "io_error")?;
    injector.set(&Mode::Ok)?;
    agent.wait_state("v", "healthy")?;
    Ok(agent)
}

/// Why a source is not running in full, out of the report.
fn reason<'a>(report: &'a Value, source: &str) -> Option<&'a str> {
    let sources = report.get("sources")?.as_array()?;
    let row = sources.iter().find(|row| row.get("name").and_then(Value::as_str) == Some(source))?;
    row.get("reason")?.as_str()
}
