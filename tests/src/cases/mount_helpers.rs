//! Mount helpers that hang, and mounts that do not last: they hold nobody else up, and they end.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, STAGE, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector, Mode};
use integration_tests::harness::mnt_ns::{mount_from, mounts_at, mounts_below};
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::{self, Background};
use integration_tests::harness::scrape::Scrape;
use integration_tests::harness::wait::wait_for;
use integration_tests::harness::words;

const TIMEOUT: Duration = Duration::from_secs(180);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_helper_that_hangs_is_ended_with_all_it_started_and_holds_no_other_repair_up",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: hangs,
    },
    Case {
        name: "all_that_a_helper_has_started_ends_with_a_killed_agent",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: ends_with_the_agent,
    },
    Case {
        name: "a_helper_that_cannot_be_killed_is_counted_and_no_other_is_started",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: cannot_be_killed,
    },
    Case {
        name: "a_volume_that_vanishes_after_each_repair_ends_in_quarantine",
        needs: &[Need::Root],
        timeout: TIMEOUT,
        run: vanishes,
    },
];

fn repaired(name: &str, injector: &Injector, command: &[String]) -> Volume {
    Volume::at(name, injector.mountpoint())
        .set("source", &format!("injector-{name}"))
        .set("fstype", FSTYPE)
        .set("interval", "300ms")
        .set("deadline", "2s")
        .repaired_by(command)
}

/// Processes of helpers that wait.
fn sleepers() -> usize {
    let waits = |one: &u32| {
        process::is_running(*one) && process::arguments(*one).iter().any(|word| word == b"987654")
    };
    process::all().into_iter().filter(waits).count()
}

/// One helper waits for a server that never answers, with a child that waits as well.
fn hangs(bench: &mut Bench) -> Result<()> {
    let gone = Injector::start(bench, "gone", "here")?;
    let script = bench.write("helper.sh", b"sleep 987654 &\nsleep 987654\n")?;
    let command = ["/bin/sh".to_owned(), script.display().to_string(), "{target}".to_owned()];
    let mut body = repaired("gone", &gone, &command).to_toml() + "timeout = \"4s\"\nmax_attempts = 1\n";
    let mut others = Vec::new();
    for name in ["one", "two", "three"] {
        let (old, new) =
            (Injector::start(bench, name, "here")?, Injector::prepare(bench, format!("{name}.new"), "here")?);
        let mut command = new.command()?;
        command.push("{target}".to_owned());
        body += &repaired(name, &old, &command).to_toml();
        others.push((name, old));
    }
    let mut agent = Agent::start(bench, &body)?;
    agent.wait_state("gone", "healthy")?;
    for (name, _) in &others {
        agent.wait_state(name, "healthy")?;
    }
    gone.kill()?;
    agent.wait_state("gone", "recovering")?;
    for (_, old) in &others {
        old.kill()?;
    }
    for (name, _) in &others {
        agent.wait_scrape("the others are repaired", |scrape| {
            Ok(words::repairs(scrape, name, "changed") == 1.0)
        })?;
    }
    agent.wait_scrape("the helper is ended", |scrape| {
        Ok(words::repairs(scrape, "gone", "timed_out") == 1.0)
    })?;
    agent.wait_state("gone", "quarantined")?;
    agent.wait_scrape("nothing of the helper is left", |_| Ok(sleepers() == 0))?;
    ensure!(mounts_below(STAGE.as_ref())?.is_empty(), "something is left at the stage");
    for (name, _) in &others {
        agent.wait_state(name, "healthy")?;
    }
    agent.must_run()
}

