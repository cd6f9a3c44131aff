//! Inputs that are right, and the words that formats are made of.
//!
//! What the agent writes itself is made by what writes it; what kernels write is made here, field by field.

use agent_core::errno::Errno;
use agent_core::id::{MountId, SuperblockId};
use agent_core::observation::{NotRun, ProbeOk, ProbeResult, ProbeStep};
use agent_core::path::BytePath;
use agent_core::volume::{ProbeUser, Sentinel};

use crate::probe::planting::{PlantFault, Planted, Planting};
use crate::probe::protocol::{Reply, Request, frame};

mod kernel;

pub(super) use kernel::{
    BTF_WORDS, blocked_records, btf, fanotify, grown_btf, grown_statmount, records, statmount,
};

fn owned(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

pub(super) const MOUNTINFO_WORDS: &[&[u8]] = &[
    b" - ",
    b" ",
    b"\n",
    b"\\040",
    b"\\134",
    b"\\012",
    b"shared:",
    b"master:",
    b"propagate_from:",
    b"rw",
    b"ro",
    b"nfs4",
    b"fuse.sshfs",
    b"autofs",
    b"tmpfs",
    b"overlay",
    b"ext4",
    b"cifs",
    b"btrfs",
    b"//deleted",
    b"/mnt/models",
    b"filer1:/export/models",
    b"0:46",
    b"8:1",
    b"shutdown",
    b"emergency_ro",
    b"/",
    b"mnt:[4026531841]",
];

const TABLE: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
23 22 0:21 / /proc rw,nosuid shared:12 - proc proc rw
31 22 0:46 / /mnt/models rw,relatime shared:95 - nfs4 filer1:/export/models rw,vers=4.2,hard,addr=192.0.2.1
32 22 0:47 /sub /mnt/caf\\351\\040x rw master:7 - fuse.sshfs u@h:/x rw,user_id=0,group_id=0
33 22 0:48 / /net rw - autofs systemd-1 rw,fd=45,pgrp=1,timeout=0,direct
34 33 0:49 / /net rw,relatime - cifs //server/share ro,vers=3.1.1,soft
35 22 253:4 / /data ro,noatime - xfs /dev/mapper/vg0-data rw,attr2,shutdown
36 35 253:5 /a//deleted /data/b rw - btrfs /dev/sdb rw,subvolid=256,subvol=/a
";

pub(super) fn mountinfo() -> Vec<Vec<u8>> {
    let mut seeds = owned(&[
        TABLE,
        "219 31 0:58 / /mnt/\\040-\\040x rw,relatime shared:77 master:3 - tmpfs - rw,size=1m\n",
        "318 29 0:87 / /run/scratch rw,relatime shared:95 - tmpfs  rw,seclabel,size=64k\n",
        "1 2 0:3 / /o rw - overlay o rw,upperdir=/a\\054b\\040c,,x=\\134:,workdir=/w odd\n",
        "871 840 0:4 mnt:[4026531999] /run/ns/job-a.mnt rw - nsfs nsfs rw\n",
    ]);
    seeds.push(b"72 44 0:46 / /mnt/caf\xe9 rw,relatime unbindable new:tag - fuse.\xb1 \xb1arc rw\n".to_vec());
    seeds
}

pub(super) fn mount_tables() -> Vec<Vec<u8>> {
    owned(&[
        TABLE,
        // A stack, a cover, a volume that is something else, parents in a ring.
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:46 / /data rw - nfs4 f:/a rw\n3 2 0:47 / /data rw - nfs4 f:/b rw\n4 3 0:48 / /data rw - fuse.x y rw\n",
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:46 /x /a/b rw - nfs4 f:/a rw\n3 1 0:47 / /a rw - tmpfs t rw\n5 1 0:46 /x /c rw - nfs4 f:/a rw\n",
        "1 2 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:1 / / rw - ext4 /dev/sda1 rw\n3 4 0:5 / /mnt/models rw - ext4 /dev/sdc rw\n4 3 0:5 / /mnt/models rw - ext4 /dev/sdc rw\n",
    ])
}

/// So many copies of a table. In one kind of them all stand on one another, as a `mount` that is repeated leaves
/// them; in the other each shows a directory of its own at a place of its own, as those of containers do.
pub(super) fn grown_table(piece: &[u8], copies: usize) -> Vec<u8> {
    let is_stacked = piece.len().is_multiple_of(2);
    let mut text = b"1 0 8:9 / / rw - ext4 /dev/sda9 rw\n".to_vec();
    for copy in 0..copies {
        for (number, mount) in crate::sys::mountinfo::parse_table(piece).mounts.iter().enumerate().take(64) {
            let (id, below) = (2 + copy * 64 + number, 2 + copy.saturating_sub(1) * 64 + number);
            let (parent, own) = if is_stacked && copy > 0 { (below, 0) } else { (1, copy) };
            let own = if is_stacked { String::new() } else { format!("/d{own}") };
            let plain = |bytes: &[u8]| {
                let kept = |byte: &&u8| byte.is_ascii_graphic() && !b"\\".contains(*byte);
                String::from_utf8_lossy(&bytes.iter().filter(kept).copied().collect::<Vec<u8>>()).into_owned()
            };
            let (root, place) = (plain(mount.root.as_bytes()), plain(mount.mountpoint.as_bytes()));
            let (fstype, source) = (plain(mount.fstype.as_bytes()), plain(&mount.source));
            let line = format!(
                "{id} {parent} {} {root}{own} {place}{own} rw - {fstype} {source} rw\n",
                mount.superblock
            );
            text.extend_from_slice(line.as_bytes());
        }
    }
    text
}

pub(super) const MARK_WORDS: &[&[u8]] = &[
    b"mountie-mark",
    b" set ",
    b" other ",
    b" refused ",
    b"open",
    b"mark",
    b"\n",
    b"00000000ffffffff",
    b"13",
];

pub(super) fn mark_answers() -> Vec<Vec<u8>> {
    use crate::sensor::fanotify::decode::Fsid;
    use crate::sensor::fanotify::mark::{Answer, MarkStep};
    let mut answers = vec![Answer::Set(Fsid(0x1122_3344_5566_7788)), Answer::Other(42)];
    answers.extend(MarkStep::ALL.map(|step| Answer::Refused(step, Errno(13))));
    answers.into_iter().map(|answer| format!("noise\n{}\n", answer.to_line()).into_bytes()).collect()
}

pub(super) const CONFIG_WORDS: &[&[u8]] = &[
    b"[[volume]]\n",
    b"[agent]\n",
    b"[defaults]\n",
    b"[discovery]\n",
    b"[volume.repair]\n",
    b"[kernel]\n",
    b" = ",
    b"\"",
    b"'''",
    b"name",
    b"mountpoint",
    b"options",
    b"sentinel",
    b"include",
    b"fstype",
    b"source",
    b"identity",
    b"uuid",
    b"\"10s\"",
    b"{",
    b"}",
    b"[",
    b"]",
    b"true",
    b"0x",
    b"1979-05-27",
    b"inf",
    b"\\u0000",
    b"\\x5c",
    b"#",
    b"password=x",
];

pub(super) fn config() -> Vec<Vec<u8>> {
    let small = "[agent]\nlisten = \"\"\n[[volume]]\nname = \"a\"\nmountpoint = \"/a\"\nfstype = \"nfs4\"\nsource = \"f:/a\"\nmode = \"act\"\n[volume.repair]\nmethod = \"command\"\ncommand = [\"/bin/fix\", \"{target}\"]\n";
    let wrong = "[agent]\nlisten = 5\nsokcet = \"/x\"\n[[volume]]\noptions = [\"password=Zx9\"]\nsentinel = { path = \"../x\" }\n[[volume]]\nname = \"a\"\nmountpoint = '/caf\\xe9'\n";
    let mut seeds = owned(&[small, wrong]);
    seeds.push(include_bytes!("../../config/mountie.example.toml").to_vec());
    seeds
}

/// Many volumes: of everything else there is only one in a file.
pub(super) fn grown_config(piece: &[u8], copies: usize) -> Vec<u8> {
    let mark = b"[[volume]]";
    let start = piece.windows(mark.len()).position(|part| part == mark).unwrap_or(0);
    let (head, volumes) = piece.split_at(start);
    [head, &volumes.repeat(copies)].concat()
}

pub(super) const ENVIRONMENT_WORDS: &[&[u8]] = &[
    b"MOUNTIE_AGENT_LISTEN=",
    b"MOUNTIE_AGENT_SOCKET=",
    b"MOUNTIE_DEFAULTS_MODE=",
    b"MOUNTIE_KERNEL_FAMILY=",
    b"MOUNTIE_DEFAULTS_INTERVAL=",
    b"MOUNTIE_DISCOVERY_ENABLED=",
    b"MOUNTIE_PORT_9747_TCP=",
    b"MOUNTIE_",
    b"\n",
    b"=",
    b"act",
    b"10s",
    b"false",
    b"[::1]:1",
    b"sys_exit",
];

pub(super) fn environment() -> Vec<Vec<u8>> {
    let mut seeds = owned(&[
        "MOUNTIE_AGENT_LISTEN=127.0.0.1:80\nMOUNTIE_DEFAULTS_MODE=observe\nMOUNTIE_DEFAULTS_INTERVAL=10s\n",
        "MOUNTIE_KERNEL_FAMLIY=off\nMOUNTIE_DISCOVERY_ENABLED=maybe\nMOUNTIE_PORT=tcp://192.0.2.1:9747\nHOME=/root\n",
        "MOUNTIE_AGENT_STATE_DIR=/var/lib/x\nMOUNTIE_DEFAULTS_FAILURES=3\nMOUNTIE_DEFAULTS_DEADLINE=3500ms\n",
    ]);
    seeds.push(b"MOUNTIE_AGENT_SOCKET=/run/\xe9\n".to_vec());
    seeds
}

pub(super) const JOURNAL_WORDS: &[&[u8]] = &[
    b"SUM ",
    b"\n",
    b"{",
    b"}",
    b"\"apiVersion\":\"mountie/v1\"",
    b"\"kind\":\"Intent\"",
    b"\"kind\":\"Outcome\"",
    b"\"kind\":\"Mark\"",
    b"\"plan\":",
    b"18446744073709551615",
    b"\"mountpoint\":[47,233]",
    b"null",
    b"\\u0000",
    b"[[[[[[[[",
];

pub(super) fn journal() -> Vec<Vec<u8>> {
    owned(&[
        "SUM {\"apiVersion\":\"mountie/v1\",\"kind\":\"Intent\",\"plan\":7,\"volume\":\"models\",\"mountpoint\":\"/mnt/models\",\"stage\":[47,233],\"old\":[0,46],\"boot\":\"x\",\"reason\":\"stale\"}\n",
        "SUM {\"apiVersion\":\"mountie/v1\",\"kind\":\"Outcome\",\"plan\":7,\"outcome\":\"changed\"}\nSUM {\"apiVersion\":\"mountie/v1\",\"kind\":\"Mark\",\"plan\":9}\n",
        "SUM {\"apiVersion\":\"mountie/v2\",\"kind\":\"Other\",\"more\":[1,{\"a\":null}]}\n00000000 {}\nffffffff x\n",
    ])
}

pub(super) const VOLUME_FILE_WORDS: &[&[u8]] = &[
    b"\"apiVersion\": \"mountie/v1\"",
    b"\"kind\": \"VolumeMemory\"",
    b"\"kind\": \"Volume\"",
    b"\"owner\": {\"kind\": \"kubelet\", \"pod\": \"1f\", \"plugin\": \"kubernetes.io/csi\", \"volume\": \"pvc\"}",
    b"\"mounted\": {\"fstype\": \"nfs4\", \"source\": [47, 233], \"root\": \"/\", \"options\": [\"rw\", [255]]}",
    b"\"boot\": \"one\"",
    b"\"boot\": \"two\"",
    b"\"state\": \"probation\"",
    b"\"reason\": \"writeback_lost\"",
    b"\"beforeBoot\": true",
    b"{\"wallMs\": 1, \"bootNs\": 2}",
    b"\"loss\": ",
    b"\"newer\": [1]",
    b"18446744073709551615",
    b"null",
    b",",
    b"[",
    b"]",
];

const VOLUME_FILE: &str = r#"{"apiVersion": "mountie/v1", "kind": "VolumeMemory", "volume": "models",
"mountpoint": "/mnt/models", "boot": "one", "trouble": {"state": "quarantined", "reason": "stale",
"since": {"wallMs": 1699999990000, "bootNs": 4990000000000}, "beforeBoot": false, "byErrors": true, "byTable": true,
"message": "tried -o password=Zx9"}, "attempts": [{"wallMs": 1699999990000, "bootNs": 4990000000000}],
"failedAttempts": 3, "lastAttempt": {"wallMs": 1699999990000, "bootNs": 4990000000000},
"notBefore": {"wallMs": 1700000090000, "bootNs": 5090000000000},
"identity": {"fsid": "00000000000000aa", "source": "//u:Zx9@filer/a"}, "asked": {"hook": "/etc/mountie/ask",
"putOff": 3, "notBefore": {"wallMs": 1700000090000, "bootNs": 5090000000000}, "givenUp": "password=Zx9"},
"wasReadable": true, "mount": {"device": [0, 46],
"mountId": 31, "unique": 4294967297, "since": {"wallMs": 1699999000000, "bootNs": 4000000000000},
"wasWritable": true, "storageErrors": true, "shutdown": {"wallMs": 1699999990000, "bootNs": 4990000000000},
"loss": {"at": {"wallMs": 1699999990000, "bootNs": 4990000000000}, "errno": 5, "acknowledged":
{"at": {"wallMs": 1699999991000, "bootNs": 4991000000000}, "uid": 0, "pid": 42, "comm": "mountie"}}},
"left": [{"device": [0, 41]}, {"device": [0, 42], "holding": {"root": "/", "fstype": "cifs", "source":
"//u:Zx9@filer/a"}}], "newer": {"x": [1, null]}, "falls": []}"#;

