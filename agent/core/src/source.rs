//! What stands in the source column of the table: when two of them name the same thing, and which server they name.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::topology::Options;

/// Whether two sources are the same, as far as their text says. Slashes that lead nowhere else are not compared: of
/// `host:/export/`, `host://export` and `//host/share/` the table shows what is left of them.
///
/// kernel: `nfs_path`, fs/nfs/namespace.c, builds the path from the walk and cuts a slash at the end, since 2.6.17;
/// `smb3_parse_devname`, fs/smb/client/fs_context.c, cuts it since 5.11, and takes `\` for `/`.
#[must_use]
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    one == other || tidied(one) == tidied(other)
}

/// Whether two sources of NFS name the same export. Of its server's names and addresses the table shows the one under
/// which the kernel met it first, for whatever mount: so another host alone is no other source. Whether it is another
/// server is told by the identity of what is mounted.
///
/// kernel: `nfs_compare_super`, fs/nfs/super.c, shares superblocks between names of one address, with the name of the
/// first, since 2.6.19; `nfs4_discover_server_trunking`, fs/nfs/nfs4client.c, between addresses of one server, since
/// 3.7.
#[must_use]
pub fn is_same_export(one: &[u8], other: &[u8]) -> bool {
    let (one, other) = (tidied(one), tidied(other));
    match (remote(&one), remote(&other)) {
        (Some((_, one)), Some((_, other))) => one == other,
        _ => one == other,
    }
}

/// Whether two sources of such a FUSE file system name the same place on a server; `None` where they do not say. Most
/// daemons choose the text themselves; that of sshfs and that of GlusterFS show what they were given.
#[must_use]
pub fn is_same_remote(fstype: &str, one: &[u8], other: &[u8]) -> Option<bool> {
    let (one, other) = (remote(one)?, remote(other)?);
    match fstype {
        "fuse.sshfs" => Some(one.0.eq_ignore_ascii_case(other.0) && is_same(one.1, other.1)),
        // Any server of a pool tells of the volume.
        "fuse.glusterfs" => {
            let [one, other] = [one.1, other.1].map(|path| path.strip_prefix(b"/").unwrap_or(path));
            Some(is_same(one, other))
        }
        _ => None,
    }
}

/// The host and what is behind it, of `user@host:path`. Who asks is no part of what is asked for.
fn remote(source: &[u8]) -> Option<(&[u8], &[u8])> {
    let source = source.strip_prefix(b"sshfs#").unwrap_or(source);
    let mark: &[u8] = if source.contains(&b'[') { b"]:" } else { b":" };
    let start = source.windows(mark.len()).position(|at| at == mark)?.saturating_add(mark.len());
    Some((host(source)?, source.get(start..)?))
}

/// A source without slashes that say nothing: runs of them count once, and none stands at the end of a path.
fn tidied(source: &[u8]) -> Vec<u8> {
    let is_unc = source.starts_with(br"\\");
    let slashed = |byte: &u8| if is_unc && *byte == b'\\' { b'/' } else { *byte };
    let mut tidy: Vec<u8> = source.iter().map(slashed).collect();
    // The two before the name of a server are no path.
    let mut rest = tidy.split_off(usize::from(tidy.starts_with(b"//")));
    rest.dedup_by(|next, before| (*next, *before) == (b'/', b'/'));
    tidy.append(&mut rest);
    // `host:/` and `fs=/` name the root, which is a path as well.
    let is_of_path = |before: u8| !b":=/".contains(&before);
    if let [.., before, b'/'] = tidy.as_slice()
        && is_of_path(*before)
    {
        tidy.pop();
    }
    tidy
}

/// The server that the source of such a mount names: a host, or what stands for several.
///
/// kernel: `ceph_parse_new_source`, fs/ceph/super.c, since 5.17: `USER@CLUSTER.NAME=PATH`, without a host;
/// `p9_fd_create_tcp`, net/9p/trans_fd.c, takes an address as the whole source, where other transports take any name.
#[must_use]
pub fn server<'a>(fstype: &str, source: &'a [u8]) -> Option<&'a [u8]> {
    match fstype {
        "lustre" => nid(source),
        "ceph" => cluster(source).or_else(|| host(source)),
        "9p" => str::from_utf8(source).ok()?.parse::<IpAddr>().ok().map(|_| source),
        _ => host(source),
    }
}

