//! The shapes of the API: what JSON readers, the status page and the client get. Built from a [`Snapshot`] and
//! nothing else. Fields may be added; none changes its meaning.

use agent_core::errno::Errno;
use agent_core::health::claims::{Claim, ClaimSource, Said};
use agent_core::observation::{Op, Source};
use agent_core::remediation::Plan;
use agent_core::status::VolumeStatus;
use agent_core::verdict::{Condition, Reason};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::timestamp::{Timestamp, WallClock};
use super::{Snapshot, words};
use agent_core::secret::hide;

pub use consumers::{FileHolderView, StaleMountView};
pub use events::{ActorView, EventList, EventView, LostView, PulseView, TransitionView};
pub use incidents::{AckAnswer, IncidentList, IncidentRef, IncidentView, LossView, MemberView};
pub use orders::{OrderAnswer, PauseOrder, PauseView, PlanPreview, StepView};
pub use people::{BlockedView, CulpritView};
pub use waits::{HeldView, HookView, QuestionView};

pub mod doctor;

mod consumers;
mod events;
mod incidents;
mod orders;
mod people;
mod waits;

/// Answer of `/api/v1/volumes`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct VolumeList {
    /// The moment that is shown.
    pub at: Timestamp,
    /// Whether every volume has been looked at once since the agent started.
    pub ready: bool,
    /// Every volume, by name.
    pub volumes: Vec<VolumeView>,
    /// Volumes that fail together, while they do, newest first.
    #[serde(default)]
    pub incidents: Vec<IncidentView>,
    /// After `?check=true`: the volumes whose probe has not answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<String>,
}

/// Answer of `/api/v1/volumes/{id}`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct VolumeAnswer {
    /// The moment that is shown.
    pub at: Timestamp,
    /// The volume.
    #[serde(flatten)]
    pub volume: VolumeView,
    /// After `?check=true`: why the view is not fresh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What an error answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// What is wrong, and what to do.
    pub error: String,
    /// What would have been right: volumes or paths, at most a hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<String>,
}

