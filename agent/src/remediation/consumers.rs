//! The consumers' part of a plan, in one mount namespace: the new file system in the place of every other mount of the
//! old superblock, or guards in their places until it is there.
//!
//! What has to go where is read from the namespace's own table, seen from its root, at the moment of acting. The new
//! trees are cloned where the new file system is mounted, with each one's own root and with exactly the options of the
//! mount that it replaces, before anybody sees them. Then the process enters the namespace and moves them in.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use agent_core::id::MountId;
use agent_core::path::BytePath;
use agent_core::remediation::consumers::{
    Bind, Holding, Kind, Left, Stays, Survey, Wanted, is_guard, survey,
};
use agent_core::remediation::{Outcome, Refusal};
use agent_core::topology::{Mount, MountTable, Propagation};
use agent_core::volume::Reach;
use rustix::io::Errno;

use super::check::{SentinelFault, read_sentinel};
use super::kinship;
use super::scene::{Scene, Stop, say};
use super::wire::{Step, WireNamespace, WireWanted};
use crate::sys::look;
use crate::sys::mount_exactly::Place;
use crate::sys::mountinfo::{parse_line, parse_place};
use crate::sys::namespaces::{self, Namespace};

mod cover;
mod dress;
mod exchange;
mod nest;
mod trees;

pub(super) use cover::{cover, guard_place, may_cover};
pub(super) use dress::dress;

use trees::{Tree, Whole, assemble, lies_inside, without_their_place};

/// Namespaces beyond this are not gone into by one plan; the next one finds them again.
const NAMESPACES: usize = 1024;

/// What is looked for, with the things it borrows from.
pub(super) struct Order {
    holding: Option<Holding>,
    reach: Reach,
    ids: Option<BTreeSet<MountId>>,
    namespace: Option<WireNamespace>,
    /// Places of the plan itself, where its own namespace is looked at.
    own: Vec<BytePath>,
    /// Only guards are to be replaced, also by the old file system where that is what there is.
    is_undo: bool,
}

impl Order {
    pub(super) fn new(scene: &Scene, wanted: WireWanted) -> Result<Self, Stop> {
        let WireWanted { holding, all, ids, namespace } = wanted;
        let ids = ids.map(|ids| ids.into_iter().map(MountId).collect());
        // A device's new superblock has the number of the old one. Where that is shown, nobody has the old one.
        let top = scene.stack(&scene.mountpoint)?.pop().map(|top| top.superblock);
        let is_used_again = scene.number_proves_nothing && top.is_some() && top == scene.old;
        let is_undo = holding.is_none();
        let holding = holding.filter(|_| !is_used_again).map(Holding::from);
        let own = match namespace {
            None => vec![scene.mountpoint.clone(), scene.stage_root.clone()],
            Some(_) => Vec::new(),
        };
        let reach = if all { Reach::All } else { Reach::Unowned };
        Ok(Self { holding, reach, ids, namespace, own, is_undo })
    }

    fn wanted<'a>(&'a self, scene: &'a Scene) -> Wanted<'a> {
        Wanted {
            volume: &scene.volume,
            old: scene.old.zip(self.holding.as_ref()),
            ids: self.ids.as_ref(),
            reach: self.reach,
            own: &self.own,
        }
    }
}

/// The same, if the volume shows the old superblock, so that nothing else can have its number.
pub(super) fn find_shown(scene: &Scene, order: &Order) -> Result<Step, Stop> {
    let shown = scene.stack(&scene.mountpoint)?.pop().map(|top| top.superblock);
    if scene.old.is_some() && shown == scene.old {
        find(scene, order)
    } else {
        Ok(Step::new(Outcome::AlreadySo, "the old one is not mounted there"))
    }
}

/// Which other namespaces have something that concerns the plan, and which mounts that is, also on the host. Reads procfs
/// alone.
pub(super) fn find(scene: &Scene, order: &Order) -> Result<Step, Stop> {
    say("look through the mount namespaces");
    let own = scene.proc.namespace_of("self").map_err(|errno| Stop::call("read the own namespace", errno))?;
    let here = order.wanted(scene);
    // The plan's own places are its own here alone: others may have the old one at the same path.
    let elsewhere = Wanted { own: &[], ..here.clone() };
    let mut step = Step::new(Outcome::AlreadySo, "");
    for namespace in scene.proc.namespaces() {
        // A process that has ended meanwhile takes its namespace with it, or another one stands for it next time.
        let Ok(text) = scene.proc.text_of_table(namespace.process) else { continue };
        let wanted = if namespace.number == own { &here } else { &elsewhere };
        let mut found =
            text.split(|byte| *byte == b'\n').filter_map(|line| concerns(wanted, line)).peekable();
        // Guards there are nobody's that the agent knows.
        let is_foreign =
            namespace.number != own && found.peek().is_some() && scene.proc.is_foreign(namespace);
        let mut found = found.filter(|(_, kind)| *kind == Kind::Old || !is_foreign).peekable();
        if found.peek().is_some() && namespace.number != own {
            step.namespaces.push(WireNamespace::from(namespace));
        }
        for (mount, _) in found {
            let Propagation { shared, master, .. } = mount.propagation;
            if shared.or(master).is_some() {
                step.related.insert(mount.id.0, (shared, master));
            }
            step.found.insert(mount.id.0);
        }
    }
    step.text = format!("{} other mount namespaces have something of it", step.namespaces.len());
    step.namespaces.truncate(NAMESPACES);
    Ok(step)
}

