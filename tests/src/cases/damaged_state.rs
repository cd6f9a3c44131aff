//! Whatever has become of the agent's own files: it starts, watches and repairs, and says what is wrong. Only where it
//! cannot tell what was paused, it waits for a word before it repairs.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, Volume};
use integration_tests::harness::bench::{Bench, mount_tmpfs};
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector, Mode};
use integration_tests::harness::loop_dev::{Kind, LoopDevice};
use integration_tests::harness::mnt_ns::{detach, only_mount_at, remount};
use integration_tests::harness::needs::Need;
use integration_tests::harness::scrape::Scrape;
use integration_tests::harness::words;
use nix::mount::MsFlags;

const TIMEOUT: Duration = Duration::from_secs(240);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_journal_that_is_damaged_or_not_the_agents_own_stops_nothing_and_is_told",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: damaged,
    },
    Case {
        name: "an_agent_whose_state_is_read_only_watches_and_repairs_all_the_same",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: read_only,
    },
    Case {
        name: "an_agent_that_cannot_read_what_was_paused_repairs_nothing_until_somebody_says_so",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: unread_pauses,
    },
    Case {
        name: "an_agent_whose_state_hangs_watches_answers_and_repairs_when_told_to",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: hangs,
    },
    Case {
        name: "an_agent_whose_state_lies_on_the_disk_that_fails_tells_of_both",
        needs: &[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mkfs.ext4")],
        timeout: TIMEOUT,
        run: on_the_failing_disk,
    },
];

/// A volume that is repaired by a new daemon.
fn acting(injector: &Injector, new: &Injector) -> Result<Volume> {
    let mut command = new.command()?;
    command.push("{target}".to_owned());
    let volume = Volume::at("v", injector.mountpoint()).set("source", "injector").set("fstype", FSTYPE);
    Ok(volume.set("interval", "300ms").set("deadline", "2s").repaired_by(&command))
}

fn failures(scrape: &Scrape) -> Result<f64> {
    scrape.value("mountie_state_persist_errors_total", &[])
}

