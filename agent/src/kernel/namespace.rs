//! Which mount namespace is watched, and whether it can be entered.
//!
//! The table and the probes must look at the same namespace. `self` is always possible. Another one is named by
//! a process in it (`/proc/1/ns/mnt`): its table is that process's `mountinfo`, and workers enter it with
//! `setns`. Often the two are the same and nothing has to be entered; then no privilege is needed either, and
//! none may be demanded: a process with fewer capabilities than process 1 may not even look at
//! `/proc/1/ns/mnt`. Sameness is then decided by the mount ids, which are unique on the whole host at one time.
//!
//! Nothing here touches a mount: it reads procfs and tries `setns` in a thread of its own.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use agent_core::id::MountId;
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::stat;
use thiserror::Error;

use crate::sys::mountinfo::leading_id;

pub use crate::sys::namespaces::number_of_link;

/// The namespace of this process.
const OWN_NAMESPACE: &str = "/proc/self/ns/mnt";
const OWN_MOUNTINFO: &str = "/proc/self/mountinfo";

/// The inode number of the first PID namespace of every kernel.
///
/// kernel: `PROC_PID_INIT_INO`, include/linux/proc_ns.h, since 3.8.
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The namespace that is watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// Where its mount table is read.
    pub mountinfo: PathBuf,
    /// What workers must enter; `None` when it is this process's own.
    pub enter: Option<PathBuf>,
    /// Its inode number, where it may be looked at: how kernel records name it.
    pub inode: Option<u32>,
}

impl Namespace {
    /// The namespace file to open, for fanotify's mount events: the agent's own when nothing is entered.
    #[must_use]
    pub fn file(&self) -> &Path {
        self.enter.as_deref().unwrap_or(Path::new(OWN_NAMESPACE))
    }
}

/// Why a configured namespace cannot be watched.
#[derive(Debug, Error)]
pub enum NamespaceError {
    /// The setting does not name a process.
    #[error("`{}` is not a mount namespace: write `self`, or `/proc/<pid>/ns/mnt`", .0.display())]
    NotANamespace(PathBuf),
    /// There is no such process.
    #[error("`{}` does not exist: in a container, does the agent see the host's processes (hostPID)?", .0.display())]
    NoProcess(PathBuf),
    /// A table cannot be read.
    #[error("cannot read the mount table `{}`", path.display())]
    Table {
        /// The table.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is another namespace, and it cannot be entered.
    #[error(
        "the mount namespace `{}` is not this process's own and cannot be entered ({operation}: {errno}): \
         the agent needs CAP_SYS_ADMIN and CAP_SYS_CHROOT, and CAP_SYS_PTRACE with every capability of that \
         process (in Kubernetes: hostPID and a privileged container)",
        path.display()
    )]
    NotEnterable {
        /// The namespace.
        path: PathBuf,
        /// What was refused.
        operation: &'static str,
        /// How.
        errno: Errno,
    },
    /// The thread for the attempt could not be started.
    #[error("cannot start a thread to try the mount namespace")]
    Thread(#[source] io::Error),
}

/// Turns the setting `mount_namespace` (`self`, or a path like `/proc/1/ns/mnt`) into what sensors and workers
/// need. An error means: another namespace than wanted would be watched. The caller decides and says so loudly.
pub fn resolve(setting: &Path) -> Result<Namespace, NamespaceError> {
    if setting == Path::new("self") {
        return Ok(own());
    }
    let mountinfo = table_of(setting)?;
    match stat(setting) {
        Ok(found) => match stat(OWN_NAMESPACE) {
            Ok(ours) if (ours.st_dev, ours.st_ino) == (found.st_dev, found.st_ino) => Ok(own()),
            _ => entered(setting, mountinfo, u32::try_from(found.st_ino).ok()),
        },
        Err(Errno::ENOENT | Errno::ESRCH) => Err(NamespaceError::NoProcess(setting.to_owned())),
        Err(errno) => {
            if is_same_table(&mountinfo, Path::new(OWN_MOUNTINFO))? {
                Ok(own())
            } else {
                Err(NamespaceError::NotEnterable { path: setting.to_owned(), operation: "stat", errno })
            }
        }
    }
}

/// Whether process 1 of this process's procfs is the host's. In a container without `hostPID` it is not, and
/// then `/proc/1/ns/mnt` is the container itself. `None` when it cannot be told.
#[must_use]
pub fn sees_host_processes() -> Option<bool> {
    stat("/proc/self/ns/pid").ok().map(|found| found.st_ino == INITIAL_PID_NAMESPACE)
}

/// The namespace of this process.
#[must_use]
pub fn own() -> Namespace {
    Namespace {
        mountinfo: PathBuf::from(OWN_MOUNTINFO),
        enter: None,
        inode: stat(OWN_NAMESPACE).ok().and_then(|found| u32::try_from(found.st_ino).ok()),
    }
}

/// `<process>/ns/mnt` → `<process>/mountinfo`.
fn table_of(namespace: &Path) -> Result<PathBuf, NamespaceError> {
    let not_one = || NamespaceError::NotANamespace(namespace.to_owned());
    if !namespace.is_absolute() || !namespace.ends_with("ns/mnt") {
        return Err(not_one());
    }
    let process = namespace.parent().and_then(Path::parent).ok_or_else(not_one)?;
    Ok(process.join("mountinfo"))
}

fn entered(path: &Path, mountinfo: PathBuf, inode: Option<u32>) -> Result<Namespace, NamespaceError> {
    File::open(&mountinfo).map_err(|source| NamespaceError::Table { path: mountinfo.clone(), source })?;
    try_to_enter(path)?;
    Ok(Namespace { mountinfo, enter: Some(path.to_owned()), inode })
}

