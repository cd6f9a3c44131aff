//! Several mounts where one is expected: on each other, on themselves, at two places, one after another.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, Volume, is_in_state, toml_string};
use integration_tests::harness::bench::{Bench, mount_tmpfs};
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector, Mode};
use integration_tests::harness::mnt_ns::{
    bind, detach, mounts_at, move_mount, only_mount_at, table, unmount_when_free,
};
use integration_tests::harness::needs::Need;
use integration_tests::harness::scrape::Scrape;
use integration_tests::harness::wait::wait_for_some;
use integration_tests::harness::words;

const TIMEOUT: Duration = Duration::from_secs(150);
const ROOT: &[Need] = &[Need::Root];
const FUSE: &[Need] = &[Need::Root, Need::Fuse];

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_volume_that_is_bound_onto_itself_is_one_volume",
        needs: FUSE,
        timeout: TIMEOUT,
        run: onto_itself,
    },
    Case {
        name: "equal_mounts_on_each_other_are_one_volume_with_a_depth",
        needs: ROOT,
        timeout: TIMEOUT,
        run: stacked,
    },
    Case {
        name: "the_top_of_a_stack_is_what_lies_on_top_and_not_the_last_line",
        needs: FUSE,
        timeout: TIMEOUT,
        run: top_of_stack,
    },
    Case {
        name: "a_volume_below_a_directory_that_is_mounted_over_is_covered_until_that_is_gone",
        needs: ROOT,
        timeout: TIMEOUT,
        run: covered_above,
    },
    Case { name: "one_source_at_two_places_is_two_volumes", needs: FUSE, timeout: TIMEOUT, run: two_places },
    Case {
        name: "a_volume_that_was_taken_out_of_the_configuration_is_gone_from_the_next_scrape",
        needs: FUSE,
        timeout: TIMEOUT,
        run: taken_out,
    },
    Case {
        name: "after_a_start_no_volume_is_healthy_before_it_was_looked_at",
        needs: FUSE,
        timeout: TIMEOUT,
        run: after_a_start,
    },
];

fn discovery(bench: &Bench, fstype: &str) -> String {
    let pattern = toml_string(&format!("{}/**", bench.directory().display()));
    format!(
        "[defaults]\ninterval = \"300ms\"\ndeadline = \"2s\"\n\
         [discovery]\nenabled = true\ninclude = [{{ mountpoint = {pattern}, fstype = \"{fstype}\" }}]\n"
    )
}

fn watched(name: &str, mountpoint: &Path) -> Volume {
    Volume::at(name, mountpoint).set("interval", "300ms").set("deadline", "2s")
}

fn onto_itself(bench: &mut Bench) -> Result<()> {
    let named = Injector::start(bench, "named", "here")?;
    let found = Injector::start(bench, "found", "here")?;
    for place in [named.mountpoint(), found.mountpoint()] {
        bind(place, place)?;
        bind(&place.join("sub"), &place.join("sub"))?;
    }
    let body = format!("{}{}", discovery(bench, "fuse*"), watched("named", named.mountpoint()).to_toml());
    let agent = Agent::start(bench, &body)?;
    agent.wait_state("named", "healthy")?;
    let name = found.mountpoint().display().to_string();
    let scrape = agent.wait_state(&name, "healthy")?;
    for volume in ["named", &name] {
        ensure!(words::stack_depth(&scrape, volume)? == 2.0, "{volume}: {}", scrape.summary());
        ensure!(scrape.matching("mountie_volume_info", &[("volume", volume)]).count() == 1);
    }
    // The upper one goes: still the same file system, still in order.
    for place in [named.mountpoint().join("sub"), named.mountpoint().to_owned()] {
        unmount_when_free(&place)?;
    }
    agent.wait_scrape("one is left", |scrape| Ok(words::stack_depth(scrape, "named")? == 1.0))?;
    agent.wait_probes("named", 2.0)?;
    agent.wait_state("named", "healthy")?;
    words::was_never_sick(&agent, "named")
}

