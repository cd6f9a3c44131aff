//! Which volumes there are: a pure function of the policy and one mount table.
//!
//! * A named volume is always in the answer, with what the table says of its place.
//! * A mount that nobody named is a volume if the selectors choose it, a path walk ends on it, and it is not one
//!   more bind of what is a volume already: of several mounts of one (superblock, directory), the one tracked so far,
//!   else the one with the shortest path (ties: the first in byte order), is the volume; the others are its
//!   further mounts.
//! * Binds of the root file system, pseudo file systems, lone automount traps, and everything below the
//!   directory in which plans make their mounts, are never volumes by themselves.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{format, string::String, vec::Vec};

use crate::fstype::{FsClass, is_same_type};
use crate::glob::{Glob, Kind};
use crate::id::{MountId, SuperblockId, VolumeId};
use crate::memory::Known;
use crate::path::{BytePath, escape};
use crate::policy::Policy;
use crate::remediation::consumers::is_guard;
use crate::source::{is_same, is_same_export, is_same_remote};
use crate::topology::automount::Automount;
use crate::topology::walk::Walks;
use crate::topology::{Mount, MountTable, Propagation};
use crate::volume::{Selector, VolumeSpec};

/// Which mount a discovered volume at a path has been until now.
type Tracked<'a> = &'a dyn Fn(&BytePath) -> Option<MountId>;

/// What the table says of a volume's place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Presence {
    /// The volume's mount is what a path walk ends on.
    Present,
    /// Nothing is mounted there.
    Missing,
    /// Something else is mounted there.
    WrongMount,
    /// The volume is mounted there, with something over it.
    Covered,
    /// Only an automount trap is there: not a fault.
    Idle,
}

/// One volume, as one table shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sighting<'a> {
    /// The operator's name, or the escaped mount point.
    pub id: VolumeId,
    /// Where it belongs.
    pub mountpoint: BytePath,
    /// The specification of a named volume.
    pub spec: Option<&'a VolumeSpec>,
    /// What the table says.
    pub presence: Presence,
    /// The mount in question: the volume's own, or with [`Presence::WrongMount`] the one that is there instead.
    pub mount: Option<&'a Mount>,
    /// With [`Presence::Covered`]: the mount that lies over it, unless that lies over a directory above.
    pub over: Option<&'a Mount>,
    /// Entries in the table at exactly this path.
    pub depth: usize,
    /// Where else the same directory of the same superblock is mounted.
    pub further: Vec<BytePath>,
    /// The automount trap on which the mount lies.
    pub automount: Option<Automount>,
}

/// The volumes that the policy wants and the table shows, by name. `tracked` tells which mount a discovered
/// volume at a path has been until now: it stays the volume when a shorter path appears, and is covered, not
/// gone, when something else is mounted over it.
#[must_use]
pub fn discover<'a>(policy: &'a Policy, table: &'a MountTable, tracked: Tracked<'_>) -> Vec<Sighting<'a>> {
    let named: BTreeSet<&BytePath> = policy.volumes.iter().map(|spec| &spec.mountpoint).collect();
    let mut walks = Walks::new(table);
    let mut sightings: Vec<Sighting<'a>> =
        policy.volumes.iter().map(|spec| sight(spec, table, &mut walks)).collect();
    if policy.discovery.enabled {
        let taken: BTreeSet<(SuperblockId, &[u8])> = sightings
            .iter()
            .filter(|sighting| sighting.presence == Presence::Present)
            .filter_map(|sighting| sighting.mount.map(shown))
            .collect();
        let names: BTreeSet<&VolumeId> = policy.volumes.iter().map(|spec| &spec.id).collect();
        for (mount, presence) in chosen(policy, table, &named, (&mut walks, tracked)) {
            if taken.contains(&shown(mount)) {
                continue;
            }
            sightings.push(Sighting {
                id: name_of(&mount.mountpoint, &names),
                mountpoint: mount.mountpoint.clone(),
                spec: None,
                presence,
                mount: Some(mount),
                over: walks.visible_at(&mount.mountpoint).filter(|_| presence == Presence::Covered),
                depth: table.stack_at(&mount.mountpoint).len(),
                further: Vec::new(),
                automount: table.automount_of(mount),
            });
        }
    }
    find_further(policy, table, &named, &mut sightings);
    sightings.sort_by(|a, b| a.id.cmp(&b.id));
    sightings
}

