//! Where the server of a volume listens: what must be reached before a new mount of it can work.

use alloc::{format, string::String, vec::Vec};
use core::fmt;

use crate::path::escape;
use crate::remediation::plan::server_name;

/// More names than this are not tried.
const MOST_HOSTS: usize = 8;

/// The port of a service. One row for each type of file system that has one over TCP.
struct Row {
    fstypes: &'static [&'static str],
    port: u16,
    /// Options with which it is not reached over TCP at this port.
    elsewhere: &'static [&'static str],
}

const PORTS: &[Row] = &[
    Row {
        fstypes: &["nfs", "nfs4"],
        port: 2049,
        elsewhere: &["udp", "proto=udp", "proto=udp6", "rdma", "proto=rdma", "proto=rdma6"],
    },
    Row { fstypes: &["cifs", "smb3"], port: 445, elsewhere: &["rdma"] },
    Row { fstypes: &["fuse.glusterfs", "glusterfs"], port: 24007, elsewhere: &["transport=rdma"] },
];

/// A service: the names or addresses of its server, any of which will do, and the port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Service {
    /// Names or addresses, those of the source first.
    pub hosts: Vec<String>,
    /// TCP.
    pub port: u16,
}

impl Service {
    /// The service behind a volume; `None` where none is known that could be tried. `options` are those of the
    /// specification and of the mount, the more important ones last.
    #[must_use]
    pub fn of<'a>(fstype: &str, source: &[u8], options: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let row = PORTS.iter().find(|row| row.fstypes.contains(&fstype))?;
        let mut hosts: Vec<String> = hosts(source).into_iter().filter_map(text).collect();
        let mut port = row.port;
        for option in options.into_iter().filter_map(|option| core::str::from_utf8(option).ok()) {
            if row.elsewhere.contains(&option) {
                return None;
            }
            match option.split_once('=') {
                // Zero: ask the port mapper. Where that sends one to, the mount table tells.
                Some(("port", number)) => match number.parse() {
                    Ok(0) | Err(_) => {}
                    Ok(number) => port = number,
                },
                Some(("addr" | "ip", address)) => hosts.extend(text(address.as_bytes())),
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
        (!seen.is_empty()).then_some(Self { hosts: seen, port })
    }
}

/// As people write it: the first name, and the port.
impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.hosts.first().map(String::as_str).unwrap_or_default();
        let host = escape(host.as_bytes());
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        write!(f, "{host}:{}", self.port)
    }
}

fn text(host: &[u8]) -> Option<String> {
    let host = core::str::from_utf8(host).ok()?;
    let is_host = |c: char| c.is_ascii_alphanumeric() || ".-_:%".contains(c) || !c.is_ascii();
    (!host.is_empty() && !host.starts_with('-') && host.chars().all(is_host)).then(|| String::from(host))
}

/// The servers that a source names. NFS takes several: `a,b:/path` and `a:/path,b:/path`.
fn hosts(source: &[u8]) -> Vec<&[u8]> {
    if source.starts_with(b"//") || source.windows(3).any(|window| window == b"://") {
        return server_name(source).into_iter().collect();
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
    let named: Vec<Option<&[u8]>> = parts
        .iter()
        .map(|part| server_name(part).or_else(|| Some(*part).filter(|part| plain(part))))
        .collect();
    // A comma in the path of a single server is part of that path.
    match named.into_iter().collect::<Option<Vec<&[u8]>>>() {
        Some(hosts) if parts.last().is_some_and(|part| server_name(part).is_some()) => hosts,
        Some(_) | None => server_name(parts.first().copied().unwrap_or_default()).into_iter().collect(),
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
    fn what_is_not_reached_over_tcp_is_not_tried() {
        for option in ["proto=udp", "udp", "proto=rdma", "rdma"] {
            assert_eq!(service("nfs", "a:/x", &[option]), None, "{option}");
        }
        assert!(service("nfs", "a:/x", &["proto=tcp"]).is_some());
    }
}
