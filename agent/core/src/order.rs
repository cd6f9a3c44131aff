//! What a person orders by hand, and what comes of it. Who may order is decided outside.

use alloc::{boxed::Box, string::String, vec::Vec};

use crate::health::loss::Actor;
use crate::id::{PlanId, VolumeId};
use crate::pause::{Pause, Scope};
use crate::remediation::Plan;
use crate::time::Monotonic;

/// An order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// No repairs, sight goes on.
    Pause {
        /// Of what.
        scope: Scope,
        /// It ends by itself then.
        until: Option<Monotonic>,
        /// Why, in that person's words.
        reason: Option<String>,
    },
    /// Repairs again. For the node: of everything that was paused.
    Resume(Scope),
    /// Make the plan for this volume and carry it out once, whatever its state.
    Remount(VolumeId),
    /// Keep nothing of this volume any more but its pause. It is watched on as if it were new.
    Forget(VolumeId),
}

/// What came of an order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Done {
    /// No plan begins. These were running already, and go to their end: cut off they would leave things half-made.
    Paused {
        /// What holds now.
        pause: Pause,
        /// Plans that are still running.
        running: Vec<PlanId>,
    },
    /// These pauses ended.
    Resumed {
        /// What is no longer paused by itself.
        ended: Vec<Scope>,
        /// The node's pause goes on and holds the volume back.
        still: Option<Pause>,
    },
    /// The plan that is carried out.
    Remounting(Box<Plan>),
    /// Nothing is kept but what a person has stopped.
    Forgotten {
        /// The volume's own pause, which holds on.
        paused: Option<Pause>,
    },
}

/// Why an order was not followed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// No volume has that name.
    NoSuchVolume,
    /// Nothing of that was paused.
    NotPaused,
    /// The volume's mode is `off`.
    Off,
    /// It was found in the mount table, and nobody has said how it is made.
    Found,
    /// Its specification does not say enough: this is missing.
    Incomplete(Lack),
    /// Only the automount trap is there.
    Idle,
    /// Something else is at its place, or over it, and whoever mounted that may mean it.
    Occupied,
    /// A person has stopped repairs.
    Paused(Pause),
    /// This plan is at work on the same volume, superblock, server or place; or as many plans run as may.
    Busy(PlanId),
    /// What an earlier plan left half-made at this place comes first.
    Unsettled,
    /// A look or an errand is out that would hold the old mount: it ends within its deadline.
    Looking,
}

/// What a specification lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// What is mounted.
    Source,
    /// Its type.
    FsType,
    /// What the method runs.
    Command,
    /// Which unit the method restarts.
    Unit,
}

/// What a plan would do now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Preview {
    /// Its id is one that the next plan may get.
    pub plan: Plan,
    /// Why it would not be begun at this moment.
    pub hindered: Option<Refused>,
}

/// Something that a person did.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Deed {
    /// Acknowledged a loss or damage.
    Acknowledgement,
    /// Stopped repairs.
    Pause,
    /// Let repairs go on. Also a pause that ended by itself: then there is no person.
    Resume,
    /// Had a volume mounted anew.
    Remount,
    /// Had all that was kept of a volume forgotten.
    Forget,
}

impl Deed {
    /// The bounded label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Acknowledgement => "acknowledgement",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Remount => "remount",
            Self::Forget => "forget",
        }
    }
}

/// A deed that is about the node, or about a volume that is no more: no volume's history has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeDeed {
    /// When.
    pub at: Monotonic,
    /// What.
    pub deed: Deed,
    /// About which volume, if one.
    pub volume: Option<VolumeId>,
    /// Who; nobody when a pause ended by itself.
    pub by: Option<Actor>,
    /// One sentence for people.
    pub message: String,
}