/// Where else the directory of each volume is mounted. One pass over the table for all of them: thousands of
/// volumes may be directories of one superblock.
fn find_further<'a>(
    policy: &Policy,
    table: &'a MountTable,
    named: &BTreeSet<&BytePath>,
    sightings: &mut [Sighting<'a>],
) {
    let own = |sighting: &Sighting<'a>| {
        let mount = sighting.mount.filter(|_| sighting.presence != Presence::WrongMount)?;
        Some(shown(mount))
    };
    let wanted: BTreeSet<(SuperblockId, &[u8])> = sightings.iter().filter_map(own).collect();
    let superblocks: BTreeSet<SuperblockId> = wanted.iter().map(|(superblock, _)| *superblock).collect();
    let mut places: BTreeMap<(SuperblockId, &[u8]), BTreeSet<&BytePath>> = BTreeMap::new();
    for other in superblocks.into_iter().flat_map(|superblock| table.showing(superblock)) {
        let shown = shown(other);
        let is_elsewhere = !named.contains(&other.mountpoint) && !is_staged(policy, &other.mountpoint);
        if is_elsewhere && wanted.contains(&shown) {
            places.entry(shown).or_default().insert(&other.mountpoint);
        }
    }
    for sighting in sightings {
        let Some(mount) = sighting.mount else { continue };
        let places = own(sighting).and_then(|shown| places.get(&shown));
        let others = places.into_iter().flatten().filter(|place| **place != &mount.mountpoint);
        sighting.further = others.map(|place| (*place).clone()).collect();
    }
}

/// Whether a path lies where plans make their mounts.
#[must_use]
pub fn is_staged(policy: &Policy, path: &BytePath) -> bool {
    path.is_within(&policy.stage_root)
}

/// Whether a mount of this class can be a volume that nobody named.
const fn may_be_volume(class: FsClass, by_default: bool) -> bool {
    if by_default { class.is_watched_by_default() } else { class.can_be_watched() }
}

/// Whether a line can matter to discovery for what it is. (It can also matter for where it is.)
#[must_use]
pub fn may_matter(policy: &Policy, mount: &Mount) -> bool {
    let class = FsClass::of(&mount.fstype, &mount.source);
    policy.discovery.enabled && may_be_volume(class, policy.discovery.include.is_empty())
}

fn shown(mount: &Mount) -> (SuperblockId, &[u8]) {
    (mount.superblock, mount.directory())
}

/// A discovered volume is named by its place. A named volume may have taken that text as its name.
fn name_of(mountpoint: &BytePath, names: &BTreeSet<&VolumeId>) -> VolumeId {
    let mut name = VolumeId::new(escape(mountpoint.as_bytes()));
    while names.contains(&name) {
        name = VolumeId::new(format!("{name}#found"));
    }
    name
}

/// What the table says of a named volume.
fn sight<'a>(spec: &'a VolumeSpec, table: &'a MountTable, walks: &mut Walks<'a>) -> Sighting<'a> {
    let stack = table.stack_at(&spec.mountpoint);
    let own = stack.iter().rev().copied().find(|mount| is_what_was_wanted(spec, mount));
    let visible = walks.visible_at(&spec.mountpoint);
    let (presence, mount) = match (visible, own) {
        (Some(top), _) if top.fstype == "autofs" => (Presence::Idle, None),
        // Put there by a plan, so that nobody writes into the bare directory.
        (Some(top), _) if is_guard(top) => (Presence::Missing, None),
        (Some(top), _) if is_what_was_wanted(spec, top) => (Presence::Present, Some(top)),
        (_, Some(own)) => (Presence::Covered, Some(own)),
        (Some(top), None) => (Presence::WrongMount, Some(top)),
        // A key of an indirect map: mounted when somebody walks there.
        (None, None) if walks.is_trapped(&spec.mountpoint) => (Presence::Idle, None),
        (None, None) => (Presence::Missing, None),
    };
    Sighting {
        id: spec.id.clone(),
        mountpoint: spec.mountpoint.clone(),
        spec: Some(spec),
        presence,
        mount,
        over: visible.filter(|_| presence == Presence::Covered),
        depth: stack.len(),
        further: Vec::new(),
        automount: mount.and_then(|mount| table.automount_of(mount)),
    }
}

/// Whether a mount can be the one that the specification wants.
#[must_use]
pub fn is_what_was_wanted(spec: &VolumeSpec, mount: &Mount) -> bool {
    is_mount_of(wanted_source(spec), spec.fstype.as_deref(), mount) && is_subvolume_of(&spec.options, mount)
}

