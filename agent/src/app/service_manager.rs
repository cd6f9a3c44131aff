//! What the service manager hears: that the agent is up, how its volumes are, that its loop still turns, that it ends.
//!
//! Datagrams on the socket that the manager names (`NOTIFY_SOCKET`, sd_notify(3)). They never wait: process 1 may itself
//! hang on a mount, and the agent must not hang with it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use agent_core::status::VolumeStatus;
use agent_core::time::Monotonic;
use agent_core::verdict::HealthState;

/// One part of the time that the manager grants passes between two signs of life: two may be lost.
const PARTS: u32 = 3;
/// Sick volumes that are named at most.
const NAMED: usize = 3;

/// The way to the manager, where there is one.
#[derive(Debug, Default)]
pub(super) struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// The pause between two signs of life, where the manager waits for them.
    pause: Option<Duration>,
    due: Option<Monotonic>,
    /// It has to hear yet that the agent is up. It waits for that alone.
    owes_ready: bool,
    /// The last text that it has taken.
    status: String,
}

impl ServiceManager {
    /// As this process's environment names it. Where none is named, or it does not listen, nothing is sent.
    pub(super) fn of_process() -> Self {
        let Some(address) = std::env::var_os("NOTIFY_SOCKET").and_then(address) else {
            return Self::default();
        };
        let text = |name| std::env::var(name).ok();
        let pause = pause(text("WATCHDOG_USEC"), text("WATCHDOG_PID"), std::process::id());
        match connect(&address) {
            Ok(socket) => Self { socket: Some(socket), pause, ..Self::default() },
            Err(error) => {
                tracing::warn!(%error, "Service manager cannot be reached, continuing without telling it anything");
                Self::default()
            }
        }
    }

    /// The agent answers; its loop turns from now on.
    pub(super) fn ready(&mut self, now: Monotonic) {
        self.owes_ready = !self.send("READY=1");
        self.due = self.pause.map(|_| now);
    }

    /// When the next sign of life is due.
    pub(super) const fn due(&self) -> Option<Monotonic> {
        self.due
    }

    /// Gives a sign of life.
    pub(super) fn keep_alive(&mut self, now: Monotonic) {
        self.send("WATCHDOG=1");
        self.due = self.pause.map(|pause| now + pause);
    }

    /// Tells how the volumes are, when that is news, and what it has not taken before.
    pub(super) fn tell(&mut self, volumes: &[VolumeStatus], is_ready: bool) {
        if self.socket.is_none() {
            return;
        }
        if self.owes_ready {
            self.owes_ready = !self.send("READY=1");
        }
        let status = summary(volumes, is_ready);
        if status != self.status && self.send(&format!("STATUS={status}")) {
            self.status = status;
        }
    }

    /// The agent ends.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Whether it was taken. A queue that is full takes nothing.
    fn send(&self, text: &str) -> bool {
        let Some(socket) = &self.socket else { return false };
        match socket.send(text.as_bytes()) {
            Ok(_) => true,
            Err(error) => {
                if error.kind() != ErrorKind::WouldBlock {
                    tracing::debug!(%error, "Service manager was not told");
                }
                false
            }
        }
    }
}

/// A path, or a name without a file, which begins with `@`.
fn address(name: OsString) -> Option<SocketAddr> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    };
    address.ok()
}

fn connect(address: &SocketAddr) -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect_addr(address)?;
    Ok(socket)
}

/// The pause between two signs of life; `None`: the manager waits for none of this process.
fn pause(microseconds: Option<String>, pid: Option<String>, own: u32) -> Option<Duration> {
    let is_meant = pid.is_none_or(|pid| pid.parse() == Ok(own));
    let granted = microseconds?.parse().ok().filter(|&granted| is_meant && granted > 0)?;
    Some(Duration::from_micros(granted) / PARTS)
}

