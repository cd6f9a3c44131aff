//! The other mounts of a volume's superblock: binds on the host, and those that containers took with them. Which of
//! them a plan replaces, and by what; read from one mount table. Pure.
//!
//! A file system whose device can be mounted only once has to go everywhere before it can come back. So that nobody
//! writes into the bare directory meanwhile, a guard lies there: an empty tmpfs that nobody may write to. It says in
//! its source which volume it stands for, and which directory of it, so that any later plan can replace it.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::{string::String, vec::Vec};

use crate::fstype::names_directory_in_source;
use crate::hash::hash;
use crate::id::{MountId, SuperblockId, VolumeId};
use crate::path::BytePath;
use crate::remediation::kubelet::is_kubelets;
use crate::topology::{Mount, MountTable};
use crate::volume::Reach;

/// What a mount of the volume's old superblock looks like, wherever it is.
///
/// Numbers of superblocks are used again: a mount counts only when its type and its source are the same as well. Where
/// the source names the directory that is shown, it is that of the volume or lies below it: several volumes may be
/// directories of one such superblock.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Holding {
    /// The directory of the superblock that the volume shows.
    pub root: BytePath,
    /// The type in the table.
    pub fstype: String,
    /// The source in the table, which of NFS names the directory.
    pub source: Vec<u8>,
}

impl Holding {
    /// What another mount of the same file system would look like.
    #[must_use]
    pub fn of(mount: &Mount) -> Self {
        Self { root: mount.root.clone(), fstype: mount.fstype.clone(), source: mount.source.clone() }
    }

    /// Whether a mount with this number is one of the old file system.
    #[must_use]
    pub fn fits(&self, mount: &Mount) -> bool {
        mount.fstype == self.fstype && (mount.source == self.source || self.inner_of_source(mount).is_some())
    }

    /// What a mount that fits shows, relative to the volume's root; nothing where that is another part.
    #[must_use]
    pub fn inner(&self, mount: &Mount) -> Option<BytePath> {
        if names_directory_in_source(&self.fstype) {
            return self.inner_of_source(mount);
        }
        inner(&self.root, &mount.root)
    }

    /// The directory of the file system that a mount shows, as far as it can be named.
    #[must_use]
    pub fn directory_of(&self, mount: &Mount) -> BytePath {
        let named = self.inner_of_source(mount);
        named.map_or_else(|| mount.root.clone(), |inner| self.root.join(inner.as_bytes()))
    }

    /// The same, where the source says it.
    fn inner_of_source(&self, mount: &Mount) -> Option<BytePath> {
        if !names_directory_in_source(&self.fstype) {
            return None;
        }
        let source = without_slashes(&self.source);
        let rest = without_slashes(&mount.source).strip_prefix(source)?;
        match rest.split_first() {
            None => Some(BytePath::new(rest)),
            Some((b'/', inner)) => Some(BytePath::new(inner)),
            Some(_) => None,
        }
    }
}

/// Of the root of an export that was mounted with a slash behind it, the kernel shows that slash too.
fn without_slashes(source: &[u8]) -> &[u8] {
    let end = source.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last.saturating_add(1));
    source.get(..end).unwrap_or_default()
}

/// What is looked for in a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted<'a> {
    /// The volume.
    pub volume: &'a VolumeId,
    /// The old superblock and what its mounts look like. Without it only guards are looked for.
    pub old: Option<(SuperblockId, &'a Holding)>,
    /// The only mounts that can be of it, by their ids. `None`: as long as the old one is mounted nothing else can have
    /// its number.
    pub ids: Option<&'a BTreeSet<MountId>>,
    /// Which mounts may be touched.
    pub reach: Reach,
    /// Places that belong to the plan itself, and everything below them; only where the plan's own namespace is
    /// looked at.
    pub own: &'a [BytePath],
}

/// What a mount that is replaced stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The old file system.
    Old,
    /// A guard of this volume.
    Guard,
}

