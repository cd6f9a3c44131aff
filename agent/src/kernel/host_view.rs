//! Whether what is watched is the host: an agent in a container can watch its own few mounts for ever and find
//! nothing wrong with them.
//!
//! Told once, at the start: the log, `doctor`, `source_up{source="host_view"}` and `/readyz` show it. Process 1 is
//! what everything is compared with, as far as it can be seen. Nothing here touches a mount.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use agent_core::fstype::FsClass;
use agent_core::id::SuperblockId;
use agent_core::path::BytePath;
use agent_core::topology::Mount;

use super::namespace::{self, Namespace};
use crate::sys::mountinfo::parse_table;

const OF_PROCESS_ONE: &str = "/proc/1/ns/mnt";
const TABLE_OF_PROCESS_ONE: &str = "/proc/1/mountinfo";

/// Places that are named at most.
const EXAMPLES: usize = 3;

/// What is wrong with the view. Texts name the remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Defect {
    /// The configured namespace could not be entered.
    OutOfReach,
    /// Process 1 of this process's procfs is the container's own.
    NoHostProcesses,
    /// The watched namespace is not process 1's, and nothing that is mounted there ever arrives.
    Private,
    /// Storage that process 1 has mounted and that cannot be seen from the watched namespace.
    Unseen {
        /// How many file systems.
        count: usize,
        /// Where the first of them are mounted.
        examples: Vec<BytePath>,
    },
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfReach => f.write_str(
                "the configured mount namespace is out of reach, and the agent's own is watched instead: it needs \
                 CAP_SYS_ADMIN, CAP_SYS_CHROOT and CAP_SYS_PTRACE (in Kubernetes: hostPID and a privileged container)",
            ),
            Self::NoHostProcesses => f.write_str(
                "process 1 is not the host's, so this container's own mounts are watched: set hostPID to watch the \
                 host's, or mount_namespace = \"self\" where the container is what is meant",
            ),
            Self::Private => f.write_str(
                "the watched mount namespace is private: what the host mounts or unmounts from now on never shows \
                 there; set mount_namespace = \"/proc/1/ns/mnt\", or give the container's mounts slave propagation \
                 (in Kubernetes: HostToContainer)",
            ),
            Self::Unseen { count, examples } => {
                let places: Vec<String> = examples.iter().map(ToString::to_string).collect();
                let more = if *count > examples.len() { ", …" } else { "" };
                write!(
                    f,
                    "{count} file systems of the host cannot be seen from the watched mount namespace ({}{more}): set \
                     mount_namespace = \"/proc/1/ns/mnt\"",
                    places.join(", ")
                )
            }
        }
    }
}

/// What the judgement is made from.
struct View<'a> {
    /// The configuration asks for this process's own namespace.
    wants_own: bool,
    /// The watched namespace is process 1's. `None`: it cannot be told.
    is_of_process_one: Option<bool>,
    sees_host: Option<bool>,
    watched: &'a [Mount],
    of_process_one: &'a [Mount],
}

/// What is wrong with watching `namespace`, where the configuration asks for `setting`.
#[must_use]
pub fn check(setting: &Path, namespace: &Namespace) -> Vec<Defect> {
    let wants_own = setting == Path::new("self");
    if !wants_own && namespace.enter.is_none() && namespace::resolve(setting).is_err() {
        return vec![Defect::OutOfReach];
    }
    // Somebody else's namespace on purpose: there is nothing to compare it with.
    if !wants_own && setting != Path::new(OF_PROCESS_ONE) {
        return Vec::new();
    }
    let is_of_process_one = match (&namespace.enter, namespace::resolve(Path::new(OF_PROCESS_ONE))) {
        (None, Ok(one)) => Some(one.enter.is_none()),
        (Some(entered), Ok(one)) => Some(one.enter.as_ref() == Some(entered) || one.inode == namespace.inode),
        // It cannot be entered from here: then it is another one.
        (None, Err(namespace::NamespaceError::NotEnterable { .. })) => Some(false),
        (_, Err(_)) => None,
    };
    // Only another namespace than that of process 1 is compared with it.
    let compared = |path: &Path| if is_of_process_one == Some(false) { table(path) } else { Vec::new() };
    judge(&View {
        wants_own,
        is_of_process_one,
        sees_host: namespace::sees_host_processes(),
        watched: &compared(&namespace.mountinfo),
        of_process_one: &compared(Path::new(TABLE_OF_PROCESS_ONE)),
    })
}

/// A table that cannot be read says nothing; that is told where it is needed.
fn table(path: &Path) -> Vec<Mount> {
    parse_table(&std::fs::read(path).unwrap_or_default()).mounts
}

