//! What keeps the agent from starting is said at once, in full, with the right exit code.

use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, run_binary};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::needs::Need;

const TIMEOUT: Duration = Duration::from_secs(90);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "every_configuration_error_is_listed_at_once",
        needs: &[Need::Root],
        timeout: TIMEOUT,
        run: configuration,
    },
    Case {
        name: "a_password_in_the_configuration_is_refused_and_never_shown",
        needs: &[Need::Root],
        timeout: TIMEOUT,
        run: password,
    },
    Case { name: "a_port_in_use_is_named", needs: &[Need::Root], timeout: TIMEOUT, run: port_in_use },
    Case {
        name: "a_second_agent_on_the_same_socket_is_refused",
        needs: &[Need::Root],
        timeout: TIMEOUT,
        run: second_agent,
    },
    Case { name: "clients_without_an_agent_say_so", needs: &[Need::Root], timeout: TIMEOUT, run: no_agent },
];

const BAD: &str = r#"
[defaults]
interval = "soon"
colour = "red"

[[volume]]
name = "one"
mountpoint = "relative/path"

[[volume]]
name = "two"
mountpoint = "/mnt/two"
mode = "heal"
"#;

fn configuration(bench: &mut Bench) -> Result<()> {
    let mut agent = Agent::spawn(bench, &Setup::new(bench, BAD)?)?;
    let status = agent.ended_within(SOON)?;
    let log = agent.log()?;
    ensure!(status.code() == Some(64), "ended with {status}: {log}");
    for wanted in
        ["defaults.interval", "defaults.colour", "volume[0].mountpoint", "volume[1].mode", "observe"]
    {
        ensure!(log.contains(wanted), "{wanted} is not named:\n{log}");
    }
    let file = bench.path("agent.toml").display().to_string();
    let checked = run_binary(&["check-config", &file])?;
    ensure!(checked.status.code() == Some(64), "check-config ends with {}", checked.status);
    Ok(())
}

fn password(bench: &mut Bench) -> Result<()> {
    let body =
        "[[volume]]\nname = \"v\"\nmountpoint = \"/mnt/v\"\noptions = [\"username=u\", \"password=Zx9,q\"]\n";
    let mut agent = Agent::spawn(bench, &Setup::new(bench, body)?)?;
    let status = agent.ended_within(SOON)?;
    let log = agent.log()?;
    ensure!(status.code() == Some(64) && log.contains("options"), "ended with {status}: {log}");
    ensure!(!log.contains("Zx9"), "the password is in the message: {log}");
    Ok(())
}

fn port_in_use(bench: &mut Bench) -> Result<()> {
    let mut setup = Setup::new(bench, "")?;
    let taken = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    setup.listen = taken.local_addr().context("the listener has no address")?;
    let mut agent = Agent::spawn(bench, &setup)?;
    let status = agent.ended_within(SOON)?;
    let log = agent.log()?;
    ensure!(status.code() == Some(70), "ended with {status}: {log}");
    ensure!(log.contains(&setup.listen.to_string()) && log.contains("listen"), "{log}");
    Ok(())
}

fn second_agent(bench: &mut Bench) -> Result<()> {
    let first = Setup::new(bench, "")?;
    let mut running = Agent::start_with(bench, &first)?;
    let mut second = Setup::new(bench, "")?;
    second.name = "second".to_owned();
    second.state_dir = bench.path("other-state");
    let mut refused = Agent::spawn(bench, &second)?;
    let status = refused.ended_within(SOON)?;
    ensure!(!status.success(), "two agents on one socket");
    ensure!(!refused.log()?.is_empty(), "it does not say why");
    running.must_run()?;
    ensure!(
        running.command(&["status", "-o", "json"])?.status.code() == Some(0),
        "the first no longer answers"
    );
    // A crash leaves the socket file; that must not keep the next one from starting.
    running.kill()?;
    Agent::start_with(bench, &first).map(drop)
}

fn no_agent(_: &mut Bench) -> Result<()> {
    let asked = run_binary(&["status", "--socket", "/run/mountie/mountie.sock"])?;
    ensure!(asked.status.code() == Some(69), "status ends with {}", asked.status);
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    ensure!(said.contains("/run/mountie/mountie.sock"), "{said}");
    Ok(())
}
