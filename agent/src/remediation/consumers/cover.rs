//! Takes the old mounts away and leaves guards in their places: for file systems whose device can be mounted only once,
//! and that come back as new only when nobody holds them any more.
//!
//! Nothing goes that is in use. A guard goes in beneath the old mount first, so that no program ever meets the bare
//! directory: it finds the old file system, and then one that nobody can write to.

use std::os::fd::OwnedFd;
use std::time::Duration;

use agent_core::path::BytePath;
use agent_core::remediation::consumers::{Bind, Kind, Stays, Wanted, guard_source, inner};
use agent_core::remediation::{Outcome, Refusal};
use agent_core::topology::{Mount, Propagation};
use rustix::io::Errno;

use super::exchange::{changed, hold};
use super::nest::{Nested, nest};
use super::trees::{around, lies_inside};
use super::{Order, Survey, Tally, Visit, dress, top_of};
use crate::remediation::kinship;
use crate::remediation::scene::{STACK_LIMIT, Scene, Stop, say};
use crate::remediation::wire::Step;
use crate::sys::mount_exactly::{self, Guard, Place, Usage};
use crate::sys::{clock, look};

mod together;

use together::Gone;

/// Whether all old mounts of one namespace could be taken away. Asked everywhere before the first of them goes: where one
/// is in use, nobody else shall lose the volume for it.
pub(in crate::remediation) fn may_cover(scene: &Scene, order: &Order) -> Result<Step, Stop> {
    let Some(visit) = Visit::new(scene, order)? else {
        return Ok(Step::new(Outcome::AlreadySo, "the namespace is gone"));
    };
    let wanted = order.wanted(scene);
    let binds = to_cover(&visit, &wanted)?;
    let mut asked: usize = 0;
    for bind in &binds {
        // One with others inside is in use by those: it is asked when they have gone, and they come back if it stays.
        if binds.iter().any(|other| lies_inside(other, bind)) {
            continue;
        }
        let path = &bind.mount.mountpoint;
        visit.there(|| {
            let place = resolve(path)?;
            top_as(scene, &wanted, &place, bind)?;
            let usage = place.usage().map_err(|errno| Stop::call(format!("unmount {path}"), errno))?;
            // Its use takes back the mark that the question has left.
            let _ = place.hold();
            if usage == Usage::Busy { Err(busy(path)) } else { Ok(()) }
        })?;
        asked = asked.saturating_add(1);
    }
    Ok(Step::new(Outcome::AlreadySo, format!("{asked} mounts are not in use")))
}

/// The old mounts of one namespace, if none has to stay: that one would keep the superblock alive. With what lies
/// inside them, guards too.
fn to_cover(visit: &Visit<'_>, wanted: &Wanted<'_>) -> Result<Vec<Bind>, Stop> {
    let Survey { binds, left } = visit.survey(wanted)?;
    if let Some(Stays { place, why, .. }) = left.iter().find(|stays| stays.kind == Kind::Old) {
        return Err(Stop::Refused(Refusal::Busy, format!("{place} has to stay: {}", why.text())));
    }
    let old: Vec<Bind> = binds.iter().filter(|bind| bind.kind == Kind::Old).cloned().collect();
    let goes = |bind: &Bind| bind.kind == Kind::Old || old.iter().any(|outer| lies_inside(bind, outer));
    Ok(binds.into_iter().filter(goes).collect())
}

/// Guards in the places of all old mounts of one namespace.
pub(in crate::remediation) fn cover(scene: &Scene, order: &Order) -> Result<Step, Stop> {
    let Some(visit) = Visit::new(scene, order)? else {
        return Ok(Step::new(Outcome::AlreadySo, "the namespace is gone"));
    };
    let wanted = order.wanted(scene);
    let binds = to_cover(&visit, &wanted)?;
    let mut tally = Tally::default();
    for outer in binds.iter().rev().filter(|bind| !binds.iter().any(|outer| lies_inside(bind, outer))) {
        let inside: Vec<&Bind> = binds.iter().filter(|bind| lies_inside(bind, outer)).collect();
        let guard = guard(&visit, outer, &inside)?;
        if inside.is_empty() {
            visit.there(|| cover_one(scene, &wanted, (outer, &guard), &mut tally))?;
        } else {
            let gone = Gone { scene, wanted: &wanted, outer, inside: &inside };
            let gap = visit.there(|| together::take_away(&gone, &guard))?;
            tally.gap = tally.gap.max(Some(gap));
        }
        for bind in [outer].into_iter().chain(inside).filter(|bind| bind.kind == Kind::Old) {
            tally.detached.push(bind.mount.id.0);
            // A guard is another file system, and cannot keep the place among the peers of this one.
            tally.note(
                &bind.mount.mountpoint,
                kinship::lost(&Propagation::default(), &bind.mount.propagation),
            );
            tally.done.push(bind.mount.mountpoint.clone());
        }
    }
    Ok(tally.into_step("guarded"))
}

