//! The kernel's maps as this side holds them.

use std::collections::{BTreeMap, BTreeSet};

use agent_common::key::{NameBytes, NameValue, RootKey};
use agent_common::names;
use agent_common::settings::{LowerDevice, MAX_LOWER, MAX_NAMES, MAX_TRACKED};
use aya::Ebpf;
use aya::maps::lpm_trie::LpmTrie;
use aya::maps::{HashMap, Map, MapData, MapError, PerCpuHashMap, RingBuf};

use super::counters::Counters;
use super::loader::is_full;
use super::losses::Losses;
use super::places::{Places, trie_key};
use super::rows::apply;

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
        let before = &self.applied;
        let names = apply(&mut self.trie, &before.names, &wanted.names, |error| {
            note("mount point", MAX_NAMES, error);
        });
        let superblocks = apply(&mut self.superblocks, &before.superblocks, &wanted.superblocks, |error| {
            note("superblock", MAX_TRACKED, error);
        });
        // Without its row a root counts for every volume of its superblock whose root is not known.
        let roots = apply(&mut self.roots, &rows(&before.roots), &rows(&wanted.roots), |error| {
            note("root", MAX_TRACKED, error);
        });
        let directories = BTreeMap::new();
        self.applied = Places { superblocks, roots: roots.into_keys().collect(), names, directories };
        // Names below such a place go to the mount above it, if that is tracked.
        let is_too_long = wanted.names.keys().any(|name| trie_key(name).is_none());
        problem.or_else(|| {
            is_too_long.then(|| {
                "failed calls on absolute names are not placed rightly for a mount point whose path is longer than the \
                 kernel's maps take"
                    .to_owned()
            })
        })
    }
}

fn rows(roots: &BTreeSet<RootKey>) -> BTreeMap<RootKey, u32> {
    roots.iter().map(|root| (*root, 0)).collect()
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
        self.applied = apply(&mut self.map, &self.applied, wanted, |error| {
            let cause = if is_full(error) { format!("more than {MAX_LOWER}") } else { error.to_string() };
            problem.get_or_insert(format!("not every device below volumes is watched: {cause}"));
        });
        problem
    }
}
