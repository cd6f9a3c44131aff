//! Sentinels that people ask for: who waits for one, the workers that put them there, and what is pinned for good.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use agent_core::engine::{NoErrand, ProbeOrder};
use agent_core::id::{ProbeId, SuperblockId, VolumeId};
use agent_core::path::BytePath;
use agent_core::volume::Sentinel;
use rustix::io::Errno;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::config;
use crate::error_chain::chain;
use crate::export::{SentinelAnswer, SentinelRefusal, SentinelWish, fault_sentence};
use crate::probe::Settings;
use crate::probe::plant::{Answer, NoAnswer, Remains, plant};
use crate::probe::planting::{PlantFault, Planted, Planting};
use crate::probe::steps::DEFAULT_SENTINEL;

/// Writing waits for the storage, which may be slower than a look.
const LEAST_PATIENCE: Duration = Duration::from_secs(10);
/// The one who asked does not wait longer.
const MOST_PATIENCE: Duration = Duration::from_secs(40);

/// Where an answer goes.
pub(super) type Done = oneshot::Sender<Result<SentinelAnswer, SentinelRefusal>>;

/// Everything about sentinels that are put on volumes.
pub(super) struct Plantings {
    settings: Settings,
    waiting: BTreeMap<VolumeId, VecDeque<(SentinelWish, Done)>>,
    running: JoinSet<Ended>,
    /// Workers that are being ended, each with its superblock.
    remains: JoinSet<SuperblockId>,
    /// Superblocks on which such a worker hangs.
    hanging: BTreeSet<SuperblockId>,
    pins: BTreeMap<VolumeId, Sentinel>,
}

/// A worker has answered, or has not.
pub(super) struct Ended {
    order: ProbeOrder,
    done: Done,
    path: BytePath,
    answer: Answer,
    remains: Remains,
}

impl Ended {
    /// Whose sentinel it is.
    pub(super) const fn volume(&self) -> &VolumeId {
        &self.order.volume
    }
}

/// What happened beside the event loop.
pub(super) enum News {
    /// A worker ended its work.
    Ended(Box<Ended>),
    /// A worker is gone.
    Gone(SuperblockId),
}

impl Plantings {
    pub(super) fn new(settings: Settings, pins: BTreeMap<VolumeId, Sentinel>) -> Self {
        Self {
            settings,
            waiting: BTreeMap::new(),
            running: JoinSet::new(),
            remains: JoinSet::new(),
            hanging: BTreeSet::new(),
            pins,
        }
    }

    /// What is pinned.
    pub(super) const fn pins(&self) -> &BTreeMap<VolumeId, Sentinel> {
        &self.pins
    }

    /// Somebody wants a sentinel. The engine says when and where.
    pub(super) fn ask(&mut self, volume: VolumeId, wish: SentinelWish, done: Done) {
        self.waiting.entry(volume).or_default().push_back((wish, done));
    }

    /// Nothing can be done there.
    pub(super) fn refuse(&mut self, volume: &VolumeId, why: NoErrand) {
        if let Some((_, done)) = self.next(volume) {
            // Who stopped waiting needs no answer.
            let _ = done.send(Err(no_errand(volume, why)));
        }
    }

    fn next(&mut self, volume: &VolumeId) -> Option<(SentinelWish, Done)> {
        let queue = self.waiting.get_mut(volume)?;
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
        if self.hanging.contains(&order.superblock) {
            let _ = done.send(Err(no_errand(&order.volume, NoErrand::Stuck)));
            return Some(id);
        }
        let planting = match planting(&wish, &order) {
            Ok(planting) => planting,
            Err(error) => {
                let _ = done.send(Err(SentinelRefusal::Wrong(error)));
                return Some(id);
            }
        };
        let settings = self.settings.clone();
        self.running.spawn(async move {
            let patience = order.deadline.clamp(LEAST_PATIENCE, MOST_PATIENCE);
            let path = planting.path.clone();
            let (answer, remains) = plant(&settings, &order, planting, patience).await;
            Ended { order, done, path, answer, remains }
        });
        None
    }

    /// The next thing that happens; never while nothing goes on.
    pub(super) async fn news(&mut self) -> News {
        tokio::select! {
            Some(Ok(ended)) = self.running.join_next() => News::Ended(Box::new(ended)),
            Some(Ok(superblock)) = self.remains.join_next() => News::Gone(superblock),
            else => std::future::pending().await,
        }
    }

    /// A worker is gone: its superblock may be asked for something again.
    pub(super) fn gone(&mut self, superblock: SuperblockId) {
        self.hanging.remove(&superblock);
    }

    /// Answers, and pins what is there now. Says which order is over, and whether there is something new to keep.
    pub(super) fn finish(&mut self, ended: Ended, is_named: bool) -> (ProbeId, bool) {
        let Ended { order, done, path, answer, remains } = ended;
        let superblock = order.superblock;
        if matches!(answer, Err(NoAnswer::TimedOut(_))) {
            self.hanging.insert(superblock);
        }
        self.remains.spawn(async move {
            remains.gone().await;
            superblock
        });
        let reply = match answer {
            Err(error) => Err(SentinelRefusal::NoAnswer(chain(&error))),
            Ok(Err(fault)) => Err(refusal(&fault, &order, &path)),
            Ok(Ok(planted)) => Ok(planted),
        };
        let (reply, is_new) = match reply {
            Err(refusal) => (Err(refusal), false),
            Ok(planted) => {
                let sentinel = Sentinel { path, content: Some(without_newline(planted.content()).to_vec()) };
                let is_configured = order.sentinel.as_ref() == Some(&sentinel);
                let is_pinned = is_named && !is_configured;
                let answer = answer_of(&order, &planted, &sentinel, (is_named, is_pinned));
                let is_new = is_pinned && self.pins.get(&order.volume) != Some(&sentinel);
                if is_new {
                    self.pins.insert(order.volume, sentinel);
                }
                (Ok(answer), is_new)
            }
        };
        let _ = done.send(reply);
        (order.id, is_new)
    }
}

