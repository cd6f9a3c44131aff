//! The other part: a private mount namespace with small file systems, and the agent's role at the end of a pipe.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::linux::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::agent_role;

/// How a case ended, unless it panicked.
pub(crate) enum Verdict {
    /// As it should.
    Passed,
    /// Not possible here, for this reason.
    Skipped(String),
}

/// The agent's role, or the end of the case.
macro_rules! agent_or_skip {
    ($prefix:expr, $family:expr) => {
        match $crate::harness::Agent::start($prefix, $family) {
            Ok(agent) => agent,
            Err(reason) => return $crate::harness::Verdict::Skipped(reason),
        }
    };
}
pub(crate) use agent_or_skip;

/// A directory on a tmpfs of its own, in a private mount namespace: everything goes with the last process in it.
pub(crate) struct Stage {
    /// Where cases may mount.
    pub root: PathBuf,
}

impl Stage {
    /// Enters a new mount namespace with this thread.
    pub(crate) fn enter() -> Self {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        let root = PathBuf::from("/mnt");
        tmpfs(&root, "size=16m", MsFlags::empty());
        Self { root }
    }

    /// Makes a directory and mounts a tmpfs on it.
    pub(crate) fn volume(&self, name: &str, options: &str) -> PathBuf {
        let place = self.root.join(name);
        std::fs::create_dir_all(&place).unwrap();
        tmpfs(&place, options, MsFlags::empty());
        place
    }
}

fn tmpfs(place: &Path, options: &str, flags: MsFlags) {
    mount(Some("tmpfs"), place, Some("tmpfs"), flags, Some(options)).unwrap();
}

/// Makes a tmpfs read-only: every change is EROFS from then on.
pub(crate) fn make_read_only(place: &Path) {
    mount(None::<&str>, place, None::<&str>, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, None::<&str>).unwrap();
}

/// Whether nothing is missing. Runs that were skipped before concern calls of others: nothing was tracked yet.
fn is_whole(state: &str) -> bool {
    state == "Running" || state.contains("skips a program")
}

/// Device numbers of what is mounted at a place.
pub(crate) fn device(place: &Path) -> (u64, u64) {
    let dev = std::fs::metadata(place).unwrap().st_dev();
    (nix::sys::stat::major(dev), nix::sys::stat::minor(dev))
}

/// The agent's role in a process that is this one's child, so that this one is no descendant of it.
pub(crate) struct Agent {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// The family in use.
    pub family: String,
}

impl Agent {
    /// Starts it, with a prefix such as `unshare --pid --fork`; or says why it cannot work here.
    pub(crate) fn start(prefix: &[&str], family: &str) -> Result<Self, String> {
        let own = std::env::current_exe().unwrap();
        let mut command = match prefix.split_first() {
            Some((program, rest)) => {
                let mut command = Command::new(program);
                command.args(rest).arg(own);
                command
            }
            None => Command::new(own),
        };
        command.args([agent_role::ARGUMENT, family]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut agent = Self { child, commands, answers, family: String::new() };
        let answer = agent.answer();
        match answer.strip_prefix("ready ") {
            Some(family) => {
                agent.family = family.to_owned();
                Ok(agent)
            }
            None => Err(answer),
        }
    }

    /// Sends a command and waits for its answer.
    pub(crate) fn tell(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Lets it do nothing until it may go on.
    pub(crate) fn stop(&self) {
        self.send(Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) {
        self.send(Signal::SIGCONT);
    }

    fn send(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Tracks the mount at a place.
    pub(crate) fn track(&mut self, place: &Path) {
        // What a kernel does not have is no part of its family; so nothing may be missing.
        let state = self.tell_to_track(place);
        assert!(is_whole(&state), "{state}");
    }

    /// The same, whatever state the source is in; its answer.
    pub(crate) fn tell_to_track(&mut self, place: &Path) -> String {
        let (major, minor) = device(place);
        let root = std::fs::metadata(place).unwrap().st_ino();
        self.tell(&format!("track {major} {minor} {root} {}", place.display()))
    }

    /// Tracks directories of one superblock as the roots of volumes, all of which are shown at one place in turn.
    pub(crate) fn track_roots(&mut self, roots: &[PathBuf], place: &Path) {
        let inode = |root: &PathBuf| std::fs::metadata(root).unwrap().st_ino().to_string();
        let inodes: Vec<String> = roots.iter().map(inode).collect();
        let (major, minor) = device(roots.first().unwrap());
        let command = format!("track_roots {major} {minor} {} {}", place.display(), inodes.join(","));
        let state = self.tell(&command);
        assert!(is_whole(&state), "{state}");
    }

    /// All totals, once the one of `key` has come to `count` or time is up.
    pub(crate) fn totals(&mut self, key: &str, count: u64) -> BTreeMap<String, u64> {
        let answer = self.tell(&format!("await {key} {count}"));
        let rows = answer.strip_prefix("totals").unwrap_or_else(|| panic!("{answer}")).split_whitespace();
        let pair =
            |row: &str| row.rsplit_once('=').map(|(key, count)| (key.to_owned(), count.parse().unwrap()));
        rows.filter_map(pair).collect()
    }

    /// Ends it and looks how it ended.
    pub(crate) fn finish(self) {
        let Self { mut child, commands, answers, .. } = self;
        drop(commands);
        let status = child.wait().unwrap();
        drop(answers);
        assert!(status.success(), "the agent's role ended with {status}");
    }
}
