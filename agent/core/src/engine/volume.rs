//! One volume as the engine knows it: its place, its evidence, its state, and what has been done for it.

use alloc::collections::BTreeMap;
use alloc::{string::String, sync::Arc, vec::Vec};
use core::net::IpAddr;
use core::time::Duration;

use crate::discovery::{Presence, Sighting};
use crate::engine::Transition;
use crate::engine::census::Blocked;
use crate::engine::consumers::Held;
use crate::engine::kernel::Writers;
use crate::engine::links::Link;
use crate::engine::memory::Mark;
use crate::engine::others::Others;
use crate::engine::pace::{ProbeClock, Rhythm};
use crate::engine::probing::Behind;
use crate::errno::Errno;
use crate::fstype::FsClass;
use crate::health::Event;
use crate::health::evidence::{Evidence, Look};
use crate::health::rules::{Judgement, Rule};
use crate::id::{Generation, MountId, PlanId, SuperblockId, VolumeId};
use crate::incident::Cause;
use crate::memory::{Known, Learnt, MountMemory};
use crate::observation::{Op, PlanReport, ProbeResult, ProbeStep, Source, Task};
use crate::path::BytePath;
use crate::policy::Thresholds;
use crate::remediation::Plan;
use crate::remediation::asking::Asking;
use crate::remediation::budget::Budget;
use crate::remediation::consumers::Holding;
use crate::source::{addresses, is_same};
use crate::status::HeldUp;
use crate::time::Monotonic;
use crate::topology::automount::Automount;
use crate::topology::{Mount, directory};
use crate::verdict::{Condition, HealthState, Reason};
use crate::volume::{Identity, Mode, Sentinel, VolumeSpec, Watch};

/// An automount that nobody named and nobody uses is known so many times longer than a mount that is gone.
const IDLE_KEPT: u32 = 60;

/// The mount at a volume's place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Shown {
    pub(super) superblock: SuperblockId,
    pub(super) mount_id: MountId,
    /// Known only while the reader of the table learns it.
    unique: Option<u64>,
    pub(super) root: BytePath,
    pub(super) fstype: String,
    pub(super) source: Vec<u8>,
    /// The addresses of the server, where the table tells them.
    pub(super) addresses: Vec<Vec<u8>>,
    /// The addresses that its name has by now, where they were looked up since.
    pub(super) server_now: Vec<IpAddr>,
    /// The options that say how and where the server is reached.
    pub(super) where_it_listens: Vec<Vec<u8>>,
    /// The only user who may look: that of a FUSE file system that lets nobody else in, not even root.
    pub(super) only_for: Option<u32>,
}

impl Shown {
    fn of(mount: &Mount) -> Self {
        Self {
            superblock: mount.superblock,
            mount_id: mount.id,
            unique: mount.unique,
            root: mount.root.clone(),
            fstype: mount.fstype.clone(),
            source: mount.source.clone(),
            addresses: addresses(&mount.super_options).map(<[u8]>::to_vec).collect(),
            server_now: Vec::new(),
            where_it_listens: mount
                .super_options
                .iter()
                .filter(|word| is_of_server(word))
                .map(<[u8]>::to_vec)
                .collect(),
            only_for: only_user(mount),
        }
    }

    /// The id that is never used again, where the table told it.
    pub(super) const fn unique(&self) -> Option<u64> {
        self.unique
    }

    /// Which directory of its superblock it shows.
    pub(super) fn directory(&self) -> &[u8] {
        directory(&self.fstype, &self.root, &self.source)
    }

    /// What other mounts of it look like.
    pub(super) fn holding(&self) -> Holding {
        Holding { root: self.root.clone(), fstype: self.fstype.clone(), source: self.source.clone() }
    }

    fn is(&self, mount: &Mount) -> bool {
        // Device numbers and mount ids are used again at once; a unique id never is.
        let is_other = self.unique.zip(mount.unique).is_some_and(|(known, seen)| known != seen);
        self.superblock == mount.superblock && self.mount_id == mount.id && !is_other
    }
}

