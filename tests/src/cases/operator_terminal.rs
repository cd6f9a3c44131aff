//! What people see who sit at a terminal: a status that is drawn anew, and events that go on across a restart.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::json::part;
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::Background;
use integration_tests::harness::wait::wait_for;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;
use serde_json::Value;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_status_that_is_watched_is_drawn_within_its_window_and_leaves_the_terminal_as_it_was",
        needs: &[Need::Root, Need::Fuse, Need::Tool("script")],
        timeout: Duration::from_secs(150),
        run: watched,
    },
    Case {
        name: "events_that_are_followed_go_on_after_a_restart_and_none_is_shown_twice",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(240),
        run: followed,
    },
    Case {
        name: "a_status_that_is_watched_behind_a_shell_draws_only_while_it_has_the_terminal",
        needs: &[Need::Root, Need::Fuse, Need::Tool("script"), Need::Tool("bash")],
        timeout: Duration::from_secs(150),
        run: in_the_background,
    },
    Case {
        name: "events_that_are_followed_end_with_their_reader_and_when_they_are_told_to",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(150),
        run: unread,
    },
];

/// Rows and columns of the terminal: three volumes and their heads do not fit.
const WINDOW: (usize, usize) = (4, 40);

/// What a program has written so far.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    /// Reads on in a thread of its own, which ends with the program.
    fn of(mut from: impl Read + Send + 'static) -> Self {
        let written = Self::default();
        let into = written.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                let read = bytes.get(..count).unwrap_or_default();
                into.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(read);
            }
        });
        written
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    fn until(&self, wanted: &str) -> Result<()> {
        wait_for(&format!("`{wanted}` is written"), SOON, || self.text().contains(wanted))
            .with_context(|| self.text())
    }
}

/// A command of the agent's own binary, on a terminal of this size, with a keyboard.
fn on_terminal(agent: &Agent, setup: &Setup, arguments: &str) -> Result<Child> {
    at_keyboard(&format!("exec /proc/{}/exe {arguments} --socket {}", agent.id(), setup.socket.display()))
}

/// What a shell does at such a terminal.
fn at_keyboard(line: &str) -> Result<Child> {
    let (rows, columns) = WINDOW;
    let line = format!("stty rows {rows} cols {columns}; {line}");
    Command::new("script")
        .args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"])
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start script(1)")
}

fn watched(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let others = ["another", "third"].map(|name| {
        let place = bench.make_directory(name);
        place.map(|place| Volume::at(name, &place).set("interval", "5s").to_toml())
    });
    let mut body =
        Volume::at("a", injector.mountpoint()).set("interval", "200ms").set("deadline", "2s").to_toml();
    for other in others {
        body.push_str(&other?);
    }
    let setup = Setup::new(bench, &format!("[kernel]\nfamily = \"off\"\n{body}"))?;
    let agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("a", "healthy")?;

    let mut terminal = on_terminal(&agent, &setup, "status --watch")?;
    let mut keyboard = terminal.stdin.take().context("no keyboard")?;
    let screen = Written::of(terminal.stdout.take().context("no screen")?);
    let mut terminal = Background(terminal);
    screen.until("\x1b[32mhealthy\x1b[0m")?;
    injector.set(&Mode::fail_all(Errno::EIO))?;
    screen.until("\x1b[31mdegraded\x1b[0m")?;
    // As Ctrl-C does it.
    keyboard.write_all(b"\x03")?;
    keyboard.flush()?;
    let status = terminal.ended_within(SOON)?;
    ensure!(status.code() == Some(1), "it ended with {status}, and a volume was sick: {}", screen.text());
    let text = screen.text();
    let (enter, leave) = ("\x1b[?1049h", "\x1b[?25h\x1b[?1049l");
    ensure!(text.matches(enter).count() == 1 && text.matches(leave).count() == 1, "{text:?}");
    ensure!(text.trim_end().ends_with(leave), "{text:?}");
    for picture in text.split("\x1b[H").skip(1) {
        let lines: Vec<String> = picture.split('\n').map(bare).collect();
        ensure!(lines.len() <= WINDOW.0, "{} lines: {picture:?}", lines.len());
        let widest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        ensure!(widest <= WINDOW.1, "{widest} columns: {picture:?}");
    }
    ensure!(text.contains("more lines"), "{text:?}");

    // Into a pipe: no control sequence, whatever the terminal says.
    let piped = agent.command(&["status"])?;
    ensure!(!piped.stdout.contains(&0x1b), "{:?}", String::from_utf8_lossy(&piped.stdout));
    let names = agent.command(&["status", "-o", "name"])?;
    ensure!(names.stdout == b"a\nanother\nthird\n", "{:?}", String::from_utf8_lossy(&names.stdout));
    Ok(())
}

/// A line without control sequences, as it is seen.
fn bare(line: &str) -> String {
    let mut out = String::new();
    for (at, part) in line.trim_end_matches('\r').split('\x1b').enumerate() {
        let visible = if at == 0 {
            part
        } else {
            part.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, rest)| rest)
        };
        out.push_str(visible);
    }
    out
}

/// A volume that is well, and an agent that looks at it so often and has no kernel programs.
fn well(bench: &Bench, interval: &str) -> Result<(Injector, Setup, Agent)> {
    let injector = Injector::start(bench, "volume", "here")?;
    let volume =
        Volume::at("v", injector.mountpoint()).set("interval", interval).set("deadline", "2s").to_toml();
    let setup = Setup::new(bench, &format!("[kernel]\nfamily = \"off\"\n{volume}"))?;
    let agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("v", "healthy")?;
    Ok((injector, setup, agent))
}

