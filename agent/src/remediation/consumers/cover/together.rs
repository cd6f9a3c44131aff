//! Takes an old mount away together with those that lie inside it: they keep it in use.
//!
//! They go right before it, and in the moment in between their places show directories of it. So that nobody writes
//! there through a place that was read-only, it lets nobody write meanwhile. Should it then be in use itself, all is
//! put back.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use agent_core::path::BytePath;
use agent_core::remediation::Refusal;
use agent_core::remediation::consumers::{Bind, Kind, Wanted};
use agent_core::topology::Mount;
use rustix::io::Errno;

use super::{busy, failed, resolve, top_as, unmount_as};
use crate::remediation::consumers::exchange::{changed, hold};
use crate::remediation::consumers::top_of;
use crate::remediation::scene::{STACK_LIMIT, Scene, Stop, say};
use crate::sys::mount_exactly::{self, Place, Usage};
use crate::sys::{clock, look, mount_attributes};

/// What is to go.
pub(super) struct Gone<'a> {
    pub(super) scene: &'a Scene,
    pub(super) wanted: &'a Wanted<'a>,
    pub(super) outer: &'a Bind,
    /// What lies above comes before what lies below.
    pub(super) inside: &'a [&'a Bind],
}

/// One that goes, and a copy of it.
struct Inside<'a> {
    bind: &'a Bind,
    /// Lies on the mount around it, and keeps that in use.
    place: Place,
    top: Mount,
    tree: OwnedFd,
}

/// A copy of one that has to go, and where it is to be put back.
struct Keepsake {
    path: BytePath,
    tree: OwnedFd,
}

/// What is put back where not all could be taken away.
struct Undo<'a> {
    scene: &'a Scene,
    place: &'a Place,
    /// The deepest first.
    keepsakes: Vec<Keepsake>,
    /// Lets nobody write meanwhile, and did before.
    readonly: Option<Mount>,
}

/// All of them away, with the guard in their place. Says how long the places inside have shown something else.
pub(super) fn take_away(gone: &Gone<'_>, guard: &OwnedFd) -> Result<Duration, Stop> {
    let Gone { scene, wanted, outer, inside } = gone;
    let place = resolve(&outer.mount.mountpoint)?;
    let top = top_as(scene, wanted, &place, outer)?;
    // All is looked at before the first goes: reading the table takes its time.
    let insides = inside.iter().rev().map(|bind| look_at(gone, bind)).collect::<Result<Vec<_>, _>>()?;
    let mut undo = Undo { scene, place: &place, keepsakes: Vec::new(), readonly: None };
    undo.let_nobody_write(&top)?;
    let begun = clock::now();
    let result =
        take_insides(gone, insides, &mut undo).and_then(|()| take_outer(gone, &top, guard, &mut undo));
    let gap = clock::now().since(begun);
    match result {
        Ok(()) => scene.expect_gone(&top).map(|()| gap),
        Err(stop) => Err(undo.put_back(stop)),
    }
}

fn look_at<'a>(gone: &Gone<'_>, bind: &'a Bind) -> Result<Inside<'a>, Stop> {
    let path = &bind.mount.mountpoint;
    let place = resolve(path)?;
    let top = top_as(gone.scene, gone.wanted, &place, bind)?;
    let held = hold(gone.scene, &place, &top)?;
    let tree = mount_exactly::clone_tree(held.as_fd()).map_err(|errno| match errno {
        // kernel: `may_copy_tree` (`__do_loopback` before 6.15), fs/namespace.c: EINVAL for one that is unbindable.
        Errno::INVAL if top.propagation.unbindable => {
            let text =
                format!("{path} is in the way: it is unbindable, and could not be put back if need be");
            Stop::Refused(Refusal::Busy, text)
        }
        errno => Stop::call(format!("keep a copy of the mount at {path}"), errno),
    })?;
    Ok(Inside { bind, place, top, tree })
}