pub(super) fn is_of_server(option: &[u8]) -> bool {
    option == b"rdma"
        || [b"addr=".as_slice(), b"port=", b"proto=", b"mon_addr=", b"trans="]
            .iter()
            .any(|name| option.starts_with(name))
}

/// kernel: `fuse_allow_current_process`, fs/fuse/dir.c; `user_id` and `allow_other` in `fuse_show_options`,
/// fs/fuse/inode.c, since 2.6.14. A file system on a device (`fuseblk`) shows both as well.
fn only_user(mount: &Mount) -> Option<u32> {
    let owner = mount.super_options.iter().find_map(|word| word.strip_prefix(b"user_id="))?;
    let is_private =
        FsClass::of_type(&mount.fstype) == Some(FsClass::Fuse) && !mount.super_options.has("allow_other");
    str::from_utf8(owner).ok()?.parse().ok().filter(|_| is_private)
}

/// What was tried since it was well last.
#[derive(Clone, Debug, Default)]
pub(super) struct Tried {
    /// The mount at a bind's source for which its pause was cut short last.
    pub(super) source: Option<MountId>,
    /// The daemon's unit was restarted, and that did not help.
    pub(super) unit: bool,
}

/// What was before, and counts for what is judged now.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    /// The last rule that called it sick, and what it said.
    pub(super) sick_by: Option<(&'static Rule, String)>,
    /// What called it sick last was the mount table alone. Known also of an earlier run.
    pub(super) is_by_table: bool,
    /// Since when it has been suspect without a break.
    pub(super) doubted_since: Option<Monotonic>,
    /// It is suspect or unknown, and was in probation for this reason before: it is not good again until that has been
    /// believed.
    pub(super) unbelieved: Option<Reason>,
    /// It was sick already when the agent started, and has not been well since.
    pub(super) is_fall_recalled: bool,
    /// The path of the sentinel that was read last.
    pub(super) sentinel_read: Option<BytePath>,
    /// A repair took the file system away, failed, and showed its device again, read-only: no person made it so.
    pub(super) is_put_back: bool,
}

