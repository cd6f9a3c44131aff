//! What the kernel and its programs write, field by field.

use agent_common::record::{KIND_ERROR, KIND_NAME};

/// Appends numbers in this machine's order.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u16s(mut self, values: &[u16]) -> Self {
        self.0.extend(values.iter().flat_map(|value| value.to_ne_bytes()));
        self
    }

    fn u32s(mut self, values: &[u32]) -> Self {
        self.0.extend(values.iter().flat_map(|value| value.to_ne_bytes()));
        self
    }

    fn u64s(mut self, values: &[u64]) -> Self {
        self.0.extend(values.iter().flat_map(|value| value.to_ne_bytes()));
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Zeros up to a length.
    fn up_to(mut self, length: usize) -> Self {
        self.0.resize(self.0.len().max(length), 0);
        self
    }
}

fn length_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

/// kernel: `struct statmount`, include/uapi/linux/mount.h, since 6.8.
fn reply(mask: u64, options: &[u8], place: &[u8]) -> Vec<u8> {
    let strings: [&[u8]; 6] = [options, b"nfs4", b"/", place, b"sshfs", b"filer1:/export/models"];
    let offset = |index: usize| {
        let before: usize = strings.iter().take(index).map(|text| text.len() + 1).sum();
        u32::try_from(before).unwrap_or(u32::MAX)
    };
    let head = Bytes::default()
        .u32s(&[0, offset(0)])
        .u64s(&[mask])
        .u32s(&[0, 46])
        .u64s(&[0x6969])
        .u32s(&[0x10, offset(1)])
        .u64s(&[0x1_0000_0001, 0x1_0000_0000])
        .u32s(&[31, 22])
        .u64s(&[0x1e, 0, 95, 7, 0])
        .u32s(&[offset(2), offset(3)])
        .u64s(&[0])
        .u32s(&[offset(4), offset(5)])
        .up_to(144)
        .u64s(&[mask]);
    strings.iter().fold(head.up_to(512), |bytes, text| bytes.bytes(text).bytes(b"\0")).0
}

pub(in crate::fuzz) fn statmount() -> Vec<Vec<u8>> {
    let options = b"vers=4.2,hard,upperdir=/a\\054b\\040c,addr=192.0.2.1";
    [0x3bb, 0x13bb, 0x3ab, 0x2b].map(|mask| reply(mask, options, b"/mnt/models")).to_vec()
}

/// The same with many options.
pub(in crate::fuzz) fn grown_statmount(piece: &[u8], copies: usize) -> Vec<u8> {
    let word: Vec<u8> = piece.iter().skip(512).copied().filter(|byte| *byte != 0).collect();
    reply(0x3bb, &word.repeat(copies), b"/mnt/models")
}

/// kernel: `struct fanotify_event_metadata`, include/uapi/linux/fanotify.h.
fn event(mask: u64, records: &[u8]) -> Vec<u8> {
    Bytes::default()
        .u32s(&[24 + length_of(records)])
        .bytes(&[3, 0])
        .u16s(&[24])
        .u64s(&[mask])
        .u32s(&[u32::MAX, 0])
        .bytes(records)
        .0
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len() + 4).unwrap_or(u16::MAX);
    Bytes::default().bytes(&[kind, 0]).u16s(&[length]).bytes(content).0
}

pub(in crate::fuzz) fn fanotify() -> Vec<Vec<u8>> {
    let fid = record(1, &Bytes::default().u32s(&[0x1122_3344, u32::MAX, 0, 0xff]).0);
    let error = record(5, &Bytes::default().u32s(&[117, 3]).0);
    let mount = record(7, &Bytes::default().u32s(&[0]).u64s(&[0x1_0000_0002]).0);
    let unknown = record(200, &[0xaa; 30]);
    let events = [
        event(0x8000, &[fid.as_slice(), &error].concat()),
        event(0x0100_0000, &mount),
        event(0x0200_0000, &[mount.as_slice(), &unknown].concat()),
        event(0x4000, &[]),
    ];
    let all = events.concat();
    events.into_iter().chain([all]).collect()
}

/// `Who` of `agent_common`, in its layout.
fn who(bytes: Bytes) -> Bytes {
    bytes.u64s(&[7]).u32s(&[71, 70, 0xf000_0001, 0]).bytes(b"cat\0\0\0\0\0\0\0\0\0\0\0\0\0")
}

