//! Places names that the kernel side could not: relative ones below an untracked directory, those with `..`,
//! and those of other mount namespaces. Best effort: symbolic links are not followed, so what comes of it is a hint.
//!
//! Reads only procfs: the links of a process say where its directories are without going there.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use agent_common::key::CounterKey;
use agent_common::record::NameRecord;
use agent_core::time::Monotonic;

use super::places::{Places, prefixes, with_slash};
use crate::sys::clock;
use crate::sys::mountinfo::{parse_line, parse_place};

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

/// A namespace that shows nothing tracked is asked once in this time, however many of its processes fail.
const EMPTY_LIFE: std::time::Duration = std::time::Duration::from_secs(1);

/// Mount points, with a slash at their end, and what they show.
type Table = BTreeMap<Vec<u8>, Shown>;

/// What a mount shows. The directory is known of tracked superblocks alone.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Shown {
    s_dev: u32,
    directory: Vec<u8>,
}

/// Why nothing can be read of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unread {
    /// It has ended.
    Gone,
    /// The kernel refuses.
    Refused,
    /// Nobody can be asked, or there is no name for it.
    Nowhere,
}

impl Unread {
    fn of(error: &io::Error) -> Self {
        // Both EACCES and EPERM. kernel: `ptrace_may_access`, kernel/ptrace.c, before links and tables of others, all
        // versions.
        if error.kind() == io::ErrorKind::PermissionDenied { Self::Refused } else { Self::Gone }
    }
}

impl From<Unread> for Place {
    fn from(why: Unread) -> Self {
        match why {
            Unread::Gone => Self::Gone,
            Unread::Refused => Self::Refused,
            Unread::Nowhere => Self::Elsewhere,
        }
    }
}

/// How procfs is read.
#[derive(Clone, Copy, Debug)]
struct Access {
    link: fn(&Path) -> io::Result<PathBuf>,
    open: fn(&Path) -> io::Result<File>,
}

/// As it is.
const DIRECT: Access = Access { link: |path| std::fs::read_link(path), open: |path| File::open(path) };

/// Where names are looked up.
#[derive(Debug)]
pub(super) struct Names {
    proc: PathBuf,
    access: Access,
    host_mnt_ns: u32,
    /// Whether process ids of records mean the same processes in `proc`.
    same_ids: bool,
    /// By namespace and process: the number of a namespace may come back for another one at once.
    tables: BTreeMap<(u32, u32), (Monotonic, Table)>,
    /// Namespaces that showed nothing tracked when their table was read.
    empty: BTreeMap<u32, Monotonic>,
    reads: Reads,
}

/// Where a name leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// To something that is tracked.
    Tracked(CounterKey),
    /// To nothing that is.
    Elsewhere,
    /// It was not looked up: too many had to be before it.
    NotLookedUp,
    /// The kernel does not let the agent see where it leads.
    Refused,
    /// The process is gone, and nobody can tell any more.
    Gone,
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
            Self::Elsewhere | Self::NotLookedUp | Self::Refused | Self::Gone => None,
        }
    }
}

impl Names {
    /// `same_ids`: this process is in the first process id namespace.
    pub(super) fn new(proc: PathBuf, host_mnt_ns: u32, same_ids: bool) -> Self {
        let (tables, empty) = (BTreeMap::new(), BTreeMap::new());
        Self { proc, access: DIRECT, host_mnt_ns, same_ids, tables, empty, reads: Reads::default() }
    }

    /// Other superblocks are tracked from now on.
    pub(super) fn tracked_others(&mut self) {
        self.tables.clear();
        self.empty.clear();
    }

    /// Where the name of a record leads, and the counter that it belongs to there.
    pub(super) fn place(&mut self, now: Monotonic, record: &NameRecord, places: &Places) -> Place {
        let name = usize::try_from(record.path_len).ok().and_then(|len| record.path.get(..len));
        let Some(name) = name else { return Place::Elsewhere };
        let found = match self.absolute(record, name) {
            Ok(path) if record.who.mnt_ns == self.host_mnt_ns => Ok(places.find(&path)),
            Ok(path) => self.elsewhere(now, record, &path, places),
            // The directory that it starts from is the best guess.
            Err(_) if !name.starts_with(b"/") && places.superblocks.contains_key(&record.base_dev) => {
                Ok(Some((record.base_dev, 0)))
            }
            Err(why) => Err(why.into()),
        };
        let (errno, op) = (record.errno, record.op);
        match found {
            Ok(Some((s_dev, root_ino))) => {
                Place::Tracked(CounterKey { root_ino, s_dev, errno, op, by_name: 1 })
            }
            Ok(None) => Place::Elsewhere,
            Err(place) => place,
        }
    }

    fn absolute(&self, record: &NameRecord, name: &[u8]) -> Result<Vec<u8>, Unread> {
        let base = if name.starts_with(b"/") {
            self.root(record)?
        } else if record.dir == WORKING_DIRECTORY {
            self.link(record, "cwd")?
        } else {
            self.link(record, &format!("fd/{}", record.dir))?
        };
        Ok(normalise(&[&base, b"/".as_slice(), name].concat()))
    }

    /// The root of the process, seen from that of its mount namespace. That of a process which is gone is taken for
    /// the usual one; that of one which may not be looked at never is, for it would stay wrong.
    fn root(&self, record: &NameRecord) -> Result<Vec<u8>, Unread> {
        match self.link(record, "root") {
            Err(Unread::Gone | Unread::Nowhere) => Ok(b"/".to_vec()),
            read => read,
        }
    }

