//! Shows the staged mount at the mount point, in such a way that a path walk finds the old file system, then the
//! new one, and never the bare directory.
//!
//! The new tree is cloned detached, gets its options there, goes in beneath the old mount, and only then the old
//! one is detached. Where the kernel does not allow that (before 6.5, or the parent's propagation would put the new
//! mount over a copy of itself) the two calls follow each other at once and the gap is measured.
//!
//! Propagation: the private place is cut off, so the clone is private. Under a shared parent the kernel makes the
//! attached mount shared and gives it to every peer and slave, and takes the old one away there as well: one deep
//! everywhere (`attach_recursive_mnt`, `propagate_umount`). Where the old mount was shared under a private parent,
//! the clone is put into a new peer group first.

use std::time::Duration;

use agent_core::id::{MountId, SuperblockId};
use agent_core::path::BytePath;
use agent_core::remediation::consumers::is_guard;
use agent_core::remediation::{Outcome, Refusal};
use agent_core::topology::{Mount, MountTable};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

use super::attributes::{Former, Wish, for_bind_remount, for_new_mount};
use super::kinship;
use super::scene::{STACK_LIMIT, Scene, Stop, core_errno, say};
use super::wire::Step;
use crate::sys::{clock, look, mount, mount_attributes, mount_exactly};

/// More entries than this are not counted in a covered directory.
const COUNT_LIMIT: usize = 10_000;

/// What has to be done, judged by the mount table alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Course {
    /// The new superblock is already on top.
    Nothing,
    /// Nothing is mounted: the new mount goes onto the directory.
    Attach,
    /// The old superblock is on top, with `surplus` more mounts of it under that one.
    Replace { surplus: usize },
    /// The new superblock is already beneath the old mounts: they only have to go.
    Finish { covering: usize },
    /// Not done.
    Refuse(Refusal),
}

pub(super) fn swap(scene: &Scene, readonly: bool) -> Result<Step, Stop> {
    let table = scene.table()?;
    let staged = table.top_at(&scene.stage).map(|mount| mount.superblock);
    let stack = scene.stack(&scene.mountpoint)?;
    let place = &scene.mountpoint;
    let wish = Wish { readonly, old_readonly_is_the_fault: scene.repairs_readonly };
    let is_own = |superblock| staged != Some(superblock) && scene.is_left_beneath(&stack, superblock);
    match decide(staged, &stack, scene.old, |superblock| scene.is_old(superblock) || is_own(superblock)) {
        Course::Nothing => {
            Ok(Step::new(Outcome::AlreadySo, format!("{place} already shows the new superblock")))
        }
        Course::Attach => attach(scene, wish),
        Course::Replace { surplus } => {
            old_top(scene)?;
            refuse_mounts_below(scene, &table, &stack)?;
            detach_old(scene, surplus)?;
            replace(scene, &stack, wish)
        }
        Course::Finish { covering } => {
            old_top(scene)?;
            refuse_mounts_below(scene, &table, &stack)?;
            detach_old(scene, covering)?;
            let mut step =
                Step::new(Outcome::Changed, format!("detached the old mount over the new one at {place}"));
            step.gap = Some(Duration::ZERO);
            Ok(step)
        }
        Course::Refuse(refusal) => {
            let shown =
                stack.last().map_or("nothing".to_owned(), |top| format!("superblock {}", top.superblock));
            Err(Stop::Refused(refusal, format!("{place} shows {shown}")))
        }
    }
}

/// Pure: the table and the plan in, the course out.
fn decide(
    staged: Option<SuperblockId>,
    stack: &[Mount],
    old: Option<SuperblockId>,
    is_old: impl Fn(SuperblockId) -> bool,
) -> Course {
    let top = stack.last().map(|mount| mount.superblock);
    let Some(staged) = staged else {
        // After a finished plan the private place is empty and the mount point shows another superblock.
        let is_done = old.is_some() && top.is_some_and(|top| !is_old(top));
        return if is_done { Course::Nothing } else { Course::Refuse(Refusal::NotAMountPoint) };
    };
    if is_old(staged) {
        return Course::Refuse(Refusal::SameSuperblock);
    }
    let Some(top) = top else { return Course::Attach };
    if top == staged {
        return Course::Nothing;
    }
    let makes_room = |mount: &&Mount| is_old(mount.superblock) || is_guard(mount);
    let covering = stack.iter().rev().take_while(makes_room).count();
    if covering == 0 {
        return Course::Refuse(Refusal::TableChanged);
    }
    let below = stack.iter().rev().nth(covering).map(|mount| mount.superblock);
    if below == Some(staged) {
        Course::Finish { covering }
    } else {
        Course::Replace { surplus: covering - 1 }
    }
}

