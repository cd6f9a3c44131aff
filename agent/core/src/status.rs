//! What exporters and people are shown of a volume.

use alloc::{collections::BTreeMap, string::String, vec::Vec};
use core::time::Duration;

use crate::consumer::{FileHolder, StaleMount};
use crate::errno::Errno;
use crate::health::claims::Claims;
use crate::health::loss::{Damage, Loss};
use crate::id::{SuperblockId, VolumeId};
use crate::incident::IncidentId;
use crate::observation::{BlockedTask, Op, PlanReport, ProbeResult, Source, Task};
use crate::order::Refused;
use crate::path::BytePath;
use crate::pause::Pause;
use crate::remediation::Plan;
use crate::remediation::asking::Asked;
use crate::time::Monotonic;
use crate::verdict::Condition;
use crate::volume::{Method, Mode};

/// What keeps a repair that is due from beginning, besides its own pace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hold {
    /// Somebody else is in charge, and is left to work first.
    Healer,
    /// Somebody else has just changed what is mounted there.
    Change,
    /// The server cannot be reached, or is only just back.
    Server,
    /// The hook puts it off.
    Hook,
}

/// A repair that is held back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldUp {
    /// By what.
    pub hold: Hold,
    /// Since when.
    pub since: Monotonic,
    /// Until when, where that is known.
    pub until: Option<Monotonic>,
    /// For people; continues a sentence about the volume.
    pub text: String,
}

/// All that is known about one volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeStatus {
    /// The name.
    pub id: VolumeId,
    /// Named in the configuration (its absence is a fault), or found in the table.
    pub expected: bool,
    /// Where.
    pub mountpoint: BytePath,
    /// Type in the table, else in the specification.
    pub fstype: String,
    /// Source in the table, else in the specification, escaped.
    pub source: String,
    /// The server that the source names, where the type of file system has one; else empty. Without secrets.
    pub server: String,
    /// The superblock that is there now.
    pub superblock: Option<SuperblockId>,
    /// Entries in the table at exactly this path.
    pub stack_depth: usize,
    /// What the agent may do.
    pub mode: Mode,
    /// How it is repaired; `None` where nobody has said how it is made.
    pub method: Option<Method>,
    /// The longest time between two looks while nothing speaks against it.
    pub interval: Duration,
    /// The exported state.
    pub condition: Condition,
    /// Totals of failed operations since the agent started.
    pub errors: BTreeMap<(Errno, Op, Source), u64>,
    /// When the first and the last of each were met.
    pub error_times: BTreeMap<(Errno, Op, Source), (Monotonic, Monotonic)>,
    /// What the table and the file system itself say against the mount, since when.
    pub claims: Claims,
    /// The rule that decided: its name, and what would end it. `None` when nothing speaks against the volume.
    pub rule: Option<(&'static str, &'static str)>,
    /// Dirty data that was lost on this mount, acknowledged or not.
    pub loss: Option<Loss>,
    /// Damage that the file system found in itself on this mount, acknowledged or not.
    pub damage: Option<Damage>,
    /// Falls within the flap window.
    pub falls: u32,
    /// In probation: when it is believed, if nothing speaks against it until then.
    pub settles_at: Option<Monotonic>,
    /// The incident that it is part of.
    pub incident: Option<IncidentId>,
    /// Whether it is mounted on an automount trap: every look there delays its expiry.
    pub is_automount: bool,
    /// The last good probe.
    pub last_ok: Option<Monotonic>,
    /// The last answer of a probe: when it started, how long it took, what it found.
    pub last_probe: Option<(Monotonic, Duration, ProbeResult)>,
    /// Since when a probe has not come back: its own, or whatever else is out on the same superblock and stands in
    /// the way.
    pub stuck_since: Option<Monotonic>,
    /// Whether a probe is out now.
    pub probing: bool,
    /// The last tasks that met an error on this mount, newest first, with errno and operation; at most 8. Refusals are
    /// none.
    pub culprits: Vec<(Monotonic, (Errno, Op, Source), Task)>,
    /// How many tasks waited on it at the last census.
    pub blocked_count: u64,
    /// Those that have waited longest, at most 16.
    pub blocked: Vec<BlockedTask>,
    /// How many mounts, in any namespace, still show what the volume showed before it was replaced.
    pub stale_mounts: u64,
    /// How many mounts of its own sick superblock are known, in all namespaces; 0 while it is well.
    pub sick_mounts: usize,
    /// The first of them, at most 16.
    pub stale: Vec<StaleMount>,
    /// How many files are open on what was replaced.
    pub stale_files: u64,
    /// The processes with most of them, at most 16.
    pub stale_holders: Vec<FileHolder>,
    /// Attempts at repair within the last hour.
    pub attempts: u32,
    /// The plan that is running.
    pub plan: Option<Plan>,
    /// The plan that would be carried out, were the mode not `dry-run`.
    pub due_plan: Option<Plan>,
    /// The last repair that ended, and when.
    pub last_repair: Option<(Monotonic, PlanReport)>,
    /// The next attempt is not before this time.
    pub next_attempt: Option<Monotonic>,
    /// What a repair that is due waits for.
    pub held_up: Option<HeldUp>,
    /// Who is asked before each repair, for people.
    pub hook: Option<String>,
    /// The last question to the hook.
    pub asked: Option<Asked>,
    /// The pause that holds repairs back, and whether it is that of the whole node.
    pub pause: Option<(Pause, bool)>,
    /// Why no plan could be made for it, whatever its mode.
    pub not_repaired: Option<Refused>,
    /// The last transitions, newest first; at most 16.
    pub history: Vec<crate::engine::Transition>,
}