/// The configured source, where a mount made from it shows it. A bind shows what stands behind it, and FUSE what it is
/// told to.
#[must_use]
pub fn wanted_source(spec: &VolumeSpec) -> Option<&[u8]> {
    let shows_other = |option: &String| {
        matches!(option.as_str(), "bind" | "rbind" | "loop") || option.starts_with("fsname=")
    };
    spec.source.as_deref().filter(|_| !spec.options.iter().any(shows_other))
}

/// Whether a mount can be one of this source and this type, as far as they are known.
#[must_use]
pub fn is_mount_of(source: Option<&[u8]>, fstype: Option<&str>, mount: &Mount) -> bool {
    mount.fstype != "autofs"
        && fstype.is_none_or(|wanted| is_same_type(wanted, &mount.fstype))
        && source.is_none_or(|wanted| source_fits(wanted, mount))
}

/// Whether the source column can be what is configured, as far as the two can be compared at all. A FUSE daemon writes
/// there what it likes; a device has many names, of which the table shows one.
fn source_fits(wanted: &[u8], mount: &Mount) -> bool {
    let found = mount.source.as_slice();
    match FsClass::of(&mount.fstype, found) {
        FsClass::Fuse => is_same_remote(&mount.fstype, wanted, found).unwrap_or(true),
        FsClass::Block => {
            let is_compared = is_plain_device(wanted) && is_plain_device(found);
            !is_compared || is_same(wanted, found)
        }
        FsClass::Network if matches!(mount.fstype.as_str(), "nfs" | "nfs4") => is_same_export(wanted, found),
        FsClass::Network
        | FsClass::Autofs
        | FsClass::Overlay
        | FsClass::Memory
        | FsClass::Pseudo
        | FsClass::Other => {
            let is_compared = !wanted.starts_with(b"/dev/") && !is_tag(wanted);
            !is_compared || is_same(wanted, found)
        }
    }
}

/// Whether a mount shows the subvolume that the options of a specification name, where both tell one.
///
/// kernel: `btrfs_show_options`, fs/btrfs/super.c: `subvolid=` and `subvol=` of the mount's own root, since 4.2.
fn is_subvolume_of(options: &[String], mount: &Mount) -> bool {
    let wanted = |key: &str| options.iter().rev().find_map(|option| option.strip_prefix(key));
    let shown = |key: &str| {
        let value = mount.super_options.iter().find_map(|option| option.strip_prefix(key.as_bytes()));
        value.and_then(|value| str::from_utf8(value).ok())
    };
    let of = |key: &str| wanted(key).zip(shown(key)).filter(|_| mount.fstype == "btrfs");
    let is_number = of("subvolid=").is_none_or(|(wanted, shown)| {
        // The subvolume on top has two numbers, and what begins with a zero is written in another base.
        let wanted = if wanted == "0" { "5" } else { wanted };
        wanted.starts_with('0') || wanted == shown
    });
    let is_name = of("subvol=").is_none_or(|(wanted, shown)| {
        let names = |text| str::split(text, '/').filter(|name: &&str| !name.is_empty());
        names(wanted).eq(names(shown))
    });
    is_number && is_name
}

/// `/dev/sda1`: the kernel's own name. `/dev/disk/by-uuid/…`, `/dev/vg/lv` and `/dev/mapper/…` may be links.
fn is_plain_device(source: &[u8]) -> bool {
    source.strip_prefix(b"/dev/").is_some_and(|name| !name.is_empty() && !name.contains(&b'/'))
}

fn is_tag(source: &[u8]) -> bool {
    let tags: [&[u8]; 5] = [b"UUID=", b"LABEL=", b"PARTUUID=", b"PARTLABEL=", b"ID="];
    tags.iter().any(|tag| source.starts_with(tag))
}

