//! Everything the engine is told by the operator. Plain data that has passed validation.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use crate::path::BytePath;
use crate::volume::{Discovery, VolumeSpec, Watch};

/// The engine's settings as a whole; a reload replaces them as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// The named volumes. Names and mount points are unique.
    pub volumes: Vec<VolumeSpec>,
    /// What else is watched.
    pub discovery: Discovery,
    /// For volumes that were discovered.
    pub defaults: Watch,
    /// The directory under which plans make new mounts; never a tracked place.
    pub stage_root: BytePath,
    /// A number of this node: what many nodes wait for they do not all begin at the same moment when it comes.
    pub node: u64,
    /// Thresholds that the operator does not set.
    pub thresholds: Box<Thresholds>,
}

/// Numbers behind the rules, in one place so that tests can move them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// Kernel evidence older than this no longer counts.
    pub evidence_window: Duration,
    /// Kernel errors in the window that make a volume sick although probes of attributes answer.
    pub sustained_errors: u64,
    /// … spread over at least this long.
    pub sustained_spread: Duration,
    /// The settle time after a recovery: the shortest probation.
    pub probation: Duration,
    /// The longest probation of a volume that flaps.
    pub probation_max: Duration,
    /// Falls within this time count as flapping.
    pub flap_window: Duration,
    /// Volumes that fall within this time of each other for one cause are one incident; those that are looked at
    /// less often are given the time of two looks.
    pub incident_window: Duration,
    /// The first pause between two attempts; doubles up to `backoff_max`.
    pub backoff: Duration,
    /// The longest pause between two attempts.
    pub backoff_max: Duration,
    /// The pause after an attempt that found the old mount in use.
    pub backoff_busy: Duration,
    /// Plans at once on this node; so many hooks are asked at once as well.
    pub plans_at_once: usize,
    /// How often a hook may put a repair off, one time after the other; then a person must act.
    pub put_off_at_most: u32,
    /// After somebody else has changed what is mounted at a sick volume's place, nothing is done there for so long.
    pub others_first: Duration,
    /// A completed probe slower than this share of its deadline, in percent, is `slow`.
    pub slow_percent: u32,
    /// How long a discovered volume that was unmounted is remembered.
    pub forget_after: Duration,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            evidence_window: Duration::from_secs(30),
            sustained_errors: 5,
            sustained_spread: Duration::from_secs(1),
            probation: Duration::from_secs(2),
            probation_max: Duration::from_secs(300),
            flap_window: Duration::from_secs(600),
            incident_window: Duration::from_secs(60),
            backoff: Duration::from_secs(1),
            backoff_max: Duration::from_secs(300),
            backoff_busy: Duration::from_secs(30),
            plans_at_once: 4,
            put_off_at_most: 10,
            others_first: Duration::from_secs(10),
            slow_percent: 50,
            forget_after: Duration::from_secs(60),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            volumes: Vec::new(),
            discovery: Discovery::default(),
            defaults: Watch::default(),
            stage_root: BytePath::from("/run/mountie/stage"),
            node: 0,
            thresholds: Box::default(),
        }
    }
}