/// Whatever is mounted inside the old one would vanish with it, also what shows the old one itself.
pub(super) fn refuse_mounts_below(scene: &Scene, table: &MountTable, stack: &[Mount]) -> Result<(), Stop> {
    let goes = |id| stack.iter().any(|old| scene.makes_room(old) && old.id == id);
    let inside =
        table.mounts().iter().find(|mount| mount.mountpoint != scene.mountpoint && goes(mount.parent));
    let Some(mount) = inside else { return Ok(()) };
    let place = &mount.mountpoint;
    let text = if scene.is_old(mount.superblock) {
        format!(
            "{place} shows the volume inside itself and would be lost with the old mount; umount {place}, and mount \
             it again after the repair"
        )
    } else {
        format!("{place} is mounted inside and would be detached as well; umount it first")
    };
    Err(Stop::Refused(Refusal::Busy, text))
}

/// Detaches `count` mounts of the old superblock from the top, looking before each.
fn detach_old(scene: &Scene, count: usize) -> Result<(), Stop> {
    for _ in 0..count.min(STACK_LIMIT) {
        scene.detach(&old_top(scene)?)?;
    }
    Ok(())
}

/// The top mount, as long as it shows the old superblock.
fn old_top(scene: &Scene) -> Result<Mount, Stop> {
    let top = scene.stack(&scene.mountpoint)?.pop();
    let top = top.filter(|top| scene.makes_room(top)).ok_or_else(|| {
        let text = format!("somebody else changed what is mounted at {}", scene.mountpoint);
        Stop::Refused(Refusal::TableChanged, text)
    })?;
    scene.refuse_another(&top)?;
    Ok(top)
}

/// The new mount, ready to be attached.
struct Tree {
    tree: OwnedFd,
    /// It could not be made shared while detached.
    is_yet_to_share: bool,
}

/// A detached copy of the staged mount, with all options set.
fn clone_staged(scene: &Scene, old: Option<&Former>, wish: Wish) -> Result<Tree, Stop> {
    let clone = || {
        let doing = || format!("clone the mount at {}", scene.stage);
        mount::clone_tree(&scene.stage).map_err(|errno| Stop::call(doing(), errno))
    };
    let tree = clone()?;
    let attributes = for_new_mount(old, wish);
    match mount_attributes::set(tree.as_fd(), attributes) {
        Ok(()) => Ok(Tree { tree, is_yet_to_share: false }),
        // Before 5.12: where nobody sees it, the mount itself gets the options, and a copy has them too.
        Err(Errno::NOSYS) => {
            let table = scene.table()?;
            let Some(staged) = table.top_at(&scene.stage) else {
                let text = format!("nothing is mounted at {}", scene.stage);
                return Err(Stop::Refused(Refusal::NotAMountPoint, text));
            };
            mount::set_options(&scene.stage, for_bind_remount(staged, attributes))
                .map_err(|errno| Stop::call("set the options of the staged mount", errno))?;
            Ok(Tree { tree: clone()?, is_yet_to_share: attributes.shared })
        }
        Err(errno) => Err(Stop::call("set the options of the new mount", errno)),
    }
}

