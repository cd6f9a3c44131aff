//! The table of targets, and what each of them demands of its decoder beyond not failing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agent_common::decode as records;
use agent_common::key::CounterKey;
use agent_core::consumer::Dead;
use agent_core::errno::Errno;
use agent_core::glob::{Glob, Kind};
use agent_core::id::{SuperblockId, VolumeId};
use agent_core::remediation::Outcome;
use agent_core::remediation::asking::Answer;
use agent_core::time::Monotonic;
use agent_core::{path, secret};
use bytes::BytesMut;

use super::{Memory, Target, seeds, tables};
use crate::asking::answer;
use crate::config::{Config, Environment, Sources};
use crate::kernel::btf::KernelTypes;
use crate::probe::protocol;
use crate::remediation::{self, wire};
use crate::sensor::census::{procfs, wire as census};
use crate::sensor::consumers::wire as consumers;
use crate::sensor::ebpf::decode as observations;
use crate::sensor::fanotify::{decode as fanotify, mark};
use crate::store::memory::{Clocks, File};
use crate::store::place::{kept_of, kept_source};
use crate::store::{journal, shelf};
use crate::sys::mountinfo::lines::Lines;
use crate::sys::{look, mountinfo, statmount};

/// What a decoder holds that keeps pieces of its input.
const PIECES: Memory = Memory { per_byte: 16, fixed: 16 << 10 };

/// Every target. A decoder that is not in it is not tried.
pub const TARGETS: &[Target] = &[
    Target {
        name: "mountinfo",
        feed: mountinfo_text,
        seeds: seeds::mountinfo,
        words: seeds::MOUNTINFO_WORDS,
        memory: Memory { per_byte: 40, fixed: 16 << 10 },
        grow: repeated,
    },
    Target {
        name: "mount_table",
        feed: tables::mount_table,
        seeds: seeds::mount_tables,
        words: seeds::MOUNTINFO_WORDS,
        memory: Memory { per_byte: 400, fixed: 96 << 10 },
        grow: seeds::grown_table,
    },
    Target {
        name: "statmount",
        feed: statmount_reply,
        seeds: seeds::statmount,
        words: seeds::MOUNTINFO_WORDS,
        memory: PIECES,
        grow: seeds::grown_statmount,
    },
    Target {
        name: "fanotify",
        feed: fanotify_events,
        seeds: seeds::fanotify,
        words: &[],
        memory: Memory { per_byte: 0, fixed: 0 },
        grow: repeated,
    },
    Target {
        name: "mark_answer",
        feed: mark_answer,
        seeds: seeds::mark_answers,
        words: seeds::MARK_WORDS,
        memory: PIECES,
        grow: repeated,
    },
    Target {
        name: "records",
        feed: kernel_record,
        seeds: seeds::records,
        words: &[],
        memory: Memory { per_byte: 4, fixed: 4 << 10 },
        grow: repeated,
    },
    Target {
        name: "blocked_records",
        feed: blocked_records,
        seeds: seeds::blocked_records,
        words: &[],
        memory: Memory { per_byte: 0, fixed: 0 },
        grow: repeated,
    },
    Target {
        name: "btf",
        feed: type_information,
        seeds: seeds::btf,
        words: seeds::BTF_WORDS,
        memory: Memory { per_byte: 60, fixed: 64 << 10 },
        grow: seeds::grown_btf,
    },
    Target {
        name: "config",
        feed: config_text,
        seeds: seeds::config,
        words: seeds::CONFIG_WORDS,
        memory: Memory { per_byte: 600, fixed: 256 << 10 },
        grow: seeds::grown_config,
    },
    Target {
        name: "environment",
        feed: environment,
        seeds: seeds::environment,
        words: seeds::ENVIRONMENT_WORDS,
        memory: Memory { per_byte: 2_000, fixed: 256 << 10 },
        grow: repeated,
    },
    Target {
        name: "journal",
        feed: journal_lines,
        seeds: seeds::journal,
        words: seeds::JOURNAL_WORDS,
        memory: Memory { per_byte: 100, fixed: 16 << 10 },
        grow: repeated,
    },
    Target {
        name: "volume_file",
        feed: volume_file,
        seeds: seeds::volume_files,
        words: seeds::VOLUME_FILE_WORDS,
        memory: Memory { per_byte: 200, fixed: 64 << 10 },
        grow: seeds::grown_volume_file,
    },
    Target {
        name: "probe_protocol",
        feed: probe_messages,
        seeds: seeds::probe_messages,
        words: &[],
        memory: PIECES,
        grow: repeated,
    },
    Target {
        name: "remediation_wire",
        feed: remediation_lines,
        seeds: seeds::remediation_lines,
        words: seeds::REMEDIATION_WORDS,
        memory: Memory { per_byte: 100, fixed: 16 << 10 },
        grow: repeated,
    },
    Target {
        name: "hook_answer",
        feed: hook_answer,
        seeds: seeds::hook_answers,
        words: seeds::HOOK_ANSWER_WORDS,
        memory: Memory { per_byte: 200, fixed: 64 << 10 },
        grow: repeated,
    },
    Target {
        name: "node_files",
        feed: remediation::read_node_files,
        seeds: seeds::node_files,
        words: seeds::NODE_WORDS,
        memory: Memory { per_byte: 60, fixed: 16 << 10 },
        grow: repeated,
    },
    Target {
        name: "census_wire",
        feed: census_lines,
        seeds: seeds::census_lines,
        words: seeds::CENSUS_WORDS,
        memory: Memory { per_byte: 100, fixed: 16 << 10 },
        grow: repeated,
    },
    Target {
        name: "consumers_wire",
        feed: consumers_lines,
        seeds: seeds::consumers_lines,
        words: seeds::CONSUMERS_WORDS,
        memory: Memory { per_byte: 100, fixed: 16 << 10 },
        grow: repeated,
    },
    Target {
        name: "procfs",
        feed: procfs_files,
        seeds: seeds::procfs,
        words: seeds::PROCFS_WORDS,
        memory: Memory { per_byte: 60, fixed: 16 << 10 },
        grow: repeated,
    },
    Target {
        name: "text",
        feed: texts,
        seeds: seeds::texts,
        words: seeds::TEXT_WORDS,
        memory: Memory { per_byte: 40, fixed: 16 << 10 },
        grow: seeds::grown_text,
    },
];

