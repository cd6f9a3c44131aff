//! The operator's hook is asked before a repair, and what it says is done.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Volume, toml_string};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector, Mode};
use integration_tests::harness::mnt_ns::only_mount_at;
use integration_tests::harness::needs::Need;
use integration_tests::harness::scrape::Scrape;
use integration_tests::harness::wait::{wait_for, wait_for_some};
use integration_tests::harness::words;
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(180);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_repair_waits_while_the_hook_says_so_and_begins_when_it_agrees",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: waits_then_agrees,
    },
    Case {
        name: "a_hook_over_http_that_fails_is_asked_again_and_may_hand_over_to_a_person",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: escalates,
    },
    Case {
        name: "a_hook_whose_path_hangs_holds_up_nobody_and_counts_as_a_wait",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: path_hangs,
    },
];

/// The script that operators begin with.
const EXAMPLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/config/ask.example.sh"));

fn asked(injector: &Injector, hook: &str) -> Result<String> {
    let mut command = injector.command()?;
    command.push("{target}".to_owned());
    let volume = Volume::at("v", injector.mountpoint())
        .set("source", "injector")
        .set("fstype", FSTYPE)
        .set("interval", "500ms")
        .set("deadline", "2s")
        .repaired_by(&command);
    Ok(volume.to_toml() + "hook = " + hook + "\n")
}

fn held_by_hook(scrape: &Scrape) -> f64 {
    scrape.sum("mountie_remediation_suppressed_total", &[("cause", "hook")])
}

fn describe(agent: &Agent) -> Result<String> {
    Ok(String::from_utf8_lossy(&agent.command(&["describe", "v"])?.stdout).into_owned())
}

fn events(agent: &Agent) -> Result<String> {
    Ok(agent.get("/api/v1/events")?.body)
}

fn waits_then_agrees(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let example = bench.write("ask.sh", EXAMPLE.as_bytes())?;
    let maintenance = bench.write("maintenance", b"")?;
    let evidence = bench.path("evidence");
    let script = format!("tee {} | sh {} {} 1", evidence.display(), example.display(), maintenance.display());
    let script = bench.write("hook.sh", script.as_bytes())?;
    let hook = format!("{{ exec = [\"/bin/sh\", \"{}\"], timeout = \"60s\" }}", script.display());
    let mut agent = Agent::start(bench, &asked(&injector, &hook)?)?;
    agent.wait_state("v", "healthy")?;
    let before = only_mount_at(injector.mountpoint())?;
    injector.kill()?;
    let scrape = agent.wait_scrape("the hook puts it off", |scrape| Ok(held_by_hook(scrape) >= 2.0))?;
    ensure!(scrape.sum("mountie_remediation_total", &[]) == 0.0, "it acted without leave");
    ensure!(only_mount_at(injector.mountpoint())? == before, "the mount was touched");
    let text = describe(&agent)?;
    ensure!(text.contains("wait: maintenance") && text.contains("held back"), "{text}");

    let question: Value = serde_json::from_slice(&fs::read(&evidence)?).context("no evidence")?;
    let at = |path: &str| question.pointer(path).cloned().unwrap_or_default();
    ensure!(at("/apiVersion") == "mountie/v1" && at("/kind") == "RepairQuestion", "{question}");
    ensure!(at("/volume/id") == "v" && at("/volume/reason") == "disconnected", "{question}");
    ensure!(at("/volume/state") == "degraded" && at("/plan/method") == "command", "{question}");
    ensure!(at("/plan/steps").as_array().is_some_and(|steps| steps.len() >= 4), "{question}");
    ensure!(at("/put_off_at_most") == 10, "{question}");

    fs::remove_file(&maintenance)?;
    agent.wait_scrape("it is repaired", |scrape| Ok(words::repairs(scrape, "v", "changed") == 1.0))?;
    agent.wait_state("v", "healthy")?;
    let told = events(&agent)?;
    ensure!(told.contains("the hook says wait: maintenance"), "{told}");
    ensure!(told.contains("the hook says remount"), "{told}");
    agent.must_run()
}