/// One volume.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub(super) id: VolumeId,
    pub(super) mountpoint: BytePath,
    pub(super) spec: Option<VolumeSpec>,
    /// The sentinel that a person had put there.
    pub(super) pin: Option<Sentinel>,
    pub(super) watch: Watch,
    /// `None` before the first table, and when a discovered volume was unmounted.
    pub(super) presence: Option<Presence>,
    /// An automount of a healthy volume came back: it counts as healthy until its first look, or until then.
    pub(super) returned_until: Option<Monotonic>,
    /// When a discovered volume was unmounted.
    pub(super) gone_since: Option<Monotonic>,
    pub(super) shown: Option<Shown>,
    /// Where its mount point leads, while nothing is mounted there.
    pub(super) link: Link,
    pub(super) depth: usize,
    /// What lies over it.
    pub(super) over: Option<Known>,
    pub(super) further: Vec<BytePath>,
    pub(super) generation: Generation,
    /// The trap on which it is mounted.
    pub(super) automount: Option<Automount>,
    pub(super) root_inode: Option<u64>,
    /// What a look has found, and of what.
    pub(super) learnt: Option<Learnt>,
    /// It was learnt by an earlier run: the first look replaces it.
    pub(super) is_learnt_recalled: bool,
    /// What is mounted there came while a plan of the agent's own was at work.
    is_own_work: bool,
    /// What is mounted there, or was when it was seen last.
    pub(super) known: Option<Arc<Known>>,
    /// An earlier run had found it, and nothing is there now.
    pub(super) is_absent: bool,
    /// A person ordered the plan that is running.
    pub(super) ordered: bool,
    pub(super) evidence: Evidence,
    pub(super) judgement: Judgement,
    /// What was before, and counts for what is judged now.
    pub(super) past: Past,
    pub(super) condition: Condition,
    pub(super) falls: Vec<Monotonic>,
    /// The settle time began.
    pub(super) settle_from: Monotonic,
    /// The last fall.
    pub(super) sick_since: Monotonic,
    /// A plan that would be made was told for this fall.
    pub(super) told_plan: bool,
    /// The plan that mode `dry-run` only tells about.
    pub(super) due_plan: Option<Plan>,
    pub(super) errors: BTreeMap<(Errno, Op, Source), u64>,
    pub(super) error_times: BTreeMap<(Errno, Op, Source), (Monotonic, Monotonic)>,
    pub(super) culprits: Vec<(Monotonic, (Errno, Op, Source), Task)>,
    /// Who was refused to write.
    pub(super) writers: Writers,
    /// Who waited on it at the last census.
    pub(super) blocked: Blocked,
    /// Who holds what it showed before.
    pub(super) held: Held,
    pub(super) history: Vec<Transition>,
    pub(super) last_ok: Option<Monotonic>,
    pub(super) last_probe: Option<(Monotonic, Duration, ProbeResult)>,
    pub(super) probes: ProbeClock,
    /// The look of another volume that hangs on its superblock.
    pub(super) behind: Option<Behind>,
    /// What the way to it leads through, where looks fail on that way.
    pub(super) way: Option<Way>,
    pub(super) budget: Budget,
    /// Attempts to take consumers along alone: what fails there must not keep the volume itself from its repair.
    pub(super) consumer_budget: Budget,
    pub(super) plan: Option<PlanId>,
    /// A plan ended well, and the table does not show it yet: nothing is judged until it does, or until then.
    pub(super) hold_until: Option<Monotonic>,
    /// What the last plan came to, for the message.
    pub(super) last_outcome: Option<String>,
    /// What was tried already.
    pub(super) tried: Tried,
    /// The last repair that ended, and when.
    pub(super) last_repair: Option<(Monotonic, PlanReport)>,
    /// What its hook was asked, and said.
    pub(super) asking: Asking,
    /// The same about consumers alone.
    pub(super) consumer_asking: Asking,
    /// What keeps a repair that is due from beginning.
    pub(super) held_up: Option<HeldUp>,
    /// What others do at its place.
    pub(super) others: Others,
    /// When the engine looks at it next without being asked.
    pub(super) wake: Option<Monotonic>,
    /// What an earlier run knew of the mount, until the table shows whether it is still that one.
    pub(super) recalled_mount: Option<MountMemory>,
    /// An earlier run saw errors that no look tries: until then a good look does not end what it knew.
    pub(super) errors_until: Option<Monotonic>,
    /// What the store was told last.
    pub(super) stored: Option<Mark>,
}

/// Before the first look.
fn unseen(now: Monotonic) -> Condition {
    Condition {
        state: HealthState::Unknown,
        reason: None,
        since: now,
        since_wall: None,
        is_recalled: false,
        message: String::from("not looked at yet"),
        advice: Default::default(),
    }
}

impl Volume {
    pub(super) fn new(id: VolumeId, mountpoint: BytePath, now: Monotonic) -> Self {
        let mut new = Self::unknown(id, mountpoint, now);
        // What knows nothing yet is not told to the store, which may know more.
        new.stored = Some(new.mark());
        new
    }

