//! The one table of file-system types: what kind of storage stands behind a type.
//!
//! Discovery reads it to choose what is watched; the ladder reads it to choose how a volume is repaired.

use crate::topology::Mount;

/// What stands behind a file-system type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum FsClass {
    /// A server.
    Network,
    /// A daemon on this node.
    Fuse,
    /// A block device, which can carry one live superblock at a time.
    Block,
    /// An automount trap.
    Autofs,
    /// Other file systems, stacked.
    Overlay,
    /// Memory.
    Memory,
    /// An interface of the kernel, or of a daemon that serves no storage.
    Pseudo,
    /// Not in the table.
    #[default]
    Other,
}

impl FsClass {
    /// Every class.
    pub const ALL: [Self; 8] = [
        Self::Network,
        Self::Fuse,
        Self::Block,
        Self::Autofs,
        Self::Overlay,
        Self::Memory,
        Self::Pseudo,
        Self::Other,
    ];

    /// The types that are known by name, in the order of their names. Other FUSE types are `fuse.NAME`.
    pub fn types(self) -> impl Iterator<Item = &'static str> {
        TYPES.iter().filter(move |(_, class)| *class == self).map(|(name, _)| *name)
    }

    /// The class of a type; a type that is not in the table is block-backed if its source is a device.
    #[must_use]
    pub fn of(fstype: &str, source: &[u8]) -> Self {
        match Self::of_type(fstype) {
            Some(class) => class,
            None if source.starts_with(b"/dev/") => Self::Block,
            None => Self::Other,
        }
    }

    /// The class, where the type alone says it.
    #[must_use]
    pub fn of_type(fstype: &str) -> Option<Self> {
        match TYPES.binary_search_by(|(name, _)| (*name).cmp(fstype)) {
            Ok(position) => TYPES.get(position).map(|(_, class)| *class),
            Err(_) if fstype.starts_with("fuse.") || fstype.starts_with("fuseblk.") => Some(Self::Fuse),
            Err(_) => None,
        }
    }

    /// Whether a mount of this class is watched without being asked for.
    #[must_use]
    pub const fn is_watched_by_default(self) -> bool {
        match self {
            Self::Network | Self::Fuse | Self::Block => true,
            Self::Autofs | Self::Overlay | Self::Memory | Self::Pseudo | Self::Other => false,
        }
    }

    /// Whether a mount of this class can be watched at all.
    #[must_use]
    pub const fn can_be_watched(self) -> bool {
        match self {
            Self::Network | Self::Fuse | Self::Block | Self::Overlay | Self::Memory | Self::Other => true,
            Self::Autofs | Self::Pseudo => false,
        }
    }
}

/// Whether a mount is read-only by nature: `ro` says nothing about its health.
///
/// kernel: `ovl_fill_super`, fs/overlayfs/super.c, sets `SB_RDONLY` where there is no upper layer, since 4.0.
#[must_use]
pub fn is_readonly_by_nature(mount: &Mount) -> bool {
    let fstype = mount.fstype.as_str();
    let reads = |name: &str| READING_DAEMONS.contains(&name);
    match FsClass::of_type(fstype) {
        Some(FsClass::Overlay) => {
            let has_upper = mount.super_options.iter().any(|option| option.starts_with(b"upperdir="));
            matches!(fstype, "overlay" | "overlayfs") && !has_upper
        }
        // Without a subtype a daemon is known by the name that it writes as its source.
        _ if fstype == "fuse" => str::from_utf8(&mount.source).is_ok_and(reads),
        // An optical drive.
        _ if mount.source.starts_with(b"/dev/sr") => true,
        _ => READING.contains(&fstype) || fstype.strip_prefix("fuse.").is_some_and(reads),
    }
}

/// Types whose every mount the kernel makes read-only.
const READING: &[&str] =
    &["befs", "cramfs", "efs", "erofs", "iso9660", "qnx4", "qnx6", "romfs", "squashfs", "vxfs"];

/// Daemons that show what is in an archive, an image or a backup, and write nothing there.
const READING_DAEMONS: &[&str] = &[
    "borgfs",
    "cvmfs2",
    "dwarfs",
    "erofsfuse",
    "fuseiso",
    "mount-zip",
    "ratarmount",
    "restic",
    "squashfuse",
    "squashfuse_ll",
];

/// Whether mounts of a type all say `/` for the directory that they show, and name it in their source.
///
/// kernel: `nfs_show_path` and `nfs_show_devname`, fs/nfs/super.c, since 2.6.39: `HOST:EXPORT`, and below that the way
/// to the directory (`nfs_path`, fs/nfs/namespace.c).
#[must_use]
pub fn names_directory_in_source(fstype: &str) -> bool {
    matches!(fstype, "nfs" | "nfs4")
}