fn stacked(bench: &mut Bench) -> Result<()> {
    let place = bench.make_directory("volume")?;
    let agent = Agent::start(bench, &watched("v", &place).set("fstype", "tmpfs").to_toml())?;
    agent.wait_degraded("v", "missing")?;
    for depth in 1..=5 {
        mount_tmpfs(&place, "size=64k")?;
        agent.wait_scrape("the depth grows and the top is healthy", |scrape| {
            Ok(words::stack_depth(scrape, "v")? == f64::from(depth) && words::healthy(scrape, "v")?)
        })?;
    }
    for depth in (0..5).rev() {
        unmount_when_free(&place)?;
        let scrape = agent.wait_scrape("the depth shrinks", |scrape| {
            Ok(words::stack_depth(scrape, "v")? == f64::from(depth))
        })?;
        let told = words::device(&scrape, "v")?;
        let top = mounts_at(&place)?.pop().map(|line| line.device).unwrap_or_default();
        ensure!(told == top, "{told} is told and {top} is on top");
    }
    agent.wait_degraded("v", "missing").map(drop)
}

/// A mount that is older than what it is moved onto has the earlier line.
fn top_of_stack(bench: &mut Bench) -> Result<()> {
    let aside = Injector::start(bench, "aside", "upper")?;
    let place = Injector::start(bench, "volume", "lower")?;
    let agent = Agent::start(bench, &watched("v", place.mountpoint()).set("fstype", FSTYPE).to_toml())?;
    agent.wait_state("v", "healthy")?;
    let upper = only_mount_at(aside.mountpoint())?;
    move_mount(aside.mountpoint(), place.mountpoint())?;
    let visible = fs::read(place.mountpoint().join(".mountie"))?;
    ensure!(visible == b"upper", "the one that was moved is not on top");
    agent
        .wait_scrape("the one on top is judged", |scrape| Ok(words::device(scrape, "v")? == upper.device))?;
    // Only the one on top counts.
    place.set(&Mode::fail_all(nix::errno::Errno::EIO))?;
    agent.wait_probes("v", 3.0)?;
    agent.wait_state("v", "healthy")?;
    aside.set(&Mode::fail_all(nix::errno::Errno::EIO))?;
    agent.wait_degraded("v", "io_error")?;
    place.set(&Mode::Ok)?;
    detach(place.mountpoint())?;
    agent.wait_state("v", "healthy").map(drop)
}

/// The volume is in the table all the time, and no path leads to it. Its path is written as people write paths.
fn covered_above(bench: &mut Bench) -> Result<()> {
    let parent = bench.make_directory("parent")?;
    let place = parent.join("volume");
    fs::create_dir(&place)?;
    mount_tmpfs(&place, "size=64k")?;
    fs::write(place.join(".mountie"), "here")?;
    let spelled = PathBuf::from(format!("{}//parent/./volume/", bench.directory().display()));
    let agent = Agent::start(bench, &watched("v", &spelled).sentinel("here").to_toml())?;
    agent.wait_state("v", "healthy")?;
    mount_tmpfs(&parent, "size=64k")?;
    agent.wait_degraded("v", "covered")?;
    // Also where the cover has such a directory, with such a file in it.
    fs::create_dir(&place)?;
    fs::write(place.join(".mountie"), "here")?;
    let scrape = agent.scrape()?;
    ensure!(words::sick(&scrape, "v", "covered")?, "{}", scrape.summary());
    ensure!(mounts_at(&place)?.len() == 1, "the volume is not in the table");
    unmount_when_free(&parent)?;
    agent.wait_state("v", "healthy")?;
    words::untouched(&agent.scrape()?)
}

fn two_places(bench: &mut Bench) -> Result<()> {
    // Both say that they come from `injector`.
    let first = Injector::start(bench, "first", "here")?;
    let second = Injector::start(bench, "second", "here")?;
    let body = format!("{}{}", discovery(bench, "fuse*"), watched("first", first.mountpoint()).to_toml());
    let agent = Agent::start(bench, &body)?;
    let name = second.mountpoint().display().to_string();
    agent.wait_state("first", "healthy")?;
    agent.wait_state(&name, "healthy")?;
    second.set(&Mode::fail_all(nix::errno::Errno::ESTALE))?;
    agent.wait_degraded(&name, "stale")?;
    words::was_never_sick(&agent, "first")?;
    // It comes back at another place: the old one is not well because the new one is.
    second.set(&Mode::Ok)?;
    agent.wait_state(&name, "healthy")?;
    let third = bench.make_directory("third")?;
    move_mount(second.mountpoint(), &third)?;
    let other = third.display().to_string();
    let scrape = agent.wait_scrape("the new place is watched", |scrape| {
        Ok(words::volumes(scrape).contains(&other) && words::healthy(scrape, &other)?)
    })?;
    ensure!(!words::volumes(&scrape).contains(&name) || !words::healthy(&scrape, &name)?);
    Ok(())
}