/// The mounts that the selectors choose, one for each (superblock, directory).
fn chosen<'a>(
    policy: &Policy,
    table: &'a MountTable,
    named: &BTreeSet<&BytePath>,
    (walks, tracked): (&mut Walks<'a>, Tracked<'_>),
) -> Vec<(&'a Mount, Presence)> {
    let chooser = Chooser::new(policy, table);
    let mut best: BTreeMap<(SuperblockId, &[u8]), (&'a Mount, Presence)> = BTreeMap::new();
    // Thousands of overlays in a row: what one type says once is not asked again.
    let mut refused = "";
    for mount in table.mounts() {
        if mount.fstype == refused {
            continue;
        }
        if FsClass::of_type(&mount.fstype).is_some_and(|class| !chooser.may_choose(class)) {
            refused = &mount.fstype;
            continue;
        }
        if !chooser.chooses(mount) {
            continue;
        }
        if named.contains(&mount.mountpoint) || is_staged(policy, &mount.mountpoint) {
            continue;
        }
        let visible = walks.visible_at(&mount.mountpoint);
        let presence = match visible {
            Some(top) if top.id == mount.id => Presence::Present,
            // A covered mount only counts if it was watched, and if nothing that is watched took its place.
            Some(top) if top.fstype == "autofs" || chooser.chooses(top) => continue,
            Some(_) | None if tracked(&mount.mountpoint) == Some(mount.id) => Presence::Covered,
            Some(_) | None => continue,
        };
        let rank = |(mount, presence): (&Mount, Presence)| {
            let is_new = tracked(&mount.mountpoint) != Some(mount.id);
            (presence, is_new, mount.mountpoint.as_bytes().len(), mount.mountpoint.clone(), mount.id)
        };
        let entry = best.entry(shown(mount)).or_insert((mount, presence));
        if rank((mount, presence)) < rank(*entry) {
            *entry = (mount, presence);
        }
    }
    best.into_values().collect()
}

/// Whether discovery would take in such a mount at such a place.
#[must_use]
pub fn would_be_chosen(policy: &Policy, table: &MountTable, place: &BytePath, known: &Known) -> bool {
    let (id, parent) = (MountId(0), MountId(0));
    let mount = Mount {
        id,
        unique: None,
        parent,
        // A number that no superblock has: it is not that of the root.
        superblock: SuperblockId { major: u32::MAX, minor: u32::MAX },
        root: known.root.clone(),
        mountpoint: place.clone(),
        options: known.options.clone(),
        propagation: Propagation::default(),
        fstype: known.fstype.clone(),
        source: known.source.clone(),
        super_options: known.super_options.clone(),
    };
    policy.discovery.enabled && !is_staged(policy, place) && Chooser::new(policy, table).chooses(&mount)
}

/// The selectors, compiled for one pass over a table.
struct Chooser {
    include: Vec<Pattern>,
    exclude: Vec<Pattern>,
    /// The superblock of `/`, whose binds are not volumes.
    root: Option<SuperblockId>,
}

/// One selector: all keys that are present must match.
struct Pattern {
    fstype: Option<Glob>,
    mountpoint: Option<Glob>,
    source: Option<Glob>,
}

impl Pattern {
    fn new(selector: &Selector) -> Self {
        let glob = |text: &Option<_>, kind| text.as_deref().map(|text: &str| Glob::new(text, kind));
        Self {
            fstype: glob(&selector.fstype, Kind::Text),
            mountpoint: glob(&selector.mountpoint, Kind::Path),
            source: glob(&selector.source, Kind::Text),
        }
    }

    fn matches(&self, mount: &Mount) -> bool {
        let fits = |glob: &Option<Glob>, text: &[u8]| glob.as_ref().is_none_or(|glob| glob.matches(text));
        fits(&self.fstype, mount.fstype.as_bytes())
            && fits(&self.mountpoint, mount.mountpoint.as_bytes())
            && fits(&self.source, &mount.source)
    }
}

impl Chooser {
    fn new(policy: &Policy, table: &MountTable) -> Self {
        Self {
            include: policy.discovery.include.iter().map(Pattern::new).collect(),
            exclude: policy.discovery.exclude.iter().map(Pattern::new).collect(),
            root: table.top_at(&BytePath::from("/")).map(|mount| mount.superblock),
        }
    }

    /// Whether a mount of this class can be a volume at all.
    fn may_choose(&self, class: FsClass) -> bool {
        may_be_volume(class, self.include.is_empty())
    }

    fn chooses(&self, mount: &Mount) -> bool {
        let class = FsClass::of(&mount.fstype, &mount.source);
        let included = if self.include.is_empty() {
            self.root != Some(mount.superblock) || mount.mountpoint.as_bytes() == b"/"
        } else {
            self.include.iter().any(|pattern| pattern.matches(mount))
        };
        self.may_choose(class) && included && !self.exclude.iter().any(|pattern| pattern.matches(mount))
    }
}

#[cfg(test)]
mod tests;