pub(super) fn volume_files() -> Vec<Vec<u8>> {
    let moment = r#"{"wallMs": 1699999990000, "bootNs": 4990000000000}"#;
    owned(&[
        VOLUME_FILE,
        &VOLUME_FILE.replace("\"boot\": \"one\"", "\"boot\": null").replace("[]}", &format!("[{moment}]}}")),
        &VOLUME_FILE.replace("\"/mnt/models\"", "[47, 233]").replace("mountie/v1", "mountie/v3"),
        &VOLUME_FILE.replace("mountie/v1", "mountie/v2").replace("VolumeMemory", "Volume"),
        "{\"apiVersion\": \"mountie/v1\", \"kind\": \"VolumeMemory\", \"volume\": \"\", \"mountpoint\": []}",
    ])
}

/// One volume that fell very often.
pub(super) fn grown_volume_file(piece: &[u8], copies: usize) -> Vec<u8> {
    let text = String::from_utf8_lossy(piece);
    let moments: Vec<String> =
        (0..copies * 8).map(|number| format!("{{\"wallMs\": {number}, \"bootNs\": {number}}}")).collect();
    text.replacen("\"falls\": []", &format!("\"falls\": [{}]", moments.join(",")), 1).into_bytes()
}

pub(super) const HOOK_ANSWER_WORDS: &[&[u8]] = &[
    b"\"answer\":",
    b"\"wait\"",
    b"\"seconds\":",
    b"1e999",
    b"-0",
    b"\"text\":",
    b"null",
    b"{",
    b"}",
    b"\\u0000",
];

