//! What a volume depends on, as far as it is known: what other volumes may depend on as well.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::engine::Engine;
use crate::engine::volume::{Volume, Way};
use crate::fstype::FsClass;
use crate::id::{SuperblockId, VolumeId};
use crate::incident::{Cause, CauseKind, Daemon, Device};
use crate::path::escape;
use crate::source;
use crate::verdict::HealthState;

/// FUSE types whose source names a server as those of the kernel's network file systems do. Of the others it is a
/// name that their daemon chose: two of one name need have nothing in common.
const FUSE_WITH_SERVER: &[&str] =
    &["fuse.ceph", "fuse.ceph-fuse", "fuse.curlftpfs", "fuse.davfs", "fuse.glusterfs", "fuse.sshfs"];

/// What lies below the volumes, as the sensors say.
#[derive(Clone, Debug, Default)]
pub(super) struct Below {
    devices: BTreeMap<SuperblockId, Vec<Device>>,
    daemons: BTreeMap<SuperblockId, Daemon>,
}

impl Below {
    /// The process that serves a file system, or served it last.
    pub(super) fn daemon(&self, superblock: SuperblockId) -> Option<&Daemon> {
        self.daemons.get(&superblock)
    }
}

impl Volume {
    /// What it depends on, the most particular first. While nobody comes to it, it is what stands in the way.
    pub(super) fn causes(&self, below: &Below) -> Vec<Cause> {
        if let Some(way) = &self.way {
            return way.causes.clone();
        }
        let superblock = self.shown.as_ref().map(|shown| shown.superblock);
        let mut causes = Vec::new();
        match self.class() {
            FsClass::Block => causes.extend(superblock.map(|own| devices(own, below)).unwrap_or_default()),
            FsClass::Fuse => {
                causes.extend(superblock.map(|own| connection(own, below)));
                causes.extend(self.servers());
            }
            FsClass::Network => causes.extend(self.servers()),
            FsClass::Autofs | FsClass::Overlay | FsClass::Memory | FsClass::Pseudo | FsClass::Other => {}
        }
        causes
    }

    /// The server by its name, and by its addresses where the table tells them: it may have several names.
    fn servers(&self) -> Vec<Cause> {
        if !self.has_server() {
            return Vec::new();
        }
        let name = self.source().and_then(|name| source::server(self.fstype().unwrap_or_default(), name));
        let addresses = self.shown.iter().flat_map(|shown| shown.addresses.iter().map(Vec::as_slice));
        let mut causes: Vec<Cause> = name.into_iter().chain(addresses).map(server).collect();
        causes.dedup();
        causes
    }

    /// That its server has moved: NFS looks a name up once, and asks the address that it had then for ever.
    ///
    /// kernel: `nfs_fs_context_parse_param`, fs/nfs/fs_context.c, since 5.6, takes `addr=` as mount.nfs(8) found it.
    pub(super) fn moved(&self) -> Option<String> {
        let shown = self.shown.as_ref()?;
        let parsed = |address: &Vec<u8>| str::from_utf8(address).ok()?.parse::<IpAddr>().ok();
        let used: Vec<IpAddr> = shown.addresses.iter().filter_map(parsed).collect();
        let (first, now) = (used.first()?, shown.server_now.first()?);
        if used.iter().any(|address| shown.server_now.contains(address)) {
            return None;
        }
        let name = escape(source::server(&shown.fstype, &shown.source)?);
        Some(format!("the mount asks {first}, while the name of its server, {name}, leads to {now} by now"))
    }

    /// The server by the first name that incidents know it by, where there is one; while it is not mounted, as it is
    /// configured.
    pub(super) fn server_shown(&self) -> String {
        self.servers().into_iter().next().map(|server| server.name).unwrap_or_default()
    }

    /// Whether the source of such a file system names a server.
    fn has_server(&self) -> bool {
        match self.class() {
            FsClass::Network => true,
            FsClass::Fuse => self.fstype().is_some_and(|fstype| FUSE_WITH_SERVER.contains(&fstype)),
            FsClass::Block
            | FsClass::Autofs
            | FsClass::Overlay
            | FsClass::Memory
            | FsClass::Pseudo
            | FsClass::Other => false,
        }
    }
}

fn server(name: &[u8]) -> Cause {
    Cause { kind: CauseKind::Server, name: escape(name).to_ascii_lowercase() }
}

/// Its own device, then those below it.
fn devices(own: SuperblockId, below: &Below) -> Vec<Cause> {
    let known = below.devices.get(&own).map(Vec::as_slice).unwrap_or_default();
    let mut causes: Vec<Cause> = Vec::with_capacity(known.len().saturating_add(1));
    if !known.iter().any(|device| device.number == own) {
        causes.push(device(own, ""));
    }
    causes.extend(known.iter().map(|found| device(found.number, &found.name)));
    causes
}

fn device(number: SuperblockId, name: &str) -> Cause {
    let name = if name.is_empty() { number.to_string() } else { format!("{name} ({number})") };
    Cause { kind: CauseKind::Device, name }
}

/// The process that serves it; where that is not known, the connection, whose number is the superblock's.
fn connection(own: SuperblockId, below: &Below) -> Cause {
    let name = match below.daemons.get(&own) {
        Some(Daemon { pid, comm, .. }) if comm.is_empty() => format!("process {pid}"),
        Some(Daemon { pid, comm, .. }) => format!("{comm} (process {pid})"),
        None => format!("connection {}", own.minor),
    };
    Cause { kind: CauseKind::Daemon, name }
}

impl Engine {
    /// The nearest volume above this one that is not well, where looks fail on the way.
    ///
    /// kernel: `complete_walk`, fs/namei.c, asks NFS for the root of a mount that a walk comes to (`d_weak_revalidate`),
    /// since 3.9: such a failure may be the volume's own, so that only a sick volume above speaks for another.
    pub(super) fn way_to(&self, id: &VolumeId) -> Option<Way> {
        let volume = self.volumes.get(id).filter(|volume| volume.fails_on_the_way())?;
        let is_above = |other: &&Volume| {
            other.mountpoint != volume.mountpoint && volume.mountpoint.is_within(&other.mountpoint)
        };
        let is_ill = |other: &&Volume| {
            other.condition.state.is_sick() || other.condition.state == HealthState::Suspect
        };
        let above = self.volumes.values().filter(is_above).filter(is_ill);
        let nearest = above.max_by_key(|other| other.mountpoint.as_bytes().len())?;
        Some(Way { mountpoint: nearest.mountpoint.clone(), causes: nearest.causes(&self.below) })
    }

    /// Takes which devices lie below which superblocks.
    pub(super) fn take_devices(&mut self, devices: BTreeMap<SuperblockId, Vec<Device>>) {
        self.below.devices = devices;
        self.touch_sick();
    }

    /// Takes which processes serve which file systems.
    pub(super) fn take_daemons(&mut self, daemons: BTreeMap<SuperblockId, Daemon>) {
        let shown = &self.by_superblock;
        self.below.daemons.retain(|superblock, _| shown.contains_key(superblock));
        self.below.daemons.extend(daemons);
        self.touch_sick();
    }

    fn touch_sick(&mut self) {
        let sick: Vec<VolumeId> = self.incidents.sick().cloned().collect();
        self.touched.extend(sick);
    }
}
