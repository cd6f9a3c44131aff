//! The parser against lines that have broken other parsers, against random bytes, and against the kernel's way
//! of writing.

use proptest::prelude::*;

use super::lines::MAX_LINE;
use super::*;

fn one(line: &[u8]) -> Mount {
    let parsed = parse_table(line);
    assert_eq!(parsed.bad_lines, 0, "{}", path::escape(line));
    assert_eq!(parsed.mounts.len(), 1);
    parsed.mounts.into_iter().next().unwrap()
}

fn words(options: &Options) -> Vec<&[u8]> {
    options.iter().collect()
}

#[test]
fn an_ordinary_line_gives_every_field() {
    let mount =
        one(b"36 35 98:0 /mnt1 /mnt2 rw,noatime shared:1 master:7 - ext3 /dev/root rw,errors=continue\n");
    assert_eq!(mount.id, MountId(36));
    assert_eq!(mount.parent, MountId(35));
    assert_eq!(mount.superblock, SuperblockId { major: 98, minor: 0 });
    assert_eq!(mount.root, BytePath::from("/mnt1"));
    assert_eq!(mount.mountpoint, BytePath::from("/mnt2"));
    assert_eq!(words(&mount.options), [b"rw".as_slice(), b"noatime"]);
    assert_eq!(mount.propagation, Propagation { shared: Some(1), master: Some(7), unbindable: false });
    assert_eq!(mount.fstype, "ext3");
    assert_eq!(mount.source, b"/dev/root");
    assert_eq!(words(&mount.super_options), [b"rw".as_slice(), b"errors=continue"]);
}

#[test]
fn an_empty_source_is_a_field_between_two_spaces() {
    let mount = one(b"318 29 0:87 / /run/scratch rw,relatime shared:95 - tmpfs  rw,seclabel,size=64k\n");
    assert_eq!(mount.source, b"");
    assert_eq!(mount.fstype, "tmpfs");
    assert_eq!(words(&mount.super_options), [b"rw".as_slice(), b"seclabel", b"size=64k"]);
}

#[test]
fn a_dash_as_source_or_within_a_path_is_not_the_separator() {
    let mount = one(b"219 31 0:58 / /mnt/\\040-\\040x rw,relatime shared:77 master:3 - tmpfs - rw,size=1m\n");
    assert_eq!(mount.mountpoint, BytePath::from("/mnt/ - x"));
    assert_eq!(mount.source, b"-");
    assert!(mount.super_options.has("size=1m"));
    // Root and mount point are fields 4 and 5 even when they are a dash.
    let odd = one(b"1 2 0:3 - - - - tmpfs - -\n");
    assert_eq!(odd.mountpoint, BytePath::from("-"));
    assert!(odd.options.has("-") && odd.super_options.has("-"));
}

#[test]
fn there_may_be_no_optional_field_or_many_or_unknown_ones() {
    let none = one(b"871 840 0:4 mnt:[4026531999] /run/ns/job-a.mnt rw - nsfs nsfs rw\n");
    assert_eq!(none.root, BytePath::from("mnt:[4026531999]"));
    assert_eq!(none.propagation, Propagation::default());
    let many = one(
        b"120 33 253:4 / /opt rw,relatime shared:55 master:2 propagate_from:7 futuretag - xfs /dev/mapper/vg0-opt rw,attr2\n",
    );
    assert_eq!(many.propagation, Propagation { shared: Some(55), master: Some(2), unbindable: false });
    assert_eq!(many.fstype, "xfs");
    let unbindable = one(b"1 2 0:3 / /a rw unbindable new:tag:with:colons - tmpfs t rw\n");
    assert_eq!(unbindable.propagation, Propagation { unbindable: true, ..Propagation::default() });
}

#[test]
fn bytes_that_are_not_utf8_stay_as_they_are() {
    let mount = one(b"72 44 0:46 / /mnt/caf\xe9 rw,relatime - tmpfs \xb1arc rw\n");
    assert_eq!(mount.mountpoint.as_bytes(), b"/mnt/caf\xe9");
    assert_eq!(mount.mountpoint.to_string(), "/mnt/caf\\xe9");
    assert_eq!(mount.source, b"\xb1arc");
    let subtype = one(b"72 44 0:46 / /m rw - fuse.caf\xe9 x rw\n");
    assert_eq!(subtype.fstype, "fuse.caf\\xe9");
}

