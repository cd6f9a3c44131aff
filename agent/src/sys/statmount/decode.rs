//! What `statmount` wrote, as a line of the table. Bytes in, facts out; every offset is checked.
//!
//! The result must be what the parser of mountinfo makes of the same mount. What the kernel prints escaped in
//! both is undone here too; what it prints raw is not.
//!
//! kernel: `struct statmount`, include/uapi/linux/mount.h; strings are offsets from byte 512 on.

use std::fmt;

use agent_core::id::{MountId, SuperblockId};
use agent_core::path::BytePath;
use agent_core::topology::{Mount, Options, Propagation};

use crate::sys::mountinfo::{options_of, text};

const SB_BASIC: u64 = 0x1;
const MNT_BASIC: u64 = 0x2;
const MNT_ROOT: u64 = 0x8;
const MNT_POINT: u64 = 0x10;
const FS_TYPE: u64 = 0x20;
const MNT_OPTS: u64 = 0x80;
const FS_SUBTYPE: u64 = 0x100;
const SB_SOURCE: u64 = 0x200;
const SUPPORTED_MASK: u64 = 0x1000;

/// What a line is made of. A kernel passes over what it does not know.
pub(super) const WANTED: u64 = SB_BASIC
    | MNT_BASIC
    | MNT_ROOT
    | MNT_POINT
    | FS_TYPE
    | MNT_OPTS
    | FS_SUBTYPE
    | SB_SOURCE
    | SUPPORTED_MASK;

/// Fields that every mount has. The others are not given where they are empty.
const ALWAYS: [(u64, &str); 4] = [
    (SB_BASIC, "the superblock"),
    (MNT_BASIC, "the ids"),
    (MNT_ROOT, "the root"),
    (FS_TYPE, "the file-system type"),
];

/// Fields that came later, where the kernel says what it supports.
const LATER: [(u64, &str); 3] =
    [(MNT_OPTS, "the options"), (FS_SUBTYPE, "the subtype"), (SB_SOURCE, "the source")];

/// Where the strings begin.
const STRINGS: usize = 512;

/// A field that makes a line and is not told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incomplete(&'static str);

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// `None`: the mount cannot be reached from the root, and mountinfo would not list it.
pub(crate) fn mount(bytes: &[u8]) -> Result<Option<Mount>, Incomplete> {
    let written = Written { bytes };
    let mask = written.u64(8)?;
    let missing = |fields: &[(u64, &'static str)], given: u64| {
        fields.iter().find(|(field, _)| given & field == 0).map(|(_, name)| Incomplete(name))
    };
    if let Some(missing) = missing(&ALWAYS, mask) {
        return Err(missing);
    }
    // kernel: `supported_mask`, since 6.15. Before, the comparison of both readers at the start must tell.
    if mask & SUPPORTED_MASK != 0
        && let Some(missing) = missing(&LATER, written.u64(144)?)
    {
        return Err(missing);
    }
    if mask & MNT_POINT == 0 {
        return Ok(None);
    }
    let string = |field, at| if mask & field == 0 { Ok(&[][..]) } else { written.string(at) };
    let mut fstype = written.string(36)?.to_vec();
    let subtype = string(FS_SUBTYPE, 120)?;
    if !subtype.is_empty() {
        fstype.push(b'.');
        fstype.extend_from_slice(subtype);
    }
    Ok(Some(Mount {
        unique: Some(written.u64(40)?),
        id: MountId(written.u32(56)?),
        parent: MountId(written.u32(60)?),
        superblock: SuperblockId { major: written.u32(16)?, minor: written.u32(20)? },
        root: BytePath::new(written.string(104)?),
        mountpoint: BytePath::new(written.string(108)?),
        options: mount_options(written.u64(64)?),
        propagation: Propagation {
            shared: written.group(80)?,
            master: written.group(88)?,
            unbindable: written.u64(72)? & UNBINDABLE != 0,
        },
        fstype: text(fstype),
        source: string(SB_SOURCE, 124)?.to_vec(),
        super_options: super_options(written.u32(32)?, string(MNT_OPTS, 4)?),
    }))
}

/// kernel: `MOUNT_ATTR_*`, include/uapi/linux/mount.h, in the order of `show_mnt_opts`, fs/proc_namespace.c.
const ATTRIBUTES: [(u64, u64, &str); 9] = [
    (0x1, 0x1, "ro"),
    (0x1, 0x0, "rw"),
    (0x2, 0x2, "nosuid"),
    (0x4, 0x4, "nodev"),
    (0x8, 0x8, "noexec"),
    (0x70, 0x10, "noatime"),
    (0x80, 0x80, "nodiratime"),
    (0x70, 0x0, "relatime"),
    (0x20_0000, 0x20_0000, "nosymfollow"),
];
const IDMAP: u64 = 0x10_0000;
/// kernel: `mnt_to_propagation_flags`, fs/namespace.c, since 6.8: MS_UNBINDABLE.
const UNBINDABLE: u64 = 1 << 17;

fn mount_options(attributes: u64) -> Options {
    let words = ATTRIBUTES.iter().filter(|(field, value, _)| attributes & field == *value);
    let idmapped = (attributes & IDMAP != 0).then_some("idmapped");
    let words = words.map(|(_, _, word)| *word).chain(idmapped);
    Options::from_words(words.map(|word| word.as_bytes().to_vec()))
}

/// kernel: `SB_*` bits that `statmount` tells, in the order of `show_sb_opts`, fs/proc_namespace.c.
const SUPER_FLAGS: [(u32, &str); 3] = [(0x10, ",sync"), (0x80, ",dirsync"), (0x200_0000, ",lazytime")];

fn super_options(flags: u32, printed: &[u8]) -> Options {
    let mut line = if flags & 1 != 0 { b"ro".to_vec() } else { b"rw".to_vec() };
    for (_, word) in SUPER_FLAGS.iter().filter(|(flag, _)| flags & flag != 0) {
        line.extend_from_slice(word.as_bytes());
    }
    line.push(b',');
    line.extend_from_slice(printed);
    options_of(&line)
}

/// The structure and its strings.
struct Written<'a> {
    bytes: &'a [u8],
}

impl<'a> Written<'a> {
    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], Incomplete> {
        self.bytes.get(at..).and_then(<[u8]>::first_chunk).copied().ok_or(Incomplete("a whole structure"))
    }

    fn u32(&self, at: usize) -> Result<u32, Incomplete> {
        self.array(at).map(u32::from_ne_bytes)
    }

    fn u64(&self, at: usize) -> Result<u64, Incomplete> {
        self.array(at).map(u64::from_ne_bytes)
    }

    /// A peer group; 0 is none.
    fn group(&self, at: usize) -> Result<Option<u32>, Incomplete> {
        Ok(u32::try_from(self.u64(at)?).ok().filter(|group| *group != 0))
    }

    /// The string whose offset stands at `at`.
    fn string(&self, at: usize) -> Result<&'a [u8], Incomplete> {
        let start = self.u32(at)? as usize + STRINGS;
        let rest = self.bytes.get(start..).ok_or(Incomplete("a whole string"))?;
        let end = rest.iter().position(|byte| *byte == 0).ok_or(Incomplete("a whole string"))?;
        Ok(rest.get(..end).unwrap_or_default())
    }
}