/// The deepest first.
fn take_insides(gone: &Gone<'_>, insides: Vec<Inside<'_>>, undo: &mut Undo<'_>) -> Result<(), Stop> {
    for Inside { bind, place, mut top, tree } in insides {
        let path = &bind.mount.mountpoint;
        undo.keepsakes.push(Keepsake { path: path.clone(), tree });
        say(format!("unmount {path}"));
        unmount_as(gone.scene, &place, &top)?;
        for _ in 0..bind.surplus.min(STACK_LIMIT) {
            let next = top_of(&gone.scene.table()?, gone.wanted, path);
            let Some((next, _)) = next.filter(|(_, kind)| *kind == bind.kind) else { break };
            top = next;
            unmount_as(gone.scene, &place, &top)?;
        }
    }
    Ok(())
}

fn take_outer(gone: &Gone<'_>, top: &Mount, guard: &OwnedFd, undo: &mut Undo<'_>) -> Result<(), Stop> {
    let Gone { scene, wanted, outer, .. } = gone;
    let (place, path) = (undo.place, &top.mountpoint);
    let attach = || place.attach(guard).map_err(|errno| Stop::call(format!("put a guard at {path}"), errno));
    let mut top = top.clone();
    for _ in 0..outer.surplus.min(STACK_LIMIT) {
        unmount_as(scene, place, &top)?;
        undo.readonly = None;
        let table = scene.table()?;
        match top_of(&table, wanted, path) {
            Some((next, Kind::Old)) => {
                undo.let_nobody_write(&next)?;
                top = next;
            }
            // A plan that was cut off has left a guard beneath.
            Some((_, Kind::Guard)) => return Ok(()),
            None if table.stack_at(path).is_empty() => return attach(),
            None => return Err(changed()),
        }
    }
    // One that is about to be refused would leave a guard beneath it. It also lets go of the last place inside.
    match place.usage().map_err(|errno| failed(path, errno))? {
        Usage::Busy => return Err(busy(path)),
        Usage::Gone => return attach(),
        Usage::Idle => {}
    }
    say(format!("put a guard beneath {path}"));
    let beneath = mount_exactly::attach_beneath(guard, &hold(scene, place, &top)?);
    match beneath {
        Ok(()) => unmount_as(scene, place, &top),
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
            unmount_as(scene, place, &top)?;
            attach()
        }
        Err(errno) => Err(Stop::call(format!("put a guard beneath {path}"), errno)),
    }
}

impl Undo<'_> {
    fn let_nobody_write(&mut self, top: &Mount) -> Result<(), Stop> {
        if top.options.has("ro") {
            return Ok(());
        }
        let held = hold(self.scene, self.place, top)?;
        match mount_attributes::set_readonly(held.as_fd(), true) {
            Ok(()) => self.readonly = Some(top.clone()),
            // Before 5.12 there is no call for it.
            Err(Errno::NOSYS) => {}
            Err(Errno::BUSY) => return Err(busy(&top.mountpoint)),
            Err(errno) => return Err(Stop::call(format!("let nobody write at {}", top.mountpoint), errno)),
        }
        Ok(())
    }

    /// Puts back as much as it can, whatever else fails, and says what it could not.
    fn put_back(self, why: Stop) -> Stop {
        let Self { scene, place, keepsakes, readonly } = self;
        // The outermost of them first.
        let lost = keepsakes.into_iter().rev().filter_map(|keepsake| {
            let failed = keepsake.put_back().err()?;
            Some(format!("; {}", failed.into_step().text))
        });
        let mut lost: Vec<String> = lost.collect();
        if let Some(top) = readonly {
            let writable = hold(scene, place, &top).and_then(|held| {
                mount_attributes::set_readonly(held.as_fd(), false).map_err(|errno| {
                    Stop::call(format!("let programs write at {} again", top.mountpoint), errno)
                })
            });
            lost.extend(writable.err().map(|failed| format!("; {}", failed.into_step().text)));
        }
        why.and(&lost.concat())
    }
}

impl Keepsake {
    /// Unless it is still there, or something else is.
    fn put_back(&self) -> Result<(), Stop> {
        let Self { path, tree } = self;
        let failed = |errno| Stop::call(format!("put the mount back at {path}"), errno);
        let place = resolve(path)?;
        // The table also has what lies in a guard beneath: only what is seen at the path counts.
        if look::is_mount_root(&place.hold().map_err(failed)?).map_err(failed)? {
            return Ok(());
        }
        place.attach(tree).map_err(failed)
    }
}
