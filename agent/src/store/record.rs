//! The shapes on disk, with their version, and their conversion to and from the core.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use agent_core::id::{MountId, PlanId, SuperblockId, VolumeId};
use agent_core::observation::Unfinished;
use agent_core::path::BytePath;
use agent_core::remediation::consumers::Holding;
use agent_core::remediation::{Marks, Outcome, Plan};
use serde::{Deserialize, Serialize};

/// The version this agent writes. A record of another version is left alone.
pub(super) const API_VERSION: &str = "mountie/v1";

/// One line of the journal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(rename = "apiVersion")]
    pub(super) api_version: String,
    #[serde(flatten)]
    pub(super) body: Body,
}

/// What a line says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub(super) enum Body {
    /// A plan is about to act.
    Intent {
        /// Its id.
        plan: u64,
        /// For which volume.
        volume: String,
        /// The mount point it works on.
        mountpoint: Bytes,
        /// The private place it uses.
        stage: Bytes,
        /// The superblock it wants to replace.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        old: Option<(u32, u32)>,
        /// What its mounts are known by.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        marks: Option<Box<WireMarks>>,
        /// Mounts of it elsewhere, which the plan has to come to as well, by their ids.
        #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
        holders: BTreeSet<u32>,
        /// The boot during which it was written: device numbers mean nothing after it.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        boot: Option<String>,
        /// The reason, for people.
        reason: String,
    },
    /// A plan ended.
    Outcome {
        /// Its id.
        plan: u64,
        /// What became of it, for people.
        outcome: String,
    },
    /// No plan up to this id may be begun again. Written when the journal is shortened; the intents that are
    /// still open follow it.
    Mark {
        /// The highest id ever used.
        plan: u64,
    },
}

/// [`Marks`] on disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct WireMarks {
    root: Bytes,
    fstype: String,
    source: Bytes,
    /// Ids that are never used again, as long as this boot lasts.
    #[serde(default)]
    unique: BTreeSet<u64>,
    /// What else was mounted at the place, by ids.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
    others: BTreeSet<u32>,
}

impl From<&Marks> for WireMarks {
    fn from(Marks { holding, unique, others, .. }: &Marks) -> Self {
        Self {
            root: Bytes::from(&holding.root),
            fstype: holding.fstype.clone(),
            source: Bytes::from(&BytePath::new(holding.source.clone())),
            unique: unique.clone(),
            others: others.iter().map(|id| id.0).collect(),
        }
    }
}

impl From<WireMarks> for Marks {
    fn from(WireMarks { root, fstype, source, unique, others }: WireMarks) -> Self {
        let source = BytePath::from(source).as_bytes().to_vec();
        let holding = Holding { root: root.into(), fstype, source };
        let others = others.into_iter().map(MountId).collect();
        Self { holding, unique, here: BTreeSet::new(), others, own: BTreeSet::new() }
    }
}

/// A path in JSON: text where it is UTF-8, else a list of bytes. Nothing is lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Bytes {
    Text(String),
    Raw(Vec<u8>),
}

impl From<&BytePath> for Bytes {
    fn from(path: &BytePath) -> Self {
        match str::from_utf8(path.as_bytes()) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Raw(path.as_bytes().to_vec()),
        }
    }
}

impl From<Bytes> for BytePath {
    fn from(bytes: Bytes) -> Self {
        match bytes {
            Bytes::Text(text) => Self::new(text.into_bytes()),
            Bytes::Raw(raw) => Self::new(raw),
        }
    }
}

impl Record {
    fn new(body: Body) -> Self {
        Self { api_version: API_VERSION.to_owned(), body }
    }

    pub(super) fn intent(plan: &Plan, holders: &BTreeSet<MountId>) -> Self {
        Self::new(Body::Intent {
            plan: plan.id.0,
            volume: plan.volume.as_str().to_owned(),
            mountpoint: Bytes::from(&plan.mountpoint),
            stage: Bytes::from(&plan.stage),
            old: plan.old.map(|old| (old.major, old.minor)),
            marks: plan.marks.as_ref().map(|marks| Box::new(WireMarks::from(marks))),
            holders: holders.iter().map(|id| id.0).collect(),
            boot: current_boot(),
            reason: plan.reason.map_or(without_reason(plan), agent_core::verdict::Reason::label).to_owned(),
        })
    }

    pub(super) fn outcome(plan: PlanId, outcome: &Outcome) -> Self {
        Self::new(Body::Outcome { plan: plan.0, outcome: outcome.label().to_owned() })
    }

    pub(super) fn mark(plan: u64) -> Self {
        Self::new(Body::Mark { plan })
    }

    /// The id the record is about.
    pub(super) const fn plan(&self) -> u64 {
        match &self.body {
            Body::Intent { plan, .. } | Body::Outcome { plan, .. } | Body::Mark { plan } => *plan,
        }
    }

    /// The intent as the core wants to know it. A superblock of another boot is gone, and its number may be that
    /// of a mount that is in order: it is left out.
    pub(crate) fn into_unfinished(self) -> Option<Unfinished> {
        match self.body {
            Body::Intent { plan, volume, mountpoint, stage, old, marks, holders, boot, .. } => {
                let is_of_this_boot = boot.is_some() && boot == current_boot();
                let old = old.filter(|_| is_of_this_boot);
                Some(Unfinished {
                    plan: PlanId(plan),
                    volume: VolumeId::new(volume),
                    mountpoint: mountpoint.into(),
                    stage: stage.into(),
                    old: old.map(|(major, minor)| SuperblockId { major, minor }),
                    marks: marks.filter(|_| is_of_this_boot).map(|marks| Marks::from(*marks)),
                    holders: holders.into_iter().filter(|_| is_of_this_boot).map(MountId).collect(),
                })
            }
            Body::Outcome { .. } | Body::Mark { .. } => None,
        }
    }
}

/// A plan that only settles has nothing to undo; any other without a reason was ordered.
const fn without_reason(plan: &Plan) -> &'static str {
    if plan.undo.is_empty() { "settle" } else { "order" }
}

/// What tells this boot from every other.
///
/// kernel: `random_table`, drivers/char/random.c, since 2.6: made once for each boot.
pub(super) fn current_boot() -> Option<String> {
    static BOOT: OnceLock<String> = OnceLock::new();
    if let Some(boot) = BOOT.get() {
        return Some(boot.clone());
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let boot = Some(text.trim()).filter(|id| !id.is_empty())?;
    Some(BOOT.get_or_init(|| boot.to_owned()).clone())
}

#[cfg(test)]
mod tests;
