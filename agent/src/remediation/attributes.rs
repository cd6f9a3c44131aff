//! Which options of the old mount the new one must have before anybody sees it. Pure.

use agent_core::topology::{Mount, Options};
use rustix::mount::{MountAttrFlags, MountFlags};
use serde::{Deserialize, Serialize};

use crate::sys::mount_attributes::Attributes;

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
    /// It was in a peer group.
    is_shared: bool,
}

impl Former {
    pub(super) fn of(mount: &Mount) -> Self {
        let words: Vec<&[u8]> = mount.options.iter().collect();
        Self { options: words.join(&b','), is_shared: mount.propagation.shared.is_some() }
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
    Attributes { set, clear, shared: old.is_some_and(|old| old.is_shared) }
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

/// How a mount is made again with the options that it had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Again {
    /// For mount(2). Read-only means the superblock here.
    pub(super) first: MountFlags,
    /// To be set on the one mount after that: it and its superblock were not read-only together.
    pub(super) then: Option<MountFlags>,
}

/// What a mount needs to be made again: `nosuid` and `nodev` above all.
pub(super) fn again(mount: &Mount) -> Again {
    let wanted = in_old_flags(own(mount));
    let mut first = wanted;
    first.set(MountFlags::RDONLY, mount.super_options.has("ro"));
    let then = (first != wanted).then_some(wanted);
    Again { first, then }
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
