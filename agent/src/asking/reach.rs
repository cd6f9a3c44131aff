//! Whether a server can be reached: by a child that enters the network of those whose mounts are watched, looks up the
//! name as they would, and connects. It may hang in any of that, and is killed then. The same child follows paths
//! ([`follow`]).

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::time::Duration;

use agent_core::engine::ReachOrder;
use agent_core::observation::Reach;
use agent_core::path::BytePath;
use agent_core::time::Monotonic;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::timeout;

use super::places::Place;
use super::{Settings, follow};
use crate::exit_code::ExitCode;
use crate::sys::{clock, descriptors, environment, mount, network, parent_death};

/// With so many children that do not end, no other is started: a service of names may hang, and each waits for it.
const TRYING_MAX: usize = 16;
/// What the child needs beyond the time for the connection.
const SLACK: Duration = Duration::from_secs(2);
/// Addresses of one name that are tried.
const MOST_ADDRESSES: usize = 8;
/// The child says one line. The longest is that of a path.
const LINE_LIMIT: u64 = 32 * 1024;

/// Why nothing is known.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReachError {
    /// No process could be made, or it was lost.
    #[error("the child that tries servers could not be started or heard")]
    Child(#[source] io::Error),
    /// It did not end in time.
    #[error("the child that tries servers did not end in time")]
    TimedOut,
    /// It said something else.
    #[error("the child that tries servers gave no answer")]
    NoAnswer,
    /// A path could not be walked.
    #[error("the way cannot be walked")]
    Walk(#[source] io::Error),
    /// Those before it were killed, and live on.
    #[error("{TRYING_MAX} children that try servers do not end")]
    TooMany,
}

/// Has a child try the server. `trying` counts the children; one that cannot be killed counts for as long as it lives.
pub(super) async fn ask(
    settings: &Settings,
    order: &ReachOrder,
    trying: &Arc<AtomicUsize>,
) -> Result<(Reach, Vec<IpAddr>), ReachError> {
    let request = json!({
        "hosts": order.service.hosts,
        "ports": order.service.ports,
        "milliseconds": u64::try_from(order.deadline.as_millis()).unwrap_or(u64::MAX),
    });
    understand(&converse(settings, &request, order.deadline, trying).await?)
}

/// One request to a child of its own, and what that says.
pub(super) async fn converse(
    settings: &Settings,
    request: &Value,
    deadline: Duration,
    trying: &Arc<AtomicUsize>,
) -> Result<Vec<u8>, ReachError> {
    let place = Place::take(trying, TRYING_MAX).ok_or(ReachError::TooMany)?;
    let mut command = Command::new(&settings.exe);
    environment::clear(command.as_std_mut());
    command.arg("reach").args(["--parent", &std::process::id().to_string()]);
    for (flag, path) in [("--namespace", &settings.namespace), ("--network", &settings.network)] {
        if let Some(path) = path {
            command.arg(flag).arg(path);
        }
    }
    command
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    parent_death::bind(command.as_std_mut());
    let mut child = command.spawn().map_err(ReachError::Child)?;
    let talk = async {
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(request.to_string().as_bytes()).await?;
        }
        let mut line = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            stdout.take(LINE_LIMIT).read_to_end(&mut line).await?;
        }
        Ok(line)
    };
    let line = timeout(deadline.saturating_add(SLACK), talk).await;
    tokio::spawn(async move {
        // It has ended, or was killed. Fails only when somebody else has reaped it.
        let _ = child.kill().await;
        drop(place);
    });
    line.map_err(|_| ReachError::TimedOut)?.map_err(ReachError::Child)
}

fn understand(line: &[u8]) -> Result<(Reach, Vec<IpAddr>), ReachError> {
    let said: Value = serde_json::from_slice(line).map_err(|_| ReachError::NoAnswer)?;
    let addresses = said.get("addresses").and_then(Value::as_array).into_iter().flatten();
    let addresses = addresses.filter_map(|address| address.as_str()?.parse().ok()).collect();
    match (said.get("reached").and_then(Value::as_bool), said.get("why").and_then(Value::as_str)) {
        (Some(true), _) => Ok((Reach::Yes, addresses)),
        (Some(false), Some(why)) => Ok((Reach::No(why.to_owned()), addresses)),
        (Some(false) | None, _) => Err(ReachError::NoAnswer),
    }
}

/// Where the child goes before it tries.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReachPlace {
    /// The agent's process id: the child ends with it.
    pub parent: u32,
    /// The mount namespace to enter.
    pub namespace: Option<PathBuf>,
    /// The network namespace to enter.
    pub network: Option<PathBuf>,
}

