//! Where the server of a volume listens: what must be reached before a new mount of it can work.

use alloc::collections::BTreeSet;
use alloc::{format, string::String, vec, vec::Vec};
use core::fmt;

use crate::path::escape;
use crate::source::host;

/// More names than this are not tried.
const MOST_HOSTS: usize = 8;

/// The ports of a service. One row for each type of file system that has one over TCP.
struct Row {
    fstypes: &'static [&'static str],
    /// Any of them will do.
    ports: &'static [u16],
    /// Options with which it is not reached over TCP at these ports.
    elsewhere: &'static [&'static str],
    /// The option without which it is not either.
    only: Option<&'static str>,
}

const PORTS: &[Row] = &[
    Row {
        fstypes: &["nfs", "nfs4"],
        ports: &[2049],
        elsewhere: &["udp", "proto=udp", "proto=udp6", "rdma", "proto=rdma", "proto=rdma6"],
        only: None,
    },
    Row { fstypes: &["cifs", "smb3"], ports: &[445], elsewhere: &["rdma"], only: None },
    Row {
        fstypes: &["fuse.glusterfs", "glusterfs"],
        ports: &[24007],
        elsewhere: &["transport=rdma"],
        only: None,
    },
    // The monitors: those of the second protocol, and those of the first. Where those of ceph-fuse listen stands in
    // files.
    Row { fstypes: &["ceph"], ports: &[3300, 6789], elsewhere: &[], only: None },
    Row { fstypes: &["9p"], ports: &[564], elsewhere: &[], only: Some("trans=tcp") },
];

/// A service: the names or addresses of its server, and the ports. Any of them will do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Service {
    /// Names or addresses, those of the source first.
    pub hosts: Vec<String>,
    /// TCP, the more usual ones first.
    pub ports: Vec<u16>,
}

impl Service {
    /// The service behind a volume; `None` where none is known that could be tried. `options` are those of the
    /// specification and of the mount, the more important ones last.
    #[must_use]
    pub fn of<'a>(fstype: &str, source: &[u8], options: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let row = PORTS.iter().find(|row| row.fstypes.contains(&fstype));
        // Only where the port is named: whatever else has a well-known one may be behind a proxy that others know.
        let mut ports: Vec<u16> = match row {
            Some(row) => row.ports.to_vec(),
            None => url_port(source).into_iter().collect(),
        };
        let mut hosts: Vec<String> = match fstype {
            "9p" => vec![text(source)?],
            _ => hosts(source).into_iter().filter_map(text).collect(),
        };
        if fstype == "ceph" {
            ports.extend(source.split(|byte| *byte == b',').filter_map(port_after_host));
        }
        let mut is_reached = row.is_none_or(|row| row.only.is_none());
        for option in options.into_iter().filter_map(|option| core::str::from_utf8(option).ok()) {
            if row.is_some_and(|row| row.elsewhere.contains(&option)) {
                return None;
            }
            is_reached |= row.is_some_and(|row| row.only == Some(option));
            match option.split_once('=') {
                // Zero: ask the port mapper. Where that sends one to, the mount table tells.
                Some(("port", number)) => match number.parse() {
                    Ok(0) | Err(_) => {}
                    Ok(number) => ports = vec![number],
                },
                Some(("addr" | "ip", address)) => hosts.extend(text(address.as_bytes())),
                Some(("mon_addr", monitors)) => {
                    for monitor in monitors.as_bytes().split(|byte| b",/".contains(byte)) {
                        hosts.extend(host(monitor).or(Some(monitor)).and_then(text));
                        ports.extend(port_after_host(monitor));
                    }
                }
                Some(("backup-volfile-servers" | "backupvolfile-server", names)) => {
                    hosts.extend(names.split(':').filter_map(|name| text(name.as_bytes())));
                }
                Some(_) | None => {}
            }
        }
        let mut seen = Vec::with_capacity(hosts.len());
        for host in hosts {
            if seen.len() < MOST_HOSTS && !seen.contains(&host) {
                seen.push(host);
            }
        }
        let mut known = BTreeSet::new();
        ports.retain(|port| known.insert(*port));
        (is_reached && !seen.is_empty() && !ports.is_empty()).then_some(Self { hosts: seen, ports })
    }
}