    fn unknown(id: VolumeId, mountpoint: BytePath, now: Monotonic) -> Self {
        Self {
            id,
            mountpoint,
            spec: None,
            pin: None,
            watch: Watch::default(),
            presence: None,
            returned_until: None,
            gone_since: None,
            shown: None,
            link: Link::default(),
            depth: 0,
            over: None,
            further: Vec::new(),
            generation: Generation::default(),
            automount: None,
            root_inode: None,
            learnt: None,
            is_learnt_recalled: false,
            is_own_work: false,
            known: None,
            is_absent: false,
            ordered: false,
            evidence: Evidence::default(),
            judgement: Judgement::UNKNOWN,
            past: Past::default(),
            condition: unseen(now),
            falls: Vec::new(),
            settle_from: now,
            sick_since: now,
            told_plan: false,
            due_plan: None,
            errors: BTreeMap::new(),
            error_times: BTreeMap::new(),
            culprits: Vec::new(),
            writers: Writers::default(),
            blocked: Blocked::default(),
            held: Held::default(),
            history: Vec::new(),
            last_ok: None,
            last_probe: None,
            probes: ProbeClock::default(),
            behind: None,
            way: None,
            budget: Budget::default(),
            consumer_budget: Budget::default(),
            plan: None,
            hold_until: None,
            last_outcome: None,
            tried: Tried::default(),
            last_repair: None,
            asking: Asking::default(),
            consumer_asking: Asking::default(),
            held_up: None,
            others: Others::default(),
            wake: None,
            recalled_mount: None,
            errors_until: None,
            stored: None,
        }
    }

    /// Whether it is watched at all.
    pub(super) fn is_watched(&self) -> bool {
        self.watch.mode != Mode::Off
    }

    /// The sentinel to read: the configured one, with the content that was pinned where none is configured.
    pub(super) fn sentinel(&self) -> Option<Sentinel> {
        let spec = self.spec.as_ref()?;
        match (&spec.sentinel, &self.pin) {
            (None, pin) => pin.clone(),
            (Some(Sentinel { path, content: None }), Some(pin)) if pin.path == *path => Some(pin.clone()),
            (configured, _) => configured.clone(),
        }
    }

    /// How often it is looked at.
    pub(super) fn rhythm(&self) -> Rhythm {
        Rhythm::new(&self.watch, self.automount)
    }

    /// Takes the operator's word. Says whether a specification changed, in any of its keys.
    pub(super) fn instruct(&mut self, spec: Option<&VolumeSpec>, defaults: &Watch) -> bool {
        let watch = spec.map_or(defaults, |spec| &spec.watch);
        if self.watch != *watch {
            if self.watch.probe_as != watch.probe_as && self.generation != Generation::default() {
                self.forget_rights();
            }
            self.watch = watch.clone();
        }
        if self.spec.as_ref() == spec {
            return false;
        }
        self.spec = spec.cloned();
        // It was made by the old settings; if it is still due, it is made anew.
        self.due_plan = None;
        self.forget_asked();
        true
    }

    /// Another user looks from now on: what one was allowed says nothing of what another may.
    fn forget_rights(&mut self) {
        self.evidence.was_readable = false;
        self.evidence.was_written = false;
        self.past.sentinel_read = None;
    }

    /// As whom it is looked at.
    pub(super) fn looks_as(&self) -> u32 {
        self.watch.probe_as.as_ref().map_or(0, |user| user.uid)
    }

    /// Takes what a table says. Says whether anything changed.
    pub(super) fn see(&mut self, sighting: &Sighting<'_>, first_probe: Monotonic, now: Monotonic) -> Seen {
        let was = (self.presence, self.depth);
        let came_back = self.presence == Some(Presence::Idle);
        self.presence = Some(sighting.presence);
        self.depth = sighting.depth;
        self.over = sighting.over.map(Known::of);
        self.gone_since = None;
        self.is_absent = false;
        let mut seen = Seen { changed: was != (self.presence, self.depth), transition: None };
        self.automount = sighting.automount;
        self.others.healer = self.other_healer(sighting.mount);
        if self.further != sighting.further {
            self.further.clone_from(&sighting.further);
            seen.changed = true;
        }
        let Some(mount) = sighting.mount else {
            self.recalled_mount = None;
            // Nothing to say about the old mount any more; the next one is another generation.
            if let Some(old) = self.shown.take() {
                self.leave_behind(Some(&old), now);
                self.evidence.reset(now);
                self.blocked = Blocked::default();
                self.probes.stop();
                self.root_inode = None;
            }
            return seen;
        };
        self.know(mount);
        if let Some(shown) = self.shown.as_mut().filter(|shown| shown.is(mount)) {
            shown.unique = mount.unique.or(shown.unique);
            // It can be renamed, and NFS tells that by the source.
            if shown.root != mount.root || shown.source != mount.source {
                shown.root.clone_from(&mount.root);
                shown.source.clone_from(&mount.source);
            }
            if was.0 != self.presence {
                self.probes.want(now);
            }
        } else {
            seen.transition = self.replace(mount, (first_probe, now), came_back);
            seen.changed = true;
        }
        seen.changed |= self.evidence.see_table(mount, self.spec.as_ref(), now);
        seen
    }