    /// Where a link of the process points, by text alone, from the root of its mount namespace.
    ///
    /// kernel: `d_path`, fs/d_path.c: up to the root of the reader, or of the tree of mounts where that is another
    /// one, all versions.
    fn link(&self, record: &NameRecord, link: &str) -> Result<Vec<u8>, Unread> {
        if !self.same_ids {
            return Err(Unread::Nowhere);
        }
        let path = self.proc.join(record.who.pid.to_string()).join(link);
        let target = (self.access.link)(&path).map_err(|error| Unread::of(&error))?;
        let target = OsString::from(target).into_vec();
        if target.starts_with(b"/") { Ok(target) } else { Err(Unread::Nowhere) }
    }

    /// Where a path of another namespace leads: the tracked superblock and the root of the volume, if there is one.
    fn elsewhere(
        &mut self,
        now: Monotonic,
        record: &NameRecord,
        path: &[u8],
        places: &Places,
    ) -> Result<Option<(u32, u64)>, Place> {
        let root = self.root(record)?;
        // Its table names what lies below its root by the way from there, and nothing else.
        let Some(path) = below(path, &root) else { return Ok(None) };
        let shown = self.in_namespace(now, record, (&path, &root), places)?;
        Ok(shown.map(|shown| (shown.s_dev, places.root_of(shown.s_dev, &shown.directory))))
    }

    /// What of the tracked is shown at a path of another namespace, if anything is. A table that is kept is believed
    /// when it leads to something tracked; else it may be older than the mount, and is read again, as often as the
    /// namespace may.
    fn in_namespace(
        &mut self,
        now: Monotonic,
        record: &NameRecord,
        (path, root): (&[u8], &[u8]),
        places: &Places,
    ) -> Result<Option<Shown>, Place> {
        let path = with_slash(path);
        let tracked = |table: &Table| {
            let shown = prefixes(&path).find_map(|prefix| table.get(prefix))?;
            places.superblocks.contains_key(&shown.s_dev).then(|| shown.clone())
        };
        let own = (record.who.mnt_ns, record.who.tgid);
        let kept = self.tables.get(&own).filter(|(read, _)| now.since(*read) < TABLE_LIFE);
        if let Some(shown) = kept.and_then(|(_, table)| tracked(table)) {
            return Ok(Some(shown));
        }
        if self.empty.get(&own.0).is_some_and(|read| now.since(*read) < EMPTY_LIFE) {
            return Ok(None);
        }
        let unread = match self.read(now, record, places) {
            Ok(table) => {
                let found = tracked(&table);
                // From a root of its own a process sees a part of its namespace.
                let shows_nothing =
                    !table.values().any(|shown| places.superblocks.contains_key(&shown.s_dev));
                if shows_nothing && root == b"/" {
                    self.keep_empty(now, own.0);
                }
                self.keep(now, own, table);
                return Ok(found);
            }
            Err(unread) => unread,
        };
        // Such a process has the same mounts as others of its namespace.
        let others = self.tables.range((own.0, 0)..=(own.0, u32::MAX)).map(|(_, table)| table);
        let fresh = others.filter(|(read, _)| now.since(*read) < TABLE_LIFE);
        let latest = fresh.max_by_key(|(read, _)| *read);
        latest.map_or(Err(unread), |(_, table)| Ok(tracked(table)))
    }

    /// Reads the table of a process, as often as its namespace may.
    fn read(&mut self, now: Monotonic, record: &NameRecord, places: &Places) -> Result<Table, Place> {
        // Where process ids mean others nobody can be asked: not too many, none.
        if !self.same_ids {
            return Err(Unread::Nowhere.into());
        }
        if !self.reads.allow(now, record.who.mnt_ns) {
            return Err(Place::NotLookedUp);
        }
        let used = clock::thread_processor_time();
        let table = self.table(record, places);
        self.reads.cost += clock::thread_processor_time().saturating_sub(used);
        let table = table.map_err(|error| Unread::of(&error))?;
        self.reads.was_read(record.who.mnt_ns);
        Ok(table)
    }

    fn keep_empty(&mut self, now: Monotonic, namespace: u32) {
        if self.empty.len() >= TABLES {
            self.empty.retain(|_, read| now.since(*read) < EMPTY_LIFE);
        }
        if self.empty.len() >= TABLES {
            self.empty.pop_first();
        }
        self.empty.insert(namespace, now);
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

    fn table(&self, record: &NameRecord, places: &Places) -> io::Result<Table> {
        let file = (self.access.open)(&self.proc.join(record.who.pid.to_string()).join("mountinfo"))?;
        let mut text = Vec::new();
        file.take(LARGEST_TABLE).read_to_end(&mut text)?;
        Ok(text.split(|byte| *byte == b'\n').filter_map(|line| table_line(line, places)).collect())
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

/// Mount point of one line of mountinfo, and what is shown there. Later lines cover earlier ones. Few lines are of tracked
/// superblocks, and only those are read to their end.
fn table_line(line: &[u8], places: &Places) -> Option<(Vec<u8>, Shown)> {
    let place = parse_place(line).ok()?;
    let s_dev = place.superblock.to_kernel();
    let of_tracked = || parse_line(line).ok().map(|mount| mount.directory().to_vec());
    let directory = places.superblocks.get(&s_dev).and_then(|_| of_tracked()).unwrap_or_default();
    Some((with_slash(place.mountpoint.as_bytes()), Shown { s_dev, directory }))
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