/// As people write it: the first name, and the port.
impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.hosts.first().map(String::as_str).unwrap_or_default();
        let host = escape(host.as_bytes());
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        write!(f, "{host}:{}", self.ports.first().copied().unwrap_or_default())
    }
}

/// The port that an address names: `SCHEME://USER@HOST:PORT/PATH`.
fn url_port(source: &[u8]) -> Option<u16> {
    let start = source.windows(3).position(|window| window == b"://")?;
    let authority = source.get(start + 3..)?.split(|byte| *byte == b'/').next()?;
    port_after_host(authority.rsplit(|byte| *byte == b'@').next()?)
}

/// The port of `HOST:PORT` or `[ADDRESS]:PORT`, whatever follows it.
fn port_after_host(part: &[u8]) -> Option<u16> {
    let end = if part.starts_with(b"[") { part.iter().position(|byte| *byte == b']')? } else { 0 };
    let mut fields = part.get(end..)?.split(|byte| *byte == b':');
    core::str::from_utf8(fields.nth(1)?).ok()?.parse().ok().filter(|port| *port > 0)
}

fn text(host: &[u8]) -> Option<String> {
    let host = core::str::from_utf8(host).ok()?;
    let is_host = |c: char| c.is_ascii_alphanumeric() || ".-_:%".contains(c) || !c.is_ascii();
    (!host.is_empty() && !host.starts_with('-') && host.chars().all(is_host)).then(|| String::from(host))
}

