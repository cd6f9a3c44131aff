//! Programs that are stuck on a volume, or refused by it, are no obstacle and no evidence.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, Volume, errors_of_calls};
use integration_tests::harness::bench::{Bench, mount_tmpfs};
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::Background;
use integration_tests::harness::scrape::Scrape;
use integration_tests::harness::wait::wait_for_some;
use integration_tests::harness::words;

use crate::io::TOUCH;

const TIMEOUT: Duration = Duration::from_secs(150);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "programs_that_wait_in_page_faults_hold_up_nobody_who_looks_for_them",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: page_faults,
    },
    Case {
        name: "programs_that_are_refused_say_nothing_about_the_volume",
        needs: &[Need::Root, Need::Bpf, Need::Tool("setpriv")],
        timeout: TIMEOUT,
        run: refused,
    },
];

/// Reading what procfs says of the memory of such a program may block; so nobody may.
fn page_faults(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let well = Injector::start(bench, "well", "here")?;
    let fast = |name: &str, injector: &Injector| {
        Volume::at(name, injector.mountpoint()).set("interval", "300ms").set("deadline", "2s").to_toml()
    };
    let mut setup = Setup::new(bench, &(fast("v", &injector) + &fast("well", &well)))?;
    // The census goes through procfs.
    setup.body = format!("[kernel]\nfamily = \"off\"\n{}", setup.body);
    let files: Vec<PathBuf> =
        (0..4).map(|number| injector.mountpoint().join(format!("cached{number}"))).collect();
    for file in &files {
        fs::write(file, [b'x'; 4096]).context("cannot make a file")?;
    }
    let mut agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("v", "healthy")?;
    injector.set(&Mode::Hang(vec!["read".to_owned()]))?;
    let this_program = std::env::current_exe().context("cannot find this program")?;
    let stuck: Vec<Background> = files
        .iter()
        .map(|file| {
            let mut command = Command::new(&this_program);
            command.args([TOUCH, "load"]).arg(file).arg("0").stdin(Stdio::null());
            command.spawn().map(Background).context("cannot start a program")
        })
        .collect::<Result<_>>()?;
    wait_for_some("all of them wait for the daemon", SOON, || {
        let held = injector.held()?.get("read").copied().unwrap_or(0);
        Ok((held >= stuck.len() as u64).then_some(()))
    })?;
    let scrape = agent.wait_probes("well", 10.0)?;
    ensure!(words::source_is_up(&scrape, "census")?, "{}", scrape.summary());
    for page in ["/healthz", "/api/v1/volumes/v", "/api/v1/doctor"] {
        ensure!(agent.get(page)?.status == 200, "{page}");
    }
    ensure!(agent.command(&["describe", "v"])?.status.code().is_some(), "describe was ended");
    words::was_never_sick(&agent, "well")?;
    // And when everything hangs, the volume is found all the same.
    injector.set(&Mode::hang_all())?;
    agent.wait_degraded("v", "hung")?;
    injector.set(&Mode::Ok)?;
    for mut one in stuck {
        one.ended_within(SOON)?;
    }
    agent.wait_state("v", "healthy")?;
    agent.must_run()
}

/// How often a program is refused.
const REFUSALS: f64 = 200.0;

fn refused(bench: &mut Bench) -> Result<()> {
    let place = bench.make_directory("volume")?;
    mount_tmpfs(&place, "size=1m,mode=0755")?;
    let private = place.join("private");
    fs::write(&private, "for root")?;
    fs::set_permissions(&private, Permissions::from_mode(0o600))?;
    fs::write(place.join(".mountie"), "here")?;
    let volume = Volume::at("v", &place).sentinel("here").set("interval", "300ms").set("deadline", "2s");
    let agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;
    let script = "i=0; while [ $i -lt 200 ]; do cat <\"$1\"; i=$((i + 1)); done";
    let mut command = Command::new("setpriv");
    command.args(["--reuid=1000", "--regid=1000", "--clear-groups", "sh", "-c", script, "sh"]).arg(&private);
    let status =
        command.stdin(Stdio::null()).stderr(Stdio::null()).status().context("cannot start setpriv")?;
    ensure!(status.code().is_some(), "{status}");
    let counted = |scrape: &_| errors_of_calls(scrape, "v", "EACCES", "open");
    // Where the kernel skipped a run of a program, one may be missing, and the agent says so.
    let skipped = |scrape: &Scrape| scrape.sum("mountie_ebpf_runs_skipped_total", &[]);
    let scrape = agent.wait_scrape("every refusal is counted", |scrape| {
        Ok(counted(scrape) > 0.0 && counted(scrape) + skipped(scrape) >= REFUSALS)
    })?;
    ensure!(counted(&scrape) <= REFUSALS, "{} counted", counted(&scrape));
    agent.wait_probes("v", 4.0)?;
    let states = words::history(&agent, "v")?;
    ensure!(states.iter().all(|(state, _)| state == "healthy"), "{states:?}");
    words::untouched(&agent.scrape()?)
}