pub(super) fn hook_answers() -> Vec<Vec<u8>> {
    owned(&[
        "{\"answer\":\"remount\"}\n",
        "{\"answer\":\"wait\",\"seconds\":60.5,\"text\":\"until token=Zx9\"}",
        "{\"text\":null,\"answer\":\"escalate\",\"more\":[1,{\"a\":null}]}",
    ])
}

pub(super) fn probe_messages() -> Vec<Vec<u8>> {
    let superblock = SuperblockId { major: 0, minor: 46 };
    let request = |sentinel| Request {
        mountpoint: BytePath::from("/mnt/models"),
        superblock,
        mount_id: MountId(31),
        root: BytePath::from("/"),
        fstype: "nfs4".to_owned(),
        sentinel,
        write: true,
        user: Some(ProbeUser { uid: 1000, gid: 1000, groups: vec![4, 27] }),
        is_automount: true,
        planting: None,
    };
    let planting = Planting {
        path: BytePath::from(".mountie"),
        content: b"models-7f3a".to_vec(),
        is_chosen: true,
        may_adopt: false,
    };
    let sentinel = Sentinel { path: BytePath::from(".mountie"), content: Some(b"models-7f3a".to_vec()) };
    let ok = ProbeOk { root_inode: 2, read_data: true, fsid: Some("a1".to_owned()), ..ProbeOk::default() };
    let results = [
        ProbeResult::Ok(ok.clone()),
        ProbeResult::WriteFailed { errno: Errno(28), read: ok },
        ProbeResult::Failed { step: ProbeStep::Root, errno: Errno(116) },
        ProbeResult::WrongMount { found: superblock },
        ProbeResult::TimedOut { step: ProbeStep::Sentinel },
        ProbeResult::NotRun(NotRun::WorkerLost),
    ];
    let planted = [
        Ok(Planted::Written(b"models-7f3a".to_vec())),
        Err(PlantFault::Look(ProbeResult::WrongMount { found: superblock })),
        Err(PlantFault::Write(Errno(28))),
    ];
    let replies = [Reply::Ready, Reply::Refused("no privilege".to_owned())].into_iter();
    let replies = replies.chain(results.map(Reply::Done)).chain(planted.map(Reply::Planted));
    let requests =
        [request(None), request(Some(sentinel)), Request { planting: Some(planting), ..request(None) }];
    let bodies: Vec<Vec<u8>> =
        requests.iter().map(Request::encode).chain(replies.map(|reply| reply.encode())).collect();
    let frames: Vec<u8> = bodies.iter().filter_map(|body| frame(body).ok()).flatten().collect();
    bodies.into_iter().chain([frames]).collect()
}