/// One volume.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct VolumeView {
    /// The operator's name, or the mount point.
    pub id: String,
    /// Named in the configuration: its absence is a fault.
    pub expected: bool,
    /// Where it is mounted, escaped.
    pub mountpoint: String,
    /// The file-system type.
    pub fstype: String,
    /// The source, escaped, without secrets.
    pub source: String,
    /// The superblock's device number, `major:minor`; absent when nothing is mounted.
    pub device: Option<String>,
    /// `off`, `observe`, `dry-run` or `act`.
    pub mode: String,
    /// The state's word, as in `mountie_volume_state`.
    pub state: String,
    /// Whether the state counts as sick.
    pub sick: bool,
    /// The reason's word, as in `mountie_volume_condition_reason`.
    pub reason: Option<String>,
    /// The same in the words of Kubernetes; absent unless sick.
    pub kubernetes: Option<KubernetesHealth>,
    /// Since when state and reason are what they are.
    pub since: Timestamp,
    /// It is what was known before the agent started: nothing has decided since then.
    #[serde(default)]
    pub recalled: bool,
    /// One sentence: what was seen, by which rule, what would clear it.
    pub message: String,
    /// The name of the rule that decided; absent when nothing speaks against the volume.
    #[serde(default)]
    pub rule: Option<String>,
    /// What would end what that rule saw.
    #[serde(default)]
    pub cleared_by: Option<String>,
    /// What else is worth knowing; never a reason to repair.
    pub advice: Vec<String>,
    /// Failed operations since the agent started.
    pub errors: Vec<ErrorCount>,
    /// What the mount table and the file system itself say against the mount.
    #[serde(default)]
    pub claims: Vec<ClaimView>,
    /// The last good probe.
    pub last_ok: Option<Timestamp>,
    /// The last probe that answered or passed its deadline.
    pub last_probe: Option<ProbeView>,
    /// Whether a probe is out now.
    pub probing: bool,
    /// For how long a probe has not come back.
    pub stuck_seconds: Option<f64>,
    /// Mounts at exactly this place; the topmost is judged.
    pub stack_depth: usize,
    /// Dirty data that was lost on this mount, acknowledged or not.
    #[serde(default)]
    pub loss: Option<LossView>,
    /// Damage that the file system found in itself on this mount, acknowledged or not.
    #[serde(default)]
    pub damage: Option<LossView>,
    /// The incident that it is part of.
    #[serde(default)]
    pub incident: Option<IncidentRef>,
    /// Falls within the last ten minutes.
    #[serde(default)]
    pub falls: u32,
    /// In probation: when it is believed, if nothing speaks against it until then.
    #[serde(default)]
    pub settles_at: Option<Timestamp>,
    /// Attempts at repair within the last hour.
    pub attempts: u32,
    /// The plan that is running.
    pub plan: Option<PlanView>,
    /// The plan that would be carried out, were the mode not `dry-run`.
    pub due_plan: Option<PlanView>,
    /// The last repair that ended.
    pub last_repair: Option<RepairView>,
    /// The next attempt is not before this time.
    pub next_attempt: Option<Timestamp>,
    /// What a repair that is due waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldView>,
    /// Who is asked before each repair, and what was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<HookView>,
    /// What holds its repairs back, by a person's word.
    #[serde(default)]
    pub paused: Option<PauseView>,
    /// Why no plan could be made for it, whatever its mode, and what to do about that.
    #[serde(default)]
    pub not_repaired: Option<String>,
    /// The last processes that met an error, newest first.
    pub culprits: Vec<CulpritView>,
    /// How many tasks wait on it, in the same call since an earlier census.
    #[serde(default)]
    pub blocked_tasks: u64,
    /// Those that have waited longest.
    #[serde(default)]
    pub blocked: Vec<BlockedView>,
    /// How many mounts, in any namespace, still show what was replaced.
    #[serde(default)]
    pub stale_mounts: u64,
    /// How many mounts of its own sick superblock are known, in all namespaces; 0 while it is well.
    pub sick_mounts: usize,
    /// The first of them.
    #[serde(default)]
    pub stale: Vec<StaleMountView>,
    /// How many files are open on what was replaced.
    #[serde(default)]
    pub stale_open_files: u64,
    /// The processes with most of them.
    #[serde(default)]
    pub stale_holders: Vec<FileHolderView>,
    /// The last transitions, newest first.
    pub history: Vec<TransitionView>,
}

/// A condition in the volume-health words of Kubernetes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct KubernetesHealth {
    /// `Inaccessible`, `DataLoss` or `Degraded`.
    pub status: String,
    /// The reason in CamelCase.
    pub reason: String,
}

/// A total of failed operations.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ErrorCount {
    /// Symbolic name.
    pub errno: String,
    /// Kind of operation.
    pub op: String,
    /// Who counted.
    pub source: String,
    /// How many.
    pub count: u64,
    /// When the first of them was met since the agent started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Timestamp>,
    /// When the last was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Timestamp>,
}

/// Something that the mount table or the file system itself says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ClaimView {
    /// What, in words.
    pub what: String,
    /// By whom: `mount table`, or a source of errors.
    pub source: String,
    /// First seen.
    pub since: Timestamp,
    /// Last time it was news.
    pub last: Timestamp,
    /// How many errors; 0 where nothing is counted.
    pub count: u64,
}

/// One probe.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProbeView {
    /// When it began.
    pub started: Timestamp,
    /// How long it took, or had taken at its deadline.
    pub took_seconds: f64,
    /// The result's word, as in `mountie_probe_total`.
    pub result: String,
    /// The same for people.
    pub detail: String,
}

