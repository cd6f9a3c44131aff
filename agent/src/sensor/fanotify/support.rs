//! Which file systems are worth asking for error events. A table, and the only one.

/// Types that refuse the mark or can never report, with what the kernel answers. Everything else is tried:
/// which file systems report is a matter of the kernel (ext4 since 5.16, others with the generic report), and
/// an accepted mark is no promise of events either.
///
/// kernel: `fanotify_test_fsid`, fs/notify/fanotify/fanotify_user.c; answers seen on 6.18.
const NEVER: &[&str] = &[
    // ENODEV: no file-system id.
    "fuse",
    "fuseblk",
    "fusectl",
    "virtiofs",
    "autofs",
    // EOPNOTSUPP: no file handles that could be decoded.
    "overlay",
    "proc",
    "sysfs",
    "devpts",
    "cgroup",
    "cgroup2",
    "debugfs",
    "tracefs",
    "securityfs",
    "configfs",
    "bpf",
    "pstore",
    "mqueue",
    "nsfs",
    "binfmt_misc",
    "efivarfs",
    "selinuxfs",
    "rpc_pipefs",
    "hugetlbfs",
    // Would be accepted; nothing beneath them can fail.
    "tmpfs",
    "devtmpfs",
    "ramfs",
    "rootfs",
    // Asking costs a round trip to the server, and no kernel reports errors of theirs here.
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "ceph",
    "9p",
    "afs",
    "ncpfs",
    "coda",
    "glusterfs",
    "lustre",
    "beegfs",
];

/// Whether marks for errors are worth setting on this type (`fuse.sshfs` counts as `fuse`).
#[must_use]
pub fn may_report(fstype: &str) -> bool {
    let family = fstype.split_once('.').map_or(fstype, |(family, _)| family);
    !NEVER.contains(&family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_file_systems_are_asked_and_the_others_are_not() {
        for fstype in ["ext4", "ext3", "xfs", "btrfs", "f2fs", "bcachefs", "something-new"] {
            assert!(may_report(fstype), "{fstype}");
        }
        for fstype in ["fuse", "fuse.sshfs", "fuse.caf\\xe9", "overlay", "proc", "nfs4", "tmpfs"] {
            assert!(!may_report(fstype), "{fstype}");
        }
    }
}