pub(super) const REMEDIATION_WORDS: &[&[u8]] = &[
    b"{\"Progress\":\"",
    b"{\"Done\":{",
    b"\"outcome\":",
    b"\"Changed\"",
    b"{\"Refused\":\"",
    b"{\"Failed\":",
    b"null",
    b"\n",
    b"\"former\":{\"options\":[114,119],\"is_shared\":true}",
    b"\"gap\":",
    b"\"action\":\"Unstage\"",
    b"\"action\":{\"RestartUnit\":{\"unit\":\"a.mount\",\"daemon\":7}}",
    b"\"action\":{\"SwapConsumers\":{\"holding\":null,\"all\":true,\"namespace\":null}}",
    b"\"namespaces\":[{\"number\":7,\"process\":8}]",
    b"\"detached\":[9]",
    b"[47,97]",
    b"1e99",
];

pub(super) fn remediation_lines() -> Vec<Vec<u8>> {
    owned(&[
        "{\"Progress\":\"mounting\"}\n{\"Done\":{\"outcome\":\"Changed\",\"text\":\"done\",\"gap\":17,\"gone_at\":null,\"shown_at\":5,\"number_proves_nothing\":true,\"former\":{\"options\":[114,111],\"is_shared\":true}}}\n",
        "{\"Done\":{\"outcome\":{\"Refused\":\"busy\"},\"text\":\"\",\"gap\":null,\"gone_at\":null,\"shown_at\":null,\"number_proves_nothing\":false,\"former\":null}}\n",
        "{\"Done\":{\"outcome\":{\"Failed\":5},\"text\":\"\",\"gap\":null,\"gone_at\":null,\"shown_at\":null,\"number_proves_nothing\":false,\"former\":null}}\n",
        "{\"parent\":1,\"deadline\":18446744073709551615,\"volume\":\"models\",\"stage_root\":[47,115],\"mountpoint\":[47,109],\"stage\":[47,115,47,49],\"old\":46,\"number_proves_nothing\":false,\"repairs_readonly\":false,\"former\":null,\"action\":{\"Stage\":{\"method\":\"Mount\",\"source\":[102],\"fstype\":\"nfs4\",\"options\":[\"hard\"],\"environment_file\":null}}}\n",
        "{\"parent\":1,\"deadline\":1,\"volume\":\"models\",\"stage_root\":[],\"mountpoint\":[],\"stage\":[],\"old\":null,\"number_proves_nothing\":false,\"repairs_readonly\":false,\"former\":null,\"action\":{\"CheckStaged\":{\"sentinel\":{\"path\":[97],\"content\":null},\"uuid\":null,\"fsid\":\"a1\",\"source\":null,\"fstype\":null}}}\n",
        "{\"parent\":1,\"deadline\":1,\"volume\":\"models\",\"stage_root\":[47],\"mountpoint\":[47,109],\"stage\":[47,115],\"old\":46,\"number_proves_nothing\":false,\"repairs_readonly\":false,\"former\":null,\"action\":{\"CoverConsumers\":{\"holding\":{\"root\":[47],\"fstype\":\"nfs4\",\"source\":[102,58,233]},\"all\":false,\"namespace\":{\"number\":7,\"process\":8}}}}\n",
        "{\"Done\":{\"outcome\":{\"Refused\":\"consumers_left\"},\"text\":\"\",\"gap\":null,\"gone_at\":null,\"shown_at\":null,\"number_proves_nothing\":false,\"former\":null,\"namespaces\":[{\"number\":7,\"process\":8}],\"detached\":[9,10]}}\n",
    ])
}