/// A plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PlanView {
    /// Its number, as in the log.
    pub id: u64,
    /// `mount`, `command` or `settle`.
    pub method: String,
    /// Why it was made.
    pub reason: Option<String>,
    /// One sentence a step, in order.
    pub steps: Vec<String>,
    /// What was done so far and what came of it, one line a step, without secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<String>,
}

/// A repair that ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RepairView {
    /// Its number, as in the log.
    pub id: u64,
    /// When it ended.
    pub at: Timestamp,
    /// The outcome's word, as in `mountie_remediation_total`.
    pub outcome: String,
    /// The same for people.
    pub detail: String,
    /// How long it took.
    pub took_seconds: f64,
    /// What was done and what came of it, one line a step, without secrets.
    pub steps: Vec<String>,
}

impl Snapshot {
    /// The pairing of its clocks.
    #[must_use]
    pub const fn clock(&self) -> WallClock {
        WallClock { at: self.at, wall: self.wall }
    }

    /// What a running plan has done.
    fn done_of(&self, plan: &Plan) -> Vec<String> {
        self.progress.get(&plan.id).into_iter().flatten().map(|step| hide(step)).collect()
    }

    /// The wall-clock time at which it was taken.
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        self.clock().at(self.at)
    }
}

impl VolumeList {
    /// Everything in the snapshot.
    #[must_use]
    pub fn new(snapshot: &Snapshot) -> Self {
        let mut volumes: Vec<_> =
            snapshot.volumes.iter().map(|volume| VolumeView::new(volume, snapshot)).collect();
        volumes.sort_by(|a, b| a.id.cmp(&b.id));
        let incidents = IncidentList::new(snapshot).incidents;
        let open = incidents.into_iter().filter(|incident| incident.ended.is_none()).collect();
        Self {
            at: snapshot.timestamp(),
            ready: snapshot.ready,
            volumes,
            incidents: open,
            unanswered: Vec::new(),
        }
    }
}

impl VolumeView {
    /// One volume, with the clocks and names of a snapshot.
    #[must_use]
    pub fn new(volume: &VolumeStatus, snapshot: &Snapshot) -> Self {
        let clock = snapshot.clock();
        let condition = &volume.condition;
        Self {
            id: volume.id.to_string(),
            expected: volume.expected,
            mountpoint: volume.mountpoint.to_string(),
            fstype: volume.fstype.clone(),
            source: hide(&volume.source),
            device: volume.superblock.map(|superblock| superblock.to_string()),
            mode: words::mode(volume.mode).to_owned(),
            state: condition.state.label().to_owned(),
            sick: condition.state.is_sick(),
            reason: label(condition.reason),
            kubernetes: KubernetesHealth::new(condition),
            since: condition.since_wall.map_or_else(|| clock.at(condition.since), Timestamp::from_epoch),
            recalled: condition.is_recalled,
            message: hide(&condition.message),
            rule: volume.rule.map(|(name, _)| name.to_owned()),
            cleared_by: volume.rule.map(|(_, clears)| clears.to_owned()),
            advice: condition.advice.iter().map(|advice| advice.label().to_owned()).collect(),
            errors: ErrorCount::of(volume, clock),
            claims: ClaimView::of(volume, clock),
            last_ok: volume.last_ok.map(|time| clock.at(time)),
            last_probe: ProbeView::of(volume, clock),
            probing: volume.probing,
            stuck_seconds: volume.stuck_since.map(|since| clock.at.since(since).as_secs_f64()),
            stack_depth: volume.stack_depth,
            loss: volume.loss.as_ref().map(|loss| LossView::new(loss, clock)),
            damage: volume.damage.as_ref().map(|damage| LossView::new(damage, clock)),
            incident: IncidentRef::of(volume, snapshot),
            falls: volume.falls,
            settles_at: volume.settles_at.map(|time| clock.at(time)),
            attempts: volume.attempts,
            plan: volume
                .plan
                .as_ref()
                .map(|plan| PlanView { done: snapshot.done_of(plan), ..PlanView::new(plan) }),
            due_plan: volume.due_plan.as_ref().map(PlanView::new),
            last_repair: RepairView::of(volume, clock),
            next_attempt: volume.next_attempt.map(|time| clock.at(time)),
            held: HeldView::of(volume, clock),
            hook: HookView::of(volume, clock),
            paused: PauseView::of(volume, clock),
            not_repaired: volume.not_repaired.as_ref().map(|refused| words::orders::refused(refused, clock)),
            culprits: CulpritView::of(volume, snapshot),
            blocked_tasks: volume.blocked_count,
            blocked: BlockedView::of(volume, snapshot),
            stale_mounts: volume.stale_mounts,
            sick_mounts: volume.sick_mounts,
            stale: StaleMountView::of(volume),
            stale_open_files: volume.stale_files,
            stale_holders: FileHolderView::of(volume),
            history: volume.history.iter().map(|transition| TransitionView::new(transition, clock)).collect(),
        }
    }
}

