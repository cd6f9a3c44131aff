//! What people order by hand: pauses that outlive the agent, a remount told step by step, and what is kept of volumes.

use std::fs;
use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, STAGE, Setup, Volume, run_binary, toml_string};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::bindfs::{self, Bindfs};
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector};
use integration_tests::harness::json::part;
use integration_tests::harness::mnt_ns::{detach, mounts_below, only_mount_at};
use integration_tests::harness::needs::Need;
use integration_tests::harness::wait::{is_there, wait_for, wait_for_some};
use serde_json::Value;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse];
const TIMEOUT: Duration = Duration::from_secs(240);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_paused_volume_is_not_repaired_until_it_is_resumed_also_by_the_next_agent",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: paused,
    },
    Case {
        name: "a_remount_by_hand_is_told_step_by_step_and_carried_out_in_observe_mode",
        needs: &[Need::Root, Need::Fuse, Need::Tool("bindfs")],
        timeout: TIMEOUT,
        run: by_hand,
    },
    Case {
        name: "what_is_kept_is_shown_without_an_agent_and_forgotten_with_and_without_one",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: kept,
    },
    Case {
        name: "a_found_volume_that_went_while_the_agent_was_away_is_missing_and_observed_only",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: went,
    },
];

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat()
}

/// Runs a command, which must end with this code, and returns what it said.
fn said(agent: &Agent, words: &[&str], code: i32) -> Result<String> {
    let output = agent.command(words)?;
    let said = text(&output);
    ensure!(output.status.code() == Some(code), "{words:?} ended with {}: {said}", output.status);
    Ok(said)
}

fn json(agent: &Agent, path: &str) -> Result<Value> {
    let answer = agent.get(path)?;
    serde_json::from_str(&answer.body).with_context(|| answer.body.clone())
}

fn quiet(volume: Volume) -> String {
    let volume = volume.set("interval", "200ms").set("deadline", "2s");
    format!("[kernel]\nfamily = \"off\"\n{}", volume.to_toml())
}

fn paused(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let mut command = injector.command()?;
    command.push("{target}".to_owned());
    let volume = Volume::at("v", injector.mountpoint())
        .sentinel("here")
        .set("source", "injector")
        .set("fstype", FSTYPE)
        .repaired_by(&command);
    let setup = Setup::new(bench, &quiet(volume))?;
    let agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("v", "healthy")?;
    let before = only_mount_at(injector.mountpoint())?;
    said(&agent, &["resume", "v"], 1)?;
    said(&agent, &["pause", "nonsense"], 64)?;
    said(&agent, &["pause"], 64)?;
    let answer = said(&agent, &["pause", "v", "--for", "2h", "--reason", "the filer moves"], 0)?;
    ensure!(answer.contains("paused until"), "{answer}");

    injector.kill()?;
    agent.wait_degraded("v", "disconnected")?;
    let scrape = agent.wait_probes("v", 5.0)?;
    ensure!(scrape.sum("mountie_remediation_total", &[]) == 0.0, "it was repaired");
    ensure!(scrape.value("mountie_remediation_suppressed_total", &[("cause", "paused")])? == 1.0);
    let events = json(&agent, "/api/v1/events")?;
    let is_pause = |event: &&Value| part(event, "/kind") == "pause";
    let told = part(&events, "/events").as_array().and_then(|events| events.iter().find(is_pause));
    let told = told.with_context(|| events.to_string())?;
    ensure!(part(told, "/by/uid") == 0 && part(told, "/by/comm") == "mountie", "{told}");
    agent.kill()?;

    let setup = Setup { name: "again".to_owned(), ..setup };
    let mut agent = Agent::start_with(bench, &setup)?;
    agent.wait_degraded("v", "disconnected")?;
    agent.wait_probes("v", 5.0)?;
    ensure!(only_mount_at(injector.mountpoint())? == before, "the mount was touched");
    let status = said(&agent, &["status"], 1)?;
    ensure!(status.contains("paused: v, since") && status.contains("the filer moves"), "{status}");
    let described = said(&agent, &["describe", "v"], 1)?;
    ensure!(described.contains("the filer moves"), "{described}");
    let preview = said(&agent, &["remount", "v", "--dry-run"], 1)?;
    ensure!(preview.contains("touches:") && preview.contains("would not be begun now"), "{preview}");
    let refused = said(&agent, &["remount", "v"], 1)?;
    ensure!(refused.contains("mountie resume"), "{refused}");

    said(&agent, &["resume", "v"], 0)?;
    agent.wait_state("v", "healthy")?;
    ensure!(only_mount_at(injector.mountpoint())?.device != before.device);
    agent.must_run()
}