#[test]
fn a_line_of_many_layers_is_one_mount_and_of_too_long_a_line_only_options_are_lost() {
    let mut line = b"2687 96 0:77 / /ovl rw,relatime - overlay overlay ro".to_vec();
    for layer in 0..120 {
        line.extend_from_slice(format!(",lowerdir+=/l/{}{layer:03}", "d".repeat(60)).as_bytes());
    }
    assert!(line.len() > 8192);
    let mount = one(&line);
    assert_eq!(mount.super_options.iter().filter(|word| word.starts_with(b"lowerdir+=")).count(), 120);

    let head = b"1 2 0:3 / /long rw - overlay o ".to_vec();
    let fits = [head.as_slice(), &vec![b'x'; MAX_LINE - head.len()]].concat();
    assert_eq!(one(&fits).mountpoint, BytePath::from("/long"));
    let after = b"1 2 0:3 / /after rw - tmpfs t rw\n";
    let parsed = parse_table(&[fits.as_slice(), b"x\n", after].concat());
    assert_eq!((parsed.mounts.len(), parsed.bad_lines), (2, 1));
    let places: Vec<_> = parsed.mounts.iter().map(|mount| mount.mountpoint.clone()).collect();
    assert_eq!(places, [BytePath::from("/long"), BytePath::from("/after")]);
}

#[test]
fn every_octal_escape_is_undone_and_other_backslashes_stay() {
    let mount = one(b"1 2 0:3 /a\\040b /t\\011n\\012s\\134h\\043\\377 rw - tmpfs s\\040\\134p rw\n");
    assert_eq!(mount.root.as_bytes(), b"/a b");
    assert_eq!(mount.mountpoint.as_bytes(), b"/t\tn\ns\\h#\xff");
    assert_eq!(mount.source, b"s \\p");
    for (raw, plain) in [
        (b"\\".as_slice(), b"\\".as_slice()),
        (b"\\0", b"\\0"),
        (b"\\04", b"\\04"),
        (b"\\08 ", b"\\08 "),
        (b"\\400", b"\\400"),
        (b"\\134040", b"\\040"),
        (b"\\\\040", b"\\ "),
    ] {
        assert_eq!(unescape(raw), plain);
    }
}

#[test]
fn options_are_unescaped_after_the_split() {
    let mount = one(b"1 2 0:3 / /o rw - overlay o rw,upperdir=/a\\054b\\040c,,x=\\134:,workdir=/w odd\n");
    assert_eq!(
        words(&mount.super_options),
        [b"rw".as_slice(), b"upperdir=/a,b c", b"x=\\:", b"workdir=/w odd"]
    );
    assert_eq!(words(&one(b"1 2 0:3 / /o rw - tmpfs t\n").super_options), Vec::<&[u8]>::new());
    assert_eq!(words(&one(b"1 2 0:3 / /o rw - tmpfs t \n").super_options), Vec::<&[u8]>::new());
}

#[test]
fn a_deleted_root_keeps_its_mark() {
    let mount = one(b"1 2 8:1 /vol/sub//deleted /m rw - ext4 /dev/sda1 rw");
    assert_eq!(mount.root, BytePath::from("/vol/sub//deleted"));
}

#[test]
fn one_bad_line_costs_one_line() {
    let good = b"1 2 0:3 / /m rw - tmpfs t rw".as_slice();
    let bad: &[(&[u8], BadLine)] = &[
        (b"", BadLine::Number("mount id")),
        (b"x 2 0:3 / /m rw - tmpfs t rw", BadLine::Number("mount id")),
        (b"+1 2 0:3 / /m rw - tmpfs t rw", BadLine::Number("mount id")),
        (b"4294967296 2 0:3 / /m rw - tmpfs t rw", BadLine::Number("mount id")),
        (b"1 -2 0:3 / /m rw - tmpfs t rw", BadLine::Number("parent id")),
        (b"1 2 03 / /m rw - tmpfs t rw", BadLine::Number("device")),
        (b"1 2 0: / /m rw - tmpfs t rw", BadLine::Number("device")),
        (b"1 2 0:3 / /m rw shared:x - tmpfs t rw", BadLine::Number("shared")),
        (b"1 2 0:3 / /m rw shared:1 tmpfs t rw", BadLine::NoSeparator),
        (b"1 2 0:3 / /m rw", BadLine::NoSeparator),
        (b"1 2 0:3 / /m", BadLine::Missing("options")),
        (b"1 2 0:3 / /m rw -", BadLine::Missing("type")),
        (b"1 2 0:3 / /m rw - tmpfs", BadLine::Missing("source")),
    ];
    for (line, why) in bad {
        assert_eq!(parse_line(line), Err(*why), "{}", path::escape(line));
        let table = [good, b"\n", line, b"\n", good].concat();
        let parsed = parse_table(&table);
        assert_eq!((parsed.mounts.len(), parsed.bad_lines), (2, 1), "{}", path::escape(line));
    }
}

