//! However many clients are silent, slow, or follow events: a scrape is answered at once. And who is no friend of the
//! agent changes nothing, wherever they ask.

use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use integration_tests::harness::agent::{Agent, SOON, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::http;
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::run_within;
use integration_tests::harness::wait::patiently;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_crowd_of_silent_slow_and_following_clients_does_not_hold_up_a_scrape",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(150),
        run: crowd,
    },
    Case {
        name: "over_tcp_everything_is_only_read_and_the_socket_is_for_root",
        needs: &[Need::Root, Need::Fuse, Need::Tool("python3")],
        timeout: Duration::from_secs(120),
        run: strangers,
    },
];

/// Where a flood comes from: an address of the loopback that no scraper has.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const SCRAPES_IN_A_FLOOD: usize = 50;

/// What clients send who then read nothing.
const HEADS: &[&str] = &[
    "",
    "GET /metrics HTTP/1.1\r\nhost: ",
    "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n",
    "GET /api/v1/volumes HTTP/1.1\r\nhost: x\r\n\r\n",
    "GET /api/v1/volumes/v?check=true HTTP/1.1\r\nhost: x\r\n\r\n",
    "GET /api/v1/events?follow=true HTTP/1.1\r\nhost: x\r\n\r\n",
    "POST /api/v1/pause HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n{",
    "\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}\x03\x03",
];

fn crowd(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let volume = Volume::at("v", injector.mountpoint()).set("interval", "500ms").set("deadline", "2s");
    let mut agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;
    injector.set(&Mode::hang_all())?;
    agent.wait_degraded("v", "hung")?;
    let mut clients = Vec::new();
    for number in 0..400 {
        let mut client = TcpStream::connect(agent.address())?;
        // Some are refused, or shown out for others.
        let _ = HEADS.iter().cycle().nth(number).map(|head| client.write_all(head.as_bytes()));
        clients.push(client);
        if number % 10 == 9 {
            agent.scrape()?;
            ensure!(agent.get("/healthz")?.status == 200);
        }
    }
    flooded(&agent)?;
    // What was hung is looked at still, and the agent knows when it is well again.
    injector.set(&Mode::Ok)?;
    agent.wait_state("v", "healthy")?;
    drop(clients);
    agent.terminate(SOON).map(drop)
}

/// Scrapes while another address asks for metrics without an end and reads none of them.
fn flooded(agent: &Agent) -> Result<()> {
    let (address, over) = (agent.address(), AtomicBool::new(false));
    thread::scope(|scope| {
        let flood = scope.spawn(|| -> Result<usize> {
            let mut clients = VecDeque::new();
            let mut count = 0;
            while !over.load(Ordering::Relaxed) {
                let mut client = connect_from(ELSEWHERE, address)?;
                // Shown out at once, perhaps.
                let _ = client.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n");
                clients.push_back(client);
                count += 1;
                if clients.len() > 300 {
                    clients.pop_front();
                }
            }
            Ok(count)
        });
        let scraped = (0..SCRAPES_IN_A_FLOOD).try_for_each(|_| agent.scrape().map(drop));
        over.store(true, Ordering::Relaxed);
        let count = flood.join().map_err(|_| anyhow!("the flood panicked"))??;
        scraped?;
        ensure!(count > SCRAPES_IN_A_FLOOD, "{count} connections are no flood");
        Ok(())
    })
}

/// A connection from an address of this host.
fn connect_from(from: Ipv4Addr, to: SocketAddr) -> Result<TcpStream> {
    let SocketAddr::V4(to) = to else { bail!("{to} is no address of the loopback") };
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    bind(socket.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(from, 0)))?;
    connect(socket.as_raw_fd(), &SockaddrIn::from(to))?;
    Ok(TcpStream::from(socket))
}

fn strangers(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let agent = Agent::start(bench, &Volume::at("v", injector.mountpoint()).to_toml())?;
    agent.wait_state("v", "healthy")?;
    for (method, path) in [
        ("POST", "pause"),
        ("POST", "remount/v"),
        ("PUT", "volumes/v"),
        ("DELETE", "volumes/v"),
        ("PATCH", "events"),
    ] {
        let mut stream = TcpStream::connect(agent.address())?;
        stream.set_read_timeout(Some(patiently(SOON)))?;
        let request = format!("{method} /api/v1/{path} HTTP/1.0\r\ncontent-length: 0\r\n\r\n");
        let answer = http::exchange(&mut stream, &request)?;
        ensure!(answer.contains(" 405 ") && answer.contains("allow: GET, HEAD"), "{answer}");
    }
    let socket = Path::new("/run/mountie/mountie.sock");
    let mode = |path: &Path| Ok::<_, anyhow::Error>(fs::symlink_metadata(path)?.permissions().mode() & 0o777);
    ensure!(mode(socket)? == 0o600, "{:o}", mode(socket)?);
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
        s.sendall(b'GET /api/v1/volumes HTTP/1.0\\r\\n\\r\\n')\nwhile (d:=s.recv(4096)): sys.stdout.write(d.decode())";
    let ask = |uid: u32| {
        let mut command = Command::new("python3");
        run_within(command.args(["-c", script]).arg(socket).uid(uid), SOON)
    };
    ensure!(!ask(1000)?.status.success(), "another user could connect");
    // Even one who was let in by mistake.
    fs::set_permissions(socket, fs::Permissions::from_mode(0o666))?;
    let refused = String::from_utf8(ask(1000)?.stdout)?;
    ensure!(refused.contains(" 403 ") && refused.contains("uid 1000 asked"), "{refused}");
    let answered = String::from_utf8(ask(0)?.stdout)?;
    ensure!(answered.contains(" 200 ") && answered.contains("\"id\":\"v\""), "{answered}");
    Ok(())
}
