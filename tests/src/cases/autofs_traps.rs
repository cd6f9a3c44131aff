//! Automounts: the trap stays, what is mounted on it comes and goes as designed, and the agent does neither.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use integration_tests::harness::agent::{Agent, Setup, Volume, is_in_state, toml_string};
use integration_tests::harness::autofs::Trap;
use integration_tests::harness::bench::{Bench, mount_tmpfs};
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::mnt_ns::{mounts_at, move_mount, unmount_when_free};
use integration_tests::harness::needs::Need;
use integration_tests::harness::words;
use nix::errno::Errno;

const TIMEOUT: Duration = Duration::from_secs(150);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "what_is_mounted_on_a_trap_is_watched_and_its_expiry_is_no_fault",
        needs: &[Need::Root, Need::FileSystem("autofs")],
        timeout: TIMEOUT,
        run: expiry,
    },
    Case {
        name: "an_automounted_volume_that_fails_is_degraded",
        needs: &[Need::Root, Need::Fuse, Need::FileSystem("autofs")],
        timeout: TIMEOUT,
        run: fault,
    },
];

fn watched(name: &str, place: &Path) -> String {
    Volume::at(name, place).set("interval", "100ms").set("deadline", "2s").to_toml()
}

/// One volume is named, one is found, and a third gives the rhythm.
fn expiry(bench: &mut Bench) -> Result<()> {
    let (named, found) = (bench.make_directory("named")?, bench.make_directory("found")?);
    let clock = bench.make_directory("clock")?;
    mount_tmpfs(&clock, "size=64k")?;
    let mut traps = [Trap::set(&named)?, Trap::set(&found)?];
    let pattern = toml_string(&found.display().to_string());
    let discovery = format!(
        "[defaults]\ninterval = \"100ms\"\n[discovery]\nenabled = true\ninclude = [{{ mountpoint = {pattern} }}]\n"
    );
    let body = [discovery, watched("named", &named), watched("clock", &clock)].concat();
    let agent = Agent::start_with(bench, &Setup::in_own_group(bench, &body)?)?;
    let name = found.display().to_string();
    for round in 0..3 {
        agent.wait_scrape("it is idle", |scrape| words::idle(scrape, "named"))?;
        for place in [&named, &found] {
            mount_tmpfs(place, "size=64k")?;
        }
        agent.wait_state("named", "healthy")?;
        agent.wait_state(&name, "healthy")?;
        agent.wait_probes("named", 3.0)?;
        // It has not been used for a while, and the automounter takes it away.
        for place in [&named, &found] {
            unmount_when_free(place)?;
        }
        agent.wait_scrape("it is idle again", |scrape| words::idle(scrape, "named"))?;
        let scrape = agent.wait_probes("clock", 10.0)?;
        ensure!(
            !words::volumes(&scrape).contains(&name) || !words::is_sick(&scrape, &name)?,
            "round {round}"
        );
        for trap in &mut traps {
            ensure!(!trap.was_triggered(), "round {round}: the agent stepped on a trap");
        }
    }
    words::was_never_sick(&agent, "named")?;
    words::was_never_sick(&agent, &name)?;
    ensure!(mounts_at(&named)?.len() == 1, "the trap is gone");
    Ok(())
}

fn fault(bench: &mut Bench) -> Result<()> {
    let place = bench.make_directory("volume")?;
    let mut trap = Trap::set(&place)?;
    let injector = Injector::start(bench, "aside", "here")?;
    move_mount(injector.mountpoint(), &place)?;
    let agent = Agent::start_with(bench, &Setup::in_own_group(bench, &watched("v", &place))?)?;
    agent.wait_state("v", "healthy")?;
    injector.set(&Mode::fail_all(Errno::ESTALE))?;
    agent.wait_degraded("v", "stale")?;
    // Expired while it was sick: nothing is there that could be.
    unmount_when_free(&place)?;
    let scrape = agent.wait_scrape("it is idle", |scrape| words::idle(scrape, "v"))?;
    ensure!(!is_in_state(&scrape, "v", "degraded")?);
    ensure!(!trap.was_triggered(), "the agent stepped on the trap");
    words::untouched(&scrape)
}
