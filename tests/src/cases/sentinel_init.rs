//! `mountie sentinel init`: written once, by a worker, on the mounted volume alone; remembered, and judged by.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, Volume, run_binary};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::mnt_ns::{bind, detach, make_bind_readonly};
use integration_tests::harness::needs::Need;
use nix::errno::Errno;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse];
const TIMEOUT: Duration = Duration::from_secs(150);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_sentinel_is_written_pinned_and_remembered_across_a_restart",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: remembered,
    },
    Case {
        name: "a_sentinel_is_not_written_where_it_cannot_be_or_must_not",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: refused,
    },
    Case {
        name: "only_root_may_have_a_sentinel_written",
        needs: &[Need::Root, Need::Fuse, Need::Tool("python3")],
        timeout: TIMEOUT,
        run: only_root,
    },
];

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat()
}

fn init(agent: &Agent, more: &[&str]) -> Result<(Option<i32>, String)> {
    let output = agent.command(&[&["sentinel", "init", "v"], more].concat())?;
    Ok((output.status.code(), text(&output)))
}

fn body(injector: &Injector) -> String {
    Volume::at("v", injector.mountpoint()).set("interval", "200ms").set("deadline", "2s").to_toml()
}

fn remembered(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let mut agent = Agent::start(bench, &body(&injector))?;
    agent.wait_state("v", "healthy")?;
    // The injector has a `.mountie` of its own.
    let (code, said) = init(&agent, &[])?;
    ensure!(code == Some(64) && said.contains("--adopt"), "{code:?} {said}");
    let (code, said) = init(&agent, &["--path", "id"])?;
    ensure!(code == Some(0), "{code:?} {said}");
    let file = injector.mountpoint().join("id");
    let content = fs::read_to_string(&file).context("no sentinel")?;
    let line = format!("sentinel = {{ path = \"id\", content = \"{}\" }}", content.trim_end());
    ensure!(content.starts_with("mountie-") && said.contains(&line), "{content} {said}");
    let (code, said) = init(&agent, &["--path", "id", "--content", content.trim_end()])?;
    ensure!(code == Some(0) && said.contains("already, with the same content"), "{code:?} {said}");

    // What is printed is a configuration.
    let printed = format!("{}{line}\n", body(&injector));
    let config = bench.write("printed.toml", printed.as_bytes())?;
    fs::set_permissions(&config, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let checked = run_binary(&["check-config", &config.display().to_string()])?;
    ensure!(checked.status.success(), "{}", text(&checked));

    agent.terminate(SOON)?;
    let mut agent = Agent::start(bench, &body(&injector))?;
    agent.wait_state("v", "healthy")?;
    fs::write(&file, "another volume\n")?;
    agent.wait_state("v", "suspect")?;
    let described = text(&agent.command(&["describe", "v"])?);
    ensure!(described.contains("sentinel"), "{described}");
    let (code, said) = init(&agent, &["--path", "id", "--adopt"])?;
    ensure!(code == Some(0) && said.contains("content = \"another volume\""), "{code:?} {said}");
    agent.wait_state("v", "healthy")?;

    // What is forgotten is not judged by any more, nor kept.
    let forgotten = agent.command(&["state", "forget", "v"])?;
    ensure!(forgotten.status.success(), "{}", text(&forgotten));
    fs::write(&file, "a third one\n")?;
    let probed = agent.command(&["probe", "v"])?;
    ensure!(probed.status.success(), "{}", text(&probed));
    agent.wait_state("v", "healthy")?;
    agent.terminate(SOON)?;
    let kept = fs::read_to_string(bench.path("state").join("sentinels.json")).context("no sentinels")?;
    ensure!(!kept.contains("\"volume\""), "{kept}");
    Ok(())
}

fn refused(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let mut agent = Agent::start(bench, &body(&injector))?;
    agent.wait_state("v", "healthy")?;
    let place = injector.mountpoint().join("id");
    for (errno, word) in [(Errno::EROFS, "read-only"), (Errno::ENOSPC, "full"), (Errno::EDQUOT, "quota")] {
        injector.set(&Mode::fail(errno, &["create", "write"]))?;
        let (code, said) = init(&agent, &["--path", "id"])?;
        ensure!(code == Some(1) && said.contains(word) && said.contains("`id` on `v`"), "{code:?} {said}");
    }
    injector.set(&Mode::Ok)?;
    ensure!(fs::symlink_metadata(&place).is_err(), "something was left behind");
    for (path, code) in [("../id", 64), ("no/id", 1)] {
        let (found, said) = init(&agent, &["--path", path])?;
        ensure!(found == Some(code), "{path}: {found:?} {said}");
    }
    let output = agent.command(&["sentinel", "init", "nothing"])?;
    ensure!(output.status.code() == Some(64) && text(&output).contains("no volume `nothing`"));

    // Not on a bare directory, and not on what is mounted there instead.
    detach(injector.mountpoint())?;
    agent.wait_degraded("v", "missing")?;
    let (code, said) = init(&agent, &["--path", "id"])?;
    ensure!(code == Some(1) && said.contains("not mounted"), "{code:?} {said}");
    ensure!(fs::symlink_metadata(&place).is_err(), "a bare directory was written to");

    injector.mount(&[])?;
    agent.wait_state("v", "healthy")?;
    injector.set(&Mode::hang_all())?;
    agent.wait_degraded("v", "hung")?;
    let (code, said) = init(&agent, &["--path", "id"])?;
    ensure!(code == Some(1) && said.contains("hangs"), "{code:?} {said}");
    injector.set(&Mode::Ok)?;
    agent.wait_state("v", "healthy")?;
    agent.terminate(SOON)?;

    let copy = bench.make_directory("copy")?;
    bind(injector.mountpoint(), &copy)?;
    make_bind_readonly(&copy)?;
    let volume = Volume::at("v", &copy).set("interval", "200ms").line("options = [\"bind\", \"ro\"]");
    let agent =
        Agent::start_with(bench, &Setup { name: "ro".into(), ..Setup::new(bench, &volume.to_toml())? })?;
    agent.wait_state("v", "healthy")?;
    let (code, said) = init(&agent, &["--path", "id"])?;
    ensure!(code == Some(1) && said.contains("EROFS; the volume is read-only"), "{code:?} {said}");
    Ok(())
}

fn only_root(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let agent = Agent::start(bench, &body(&injector))?;
    agent.wait_state("v", "healthy")?;
    // Even one who was let in at the socket by mistake.
    let socket = std::path::Path::new("/run/mountie/mountie.sock");
    fs::set_permissions(socket, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    let body = "{\"volume\":\"v\",\"path\":\"id\"}";
    let request = format!(
        "POST /api/v1/sentinel HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
        s.sendall(sys.argv[2].encode())\nwhile (d:=s.recv(4096)): sys.stdout.write(d.decode())";
    let ask = |uid: u32| -> Result<String> {
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(socket).arg(&request).uid(uid);
        Ok(text(&integration_tests::harness::process::run_within(&mut command, SOON)?))
    };
    let refused = ask(1000)?;
    ensure!(refused.contains("403") && refused.contains("only root and the agent's own user"), "{refused}");
    ensure!(fs::symlink_metadata(injector.mountpoint().join("id")).is_err(), "it was written");
    let done = ask(0)?;
    ensure!(done.contains("200 OK") && done.contains("\"outcome\":\"written\""), "{done}");
    Ok(())
}