/// Enters the namespace in a thread that ends at once: nothing else of this process moves.
///
/// kernel: `mntns_install`, fs/namespace.c: needs CAP_SYS_ADMIN over the namespace and CAP_SYS_CHROOT, and a
/// file-system context of the thread's own (hence the `unshare`), since 3.8.
fn try_to_enter(path: &Path) -> Result<(), NamespaceError> {
    let refused = |operation, errno| NamespaceError::NotEnterable { path: path.to_owned(), operation, errno };
    let file = File::open(path)
        .map_err(|error| refused("open", error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)))?;
    let attempt = std::thread::Builder::new()
        .name("try-namespace".into())
        .spawn(move || unshare(CloneFlags::CLONE_FS).and_then(|()| setns(&file, CloneFlags::CLONE_NEWNS)))
        .map_err(NamespaceError::Thread)?;
    match attempt.join() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(errno)) => Err(refused("setns", errno)),
        // Neither call can panic.
        Err(_) => Err(refused("setns", Errno::EIO)),
    }
}

/// Whether two tables show the same namespace: more than half of the smaller one's ids are in both. (Two
/// namespaces share no id; one namespace may change a little between the two readings, and a process that was
/// moved below another root sees only a part.)
fn is_same_table(one: &Path, other: &Path) -> Result<bool, NamespaceError> {
    let (one, other) = (ids(one)?, ids(other)?);
    let common = one.intersection(&other).count();
    Ok(common * 2 > one.len().min(other.len()))
}

fn ids(path: &Path) -> Result<BTreeSet<MountId>, NamespaceError> {
    let text =
        std::fs::read(path).map_err(|source| NamespaceError::Table { path: path.to_owned(), source })?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(leading_id).collect())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[test]
    fn a_link_to_a_mount_namespace_has_its_number() {
        assert_eq!(number_of_link(b"mnt:[4026531841]"), Some(4_026_531_841));
        for other in [b"net:[4026531841]" as &[u8], b"mnt:[x]", b"mnt:[1", b"mnt:[4294967296]", b""] {
            assert_eq!(number_of_link(other), None);
        }
    }

    /// A process in a mount namespace of its own. It ends with this value.
    struct Stranger(Child);

    impl Stranger {
        /// `None` when this user may not make namespaces; the reason is printed.
        fn start() -> Option<Self> {
            if !nix::unistd::geteuid().is_root() {
                eprintln!("skipped: needs root for a mount namespace");
                return None;
            }
            let mut child = Command::new("unshare")
                .args(["-m", "--propagation", "private", "sh", "-c", "echo ready; exec cat"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");
            Some(Self(child))
        }

        fn process(&self) -> PathBuf {
            PathBuf::from(format!("/proc/{}", self.0.id()))
        }
    }

    impl Drop for Stranger {
        fn drop(&mut self) {
            drop(self.0.stdin.take());
            let _ = self.0.wait();
        }
    }

    #[test]
    fn the_own_namespace_needs_nothing() {
        let own = resolve(Path::new("self")).unwrap();
        assert_eq!(own.enter, None);
        assert!(own.inode.is_some());
        assert_eq!(own.file(), Path::new("/proc/self/ns/mnt"));
        assert_eq!(resolve(Path::new(&format!("/proc/{}/ns/mnt", std::process::id()))).unwrap(), own);
    }

    #[test]
    fn it_can_be_told_whether_process_one_is_the_hosts() {
        assert!(sees_host_processes().is_some());
    }

    #[test]
    fn another_namespace_is_entered() {
        let Some(stranger) = Stranger::start() else { return };
        let path = stranger.process().join("ns/mnt");
        let namespace = resolve(&path).unwrap();
        assert_eq!(namespace.enter.as_deref(), Some(path.as_path()));
        assert_eq!(namespace.mountinfo, stranger.process().join("mountinfo"));
        assert_ne!(namespace.inode, resolve(Path::new("self")).unwrap().inode);
        assert_eq!(namespace.file(), path);
    }

    #[test]
    fn tables_of_two_namespaces_share_no_id() {
        let Some(stranger) = Stranger::start() else { return };
        let own = Path::new(OWN_MOUNTINFO);
        assert!(is_same_table(own, own).unwrap());
        assert!(!is_same_table(&stranger.process().join("mountinfo"), own).unwrap());
    }

    #[test]
    fn a_process_that_may_not_be_looked_at_is_judged_by_its_table() {
        // Where process 1 may be looked at, this takes the other way to the same answer.
        let Ok(init) = resolve(Path::new("/proc/1/ns/mnt")) else {
            assert!(!is_same_table(Path::new("/proc/1/mountinfo"), Path::new(OWN_MOUNTINFO)).unwrap());
            return;
        };
        let same = is_same_table(Path::new("/proc/1/mountinfo"), Path::new(OWN_MOUNTINFO)).unwrap();
        assert_eq!(init.enter.is_none(), same);
    }

    #[test]
    fn nonsense_and_missing_processes_are_told_apart() {
        for odd in ["", "host", "/proc/1/mountinfo", "proc/1/ns/mnt", "/proc/1/ns/net"] {
            assert!(matches!(resolve(Path::new(odd)), Err(NamespaceError::NotANamespace(_))), "{odd}");
        }
        assert!(matches!(resolve(Path::new("/proc/0/ns/mnt")), Err(NamespaceError::NoProcess(_))));
    }
}
