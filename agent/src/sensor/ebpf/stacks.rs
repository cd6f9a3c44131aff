//! Which block devices lie below which tracked superblock, out of sysfs: partitions, their disk, what device-mapper
//! and md stack on, and all devices of a btrfs. No watched path is touched.
//!
//! What lies below the file behind a loop device is another file system, and is not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use agent_common::settings::LowerDevice;
use agent_core::id::SuperblockId;
use agent_core::incident::Device;

use crate::sensor::btrfs;
use crate::sys::device_name::device_name;

/// Stacks are not deeper: partition, RAID, encryption, logical volume, thin pool, snapshot.
const DEEPEST: u32 = 10;
/// The most devices below one superblock.
const MOST: usize = 256;

/// What lies below one superblock.
#[derive(Debug)]
struct Stack {
    /// What it was mounted from, where that had to be known.
    source: Option<Vec<u8>>,
    /// Nearest first.
    devices: Vec<Device>,
}

/// What lies below the tracked superblocks, as it was when each was looked at last.
#[derive(Debug, Default)]
pub(super) struct Stacks(BTreeMap<SuperblockId, Stack>);

impl Stacks {
    /// Looks below superblocks that are new, and forgets those that are gone.
    pub(super) fn follow_new(
        &mut self,
        sys: &Path,
        superblocks: &BTreeSet<SuperblockId>,
        sources: &BTreeMap<SuperblockId, Vec<u8>>,
    ) {
        self.0.retain(|superblock, stack| {
            superblocks.contains(superblock) && stack.source.as_ref() == sources.get(superblock)
        });
        for superblock in superblocks {
            self.0.entry(*superblock).or_insert_with(|| {
                let source = sources.get(superblock).cloned();
                let devices = devices_below(sys, *superblock, source.as_deref());
                Stack { source, devices }
            });
        }
    }

    /// Looks below all of them again: nobody tells when devices are put together anew.
    pub(super) fn follow_all(
        &mut self,
        sys: &Path,
        superblocks: &BTreeSet<SuperblockId>,
        sources: &BTreeMap<SuperblockId, Vec<u8>>,
    ) {
        self.0.clear();
        self.follow_new(sys, superblocks, sources);
    }

    /// The devices below each superblock, nearest first, with their names.
    #[must_use]
    pub(super) fn devices(&self) -> BTreeMap<SuperblockId, Vec<Device>> {
        let stacks = self.0.iter().filter(|(_, stack)| !stack.devices.is_empty());
        stacks.map(|(superblock, stack)| (*superblock, stack.devices.clone())).collect()
    }

    /// The rows of the map: for every device the superblocks above it. A superblock whose own device it is is not
    /// among them; the programs know that one. Also how many places were wanted and not there.
    #[must_use]
    pub(super) fn rows(&self) -> (BTreeMap<u32, LowerDevice>, usize) {
        let mut rows: BTreeMap<u32, LowerDevice> = BTreeMap::new();
        let mut left_out = 0;
        for (superblock, stack) in &self.0 {
            let own = superblock.to_kernel();
            for device in stack.devices.iter().filter(|device| device.number != *superblock) {
                let row = rows.entry(device.number.to_kernel()).or_default();
                if let Some(free) = row.superblocks.iter_mut().find(|place| **place == 0) {
                    *free = own;
                } else {
                    left_out += 1;
                }
            }
        }
        (rows, left_out)
    }
}

fn devices_below(sys: &Path, superblock: SuperblockId, source: Option<&[u8]>) -> Vec<Device> {
    let mut found = Vec::new();
    if superblock.major == 0 {
        let folder = source.and_then(|source| btrfs::folder_of(sys, source));
        for device in folder.map(|folder| entries(&folder.join("devices"))).unwrap_or_default() {
            follow(&device, DEEPEST, &mut found);
        }
    } else {
        let number = format!("{}:{}", superblock.major, superblock.minor);
        follow(&sys.join("dev/block").join(number), DEEPEST, &mut found);
    }
    let named = |number: SuperblockId| Device {
        number,
        name: device_name(&sys.join("dev/block"), number).unwrap_or_default(),
    };
    found.into_iter().map(named).collect()
}

/// Notes a device and all below it.
///
/// kernel: `slaves` and `dev`, Documentation/ABI/testing/sysfs-block, since 2.6.16; `partition`, since 2.6.25.
fn follow(device: &Path, depth: u32, found: &mut Vec<SuperblockId>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    if found.len() >= MOST {
        return;
    }
    if let Some(number) = number(&device.join("dev")) {
        if found.contains(&number) {
            return;
        }
        found.push(number);
    }
    if std::fs::read_to_string(device.join("partition")).is_ok() {
        follow(&device.join(".."), depth, found);
    }
    for slave in entries(&device.join("slaves")) {
        follow(&slave, depth, found);
    }
}

fn number(file: &Path) -> Option<SuperblockId> {
    let text = std::fs::read_to_string(file).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(SuperblockId { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests;