/// One place that is to show the new file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bind {
    /// The mount on top.
    pub mount: Mount,
    /// What it is.
    pub kind: Kind,
    /// What it shows, relative to the volume's root; empty for the root itself.
    pub inner: BytePath,
    /// More of the same kind under it, which only have to go.
    pub surplus: usize,
    /// It lies inside another of these, and goes with it.
    pub is_inside: bool,
}

/// Why a mount of the old superblock is left as it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Left {
    /// The directory that it shows was deleted.
    Deleted,
    /// It shows a part of the file system that is not the volume's.
    OtherPart,
    /// Something else is mounted over it.
    Covered,
    /// Something else is mounted inside, and would be detached as well.
    HasInside(BytePath),
    /// It belongs to the kubelet, and nobody said that it may be touched.
    Kubelets,
    /// It is the root directory of its namespace.
    IsRoot,
    /// Its namespace belongs to another user namespace.
    Foreign,
}

impl Left {
    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Deleted => String::from("what it shows was deleted"),
            Self::OtherPart => String::from("it shows a part of the file system that is not the volume's"),
            Self::Covered => String::from("something else is mounted over it"),
            Self::HasInside(path) => format!("{path} is mounted inside and would be detached as well"),
            Self::Kubelets => String::from("it is the kubelet's, and swap_consumers = true is not written"),
            Self::Foreign => String::from(
                "its namespace belongs to another user namespace, whose mounts the kernel locks; start what runs there \
                 again",
            ),
            Self::IsRoot => String::from("it is the root directory of its namespace"),
        }
    }
}

/// What one table shows of a volume's consumers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Survey {
    /// What is to be replaced; what lies above comes before what lies below.
    pub binds: Vec<Bind>,
    /// What is left.
    pub left: Vec<Stays>,
}

/// A mount that is left as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stays {
    /// Which.
    pub id: MountId,
    /// Where.
    pub place: BytePath,
    /// What it is.
    pub kind: Kind,
    /// Why.
    pub why: Left,
}

/// The word at the beginning of a guard's source.
const GUARD: &str = "mountie-guard";

/// The source of a guard: whose it is, and what it stands for.
#[must_use]
pub fn guard_source(volume: &VolumeId, inner: &BytePath) -> Vec<u8> {
    let mut source = guard_prefix(volume);
    source.extend_from_slice(inner.as_bytes());
    source
}

fn guard_prefix(volume: &VolumeId) -> Vec<u8> {
    format!("{GUARD}:{:016x}:", hash(volume.as_str().as_bytes())).into_bytes()
}

/// Whether a mount is a guard, of whichever volume.
#[must_use]
pub fn is_guard(mount: &Mount) -> bool {
    mount.fstype == "tmpfs"
        && mount.source.strip_prefix(GUARD.as_bytes()).is_some_and(|rest| rest.starts_with(b":"))
}

/// What a guard of this volume stands for.
#[must_use]
pub fn guarded(volume: &VolumeId, mount: &Mount) -> Option<BytePath> {
    let inner = mount.source.strip_prefix(guard_prefix(volume).as_slice()).filter(|_| is_guard(mount))?;
    Some(BytePath::new(inner))
}

impl Wanted<'_> {
    /// What a mount is to the plan; nothing for all that it does not concern.
    #[must_use]
    pub fn kind(&self, mount: &Mount) -> Option<Kind> {
        if self.own.iter().any(|place| mount.mountpoint.is_within(place)) {
            return None;
        }
        if guarded(self.volume, mount).is_some() {
            return Some(Kind::Guard);
        }
        let (old, holding) = self.old?;
        let is_known = self.ids.is_none_or(|ids| ids.contains(&mount.id));
        (is_known && mount.superblock == old && holding.fits(mount)).then_some(Kind::Old)
    }

    /// What it shows, relative to the volume's root.
    fn inner(&self, mount: &Mount) -> Result<BytePath, Left> {
        if let Some(inner) = guarded(self.volume, mount) {
            return Ok(inner);
        }
        // kernel: `dentry_path`, fs/d_path.c, since 2.6.38.
        if mount.root.as_bytes().ends_with(b"//deleted") {
            return Err(Left::Deleted);
        }
        let Some((_, holding)) = self.old else { return Err(Left::OtherPart) };
        holding.inner(mount).ok_or(Left::OtherPart)
    }
}

