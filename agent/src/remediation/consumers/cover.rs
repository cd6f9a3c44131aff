//! Takes the old mounts away and leaves guards in their places: for file systems whose device can be mounted only once,
//! and that come back as new only when nobody holds them any more.
//!
//! Nothing goes that is in use. A guard goes in beneath the old mount first, so that no program ever meets the bare
//! directory: it finds the old file system, and then one that nobody can write to.

use std::os::fd::OwnedFd;
use std::time::Duration;

use agent_core::path::BytePath;
use agent_core::remediation::consumers::{Bind, Kind, Stays, Wanted, guard_source, is_guard};
use agent_core::remediation::{Outcome, Refusal};
use agent_core::topology::{Mount, Propagation};
use rustix::io::Errno;

use super::exchange::{changed, hold};
use super::{Order, Survey, Tally, Visit, dress, top_of};
use crate::remediation::kinship;
use crate::remediation::scene::{STACK_LIMIT, Scene, Stop, say};
use crate::remediation::wire::Step;
use crate::sys::mount_exactly::{self, Guard, Place};
use crate::sys::{clock, look};

/// Whether all old mounts of one namespace could be taken away. Asked everywhere before the first of them goes: where one
/// is in use, nobody else shall lose the volume for it.
pub(in crate::remediation) fn may_cover(scene: &Scene, order: &Order) -> Result<Step, Stop> {
    let Some(visit) = Visit::new(scene, order)? else {
        return Ok(Step::new(Outcome::AlreadySo, "the namespace is gone"));
    };
    let wanted = order.wanted(scene);
    let binds = to_cover(&visit, &wanted)?;
    for Bind { mount: Mount { mountpoint: path, .. }, .. } in &binds {
        visit.there(|| {
            let place = resolve(path)?;
            old_top(scene, &wanted, &place, path)?;
            let is_busy = place.is_busy().map_err(|errno| Stop::call(format!("unmount {path}"), errno))?;
            // Its use takes back the mark that the question has left.
            let _ = place.hold();
            if is_busy { Err(busy(path)) } else { Ok(()) }
        })?;
    }
    Ok(Step::new(Outcome::AlreadySo, format!("{} mounts are not in use", binds.len())))
}

/// The old mounts of one namespace, if none has to stay: that one would keep the superblock alive.
fn to_cover(visit: &Visit<'_>, wanted: &Wanted<'_>) -> Result<Vec<Bind>, Stop> {
    let Survey { mut binds, left } = visit.survey(wanted)?;
    binds.retain(|bind| !is_guard(&bind.mount));
    match left.iter().find(|stays| stays.kind == Kind::Old) {
        Some(Stays { place, why, .. }) => {
            Err(Stop::Refused(Refusal::Busy, format!("{place} has to stay: {}", why.text())))
        }
        None => Ok(binds),
    }
}

/// Guards in the places of all old mounts of one namespace.
pub(in crate::remediation) fn cover(scene: &Scene, order: &Order) -> Result<Step, Stop> {
    let Some(visit) = Visit::new(scene, order)? else {
        return Ok(Step::new(Outcome::AlreadySo, "the namespace is gone"));
    };
    let wanted = order.wanted(scene);
    let binds = to_cover(&visit, &wanted)?;
    let mut tally = Tally::default();
    // What lies inside another goes before it.
    for bind in binds.iter().rev() {
        let guard = guard(&visit, bind)?;
        visit.there(|| cover_one(scene, &wanted, (bind, &guard), &mut tally))?;
        tally.done.push(bind.mount.mountpoint.clone());
    }
    Ok(tally.into_step("guarded"))
}

fn guard(visit: &Visit<'_>, bind: &Bind) -> Result<OwnedFd, Stop> {
    let is_directory = visit.there(|| {
        let place = resolve(&bind.mount.mountpoint)?;
        let held = place.hold().map_err(|errno| Stop::call("look at it", errno))?;
        Ok(look::is_directory(&held) != Some(false))
    })?;
    make(visit.scene, &bind.mount, &bind.inner, is_directory)
}

/// A detached guard that stands for a mount, with its options.
fn make(scene: &Scene, mount: &Mount, inner: &BytePath, is_directory: bool) -> Result<OwnedFd, Stop> {
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
    tally.detached.push(bind.mount.id.0);
    // A guard is another file system, and cannot keep the place among the peers of this one.
    tally.note(path, kinship::lost(&Propagation::default(), &bind.mount.propagation));
    Ok(())
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
    let before = scene.stack(path)?.len();
    let asked = clock::now();
    // One that is about to be refused would leave a guard beneath it.
    if place.is_busy().map_err(|errno| Stop::call(format!("unmount {path}"), errno))? {
        return Err(busy(path));
    }
    if scene.stack(path)?.len() < before {
        // Somebody had marked it already, so that the question itself has unmounted it.
        place.attach(guard).map_err(|errno| Stop::call(format!("put a guard at {path}"), errno))?;
        return Ok(clock::now().since(asked));
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
    // Not held meanwhile: it would be in use.
    hold(scene, place, top)?;
    place.unmount().map_err(|errno| match errno {
        Errno::BUSY => busy(path),
        errno => Stop::call(format!("unmount {path}"), errno),
    })?;
    scene.expect_gone(top)
}

/// Unmounts the volume's own top mount, with a guard beneath it. Nothing is there but the guard after that.
pub(in crate::remediation) fn guard_place(scene: &Scene, top: &Mount) -> Result<(), Stop> {
    let path = &scene.mountpoint;
    let guard = make(scene, top, &BytePath::from(""), true)?;
    take_away(scene, &resolve(path)?, top, &guard).map(drop)
}
