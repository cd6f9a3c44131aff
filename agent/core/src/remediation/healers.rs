//! Others who mount again what has failed. Where one of them is known to be in charge, it is left to work first.

use core::time::Duration;

use crate::path::BytePath;
use crate::remediation::kubelet::is_kubelets;
use crate::topology::automount::Automount;

/// Who else heals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Healer {
    /// A driver that the kubelet has publish volumes again and again.
    Kubelet,
    /// An automount unit of systemd.
    SystemdAutomount,
    /// The automounter's daemon.
    Automounter,
    /// A watchdog of a vendor, behind a proxy on this node.
    LocalProxy,
}

/// What is known of a volume's place and of what is mounted there.
#[derive(Clone, Copy, Debug)]
pub struct Sign<'a> {
    /// The mount point.
    pub mountpoint: &'a BytePath,
    /// Type in the table, else in the specification.
    pub fstype: &'a str,
    /// Source in the table, else in the specification.
    pub source: &'a [u8],
    /// The automount trap on which it lies.
    pub trap: Option<Automount>,
    /// The port of its server, where the table tells one.
    pub port: Option<u16>,
}

/// One row: how it is recognised, and how long it is given from a fall on.
struct Row {
    healer: Healer,
    name: &'static str,
    is_there: fn(&Sign<'_>) -> bool,
    patience: Duration,
}

/// Each is given the longest that it takes by its own defaults, and a little more.
const HEALERS: &[Row] = &[
    Row {
        healer: Healer::Kubelet,
        name: "the kubelet and the volume's driver",
        is_there: |sign| is_kubelets(sign.mountpoint),
        // A pod's volumes are published again when it is synced: once a minute, with a jitter of half of that.
        patience: Duration::from_secs(100),
    },
    Row {
        healer: Healer::SystemdAutomount,
        name: "an automount unit of systemd",
        is_there: |sign| sign.trap.is_some_and(|trap| trap.by_systemd),
        patience: Duration::from_secs(15),
    },
    Row {
        healer: Healer::Automounter,
        name: "the automounter",
        is_there: |sign| sign.trap.is_some(),
        patience: Duration::from_secs(15),
    },
    Row {
        healer: Healer::LocalProxy,
        name: "the watchdog of a proxy on this node",
        is_there: |sign| is_proxied(sign),
        // Those of file services in the cloud look once a second, and give what they found half a minute.
        patience: Duration::from_secs(45),
    },
];

impl Healer {
    /// Every healer.
    pub const ALL: [Self; 4] = [Self::Kubelet, Self::SystemdAutomount, Self::Automounter, Self::LocalProxy];

    /// Who is in charge of a volume besides the agent.
    #[must_use]
    pub fn of(sign: &Sign<'_>) -> Option<Self> {
        HEALERS.iter().find(|row| (row.is_there)(sign)).map(|row| row.healer)
    }

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().map_or("", |row| row.name)
    }

    /// How long it is left to work, from a fall on.
    #[must_use]
    pub fn patience(self) -> Duration {
        self.row().map_or(Duration::ZERO, |row| row.patience)
    }

    fn row(self) -> Option<&'static Row> {
        HEALERS.iter().find(|row| row.healer == self)
    }
}

/// NFS from this very node, and not from where a server listens: the other end is a proxy that encrypts.
fn is_proxied(sign: &Sign<'_>) -> bool {
    let is_local =
        [b"127.0.0.1:".as_slice(), b"localhost:", b"[::1]:"].iter().any(|host| sign.source.starts_with(host));
    is_local && matches!(sign.fstype, "nfs4" | "nfs") && sign.port.is_some_and(|port| port != 2049)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(mountpoint: &str, fstype: &str, source: &str, trap: Option<&str>) -> Option<Healer> {
        at_port(mountpoint, (fstype, source), trap, None)
    }

    fn at_port(
        mountpoint: &str,
        (fstype, source): (&str, &str),
        trap: Option<&str>,
        port: Option<u16>,
    ) -> Option<Healer> {
        let mountpoint = BytePath::from(mountpoint);
        let trap = trap.map(|by| Automount { expires_after: None, by_systemd: by == "systemd" });
        let source = source.as_bytes();
        Healer::of(&Sign { mountpoint: &mountpoint, fstype, source, trap, port })
    }

    #[test]
    fn those_who_heal_are_known_by_place_source_and_trap() {
        let pod = "/var/lib/kubelet/pods/0aaa/volumes/kubernetes.io~csi/v/mount";
        let node = "/data/kubelet/plugins/kubernetes.io/csi/driver/0a/globalmount";
        assert_eq!(of(pod, "nfs4", "filer:/a", None), Some(Healer::Kubelet));
        assert_eq!(of(node, "ext4", "/dev/sdb", None), Some(Healer::Kubelet));
        let other = "/var/lib/kubelet/plugins/example/pv-a/globalmount";
        assert_eq!(of(other, "ext4", "/dev/sdb", None), Some(Healer::Kubelet));
        assert_eq!(of("/net/a", "nfs4", "filer:/a", Some("systemd")), Some(Healer::SystemdAutomount));
        assert_eq!(of("/net/a", "nfs4", "filer:/a", Some("autofs")), Some(Healer::Automounter));
        let proxy = |source, port| at_port("/efs", ("nfs4", source), None, port);
        assert_eq!(proxy("127.0.0.1:/", Some(20_052)), Some(Healer::LocalProxy));
        assert_eq!((proxy("127.0.0.1:/", Some(2049)), proxy("127.0.0.1:/", None)), (None, None));
        assert_eq!(proxy("192.0.2.1:/", Some(20_052)), None);
        for (place, fstype, source) in [
            ("/mnt/a", "nfs4", "filer:/a"),
            ("/srv/pods/x", "ext4", "/dev/sdb"),
            ("/mnt/ssh", "fuse.sshfs", "localhost:/a"),
        ] {
            assert_eq!(of(place, fstype, source, None), None, "{place}");
        }
    }

    #[test]
    fn each_has_a_row_a_name_and_time() {
        assert_eq!(HEALERS.len(), Healer::ALL.len());
        for healer in Healer::ALL {
            assert!(!healer.name().is_empty());
            assert!(
                healer.patience() >= Duration::from_secs(10) && healer.patience() <= Duration::from_secs(120)
            );
        }
    }
}