    /// Notes what is mounted, for the time after it.
    fn know(&mut self, mount: &Mount) {
        let is_own = self.presence != Some(Presence::WrongMount);
        if is_own && !self.known.as_ref().is_some_and(|known| known.is(mount)) {
            self.known = Some(Arc::new(Known::of(mount)));
        }
    }

    /// Nobody has mounted again what an earlier run had found.
    pub(super) fn give_up_waiting(&mut self, now: Monotonic) -> Option<Transition> {
        self.is_absent = false;
        self.presence = None;
        self.known = None;
        self.gone_since = Some(now);
        self.apply(Event::Unwatched, String::from("it has not been mounted again, and is forgotten"), now)
    }

    fn replace(
        &mut self,
        mount: &Mount,
        (first_probe, now): (Monotonic, Monotonic),
        came_back: bool,
    ) -> Option<Transition> {
        let old = self.shown.take().filter(|old| old.superblock != mount.superblock);
        self.leave_behind(old.as_ref(), now);
        self.take_number(mount.superblock);
        self.shown = Some(Shown::of(mount));
        self.evidence.reset(now);
        self.evidence.class = FsClass::of(&mount.fstype, &mount.source);
        self.recall_mount(mount, now);
        let transition = self.begin_generation((first_probe, now), came_back);
        self.await_instance(now);
        transition
    }

    /// Whether the last look failed before it came to the volume itself.
    pub(super) fn fails_on_the_way(&self) -> bool {
        matches!(
            self.evidence.look,
            Look::Failed { step: ProbeStep::Identity, .. } | Look::Hung { step: ProbeStep::Identity }
        )
    }

    /// Its type: of what is mounted there, else of what should be.
    pub(super) fn fstype(&self) -> Option<&str> {
        let shown = self.shown.as_ref().map(|shown| shown.fstype.as_str());
        shown.or(self.spec.as_ref().and_then(|spec| spec.fstype.as_deref()))
    }

    /// Its source, likewise.
    pub(super) fn source(&self) -> Option<&[u8]> {
        let shown = self.shown.as_ref().map(|shown| shown.source.as_slice());
        shown.or(self.spec.as_ref().and_then(|spec| spec.source.as_deref()))
    }

    /// What belongs there: as the configuration names it, else as it was seen last.
    fn meant_source(&self) -> Option<&[u8]> {
        let named = self.spec.as_ref().and_then(|spec| spec.source.as_deref());
        named.or_else(|| self.known.as_deref().map(|known| known.source.as_slice()))
    }

    /// What was learnt of what belongs there now.
    pub(super) fn learnt(&self) -> Option<&Identity> {
        let learnt = self.learnt.as_ref()?;
        let is_of_it = self.meant_source().is_some_and(|meant| is_same(meant, &learnt.source));
        is_of_it.then_some(&learnt.identity)
    }