pub(super) const NODE_WORDS: &[&[u8]] = &[
    b" /v ",
    b"\\040",
    b"\\1",
    b"\t",
    b"\n",
    b"#",
    b",",
    b"\"",
    b"=",
    b"nofail",
    b"password=",
    b"x-systemd.",
    b"u:p@h",
    b"ExecMainPID=",
];

pub(super) fn node_files() -> Vec<Vec<u8>> {
    owned(&[
        "# node\nUUID=0a-1b /v ext4 noatime,nofail,x-systemd.automount 0 2\n",
        "filer:/a\\040b\t/v//\tnfs4\tvers=4.2,context=\"a,b\"\n/srv /w none bind\n",
        "https://u:p@h/ /v davfs rw\n//s/x /v cifs username=u,password=p\n",
        "A=1\n# b\nB=\"x y\"\n",
        "LoadState=loaded\nExecMainPID=70\nWhere=/v\n",
    ])
}

pub(super) const CENSUS_WORDS: &[&[u8]] = &[
    b"all ",
    b"text ",
    b"at ",
    b"left ",
    b"task ",
    b"end ",
    b"-",
    b",",
    b"/",
    b"\n",
    b" ",
    b"4294967295",
    b"18446744073709551615",
];

pub(super) fn census_lines() -> Vec<Vec<u8>> {
    owned(&[
        "all 46,47 1,2\nall - -\ntext 46 10/11,12/13\n",
        "at 10\nleft 11\ntask 3 2 18446744073709551615 9 1 2 3 4 5 6 4 5 6 7 8 1 63617400000000000000000000000000\ntext 7 0\nend 9 1 2\n",
    ])
}