/// Answers one request after the other, and hands out their bodies.
fn serve(listener: TcpListener, answers: Vec<&'static str>, heard: mpsc::Sender<String>) -> Result<()> {
    for answer in answers {
        let (mut stream, _) = listener.accept()?;
        let mut request = Vec::new();
        // The evidence ends with the only line end of the body.
        while !request.ends_with(b"}\n") {
            let mut piece = [0; 4096];
            let count = stream.read(&mut piece)?;
            ensure!(count > 0, "the request ends early");
            request.extend_from_slice(piece.get(..count).unwrap_or_default());
        }
        stream.write_all(answer.as_bytes())?;
        heard.send(String::from_utf8_lossy(&request).into_owned())?;
    }
    Ok(())
}

fn escalates(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let hook = format!("{{ url = \"http://{}/ask\", timeout = \"60s\" }}", listener.local_addr()?);
    let (sender, heard) = mpsc::channel();
    let answers = vec![
        "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"answer\":\"escalate\",\"text\":\"another node writes there\"}",
    ];
    let server = std::thread::spawn(move || serve(listener, answers, sender));
    let mut agent = Agent::start(bench, &asked(&injector, &hook)?)?;
    agent.wait_state("v", "healthy")?;
    let before = only_mount_at(injector.mountpoint())?;
    injector.kill()?;
    let scrape = agent.wait_state("v", "quarantined")?;
    ensure!(scrape.sum("mountie_remediation_total", &[]) == 0.0, "it acted");
    ensure!(held_by_hook(&scrape) == 1.0, "{}", held_by_hook(&scrape));
    ensure!(only_mount_at(injector.mountpoint())? == before, "the mount was touched");
    let requests: Vec<String> = heard.iter().collect();
    ensure!(
        requests.len() == 2 && requests.iter().all(|text| text.starts_with("POST /ask ")),
        "{requests:?}"
    );
    ensure!(requests.iter().all(|text| text.contains("\"kind\":\"RepairQuestion\"")), "{requests:?}");
    let text = describe(&agent)?;
    ensure!(text.contains("another node writes there"), "{text}");
    server.join().map_err(|_| anyhow::anyhow!("the server failed"))??;
    // A person mounts it.
    integration_tests::harness::mnt_ns::detach(injector.mountpoint())?;
    injector.mount(&[])?;
    agent.wait_state("v", "healthy")?;
    agent.must_run()
}

/// Whoever starts this hook waits in the kernel, where no signal reaches it: its file lies on a mount that does not
/// answer.
fn path_hangs(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let place = Injector::start(bench, "hooks", "here")?;
    let hook = place.mountpoint().join("ask");
    fs::write(&hook, "#!/bin/sh\ncat > /dev/null\necho '{\"answer\": \"remount\"}'\n")?;
    fs::set_permissions(&hook, Permissions::from_mode(0o755))?;
    let words = format!("{{ exec = [{}], timeout = \"2s\" }}", toml_string(&hook.display().to_string()));
    let mut agent = Agent::start(bench, &asked(&injector, &words)?)?;
    agent.wait_state("v", "healthy")?;
    let before = only_mount_at(injector.mountpoint())?;
    place.set(&Mode::hang_all())?;
    injector.kill()?;
    wait_for("somebody waits for the path", SOON, || place.held().is_ok_and(|held| !held.is_empty()))?;
    let count =
        |agent: &Agent| agent.scrape().map(|scrape| scrape.sum("mountie_probe_total", &[("volume", "v")]));
    let looks = count(&agent)?;
    wait_for_some("it counts as a wait, twice", SOON, || {
        // Whoever asks meanwhile is answered.
        for page in ["/healthz", "/readyz", "/metrics", "/api/v1/volumes/v"] {
            ensure!(agent.get(page)?.status == 200, "{page}");
        }
        Ok(describe(&agent)?.contains("put off 2 times").then_some(()))
    })?;
    ensure!(!place.held()?.is_empty(), "nobody hangs, nothing is proved");
    ensure!(count(&agent)? > looks, "nothing was looked at meanwhile");
    let scrape = agent.scrape()?;
    ensure!(held_by_hook(&scrape) >= 1.0 && scrape.sum("mountie_remediation_total", &[]) == 0.0);
    ensure!(events(&agent)?.contains("the hook did not answer in time"), "{}", events(&agent)?);
    ensure!(only_mount_at(injector.mountpoint())? == before, "the mount was touched");
    agent.must_run()?;

    place.set(&Mode::Ok)?;
    agent.wait_scrape("it is repaired", |scrape| Ok(words::repairs(scrape, "v", "changed") == 1.0))?;
    agent.wait_state("v", "healthy")?;
    agent.must_run()
}
