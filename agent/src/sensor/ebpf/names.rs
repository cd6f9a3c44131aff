//! Places names that the kernel side could not: relative ones below an untracked directory, those with `..`,
//! and those of other mount namespaces. Best effort: symbolic links are not followed.
//!
//! Reads only procfs: the links of a process say where its directories are without going there.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use agent_common::key::CounterKey;
use agent_common::record::NameRecord;
use agent_core::time::Monotonic;

use super::places::{Places, prefixes, with_slash};
use crate::sys::clock;
use crate::sys::mountinfo::parse_place;

/// `AT_FDCWD`. kernel: include/uapi/linux/fcntl.h, since 2.6.16.
const WORKING_DIRECTORY: i32 = libc::AT_FDCWD;
/// A mount table is believed for so long.
const TABLE_LIFE: std::time::Duration = std::time::Duration::from_secs(2);
/// Tables that are kept at a time.
const TABLES: usize = 64;
/// Tables that are read in one lifetime of a table; names beyond that use what is there.
const READS: u32 = 40;
/// As many of one namespace: one whose programs fail all the time leaves the others theirs.
const READS_OF_ONE: u32 = 10;
/// The processor time that reading them may cost in it: one percent, and one table more. A container whose
/// programs fail all the time must not keep this thread busy with a table of ten thousand mounts.
const READS_COST: std::time::Duration = std::time::Duration::from_millis(20);
/// The most that is read of one table.
const LARGEST_TABLE: u64 = 8 << 20;

/// Mount points, with a slash at their end, and their superblocks.
type Table = BTreeMap<Vec<u8>, u32>;

/// Where names are looked up.
#[derive(Debug)]
pub(super) struct Names {
    proc: PathBuf,
    host_mnt_ns: u32,
    /// Whether process ids of records mean the same processes in `proc`.
    same_ids: bool,
    /// By namespace and process: the number of a namespace may come back for another one at once.
    tables: BTreeMap<(u32, u32), (Monotonic, Table)>,
    reads: Reads,
}

/// Where a name leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// To something that is tracked.
    Tracked(CounterKey),
    /// To nothing that is, or nobody can tell any more.
    Elsewhere,
    /// It was not looked up: too many had to be before it.
    NotLookedUp,
}

/// What was read in the current lifetime of a table.
#[derive(Debug, Default)]
struct Reads {
    since: Monotonic,
    count: u32,
    by_namespace: BTreeMap<u32, u32>,
    cost: std::time::Duration,
}

impl Reads {
    /// Whether one more table of a namespace may be read.
    fn allow(&mut self, now: Monotonic, namespace: u32) -> bool {
        if now.since(self.since) >= TABLE_LIFE {
            *self = Self { since: now, ..Self::default() };
        }
        let of_one = self.by_namespace.get(&namespace).copied().unwrap_or(0);
        self.count < READS && self.cost < READS_COST && of_one < READS_OF_ONE
    }

    /// A table was read. A process that was gone costs its time alone.
    fn was_read(&mut self, namespace: u32) {
        self.count += 1;
        *self.by_namespace.entry(namespace).or_default() += 1;
    }
}

impl Place {
    /// The counter there, if it is tracked.
    pub(super) const fn key(self) -> Option<CounterKey> {
        match self {
            Self::Tracked(key) => Some(key),
            Self::Elsewhere | Self::NotLookedUp => None,
        }
    }
}

impl Names {
    /// `same_ids`: this process is in the first process id namespace.
    pub(super) fn new(proc: PathBuf, host_mnt_ns: u32, same_ids: bool) -> Self {
        Self { proc, host_mnt_ns, same_ids, tables: BTreeMap::new(), reads: Reads::default() }
    }

    /// Where the name of a record leads, and the counter that it belongs to there.
    pub(super) fn place(&mut self, now: Monotonic, record: &NameRecord, places: &Places) -> Place {
        let counter = |found: Option<(u32, u64)>| {
            let Some((s_dev, root_ino)) = found else { return Place::Elsewhere };
            let (errno, op) = (record.errno, record.op);
            Place::Tracked(CounterKey { root_ino, s_dev, errno, op, reserved: 0 })
        };
        let path = usize::try_from(record.path_len).ok().and_then(|len| record.path.get(..len));
        let Some(path) = path else { return Place::Elsewhere };
        let Some(path) = self.absolute(record, path) else {
            // The process is gone. The directory it stood in is the best guess.
            let base = places.superblocks.contains_key(&record.base_dev);
            return counter(base.then_some((record.base_dev, 0)));
        };
        if record.who.mnt_ns == self.host_mnt_ns {
            return counter(places.find(&path));
        }
        // Its table names what lies below its root by the way from there, and nothing else.
        let Some(path) = below(&path, &self.root(record)) else { return Place::Elsewhere };
        match self.in_namespace(now, record, &path, places) {
            Some(found) => counter(found.map(|s_dev| (s_dev, 0))),
            None => Place::NotLookedUp,
        }
    }

