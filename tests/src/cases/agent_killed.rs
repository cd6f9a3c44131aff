//! The agent dies between what it intends and what came of it. The next one finds out, finishes or undoes it,
//! and the volume ends as if nothing had happened: healthy, mounted once, nothing left at the private place. One that
//! is told to end leaves nothing for the next.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, STAGE, Setup, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector};
use integration_tests::harness::mnt_ns::{mounts_below, only_mount_at};
use integration_tests::harness::needs::Need;
use integration_tests::harness::wait::{is_there, wait_for, wait_for_some};

const NEEDS: &[Need] = &[Need::Root, Need::Fuse];

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "an_agent_killed_before_the_new_mount_is_made_repairs_after_its_start",
        needs: NEEDS,
        timeout: Duration::from_secs(180),
        run: |bench| killed(bench, "wait_here; serve \"$1\""),
    },
    Case {
        name: "an_agent_killed_when_the_new_mount_is_staged_leaves_one_mount",
        needs: NEEDS,
        timeout: Duration::from_secs(180),
        run: |bench| killed(bench, "serve \"$1\"; wait_here"),
    },
    Case {
        name: "an_agent_that_is_told_to_end_during_a_repair_leaves_nothing_half_done",
        needs: NEEDS,
        timeout: Duration::from_secs(180),
        run: told_to_end,
    },
    Case {
        name: "restarts_leave_the_number_of_mounts_unchanged",
        needs: NEEDS,
        timeout: Duration::from_secs(180),
        run: restarts,
    },
];

/// A volume whose repair waits in the midst until it is let go on.
struct Held {
    old: Injector,
    new: Injector,
    reached: PathBuf,
    hold: PathBuf,
    setup: Setup,
}

impl Held {
    /// `steps` of a shell that has `serve PLACE` and `wait_here`.
    fn start(bench: &Bench, steps: &str) -> Result<Self> {
        let old = Injector::start(bench, "volume", "here")?;
        let new = Injector::prepare(bench, "successor", "here")?;
        let (reached, hold) = (bench.path("reached"), bench.path("hold"));
        File::create(&hold).context("cannot create the file that holds the repair")?;
        let words: Vec<String> = new.command()?.iter().map(|word| format!("'{word}'")).collect();
        let script = format!(
            "serve() {{ {} \"$1\"; }}\nwait_here() {{ : >'{}'; while [ -e '{}' ]; do sleep 0.05; done; }}\n{steps}\n",
            words.join(" "),
            reached.display(),
            hold.display(),
        );
        let script = bench.write("repair.sh", script.as_bytes())?;
        let command = ["/bin/sh".to_owned(), script.display().to_string(), "{target}".to_owned()];
        let volume = Volume::at("v", old.mountpoint())
            .sentinel("here")
            .set("source", "injector")
            .set("fstype", FSTYPE)
            .set("interval", "1s")
            .set("deadline", "2s")
            .repaired_by(&command);
        let setup = Setup::new(bench, &volume.to_toml())?;
        Ok(Self { old, new, reached, hold, setup })
    }

    /// An agent in the midst of the repair.
    fn agent(&self, bench: &Bench) -> Result<Agent> {
        let agent = Agent::start_with(bench, &self.setup)?;
        agent.wait_state("v", "healthy")?;
        self.old.kill()?;
        wait_for("the repair is under way", SOON, || is_there(&self.reached))?;
        Ok(agent)
    }
}

fn nothing_is_staged() -> Result<()> {
    let left = mounts_below(STAGE.as_ref())?;
    ensure!(left.is_empty(), "{left:?}");
    let names = fs::read_dir(STAGE)?.flatten().map(|entry| entry.file_name());
    ensure!(names.count() == 0, "directories are left");
    Ok(())
}

fn killed(bench: &mut Bench, steps: &str) -> Result<()> {
    let held = Held::start(bench, steps)?;
    let before = only_mount_at(held.old.mountpoint())?;
    held.agent(bench)?.kill()?;
    fs::remove_file(&held.hold).context("cannot let the repair go on")?;

    let mut agent = Agent::start_with(bench, &held.setup)?;
    agent.wait_state("v", "healthy")?;
    let after = only_mount_at(held.old.mountpoint())?;
    ensure!(after.device != before.device, "the dead mount is still there: {after:?}");
    ensure!(fs::read(held.old.mountpoint().join(".mountie"))? == b"here");
    wait_for_some("nothing is left at the stage", SOON, || {
        nothing_is_staged()?;
        // What a cut-off repair mounts late is taken away too, and its daemon ends.
        ensure!(held.new.daemons().len() == 1, "daemons: {:?}", held.new.daemons());
        Ok(Some(()))
    })?;
    agent.must_run()
}

fn told_to_end(bench: &mut Bench) -> Result<()> {
    let held = Held::start(bench, "serve \"$1\"; wait_here")?;
    let mut agent = held.agent(bench)?;
    let status = agent.terminate(SOON)?;
    ensure!(status.code() == Some(0), "ended with {status}");
    // At once, and not by the next agent.
    nothing_is_staged()?;
    let log = agent.log()?;
    ensure!(log.contains("Repairs are brought to an end first") && !log.contains("cut off"), "{log}");
    wait_for_some("what was mounted for it ends", SOON, || {
        ensure!(held.new.daemons().is_empty(), "daemons: {:?}", held.new.daemons());
        Ok(Some(()))
    })?;
    fs::remove_file(&held.hold).context("cannot let the next repair go on")?;
    let agent = Agent::start_with(bench, &held.setup)?;
    agent.wait_state("v", "healthy").map(drop)
}

fn restarts(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let volume = Volume::at("v", injector.mountpoint()).sentinel("here");
    let setup = Setup::new(bench, &volume.to_toml())?;
    let mut counts = Vec::new();
    for round in 0..6 {
        let mut agent = Agent::start_with(bench, &setup)?;
        agent.wait_state("v", "healthy")?;
        counts.push(integration_tests::harness::mnt_ns::table()?.len());
        if round % 2 == 0 {
            agent.kill()?;
        } else {
            agent.terminate(SOON)?;
        }
    }
    // The first start may make the private place.
    ensure!(counts.windows(2).skip(1).all(|pair| pair.first() == pair.last()), "mounts: {counts:?}");
    Ok(())
}
