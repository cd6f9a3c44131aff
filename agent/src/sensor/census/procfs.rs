//! One thread as procfs shows it, and what it waits for. Read in the disposable child only: some of these files take
//! locks that a stuck process may hold.
//!
//! Never read: `cmdline`, `environ`, `maps` and what else waits for the lock of a process's memory without end. A
//! name is read through `mem`, which gives up when it is killed. A watched path is never opened nor looked at:
//! descriptors are known by the mount id in `fdinfo`, names by their text.
//!
//! kernel: fs/proc/base.c and fs/proc/fd.c; `syscall` since 2.6.27, `mnt_id` in `fdinfo` since 3.15.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;

use agent_common::settings::task_flag;

use crate::kernel::namespace::number_of_link;
use crate::sensor::ebpf::names::normalise;
use crate::sensor::ebpf::places::{prefixes, with_slash};
use crate::sys::mountinfo::parse_place;

/// The most that is read of one file.
const LARGEST: u64 = 8 << 20;
/// The longest path, its end mark included. kernel: `PATH_MAX`, include/uapi/linux/limits.h.
const LONGEST_NAME: usize = 4096;

/// Functions in which a task waits for another program and not for storage, whatever lies in the file system: pipes,
/// terminals, locks and leases.
const NOT_STORAGE: &[&str] = &[
    "anon_pipe_read",
    "anon_pipe_write",
    "fifo_open",
    "fifo_pipe_read",
    "fifo_pipe_write",
    "pipe_read",
    "pipe_wait",
    "pipe_wait_readable",
    "pipe_wait_writable",
    "pipe_write",
    "wait_for_partner",
    "n_tty_read",
    "n_tty_write",
    "tty_read",
    "tty_write",
    "__break_lease",
    "flock_lock_inode_wait",
    "locks_lock_inode_wait",
    "posix_lock_inode_wait",
];

/// What the line `stat` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stat {
    pub(super) comm: Vec<u8>,
    pub(super) state: u8,
    pub(super) parent: u32,
    pub(super) threads: u64,
    pub(super) started: u64,
    /// Not of the kernel's own.
    pub(super) is_program: bool,
}

/// What the line `syscall` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InCall {
    pub(super) number: u64,
    pub(super) arguments: [u64; 6],
}

/// Where a call leads, before anything is known of mounts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// The id of the mount that an open file lies on.
    Mount(u64),
    /// A whole path, by its text alone.
    Path(Vec<u8>),
}

/// The mounts of one namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mounts {
    by_id: BTreeMap<u64, u32>,
    /// Mount points with a slash at their end. Later lines cover earlier ones.
    by_place: BTreeMap<Vec<u8>, u32>,
}

impl Mounts {
    pub(crate) fn of(text: &[u8]) -> Self {
        let mut mounts = Self::default();
        for place in text.split(|byte| *byte == b'\n').filter_map(|line| parse_place(line).ok()) {
            let s_dev = place.superblock.to_kernel();
            mounts.by_id.insert(u64::from(place.id.0), s_dev);
            mounts.by_place.insert(with_slash(place.mountpoint.as_bytes()), s_dev);
        }
        mounts
    }

    /// The superblock at a place.
    pub(super) fn at(&self, place: &Place) -> Option<u32> {
        match place {
            Place::Mount(id) => self.by_id.get(id).copied(),
            Place::Path(path) => {
                let path = with_slash(path);
                prefixes(&path).find_map(|prefix| self.by_place.get(prefix)).copied()
            }
        }
    }
}

/// procfs, wherever it is mounted.
#[derive(Clone, Debug)]
pub(super) struct Proc {
    pub(super) root: PathBuf,
}

impl Proc {
    fn path(&self, id: u32, file: &str) -> PathBuf {
        self.root.join(id.to_string()).join(file)
    }