fn judge(view: &View<'_>) -> Vec<Defect> {
    let mut defects = Vec::new();
    if view.sees_host == Some(false) && !view.wants_own {
        defects.push(Defect::NoHostProcesses);
    }
    if view.is_of_process_one == Some(false) {
        if !receives(view.watched, view.of_process_one) {
            defects.push(Defect::Private);
        }
        defects.extend(unseen(view.watched, view.of_process_one));
    }
    defects
}

/// Whether any mount here gets what happens to a mount there. Peer groups have the same number in every namespace.
fn receives(here: &[Mount], there: &[Mount]) -> bool {
    let groups: BTreeSet<u32> = there.iter().filter_map(|mount| mount.propagation.shared).collect();
    let from = |mount: &Mount| [mount.propagation.master, mount.propagation.shared];
    here.iter().flat_map(from).flatten().any(|group| groups.contains(&group))
}

/// Storage that is mounted there and not here, by superblock: the paths may differ.
fn unseen(here: &[Mount], there: &[Mount]) -> Option<Defect> {
    let seen: BTreeSet<SuperblockId> = here.iter().map(|mount| mount.superblock).collect();
    let mut missed = BTreeSet::new();
    let mut examples = Vec::new();
    for mount in there {
        let is_storage = FsClass::of(&mount.fstype, &mount.source).is_watched_by_default();
        if is_storage && !seen.contains(&mount.superblock) && missed.insert(mount.superblock) {
            examples.push(mount.mountpoint.clone());
        }
    }
    examples.truncate(EXAMPLES);
    (!missed.is_empty()).then_some(Defect::Unseen { count: missed.len(), examples })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "\
20 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
21 20 0:50 / /mnt/a rw shared:9 - nfs4 filer:/a rw
22 20 0:51 / /mnt/b rw - nfs4 filer:/b rw
23 22 0:51 /x /mnt/c rw - nfs4 filer:/b rw
24 20 0:6 / /proc rw - proc proc rw
";

    fn judged(here: &str, change: impl Fn(&mut View<'_>)) -> Vec<Defect> {
        let (here, there) = (parse_table(here.as_bytes()).mounts, parse_table(HOST.as_bytes()).mounts);
        let mut view = View {
            wants_own: false,
            is_of_process_one: Some(false),
            sees_host: Some(true),
            watched: &here,
            of_process_one: &there,
        };
        change(&mut view);
        judge(&view)
    }

    #[test]
    fn the_hosts_own_view_and_one_that_follows_it_are_in_order() {
        assert_eq!(judged(HOST, |view| view.is_of_process_one = Some(true)), []);
        let slave = "\
60 1 0:90 / / rw - overlay overlay rw
61 60 8:1 / /host rw master:1 - ext4 /dev/sda1 rw
62 61 0:50 / /host/mnt/a rw master:9 - nfs4 filer:/a rw
63 61 0:51 / /host/mnt/b rw - nfs4 filer:/b rw
";
        assert_eq!(judged(slave, |_| ()), []);
    }

    #[test]
    fn a_private_container_is_told_what_it_does_not_see_and_that_nothing_will_come() {
        let container = "60 1 0:90 / / rw - overlay overlay rw\n61 60 8:1 /etc /etc rw - ext4 /dev/sda1 rw\n";
        let unseen = Defect::Unseen { count: 2, examples: vec!["/mnt/a".into(), "/mnt/b".into()] };
        assert_eq!(judged(container, |_| ()), [Defect::Private, unseen.clone()]);
        let text = unseen.to_string();
        assert!(
            text.starts_with("2 file systems of the host") && text.contains("(/mnt/a, /mnt/b)"),
            "{text}"
        );
    }

    #[test]
    fn a_process_one_that_is_not_the_hosts_is_told_unless_its_mounts_are_what_was_asked_for() {
        let one = |view: &mut View<'_>| {
            view.is_of_process_one = Some(true);
            view.sees_host = Some(false);
        };
        assert_eq!(judged(HOST, one), [Defect::NoHostProcesses]);
        let own = |view: &mut View<'_>| {
            one(view);
            view.wants_own = true;
        };
        assert_eq!(judged(HOST, own), []);
    }

    #[test]
    fn this_process_watches_itself_without_a_defect_where_process_one_is_in_its_namespace() {
        let own = namespace::own();
        let one = namespace::resolve(Path::new(OF_PROCESS_ONE));
        let is_same = one.is_ok_and(|one| one.enter.is_none());
        assert!(!is_same || check(Path::new("self"), &own).is_empty());
        let nowhere = Path::new("/proc/0/ns/mnt");
        assert_eq!(check(nowhere, &own), [Defect::OutOfReach]);
    }
}
