//! Trees inside one another, put together where nobody sees it. What lies inside another mount goes with that one when
//! it is detached: so what takes the other one's place has all of it inside from its first moment, and nowhere is a
//! path that shows the directory below, or that can be written to for a moment.

use std::os::fd::{AsFd, OwnedFd};

use agent_core::path::BytePath;

use super::dress;
use crate::remediation::scene::{Scene, Stop, say};
use crate::sys::mount_exactly;

/// One that lies inside.
pub(super) struct Nested {
    pub(super) tree: OwnedFd,
    /// The one of the others that it lies on, by its position; `None`: the outermost. That one comes before it.
    pub(super) onto: Option<usize>,
    /// Where on that.
    pub(super) at: BytePath,
    /// Where it will be, for people.
    pub(super) path: BytePath,
}

/// All of them as one detached tree.
pub(super) fn nest(scene: &Scene, outer: OwnedFd, inside: &[Nested]) -> Result<OwnedFd, Stop> {
    let mut places = Vec::with_capacity(inside.len());
    // Before any of them is attached: one may lie on a directory that another one covers.
    for Nested { onto, at, path, .. } in inside {
        let onto = onto.and_then(|position| inside.get(position)).map_or(&outer, |other| &other.tree);
        let place = mount_exactly::below(onto, at)
            .map_err(|errno| Stop::call(format!("find the place for what is mounted at {path}"), errno))?;
        places.push(place);
    }
    dress::at_private_place(scene, &outer, |_| {
        for (Nested { tree, path, .. }, place) in inside.iter().zip(&places) {
            say(format!("put the mount for {path} into the one around it"));
            mount_exactly::attach(tree, place).map_err(|errno| {
                Stop::call(format!("put the mount for {path} into the one around it"), errno)
            })?;
        }
        mount_exactly::clone_whole(outer.as_fd())
            .map_err(|errno| Stop::call("clone the new mount with all that is inside", errno))
    })
}