fn attach(scene: &Scene, wish: Wish) -> Result<Step, Stop> {
    let place = &scene.mountpoint;
    let Tree { tree, is_yet_to_share } = clone_staged(scene, scene.former.as_ref(), wish)?;
    say(format!("mount at {place}"));
    let covered = look::open_directory(place)
        .map_err(|errno| Stop::call(format!("open the directory {place}"), errno))?;
    let around = look::mount_id(&scene.proc, &covered)
        .map_err(|errno| Stop::call("tell which mount the directory lies on", errno))?;
    mount::attach(&tree, place).map_err(|errno| Stop::call(format!("mount at {place}"), errno))?;
    let shown_at = clock::now();
    take_back_unless_on(scene, &tree, around)?;
    let mut step = Step::new(Outcome::Changed, format!("mounted at {place}, where nothing was"));
    step.shown_at = Some(shown_at);
    share(place, is_yet_to_share);
    say_lost(&mut step, restore(scene, &tree, scene.former.as_ref()));
    // Data in the covered directory was written while the volume was away. It is reported and never touched.
    if let Ok(count @ 1..) = look::count_entries(&covered, COUNT_LIMIT) {
        let more = if count == COUNT_LIMIT { "or more " } else { "" };
        step.text.push_str(&format!("; the directory under it holds {count} {more}entries"));
    }
    Ok(step)
}

fn replace(scene: &Scene, stack: &[Mount], wish: Wish) -> Result<Step, Stop> {
    let old = stack.iter().find(|mount| scene.makes_room(mount));
    let is_guarded = old.is_some_and(is_guard);
    let old = old.map(Former::of);
    let mut step = exchange(scene, old.as_ref(), is_guarded, wish)?;
    // What the guard stands for is known already.
    step.former = old.filter(|_| !is_guarded);
    Ok(step)
}

/// What the parent has made of the new mount is undone, once the old one has gone the way that it opened.
fn restore(scene: &Scene, tree: &OwnedFd, old: Option<&Former>) -> Option<String> {
    let id = look::mount_id(&scene.proc, tree).ok()?;
    let table = scene.table().ok()?;
    let own = table.mounts().iter().find(|mount| mount.id == id)?;
    kinship::restore(tree.as_fd(), &own.propagation, &old?.propagation())
}

fn say_lost(step: &mut Step, lost: Option<String>) {
    if let Some(lost) = lost {
        step.text.push_str("; ");
        step.text.push_str(&lost);
    }
}

/// Whether the mount with this id lies where it was to lie. A table that does not list it says nothing.
fn lies_on(table: &MountTable, id: MountId, around: MountId) -> bool {
    table.mounts().iter().find(|mount| mount.id == id).is_none_or(|own| own.parent == around)
}

/// Somebody may have mounted there after the last look: then the new one lies on theirs, which nobody has asked for.
fn take_back_unless_on(scene: &Scene, tree: &OwnedFd, around: MountId) -> Result<(), Stop> {
    let id = look::mount_id(&scene.proc, tree)
        .map_err(|errno| Stop::call("tell which mount the new one is", errno))?;
    let table = scene.table()?;
    if lies_on(&table, id, around) {
        return Ok(());
    }
    let place = &scene.mountpoint;
    let own = scene.stack(place)?.pop().filter(|top| top.id == id);
    let end = match own.map(|own| scene.detach(&own)) {
        Some(Ok(())) => "the new mount was taken back",
        Some(Err(_)) | None => "the new mount is there as well",
    };
    Err(Stop::Refused(
        Refusal::TableChanged,
        format!("somebody else mounted at {place} at that moment; {end}"),
    ))
}

/// Somebody may have mounted over the old one after the last look: then the new one lies beneath theirs, and there is
/// no call that takes it away from there.
fn refuse_unless_beneath(scene: &Scene, tree: &OwnedFd, top: &Mount) -> Result<(), Stop> {
    let id = look::mount_id(&scene.proc, tree)
        .map_err(|errno| Stop::call("tell which mount the new one is", errno))?;
    if lies_on(&scene.table()?, top.id, id) {
        return Ok(());
    }
    let place = &scene.mountpoint;
    Err(Stop::Refused(
        Refusal::TableChanged,
        format!(
            "somebody else mounted over the old mount at {place} at that moment; the new one lies between them"
        ),
    ))
}