/// So many copies, one after the other.
fn repeated(piece: &[u8], copies: usize) -> Vec<u8> {
    piece.repeat(copies)
}

/// Every line is a mount or is counted as bad, and it does not matter in which pieces the text arrives.
fn mountinfo_text(input: &[u8]) {
    let whole = mountinfo::parse_table(input);
    let (mut lines, mut pieces) = (Lines::default(), mountinfo::Parsed::default());
    for piece in input.chunks(1 + input.len() / 3) {
        lines.feed(piece, |line| pieces.add(line));
    }
    pieces.bad_lines += lines.finish(|line| pieces.add(line));
    assert_eq!(whole, pieces);
    drop(pieces);
    for line in input.split(|byte| *byte == b'\n') {
        let id = mountinfo::leading_id(line);
        if let Ok(mount) = mountinfo::parse_line(line) {
            assert_eq!(id, Some(mount.id));
            let place = mountinfo::parse_place(line);
            assert_eq!(place.map(|place| place.mountpoint), Ok(mount.mountpoint));
        }
    }
}

fn statmount_reply(input: &[u8]) {
    if let Ok(Some(mount)) = statmount::decode::mount(input) {
        assert!(mount.unique.is_some() && input.len() >= 512);
    }
}

/// Every event costs its header at least, and nothing follows an error.
fn fanotify_events(input: &[u8]) {
    let (mut events, mut errors) = (0, 0);
    for event in fanotify::decode(input) {
        assert_eq!(errors, 0, "an event after an error");
        match event {
            Ok(_) => events += 1,
            Err(_) => errors += 1,
        }
    }
    assert!(events * 24 <= input.len());
}

fn mark_answer(input: &[u8]) {
    if let Some(answer) = mark::Answer::from_output(input) {
        assert_eq!(mark::Answer::from_output(answer.to_line().as_bytes()), Some(answer));
    }
}

/// A record of the ring buffer becomes an observation that names the same superblock.
fn kernel_record(input: &[u8]) {
    match records::decode(input) {
        Ok(records::Record::Error(record)) => {
            let seen = observations::first(&record);
            assert_eq!(seen.superblock.to_kernel(), record.key.s_dev);
            assert_eq!((seen.errno, seen.count), (Errno(record.key.errno), 0));
        }
        Ok(records::Record::Name(record)) => {
            let length = usize::try_from(record.path_len).unwrap_or(usize::MAX);
            assert!(record.path.get(..length).is_some());
            let key = CounterKey { s_dev: record.base_dev, ..CounterKey::default() };
            let seen = observations::placed(&record.header, &record.who, &key);
            assert_eq!(seen.superblock, SuperblockId::from_kernel(record.base_dev));
        }
        Ok(records::Record::Unknown { .. }) | Err(_) => {}
    }
}