/// `path` relative to `root`, without a slash in front; nothing where it lies elsewhere.
#[must_use]
pub fn inner(root: &BytePath, path: &BytePath) -> Option<BytePath> {
    if !path.is_within(root) {
        return None;
    }
    let rest = path.as_bytes().get(root.as_bytes().len()..)?;
    Some(BytePath::new(rest.strip_prefix(b"/").unwrap_or(rest)))
}

/// Finds the consumers in one table.
#[must_use]
pub fn survey(table: &MountTable, wanted: &Wanted<'_>) -> Survey {
    let mut survey = Survey::default();
    for mount in table.mounts() {
        let Some(kind) = wanted.kind(mount) else { continue };
        let stack = table.stack_at(&mount.mountpoint);
        let alike = |mount: &&&Mount| wanted.kind(mount).is_some();
        let on_top = stack.iter().rev().take_while(alike).count();
        // One that lies under another of its kind goes with that one.
        let is_top = stack.last().is_some_and(|top| top.id == mount.id);
        if !is_top && stack.iter().rev().take(on_top).any(|above| above.id == mount.id) {
            continue;
        }
        let entry = match obstacle(table, wanted, mount, is_top) {
            None => wanted.inner(mount),
            Some(left) => Err(left),
        };
        match entry {
            Err(why) => {
                let (id, place) = (mount.id, mount.mountpoint.clone());
                survey.left.push(Stays { id, place, kind, why });
            }
            Ok(inner) => survey.binds.push(Bind {
                mount: (**mount).clone(),
                kind,
                inner,
                surplus: on_top.saturating_sub(1),
                is_inside: table.mounts().iter().any(|other| {
                    other.id == mount.parent
                        && other.mountpoint != mount.mountpoint
                        && wanted.kind(other).is_some()
                }),
            }),
        }
    }
    survey.binds.sort_by_key(|bind| bind.mount.mountpoint.as_bytes().len());
    while let Some((index, inside)) = survey.loses_inside(table) {
        let Bind { mount, kind, .. } = survey.binds.remove(index);
        let why = Left::HasInside(inside);
        survey.left.push(Stays { id: mount.id, place: mount.mountpoint, kind, why });
    }
    survey
}

impl Survey {
    /// The first that would take something along that stays: what is detached goes with all that is mounted inside it,
    /// however deep.
    fn loses_inside(&self, table: &MountTable) -> Option<(usize, BytePath)> {
        let stays = self.left.iter().map(|stays| (stays.id, &stays.place));
        self.binds.iter().enumerate().find_map(|(index, bind)| {
            let lost = stays.clone().find(|(id, _)| is_inside(table, *id, bind.mount.id));
            lost.map(|(_, place)| (index, place.clone()))
        })
    }
}

/// Whether one mount is mounted somewhere inside another one.
fn is_inside(table: &MountTable, id: MountId, outer: MountId) -> bool {
    let mut at = id;
    // A loop of parents is no table of this kernel's.
    for _ in 0..table.mounts().len() {
        let Some(mount) = table.mounts().iter().find(|mount| mount.id == at && mount.parent != at) else {
            return false;
        };
        if mount.parent == outer {
            return true;
        }
        at = mount.parent;
    }
    false
}

fn obstacle(table: &MountTable, wanted: &Wanted<'_>, mount: &Mount, is_top: bool) -> Option<Left> {
    if !is_top {
        return Some(Left::Covered);
    }
    if mount.mountpoint.as_bytes() == b"/" {
        return Some(Left::IsRoot);
    }
    if wanted.reach != Reach::All && is_kubelets(&mount.mountpoint) {
        return Some(Left::Kubelets);
    }
    let strangers = table.mounts().iter().filter(|other| wanted.kind(other).is_none());
    let mut inside = strangers.filter(|other| {
        other.mountpoint != mount.mountpoint
            && other.mountpoint.is_within(&mount.mountpoint)
            && is_inside(table, other.id, mount.id)
    });
    inside.next().map(|other| Left::HasInside(other.mountpoint.clone()))
}

#[cfg(test)]
mod tests;