fn exchange(scene: &Scene, old: Option<&Former>, is_guarded: bool, wish: Wish) -> Result<Step, Stop> {
    let place = &scene.mountpoint;
    let Tree { tree, is_yet_to_share } = clone_staged(scene, old, wish)?;
    // What the guard stands for is known already, and it had to go the same way.
    let before = if is_guarded { scene.former.as_ref().or(old) } else { old };
    // By its descriptor: what somebody has put in its place meanwhile is another one.
    let top = old_top(scene)?;
    let held = scene.hold_top(&top)?;
    say(format!("move the new mount beneath the old one at {place}"));
    let moved = beneath(&tree, held.as_ref(), place);
    held.into_iter().for_each(|held| scene.keep(held));
    match moved {
        Ok(()) => {
            refuse_unless_beneath(scene, &tree, &top)?;
            detach_old(scene, 1)?;
            let mut step = Step::new(
                Outcome::Changed,
                format!("moved beneath the old mount at {place}, then detached that"),
            );
            step.gap = Some(Duration::ZERO);
            // The guard kept programs from the bare directory; the volume was not there all the same.
            step.shown_at = is_guarded.then(clock::now);
            say_lost(&mut step, restore(scene, &tree, before));
            Ok(step)
        }
        Err(errno @ (Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS)) => {
            let mut step = back_to_back(
                scene,
                &tree,
                place,
                &format!("beneath is refused here ({})", core_errno(errno)),
            )?;
            step.shown_at = is_guarded.then(clock::now);
            share(place, is_yet_to_share);
            say_lost(&mut step, restore(scene, &tree, before));
            Ok(step)
        }
        Err(errno) => Err(Stop::call(format!("move the new mount beneath the old one at {place}"), errno)),
    }
}

/// Beneath the mount whose root is held; beneath what is on top where that root cannot even be held.
fn beneath(tree: &OwnedFd, held: Option<&OwnedFd>, place: &BytePath) -> rustix::io::Result<()> {
    held.map_or_else(|| mount::attach_beneath(tree, place), |held| mount_exactly::attach_beneath(tree, held))
}

/// Makes up for what could not be set on the detached tree.
fn share(place: &BytePath, is_yet_to_share: bool) {
    if is_yet_to_share {
        // The mount is there and works; propagation alone is no reason to call it failed.
        let _ = mount::make_shared(place);
    }
}

/// Detach and attach, with nothing in between but the two calls.
fn back_to_back(scene: &Scene, tree: &OwnedFd, place: &BytePath, why: &str) -> Result<Step, Stop> {
    // Should the second call fail, the old mount goes back: a sick mount is better than a bare directory that
    // takes what programs write.
    let top = old_top(scene)?;
    let keepsake = mount::clone_tree(place).ok();
    say(format!("detach the old mount at {place} and mount the new one"));
    scene.keep_top(&top)?;
    let begun = clock::now();
    mount::detach(place).map_err(|errno| Stop::call(format!("detach the old mount at {place}"), errno))?;
    let attached = mount::attach(tree, place);
    let gap = clock::now().since(begun);
    // Not before the new one is there: reading the table takes its time.
    let gone = scene.expect_gone(&top);
    let result = both_halves(
        (attached, gone),
        &format!("mount the new one at {place}"),
        || {
            let _ = mount::detach(place);
        },
        || keepsake.as_ref().is_some_and(|old| mount::attach(old, place).is_ok()),
    );
    keepsake.into_iter().for_each(|old| scene.keep(old));
    result?;
    take_back_unless_on(scene, tree, top.parent)?;
    let mut step =
        Step::new(Outcome::Changed, format!("detached the old mount at {place}, then mounted; {why}"));
    step.gap = Some(gap);
    Ok(step)
}

/// What came of a detach and of the attach after it, where the table says whether the old mount has gone. `doing`: the
/// attach, for people.
pub(super) fn both_halves(
    (attached, gone): (rustix::io::Result<()>, Result<(), Stop>),
    doing: &str,
    take_off: impl FnOnce(),
    put_back: impl FnOnce() -> bool,
) -> Result<(), Stop> {
    match (attached, gone) {
        (Ok(()), Ok(())) => Ok(()),
        (Ok(()), Err(stop)) => {
            // The new one lies on the old one, which nobody has asked for.
            take_off();
            Err(stop)
        }
        (Err(_), Err(stop)) => Err(stop),
        (Err(errno), Ok(())) => {
            let end = if put_back() { "the old one is back" } else { "nothing is mounted there now" };
            Err(Stop::call(format!("{doing} ({end})"), errno))
        }
    }
}

#[cfg(test)]
mod tests;
