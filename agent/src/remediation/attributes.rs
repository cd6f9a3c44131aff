//! Which options of the old mount the new one must have before anybody sees it. Pure.

use agent_core::id::{MountId, SuperblockId};
use agent_core::path::BytePath;
use agent_core::remediation::consumers::Holding;
use agent_core::topology::{Mount, Options, Propagation};
use rustix::mount::{MountAttrFlags, MountFlags};
use serde::{Deserialize, Serialize};

use crate::sys::mount_attributes::{Attributes, Kin};

/// Options of one mount that are single bits, as mountinfo shows them.
///
/// kernel: `show_mnt_opts`, fs/proc_namespace.c; `nosymfollow` since 5.10.
const BITS: [(&str, MountAttrFlags); 6] = [
    ("ro", MountAttrFlags::MOUNT_ATTR_RDONLY),
    ("nosuid", MountAttrFlags::MOUNT_ATTR_NOSUID),
    ("nodev", MountAttrFlags::MOUNT_ATTR_NODEV),
    ("noexec", MountAttrFlags::MOUNT_ATTR_NOEXEC),
    ("nodiratime", MountAttrFlags::MOUNT_ATTR_NODIRATIME),
    ("nosymfollow", MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW),
];

/// What the new mount takes over from the old one. Outlives it: where the old one has to go first, the step that
/// took it away hands this on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Former {
    /// Options of the one mount, separated by commas: none of them has one inside.
    options: Vec<u8>,
    /// The peer group that it was in.
    pub(super) shared: Option<u32>,
    /// The one that it received from.
    master: Option<u32>,
    unbindable: bool,
}

impl Former {
    pub(super) fn of(mount: &Mount) -> Self {
        let words: Vec<&[u8]> = mount.options.iter().collect();
        let Propagation { shared, master, unbindable } = mount.propagation;
        Self { options: words.join(&b','), shared, master, unbindable }
    }

    pub(super) fn propagation(&self) -> Propagation {
        Propagation { shared: self.shared, master: self.master, unbindable: self.unbindable }
    }

    /// The mount as it stood at its place, of a superblock that is read-only.
    pub(super) fn read_only(&self, place: &BytePath, holding: &Holding) -> Mount {
        let Holding { root, fstype, source } = holding.clone();
        Mount {
            id: MountId(0),
            unique: None,
            parent: MountId(0),
            superblock: SuperblockId { major: 0, minor: 0 },
            root,
            mountpoint: place.clone(),
            options: Options::parse(&self.options),
            propagation: self.propagation(),
            fstype,
            source,
            super_options: Options::parse(b"ro"),
        }
    }
}

/// What the plan wants beside the old mount's options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wish {
    /// Read-only, whatever the old one was.
    pub(super) readonly: bool,
    /// The old one's being read-only is the fault that is repaired: not copied.
    pub(super) old_readonly_is_the_fault: bool,
}

/// Never looser than the old mount: bits are added, none is taken away.
///
/// A slave (`master:`) without a peer group of its own cannot be made from a detached tree; the new mount is
/// then private or, under a shared parent, shared, as any new mount there.
pub(super) fn for_new_mount(old: Option<&Former>, wish: Wish) -> Attributes {
    let mut set = MountAttrFlags::empty();
    let mut clear = MountAttrFlags::empty();
    if let Some(old) = old {
        let options = Options::parse(&old.options);
        for (word, bit) in BITS {
            if options.has(word) {
                set |= bit;
            }
        }
        if wish.old_readonly_is_the_fault {
            set &= !MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        // Relatime is the zero of this field; strict is what neither word stands for.
        clear |= MountAttrFlags::MOUNT_ATTR__ATIME;
        if options.has("noatime") {
            set |= MountAttrFlags::MOUNT_ATTR_NOATIME;
        } else if !options.has("relatime") {
            set |= MountAttrFlags::MOUNT_ATTR_STRICTATIME;
        }
    }
    if wish.readonly {
        set |= MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    Attributes { set, clear, shared: old.is_some_and(|old| old.shared.is_some()), kin: Kin::None }
}

/// Exactly the options of a mount, for one that takes its place.
pub(super) fn exact(mount: &Mount) -> Attributes {
    let wish = Wish { readonly: false, old_readonly_is_the_fault: false };
    let attributes = for_new_mount(Some(&Former::of(mount)), wish);
    let all = BITS.iter().map(|(_, bit)| *bit).fold(MountAttrFlags::empty(), |all, bit| all | bit);
    Attributes { clear: attributes.clear | all, ..attributes }
}

/// The same in the flags of mount(2), for kernels before 5.12.
pub(super) fn exact_in_old_flags(mount: &Mount) -> MountFlags {
    in_old_flags(own(mount))
}

/// What a staged mount gets in the flags of mount(2), for kernels before 5.12: all that it must have, since a bind
/// remount sets every option anew.
pub(super) fn for_bind_remount(staged: &Mount, attributes: Attributes) -> MountFlags {
    in_old_flags((own(staged) & !attributes.clear) | attributes.set)
}

/// The flags of mount(2) for a mount that is made again aside. Read-only means the superblock there, and must be as it
/// was; the mount that is shown gets what it had of its own.
pub(super) fn again(mount: &Mount) -> MountFlags {
    let mut flags = in_old_flags(own(mount));
    flags.set(MountFlags::RDONLY, mount.super_options.has("ro"));
    flags
}

fn own(mount: &Mount) -> MountAttrFlags {
    let wish = Wish { readonly: false, old_readonly_is_the_fault: false };
    for_new_mount(Some(&Former::of(mount)), wish).set
}

fn in_old_flags(all: MountAttrFlags) -> MountFlags {
    let pairs = [
        (MountAttrFlags::MOUNT_ATTR_RDONLY, MountFlags::RDONLY),
        (MountAttrFlags::MOUNT_ATTR_NOSUID, MountFlags::NOSUID),
        (MountAttrFlags::MOUNT_ATTR_NODEV, MountFlags::NODEV),
        (MountAttrFlags::MOUNT_ATTR_NOEXEC, MountFlags::NOEXEC),
        (MountAttrFlags::MOUNT_ATTR_NODIRATIME, MountFlags::NODIRATIME),
        (MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, MountFlags::NOSYMFOLLOW),
        (MountAttrFlags::MOUNT_ATTR_NOATIME, MountFlags::NOATIME),
        (MountAttrFlags::MOUNT_ATTR_STRICTATIME, MountFlags::STRICTATIME),
    ];
    let flags = pairs.into_iter().filter(|(attribute, _)| all.contains(*attribute)).map(|(_, flag)| flag);
    let flags: MountFlags = flags.collect();
    if all.intersects(MountAttrFlags::MOUNT_ATTR__ATIME) { flags } else { flags | MountFlags::RELATIME }
}

#[cfg(test)]
mod tests;