pub(super) const CONSUMERS_WORDS: &[&[u8]] = &[
    b"[{\"volume\":\"",
    b"\"superblock\":",
    b"\"holding\":null",
    b"\"holding\":{\"root\":[47],\"fstype\":\"nfs4\",\"source\":[120,255]}",
    b"\"ids\":[7,8]",
    b"{\"found\":[",
    b"\"shown\":[",
    b"\"files\":18446744073709551615",
    b"\"holders\":[",
    b",",
    b"\n",
    b"4294967295",
];

pub(super) fn consumers_lines() -> Vec<Vec<u8>> {
    owned(&[
        "[{\"volume\":\"models\",\"superblock\":46,\"holding\":{\"root\":[47],\"fstype\":\"nfs4\",\"source\":[102,58,255]},\"ids\":[7,9]},{\"volume\":\"models\",\"superblock\":4294967295,\"holding\":null,\"ids\":[]}]\n",
        "{\"found\":[{\"mounts\":1,\"shown\":[{\"namespace\":4026531841,\"process\":9,\"comm\":\"c\",\"mountpoint\":[47,100,233],\"root\":[47]}],\"ids\":[7],\"files\":3,\"holders\":[{\"process\":9,\"comm\":\"c\",\"count\":3,\"path\":[47,100,47,255]}]}],\"refused\":0,\"is_partial\":false,\"micros\":9}\n",
    ])
}

