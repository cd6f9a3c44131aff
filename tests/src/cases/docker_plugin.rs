//! Docker asks about volumes, and is told the truth within a deadline.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, Volume, toml_string};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::http;
use integration_tests::harness::json::part;
use integration_tests::harness::needs::Need;
use serde_json::Value;

pub(crate) const CASES: &[Case] = &[Case {
    name: "docker_is_told_how_volumes_are_also_while_they_hang",
    needs: &[Need::Root, Need::Fuse],
    timeout: Duration::from_secs(120),
    run: asked,
}];

/// Asks as Docker's daemon does.
fn ask(socket: &Path, question: &str, body: &str) -> Result<(u16, Value)> {
    let answer = http::post(socket, question, body, SOON)?;
    let value = serde_json::from_str(&answer.body).with_context(|| answer.body.clone())?;
    Ok((answer.status, value))
}

fn asked(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let volume =
        Volume::at("v", injector.mountpoint()).sentinel("here").set("interval", "60s").set("deadline", "2s");
    let mut setup = Setup::new(bench, &volume.to_toml())?;
    let socket = bench.path("plugins/mountie.sock");
    setup.agent_lines = format!("docker_plugin = {}\n", toml_string(&socket.display().to_string()));
    let mut agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("v", "healthy")?;
    let mode = fs::symlink_metadata(&socket)?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "{mode:o}");

    ensure!(part(&ask(&socket, "/Plugin.Activate", "")?.1, "/Implements/0") == "VolumeDriver");
    ensure!(part(&ask(&socket, "/VolumeDriver.Capabilities", "{}")?.1, "/Capabilities/Scope") == "local");
    let (_, list) = ask(&socket, "/VolumeDriver.List", "{}")?;
    ensure!(part(&list, "/Volumes/0/Name") == "v" && part(&list, "/Volumes/1").is_null(), "{list}");
    let get = || ask(&socket, "/VolumeDriver.Get", "{\"Name\":\"v\"}");
    let looked = |told: &Value| part(told, "/Volume/Status/Checked") == true;
    let (status, told) = get()?;
    let place = injector.mountpoint().display().to_string();
    ensure!(status == 200 && looked(&told) && part(&told, "/Volume/Mountpoint") == place.as_str(), "{told}");
    ensure!(part(&told, "/Volume/Status/State") == "healthy", "{told}");

    // Nobody has looked for as long as the interval lasts: the question itself finds it out.
    injector.set(&Mode::fail_all(nix::errno::Errno::EIO))?;
    let (_, told) = get()?;
    ensure!(looked(&told) && part(&told, "/Volume/Status/State") != "healthy", "{told}");
    injector.set(&Mode::Ok)?;
    agent.wait_state("v", "healthy")?;
    injector.set(&Mode::hang_all())?;
    let (status, told) = get()?;
    ensure!(status == 200 && !looked(&told) && part(&told, "/Volume/Name") == "v", "{told}");
    agent.wait_degraded("v", "hung")?;
    let (_, told) = get()?;
    ensure!(part(&told, "/Volume/Status/Sick") == true, "{told}");
    ensure!(part(&told, "/Volume/Status/Reason") == "hung", "{told}");

    let (status, told) = ask(&socket, "/VolumeDriver.Mount", "{\"Name\":\"v\",\"ID\":\"1\"}")?;
    ensure!(
        status == 500 && part(&told, "/Err").as_str().is_some_and(|why| why.contains("only tells")),
        "{told}"
    );
    injector.set(&Mode::Ok)?;
    agent.wait_state("v", "healthy")?;
    agent.terminate(SOON)?;
    ensure!(fs::symlink_metadata(&socket).is_err(), "the daemon would ask an agent that is no more");
    Ok(())
}