/// The servers that a source names. NFS takes several: `a,b:/path` and `a:/path,b:/path`.
fn hosts(source: &[u8]) -> Vec<&[u8]> {
    if source.starts_with(b"//") || source.windows(3).any(|window| window == b"://") {
        return host(source).into_iter().collect();
    }
    let mut depth = 0_u32;
    let parts = source.split(|byte| {
        match byte {
            b'[' => depth = depth.saturating_add(1),
            b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        *byte == b',' && depth == 0
    });
    let parts: Vec<&[u8]> = parts.collect();
    let plain = |part: &[u8]| !part.is_empty() && !part.iter().any(|byte| b":/".contains(byte));
    let named: Vec<Option<&[u8]>> =
        parts.iter().map(|part| host(part).or_else(|| Some(*part).filter(|part| plain(part)))).collect();
    // A comma in the path of a single server is part of that path.
    match named.into_iter().collect::<Option<Vec<&[u8]>>>() {
        Some(hosts) if parts.last().is_some_and(|part| host(part).is_some()) => hosts,
        Some(_) | None => host(parts.first().copied().unwrap_or_default()).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    fn service(fstype: &str, source: &str, options: &[&str]) -> Option<(String, usize)> {
        let service = Service::of(fstype, source.as_bytes(), options.iter().map(|option| option.as_bytes()))?;
        Some((service.to_string(), service.hosts.len()))
    }

    fn first(fstype: &str, source: &str, options: &[&str]) -> String {
        service(fstype, source, options).map(|(text, _)| text).unwrap_or_default()
    }

    #[test]
    fn servers_are_read_from_sources() {
        for (fstype, source, expected) in [
            ("nfs4", "filer1:/export", "filer1:2049"),
            ("nfs", "192.0.2.7:/x:y", "192.0.2.7:2049"),
            ("nfs", "[2001:db8::1]:/x", "[2001:db8::1]:2049"),
            ("nfs4", "[fe80::1%eth0]:/x", "[fe80::1%eth0]:2049"),
            ("cifs", "//server/share", "server:445"),
            ("smb3", "//server.example/share/dir", "server.example:445"),
            // Where that listens stands in the files of ssh, which nobody else reads.
            ("fuse.sshfs", "ann@host:/dir", ""),
            ("fuse.glusterfs", "gluster1:/vol", "gluster1:24007"),
            ("ceph", "mon1:/", "mon1:3300"),
            // Of its newer syntax, without the monitors that its options name.
            ("ceph", "admin@b3acfc0d-575f.cephfs=/", ""),
            ("9p", "192.0.2.7", ""),
            ("fuse", "https://ann:x@dav.example:8443/a:1/b", "dav.example:8443"),
            ("fuse", "http://[2001:db8::1]:81/", "[2001:db8::1]:81"),
            ("davfs", "https://dav.example/a", ""),
            ("fuse", "/srv/a://b:70/", ""),
            ("nfs4", "/dev/sdb", ""),
            ("nfs4", "nothing", ""),
            ("nfs4", ":/x", ""),
            ("nfs4", "-oProxyCommand=x:/", ""),
            ("ext4", "filer1:/export", ""),
        ] {
            assert_eq!(first(fstype, source, &[]), expected, "{fstype} {source}");
        }
    }

    #[test]
    fn a_source_may_name_several_servers() {
        for (source, count) in [
            ("a,b:/x", 2),
            ("a:/x,b:/y", 2),
            ("[2001:db8::1]:/x,[2001:db8::2]:/x", 2),
            ("a:/x,y", 1),
            ("a:/x,y/z", 1),
            ("a,a:/x", 1),
        ] {
            assert_eq!(service("nfs4", source, &[]).map(|(_, count)| count), Some(count), "{source}");
        }
        let many: Vec<String> = (0..40).map(|n| format!("h{n}")).collect();
        assert_eq!(service("nfs", &format!("{}:/x", many.join(",")), &[]).unwrap().1, MOST_HOSTS);
    }

    #[test]
    fn options_say_where_it_really_listens() {
        assert_eq!(first("nfs4", "a:/x", &["vers=4.2", "port=20049"]), "a:20049");
        assert_eq!(first("nfs", "a:/x", &["port=0"]), "a:2049");
        assert_eq!(first("cifs", "//a/s", &["port=139", "ip=192.0.2.1"]), "a:139");
        assert_eq!(service("nfs4", "a:/x", &["addr=192.0.2.1"]), Some(("a:2049".into(), 2)));
        assert_eq!(service("nfs4", "192.0.2.1:/x", &["addr=192.0.2.1"]), Some(("192.0.2.1:2049".into(), 1)));
        assert_eq!(first("nfs4", "a:/x", &["port=1", "port=2"]), "a:2");
    }

    #[test]
    fn each_monitor_is_tried_at_each_port_that_it_may_listen_on() {
        let of = |source: &str, options: &[&str]| {
            let options = options.iter().map(|option| option.as_bytes());
            Service::of("ceph", source.as_bytes(), options).unwrap()
        };
        let service = of("192.0.2.1:6789,[2001:db8::2]:6790:/data", &[]);
        assert_eq!(service.hosts, ["192.0.2.1", "2001:db8::2"]);
        assert_eq!(service.ports, [3300, 6789, 6790]);
        let service = of(
            "admin@b3acfc0d-575f.cephfs=/",
            &["mon_addr=192.0.2.1:3301/[2001:db8::2]:6789", "ms_mode=crc"],
        );
        assert_eq!(service.hosts, ["192.0.2.1", "2001:db8::2"]);
        assert_eq!(service.ports, [3300, 6789, 3301]);
    }

    #[test]
    fn what_has_several_ways_is_tried_where_it_is_told_to_go_by_tcp() {
        assert_eq!(first("9p", "192.0.2.7", &["trans=tcp"]), "192.0.2.7:564");
        assert_eq!(first("9p", "192.0.2.7", &["trans=tcp", "port=5640"]), "192.0.2.7:5640");
        assert_eq!(first("9p", "share", &["trans=virtio"]), "");
    }

    #[test]
    fn what_is_not_reached_over_tcp_is_not_tried() {
        for option in ["proto=udp", "udp", "proto=rdma", "rdma"] {
            assert_eq!(service("nfs", "a:/x", &[option]), None, "{option}");
        }
        assert!(service("nfs", "a:/x", &["proto=tcp"]).is_some());
    }
}