/// Writes a field as the kernel does: `mangle` escapes these five, and a comma only where it separates words.
fn escaped(bytes: &[u8], special: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in bytes {
        if special.contains(byte) {
            out.extend_from_slice(format!("\\{byte:03o}").as_bytes());
        } else {
            out.push(*byte);
        }
    }
    out
}

fn rendered(mount: &Mount) -> Vec<u8> {
    let field = |bytes: &[u8]| escaped(bytes, b" \t\n\\#");
    let joined = |options: &Options| {
        options.iter().map(|word| escaped(word, b" \t\n\\,")).collect::<Vec<_>>().join(&b","[..])
    };
    let mut fields = vec![
        mount.id.0.to_string().into_bytes(),
        mount.parent.0.to_string().into_bytes(),
        mount.superblock.to_string().into_bytes(),
        field(mount.root.as_bytes()),
        field(mount.mountpoint.as_bytes()),
        joined(&mount.options),
    ];
    fields.extend(mount.propagation.shared.map(|group| format!("shared:{group}").into_bytes()));
    fields.extend(mount.propagation.master.map(|group| format!("master:{group}").into_bytes()));
    fields.push(b"-".to_vec());
    fields.push(field(mount.fstype.as_bytes()));
    fields.push(field(&mount.source));
    fields.push(joined(&mount.super_options));
    fields.join(&b" "[..])
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    // Bytes that matter to the parser come often enough to meet one another.
    let byte = prop_oneof![1_u8..=255, Just(b' '), Just(b'\\'), Just(b'-'), Just(b','), Just(b'0')];
    prop::collection::vec(byte, 0..24)
}

prop_compose! {
    fn mounts()(
        id in any::<u32>(), parent in any::<u32>(), major in any::<u32>(), minor in any::<u32>(),
        root in bytes(), mountpoint in bytes(), source in bytes(), fstype in "[a-zA-Z0-9. #é-]{1,12}",
        words in prop::collection::vec(bytes(), 0..4), super_words in prop::collection::vec(bytes(), 0..4),
        shared in prop::option::of(any::<u32>()), master in prop::option::of(any::<u32>()),
    ) -> Mount {
        Mount {
            id: MountId(id),
            unique: None, parent: MountId(parent), superblock: SuperblockId { major, minor },
            root: BytePath::new(root), mountpoint: BytePath::new(mountpoint),
            options: Options::from_words(words), propagation: Propagation { shared, master, unbindable: false },
            fstype, source, super_options: Options::from_words(super_words),
        }
    }
}

proptest! {
    #[test]
    fn what_the_kernel_would_write_is_read_back(mount in mounts()) {
        let line = rendered(&mount);
        prop_assert_eq!(leading_id(&line), Some(mount.id));
        prop_assert_eq!(parse_line(&line), Ok(mount));
    }

    #[test]
    fn random_bytes_never_panic_and_every_line_is_accounted_for(table in prop::collection::vec(any::<u8>(), 0..400)) {
        let parsed = parse_table(&table);
        let newlines = table.iter().filter(|byte| **byte == b'\n').count();
        let unfinished = usize::from(table.last().is_some_and(|byte| *byte != b'\n'));
        prop_assert_eq!(parsed.mounts.len() as u64 + parsed.bad_lines, (newlines + unfinished) as u64);
    }

    #[test]
    fn a_damaged_line_never_panics(mount in mounts(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut line = rendered(&mount);
        let position = at.index(line.len());
        line[position] = byte;
        let _ = parse_line(&line);
        let _ = parse_line(&line[..position]);
    }
}

#[test]
fn a_place_is_what_the_whole_line_says_and_needs_no_more_than_its_fields() {
    let line = b"36 35 98:0 /a\\040b /mnt\\134c rw - ext3 /dev/root rw";
    let (place, mount) = (parse_place(line).unwrap(), parse_line(line).unwrap());
    assert_eq!((place.id, place.parent, place.superblock), (mount.id, mount.parent, mount.superblock));
    assert_eq!((&place.root, &place.mountpoint), (&mount.root, &mount.mountpoint));
    assert_eq!(parse_place(b"36 35 98:0 /a\\040b /mnt\\134c"), Ok(place));
    assert_eq!(parse_place(b"36 35 98:0 /a"), Err(BadLine::Missing("mount point")));
}