fn without_newline(content: &[u8]) -> &[u8] {
    content.strip_suffix(b"\n").unwrap_or(content)
}

/// What a worker is asked for. What the wish leaves open comes from the configuration, and otherwise by lot.
fn planting(wish: &SentinelWish, order: &ProbeOrder) -> Result<Planting, String> {
    let wished = wish.path.as_deref().map(config::inner_path).transpose()?;
    let known = order.sentinel.as_ref();
    let path = wished.or_else(|| known.map(|known| known.path.clone()));
    let path = path.unwrap_or_else(|| BytePath::from(DEFAULT_SENTINEL));
    let wished = wish.content.as_deref().map(config::sentinel_content).transpose()?;
    let known = known.filter(|known| known.path == path).and_then(|known| known.content.clone());
    let chosen = wished.or(known).map(|content| without_newline(&content).to_vec());
    let is_chosen = chosen.is_some();
    let content = match chosen {
        Some(content) => content,
        None => lot().map_err(|errno| format!("the kernel has no random numbers: {errno}"))?,
    };
    Ok(Planting { path, content, is_chosen, may_adopt: wish.adopt })
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

fn refusal(fault: &PlantFault, order: &ProbeOrder, path: &BytePath) -> SentinelRefusal {
    let at = format!("`{path}` on `{}` ({})", order.volume, order.mountpoint);
    match fault {
        PlantFault::Exists => SentinelRefusal::Exists(format!(
            "{at} exists with other content; use --adopt to take what is there, or --path for another file"
        )),
        PlantFault::Empty => SentinelRefusal::Exists(format!(
            "{at} exists and is empty, which proves nothing; remove it, or use --path for another file"
        )),
        PlantFault::Unusable => SentinelRefusal::Sick(format!(
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
        PlantFault::ReadBack => SentinelRefusal::Sick(format!(
            "{at} was written, and reading it back past the cache gave something else; do not trust this volume"
        )),
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
mod tests {
    use agent_core::id::{Generation, MountId};

    use super::*;

    fn order(sentinel: Option<Sentinel>) -> ProbeOrder {
        ProbeOrder {
            id: ProbeId(1),
            volume: VolumeId::new("v"),
            generation: Generation(1),
            mountpoint: "/mnt/v".into(),
            superblock: SuperblockId { major: 0, minor: 7 },
            mount_id: MountId(7),
            root: "/".into(),
            fstype: "nfs4".into(),
            sentinel,
            write: false,
            user: None,
            is_automount: false,
            deadline: Duration::from_secs(1),
        }
    }

    fn wish(path: Option<&str>, content: Option<&str>) -> SentinelWish {
        SentinelWish { path: path.map(str::to_owned), content: content.map(str::to_owned), adopt: false }
    }

    #[test]
    fn what_the_wish_leaves_open_is_configured_or_by_lot() {
        let configured = Sentinel { path: "d/s".into(), content: Some(b"known".to_vec()) };
        let from = |wish: SentinelWish, known: Option<&Sentinel>| {
            let planting = planting(&wish, &order(known.cloned())).unwrap();
            (planting.path.to_string(), planting.content, planting.is_chosen)
        };
        let known = || ("d/s".to_owned(), b"known".to_vec(), true);
        assert_eq!(from(wish(None, None), Some(&configured)), known());
        assert_eq!(from(wish(Some("./d//s"), None), Some(&configured)), known());
        assert_eq!(from(wish(None, Some("x\n")), Some(&configured)), ("d/s".to_owned(), b"x".to_vec(), true));
        let (path, first, is_chosen) = from(wish(None, None), None);
        assert_eq!((path.as_str(), is_chosen), (DEFAULT_SENTINEL, false));
        assert!(first.starts_with(b"mountie-") && first.len() == 24);
        assert_ne!(first, from(wish(Some("other"), None), Some(&configured)).1);
    }

    #[test]
    fn a_path_that_leads_out_or_an_empty_content_is_refused() {
        for (path, content) in [("../s", "x"), ("/s", "x"), ("s", "")] {
            assert!(planting(&wish(Some(path), Some(content)), &order(None)).is_err(), "{path} {content}");
        }
    }

    #[test]
    fn every_refusal_names_the_place_and_the_remedy() {
        let faults = [
            (PlantFault::Exists, "--adopt"),
            (PlantFault::Empty, "remove it"),
            (PlantFault::Unusable, "--path"),
            (PlantFault::Write(agent_core::errno::Errno(30)), "EROFS; the volume is read-only"),
            (PlantFault::Write(agent_core::errno::Errno(28)), "ENOSPC; the volume is full"),
            (PlantFault::Write(agent_core::errno::Errno(122)), "EDQUOT; the quota"),
            (
                PlantFault::Write(agent_core::errno::Errno(13)),
                "EACCES; the volume refuses it; configure `probe",
            ),
        ];
        for (fault, remedy) in faults {
            let text = refusal(&fault, &order(None), &"s".into()).to_string();
            assert!(text.contains("`s` on `v` (/mnt/v)") && text.contains(remedy), "{text}");
        }
    }
}