    /// Takes what a look has found, unless something is known that still counts. What an earlier run knew is replaced,
    /// and so is what was there before somebody else put another file system in its place, once that is believed.
    pub(super) fn learn(&mut self, found: Identity, thresholds: &Thresholds, now: Monotonic) {
        let is_due = match self.learnt() {
            None => true,
            Some(known) => {
                self.is_learnt_recalled || (known.differs(&found) && self.is_believed(thresholds, now))
            }
        };
        if found == Identity::default() || !is_due {
            return;
        }
        self.is_learnt_recalled = false;
        self.learnt = self.meant_source().map(|source| Learnt { identity: found, source: source.to_vec() });
    }

    /// Whether what somebody else has mounted there has been good for as long as the longest settle time.
    fn is_believed(&self, thresholds: &Thresholds, now: Monotonic) -> bool {
        let is_good = self.condition.state == HealthState::Healthy
            || self.condition.reason == Some(Reason::ConsumerStale);
        is_good && !self.is_own_work && now.since(self.settle_from) >= thresholds.probation_max
    }

    /// Another superblock is there, and the table says the same of it as of the old one.
    pub(super) fn renew(&mut self, now: Monotonic) -> Option<Transition> {
        self.evidence.renew(now);
        self.begin_generation((now, now), false)
    }

    fn begin_generation(
        &mut self,
        (first_probe, now): (Monotonic, Monotonic),
        came_back: bool,
    ) -> Option<Transition> {
        let is_first = self.generation == Generation::default();
        self.generation = Generation(self.generation.0.saturating_add(1));
        self.is_own_work = self.plan.is_some() || self.others.own_until.is_some_and(|until| until > now);
        // They wait on the old mount, or failed on it.
        self.blocked = Blocked::default();
        self.culprits.clear();
        self.writers = Writers::default();
        self.root_inode = None;
        self.due_plan = None;
        self.hold_until = None;
        // In probation the settle time begins again: another mount has to be believed.
        self.settle_from = now;
        self.probes.start_over(if is_first { first_probe } else { now });
        // An automount that comes and goes is no news.
        let is_silent = came_back && self.condition.state == HealthState::Healthy;
        self.returned_until = is_silent.then(|| now + self.good_for());
        if is_first || is_silent {
            return None;
        }
        self.apply(Event::Replaced, String::from("another mount is at its place, not looked at yet"), now)
    }

    /// A discovered volume is not in the table any more.
    pub(super) fn vanish(&mut self, is_idle: bool, now: Monotonic) -> bool {
        let presence = is_idle.then_some(Presence::Idle);
        let old = self.shown.take();
        let changed = old.is_some() || self.presence != presence;
        if changed {
            self.leave_behind(old.as_ref(), now);
            self.evidence.reset(now);
            self.blocked = Blocked::default();
            self.probes.stop();
            self.root_inode = None;
            self.depth = usize::from(is_idle);
            self.further.clear();
        }
        self.presence = presence;
        if !is_idle {
            // It was seen to be unmounted: after a restart nobody misses it.
            self.known = None;
        }
        self.gone_since = self.gone_since.or(Some(now));
        changed
    }

    /// When a volume that nobody named and that is not mounted is forgotten. One that is mounted when somebody comes by
    /// may come back under its history; a map of a thousand homes must not stay in memory for ever.
    pub(super) fn forgotten_at(&self, forget_after: Duration) -> Option<Monotonic> {
        let is_idle = self.presence == Some(Presence::Idle);
        let keep = if is_idle { forget_after.saturating_mul(IDLE_KEPT) } else { forget_after };
        self.gone_since.map(|since| since + keep)
    }
}

/// A sick volume above another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Way {
    /// Where it is mounted.
    pub(super) mountpoint: BytePath,
    /// What it depends on.
    pub(super) causes: Vec<Cause>,
}

/// What a table changed.
pub(super) struct Seen {
    /// Anything at all.
    pub(super) changed: bool,
    /// A step of the state.
    pub(super) transition: Option<Transition>,
}
