//! Sentinels that people ask for: who waits for one, the workers that put them there, and what is pinned for good.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use agent_core::engine::{NoErrand, ProbeOrder};
use agent_core::id::{ProbeId, VolumeId};
use agent_core::path::BytePath;
use agent_core::policy::Policy;
use agent_core::source::is_same;
use agent_core::time::Monotonic;
use agent_core::volume::Sentinel;
use rustix::io::Errno;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::config;
use crate::error_chain::chain;
use crate::export::{SentinelAnswer, SentinelRefusal, SentinelWish, fault_sentence};
use crate::probe::Settings;
use crate::probe::plant::{Answer, NoAnswer, Remains, plant};
use crate::probe::planting::{PlantFault, Planted, Planting};
use crate::probe::steps::DEFAULT_SENTINEL;
use crate::store::Pin;
use crate::sys::{clock, sentinel};

/// Writing waits for the storage, which may be slower than a look.
const LEAST_PATIENCE: Duration = Duration::from_secs(10);
/// The one who asked does not wait longer.
const MOST_PATIENCE: Duration = Duration::from_secs(40);

/// Where an answer goes.
pub(super) type Done = oneshot::Sender<Result<SentinelAnswer, SentinelRefusal>>;

/// Everything about sentinels that are put on volumes.
pub(super) struct Plantings {
    settings: Settings,
    waiting: BTreeMap<VolumeId, VecDeque<(Wish, Done)>>,
    running: JoinSet<Ended>,
    /// Workers that are being ended, each with its order.
    remains: JoinSet<ProbeId>,
    /// What the configuration says of the volumes that it names.
    named: BTreeMap<VolumeId, Named>,
    pins: BTreeMap<VolumeId, Pin>,
    /// Pins that do not count, which was told.
    ignored: BTreeSet<VolumeId>,
}

/// A wish that was found to be in order.
#[derive(Clone, Debug, Default)]
struct Wish {
    path: Option<BytePath>,
    content: Option<Vec<u8>>,
    may_adopt: bool,
}

/// What the configuration says of one volume.
#[derive(Clone, Debug, Default)]
struct Named {
    sentinel: Option<Sentinel>,
    source: Option<Vec<u8>>,
}

impl Named {
    /// Whether a pin is about what is mounted there now. One that was made when nothing was said about that is.
    fn fits(&self, pin: &Pin) -> bool {
        let of = |pinned: &Vec<u8>| self.source.as_ref().is_some_and(|source| is_same(source, pinned));
        pin.source.as_ref().is_none_or(of)
    }
}

/// A worker has answered, or has not.
pub(super) struct Ended {
    order: ProbeOrder,
    began: Monotonic,
    done: Done,
    path: BytePath,
    answer: Answer,
    remains: Remains,
}

/// What happened beside the event loop.
pub(super) enum News {
    /// A worker ended its work.
    Ended(Box<Ended>),
    /// The worker of an order is gone.
    Gone(ProbeId),
}

/// What follows from the end of a worker's work.
pub(super) struct Finished {
    /// Where the answer goes.
    pub(super) done: Done,
    /// What it is.
    pub(super) reply: Result<SentinelAnswer, SentinelRefusal>,
    /// Something is pinned that was not.
    pub(super) is_new: bool,
    /// The order whose worker hangs, and when that began.
    pub(super) hangs: Option<(ProbeId, Monotonic)>,
}

impl Plantings {
    pub(super) fn new(settings: Settings, pins: BTreeMap<VolumeId, Pin>) -> Self {
        Self {
            settings,
            waiting: BTreeMap::new(),
            running: JoinSet::new(),
            remains: JoinSet::new(),
            named: BTreeMap::new(),
            pins,
            ignored: BTreeSet::new(),
        }
    }

    /// What is pinned, to be kept.
    pub(super) const fn pins(&self) -> &BTreeMap<VolumeId, Pin> {
        &self.pins
    }

    /// Those that count.
    pub(super) fn sentinels(&self) -> BTreeMap<VolumeId, Sentinel> {
        let counts = |(id, pin): &(&VolumeId, &Pin)| self.named.get(*id).is_some_and(|named| named.fits(pin));
        let pins = self.pins.iter().filter(counts);
        pins.map(|(id, pin)| (id.clone(), pin.sentinel.clone())).collect()
    }

    /// What was pinned for this volume counts no more. Says whether there was any.
    pub(super) fn unpin(&mut self, volume: &VolumeId) -> bool {
        self.ignored.remove(volume);
        self.pins.remove(volume).is_some()
    }