fn followed(bench: &mut Bench) -> Result<()> {
    let (injector, setup, agent) = well(bench, "200ms")?;
    let mut follower = Command::new(format!("/proc/{}/exe", agent.id()))
        .args(["events", "--follow", "-o", "json", "--socket"])
        .arg(&setup.socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the follower")?;
    let told = Written::of(follower.stderr.take().context("no stderr")?);
    let shown = Written::of(follower.stdout.take().context("no stdout")?);
    let mut follower = Background(follower);
    injector.set(&Mode::fail_all(Errno::EIO))?;
    shown.until("\"to\":\"degraded\"")?;
    agent.kill()?;
    told.until("waiting for it")?;

    injector.set(&Mode::Ok)?;
    let again = Setup { name: "again".to_owned(), ..setup };
    let agent = Agent::start_with(bench, &again)?;
    agent.wait_state("v", "healthy")?;
    told.until("answers again")?;
    let last: Value = serde_json::from_str(&agent.get("/api/v1/events")?.body)?;
    let last = part(&last, "/last").as_str().context("no last event")?.to_owned();
    shown.until(&last)?;
    follower.signal(Signal::SIGTERM)?;
    let status = follower.ended_within(SOON)?;
    ensure!(status.success(), "it ended with {status}");

    let text = shown.text();
    let mut ids = Vec::new();
    let mut lost = 0;
    for line in BufReader::new(text.as_bytes()).lines() {
        let event: Value = serde_json::from_str(&line?)?;
        if part(&event, "/kind") == "lost" {
            lost += 1;
        } else {
            ids.push(part(&event, "/id").as_str().context("no id")?.to_owned());
        }
    }
    ensure!(lost == 1, "the restart is told {lost} times: {text}");
    let all: Value = serde_json::from_str(&agent.get("/api/v1/events")?.body)?;
    let all = part(&all, "/events").as_array().context("no events")?;
    for event in all {
        let id = part(event, "/id").as_str().context("no id")?;
        let count = ids.iter().filter(|shown| *shown == id).count();
        ensure!(count == 1, "{id} is shown {count} times: {text}");
    }
    Ok(())
}

/// What has begun to draw.
const DRAWN: &str = "\x1b[?1049h";

fn in_the_background(bench: &mut Bench) -> Result<()> {
    let (injector, setup, agent) = well(bench, "100ms")?;
    let watch = format!("/proc/{}/exe status --watch --socket {}", agent.id(), setup.socket.display());
    let jobs = format!("set -m\n{watch} &\necho it has begun\nread -r line\nfg %1\n");
    let jobs = bench.write("jobs.sh", jobs.as_bytes())?;
    let mut terminal = at_keyboard(&format!("exec bash {}", jobs.display()))?;
    let mut keyboard = terminal.stdin.take().context("no keyboard")?;
    let screen = Written::of(terminal.stdout.take().context("no screen")?);
    let mut terminal = Background(terminal);
    screen.until("it has begun")?;
    injector.set(&Mode::fail_all(Errno::EIO))?;
    agent.wait_state("v", "degraded")?;
    agent.wait_probes("v", 20.0)?;
    ensure!(!screen.text().contains(DRAWN), "it draws where others type: {:?}", screen.text());
    keyboard.write_all(b"\n")?;
    screen.until(DRAWN)?;
    screen.until("\x1b[31mdegraded\x1b[0m")?;
    // As Ctrl-C does it.
    keyboard.write_all(b"\x03")?;
    let status = terminal.ended_within(SOON)?;
    ensure!(status.code() == Some(1), "it ended with {status}: {}", screen.text());
    Ok(())
}

/// A command that follows what happens from now on, and writes to here.
fn follower(agent: &Agent, setup: &Setup, out: impl Into<Stdio>) -> Result<Background> {
    let child = Command::new(format!("/proc/{}/exe", agent.id()))
        .args(["events", "--follow", "-n", "0", "-o", "json", "--socket"])
        .arg(&setup.socket)
        .stdout(out)
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the follower")?;
    let id = child.id();
    let child = Background(child);
    // It has a thread for its end when it listens.
    wait_for("it follows", SOON, || {
        let tasks = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
        tasks.filter_map(|task| fs::read(task.path().join("comm")).ok()).any(|name| name == b"end\n")
    })?;
    Ok(child)
}

fn unread(bench: &mut Bench) -> Result<()> {
    let (injector, setup, agent) = well(bench, "100ms")?;

    let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC).context("no pipe")?;
    let mut left = follower(&agent, &setup, writer)?;
    drop(reader);
    let status = left.ended_within(SOON)?;
    ensure!(status.success(), "nothing happens, nobody reads, and it ended with {status}");

    // Somebody holds the other end and reads nothing; there is no room for what happens.
    let (_reader, writer) = nix::unistd::pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).context("no pipe")?;
    let mut full = File::from(writer);
    while full.write(&[b'x'; 4096]).is_ok() {}
    while full.write(b"x").is_ok() {}
    fcntl(&full, FcntlArg::F_SETFL(OFlag::empty())).context("the pipe does not wait")?;
    let mut stuck = follower(&agent, &setup, full)?;
    injector.set(&Mode::fail_all(Errno::EIO))?;
    wait_for("it waits in a write", SOON, || {
        let call = fs::read_to_string(format!("/proc/{}/syscall", stuck.id())).unwrap_or_default();
        call.split(' ').nth(1) == Some("0x1")
    })?;
    stuck.signal(Signal::SIGTERM)?;
    let status = stuck.ended_within(SOON)?;
    ensure!(status.code() == Some(128 + Signal::SIGTERM as i32), "it ended with {status}");
    Ok(())
}