/// Most lines of most tables concern nobody: those are not read to their end.
fn concerns(wanted: &Wanted<'_>, line: &[u8]) -> Option<(Mount, Kind)> {
    let place = parse_place(line).ok()?;
    let is_old = wanted.old.is_some_and(|(old, _)| old == place.superblock);
    let mount = (is_old || place.superblock.major == 0).then(|| parse_line(line).ok())??;
    let kind = wanted.kind(&mount)?;
    Some((mount, kind))
}

/// The namespace that is worked in, and the way back to where the new file system is mounted.
struct Visit<'a> {
    scene: &'a Scene,
    home: OwnedFd,
    there: Option<OwnedFd>,
    /// It belongs to another user namespace.
    is_foreign: bool,
}

impl<'a> Visit<'a> {
    /// `None` where the namespace is gone.
    fn new(scene: &'a Scene, order: &Order) -> Result<Option<Self>, Stop> {
        let home = scene.proc.own_namespace().map_err(|errno| Stop::call("open the own namespace", errno))?;
        let namespace = order.namespace.map(Namespace::from);
        let is_foreign = namespace.is_some_and(|namespace| scene.proc.is_foreign(namespace));
        let there = match namespace {
            None => None,
            Some(namespace) => match scene.proc.open_namespace(namespace) {
                Ok(there) => Some(there),
                Err(Errno::NOENT | Errno::SRCH) => return Ok(None),
                Err(errno) => {
                    let doing = format!("open the mount namespace of process {}", namespace.process);
                    return Err(Stop::call(doing, errno));
                }
            },
        };
        Ok(Some(Self { scene, home, there, is_foreign }))
    }

    /// Does something in the namespace that is worked in, and comes back.
    fn there<T>(&self, act: impl FnOnce() -> Result<T, Stop>) -> Result<T, Stop> {
        let Some(there) = &self.there else { return act() };
        let enter = |namespace| {
            namespaces::enter(namespace).map_err(|errno| Stop::call("enter a mount namespace", errno))
        };
        enter(there)?;
        let result = act();
        enter(&self.home)?;
        result
    }

    /// What is to be done there. In a namespace of another user namespace nothing is: the kernel locks what it began
    /// with, and whoever made it can mount there what only calls itself a guard.
    fn survey(&self, wanted: &Wanted<'_>) -> Result<Survey, Stop> {
        let mut survey = self.there(|| Ok(survey(&self.scene.table()?, wanted)))?;
        if self.is_foreign {
            let stays = |Bind { mount, kind, .. }: Bind| Stays {
                id: mount.id,
                place: mount.mountpoint,
                kind,
                why: Left::Foreign,
            };
            survey.left.extend(survey.binds.drain(..).map(stays));
            survey.left.retain(|stays| stays.kind == Kind::Old);
        }
        Ok(survey)
    }
}

/// The mount that others are made from.
struct Base {
    root: OwnedFd,
    mount: Mount,
    /// The volume's own mount of the same, where it passes on what is mounted inside it. What is staged does not.
    shared: Option<OwnedFd>,
}

/// What is staged and was found good, else what the volume's own place shows. The old one only where it is to come back.
fn base(scene: &Scene, may_be_old: bool) -> Result<Option<Base>, Stop> {
    let staged = if scene.staged_is_good { scene.stack(&scene.stage)?.pop() } else { None };
    let Some(mount) = staged.or(scene.stack(&scene.mountpoint)?.pop()) else { return Ok(None) };
    if is_guard(&mount) || (scene.is_old(mount.superblock) && !may_be_old) {
        return Ok(None);
    }
    let place = &mount.mountpoint;
    say(format!("look at {place}"));
    let root = look::hold(place).map_err(|errno| Stop::call(format!("look at {place}"), errno))?;
    let own = scene.stack(&scene.mountpoint)?.pop();
    let passes_on = |own: &Mount| own.superblock == mount.superblock && own.propagation.shared.is_some();
    let shared = own.filter(passes_on).and_then(|own| look::hold(&own.mountpoint).ok());
    Ok(Some(Base { root, mount, shared }))
}