fn by_hand(bench: &mut Bench) -> Result<()> {
    let source = bench.make_directory("source")?;
    fs::write(source.join(".mountie"), "here")?;
    let mountpoint = bench.make_directory("volume")?;
    let daemon = Bindfs::mount(&source, &mountpoint)?;
    let volume = Volume::at("v", &mountpoint)
        .sentinel("here")
        .set("source", &source.display().to_string())
        .set("fstype", bindfs::FSTYPE)
        .repaired_by_mount();
    let body = quiet(volume).replace("mode = \"act\"", "mode = \"observe\"");
    let mut agent = Agent::start(bench, &body)?;
    agent.wait_state("v", "healthy")?;
    let before = only_mount_at(&mountpoint)?;
    let serving = daemon.daemon()?;

    let preview = said(&agent, &["remount", "v", "--dry-run"], 0)?;
    for words in ["1. mount ", "touches: ", "open files stay on the old one", "nothing was done"] {
        ensure!(preview.contains(words), "no `{words}` in {preview}");
    }
    ensure!(only_mount_at(&mountpoint)? == before, "a dry run changed the mount");

    let done = said(&agent, &["remount", "v"], 0)?;
    ensure!(done.contains("  done  swap:") && done.contains("v: done, after"), "{done}");
    let after = only_mount_at(&mountpoint)?;
    ensure!(after.device != before.device, "the old superblock is still there: {after:?}");
    ensure!(fs::read(mountpoint.join(".mountie"))? == b"here");
    wait_for_some("the old daemon has ended and the stage is empty", Duration::from_secs(30), || {
        ensure!(daemon.daemon()? != serving, "it still runs");
        ensure!(mounts_below(STAGE.as_ref())?.is_empty(), "a mount is left at the stage");
        Ok(Some(()))
    })?;
    agent.wait_state("v", "healthy")?;
    let events = json(&agent, "/api/v1/events")?.to_string();
    ensure!(events.matches("\"kind\":\"remount\"").count() == 2, "its begin and its end: {events}");
    let scrape = agent.scrape()?;
    ensure!(scrape.sum("mountie_remediation_total", &[("outcome", "changed")]) == 1.0);
    agent.must_run()
}

fn kept(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let setup = Setup::new(bench, &quiet(Volume::at("v", injector.mountpoint()).sentinel("here")))?;
    let dir = setup.state_dir.display().to_string();
    let state = |words: &[&str], code: i32| -> Result<String> {
        let output = run_binary(&[&["state"], words, &["--state-dir", &dir]].concat())?;
        let said = text(&output);
        ensure!(output.status.code() == Some(code), "{words:?} ended with {}: {said}", output.status);
        Ok(said)
    };
    let agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("v", "healthy")?;
    let file = setup.state_dir.join("volumes/v.json");
    wait_for_some("it is on disk", Duration::from_secs(30), || {
        let text = fs::read_to_string(&file).context("no file")?;
        Ok(text.contains("\"wasReadable\": true").then_some(()))
    })?;
    let shown = state(&["show", "v"], 0)?;
    let place = injector.mountpoint().display().to_string();
    for words in [place.as_str(), "configuration", FSTYPE, "options", "rw"] {
        ensure!(shown.contains(words), "no `{words}` in {shown}");
    }
    agent.kill()?;

    let exported: Value = serde_json::from_str(&state(&["export"], 0)?)?;
    ensure!(part(&exported, "/volumes/0/apiVersion") == "mountie/v2", "{exported}");
    ensure!(part(&exported, "/volumes/0/mounted/fstype") == FSTYPE, "{exported}");
    ensure!(state(&["show", "-o", "yaml"], 0)?.contains("kind: State"));
    state(&["show", "x"], 64)?;
    state(&["forget", "v", "--socket", "/nowhere"], 0)?;
    ensure!(!is_there(&file), "the file is still there");
    state(&["forget", "v", "--socket", "/nowhere"], 64)?;

    let setup = Setup { name: "again".to_owned(), ..setup };
    let mut agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("v", "healthy")?;
    // Behind the back of an agent nothing is forgotten; by the agent it is.
    state(&["forget", "v", "--socket", "/nowhere"], 69)?;
    said(&agent, &["state", "forget", "v"], 0)?;
    agent.wait_state("v", "healthy")?;
    wait_for("it is told", SOON, || {
        json(&agent, "/api/v1/events").is_ok_and(|told| told.to_string().contains("\"kind\":\"forget\""))
    })?;
    agent.must_run()
}

fn went(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let place = injector.mountpoint().display().to_string();
    let discovery = format!(
        "[discovery]\nenabled = true\ninclude = [{{ mountpoint = {} }}]\n[defaults]\nmode = \"act\"\ninterval = \"200ms\"\n\
         [kernel]\nfamily = \"off\"\n",
        toml_string(&place)
    );
    let setup = Setup::new(bench, &discovery)?;
    let agent = Agent::start_with(bench, &setup)?;
    agent.wait_state(&place, "healthy")?;
    wait_for_some("it is on disk", Duration::from_secs(30), || {
        let files = fs::read_dir(setup.state_dir.join("volumes")).context("no directory")?;
        Ok(files.flatten().any(|file| file.path().extension().is_some_and(|end| end == "json")).then_some(()))
    })?;
    agent.kill()?;
    detach(injector.mountpoint())?;

    let setup = Setup { name: "again".to_owned(), ..setup };
    let mut agent = Agent::start_with(bench, &setup)?;
    agent.wait_degraded(&place, "missing")?;
    let described = said(&agent, &["describe", &place], 1)?;
    ensure!(
        described.contains("observed only") && described.contains("name it in the configuration"),
        "{described}"
    );
    said(&agent, &["remount", &place, "--dry-run"], 64)?;
    injector.mount(&[])?;
    agent.wait_state(&place, "healthy")?;
    agent.kill()?;
    detach(injector.mountpoint())?;

    let setup = Setup { name: "third".to_owned(), ..setup };
    agent = Agent::start_with(bench, &setup)?;
    agent.wait_degraded(&place, "missing")?;
    said(&agent, &["state", "forget", &place], 0)?;
    // What is shown follows a moment after the answer.
    wait_for("it is not shown any more", SOON, || said(&agent, &["describe", &place], 64).is_ok())?;
    ensure!(agent.scrape()?.sum("mountie_remediation_total", &[]) == 0.0, "it was repaired");
    agent.must_run()
}