fn taken_out(bench: &mut Bench) -> Result<()> {
    let (kept, out) = (Injector::start(bench, "kept", "here")?, Injector::start(bench, "out", "here")?);
    let (kept_toml, out_toml) =
        (watched("kept", kept.mountpoint()).to_toml(), watched("out", out.mountpoint()).to_toml());
    let both = Setup::new(bench, &format!("{kept_toml}{out_toml}"))?;
    let mut one = both.clone();
    one.body = both.body.replace(&out_toml, "");
    let mut agent = Agent::start_with(bench, &both)?;
    agent.wait_state("kept", "healthy")?;
    out.set(&Mode::fail_all(nix::errno::Errno::EIO))?;
    agent.wait_degraded("out", "io_error")?;
    let before = probes(&agent.scrape()?, "kept");
    // A bad file changes nothing, and is named.
    let mut bad = both.clone();
    bad.body += "[defaults]\ninterval = \"soon\"\n";
    agent.reload(bench, &bad)?;
    wait_for_some("it is told", SOON, || Ok(agent.log()?.contains("defaults.interval").then_some(())))?;
    ensure!(words::sick(&agent.scrape()?, "out", "io_error")?);
    // What is not wanted any more is gone, with every series of it.
    agent.reload(bench, &one)?;
    let scrape =
        agent.wait_scrape("it is gone", |scrape| Ok(!words::volumes(scrape).contains(&"out".to_owned())))?;
    ensure!(!mentions(&agent.get("/metrics")?.body, "out"), "{}", scrape.summary());
    ensure!(probes(&scrape, "kept") >= before, "a counter went down");
    ensure!(agent.get("/api/v1/volumes/out")?.status == 404);
    // And it comes back.
    agent.reload(bench, &both)?;
    agent.wait_degraded("out", "io_error")?;
    agent.reload(bench, &one)?;
    agent
        .wait_scrape("it is gone again", |scrape| Ok(!words::volumes(scrape).contains(&"out".to_owned())))?;
    agent.terminate(SOON)?;
    let agent = Agent::start_with(bench, &one)?;
    agent.wait_state("kept", "healthy")?;
    ensure!(!mentions(&agent.get("/metrics")?.body, "out"));
    Ok(())
}

fn probes(scrape: &Scrape, volume: &str) -> f64 {
    scrape.sum("mountie_probe_total", &[("volume", volume)])
}

fn mentions(metrics: &str, volume: &str) -> bool {
    metrics.contains(&format!("volume=\"{volume}\""))
}

/// One cannot be looked at, one is missing, one vanished while no agent ran.
fn after_a_start(bench: &mut Bench) -> Result<()> {
    let hung = Injector::start(bench, "hung", "here")?;
    let gone: PathBuf = bench.make_directory("gone")?;
    mount_tmpfs(&gone, "size=64k")?;
    let patient = Volume::at("hung", hung.mountpoint()).set("interval", "300ms").set("deadline", "8s");
    let body = [patient.to_toml(), watched("gone", &gone).to_toml()].concat();
    let setup = Setup::new(bench, &body)?;
    let mut agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("hung", "healthy")?;
    agent.wait_state("gone", "healthy")?;
    agent.terminate(SOON)?;
    unmount_when_free(&gone)?;
    hung.set(&Mode::hang_all())?;
    let lines = table()?.len();
    let mut agent = Agent::spawn(bench, &setup)?;
    let first = wait_for_some("the first scrape", SOON, || agent.scrape().map(Some)).context("no answer")?;
    for volume in ["hung", "gone"] {
        ensure!(!words::healthy(&first, volume)?, "{volume}: {}", first.summary());
    }
    agent.wait_degraded("gone", "missing")?;
    let scrape = agent.scrape()?;
    ensure!(is_in_state(&scrape, "hung", "unknown")? || words::sick(&scrape, "hung", "hung")?);
    hung.set(&Mode::Ok)?;
    agent.wait_ready()?;
    agent.wait_state("hung", "healthy")?;
    // The first start may make the private place.
    ensure!(table()?.len() == lines, "the agent mounts something at each start");
    Ok(())
}