pub(super) const PROCFS_WORDS: &[&[u8]] = &[
    b"(",
    b")",
    b" S ",
    b"0x7f",
    b"running",
    b"-1 ",
    b"[<0>] ",
    b"+0x12/0x34 [fuse]",
    b"syscr: ",
    b"\n",
    b"voluntary_ctxt_switches:\t",
    b"mnt_id:\t",
    b" ",
    b"request_wait_answer",
    b"18446744073709551615",
];

pub(super) fn procfs() -> Vec<Vec<u8>> {
    owned(&[
        "71 (a) b (c)) D 70 71 71 0 -1 4194304 94 0 0 0 0 0 0 0 20 0 1 0 4242 2834432 224 18446744073709551615 1 1 0\n",
        "0 0x3 0x7ffd 0x1000 0x0 0x0 0x0 0x7ffd5a5a5a5a 0x7f1234567890\nrunning\n-1 0x7ffd5a5a5a5a 0x7f12\n",
        "[<0>] request_wait_answer+0x12/0x34 [fuse]\n[<0>] do_dentry_open.isra.0+0x1/0x2\n",
        "pos:\t0\nflags:\t0100000\nmnt_id:\t58\nino:\t90\n",
        "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\nrchar: 9\nsyscr: 3\nsyscw: 4\n",
        TABLE,
    ])
}

pub(super) const TEXT_WORDS: &[&[u8]] = &[
    b"**/",
    b"**",
    b"*",
    b"?",
    b"/",
    b"\0",
    b"password=",
    b"secret",
    b"user:pw@",
    b"://",
    b"=",
    b"@",
    b"%",
    b",",
    b"\xe9",
    b" ",
];

pub(super) fn texts() -> Vec<Vec<u8>> {
    owned(&[
        "/srv/**/x*\0/srv/a/b/xyz",
        "fuse.*\0fuse.sshfs",
        "**\0mount.cifs: tried -o rw,username=u%Zx9,password=Zx9 //server/share",
        "a\0https://u:Zx9@dav.example/ s3://id:Zx9@bucket http://h/?a=b&secret_access_key=Zx9",
        "*\0a=a=a=a=a",
        "*\0a:b@",
    ])
}

/// A longer text under the same pattern: the cost of a match is the product of both.
pub(super) fn grown_text(piece: &[u8], copies: usize) -> Vec<u8> {
    let end = piece.iter().position(|byte| *byte == 0).unwrap_or(0);
    let (pattern, text) = piece.split_at(end);
    [pattern, &[0], &text.get(1..).unwrap_or_default().repeat(copies)].concat()
}
