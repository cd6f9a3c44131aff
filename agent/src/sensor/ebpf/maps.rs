//! The kernel's maps as this side holds them.

use std::collections::{BTreeMap, BTreeSet};

use agent_common::key::{NameBytes, NameValue, RootKey};
use agent_common::names;
use agent_common::settings::{LowerDevice, MAX_LOWER, MAX_NAMES, MAX_TRACKED};
use aya::Ebpf;
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{HashMap, Map, MapData, MapError, PerCpuHashMap, RingBuf};

use super::counters::Counters;
use super::loader::is_full;
use super::losses::Losses;
use super::places::{Places, trie_key};

/// The maps, taken out of the object.
pub(super) struct Maps {
    /// Records.
    pub records: RingBuf<MapData>,
    /// What was lost.
    pub losses: Losses,
    /// Counters.
    pub counters: Counters,
    /// What is tracked.
    pub places: KernelPlaces,
    /// What lies below it.
    pub lower: KernelLower,
}

/// Why a map could not be taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum TakeError {
    /// Built from other sources.
    #[error("the object has no map {0}")]
    Missing(&'static str),
    /// Other type or size.
    #[error("map {map} is not what it should be: {reason}")]
    Wrong {
        /// Which.
        map: &'static str,
        /// Why.
        reason: MapError,
    },
}

impl Maps {
    /// Takes what this side uses.
    ///
    /// # Errors
    /// When the object was built from other sources.
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self, TakeError> {
        let records = typed(ebpf, names::RECORDS)?;
        let losses = Losses::new(typed(ebpf, names::DROPPED)?, typed(ebpf, names::WINDOW)?);
        let counters: PerCpuHashMap<_, _, _> = typed(ebpf, names::COUNTERS)?;
        let superblocks = typed(ebpf, names::TRACKED)?;
        let (roots, trie) = (typed(ebpf, names::ROOTS)?, typed(ebpf, names::NAMES)?);
        let places = KernelPlaces { superblocks, roots, trie, applied: Places::default() };
        let lower = KernelLower { map: typed(ebpf, names::LOWER)?, applied: BTreeMap::new() };
        Ok(Self { records, losses, counters: Counters::new(counters), places, lower })
    }
}

fn typed<M: TryFrom<Map, Error = MapError>>(ebpf: &mut Ebpf, name: &'static str) -> Result<M, TakeError> {
    let map = ebpf.take_map(name).ok_or(TakeError::Missing(name))?;
    M::try_from(map).map_err(|reason| TakeError::Wrong { map: name, reason })
}

/// Tracked superblocks and mount points in the kernel.
pub(super) struct KernelPlaces {
    superblocks: HashMap<MapData, u32, u32>,
    roots: HashMap<MapData, RootKey, u32>,
    trie: LpmTrie<MapData, NameBytes, NameValue>,
    applied: Places,
}

impl KernelPlaces {
    /// Changes what differs from the last time. What could not be put in is told in words.
    pub(super) fn apply(&mut self, wanted: &Places) -> Option<String> {
        let mut problem = None;
        let mut note = |what: &str, most: u32, error: &MapError| {
            let cause = if is_full(error) { format!("more than {most}") } else { error.to_string() };
            problem.get_or_insert_with(|| format!("not every {what} is watched: {cause}"));
        };
        // Out first, so that there is room.
        for gone in self.applied.names.keys().filter(|name| !wanted.names.contains_key(*name)) {
            if let Some((bits, bytes)) = trie_key(gone) {
                let _ = self.trie.remove(&Key::new(bits, bytes));
            }
        }
        for gone in self.applied.superblocks.keys().filter(|dev| !wanted.superblocks.contains_key(dev)) {
            let _ = self.superblocks.remove(gone);
        }
        let mut applied = Places::default();
        let mut too_long = None;
        for (s_dev, flags) in &wanted.superblocks {
            let same = self.applied.superblocks.get(s_dev) == Some(flags);
            let result = if same { Ok(()) } else { self.superblocks.insert(s_dev, flags, 0) };
            match result {
                Ok(()) => drop(applied.superblocks.insert(*s_dev, *flags)),
                Err(error) => note("superblock", MAX_TRACKED, &error),
            }
        }
        applied.roots = self.apply_roots(&wanted.roots, |error| note("root", MAX_TRACKED, error));
        for (name, value) in &wanted.names {
            let same = self.applied.names.get(name) == Some(value);
            // Names below it go to the mount above it, if that is tracked.
            let Some((bits, bytes)) = trie_key(name) else {
                too_long = Some("a mount point whose path is longer than the kernel's maps take");
                continue;
            };
            let result = if same { Ok(()) } else { self.trie.insert(&Key::new(bits, bytes), value, 0) };
            match result {
                Ok(()) => drop(applied.names.insert(name.clone(), *value)),
                Err(error) => note("mount point", MAX_NAMES, &error),
            }
        }
        self.applied = applied;
        problem.or_else(|| {
            too_long.map(|what| format!("failed calls on absolute names are not placed rightly for {what}"))
        })
    }

    /// What of the roots is in the map now. Without its row a root counts for every volume of its superblock whose
    /// root is not known.
    fn apply_roots(
        &mut self,
        wanted: &BTreeSet<RootKey>,
        mut note: impl FnMut(&MapError),
    ) -> BTreeSet<RootKey> {
        for gone in self.applied.roots.difference(wanted) {
            let _ = self.roots.remove(gone);
        }
        let mut applied = BTreeSet::new();
        for root in wanted {
            let same = self.applied.roots.contains(root);
            match if same { Ok(()) } else { self.roots.insert(root, 0, 0) } {
                Ok(()) => drop(applied.insert(*root)),
                Err(error) => note(&error),
            }
        }
        applied
    }
}

/// Devices below tracked superblocks in the kernel.
pub(super) struct KernelLower {
    map: HashMap<MapData, u32, LowerDevice>,
    applied: BTreeMap<u32, LowerDevice>,
}

impl KernelLower {
    /// Changes what differs from the last time. What could not be put in is told in words.
    pub(super) fn apply(&mut self, wanted: &BTreeMap<u32, LowerDevice>) -> Option<String> {
        let mut problem = None;
        for gone in self.applied.keys().filter(|device| !wanted.contains_key(device)) {
            let _ = self.map.remove(gone);
        }
        let mut applied = BTreeMap::new();
        for (device, row) in wanted {
            let same = self.applied.get(device) == Some(row);
            match if same { Ok(()) } else { self.map.insert(device, row, 0) } {
                Ok(()) => drop(applied.insert(*device, *row)),
                Err(error) => {
                    let full = is_full(&error);
                    let cause = if full { format!("more than {MAX_LOWER}") } else { error.to_string() };
                    problem.get_or_insert(format!("not every device below volumes is watched: {cause}"));
                }
            }
        }
        self.applied = applied;
        problem
    }
}