/// How a journal can be found, and whether the agent can write one after.
type Damage = (&'static str, fn(&Path, &[u8]) -> Result<()>, bool);

const DAMAGES: &[Damage] = &[
    ("empty", |journal, _| put(journal, b""), true),
    ("cut", |journal, good| put(journal, good.get(..good.len() - 7).unwrap_or_default()), true),
    ("zeros", |journal, _| put(journal, &[0; 4096]), true),
    ("garbage", |journal, good| put(journal, &[good, b"\xff\xfe{]\n".as_slice(), good].concat()), true),
    ("a good one", |journal, good| put(journal, good), true),
    (
        "writable for all",
        |journal, good| {
            put(journal, good)?;
            Ok(fs::set_permissions(journal, Permissions::from_mode(0o666))?)
        },
        false,
    ),
    (
        "somebody else's",
        |journal, good| {
            put(journal, good)?;
            Ok(chown(journal, Some(1000), Some(1000))?)
        },
        false,
    ),
    ("a directory", |journal, _| Ok(fs::create_dir(journal)?), false),
    ("a link", link_elsewhere, true),
];

/// A file that only looks like somebody else's: nothing outside the bench is put at risk.
const ELSEWHERE: &str = "elsewhere";

fn link_elsewhere(journal: &Path, _: &[u8]) -> Result<()> {
    let target = journal.with_file_name(ELSEWHERE);
    fs::write(&target, "not the agent's")?;
    Ok(symlink(target, journal)?)
}

fn put(journal: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(journal, bytes)?;
    Ok(fs::set_permissions(journal, Permissions::from_mode(0o600))?)
}

fn damaged(bench: &mut Bench) -> Result<()> {
    let old = Injector::start(bench, "volume", "here")?;
    let new = Injector::prepare(bench, "successor", "here")?;
    // Nothing here is about the kernel programs, and ten starts are faster without them.
    let body = format!("[kernel]\nfamily = \"off\"\n{}", acting(&old, &new)?.to_toml());
    let mut setup = Setup::new(bench, &body)?;
    // A real journal: of an agent that has repaired something.
    let mut agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("v", "healthy")?;
    old.kill()?;
    agent.wait_scrape("it is repaired", |scrape| Ok(words::repairs(scrape, "v", "changed") == 1.0))?;
    agent.wait_state("v", "healthy")?;
    agent.terminate(SOON)?;
    let good = fs::read(setup.state_dir.join("journal")).context("there is no journal")?;
    ensure!(good.len() > 100, "nothing was written");
    for (what, damage, is_writable) in DAMAGES {
        // Each start is the first: with nothing remembered, nothing set aside.
        let state = bench.make_directory(format!("state of {what}"))?;
        fs::set_permissions(&state, Permissions::from_mode(0o700))?;
        setup.state_dir.clone_from(&state);
        let journal = state.join("journal");
        damage(&journal, &good).with_context(|| format!("cannot make {what}"))?;
        let mut agent = Agent::start_with(bench, &setup).context(*what)?;
        agent.wait_state("v", "healthy").context(*what)?;
        let told = failures(&agent.scrape()?)?;
        let is_told = !matches!(*what, "empty" | "a good one");
        ensure!((told > 0.0) == is_told, "{what}: {told} failures");
        new.kill()?;
        agent
            .wait_scrape("it is repaired", |scrape| Ok(words::repairs(scrape, "v", "changed") == 1.0))
            .context(*what)?;
        let scrape = agent.scrape()?;
        ensure!((failures(&scrape)? == told) == *is_writable, "{what}: {} failures", failures(&scrape)?);
        agent.must_run().context(*what)?;
        agent.terminate(SOON)?;
    }
    let elsewhere = bench.path("state of a link").join(ELSEWHERE);
    ensure!(fs::read_to_string(elsewhere)? == "not the agent's", "the agent wrote through a link");
    only_mount_at(old.mountpoint()).map(drop)
}

fn read_only(bench: &mut Bench) -> Result<()> {
    let state = bench.make_directory("state")?;
    mount_tmpfs(&state, "size=1m,mode=0700")?;
    remount(&state, MsFlags::MS_RDONLY)?;
    let old = Injector::start(bench, "volume", "here")?;
    let new = Injector::prepare(bench, "successor", "here")?;
    let mut agent = Agent::start(bench, &acting(&old, &new)?.to_toml())?;
    let scrape = agent.wait_state("v", "healthy")?;
    ensure!(failures(&scrape)? > 0.0, "it is not told");
    let before = agent.log()?.lines().count();
    agent.wait_probes("v", 10.0)?;
    let after = agent.log()?.lines().count();
    ensure!(after <= before + 2, "{} lines about one fault", after - before);
    old.kill()?;
    agent.wait_scrape("it is repaired", |scrape| Ok(words::repairs(scrape, "v", "changed") == 1.0))?;
    agent.wait_state("v", "healthy")?;
    agent.must_run()
}

/// The disk under the state takes requests and answers none.
fn hangs(bench: &mut Bench) -> Result<()> {
    let disk = Injector::start(bench, "disk", "here")?;
    let old = Injector::start(bench, "volume", "here")?;
    let new = Injector::prepare(bench, "successor", "here")?;
    let mut setup = Setup::new(bench, &acting(&old, &new)?.to_toml())?;
    setup.state_dir = disk.mountpoint().join("sub");
    fs::set_permissions(&setup.state_dir, Permissions::from_mode(0o700))?;
    disk.set(&Mode::hang_all())?;
    let mut agent = Agent::start_with(bench, &setup)?;
    let scrape = agent.wait_state("v", "healthy")?;
    ensure!(failures(&scrape)? > 0.0, "it is not told");
    old.kill()?;
    // What was paused lies on that disk as well.
    agent.wait_degraded("v", "disconnected")?;
    wait_for_paused(&agent)?;
    resume_all(&agent)?;
    let scrape = agent.wait_scrape("it is repaired without a journal", |scrape| {
        Ok(words::repairs(scrape, "v", "changed") == 1.0)
    })?;
    ensure!(failures(&scrape)? >= 2.0, "neither the intent nor the outcome could be written");
    agent.wait_state("v", "healthy")?;
    ensure!(agent.get("/healthz")?.status == 200);
    disk.set(&Mode::Ok)?;
    agent.must_run()?;
    agent.terminate(SOON).map(drop)
}

/// That nothing is repaired, and that people are told.
fn wait_for_paused(agent: &Agent) -> Result<()> {
    let scrape = agent.wait_scrape("a repair is held back", |scrape| {
        Ok(scrape.sum("mountie_remediation_suppressed_total", &[("cause", "paused")]) == 1.0)
    })?;
    ensure!(scrape.sum("mountie_remediation_total", &[]) == 0.0, "it was repaired");
    for (command, told) in [("status", "paused: all volumes"), ("doctor", "no volume is repaired: paused by")]
    {
        let said = String::from_utf8_lossy(&agent.command(&[command])?.stdout).into_owned();
        ensure!(said.contains(told) && said.contains("could not be read"), "{command}: {said}");
    }
    let log = agent.log()?;
    ensure!(log.contains("repairs of every volume are paused until `mountie resume --all`"), "{log}");
    Ok(())
}

fn resume_all(agent: &Agent) -> Result<()> {
    let resumed = agent.command(&["resume", "--all"])?;
    ensure!(resumed.status.code() == Some(0), "{resumed:?}");
    Ok(())
}

fn unread_pauses(bench: &mut Bench) -> Result<()> {
    let old = Injector::start(bench, "volume", "here")?;
    let new = Injector::prepare(bench, "successor", "here")?;
    let body = format!("[kernel]\nfamily = \"off\"\n{}", acting(&old, &new)?.to_toml());
    let setup = Setup::new(bench, &body)?;
    fs::create_dir(&setup.state_dir)?;
    fs::set_permissions(&setup.state_dir, Permissions::from_mode(0o700))?;
    put(&setup.state_dir.join("pauses.json"), b"{ \"apiVersion\": \"moun")?;
    let agent = Agent::start_with(bench, &setup)?;
    let scrape = agent.wait_state("v", "healthy")?;
    ensure!(failures(&scrape)? == 1.0, "it is not told");
    let before = only_mount_at(old.mountpoint())?;
    old.kill()?;
    agent.wait_degraded("v", "disconnected")?;
    wait_for_paused(&agent)?;
    agent.kill()?;
    // The file is set aside by now, and the next agent holds back all the same.
    let setup = Setup { name: "again".to_owned(), ..setup };
    let mut agent = Agent::start_with(bench, &setup)?;
    agent.wait_degraded("v", "disconnected")?;
    agent.wait_probes("v", 5.0)?;
    ensure!(only_mount_at(old.mountpoint())? == before, "the mount was touched");
    ensure!(failures(&agent.scrape()?)? == 0.0, "told again");
    resume_all(&agent)?;
    agent.wait_scrape("it is repaired", |scrape| Ok(words::repairs(scrape, "v", "changed") == 1.0))?;
    agent.wait_state("v", "healthy")?;
    agent.must_run()
}

fn on_the_failing_disk(bench: &mut Bench) -> Result<()> {
    let disk = LoopDevice::make(bench, "disk", Kind::Ext4)?;
    let place = bench.make_directory("disk")?;
    disk.mount(&place, "errors=remount-ro")?;
    let old = Injector::start(bench, "volume", "here")?;
    let new = Injector::prepare(bench, "successor", "here")?;
    let body = Volume::at("disk", &place).set("interval", "300ms").to_toml() + &acting(&old, &new)?.to_toml();
    let mut setup = Setup::new(bench, &body)?;
    setup.state_dir = place.join("state");
    let mut agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("disk", "healthy")?;
    let scrape = agent.wait_state("v", "healthy")?;
    ensure!(failures(&scrape)? == 0.0);
    LoopDevice::settle(&place)?;
    disk.trigger_error()?;
    agent.wait_degraded("disk", "readonly")?;
    old.kill()?;
    agent.wait_scrape("the other one is repaired without a journal", |scrape| {
        Ok(words::repairs(scrape, "v", "changed") == 1.0 && failures(scrape)? > 0.0)
    })?;
    agent.wait_state("v", "healthy")?;
    ensure!(agent.get("/healthz")?.status == 200);
    agent.must_run()?;
    // The agent goes, and the next one comes to the same disk.
    agent.terminate(SOON)?;
    let mut agent = Agent::start_with(bench, &setup)?;
    agent.wait_degraded("disk", "readonly")?;
    agent.wait_state("v", "healthy")?;
    agent.must_run()?;
    agent.terminate(SOON)?;
    detach(&place)
}
