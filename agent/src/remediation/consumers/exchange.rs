//! One mount for another at one place of a namespace, named by descriptors: whoever may change the directories of a
//! container leads nobody elsewhere.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use agent_core::remediation::Refusal;
use agent_core::remediation::consumers::{Bind, Wanted};
use agent_core::topology::Mount;
use rustix::io::Errno;

use super::top_of;
use crate::remediation::scene::{STACK_LIMIT, Scene, Stop, say};
use crate::remediation::swap::both_halves;
use crate::sys::mount_exactly::{self, Place};
use crate::sys::{clock, look};

/// What an exchange came to.
#[derive(Default)]
pub(super) struct Exchanged {
    /// How long neither was there; zero with beneath.
    pub(super) gap: Option<Duration>,
    /// The ids of the mounts that went.
    pub(super) detached: Vec<u32>,
}

/// The new tree in the place of the old mount.
pub(super) fn exchange(
    scene: &Scene,
    wanted: &Wanted<'_>,
    bind: &Bind,
    tree: &OwnedFd,
    new: &OwnedFd,
) -> Result<Exchanged, Stop> {
    let path = &bind.mount.mountpoint;
    let place = Place::resolve(path).map_err(|errno| Stop::call(format!("resolve {path}"), errno))?;
    let Some((mut top, _)) = top_of(&scene.table()?, wanted, path) else {
        return fill(scene, bind, &place, tree);
    };
    if top.id != bind.mount.id {
        return Err(changed());
    }
    let mut exchanged = Exchanged::default();
    for _ in 0..bind.surplus.min(STACK_LIMIT) {
        let held = hold(scene, &place, &top)?;
        detach(scene, (&place, held), &top, &mut exchanged)?;
        let next = top_of(&scene.table()?, wanted, path).ok_or_else(changed)?;
        top = next.0;
    }
    let held = hold(scene, &place, &top)?;
    refuse_other_kind(&held, new)?;
    say(format!("move the new mount beneath the old one at {path}"));
    match mount_exactly::attach_beneath(tree, &held) {
        Ok(()) => {
            detach(scene, (&place, held), &top, &mut exchanged)?;
            exchanged.gap = Some(Duration::ZERO);
        }
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
            exchanged.gap = Some(back_to_back(scene, (&place, held), &top, tree)?);
            exchanged.detached.push(top.id.0);
        }
        Err(errno) => return Err(Stop::call("move the new mount beneath the old one", errno)),
    }
    Ok(exchanged)
}

/// The new one is there already, by propagation; or that took away the one it lay inside.
fn fill(scene: &Scene, bind: &Bind, place: &Place, tree: &OwnedFd) -> Result<Exchanged, Stop> {
    if !scene.stack(&bind.mount.mountpoint)?.is_empty() {
        return Ok(Exchanged::default());
    }
    if !bind.is_inside {
        return Err(changed());
    }
    place.attach(tree).map_err(|errno| Stop::call("mount inside the new mount", errno))?;
    Ok(Exchanged { gap: None, detached: vec![bind.mount.id.0] })
}

pub(super) fn changed() -> Stop {
    Stop::Refused(Refusal::TableChanged, "somebody else changed what is mounted there".to_owned())
}

/// The root of the mount that the table shows on top, and of no other.
pub(super) fn hold(scene: &Scene, place: &Place, top: &Mount) -> Result<OwnedFd, Stop> {
    let held = place.hold().map_err(|errno| Stop::call("look at it", errno))?;
    match look::mount_id(&scene.proc, &held) {
        Ok(found) if found == top.id => Ok(held),
        Ok(_) => Err(changed()),
        Err(errno) => Err(Stop::call("tell which mount it is", errno)),
    }
}

/// A file cannot take the place of a directory. Asked before anything is moved; a root that does not say what it is
/// is tried.
fn refuse_other_kind(old: &OwnedFd, new: &OwnedFd) -> Result<(), Stop> {
    match (look::is_directory(old), look::is_directory(new)) {
        (Some(old), Some(new)) if old != new => {
            let text = "it is a directory on one file system and a file on the other".to_owned();
            Err(Stop::Refused(Refusal::ConsumersLeft, text))
        }
        _ => Ok(()),
    }
}

fn detach(
    scene: &Scene,
    (place, held): (&Place, OwnedFd),
    mount: &Mount,
    exchanged: &mut Exchanged,
) -> Result<(), Stop> {
    say(format!("detach the old mount at {}", mount.mountpoint));
    // There is no call that takes a mount away by a descriptor, so it is looked at right before and right after.
    hold(scene, place, mount)?;
    mount_exactly::detach(&scene.proc, &held).map_err(|errno| Stop::call("detach the old mount", errno))?;
    // The last reference may take for ever to drop.
    scene.keep(held);
    scene.expect_gone(mount)?;
    exchanged.detached.push(mount.id.0);
    Ok(())
}

/// Detach and attach, with nothing in between but the two calls. Should the second fail, the old one goes back.
fn back_to_back(
    scene: &Scene,
    (place, held): (&Place, OwnedFd),
    top: &Mount,
    tree: &OwnedFd,
) -> Result<Duration, Stop> {
    // With all that is inside: it goes with the old one.
    let keepsake = mount_exactly::clone_whole(held.as_fd()).ok();
    say(format!("detach the old mount at {} and mount the new one", top.mountpoint));
    hold(scene, place, top)?;
    let begun = clock::now();
    mount_exactly::detach(&scene.proc, &held).map_err(|errno| Stop::call("detach the old mount", errno))?;
    let attached = place.attach(tree);
    let gap = clock::now().since(begun);
    scene.keep(held);
    // Not before the new one is there: reading the table takes its time.
    let gone = scene.expect_gone(top);
    let result = both_halves(
        (attached, gone),
        "mount the new one",
        || {
            let _ = place.hold().and_then(|above| mount_exactly::detach(&scene.proc, &above));
        },
        || keepsake.as_ref().is_some_and(|old| place.attach(old).is_ok()),
    );
    keepsake.into_iter().for_each(|old| scene.keep(old));
    result.map(|()| gap)
}
