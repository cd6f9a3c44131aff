//! Sources as people write them and as the table shows them.

use alloc::vec;

use super::*;

#[test]
fn another_name_of_the_server_alone_makes_no_other_export() {
    for (one, other) in [
        ("filer1:/export/a", "10.0.0.7:/export/a/"),
        ("filer1:/export/a", "[2001:db8::1]:/export/a"),
        ("filer1.prod.example:/", "filer1:/"),
    ] {
        assert!(is_same_export(one.as_bytes(), other.as_bytes()), "{one} {other}");
    }
    for (one, other) in [("filer1:/export/a", "filer1:/export/b"), ("filer1:/a", "10.0.0.7:/a/b"), ("a", "b")]
    {
        assert!(!is_same_export(one.as_bytes(), other.as_bytes()), "{one} {other}");
    }
}

#[test]
fn slashes_alone_make_no_other_source() {
    for (one, other) in [
        ("filer1:/export/models/", "filer1:/export/models"),
        ("filer1://export", "filer1:/export"),
        ("filer1:/export//models///", "filer1:/export/models"),
        ("[2001:db8::1]:/x/", "[2001:db8::1]:/x"),
        ("//filer/share/", "//filer/share"),
        (r"\\filer\share\dir", "//filer/share/dir"),
        ("10.0.0.1@tcp:/scratch/", "10.0.0.1@tcp:/scratch"),
        ("admin@fsid.cephfs=//dir/", "admin@fsid.cephfs=/dir"),
        ("ann@host:dir/", "ann@host:dir"),
        ("/srv/a/", "/srv/a"),
        ("", ""),
    ] {
        assert!(is_same(one.as_bytes(), other.as_bytes()), "{one} {other}");
        assert!(is_same(other.as_bytes(), one.as_bytes()), "{other} {one}");
    }
    for (one, other) in [
        ("filer1:/", "filer1:"),
        ("admin@fsid.cephfs=/", "admin@fsid.cephfs="),
        ("//filer/share", "/filer/share"),
        ("filer1:/a/b", "filer1:/ab"),
        ("filer1:/a", "filer2:/a"),
        ("filer1:/a", "filer1:/A"),
        (r"host:/a\b", "host:/a/b"),
        ("/", ""),
    ] {
        assert!(!is_same(one.as_bytes(), other.as_bytes()), "{one} {other}");
    }
}
fn text(found: Option<&[u8]>) -> Option<&str> {
    found.map(|name| str::from_utf8(name).unwrap())
}

#[test]
fn daemons_that_show_what_they_were_given_name_the_place_on_a_server() {
    for (fstype, one, other, expected) in [
        ("fuse.sshfs", "ann@files:/x", "files:/x/", Some(true)),
        ("fuse.sshfs", "sshfs#ann@files:/x", "bob@Files:/x", Some(true)),
        ("fuse.sshfs", "a@a:x", "a@a:x", Some(true)),
        ("fuse.sshfs", "[2001:db8::1]:/x", "[2001:db8::1]:/x", Some(true)),
        ("fuse.sshfs", "a:/x", "b:/x", Some(false)),
        ("fuse.sshfs", "a:/x", "a:/y", Some(false)),
        ("fuse.sshfs", "a:/x", "sshfs", None),
        ("fuse.glusterfs", "one:/vol", "two:vol", Some(true)),
        ("fuse.glusterfs", "one:/vol", "one:/other", Some(false)),
        ("fuse.rclone", "a:x", "a{Zx}:x", None),
        ("fuse", "a:x", "b:x", None),
    ] {
        assert_eq!(is_same_remote(fstype, one.as_bytes(), other.as_bytes()), expected, "{one} {other}");
    }
}

#[test]
fn sources_name_their_host() {
    for (source, expected) in [
        ("filer1:/export", Some("filer1")),
        ("filer1:/export@daily", Some("filer1")),
        ("[fe80::1]:/export", Some("fe80::1")),
        ("ann@files:/x", Some("files")),
        ("ann@files:", Some("files")),
        ("//srv/share", Some("srv")),
        ("https://u:p@dav.example:8443/x", Some("dav.example")),
        ("/dev/sda1", None),
        ("/srv/a:b", None),
        ("s3fs", None),
        ("", None),
    ] {
        assert_eq!(text(host(source.as_bytes())), expected, "{source}");
    }
}

#[test]
fn a_server_is_named_as_its_kind_names_it() {
    for (fstype, source, expected) in [
        ("nfs4", "filer1:/export", Some("filer1")),
        ("fuse.sshfs", "ann@files:/x", Some("files")),
        ("lustre", "10.0.0.1@tcp:/scratch", Some("10.0.0.1@tcp")),
        ("lustre", "10.0.0.1@o2ib,10.1.0.1@tcp:10.0.0.2@o2ib:/scratch/dir", Some("10.0.0.1@o2ib")),
        ("lustre", "nothing", None),
        ("lustre", ":/x", None),
        ("ceph", "admin@6f1c-22.cephfs=/a", Some("6f1c-22")),
        ("ceph", "192.0.2.1:6789,192.0.2.2:6789:/a", Some("192.0.2.1")),
        ("ceph", "192.0.2.1:6789:/a=b.c@d", Some("192.0.2.1")),
        ("ceph", "admin@.cephfs=/", None),
        ("9p", "192.0.2.7", Some("192.0.2.7")),
        ("9p", "2001:db8::7", Some("2001:db8::7")),
        ("9p", "hostshare", None),
        ("virtiofs", "hostshare", None),
    ] {
        assert_eq!(text(server(fstype, source.as_bytes())), expected, "{fstype} {source}");
    }
}

#[test]
fn options_tell_addresses() {
    for (options, expected) in [
        ("rw,vers=4.2,addr=192.0.2.10", vec!["192.0.2.10"]),
        ("rw,mon_addr=192.0.2.1:6789/192.0.2.2:3300", vec!["192.0.2.1", "192.0.2.2"]),
        ("rw,mon_addr=[2001:db8::1]:6789/2001:db8::2", vec!["2001:db8::1", "2001:db8::2"]),
        ("rw,mountaddr=192.0.2.9", vec![]),
        ("rw,mon_addr=1/2/3/4/5/6/7", vec!["1", "2", "3", "4", "5"]),
    ] {
        let options = Options::parse(options.as_bytes());
        let found: Vec<_> = addresses(&options).map(|address| str::from_utf8(address).unwrap()).collect();
        assert_eq!(found, expected);
    }
}