/// The body of the hidden subcommand: one request on standard input, one answer on standard output.
///
/// The process must have one thread: a mount namespace can be entered in no other way.
#[must_use]
pub fn run_reach_child(place: &ReachPlace) -> ExitCode {
    descriptors::close_inherited();
    if !parent_death::follow(place.parent).unwrap_or(false) {
        return ExitCode::Internal;
    }
    let bytes = |path: &PathBuf| BytePath::new(path.as_os_str().as_encoded_bytes());
    // The network first: afterwards the other path may lead elsewhere.
    let entered =
        place.network.as_ref().map_or(Ok(()), |path| network::enter(&bytes(path))).and_then(|()| {
            place.namespace.as_ref().map_or(Ok(()), |path| mount::enter_namespace(&bytes(path)))
        });
    if entered.is_err() {
        return ExitCode::NoPermission;
    }
    let Ok(request) = serde_json::from_reader(io::stdin().lock()) else { return ExitCode::Usage };
    let Some(answer) = follow::answer(&request).or_else(|| try_target(request)) else {
        return ExitCode::Usage;
    };
    match writeln!(io::stdout(), "{answer}") {
        Ok(()) => ExitCode::Ok,
        Err(_) => ExitCode::Internal,
    }
}

fn try_target(request: Value) -> Option<Value> {
    let (reached, addresses) = Target::read(&request)?.attempt();
    Some(match reached {
        Ok(()) => json!({ "reached": true, "addresses": addresses }),
        Err(why) => json!({ "reached": false, "why": why, "addresses": addresses }),
    })
}

/// What threads find out.
enum Heard {
    /// The addresses of the first name.
    Addresses(Vec<IpAddr>),
    /// What came of an address of a name, by the name's number.
    Said(usize, Result<(), String>),
}

struct Target {
    hosts: Vec<String>,
    ports: Vec<u16>,
    limit: Duration,
}

impl Target {
    fn read(request: &Value) -> Option<Self> {
        let hosts = request.get("hosts")?.as_array()?;
        let ports = request.get("ports")?.as_array()?;
        let port_of = |port: &Value| u16::try_from(port.as_u64()?).ok();
        Some(Self {
            hosts: hosts.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            ports: ports.iter().map(port_of).collect::<Option<_>>()?,
            limit: Duration::from_millis(request.get("milliseconds")?.as_u64()?),
        })
    }

    /// Tries all names, addresses and ports at once: one that does not answer must not use up the time of the others.
    /// What the first name says is what people are told, and which addresses that has.
    fn attempt(&self) -> (Result<(), String>, Vec<IpAddr>) {
        let begun = clock::now();
        let (said, heard) = mpsc::channel();
        let at_port = |host| self.ports.iter().map(move |port| (host, *port));
        for (number, (host, port)) in self.hosts.iter().flat_map(at_port).enumerate() {
            let (said, host, limit) = (said.clone(), host.clone(), self.limit);
            std::thread::spawn(move || match look_up(&host, port) {
                // A name without an address is an answer, too.
                Err(why) => drop(said.send(Heard::Said(number, Err(why)))),
                Ok(addresses) => {
                    if number == 0 && host.parse::<IpAddr>().is_err() {
                        let known = addresses.iter().map(SocketAddr::ip).collect();
                        // Nobody listens any more once a server was reached.
                        let _ = said.send(Heard::Addresses(known));
                    }
                    for address in addresses {
                        let said = said.clone();
                        std::thread::spawn(move || said.send(Heard::Said(number, connect(address, limit))));
                    }
                }
            });
        }
        drop(said);
        self.hear(&heard, begun)
    }

    /// One time limit for all that is said, however often something is.
    fn hear(&self, heard: &mpsc::Receiver<Heard>, begun: Monotonic) -> (Result<(), String>, Vec<IpAddr>) {
        let mut known = Vec::new();
        let mut first: Option<(usize, String)> = None;
        loop {
            let left = self.limit.saturating_sub(clock::now().since(begun));
            // With no time left, what has been said already would still be heard, without an end.
            let said =
                if left.is_zero() { Err(mpsc::RecvTimeoutError::Timeout) } else { heard.recv_timeout(left) };
            match said {
                Ok(Heard::Addresses(addresses)) => known = addresses,
                Ok(Heard::Said(_, Ok(()))) => return (Ok(()), known),
                Ok(Heard::Said(number, Err(why)))
                    if first.as_ref().is_none_or(|(before, _)| number < *before) =>
                {
                    first = Some((number, why));
                }
                Ok(_) => {}
                Err(_) => {
                    return (Err(first.map_or_else(|| "no answer".to_owned(), |(_, why)| why)), known);
                }
            }
        }
    }
}

fn look_up(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let addresses: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()
        .map(|found| found.take(MOST_ADDRESSES).collect())
        .map_err(|_| "its name is not known".to_owned())?;
    if addresses.is_empty() { Err("its name has no address".to_owned()) } else { Ok(addresses) }
}