/// Whether a mount of type `found` is what a specification calls `wanted`.
#[must_use]
pub fn is_same_type(wanted: &str, found: &str) -> bool {
    /// Names of one thing: which one the table shows depends on the version and on the helper.
    const ALIASES: &[(&str, &str)] = &[
        ("nfs", "nfs4"),
        ("cifs", "smb3"),
        ("fuse.ceph", "fuse.ceph-fuse"),
        ("ntfs", "fuseblk"),
        ("ntfs-3g", "fuseblk"),
    ];
    wanted == found
        || matches!(wanted, "auto" | "none" | "bind")
        || ALIASES.iter().any(|(a, b)| (*a, *b) == (wanted, found) || (*a, *b) == (found, wanted))
        || (found == "fuse" && wanted.starts_with("fuse."))
        || (wanted == "fuse" && found.starts_with("fuse."))
        // `mount -t sshfs` shows as `fuse.sshfs`.
        || found.strip_prefix("fuse.").is_some_and(|subtype| subtype == wanted)
}

/// Sorted by name, so that it can be searched by halving: the table is asked once per mount and scan.
const TYPES: &[(&str, FsClass)] = &[
    ("9p", FsClass::Network),
    ("affs", FsClass::Block),
    ("afs", FsClass::Network),
    ("aufs", FsClass::Overlay),
    ("autofs", FsClass::Autofs),
    ("bcachefs", FsClass::Block),
    ("beegfs", FsClass::Network),
    ("binder", FsClass::Pseudo),
    ("binfmt_misc", FsClass::Pseudo),
    ("bpf", FsClass::Pseudo),
    ("btrfs", FsClass::Block),
    ("ceph", FsClass::Network),
    ("cgroup", FsClass::Pseudo),
    ("cgroup2", FsClass::Pseudo),
    ("cifs", FsClass::Network),
    ("coda", FsClass::Network),
    ("configfs", FsClass::Pseudo),
    ("cpuset", FsClass::Pseudo),
    ("cramfs", FsClass::Block),
    ("davfs", FsClass::Network),
    ("debugfs", FsClass::Pseudo),
    ("devpts", FsClass::Pseudo),
    ("devtmpfs", FsClass::Pseudo),
    ("ecryptfs", FsClass::Overlay),
    ("efivarfs", FsClass::Pseudo),
    ("erofs", FsClass::Block),
    ("exfat", FsClass::Block),
    ("ext2", FsClass::Block),
    ("ext3", FsClass::Block),
    ("ext4", FsClass::Block),
    ("f2fs", FsClass::Block),
    ("fuse", FsClass::Fuse),
    ("fuse.archivemount", FsClass::Fuse),
    ("fuse.avfsd", FsClass::Pseudo),
    ("fuse.doc", FsClass::Pseudo),
    ("fuse.gvfs-fuse-daemon", FsClass::Pseudo),
    ("fuse.gvfsd-fuse", FsClass::Pseudo),
    ("fuse.jetbrains-toolbox", FsClass::Pseudo),
    ("fuse.lxcfs", FsClass::Pseudo),
    ("fuse.portal", FsClass::Pseudo),
    ("fuse.snapfuse", FsClass::Pseudo),
    ("fuse.vmware-vmblock", FsClass::Pseudo),
    ("fuseblk", FsClass::Fuse),
    ("fusectl", FsClass::Pseudo),
    ("gfs2", FsClass::Block),
    ("glusterfs", FsClass::Network),
    ("gpfs", FsClass::Network),
    ("hfs", FsClass::Block),
    ("hfsplus", FsClass::Block),
    ("hugetlbfs", FsClass::Pseudo),
    ("iso9660", FsClass::Block),
    ("jffs2", FsClass::Block),
    ("jfs", FsClass::Block),
    ("lustre", FsClass::Network),
    ("minix", FsClass::Block),
    ("mqueue", FsClass::Pseudo),
    ("msdos", FsClass::Block),
    ("ncpfs", FsClass::Network),
    ("nfs", FsClass::Network),
    ("nfs3", FsClass::Network),
    ("nfs4", FsClass::Network),
    ("nfsd", FsClass::Pseudo),
    ("nilfs2", FsClass::Block),
    ("nsfs", FsClass::Pseudo),
    ("ntfs", FsClass::Block),
    ("ntfs3", FsClass::Block),
    ("ocfs2", FsClass::Block),
    ("orangefs", FsClass::Network),
    ("overlay", FsClass::Overlay),
    ("overlayfs", FsClass::Overlay),
    ("pipefs", FsClass::Pseudo),
    ("proc", FsClass::Pseudo),
    ("pstore", FsClass::Pseudo),
    ("pvfs2", FsClass::Network),
    ("ramfs", FsClass::Memory),
    ("reiserfs", FsClass::Block),
    ("resctrl", FsClass::Pseudo),
    ("rootfs", FsClass::Pseudo),
    ("rpc_pipefs", FsClass::Pseudo),
    ("securityfs", FsClass::Pseudo),
    ("selinuxfs", FsClass::Pseudo),
    ("shiftfs", FsClass::Overlay),
    ("smackfs", FsClass::Pseudo),
    ("smb3", FsClass::Network),
    ("smbfs", FsClass::Network),
    ("sockfs", FsClass::Pseudo),
    ("squashfs", FsClass::Block),
    ("sysfs", FsClass::Pseudo),
    ("tmpfs", FsClass::Memory),
    ("tracefs", FsClass::Pseudo),
    ("ubifs", FsClass::Block),
    ("udf", FsClass::Block),
    ("ufs", FsClass::Block),
    ("unionfs", FsClass::Overlay),
    ("vboxsf", FsClass::Network),
    ("vfat", FsClass::Block),
    ("virtiofs", FsClass::Network),
    ("xenfs", FsClass::Pseudo),
    ("xfs", FsClass::Block),
    ("zfs", FsClass::Block),
    ("zonefs", FsClass::Block),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{MountId, SuperblockId};
    use crate::topology::{Options, Propagation};

    #[test]
    fn the_table_is_sorted_so_that_it_can_be_searched() {
        assert!(TYPES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (name, class) in TYPES {
            assert_eq!(FsClass::of(name, b""), *class);
        }
    }

    #[test]
    fn types_that_are_not_listed_go_by_subtype_or_source() {
        assert_eq!(FsClass::of("fuse.sshfs", b"host:"), FsClass::Fuse);
        assert_eq!(FsClass::of("fuse.lxcfs", b"lxcfs"), FsClass::Pseudo);
        assert_eq!(FsClass::of("newfs", b"/dev/sdz"), FsClass::Block);
        assert_eq!(FsClass::of("newfs", b"x"), FsClass::Other);
        assert_eq!(FsClass::of("tmpfs", b"/dev/shm"), FsClass::Memory);
    }

    #[test]
    fn names_of_one_type_are_accepted_for_each_other() {
        for (wanted, found) in [
            ("nfs", "nfs4"),
            ("nfs4", "nfs"),
            ("fuse.sshfs", "fuse"),
            ("fuse", "fuse.sshfs"),
            ("sshfs", "fuse.sshfs"),
            ("auto", "ext4"),
            ("ext4", "ext4"),
        ] {
            assert!(is_same_type(wanted, found), "{wanted} {found}");
        }
        for (wanted, found) in
            [("nfs4", "ext4"), ("fuse.sshfs", "fuse.s3fs"), ("ext4", "xfs"), ("fuse.sshfs", "sshfs")]
        {
            assert!(!is_same_type(wanted, found), "{wanted} {found}");
        }
    }

    #[test]
    fn only_storage_is_watched_without_being_asked_for() {
        for class in FsClass::ALL {
            assert!(class.can_be_watched() || !class.is_watched_by_default());
        }
        assert!(!FsClass::Memory.is_watched_by_default());
    }

    #[test]
    fn what_can_only_be_read_is_known_by_type_by_name_and_by_its_layers() {
        for (fstype, source, options, expected) in [
            ("squashfs", "/dev/loop0", "ro", true),
            ("iso9660", "/dev/sr0", "ro", true),
            ("overlay", "overlay", "ro,lowerdir+=/l/0,lowerdir+=/l/1", true),
            ("overlay", "overlay", "ro,lowerdir=/l,upperdir=/u,workdir=/w", false),
            ("ecryptfs", "/srv", "ro", false),
            ("fuse.dwarfs", "dwarfs", "ro", true),
            ("fuse", "cvmfs2", "ro", true),
            ("fuse", "sshfs", "ro", false),
            ("fuse.sshfs", "borgfs", "ro", false),
            ("ext4", "/dev/sdb", "ro", false),
            ("udf", "/dev/sr0", "ro", true),
            ("udf", "/dev/sdb", "ro", false),
        ] {
            let mount = Mount {
                id: MountId(2),
                unique: None,
                parent: MountId(1),
                superblock: SuperblockId { major: 0, minor: 2 },
                root: "/".into(),
                mountpoint: "/v".into(),
                options: Options::default(),
                propagation: Propagation::default(),
                fstype: fstype.into(),
                source: source.into(),
                super_options: Options::parse(options.as_bytes()),
            };
            assert_eq!(is_readonly_by_nature(&mount), expected, "{fstype} {source} {options}");
        }
    }
}