    fn read(&self, id: u32, file: &str) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.path(id, file))?.take(LARGEST).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn text(&self, id: u32, file: &str) -> Option<String> {
        self.read(id, file).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn link(&self, id: u32, link: &str) -> Option<Vec<u8>> {
        std::fs::read_link(self.path(id, link)).ok().map(|target| target.into_os_string().into_vec())
    }

    /// The numbers among the names of a directory.
    fn numbers(path: PathBuf) -> Vec<u32> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    pub(super) fn processes(&self) -> Vec<u32> {
        Self::numbers(self.root.clone())
    }

    pub(super) fn threads(&self, process: u32) -> Vec<u32> {
        Self::numbers(self.path(process, "task"))
    }

    pub(super) fn stat(&self, id: u32) -> Option<Stat> {
        stat(&self.read(id, "stat").ok()?)
    }

    /// The call that a thread waits in; an error when it may not be looked at, nothing when it is in none.
    pub(super) fn call(&self, thread: u32) -> std::io::Result<Option<InCall>> {
        self.read(thread, "syscall").map(|line| call(&String::from_utf8_lossy(&line)))
    }

    /// How often it was taken off a processor.
    pub(super) fn switches(&self, thread: u32) -> u64 {
        sum_of(
            &self.text(thread, "status").unwrap_or_default(),
            &["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"],
        )
    }

    /// Calls that read or wrote data and have ended. `PID/io` would add up all threads of the process.
    pub(super) fn data_calls(&self, thread: u32) -> u64 {
        let own = format!("task/{thread}/io");
        sum_of(&self.text(thread, &own).unwrap_or_default(), &["syscr:", "syscw:"])
    }

    /// Whether it waits for another program and not for storage. Where the kernel does not tell in which function
    /// it sleeps, a sleep that signals end is taken for such.
    pub(super) fn waits_for_a_program(&self, thread: u32, state: u8) -> bool {
        let stack = self.text(thread, "stack").filter(|stack| stack.contains("] "));
        let functions: Vec<String> = match stack {
            Some(stack) => stack.lines().filter_map(function).collect(),
            None => self.text(thread, "wchan").filter(|name| name.trim() != "0").into_iter().collect(),
        };
        if functions.is_empty() {
            return state != b'D';
        }
        functions.iter().any(|name| NOT_STORAGE.contains(&name.split('.').next().unwrap_or_default()))
    }

    /// Where an open file lies; `None` for what is no file, or not known.
    pub(super) fn of_descriptor(&self, thread: u32, descriptor: u64) -> Option<Place> {
        // Only the low half is the number.
        let descriptor = descriptor & 0xffff_ffff;
        // Pipes and sockets have links that are no paths.
        self.link(thread, &format!("fd/{descriptor}")).filter(|target| target.starts_with(b"/"))?;
        let text = self.text(thread, &format!("fdinfo/{descriptor}"))?;
        let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
        Some(Place::Mount(id.trim().parse().ok()?))
    }

    /// Where a name leads, by its text. `directory`: the descriptor that it starts from.
    pub(super) fn of_name(&self, thread: u32, directory: Option<u64>, address: u64) -> Option<Place> {
        let name = self.name(thread, address)?;
        if name.starts_with(b"/") {
            return Some(Place::Path(normalise(&name)));
        }
        let is_working_directory =
            |number: &u64| number & 0xffff_ffff == u64::from(libc::AT_FDCWD.cast_unsigned());
        let link = match directory.filter(|number| !is_working_directory(number)) {
            Some(number) if name.is_empty() => return self.of_descriptor(thread, number),
            Some(number) => format!("fd/{}", number & 0xffff_ffff),
            None => "cwd".to_owned(),
        };
        let base = self.link(thread, &link).filter(|base| base.starts_with(b"/"))?;
        Some(Place::Path(normalise(&[base.as_slice(), b"/", &name].concat())))
    }

    /// A text in the memory of a process. No address is an empty one: the descriptor itself is meant.
    fn name(&self, thread: u32, address: u64) -> Option<Vec<u8>> {
        if address == 0 {
            return Some(Vec::new());
        }
        let memory = File::open(self.path(thread, "mem")).ok()?;
        let mut bytes = vec![0; LONGEST_NAME];
        // It may end at the end of a mapping: less is read then.
        let read = memory.read_at(&mut bytes, address).ok()?;
        bytes.truncate(read);
        bytes.iter().position(|byte| *byte == 0).map(|end| {
            bytes.truncate(end);
            bytes
        })
    }

    pub(super) fn mounts(&self, thread: u32) -> Mounts {
        Mounts::of(&self.read(thread, "mountinfo").unwrap_or_default())
    }

    /// Inode number of its mount namespace, 0 when not known.
    pub(super) fn mnt_ns(&self, thread: u32) -> u32 {
        self.link(thread, "ns/mnt").and_then(|link| number_of_link(&link)).unwrap_or(0)
    }

    /// The id of its cgroup (v2), 0 when not known: the inode number of a directory of cgroupfs.
    pub(super) fn cgroup(&self, thread: u32, roots: &[PathBuf]) -> u64 {
        let text = self.text(thread, "cgroup").unwrap_or_default();
        let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::/")) else { return 0 };
        let id = |root: &PathBuf| std::fs::metadata(root.join(path)).ok().map(|found| found.ino());
        roots.iter().find_map(id).unwrap_or(0)
    }
}

pub(crate) fn stat(line: &[u8]) -> Option<Stat> {
    // The name stands in brackets and may have any byte in it.
    let open = line.iter().position(|byte| *byte == b'(')?;
    let close = line.iter().rposition(|byte| *byte == b')')?;
    let comm = line.get(open + 1..close)?.to_vec();
    let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        comm,
        state: *fields.first()?.as_bytes().first()?,
        parent: u32::try_from(number(1)?).ok()?,
        is_program: number(6)? & u64::from(task_flag::NO_PROGRAM) == 0,
        threads: number(17)?,
        started: number(19)?,
    })
}

/// `NUMBER ARGUMENT… STACK PLACE`; `running`, and `-1 STACK PLACE` outside of a call.
pub(crate) fn call(line: &str) -> Option<InCall> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [number, arguments @ .., stack, _] = words.as_slice() else { return None };
    let hexadecimal = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let arguments: Vec<u64> = arguments.iter().map(|word| hexadecimal(word)).collect::<Option<_>>()?;
    // Only 32-bit programs have their stack so low; their numbers mean other calls.
    let is_64_bit = hexadecimal(stack)? > u64::from(u32::MAX);
    let arguments = <[u64; 6]>::try_from(arguments).ok().filter(|_| is_64_bit)?;
    Some(InCall { number: number.parse().ok()?, arguments })
}

/// `[<0>] function+0x12/0x34 [module]`
pub(crate) fn function(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("] ")?;
    rest.split('+').next().map(str::to_owned)
}

pub(crate) fn sum_of(text: &str, keys: &[&str]) -> u64 {
    let value = |line: &str| keys.iter().find_map(|key| line.strip_prefix(key))?.trim().parse::<u64>().ok();
    text.lines().filter_map(value).fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests;