    fn absolute(&self, record: &NameRecord, name: &[u8]) -> Option<Vec<u8>> {
        let base = if name.starts_with(b"/") {
            self.root(record)
        } else if record.dir == WORKING_DIRECTORY {
            self.link(record, "cwd")?
        } else {
            self.link(record, &format!("fd/{}", record.dir))?
        };
        Some(normalise(&[&base, b"/".as_slice(), name].concat()))
    }

    /// The root of the process, seen from that of its mount namespace. One that cannot be read is taken for the
    /// usual one: the process may be gone.
    fn root(&self, record: &NameRecord) -> Vec<u8> {
        self.link(record, "root").unwrap_or_else(|| b"/".to_vec())
    }

    /// Where a link of the process points, by text alone, from the root of its mount namespace.
    ///
    /// kernel: `d_path`, fs/d_path.c: up to the root of the reader, or of the tree of mounts where that is another
    /// one, all versions.
    fn link(&self, record: &NameRecord, link: &str) -> Option<Vec<u8>> {
        if !self.same_ids {
            return None;
        }
        let path = self.proc.join(record.who.pid.to_string()).join(link);
        let target = std::fs::read_link(path).ok().map(OsString::from)?.into_vec();
        target.starts_with(b"/").then_some(target)
    }

    /// The tracked superblock at a path of another namespace, if there is one; `None` when no table could be asked.
    /// A table that is kept is believed when it leads to a tracked one; else it may be older than the mount, and is
    /// read again, as often as the namespace may.
    fn in_namespace(
        &mut self,
        now: Monotonic,
        record: &NameRecord,
        path: &[u8],
        places: &Places,
    ) -> Option<Option<u32>> {
        let path = with_slash(path);
        let tracked = |table: &Table| {
            let s_dev = prefixes(&path).find_map(|prefix| table.get(prefix)).copied()?;
            places.superblocks.contains_key(&s_dev).then_some(s_dev)
        };
        let own = (record.who.mnt_ns, record.who.tgid);
        let kept = self.tables.get(&own).filter(|(read, _)| now.since(*read) < TABLE_LIFE);
        if let Some(s_dev) = kept.and_then(|(_, table)| tracked(table)) {
            return Some(Some(s_dev));
        }
        // Where process ids mean others nobody can be asked: not too many, none.
        let may_read = !self.same_ids || self.reads.allow(now, own.0);
        if let Some(table) = may_read.then(|| self.fresh_table(record)).flatten() {
            self.reads.was_read(own.0);
            let found = tracked(&table);
            self.keep(now, own, table);
            return Some(found);
        }
        // A process that is gone had the same mounts as others of its namespace.
        let others = self.tables.range((own.0, 0)..=(own.0, u32::MAX)).map(|(_, table)| table);
        let fresh = others.filter(|(read, _)| now.since(*read) < TABLE_LIFE);
        match fresh.max_by_key(|(read, _)| *read) {
            Some((_, table)) => Some(tracked(table)),
            None => may_read.then_some(None),
        }
    }

    fn keep(&mut self, now: Monotonic, own: (u32, u32), table: Table) {
        if self.tables.len() >= TABLES {
            self.tables.retain(|_, (read, _)| now.since(*read) < TABLE_LIFE);
        }
        if self.tables.len() >= TABLES {
            self.tables.pop_first();
        }
        self.tables.insert(own, (now, table));
    }

    fn fresh_table(&mut self, record: &NameRecord) -> Option<Table> {
        let used = clock::thread_processor_time();
        let table = self.table(record);
        self.reads.cost += clock::thread_processor_time().saturating_sub(used);
        table
    }

    fn table(&self, record: &NameRecord) -> Option<Table> {
        if !self.same_ids {
            return None;
        }
        let file = std::fs::File::open(self.proc.join(record.who.pid.to_string()).join("mountinfo")).ok()?;
        let mut text = Vec::new();
        file.take(LARGEST_TABLE).read_to_end(&mut text).ok()?;
        Some(text.split(|byte| *byte == b'\n').filter_map(table_line).collect())
    }
}

/// What a path is called from a root, if it lies below it.
///
/// kernel: `show_mountinfo`, fs/proc_namespace.c: from the root of the process whose table it is; what lies elsewhere
/// has no line, since 2.6.26.
fn below(path: &[u8], root: &[u8]) -> Option<Vec<u8>> {
    let rest = with_slash(path).strip_prefix(with_slash(root).as_slice())?.to_vec();
    Some(normalise(&[b"/".as_slice(), &rest].concat()))
}

/// Mount point and superblock of one line of mountinfo. Later lines cover earlier ones.
fn table_line(line: &[u8]) -> Option<(Vec<u8>, u32)> {
    let place = parse_place(line).ok()?;
    Some((with_slash(place.mountpoint.as_bytes()), place.superblock.to_kernel()))
}

/// An absolute path without `.`, `..` and empty components, by text alone.
pub(in crate::sensor) fn normalise(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    let mut out = Vec::with_capacity(path.len());
    for part in &parts {
        out.push(b'/');
        out.extend_from_slice(part);
    }
    if out.is_empty() { b"/".to_vec() } else { out }
}

#[cfg(test)]
mod tests;