/// What became of the mounts of one namespace.
#[derive(Default)]
struct Tally {
    /// Where the new file system is shown now.
    done: Vec<BytePath>,
    /// Where not, and why.
    left: Vec<(BytePath, String)>,
    gap: Option<Duration>,
    detached: Vec<u32>,
    /// What else there is to tell of a place.
    notes: Vec<String>,
}

impl Tally {
    fn note(&mut self, place: &BytePath, what: Option<String>) {
        self.notes.extend(what.map(|what| format!("{place}: {what}")));
    }

    fn leave(&mut self, place: &BytePath, why: impl Into<String>) {
        self.left.push((place.clone(), why.into()));
    }

    fn take_left(&mut self, left: Vec<Stays>) {
        self.left.extend(left.into_iter().map(|stays| (stays.place, stays.why.text())));
    }

    fn into_step(self, verb: &str) -> Step {
        let Self { done, left, gap, detached, notes } = self;
        let places: Vec<String> = done.iter().map(ToString::to_string).collect();
        let mut words = Vec::new();
        if !done.is_empty() {
            words.push(format!("{verb} {}", places.join(", ")));
        }
        if let Some(gap) = gap.filter(|gap| !gap.is_zero()) {
            words.push(format!("gap {} µs", gap.as_micros()));
        }
        words.extend(left.iter().map(|(place, why)| format!("left {place}: {why}")));
        words.extend(notes);
        let outcome = match (left.is_empty(), done.is_empty()) {
            (false, _) => Outcome::Refused(Refusal::ConsumersLeft),
            (true, true) => Outcome::AlreadySo,
            (true, false) => Outcome::Changed,
        };
        let text =
            if words.is_empty() { "nothing of it is mounted there".to_owned() } else { words.join("; ") };
        let mut step = Step::new(outcome, text);
        step.gap = gap;
        step.detached = detached;
        step
    }
}

/// Shows the new file system wherever the old one, or a guard, is in one namespace.
pub(super) fn swap(scene: &Scene, order: &Order) -> Result<Step, Stop> {
    let Some(visit) = Visit::new(scene, order)? else {
        return Ok(Step::new(Outcome::AlreadySo, "the namespace is gone"));
    };
    let wanted = order.wanted(scene);
    let Survey { binds, left } = visit.survey(&wanted)?;
    let mut tally = Tally::default();
    tally.take_left(left);
    if binds.is_empty() {
        return Ok(tally.into_step("swapped"));
    }
    let Some(base) = base(scene, order.is_undo)? else {
        let text = "nothing is mounted that they could show".to_owned();
        return Err(Stop::Refused(Refusal::NotAMountPoint, text));
    };
    let mut trees = Vec::new();
    for bind in &binds {
        match Tree::prepare(scene, &base, bind, binds.iter().any(|other| lies_inside(other, bind))) {
            Ok(tree) => trees.push(tree),
            Err(stop) => tally.leave(&bind.mount.mountpoint, stop.into_step().text),
        }
    }
    for index in without_their_place(&trees).into_iter().rev() {
        let Tree { bind, .. } = trees.remove(index);
        tally.leave(&bind.mount.mountpoint, "the directory that it lies on is not on the new file system");
    }
    for index in 0..trees.len() {
        let Some(&Tree { bind, .. }) = trees.get(index) else { break };
        let place = &bind.mount.mountpoint;
        // What is detached goes with all that is mounted inside it, and that could not come back.
        if let Some((inside, _)) = tally.left.iter().find(|(left, _)| left != place && left.is_within(place))
        {
            let why = Left::HasInside(inside.clone()).text();
            tally.leave(place, why);
            continue;
        }
        let swapped = if tally.done.iter().any(|outer| place.is_within(outer)) {
            came_along(&visit, &base, &wanted, bind, &mut tally)
        } else {
            let whole = assemble(scene, &base, &mut trees, index);
            whole.and_then(|whole| swap_one(&visit, &base, &wanted, (bind, whole), &mut tally))
        };
        match swapped {
            Ok(()) => tally.done.push(place.clone()),
            Err(stop) => tally.leave(place, stop.into_step().text),
        }
    }
    ask_all(&visit, &binds, &mut tally)?;
    Ok(tally.into_step("swapped"))
}