/// A detached guard for a mount, with guards inside it for all that lies inside that.
fn guard(visit: &Visit<'_>, outer: &Bind, inside: &[&Bind]) -> Result<OwnedFd, Stop> {
    let all: Vec<&Bind> = [outer].into_iter().chain(inside.iter().copied()).collect();
    let mut are_directories = Vec::with_capacity(all.len());
    for bind in &all {
        are_directories.push(visit.there(|| {
            let held = resolve(&bind.mount.mountpoint)?.hold();
            let held = held.map_err(|errno| Stop::call("look at it", errno))?;
            Ok(look::is_directory(&held) != Some(false))
        })?);
    }
    let around = |bind: &Bind| around(all.iter().copied().enumerate(), bind);
    let at = |outer: &Bind, bind: &Bind| {
        inner(&outer.mount.mountpoint, &bind.mount.mountpoint).unwrap_or_else(|| BytePath::from(""))
    };
    let mut guards = Vec::with_capacity(all.len());
    for (position, (bind, is_directory)) in all.iter().zip(&are_directories).enumerate() {
        let holds: Vec<(BytePath, bool)> = all
            .iter()
            .zip(&are_directories)
            .filter(|(other, _)| around(other).is_some_and(|(outer, _)| outer == position))
            .map(|(other, is_directory)| (at(bind, other), *is_directory))
            .collect();
        guards.push(make(visit.scene, (&bind.mount, &bind.inner), *is_directory, &holds)?);
    }
    let mut guards = guards.into_iter();
    let Some(whole) = guards.next() else { return Err(changed()) };
    if inside.is_empty() {
        return Ok(whole);
    }
    let nested = inside.iter().zip(guards).map(|(bind, tree)| {
        let (onto, outer) = around(bind).unwrap_or((0, outer));
        let path = bind.mount.mountpoint.clone();
        Nested { tree, onto: onto.checked_sub(1), at: at(outer, bind), path }
    });
    nest(visit.scene, whole, &nested.collect::<Vec<_>>())
}

/// A detached guard that stands for a mount, with its options and with places for others inside.
fn make(
    scene: &Scene,
    (mount, inner): (&Mount, &BytePath),
    is_directory: bool,
    holds: &[(BytePath, bool)],
) -> Result<OwnedFd, Stop> {
    let failed = |errno| Stop::call("make a guard", errno);
    let guard = Guard::new(&guard_source(&scene.volume, inner)).map_err(failed)?;
    let tree = if is_directory {
        guard.mount.try_clone().map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?
    } else {
        dress::at_private_place(scene, &guard.mount, |place| {
            let root = look::hold(place).map_err(failed)?;
            let file = guard.make_file(&root).map_err(failed)?;
            mount_exactly::clone_tree(std::os::fd::AsFd::as_fd(&file)).map_err(failed)
        })?
    };
    for (place, is_directory) in holds {
        guard.make_place(place, *is_directory).map_err(failed)?;
    }
    guard.seal().map_err(failed)?;
    dress::dress(scene, tree, mount, is_directory)
}

fn resolve(path: &BytePath) -> Result<Place, Stop> {
    Place::resolve(path).map_err(|errno| Stop::call(format!("resolve {path}"), errno))
}