fn blocked_records(input: &[u8]) {
    let mut rest = input;
    while let Ok((_, after)) = records::decode_blocked(rest) {
        assert!(after.len() < rest.len());
        rest = after;
    }
}

/// What the agent asks of a kernel's types, asked of any.
fn type_information(input: &[u8]) {
    let Ok(types) = KernelTypes::parse(input) else { return };
    for (structure, fields) in [("outer", "d"), ("outer", "a.b"), ("file", "f_path.dentry"), ("wide", "x")] {
        let _ = types.offset(structure, fields);
    }
    for name in ["vfs_read", "outer", "a"] {
        let _ = types.function(name);
    }
    let _ = types.tracepoint_arguments("sys_exit");
}

/// What is accepted is printed as a file that means the same.
fn config_text(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match Config::from_toml(&text) {
        Ok(config) => {
            let printed = config.to_toml();
            assert_eq!(Config::from_toml(&printed).ok(), Some(config), "{printed}");
        }
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
}

/// Variables, one a line.
fn environment(input: &[u8]) {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;
    let os = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let pairs = input.split(|byte| *byte == b'\n').map(|line| {
        let end = line.iter().position(|byte| *byte == b'=').unwrap_or(line.len());
        (os(line.get(..end).unwrap_or_default()), os(line.get(end + 1..).unwrap_or_default()))
    });
    let sources = Sources { environment: Environment::from_pairs(pairs), ..Sources::default() };
    match Config::from_text("", &sources) {
        Ok(config) => assert_eq!(Config::from_toml(&config.to_toml()).ok(), Some(config)),
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
}

/// Lines as they are, and each with the check sum that it should have: what is read is what was written.
fn journal_lines(input: &[u8]) {
    for line in input.split(|byte| *byte == b'\n') {
        let json = line.strip_prefix(b"SUM ").unwrap_or(line);
        let summed = [format!("{:08x} ", crc32fast::hash(json)).as_bytes(), json].concat();
        for line in [line, &summed] {
            if let journal::Line::Ours(record) = journal::parse_line(line) {
                let written = journal::render_line(&record);
                let again = journal::parse_line(written.trim_end_matches('\n').as_bytes());
                assert!(matches!(again, journal::Line::Ours(same) if same == record), "{written}");
                let _ = record.into_unfinished();
            }
        }
    }
}

/// What is known of a volume: during the boot that wrote it and during another, what is written again is read again,
/// and the engine takes it.
fn volume_file(input: &[u8]) {
    let Ok(file) = shelf::parse(input) else { return };
    for boot in ["one", "two"] {
        let clocks = Clocks {
            boot: Some(boot.to_owned()),
            now: Monotonic::from_nanos(5_000_000_000_000),
            wall: Duration::from_secs(1_700_000_000),
        };
        let other = file.other.clone();
        let mut memory = file.clone().into_memory(&clocks);
        assert!(memory.falls.is_sorted() && memory.falls.last().is_none_or(|last| *last <= clocks.now));
        let written = serde_json::to_vec(&File::new(&memory, other.clone(), &clocks)).unwrap_or_default();
        let again = shelf::parse(&written).ok();
        assert_eq!(again.as_ref().map(|again| &again.other), Some(&other), "what is newer stays");
        if let Some(trouble) = &mut memory.trouble {
            trouble.message = secret::hide(&trouble.message);
        }
        memory.known = memory.known.map(|known| Arc::new(kept_of(&known)));
        if let Some(learnt) = &mut memory.learnt {
            learnt.source = kept_source(&learnt.source);
        }
        for asked in memory.asked.iter_mut().chain(&mut memory.asked_of_consumers) {
            asked.hook = secret::hide(&asked.hook);
            asked.given_up = asked.given_up.as_deref().map(secret::hide);
        }
        for holding in memory.left.iter_mut().filter_map(|left| left.holding.as_mut()) {
            if let Ok(text) = str::from_utf8(&holding.source) {
                holding.source = secret::hide(text).into_bytes();
            }
        }
        assert_eq!(again.map(|again| again.into_memory(&clocks)), Some(memory.clone()));
        tables::remembered(memory, clocks.now);
    }
}

/// What is understood is one of the answers that there are, and a wait is a time that can be added up.
fn hook_answer(input: &[u8]) {
    let Ok((answer, text)) = answer::parse(input) else { return };
    let _ = secret::hide(&text);
    assert!(!matches!(answer, Answer::Nothing(_)), "{answer:?}");
}

/// Frames, and what is in them: a message is the only one that its bytes mean.
fn probe_messages(input: &[u8]) {
    let mut received = BytesMut::from(input);
    while let Ok(Some(body)) = protocol::take_body(&mut received) {
        one_message(&body);
        if received.len() + protocol::HEADER > input.len() {
            break;
        }
    }
    one_message(input);
}

fn one_message(body: &[u8]) {
    if let Ok(request) = protocol::Request::decode(body) {
        assert_eq!(request.encode(), body);
    }
    if let Ok(reply) = protocol::Reply::decode(body) {
        assert_eq!(reply.encode(), body);
    }
}

/// Both directions. A child says nothing of itself that only the executor may say.
fn remediation_lines(input: &[u8]) {
    for line in input.split(|byte| *byte == b'\n') {
        if let Ok(request) = serde_json::from_slice::<wire::Request>(line) {
            assert!(serde_json::to_vec(&request).is_ok());
        }
        if let Ok(wire::Line::Done(report)) = serde_json::from_slice::<wire::Line>(line) {
            let step = wire::Step::from(*report);
            assert!(!matches!(step.outcome, Outcome::TimedOut | Outcome::Interrupted));
        }
    }
}

fn census_lines(input: &[u8]) {
    for line in String::from_utf8_lossy(input).lines() {
        if let Some(ask) = census::Ask::from_line(line) {
            assert_eq!(census::Ask::from_line(&ask.to_line()), Some(ask));
        }
        if let Some(answer) = census::Answer::from_line(line) {
            assert_eq!(census::Answer::from_line(&answer.to_line()), Some(answer));
        }
    }
}

/// Both directions: what is asked about arrives as it was, and what is found belongs to it.
fn consumers_lines(input: &[u8]) {
    for line in input.split(|byte| *byte == b'\n') {
        for dead in serde_json::from_slice::<Vec<consumers::WireDead>>(line).unwrap_or_default() {
            let dead = Dead::from(dead);
            assert_eq!(Dead::from(consumers::WireDead::from(&dead)), dead);
        }
        let Ok(answer) = serde_json::from_slice::<consumers::Answer>(line) else { continue };
        let dead = Dead {
            volume: VolumeId::new("models"),
            superblock: SuperblockId { major: 0, minor: 46 },
            holding: None,
            ids: BTreeSet::new(),
            gone: BTreeSet::new(),
            is_shown: false,
        };
        for found in answer.found {
            assert_eq!(found.of(&dead).superblock, dead.superblock);
        }
    }
}

/// Files of procfs, of which programs choose a part: their names.
fn procfs_files(input: &[u8]) {
    let _ = (procfs::Mounts::of(input), look::mount_of(input));
    for line in input.split(|byte| *byte == b'\n') {
        let _ = procfs::stat(line);
    }
    let text = String::from_utf8_lossy(input);
    let _ = procfs::sum_of(&text, &["syscr:", "voluntary_ctxt_switches:"]);
    for line in text.lines() {
        let _ = (procfs::call(line), procfs::function(line));
    }
}

/// A pattern and a text, with a NUL between; the text is shown to people, without secrets.
fn texts(input: &[u8]) {
    let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len().min(32));
    let (pattern, text) = input.split_at(end);
    let pattern = String::from_utf8_lossy(pattern);
    for kind in [Kind::Path, Kind::Text] {
        let glob = Glob::new(&pattern, kind);
        assert!(
            !pattern.bytes().all(|byte| byte.is_ascii_alphanumeric()) || glob.matches(pattern.as_bytes())
        );
        let _ = glob.matches(text);
    }
    let shown = path::escape(text);
    assert!(!shown.contains(char::is_control));
    let hidden = secret::hide(&String::from_utf8_lossy(text));
    assert_eq!(secret::hide(&hidden), hidden, "hiding twice is hiding once");
}