/// One line: how many volumes there are in each state, and which are sick.
fn summary(volumes: &[VolumeStatus], is_ready: bool) -> String {
    let mut text = match volumes.len() {
        1 => "1 volume".to_owned(),
        count => format!("{count} volumes"),
    };
    let mut states: BTreeMap<HealthState, usize> = BTreeMap::new();
    for volume in volumes {
        *states.entry(volume.condition.state).or_default() += 1;
    }
    let counts: Vec<String> =
        states.iter().map(|(state, count)| format!("{count} {}", state.label())).collect();
    if !counts.is_empty() {
        let _ = write!(text, ": {}", counts.join(", "));
    }
    let sick: Vec<String> =
        volumes.iter().filter(|volume| volume.condition.state.is_sick()).map(named).collect();
    if let Some(first) = sick.get(..sick.len().min(NAMED)).filter(|first| !first.is_empty()) {
        let more = if sick.len() > NAMED { ", …" } else { "" };
        let _ = write!(text, " ({}{more})", first.join(", "));
    }
    if !is_ready {
        text.push_str("; not every one was looked at yet");
    }
    // A line of its own would be another message.
    text.replace(char::is_control, "?")
}

fn named(volume: &VolumeStatus) -> String {
    let reason = volume.condition.reason.map(|reason| format!(" {}", reason.label()));
    format!("{}{}", volume.id, reason.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample::{quiet_volume, seconds};
    use agent_core::verdict::Reason;

    fn heard(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 4096];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    /// A manager and what it hears.
    fn manager(pause: Option<Duration>) -> (ServiceManager, UnixDatagram) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        listener.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let socket = connect(&address(path.into_os_string()).unwrap()).unwrap();
        (ServiceManager { socket: Some(socket), pause, ..ServiceManager::default() }, listener)
    }

    #[test]
    fn signs_of_life_come_three_times_as_often_as_is_asked_for() {
        let pause = pause(Some("30000000".into()), Some("7".into()), 7);
        assert_eq!(pause, Some(Duration::from_secs(10)));
        let (mut manager, listener) = manager(pause);
        manager.ready(seconds(5));
        assert_eq!((heard(&listener).as_str(), manager.due()), ("READY=1", Some(seconds(5))));
        manager.keep_alive(seconds(5));
        assert_eq!((heard(&listener).as_str(), manager.due()), ("WATCHDOG=1", Some(seconds(15))));
    }

    #[test]
    fn nobody_waits_for_signs_of_life_of_another_process() {
        assert_eq!(pause(Some("30000000".into()), Some("8".into()), 7), None);
        assert_eq!(pause(Some("0".into()), None, 7), None);
        assert_eq!(pause(None, None, 7), None);
        assert_eq!(pause(Some("3".into()), None, 7), Some(Duration::from_micros(1)));
    }

    #[test]
    fn the_state_of_the_volumes_is_told_once() {
        let (mut manager, listener) = manager(None);
        let mut sick = quiet_volume("models");
        sick.condition.state = HealthState::Degraded;
        sick.condition.reason = Some(Reason::Hung);
        let volumes = [quiet_volume("a"), sick];
        manager.tell(&volumes, true);
        manager.tell(&volumes, true);
        manager.tell(&volumes[..1], false);
        manager.stopping();
        assert_eq!(heard(&listener), "STATUS=2 volumes: 1 healthy, 1 degraded (models hung)");
        assert_eq!(heard(&listener), "STATUS=1 volume: 1 healthy; not every one was looked at yet");
        assert_eq!(heard(&listener), "STOPPING=1");
        assert_eq!(summary(&[], true), "0 volumes");
    }

    #[test]
    fn a_manager_that_reads_nothing_holds_nobody_up_and_hears_all_the_same_that_the_agent_is_up() {
        let (mut manager, listener) = manager(None);
        let taken = (0..100_000).position(|_| !manager.send("WATCHDOG=1")).expect("its queue has an end");
        manager.ready(seconds(1));
        manager.tell(&[], true);
        for _ in 0..taken {
            assert_eq!(heard(&listener), "WATCHDOG=1");
        }
        manager.tell(&[], true);
        assert_eq!(heard(&listener), "READY=1");
        assert_eq!(heard(&listener), "STATUS=0 volumes");
    }

    #[test]
    fn a_name_without_a_file_begins_with_a_sign() {
        let name = format!("mountie-test-{}", std::process::id());
        let listener = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let socket = connect(&address(format!("@{name}").into()).unwrap()).unwrap();
        socket.send(b"READY=1").unwrap();
        assert_eq!(heard(&listener), "READY=1");
    }
}