impl KubernetesHealth {
    /// Only a sick volume has one: a suspicion is not passed on.
    fn new(condition: &Condition) -> Option<Self> {
        let reason = condition.reason.filter(|_| condition.state.is_sick())?;
        Some(Self { status: reason.kubernetes_status().to_owned(), reason: words::camel_case(reason) })
    }
}

impl ErrorCount {
    fn of(volume: &VolumeStatus, clock: WallClock) -> Vec<Self> {
        let count = |(key, count): (&(Errno, Op, Source), &u64)| {
            let times = volume.error_times.get(key);
            Self {
                errno: words::errno(key.0),
                op: key.1.label().to_owned(),
                source: key.2.label().to_owned(),
                count: *count,
                first: times.map(|(first, _)| clock.at(*first)),
                last: times.map(|(_, last)| clock.at(*last)),
            }
        };
        volume.errors.iter().map(count).collect()
    }
}

impl ClaimView {
    fn of(volume: &VolumeStatus, clock: WallClock) -> Vec<Self> {
        let view = |((claim, source), said): (&(Claim, ClaimSource), &Said)| Self {
            what: words::claim(*claim).to_owned(),
            source: words::claim_source(*source).to_owned(),
            since: clock.at(said.since),
            last: clock.at(said.last),
            count: said.count,
        };
        volume.claims.iter().map(view).collect()
    }
}

impl ProbeView {
    fn of(volume: &VolumeStatus, clock: WallClock) -> Option<Self> {
        let (started, took, result) = volume.last_probe.as_ref()?;
        Some(Self {
            started: clock.at(*started),
            took_seconds: took.as_secs_f64(),
            result: words::probe_result(result).to_owned(),
            detail: words::probe_sentence(result),
        })
    }
}

impl PlanView {
    fn new(plan: &Plan) -> Self {
        Self {
            id: plan.id.0,
            method: words::plan_method(plan).to_owned(),
            reason: label(plan.reason),
            steps: plan.actions.iter().map(|action| words::action_sentence(action, plan)).collect(),
            done: Vec::new(),
        }
    }
}

impl RepairView {
    fn of(volume: &VolumeStatus, clock: WallClock) -> Option<Self> {
        let (at, report) = volume.last_repair.as_ref()?;
        Some(Self {
            id: report.id.0,
            at: clock.at(*at),
            outcome: report.outcome.label().to_owned(),
            detail: words::outcome_sentence(&report.outcome),
            took_seconds: report.took.as_secs_f64(),
            steps: report.steps.iter().map(|step| hide(step)).collect(),
        })
    }
}

fn label(reason: Option<Reason>) -> Option<String> {
    reason.map(|reason| reason.label().to_owned())
}

/// What `POST /api/v1/sentinel` takes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SentinelOrder {
    /// The volume's name.
    pub volume: String,
    /// Where, below the volume's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What it shall contain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Whether a file that is there may stay, whatever its content.
    #[serde(default)]
    pub adopt: bool,
}

#[cfg(test)]
mod tests;
