//! Whoever asks the agent about a hung volume gets an answer, and asking changes nothing.

use std::time::Duration;

use anyhow::{Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Volume, is_in_state};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::mnt_ns::bind;
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::Background;
use std::process::{Command, Stdio};

const NEEDS: &[Need] = &[Need::Root, Need::Fuse];

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_hung_volume_can_be_asked_about",
        needs: NEEDS,
        timeout: Duration::from_secs(120),
        run: asked,
    },
    Case {
        name: "however_many_ask_about_a_hung_volume_one_probe_is_out_and_all_are_answered",
        needs: NEEDS,
        timeout: Duration::from_secs(120),
        run: crowd,
    },
    Case {
        name: "an_unmount_in_a_storm_of_mounts_is_noticed",
        needs: NEEDS,
        timeout: Duration::from_secs(120),
        run: storm,
    },
];

fn asked(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let volume = Volume::at("v", injector.mountpoint()).sentinel("here");
    let agent = Agent::start(bench, &volume.set("interval", "1s").set("deadline", "2s").to_toml())?;
    agent.wait_state("v", "healthy")?;
    let checked = agent.get("/api/v1/volumes/v?check=true")?;
    ensure!(checked.status == 200, "a healthy volume: {checked:?}");
    ensure!(agent.command(&["probe", "v"])?.status.code() == Some(0));

    injector.set(&Mode::hang_all())?;
    agent.wait_degraded("v", "hung")?;
    // Within the time that `get` allows, and while the worker still hangs.
    let checked = agent.get("/api/v1/volumes/v?check=true")?;
    ensure!(checked.body.contains("hung"), "{checked:?}");
    for path in ["/healthz", "/metrics", "/", "/api/v1/volumes", "/api/v1/events"] {
        let answer = agent.get(path)?;
        ensure!(answer.status == 200, "{path} answers {}", answer.status);
    }
    ensure!(agent.get("/api/v1/volumes/nothing")?.status == 404);
    for command in [["probe", "v"], ["describe", "v"]] {
        let ended = agent.command(&command)?;
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        ensure!(text.contains("hung"), "{command:?}: {text}");
    }
    ensure!(agent.command(&["status"])?.status.code() == Some(1));
    Ok(())
}

/// How many ask at the same time.
const CROWD: usize = 40;

fn crowd(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    // A second mount of the same superblock, as a volume of its own.
    let copy = bench.make_directory("copy")?;
    bind(injector.mountpoint(), &copy)?;
    let volume = |name, place| Volume::at(name, place).set("interval", "60s").set("deadline", "1s").to_toml();
    let agent = Agent::start(bench, &[volume("v", injector.mountpoint()), volume("w", &copy)].concat())?;
    agent.wait_state("v", "healthy")?;
    agent.wait_state("w", "healthy")?;
    injector.set(&Mode::hang_all())?;
    let answers = std::thread::scope(|scope| {
        let ask = |number: usize| {
            let path = if number.is_multiple_of(2) { "/api/v1/volumes/v" } else { "/api/v1/volumes/w" };
            agent.get(&format!("{path}?check=true"))
        };
        let asking: Vec<_> = (0..CROWD).map(|number| scope.spawn(move || ask(number))).collect();
        asking.into_iter().map(|one| one.join()).collect::<Vec<_>>()
    });
    for answer in answers {
        let answer = answer.map_err(|_| anyhow::anyhow!("a caller panicked"))??;
        ensure!(matches!(answer.status, 200 | 504), "{answer:?}");
    }
    let held = injector.held()?;
    ensure!(held.values().sum::<u64>() == 1, "more than one probe is out: {held:?}");
    // Whichever was looked at first; the other stands behind it.
    let scrape = agent.wait_scrape("one of them is degraded", |scrape| {
        Ok(is_in_state(scrape, "v", "degraded")? || is_in_state(scrape, "w", "degraded")?)
    })?;
    for name in ["v", "w"] {
        let stuck = scrape.value("mountie_probe_stuck_seconds", &[("volume", name)])?;
        ensure!(stuck > 0.0, "{name}: the look that stands in the way is not shown");
    }
    injector.set(&Mode::Ok)?;
    agent.wait_state("v", "healthy")?;
    agent.wait_state("w", "healthy").map(drop)
}

/// Mounts and unmounts as fast as `mount` can, beside a volume that goes away once.
fn storm(bench: &mut Bench) -> Result<()> {
    let place = bench.make_directory("place")?;
    let script = "while :; do mount -t tmpfs storm \"$1\" && umount \"$1\"; done";
    let child = Command::new("sh").args(["-c", script, "sh"]).arg(&place).stdin(Stdio::null()).spawn()?;
    let _storm = Background(child);
    let injector = Injector::start(bench, "volume", "here")?;
    let volume = Volume::at("v", injector.mountpoint()).sentinel("here");
    let mut agent = Agent::start(bench, &volume.set("interval", "60s").to_toml())?;
    for _ in 0..3 {
        agent.wait_state("v", "healthy")?;
        integration_tests::harness::mnt_ns::detach(injector.mountpoint())?;
        agent.wait_degraded("v", "missing")?;
        injector.mount(&[])?;
    }
    agent.wait_state("v", "healthy")?;
    let dropped = agent.scrape()?.value("mountie_mount_table_bad_lines_total", &[])?;
    ensure!(dropped == 0.0, "{dropped} lines did not parse");
    agent.terminate(SOON).map(drop)
}