    /// Takes what the configuration says. Says whether pins were dropped: those of volumes that it has no more.
    pub(super) fn configure(&mut self, policy: &Policy) -> bool {
        let named = |spec: &agent_core::volume::VolumeSpec| Named {
            sentinel: spec.sentinel.clone(),
            source: spec.source.clone(),
        };
        self.named = policy.volumes.iter().map(|spec| (spec.id.clone(), named(spec))).collect();
        let before = self.pins.len();
        self.pins.retain(|id, _| {
            let is_named = self.named.contains_key(id);
            if !is_named {
                info!(volume = %id, "A pinned sentinel is dropped: the configuration does not name its volume any more");
            }
            is_named
        });
        let is_other =
            |(id, pin): &(&VolumeId, &Pin)| self.named.get(*id).is_some_and(|named| !named.fits(pin));
        let ignored: BTreeSet<VolumeId> =
            self.pins.iter().filter(is_other).map(|(id, _)| id.clone()).collect();
        for id in ignored.difference(&self.ignored) {
            warn!(
                volume = %id,
                "A pinned sentinel is ignored: it was put there when the configuration named another source; pin a new \
                 one with `mountie sentinel init`"
            );
        }
        self.ignored = ignored;
        self.pins.len() != before
    }

    /// Somebody wants a sentinel. What is wrong with the wish itself is answered here; otherwise the engine says when
    /// and where, and must be asked.
    pub(super) fn ask(&mut self, volume: VolumeId, wish: &SentinelWish, done: Done) -> bool {
        match self.check(&volume, wish) {
            Ok(wish) => {
                self.waiting.entry(volume).or_default().push_back((wish, done));
                true
            }
            Err(error) => {
                // Who stopped waiting needs no answer.
                let _ = done.send(Err(SentinelRefusal::Wrong(error)));
                false
            }
        }
    }

    fn check(&self, volume: &VolumeId, wish: &SentinelWish) -> Result<Wish, String> {
        let path = wish.path.as_deref().map(config::inner_path).transpose()?;
        let content = wish.content.as_deref().map(config::sentinel_content).transpose()?;
        if let Some(configured) = self.named.get(volume).and_then(|named| named.sentinel.as_ref()) {
            let is_other_path = path.as_ref().is_some_and(|path| *path != configured.path);
            let is_other_content = match (&content, &configured.content) {
                (Some(wished), Some(configured)) => !sentinel::has_content(wished, configured),
                _ => false,
            };
            if is_other_path || is_other_content {
                let flag = if is_other_path { "--path" } else { "--content" };
                return Err(format!(
                    "the configuration of `{volume}` names another sentinel, and what it says counts: {}; change that \
                     line, or leave out {flag}",
                    config::sentinel_line(configured).trim_end()
                ));
            }
        }
        Ok(Wish { path, content, may_adopt: wish.adopt })
    }

    /// Nothing can be done there.
    pub(super) fn refuse(&mut self, volume: &VolumeId, why: NoErrand) {
        if let Some((_, done)) = self.next(volume) {
            // Who stopped waiting needs no answer.
            let _ = done.send(Err(no_errand(volume, why)));
        }
    }

