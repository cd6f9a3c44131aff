//! Automounts: which mounts lie on a trap, and how long they must be left alone to expire.

use core::time::Duration;

use super::walk::Walks;
use super::{Mount, MountTable};
use crate::path::BytePath;

/// More traps than this do not lie below one another. A ring of parents cannot come from the kernel; the walk
/// ends all the same.
const DEEPEST: usize = 64;

/// What a mount that lies on an automount trap needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Automount {
    /// It expires when no path walk has come by for so long. `None`: it does not expire, or only its open files
    /// keep it.
    pub expires_after: Option<Duration>,
}

impl MountTable {
    /// The trap that a path walk to this mount crosses, or the one of them that takes longest to expire.
    ///
    /// kernel: every walk over a trap sets the time of its last use, whoever walks and whatever for, also with
    /// `O_PATH`: `autofs_mount_wait`, fs/autofs/root.c. With the option `strictexpire`, since 4.20, it does not.
    #[must_use]
    pub fn automount_of(&self, mount: &Mount) -> Option<Automount> {
        let mut found: Option<Automount> = None;
        let mut below = mount.parent;
        for _ in 0..DEEPEST {
            let Some(parent) = self.run(&self.snapshot.by_id, below).next() else { break };
            if parent.fstype == "autofs" {
                let expires_after = expiry(parent).max(found.and_then(|found| found.expires_after));
                found = Some(Automount { expires_after });
            }
            if parent.parent == parent.id {
                break;
            }
            below = parent.parent;
        }
        found
    }
}

impl Walks<'_> {
    /// Whether nothing but a trap is at this path: one that lies exactly there (a direct map), or one above it
    /// in which the path is a key that is not mounted now (an indirect map).
    pub fn is_trapped(&mut self, path: &BytePath) -> bool {
        self.mount_of(path).is_some_and(|mount| mount.fstype == "autofs")
    }
}

/// kernel: `autofs_show_options`, fs/autofs/inode.c: `timeout=` in seconds; zero means never.
fn expiry(trap: &Mount) -> Option<Duration> {
    if trap.super_options.has("strictexpire") {
        return None;
    }
    let seconds = trap.super_options.iter().find_map(|option| option.strip_prefix(b"timeout="))?;
    let seconds: u64 = core::str::from_utf8(seconds).ok()?.parse().ok()?;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::super::{Options, tests};
    use super::*;

    fn mount(id: u32, parent: u32, path: &str, fstype: &str, options: &str) -> Mount {
        Mount {
            fstype: fstype.into(),
            super_options: Options::parse(options.as_bytes()),
            ..tests::mount(id, parent, path)
        }
    }

    fn table() -> MountTable {
        MountTable::new(vec![
            mount(1, 1, "/", "ext4", "rw"),
            mount(2, 1, "/net", "autofs", "rw,fd=6,pgrp=1,timeout=300,minproto=5,maxproto=5,indirect"),
            mount(3, 2, "/net/filer", "nfs4", "rw"),
            mount(4, 3, "/net/filer/sub", "autofs", "rw,timeout=600,offset"),
            mount(5, 4, "/net/filer/sub", "nfs4", "rw"),
            mount(6, 1, "/mnt/a", "autofs", "rw,timeout=60,direct"),
            mount(7, 6, "/mnt/a", "nfs4", "rw"),
            mount(8, 1, "/mnt/b", "autofs", "rw,timeout=60,direct,strictexpire"),
            mount(9, 8, "/mnt/b", "nfs4", "rw"),
            mount(10, 1, "/mnt/c", "autofs", "rw,timeout=0,direct"),
            mount(11, 10, "/mnt/c", "nfs4", "rw"),
            mount(12, 1, "/mnt/d", "nfs4", "rw"),
        ])
    }

    fn expires(id: u32) -> Option<Option<u64>> {
        let table = table();
        let mount = table.mounts().iter().find(|mount| mount.id.0 == id).unwrap();
        let automount = table.automount_of(mount)?;
        Some(automount.expires_after.map(|time| time.as_secs()))
    }

    #[test]
    fn a_mount_on_a_trap_has_the_longest_time_of_all_traps_on_the_way() {
        assert_eq!(expires(12), None);
        assert_eq!(expires(7), Some(Some(60)));
        assert_eq!(expires(3), Some(Some(300)));
        assert_eq!(expires(5), Some(Some(600)));
    }

    #[test]
    fn what_never_expires_or_only_minds_open_files_needs_no_rest() {
        assert_eq!(expires(9), Some(None));
        assert_eq!(expires(11), Some(None));
    }

    #[test]
    fn a_key_of_a_map_that_is_not_mounted_is_trapped_and_the_rest_is_not() {
        let table = table();
        for path in ["/net", "/net/other", "/net/other/deep"] {
            assert!(Walks::new(&table).is_trapped(&path.into()), "{path}");
        }
        for path in ["/", "/mnt", "/mnt/x", "/mnt/a", "/net/filer", "/net/filer/dir", "/mnt/d"] {
            assert!(!Walks::new(&table).is_trapped(&path.into()), "{path}");
        }
    }

    #[test]
    fn parents_in_a_ring_end_the_walk() {
        let table = MountTable::new(vec![mount(2, 3, "/a", "autofs", "rw"), mount(3, 2, "/a", "nfs", "rw")]);
        assert!(table.automount_of(&table.mounts()[1]).is_some());
    }
}