fn connect(address: SocketAddr, limit: Duration) -> Result<(), String> {
    match TcpStream::connect_timeout(&address, limit) {
        Ok(_) => Ok(()),
        Err(error) => Err(match error.kind() {
            io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            io::ErrorKind::TimedOut => "no answer".to_owned(),
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "no route to it".to_owned(),
            _ => error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::Ordering;

    use agent_core::remediation::service::Service;

    use super::*;

    fn attempt(hosts: &[&str], port: u16) -> Result<(), String> {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        Target { hosts, ports: vec![port], limit: Duration::from_secs(20) }.attempt().0
    }

    #[test]
    fn a_port_is_reached_while_somebody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(attempt(&["127.0.0.1"], port), Ok(()));
        assert_eq!(attempt(&["name.invalid", "127.0.0.1"], port), Ok(()), "any of the names will do");
        let limit = Duration::from_secs(20);
        let several = Target { hosts: vec!["127.0.0.1".to_owned()], ports: vec![1, port], limit };
        assert_eq!(several.attempt().0, Ok(()), "and any of the ports");
        drop(listener);
        for hosts in [&["127.0.0.1"][..], &["127.0.0.1", "name.invalid"]] {
            assert!(soon(|| attempt(hosts, port) == Err("connection refused".to_owned())));
        }
    }

    /// A child that another test has made, and that is no other program yet, has a copy of every listener.
    fn soon(condition: impl Fn() -> bool) -> bool {
        let begun = clock::now();
        while clock::now().since(begun) < Duration::from_secs(20) {
            if condition() {
                return true;
            }
        }
        false
    }

    #[test]
    fn the_addresses_of_a_name_are_told_and_those_of_an_address_are_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let of = |host: &str| {
            let hosts = vec![host.to_owned(), "127.0.0.1".to_owned()];
            Target { hosts, ports: vec![port], limit: Duration::from_secs(20) }.attempt().1
        };
        let silent = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])];
        // The second host may answer first: then nothing is known of the name.
        assert!(of("localhost").iter().all(|address| silent.contains(address)));
        assert_eq!(of("127.0.0.1"), [] as [IpAddr; 0]);
        drop(listener);
        assert!(soon(|| !of("localhost").is_empty()));
    }

    #[test]
    fn many_refusals_do_not_lengthen_the_time() {
        let (said, heard) = mpsc::sync_channel(1);
        let refusing =
            std::thread::spawn(move || while said.send(Heard::Said(1, Err("no".to_owned()))).is_ok() {});
        let target = Target { hosts: Vec::new(), ports: vec![1], limit: Duration::from_millis(200) };
        assert_eq!(target.hear(&heard, clock::now()), (Err("no".to_owned()), Vec::new()));
        drop(heard);
        refusing.join().unwrap();
    }

    #[test]
    fn children_that_do_not_end_are_bounded() {
        // Reads what it is given, finds no program of that name, and says nothing.
        let exe = "/usr/bin/xargs".into();
        let settings = Settings { exe, launcher: Vec::new(), namespace: None, network: None };
        let service = Service { hosts: vec!["a".to_owned()], ports: vec![1] };
        let order = ReachOrder { service, deadline: Duration::from_secs(20) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let trying = Arc::default();
        let taken: Vec<_> = std::iter::from_fn(|| Place::take(&trying, TRYING_MAX)).collect();
        assert_eq!(taken.len(), TRYING_MAX);
        let refused = runtime.block_on(ask(&settings, &order, &trying));
        assert!(matches!(refused, Err(ReachError::TooMany)), "{refused:?}");
        drop(taken);
        // It ends without a word, and its place is free again.
        let said = runtime.block_on(ask(&settings, &order, &trying));
        assert!(matches!(said, Err(ReachError::NoAnswer | ReachError::Child(_))), "{said:?}");
        let is_free = async {
            while trying.load(Ordering::Relaxed) > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(runtime.block_on(async { timeout(Duration::from_secs(60), is_free).await }).is_ok());
    }

    #[test]
    fn requests_and_answers_are_understood() {
        let target = json!({"hosts": ["a", "::1"], "ports": [2049, 1], "milliseconds": 3000});
        let target = Target::read(&target).unwrap();
        assert_eq!(
            (target.hosts.len(), target.ports.as_slice(), target.limit.as_secs()),
            (2, &[2049, 1][..], 3)
        );
        for wrong in [json!(""), json!({}), json!({"hosts": ["a"], "ports": [99999], "milliseconds": 1})] {
            assert!(Target::read(&wrong).is_none(), "{wrong}");
        }
        assert_eq!(understand(b"{\"reached\":true}\n").unwrap(), (Reach::Yes, Vec::new()));
        let moved = br#"{"reached":false,"why":"x","addresses":["192.0.2.44","odd"]}"#;
        let address = "192.0.2.44".parse().unwrap();
        assert_eq!(understand(moved).unwrap(), (Reach::No("x".into()), vec![address]));
        assert!(understand(b"").is_err() && understand(br#"{"reached":false}"#).is_err());
    }
}
