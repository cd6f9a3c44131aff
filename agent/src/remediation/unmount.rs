//! Takes mounts away: the old one plainly, a left-over top, and whatever is at the private place.

use std::path::Path;

use agent_core::id::SuperblockId;
use agent_core::path::BytePath;
use agent_core::remediation::consumers::is_guard;
use agent_core::remediation::{Outcome, Refusal};
use agent_core::topology::Mount;
use rustix::fs::{AtFlags, CWD, unlinkat};
use rustix::io::Errno;

use super::attributes::{Former, again};
use super::consumers::guard_place;
use super::scene::{STACK_LIMIT, Scene, Stop, say};
use super::stage::{clear_place, make_root_directory, prepare_place, prepare_root};
use super::wire::Step;
use crate::sys::device_name::device_name;
use crate::sys::{clock, look, mount};

/// Unmounts the old superblock at the mount point, so that its device can be mounted afresh. Never lazily: a
/// detached superblock lives on as long as anyone has a file open, and mounting the device shows it again.
pub(super) fn unmount_old(scene: &Scene) -> Result<Step, Stop> {
    let place = &scene.mountpoint;
    let mut stack = scene.stack(place)?;
    let Some(top) = stack.last().filter(|top| !is_guard(top)).cloned() else {
        let mut step = Step::new(Outcome::AlreadySo, format!("nothing is mounted at {place}"));
        step.number_proves_nothing = scene.old.is_some_and(|old| is_gone(scene, old, None));
        return Ok(step);
    };
    if !scene.is_old(top.superblock) {
        let text = format!("{place} shows superblock {}, not the old one", top.superblock);
        return Err(Stop::Refused(Refusal::TableChanged, text));
    }
    for _ in 0..STACK_LIMIT {
        let Some((mount, below)) = stack.split_last().filter(|(mount, _)| scene.is_old(mount.superblock))
        else {
            break;
        };
        scene.expect_top(mount)?;
        // A guard takes the place of the last one, so that nobody meets the bare directory.
        match below.last() {
            Some(next) if scene.makes_room(next) => unmount_top(place)?,
            Some(_) | None => guard_place(scene, mount)?,
        }
        stack = scene.stack(place)?;
    }
    let gone_at = clock::now();
    if !is_gone(scene, top.superblock, Some(&top)) {
        return Err(put_back(scene, &top));
    }
    let mut step =
        Step::new(Outcome::Changed, format!("unmounted {place}; superblock {} is gone", top.superblock));
    step.gone_at = Some(gone_at);
    step.number_proves_nothing = true;
    step.former = Some(Former::of(&top));
    Ok(step)
}

fn unmount_top(place: &BytePath) -> Result<(), Stop> {
    say(format!("unmount {place}"));
    match mount::unmount(place) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(Stop::Refused(Refusal::Busy, format!("{place} is in use"))),
        Err(errno) => Err(Stop::call(format!("unmount {place}"), errno)),
    }
}

/// Whether the superblock no longer exists: the kernel then gives its number to a new one.
fn is_gone(scene: &Scene, superblock: SuperblockId, was: Option<&Mount>) -> bool {
    let device = was.map(|mount| mount.source.clone()).filter(|source| source.starts_with(b"/"));
    let by_number = || device_name(Path::new("/sys/dev/block"), superblock);
    let device = device.or_else(|| by_number().map(|name| format!("/dev/{name}").into_bytes()));
    if let Some(is_released) = device.and_then(|device| look::is_released(&device)) {
        return is_released;
    }
    // No device to ask: as far as this namespace shows.
    scene.table().is_ok_and(|table| table.showing(superblock).next().is_none())
}

/// Somebody else keeps the sick superblock alive: a bind, another namespace, a mount that was detached with files
/// open. Mounting the device shows it again, so that at least nobody writes into the bare directory.
fn put_back(scene: &Scene, old: &Mount) -> Stop {
    let place = &scene.mountpoint;
    let why = format!(
        "superblock {} is still in use elsewhere; mounting its device shows it again",
        old.superblock
    );
    match mount_again(scene, old) {
        Ok(()) => Stop::Refused(Refusal::SameSuperblock, format!("{why}; put back at {place}")),
        Err(errno) => {
            let errno = super::scene::core_errno(errno);
            Stop::Refused(Refusal::SameSuperblock, format!("{why}; putting it back at {place}: {errno}"))
        }
    }
}

/// Mounts the device with the options that the old mount had: aside, and from there in the place of the guard.
fn mount_again(scene: &Scene, old: &Mount) -> Result<(), Errno> {
    let again = again(old);
    let aside = &scene.stage;
    let prepared = make_root_directory(&scene.stage_root)
        .and_then(|()| prepare_root(scene))
        .and_then(|()| prepare_place(scene));
    prepared.map_err(|_| Errno::NOTDIR)?;
    mount::mount_plainly(&old.source, aside, &old.fstype, again.first)?;
    again.then.map_or(Ok(()), |flags| mount::set_options(aside, flags))?;
    let tree = mount::clone_tree(aside)?;
    let place = &scene.mountpoint;
    match mount::attach_beneath(&tree, place) {
        Ok(()) => mount::detach(place)?,
        Err(_) => {
            mount::detach(place)?;
            mount::attach(&tree, place)?;
        }
    }
    mount::detach(aside)
}

/// Finishes a swap that was cut off between its two halves.
pub(super) fn detach_top(scene: &Scene) -> Result<Step, Stop> {
    let place = &scene.mountpoint;
    let stack = scene.stack(place)?;
    // An autofs trap below was there before; without the old mount it would be sprung.
    let is_covered = matches!(stack.as_slice(), [.., below, top]
        if scene.is_old(top.superblock) && !scene.makes_room(below) && below.fstype != "autofs");
    if !is_covered {
        return Ok(Step::new(Outcome::AlreadySo, format!("no old mount covers another at {place}")));
    }
    if let Some(top) = stack.last() {
        scene.detach(top)?;
    }
    Ok(Step::new(Outcome::Changed, format!("detached the old mount that covered another at {place}")))
}

/// Leaves nothing at the private place. The directory goes only if it is empty: what is in it stays.
pub(super) fn unstage(scene: &Scene) -> Result<Step, Stop> {
    let place = &scene.stage;
    let had_mounts = clear_place(scene)?;
    match unlinkat(CWD, place.as_bytes(), AtFlags::REMOVEDIR) {
        Ok(()) => Ok(Step::new(Outcome::Changed, format!("removed {place}"))),
        Err(Errno::NOENT) if !had_mounts => {
            Ok(Step::new(Outcome::AlreadySo, format!("{place} is not there")))
        }
        Err(Errno::NOENT) => Ok(Step::new(Outcome::Changed, format!("detached what was mounted at {place}"))),
        Err(Errno::NOTEMPTY | Errno::BUSY) => {
            let outcome = if had_mounts { Outcome::Changed } else { Outcome::AlreadySo };
            Ok(Step::new(outcome, format!("left the directory {place}, which is not empty")))
        }
        Err(errno) => Err(Stop::call(format!("remove the directory {place}"), errno)),
    }
}