/// Nobody is left to kill them but the kernel and their own group.
fn ends_with_the_agent(bench: &mut Bench) -> Result<()> {
    let gone = Injector::start(bench, "gone", "here")?;
    let script = "(trap '' TERM HUP INT; sleep 987654 & sleep 987654) &\nsleep 987654\n";
    let script = bench.write("helper.sh", script.as_bytes())?;
    let command = ["/bin/sh".to_owned(), script.display().to_string(), "{target}".to_owned()];
    let body = repaired("gone", &gone, &command).to_toml() + "timeout = \"170s\"\n";
    let agent = Agent::start(bench, &body)?;
    agent.wait_state("gone", "healthy")?;
    gone.kill()?;
    wait_for("the helper and all its children run", SOON, || sleepers() == 3)?;
    agent.kill()?;
    wait_for("nothing of the helper is left", SOON, || sleepers() == 0)?;
    let acting = process::all().into_iter().filter(|one| {
        let words = process::arguments(*one);
        process::is_running(*one) && words.get(1).is_some_and(|word| word == b"act")
    });
    ensure!(acting.count() == 0, "a child that acts is left");
    Ok(())
}

/// It waits for a daemon that has taken its request and does not answer.
fn cannot_be_killed(bench: &mut Bench) -> Result<()> {
    let gone = Injector::start(bench, "gone", "here")?;
    let other = Injector::start(bench, "other", "here")?;
    let started = bench.path("started");
    let script = format!("echo x >> {}\ncat {}\n", started.display(), other.data(0).display());
    let script = bench.write("helper.sh", script.as_bytes())?;
    let command = ["/bin/sh".to_owned(), script.display().to_string(), "{target}".to_owned()];
    let body = repaired("gone", &gone, &command).to_toml() + "timeout = \"1s\"\nmax_attempts = 9\n";
    let mut agent = Agent::start(bench, &body)?;
    agent.wait_state("gone", "healthy")?;
    let stuck = |scrape: &Scrape| scrape.value("mountie_remediation_stuck_helpers", &[]);
    ensure!(stuck(&agent.scrape()?)? == 0.0);
    other.set(&Mode::hang_all())?;
    gone.kill()?;
    agent.wait_scrape("it is counted", |scrape| Ok(stuck(scrape)? == 1.0))?;
    let scrape = agent.wait_scrape("the next attempt is refused", |scrape| {
        Ok(words::repairs(scrape, "gone", "helper_stuck") >= 1.0)
    })?;
    ensure!(words::repairs(&scrape, "gone", "timed_out") == 1.0, "{}", scrape.summary());
    ensure!(std::fs::read_to_string(&started)? == "x\n", "it was started again");
    ensure!(agent.log()?.contains("Helpers of repairs were killed and have not ended"), "it is not said");
    other.set(&Mode::Ok)?;
    agent.wait_scrape("it is gone", |scrape| Ok(stuck(scrape)? == 0.0))?;
    agent.must_run()
}

/// As a service manager does whose unit for the place is not to be active.
fn vanishes(bench: &mut Bench) -> Result<()> {
    let place = bench.make_directory("volume")?;
    let volume = Volume::at("v", &place)
        .set("source", "scratch")
        .set("fstype", "tmpfs")
        .line("options = [\"size=64k\"]")
        .set("interval", "300ms")
        .set("deadline", "2s")
        .repaired_by_mount();
    let script = "while :; do if grep -q \" $1 \" /proc/self/mountinfo; then sleep 0.1; umount \"$1\"; fi; sleep 0.01; done";
    let child = Command::new("sh").args(["-c", script, "sh"]).arg(&place).stdin(Stdio::null()).spawn()?;
    let other = Background(child);
    let agent = Agent::start(bench, &(volume.to_toml() + "max_attempts = 2\n"))?;
    let scrape = agent.wait_state("v", "quarantined")?;
    let made = words::repairs(&scrape, "v", "changed");
    ensure!(made <= 2.0, "{made} mounts were made");
    let states = words::history(&agent, "v")?;
    ensure!(!states.iter().any(|(state, _)| state == "healthy"), "it was called healthy: {states:?}");
    // The other one is stopped, and a person mounts it.
    drop(other);
    mount_from("scratch".as_ref(), &place, "tmpfs")?;
    agent.wait_state("v", "healthy")?;
    ensure!(mounts_at(&place)?.len() == 1);
    Ok(())
}