    /// The next who still waits: for who has left, nothing is written any more.
    fn next(&mut self, volume: &VolumeId) -> Option<(Wish, Done)> {
        let queue = self.waiting.get_mut(volume)?;
        queue.retain(|(_, done)| !done.is_closed());
        let next = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(volume);
        }
        next
    }

    /// The superblock is free for it: a worker begins. Says whether the order came to nothing.
    pub(super) fn begin(&mut self, order: ProbeOrder) -> Option<ProbeId> {
        let id = order.id;
        let Some((wish, done)) = self.next(&order.volume) else { return Some(id) };
        let mut planting = match planting(&wish, &order) {
            Ok(planting) => planting,
            Err(error) => {
                let _ = done.send(Err(SentinelRefusal::NoAnswer(error)));
                return Some(id);
            }
        };
        // What is there may be anything, and here only one thing would count.
        planting.may_adopt &= self.configured_content(&order.volume).is_none();
        let settings = self.settings.clone();
        let began = clock::now();
        self.running.spawn(async move {
            let patience = order.deadline.clamp(LEAST_PATIENCE, MOST_PATIENCE);
            let path = planting.path.clone();
            let (answer, remains) = plant(&settings, &order, planting, patience).await;
            Ended { order, began, done, path, answer, remains }
        });
        None
    }

    fn configured_content(&self, volume: &VolumeId) -> Option<&Vec<u8>> {
        self.named.get(volume)?.sentinel.as_ref()?.content.as_ref()
    }

    /// The next thing that happens; never while nothing goes on.
    pub(super) async fn news(&mut self) -> News {
        tokio::select! {
            Some(Ok(ended)) = self.running.join_next() => News::Ended(Box::new(ended)),
            Some(Ok(order)) = self.remains.join_next() => News::Gone(order),
            else => std::future::pending().await,
        }
    }

    /// Finds the answer, and pins what is there now.
    pub(super) fn finish(&mut self, ended: Ended) -> Finished {
        let Ended { order, began, done, path, answer, remains } = ended;
        let id = order.id;
        self.remains.spawn(async move {
            remains.gone().await;
            id
        });
        let hangs = matches!(answer, Err(NoAnswer::TimedOut(_))).then_some((id, began));
        let (reply, is_new) = match answer {
            Err(error @ NoAnswer::TimedOut(_)) => (Err(hung(&error, &order, &path)), false),
            Err(error) => (Err(SentinelRefusal::NoAnswer(chain(&error))), false),
            Ok(Err(PlantFault::Exists)) if self.configured_content(&order.volume).is_some() => {
                (Err(not_the_configured(&order, &path)), false)
            }
            Ok(Err(fault)) => (Err(refusal(&fault, &order, &path)), false),
            Ok(Ok(planted)) => {
                let (answer, is_new) = self.pin(&order, path, &planted);
                (Ok(answer), is_new)
            }
        };
        Finished { done, reply, is_new, hangs }
    }

    /// Pins what is there, where the configuration names the volume and not all of its sentinel.
    fn pin(&mut self, order: &ProbeOrder, path: BytePath, planted: &Planted) -> (SentinelAnswer, bool) {
        let sentinel =
            Sentinel { path, content: Some(sentinel::without_newline(planted.content()).to_vec()) };
        let named = self.named.get(&order.volume);
        // The order's own sentinel may be a pin.
        let configured = named.and_then(|named| named.sentinel.as_ref());
        let is_configured = configured.is_some_and(|configured| {
            let content = configured.content.as_deref().map(sentinel::without_newline);
            configured.path == sentinel.path && content == sentinel.content.as_deref()
        });
        let is_pinned = named.is_some() && !is_configured;
        let answer = answer_of(order, planted, &sentinel, (named.is_some(), is_pinned));
        let pin = Pin { sentinel, source: named.and_then(|named| named.source.clone()) };
        let is_new = is_pinned && self.pins.get(&order.volume) != Some(&pin);
        if is_new {
            self.ignored.remove(&order.volume);
            self.pins.insert(order.volume.clone(), pin);
        }
        (answer, is_new)
    }
}

/// What a worker is asked for. What the wish leaves open comes from the configuration, and otherwise by lot.
fn planting(wish: &Wish, order: &ProbeOrder) -> Result<Planting, String> {
    let known = order.sentinel.as_ref();
    let path = wish.path.clone().or_else(|| known.map(|known| known.path.clone()));
    let path = path.unwrap_or_else(|| BytePath::from(DEFAULT_SENTINEL));
    let known = known.filter(|known| known.path == path).and_then(|known| known.content.clone());
    let chosen = wish.content.clone().or(known).map(|content| sentinel::without_newline(&content).to_vec());
    let is_chosen = chosen.is_some();
    let content = match chosen {
        Some(content) => content,
        None => lot().map_err(|errno| format!("the kernel has no random numbers: {errno}"))?,
    };
    Ok(Planting { path, content, is_chosen, may_adopt: wish.may_adopt })
}

/// An id that no other sentinel has.
fn lot() -> Result<Vec<u8>, Errno> {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(format!("mountie-{:016x}", u64::from_ne_bytes(bytes)).into_bytes())
}

