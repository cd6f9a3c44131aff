//! Takes mounts away: the old one plainly, a left-over top, and whatever is at the private place.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use agent_core::id::SuperblockId;
use agent_core::path::BytePath;
use agent_core::remediation::consumers::is_guard;
use agent_core::remediation::{Outcome, Refusal};
use agent_core::topology::Mount;
use rustix::fs::{AtFlags, CWD, unlinkat};
use rustix::io::Errno;

use super::attributes::{Former, again};
use super::consumers::{dress, guard_place};
use super::kinship;
use super::scene::{STACK_LIMIT, Scene, Stop, say};
use super::stage::{clear_place, make_root_directory, prepare_place, prepare_root};
use super::swap::refuse_mounts_below;
use super::wire::Step;
use crate::sys::device_name::device_name;
use crate::sys::{clock, look, mount, mount_exactly};

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
    scene.refuse_another(&top)?;
    refuse_mounts_below(scene, &scene.table()?, &stack)?;
    for _ in 0..STACK_LIMIT {
        let Some((mount, below)) = stack.split_last().filter(|(mount, _)| scene.is_old(mount.superblock))
        else {
            break;
        };
        scene.expect_top(mount)?;
        // A guard takes the place of the last one, so that nobody meets the bare directory.
        match below.last() {
            Some(next) if scene.makes_room(next) => unmount_top(scene, mount)?,
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

fn unmount_top(scene: &Scene, top: &Mount) -> Result<(), Stop> {
    let place = &top.mountpoint;
    say(format!("unmount {place}"));
    match mount::unmount(place) {
        Ok(()) => scene.expect_gone(top),
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
/// open. Mounting the device shows it again, so that whoever reads it goes on as before.
fn put_back(scene: &Scene, old: &Mount) -> Stop {
    let place = &scene.mountpoint;
    let why = format!(
        "superblock {} is still in use elsewhere; mounting its device shows it again",
        old.superblock
    );
    let told = match mount_again(scene, old) {
        Ok(None) => format!("{why}; put back at {place}"),
        Ok(Some(lost)) => format!("{why}; put back at {place}, but {lost}"),
        Err(stop) => format!(
            "{why}; it could not be put back ({}), and a guard keeps programs from writing at {place}",
            stop.into_step().text
        ),
    };
    Stop::Refused(Refusal::SameSuperblock, told)
}

/// Mounts the device aside, and shows what stood at the place: the same directory of it, with the options of the one
/// mount, in the place of the guard. Where it cannot be that, the guard stays.
fn mount_again(scene: &Scene, old: &Mount) -> Result<Option<String>, Stop> {
    make_root_directory(&scene.stage_root)?;
    prepare_root(scene)?;
    prepare_place(scene)?;
    let aside = &scene.stage;
    say(format!("mount the device again at {aside}"));
    mount::mount_plainly(&old.source, aside, &old.fstype, again(old), whole(&old.fstype))
        .map_err(|errno| Stop::call(format!("mount the device again at {aside}"), errno))?;
    let shown = as_it_stood(scene, old).and_then(|tree| show_again(scene, &tree, old));
    let cleared = clear_place(scene);
    let lost = shown?;
    cleared.map(|_| lost)
}

/// The old file system was taken away, and no new one came in its place: what it was of is shown again, read-only,
/// where the guard keeps it free.
pub(super) fn show_read_only(scene: &Scene) -> Result<Step, Stop> {
    let place = &scene.mountpoint;
    let old =
        scene.former.as_ref().zip(scene.holding()).map(|(former, holding)| former.read_only(place, holding));
    let guard = scene.stack(place)?.pop().filter(is_guard);
    let (Some(old), Some(_)) = (old, guard) else {
        return Ok(Step::new(Outcome::AlreadySo, format!("nothing was taken away at {place}")));
    };
    // What is still there of a new mount keeps the device for itself; what hangs in it is left.
    if !scene.stack(&scene.stage)?.is_empty() {
        let _ = mount::unmount(&scene.stage);
    }
    let lost = mount_again(scene, &old)?;
    let mut text = format!("{place} shows its device again, read-only, as no new mount of it came");
    if let Some(lost) = lost {
        text.push_str(&format!("; {lost}"));
    }
    let mut step = Step::new(Outcome::Changed, text);
    step.shown_at = Some(clock::now());
    Ok(step)
}

/// An option without which a mount of the device shows another directory than the one that paths of the table begin at.
///
/// kernel: `btrfs_get_tree_subvol`, fs/btrfs/super.c, since 3.0: the default subvolume may be any.
fn whole(fstype: &str) -> Option<&'static CStr> {
    (fstype == "btrfs").then_some(c"subvolid=5")
}

/// What stood at the place, as a detached tree.
fn as_it_stood(scene: &Scene, old: &Mount) -> Result<OwnedFd, Stop> {
    let (aside, root) = (&scene.stage, &old.root);
    let doing = |errno| Stop::call(format!("find {root} on the device"), errno);
    if root.as_bytes().ends_with(b"//deleted") {
        return Err(doing(Errno::NOENT));
    }
    let whole = look::hold(aside).map_err(doing)?;
    let relative = BytePath::new(root.as_bytes().strip_prefix(b"/").unwrap_or(root.as_bytes()));
    let inner = mount_exactly::below(&whole, &relative).map_err(doing)?;
    let tree = mount_exactly::clone_tree(inner.as_fd()).map_err(doing)?;
    dress(scene, tree, old, look::is_directory(&inner) != Some(false))
}

/// Shows it in the place of the guard, and says what of it is lost.
fn show_again(scene: &Scene, tree: &OwnedFd, old: &Mount) -> Result<Option<String>, Stop> {
    let place = &scene.mountpoint;
    let Some(guard) = scene.stack(place)?.pop().filter(is_guard) else {
        let text = format!("somebody else changed what is mounted at {place}");
        return Err(Stop::Refused(Refusal::TableChanged, text));
    };
    match mount::attach_beneath(tree, place) {
        Ok(()) => scene.detach(&guard)?,
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
            let keepsake = mount::clone_tree(place).ok();
            scene.detach(&guard)?;
            mount::attach(tree, place).map_err(|errno| {
                let _ = keepsake.map(|guard| mount::attach(&guard, place));
                Stop::call(format!("mount at {place}"), errno)
            })?;
        }
        Err(errno) => return Err(Stop::call(format!("mount at {place}"), errno)),
    }
    let top = scene.stack(place)?.pop();
    let held = look::hold(place).ok();
    let pair = top.zip(held);
    Ok(pair.and_then(|(top, held)| kinship::restore(held.as_fd(), &top.propagation, &old.propagation)))
}

/// Finishes a swap that was cut off between its two halves.
pub(super) fn detach_top(scene: &Scene) -> Result<Step, Stop> {
    let place = &scene.mountpoint;
    let stack = scene.stack(place)?;
    // An autofs trap below was there before; without the old mount it would be sprung.
    let is_covered = matches!(stack.as_slice(), [.., below, top]
        if scene.is_old(top.superblock)
            && scene.proves_old(top) == Some(true)
            && !scene.makes_room(below)
            && !scene.was_there(below)
            && below.fstype != "autofs");
    if !is_covered {
        return Ok(Step::new(Outcome::AlreadySo, format!("no old mount covers another at {place}")));
    }
    // Somebody may have mounted inside it since it was cut off.
    refuse_mounts_below(scene, &scene.table()?, &stack)?;
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