/// Looks at what every place shows now, once nobody waits for the new mount any more: its root has to answer, and the
/// sentinel where it shows the whole volume.
fn ask_all(visit: &Visit<'_>, binds: &[Bind], tally: &mut Tally) -> Result<(), Stop> {
    for bind in binds {
        let place = &bind.mount.mountpoint;
        if !tally.done.contains(place) {
            continue;
        }
        if let Err(stop) = visit.there(|| ask(visit.scene, bind)) {
            tally.done.retain(|done| done != place);
            tally.leave(place, format!("swapped, but {}", stop.into_step().text));
        }
    }
    Ok(())
}

fn ask(scene: &Scene, bind: &Bind) -> Result<(), Stop> {
    let path = &bind.mount.mountpoint;
    say(format!("ask the file system at {path}"));
    let failed = |errno| Stop::call("its root does not answer", errno);
    let root = Place::resolve(path).and_then(|place| place.hold()).map_err(failed)?;
    look::ask(&root).map_err(failed)?;
    let sentinel = scene.sentinel.as_ref().filter(|_| bind.inner.as_bytes().is_empty());
    match sentinel.map(|sentinel| (sentinel, read_sentinel(&root, sentinel))) {
        None | Some((_, Ok(()))) => Ok(()),
        Some((sentinel, Err(SentinelFault::Answer(errno)))) => {
            Err(Stop::call(format!("read the sentinel {}", sentinel.path), errno))
        }
        Some((_, Err(SentinelFault::Other(what)))) => Err(Stop::Refused(Refusal::OtherVolume, what)),
    }
}

fn swap_one(
    visit: &Visit<'_>,
    base: &Base,
    wanted: &Wanted<'_>,
    (bind, Whole { inner, tree }): (&Bind, Whole),
    tally: &mut Tally,
) -> Result<(), Stop> {
    visit.there(|| {
        say(format!("swap {}", bind.mount.mountpoint));
        let exchanged = exchange::exchange(visit.scene, wanted, bind, &tree, &inner)?;
        tally.gap = tally.gap.max(exchanged.gap);
        tally.detached.extend(exchanged.detached);
        let note = verify(visit.scene, wanted, (&base.mount, bind))?;
        tally.note(&bind.mount.mountpoint, note);
        Ok(())
    })
}

/// It was inside the tree that has taken the place of the one around it.
fn came_along(
    visit: &Visit<'_>,
    base: &Base,
    wanted: &Wanted<'_>,
    bind: &Bind,
    tally: &mut Tally,
) -> Result<(), Stop> {
    visit.there(|| {
        tally.detached.push(bind.mount.id.0);
        let note = verify(visit.scene, wanted, (&base.mount, bind))?;
        tally.note(&bind.mount.mountpoint, note);
        Ok(())
    })
}

/// One deep, the new superblock, the options that the old one had, and its propagation; of that, what is lost.
fn verify(scene: &Scene, wanted: &Wanted<'_>, (base, bind): (&Mount, &Bind)) -> Result<Option<String>, Stop> {
    let place = &bind.mount.mountpoint;
    let stack = scene.stack(place)?;
    let refuse = |text: String| Err(Stop::Refused(Refusal::TableChanged, text));
    let Some(top) = stack.last() else { return refuse("nothing is mounted there now".to_owned()) };
    if top.superblock != base.superblock {
        return refuse(format!("superblock {} is shown there now", top.superblock));
    }
    let is_double = |mount: &&Mount| mount.superblock == base.superblock || wanted.kind(mount).is_some();
    if stack.iter().filter(is_double).count() > 1 {
        return refuse(format!("{} mounts are stacked there now", stack.len()));
    }
    if !dress::has_same_options(&bind.mount, top) {
        return refuse("the options are other ones than before".to_owned());
    }
    // The mount is there and works; propagation alone is no reason to call it failed.
    let place = Place::resolve(place).map_err(|errno| Stop::call(format!("resolve {place}"), errno))?;
    let held = exchange::hold(scene, &place, top)?;
    Ok(kinship::restore(held.as_fd(), &top.propagation, &scene.propagation_of(&bind.mount)))
}

/// The top of the stack at a place, as long as it is of this kind.
fn top_of(table: &MountTable, wanted: &Wanted<'_>, place: &BytePath) -> Option<(Mount, Kind)> {
    let top = table.stack_at(place).last().map(|top| (**top).clone())?;
    let kind = wanted.kind(&top)?;
    Some((top, kind))
}

impl From<Namespace> for WireNamespace {
    fn from(namespace: Namespace) -> Self {
        Self { number: namespace.number, process: namespace.process }
    }
}

impl From<WireNamespace> for Namespace {
    fn from(namespace: WireNamespace) -> Self {
        Self { number: namespace.number, process: namespace.process }
    }
}