fn answer_of(
    order: &ProbeOrder,
    planted: &Planted,
    sentinel: &Sentinel,
    (is_named, is_pinned): (bool, bool),
) -> SentinelAnswer {
    let outcome = match planted {
        Planted::Written(_) => "written",
        Planted::Found(_) => "found",
        Planted::Adopted(_) => "adopted",
    };
    // What is no text cannot be written into the configuration: then only its place is.
    let is_text = sentinel.content.as_deref().is_some_and(|content| str::from_utf8(content).is_ok());
    let written = Sentinel { content: sentinel.content.clone().filter(|_| is_text), ..sentinel.clone() };
    SentinelAnswer {
        volume: order.volume.to_string(),
        mountpoint: order.mountpoint.to_string(),
        path: sentinel.path.to_string(),
        content: written.content.as_deref().map(|content| String::from_utf8_lossy(content).into_owned()),
        outcome: outcome.to_owned(),
        named: is_named,
        pinned: is_pinned,
        kept: true,
        toml: config::sentinel_line(&written),
    }
}

fn no_errand(volume: &VolumeId, why: NoErrand) -> SentinelRefusal {
    match why {
        NoErrand::NoSuchVolume => SentinelRefusal::NoSuchVolume(volume.to_string()),
        NoErrand::NotThere => SentinelRefusal::Sick(format!(
            "`{volume}` is not mounted where it belongs, and nothing is ever written to a bare directory; mount it first"
        )),
        NoErrand::Repaired => {
            SentinelRefusal::Sick(format!("`{volume}` is being repaired; try again when it is"))
        }
        NoErrand::Stuck => SentinelRefusal::Sick(format!(
            "`{volume}` hangs: a worker has not come back from it; see `mountie describe {volume}`"
        )),
    }
}

fn hung(error: &NoAnswer, order: &ProbeOrder, path: &BytePath) -> SentinelRefusal {
    SentinelRefusal::Sick(format!(
        "`{}` ({}) hangs: {}; `{path}` may still be put there; see `mountie describe {}`",
        order.volume,
        order.mountpoint,
        chain(error),
        order.volume
    ))
}

/// The file that is there has not the content that the configuration wants.
fn not_the_configured(order: &ProbeOrder, path: &BytePath) -> SentinelRefusal {
    SentinelRefusal::Exists(format!(
        "`{path}` on `{}` ({}) exists with other content than the configuration names; correct the one or the other",
        order.volume, order.mountpoint
    ))
}

fn refusal(fault: &PlantFault, order: &ProbeOrder, path: &BytePath) -> SentinelRefusal {
    let at = format!("`{path}` on `{}` ({})", order.volume, order.mountpoint);
    match fault {
        PlantFault::Exists => SentinelRefusal::Exists(format!(
            "{at} exists with other content; use --adopt to take what is there, or --path for another file"
        )),
        PlantFault::Empty => SentinelRefusal::Exists(format!(
            "{at} exists and is empty, which proves nothing; remove it, or use --path for another file"
        )),
        PlantFault::Unusable => SentinelRefusal::Exists(format!(
            "{at} is no small plain file of this volume, or the way to it leads over a link or another mount; use \
             --path for another file"
        )),
        PlantFault::NoDirectory => {
            SentinelRefusal::Sick(format!("there is no directory for {at}; make it first"))
        }
        PlantFault::NoRoom => SentinelRefusal::Sick(format!(
            "a single file is mounted at {}, which has no room for another",
            order.mountpoint
        )),
        PlantFault::ReadBack { errno, is_removed } => {
            let met = match errno {
                Some(errno) => format!("met {errno}"),
                None => "gave something else".to_owned(),
            };
            let left = if *is_removed { "it is removed again" } else { "it could not be removed" };
            SentinelRefusal::Sick(format!(
                "{at} was written, and reading it back past the cache {met}; {left}; do not trust this volume"
            ))
        }
        PlantFault::Write(errno) => {
            SentinelRefusal::Sick(format!("{at} cannot be written: {}", unwritable(*errno)))
        }
        PlantFault::Look(result) => SentinelRefusal::Sick(format!(
            "`{}` ({}) cannot be looked at: {}",
            order.volume,
            order.mountpoint,
            fault_sentence(result)
        )),
    }
}

/// What an errno means for who wants to write, with the remedy.
fn unwritable(errno: agent_core::errno::Errno) -> String {
    let remedy = match Errno::from_raw_os_error(i32::from(errno.0)) {
        Errno::ROFS => "the volume is read-only here; write the file where it is writable, then use --adopt",
        Errno::NOSPC => "the volume is full; make room first",
        Errno::DQUOT => "the quota is used up; make room first",
        Errno::ACCESS | Errno::PERM => {
            "the volume refuses it; configure `probe = { uid = …, gid = … }` with a user who may write there"
        }
        _ => "look at the volume first",
    };
    format!("{errno}; {remedy}")
}

#[cfg(test)]
mod tests;