pub(in crate::fuzz) fn records() -> Vec<Vec<u8>> {
    let header = |kind, length| Bytes::default().u32s(&[kind, length]).u64s(&[42]);
    let error = who(header(KIND_ERROR, 72).u64s(&[2]).u32s(&[46]).u16s(&[116]).bytes(&[3, 0])).0;
    let name = who(header(KIND_NAME, 328)).u32s(&[u32::MAX - 99]).u16s(&[5]).bytes(&[1, 0]).u32s(&[11, 46]);
    let name = name.bytes(b"/mnt/models").up_to(328).0;
    vec![error, name, header(9, 16).0]
}

pub(in crate::fuzz) fn blocked_records() -> Vec<Vec<u8>> {
    let one =
        who(Bytes::default()).u64s(&[2, 3, 0x7f00, 4096, 0, 0, 0, 99, 5, 6]).u32s(&[46, 0, 1, 0, 0, 0]).0;
    vec![one.clone(), one.repeat(3)]
}

pub(in crate::fuzz) const BTF_WORDS: &[&[u8]] = &[
    &[0x9f, 0xeb, 1, 0],
    b"outer\0",
    b"file\0",
    &[0, 0, 0, 4],
    &[0, 0, 0, 0x84],
    &[0, 0, 0, 8],
    &[0, 0, 0, 13],
    &[2, 0, 0, 5],
];

/// kernel: `struct btf_header`, include/uapi/linux/btf.h.
fn type_information(types: &[u32], names: &[u8]) -> Vec<u8> {
    let length = u32::try_from(types.len() * 4).unwrap_or(u32::MAX);
    Bytes::default()
        .u16s(&[0xeb9f])
        .bytes(&[1, 0])
        .u32s(&[24, 0, length, length, length_of(names)])
        .u32s(types)
        .bytes(names)
        .0
}

const NAMES: &[u8] = b"\0int\0outer\0a\0b\0c\0d\0vfs_read\0file\0f_path\0wide\0btf_trace_sys_exit\0dentry\0";

/// Where a name begins among [`NAMES`].
fn at(name: &[u8]) -> u32 {
    let with_ends = [b"\0", name, b"\0"].concat();
    let found = NAMES.windows(with_ends.len()).position(|part| part == with_ends);
    u32::try_from(found.map_or(0, |place| place + 1)).unwrap_or(0)
}

fn types() -> Vec<u32> {
    let info = |kind: u32, members: u32| kind << 24 | members;
    [
        vec![at(b"int"), info(1, 0), 4, 0x0100_0020],                 // 1
        vec![0, info(4, 2), 8, at(b"c"), 1, 0, at(b"d"), 1, 32],      // 2
        vec![0, info(5, 2), 8, at(b"b"), 1, 0, 0, 2, 0],              // 3
        vec![at(b"outer"), info(4, 2), 12, at(b"a"), 1, 0, 0, 3, 32], // 4
        vec![0, info(2, 0), 4],                                       // 5: outer *
        vec![0, info(13, 2), 1, at(b"a"), 5, at(b"b"), 1],            // 6
        vec![at(b"vfs_read"), info(12, 1), 6],                        // 7
        vec![0, info(2, 0), 6],                                       // 8
        vec![at(b"btf_trace_sys_exit"), info(8, 0), 8],               // 9
        vec![at(b"file"), info(4, 1), 16, at(b"f_path"), 11, 0],      // 10
        vec![0, info(10, 0), 12],                                     // 11: const
        vec![at(b"wide"), info(4, 1), 16, at(b"dentry"), 5, 64],      // 12
        vec![at(b"c"), info(6, 2), 4, at(b"a"), 1, at(b"b"), 2],      // 13: enum
        vec![0, info(3, 0), 0, 1, 1, 8],                              // 14: array
    ]
    .concat()
}

pub(in crate::fuzz) fn btf() -> Vec<Vec<u8>> {
    vec![type_information(&types(), NAMES), type_information(&[], b"\0")]
}

/// So many times the same types, with the same names.
pub(in crate::fuzz) fn grown_btf(_: &[u8], copies: usize) -> Vec<u8> {
    type_information(&types().repeat(copies), NAMES)
}