/// Of `10.0.0.1@tcp:10.0.0.2@tcp:/name` the first: two networks may have one address each of the same digits.
fn nid(source: &[u8]) -> Option<&[u8]> {
    source.windows(2).find(|at| at == b":/")?;
    source.split(|byte| b":,".contains(byte)).next().filter(|nid| !nid.is_empty() && !nid.contains(&b'/'))
}

/// The cluster, by its number: its monitors stand among the options.
fn cluster(source: &[u8]) -> Option<&[u8]> {
    let name = source.split(|byte| *byte == b'=').next().filter(|name| name.len() < source.len())?;
    let (at, dot) =
        (name.iter().position(|byte| *byte == b'@')?, name.iter().position(|byte| *byte == b'.')?);
    name.get(at.saturating_add(1)..dot).filter(|cluster| !cluster.is_empty() && !name.contains(&b':'))
}

/// The addresses at which a mount's server is, by the options in the table.
///
/// kernel: `addr=` by `nfs_show_mount_options`, fs/nfs/super.c, and `cifs_show_address`, fs/smb/client/cifsfs.c;
/// `mon_addr=` by `ceph_show_options`, fs/ceph/super.c, since 5.17: `ADDRESS:PORT`, with slashes between several.
pub fn addresses(options: &Options) -> impl Iterator<Item = &[u8]> {
    let monitors = options.iter().filter_map(|word| word.strip_prefix(b"mon_addr="));
    let monitors = monitors.flat_map(|list| list.split(|byte| *byte == b'/'));
    let plain = options.iter().filter_map(|word| word.strip_prefix(b"addr="));
    plain.take(1).chain(monitors.map(without_port)).filter(|address| !address.is_empty()).take(MOST_ADDRESSES)
}

/// More addresses of one server are not told.
const MOST_ADDRESSES: usize = 5;

/// `192.0.2.1:6789`, `[2001:db8::1]:6789`
fn without_port(address: &[u8]) -> &[u8] {
    let bare = match address.strip_prefix(b"[") {
        Some(rest) => rest.split(|byte| *byte == b']').next(),
        None if address.iter().filter(|byte| **byte == b':').count() > 1 => Some(address),
        None => address.split(|byte| *byte == b':').next(),
    };
    bare.unwrap_or_default()
}

/// The host that a source names: that in `host:/path`, `[::1]:/path`, `user@host:path`, `//host/share` and
/// `scheme://user@host/path`.
#[must_use]
pub fn host(source: &[u8]) -> Option<&[u8]> {
    let after = |text: &[u8], mark: &[u8]| {
        text.windows(mark.len()).position(|at| at == mark).map(|at| at + mark.len())
    };
    let is_path = source.starts_with(b"/") && !source.starts_with(b"//");
    let (authority, is_marked) = match after(source, b"//").filter(|_| !is_path) {
        Some(start) => (source.get(start..)?.split(|byte| *byte == b'/').next()?, true),
        None => (source, false),
    };
    let host_start = authority.iter().rposition(|byte| *byte == b'@').filter(|_| is_marked);
    let host = authority.get(host_start.map_or(0, |at| at + 1)..)?;
    let host = match host.strip_prefix(b"[") {
        Some(rest) => rest.get(..rest.iter().position(|byte| *byte == b']')?)?,
        None => match host.iter().position(|byte| *byte == b':') {
            Some(colon) => host.get(..colon)?,
            None if is_marked => host,
            None => return None,
        },
    };
    let host = host.rsplit(|byte| *byte == b'@').next()?;
    (!host.is_empty() && !host.contains(&b'/')).then_some(host)
}

#[cfg(test)]
mod tests;
