//! Automounts that are watched expire as if nobody watched them, and are never mounted by the agent.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, Volume, is_in_state, toml_string};
use integration_tests::harness::autofs::Trap;
use integration_tests::harness::bench::{Bench, mount_tmpfs};
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::mnt_ns::{mounts_at, move_mount, unmount, unmount_when_free};
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::Background;
use integration_tests::harness::wait::{now, wait_for_some};
use integration_tests::harness::words;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

use crate::io::expiry;

const TIMEOUT: Duration = Duration::from_secs(240);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_watched_automount_expires_and_is_idle_without_a_word",
        needs: &[Need::Root, Need::Fuse, Need::FileSystem("autofs")],
        timeout: TIMEOUT,
        run: expires,
    },
    Case {
        name: "a_volume_in_an_indirect_map_is_idle_and_its_directory_is_never_listed",
        needs: &[Need::Root, Need::Fuse, Need::FileSystem("autofs")],
        timeout: TIMEOUT,
        run: indirect,
    },
    Case {
        name: "what_is_mounted_on_a_trap_is_watched_and_its_expiry_is_no_fault",
        needs: &[Need::Root, Need::FileSystem("autofs")],
        timeout: TIMEOUT,
        run: named_and_found,
    },
    Case {
        name: "an_automounted_volume_that_fails_is_degraded",
        needs: &[Need::Root, Need::Fuse, Need::FileSystem("autofs")],
        timeout: TIMEOUT,
        run: fault,
    },
];

/// After how long without use the automount expires.
const EXPIRES_AFTER: Duration = Duration::from_secs(2);

/// The daemon's side of one automount. It belongs to the case's process group, which passes the trap freely.
struct Daemon<'a> {
    trap: Trap,
    /// The one descriptor that a daemon keeps: with a second one the kernel takes the trap to be in use.
    root: Arc<File>,
    mountpoint: &'a Path,
}

impl<'a> Daemon<'a> {
    fn start(mountpoint: &'a Path) -> Result<Self> {
        let trap = Trap::set(mountpoint)?;
        let root = Arc::new(File::open(mountpoint).context("cannot open the trap")?);
        expiry::set_timeout(&root, EXPIRES_AFTER).context("cannot set the time-out")?;
        Ok(Self { trap, root, mountpoint })
    }

    fn mount(&self) -> Result<()> {
        let flags = MsFlags::empty();
        mount(Some("auto"), self.mountpoint, Some("tmpfs"), flags, None::<&str>).context("cannot mount")
    }

    /// Lets it expire if the kernel says that it may. Whether it did.
    fn try_to_expire(&mut self) -> Result<bool> {
        let root = Arc::clone(&self.root);
        let asking = std::thread::spawn(move || expiry::expire(&root));
        // The call waits until the packet that it sends is answered; without one it returns at once.
        let mut has_expired = false;
        wait_for_some("the kernel's answer about the expiry", SOON, || {
            if let Some((_, token)) = self.trap.packet() {
                unmount(self.mountpoint)?;
                expiry::ready(&self.root, token).context("cannot answer the kernel")?;
                has_expired = true;
            }
            Ok(asking.is_finished().then_some(()))
        })?;
        match asking.join() {
            Ok(Ok(()) | Err(Errno::EAGAIN)) => Ok(has_expired),
            other => anyhow::bail!("the expiry failed: {other:?}"),
        }
    }

    /// Whether it expires within a time.
    fn expires_within(&mut self, time: Duration) -> Result<bool> {
        let begun = now();
        while now().saturating_sub(begun) < time {
            if self.try_to_expire()? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn watched(name: &str, place: &Path) -> String {
    Volume::at(name, place).set("interval", "100ms").set("deadline", "2s").to_toml()
}

fn expires(bench: &mut Bench) -> Result<()> {
    let place = bench.make_directory("auto")?;
    let mut daemon = Daemon::start(&place)?;
    daemon.mount()?;
    // Somebody of another group who walks there all the time keeps it: what a careless watcher does.
    let script = "while :; do stat \"$1\" > /dev/null; done";
    let walker = std::process::Command::new("setsid").args(["sh", "-c", script, "sh"]).arg(&place).spawn()?;
    let walker = Background(walker);
    ensure!(!daemon.expires_within(EXPIRES_AFTER * 3)?, "walks do not keep an automount: nothing is proved");
    drop(walker);

    let injector = Injector::start(bench, "volume", "here")?;
    let volumes = [watched("v", &place), watched("clock", injector.mountpoint())];
    let agent = Agent::start_with(bench, &Setup::in_own_group(bench, &volumes.concat())?)?;
    agent.wait_state("v", "healthy")?;
    agent.wait_probes("clock", 20.0)?;
    // Twice its time-out, a little jitter, and the time-out itself.
    ensure!(daemon.expires_within(EXPIRES_AFTER * 10)?, "the probes keep the automount");
    agent.wait_scrape("it is idle", |scrape| words::idle(scrape, "v"))?;
    let scrape = agent.wait_probes("clock", 50.0)?;
    ensure!(!daemon.trap.was_triggered(), "the agent stepped on the trap");
    ensure!(mounts_at(&place)?.len() == 1, "something was mounted");
    ensure!(!is_in_state(&scrape, "v", "degraded")?, "an automount that expired is degraded");

    daemon.mount()?;
    agent.wait_scrape("it is not idle any more", |scrape| Ok(!words::idle(scrape, "v")?))?;
    agent.wait_state("v", "healthy")?;
    Ok(())
}

fn indirect(bench: &mut Bench) -> Result<()> {
    let place = bench.make_directory("net")?;
    let mut trap = Trap::set_indirect(&place)?;
    let injector = Injector::start(bench, "volume", "here")?;
    let volumes = [watched("v", &place.join("filer/a")), watched("clock", injector.mountpoint())];
    let agent = Agent::start_with(bench, &Setup::in_own_group(bench, &volumes.concat())?)?;
    agent.wait_scrape("it is idle", |scrape| words::idle(scrape, "v"))?;
    let scrape = agent.wait_probes("clock", 50.0)?;
    ensure!(!trap.was_triggered(), "the agent stepped on the trap");
    ensure!(!is_in_state(&scrape, "v", "degraded")?, "a key that is not mounted is degraded");
    // Mounted by the daemon, it is watched; the daemon's own group makes the key.
    let key = place.join("filer/a");
    std::fs::create_dir_all(&key).context("cannot make the key")?;
    mount(Some("auto"), &key, Some("tmpfs"), MsFlags::empty(), None::<&str>).context("cannot mount")?;
    agent.wait_state("v", "healthy")?;
    unmount(&key)?;
    agent.wait_scrape("it is idle again", |scrape| words::idle(scrape, "v"))?;
    agent.wait_probes("clock", 20.0)?;
    ensure!(!trap.was_triggered(), "the agent stepped on the trap");
    Ok(())
}

/// One volume is named, one is found, and a third gives the rhythm.
fn named_and_found(bench: &mut Bench) -> Result<()> {
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