fn cover_one(
    scene: &Scene,
    wanted: &Wanted<'_>,
    (bind, guard): (&Bind, &OwnedFd),
    tally: &mut Tally,
) -> Result<(), Stop> {
    let path = &bind.mount.mountpoint;
    let place = resolve(path)?;
    for _ in 0..bind.surplus.min(STACK_LIMIT) {
        let top = old_top(scene, wanted, &place, path)?;
        unmount(scene, &place, &top)?;
    }
    if top_of(&scene.table()?, wanted, path).is_some_and(|(_, kind)| kind == Kind::Guard) {
        // Propagation has brought it.
        return Ok(());
    }
    let top = old_top(scene, wanted, &place, path)?;
    let gap = take_away(scene, &place, &top, guard)?;
    tally.gap = tally.gap.max(Some(gap));
    Ok(())
}

/// The top mount there, as long as it is the one that was found.
fn top_as(scene: &Scene, wanted: &Wanted<'_>, place: &Place, bind: &Bind) -> Result<Mount, Stop> {
    let top = top_of(&scene.table()?, wanted, &bind.mount.mountpoint);
    let (top, _) =
        top.filter(|(top, kind)| top.id == bind.mount.id && *kind == bind.kind).ok_or_else(changed)?;
    hold(scene, place, &top)?;
    Ok(top)
}

/// Whatever somebody else has mounted there meanwhile is not ours to unmount.
fn old_top(scene: &Scene, wanted: &Wanted<'_>, place: &Place, path: &BytePath) -> Result<Mount, Stop> {
    let top = top_of(&scene.table()?, wanted, path).filter(|(_, kind)| *kind == Kind::Old);
    let (top, _) = top.ok_or_else(changed)?;
    hold(scene, place, &top)?;
    Ok(top)
}

/// Unmounts the top mount at a place, with a guard beneath it.
fn take_away(scene: &Scene, place: &Place, top: &Mount, guard: &OwnedFd) -> Result<Duration, Stop> {
    let path = &top.mountpoint;
    let asked = clock::now();
    // One that is about to be refused would leave a guard beneath it.
    match place.usage().map_err(|errno| Stop::call(format!("unmount {path}"), errno))? {
        Usage::Busy => return Err(busy(path)),
        // Somebody had marked it already, so that the question itself has unmounted it.
        Usage::Gone => {
            place.attach(guard).map_err(|errno| Stop::call(format!("put a guard at {path}"), errno))?;
            return Ok(clock::now().since(asked));
        }
        Usage::Idle => {}
    }
    say(format!("put a guard beneath {path}"));
    let beneath = mount_exactly::attach_beneath(guard, &hold(scene, place, top)?);
    match beneath {
        Ok(()) => {
            unmount(scene, place, top)?;
            Ok(Duration::ZERO)
        }
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
            let begun = clock::now();
            unmount(scene, place, top)?;
            place.attach(guard).map_err(|errno| Stop::call(format!("put a guard at {path}"), errno))?;
            Ok(clock::now().since(begun))
        }
        Err(errno) => Err(Stop::call(format!("put a guard beneath {path}"), errno)),
    }
}

fn busy(path: &BytePath) -> Stop {
    Stop::Refused(Refusal::Busy, format!("{path} is in use"))
}

fn unmount(scene: &Scene, place: &Place, top: &Mount) -> Result<(), Stop> {
    let path = &top.mountpoint;
    say(format!("unmount {path}"));
    unmount_as(scene, place, top)?;
    scene.expect_gone(top)
}

/// Unmounts the top mount there, if it is this one and nobody uses it.
fn unmount_as(scene: &Scene, place: &Place, top: &Mount) -> Result<(), Stop> {
    // Not held when it goes: it would be in use.
    hold(scene, place, top)?;
    place.unmount().map_err(|errno| failed(&top.mountpoint, errno))
}

fn failed(path: &BytePath, errno: Errno) -> Stop {
    match errno {
        Errno::BUSY => busy(path),
        errno => Stop::call(format!("unmount {path}"), errno),
    }
}

/// Unmounts the volume's own top mount, with a guard beneath it. Nothing is there but the guard after that.
pub(in crate::remediation) fn guard_place(scene: &Scene, top: &Mount) -> Result<(), Stop> {
    let path = &scene.mountpoint;
    let guard = make(scene, (top, &BytePath::from("")), true, &[])?;
    take_away(scene, &resolve(path)?, top, &guard).map(drop)
}
