//! Mounts that are in order although they look odd: paths that are not UTF-8, binds, traps.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Setup, Volume, has_reason, toml_string};
use integration_tests::harness::autofs::Trap;
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::mnt_ns::{bind, make_bind_readonly, path_from_bytes, table};
use integration_tests::harness::needs::Need;
use integration_tests::harness::scrape::Scrape;
use nix::errno::Errno;

const TIMEOUT: Duration = Duration::from_secs(150);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "mount_points_that_are_not_utf8_are_watched_under_names_of_their_own",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: not_utf8,
    },
    Case {
        name: "a_read_only_bind_is_healthy_and_nothing_is_changed",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: read_only_bind,
    },
    Case {
        name: "an_automount_trap_is_idle_and_never_triggered",
        needs: &[Need::Root, Need::FileSystem("autofs")],
        timeout: TIMEOUT,
        run: trap,
    },
];

fn discovery(bench: &Bench) -> String {
    let pattern = toml_string(&format!("{}/**", bench.directory().display()));
    format!(
        "[defaults]\ninterval = \"500ms\"\ndeadline = \"2s\"\n\
         [discovery]\nenabled = true\ninclude = [{{ mountpoint = {pattern}, fstype = \"fuse*\" }}]\n"
    )
}

/// The names of the volumes whose mount point ends with a text.
fn volumes_ending_with(scrape: &Scrape, end: &str) -> Vec<String> {
    let states = scrape.matching("mountie_volume_state", &[("state", "healthy")]);
    let mut names: Vec<String> = states
        .filter_map(|(labels, _)| labels.get("volume"))
        .filter(|name| name.ends_with(end))
        .cloned()
        .collect();
    names.sort();
    names
}

fn not_utf8(bench: &mut Bench) -> Result<()> {
    let name = |last: u8| path_from_bytes("".as_ref(), &[b'c', b'a', b'f', last]);
    let first = Injector::start(bench, name(0xe8), "here")?;
    let second = Injector::start(bench, name(0xe9), "here")?;
    let agent = Agent::start(bench, &discovery(bench))?;
    let scrape = agent.wait_scrape("both volumes are there", |scrape| {
        Ok(volumes_ending_with(scrape, "caf\\xe8").len() == 1
            && volumes_ending_with(scrape, "caf\\xe9").len() == 1)
    })?;
    let names = [volumes_ending_with(&scrape, "caf\\xe8"), volumes_ending_with(&scrape, "caf\\xe9")].concat();
    let [sick, well] = names.as_slice() else { anyhow::bail!("{names:?}") };
    agent.wait_state(sick, "healthy")?;
    agent.wait_state(well, "healthy")?;
    first.set(&Mode::fail_all(Errno::EIO))?;
    agent.wait_degraded(sick, "io_error")?;
    let scrape = agent.wait_state(well, "healthy")?;
    let info = scrape.matching("mountie_volume_info", &[("volume", sick.as_str())]).next();
    ensure!(
        info.context("no volume_info")?.0.get("mountpoint").is_some_and(|place| place.ends_with("caf\\xe8"))
    );
    let described = agent.command(&["describe", sick])?;
    let text = String::from_utf8_lossy(&described.stdout).into_owned();
    ensure!(text.contains("caf\\xe8") && text.contains("EIO"), "{text}");
    first.set(&Mode::Ok)?;
    agent.wait_state(sick, "healthy")?;
    ensure!(second.answers()?.total() > 0);
    Ok(())
}

fn read_only_bind(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let copy = bench.make_directory("copy")?;
    bind(injector.mountpoint(), &copy)?;
    make_bind_readonly(&copy)?;
    let before = table()?;
    let volume = Volume::at("v", &copy).sentinel("here").line("options = [\"bind\", \"ro\"]");
    let agent = Agent::start(bench, &format!("{}{}", discovery(bench), volume.to_toml()))?;
    agent.wait_state("v", "healthy")?;
    let scrape = agent.wait_probes("v", 3.0)?;
    let sick = scrape.sum("mountie_volume_state", &[("state", "degraded")]);
    ensure!(sick == 0.0, "{sick} volumes are degraded");
    // The superblock of the others is as it was.
    ensure!(table()?.iter().all(|line| before.contains(line) || line.fstype == "tmpfs"), "the table changed");
    Ok(())
}

fn trap(bench: &mut Bench) -> Result<()> {
    let mountpoint = bench.make_directory("trap")?;
    let mut trap = Trap::set(&mountpoint)?;
    let volume = Volume::at("v", &mountpoint).set("interval", "100ms").set("deadline", "2s");
    // A second volume gives the rhythm: a trap itself is not probed.
    let injector = Injector::start(bench, "volume", "here")?;
    let clock = Volume::at("clock", injector.mountpoint()).set("interval", "100ms").set("deadline", "2s");
    let body = format!("[discovery]\nenabled = true\n{}{}", volume.to_toml(), clock.to_toml());
    let agent = Agent::start_with(bench, &Setup::in_own_group(bench, &body)?)?;
    agent.wait_scrape("it is idle", |scrape| has_reason(scrape, "v", "idle"))?;
    let scrape = agent.wait_probes("clock", 100.0)?;
    ensure!(!trap.was_triggered(), "the agent stepped on the trap");
    let sick = scrape.value("mountie_volume_state", &[("volume", "v"), ("state", "degraded")])?;
    ensure!(sick == 0.0, "an idle automount is degraded");
    Ok(())
}
