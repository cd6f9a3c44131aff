//! The new tree for one place: cloned at its own root, with exactly the options of the mount that it replaces, before
//! anybody can see it.

use std::os::fd::{AsFd, OwnedFd};

use agent_core::remediation::Refusal;
use agent_core::topology::Mount;
use rustix::io::Errno;

use super::{Base, look};
use crate::remediation::attributes::{exact, exact_in_old_flags};
use crate::remediation::scene::{Scene, Stop};
use crate::remediation::stage;
use crate::sys::mount_attributes::{self, Attributes, Kin};
use crate::sys::{mount, mount_exactly};

/// What is cloned.
pub(super) struct Source<'a> {
    pub(super) base: &'a Base,
    /// The place on it.
    pub(super) inner: &'a OwnedFd,
    /// What the copy is to be to it.
    pub(super) kin: Kin,
}

/// A detached copy that looks like the old mount.
pub(super) fn clone(scene: &Scene, source: &Source<'_>, old: &Mount) -> Result<OwnedFd, Stop> {
    let tree = mount_exactly::clone_tree(source.inner.as_fd())
        .map_err(|errno| Stop::call(format!("clone the mount at {}", source.base.mount.mountpoint), errno))?;
    dress_as(scene, (tree, source.kin), old, look::is_directory(source.inner) != Some(false))
}

/// Gives a detached tree the options of a mount.
pub(in crate::remediation) fn dress(
    scene: &Scene,
    tree: OwnedFd,
    old: &Mount,
    is_directory: bool,
) -> Result<OwnedFd, Stop> {
    dress_as(scene, (tree, Kin::None), old, is_directory)
}

fn dress_as(
    scene: &Scene,
    (tree, kin): (OwnedFd, Kin),
    old: &Mount,
    is_directory: bool,
) -> Result<OwnedFd, Stop> {
    // Whoever looks at a new one would see, and write, other owners.
    if old.options.has("idmapped") {
        let text = "its owners are mapped, and a new mount cannot take the mapping over".to_owned();
        return Err(Stop::Refused(Refusal::ConsumersLeft, text));
    }
    match mount_attributes::set(tree.as_fd(), Attributes { kin, ..exact(old) }) {
        Ok(()) => Ok(tree),
        Err(Errno::NOSYS) if is_directory => at_private_place(scene, &tree, |place| {
            mount::make_private(place)
                .map_err(|errno| Stop::call("take the new mount from its peers", errno))?;
            mount::set_options(place, exact_in_old_flags(old))
                .map_err(|errno| Stop::call("set the options of the new mount", errno))?;
            mount::clone_tree(place).map_err(|errno| Stop::call("clone the new mount", errno))
        }),
        Err(Errno::NOSYS) => {
            let text =
                "the options of a single file's mount cannot be set unseen before Linux 5.12".to_owned();
            Err(Stop::Refused(Refusal::ConsumersLeft, text))
        }
        Err(errno) => Err(Stop::call("set the options of the new mount", errno)),
    }
}

/// Attaches a tree where nobody sees it, for something that cannot be done to a detached one.
pub(super) fn at_private_place<T>(
    scene: &Scene,
    tree: &OwnedFd,
    act: impl FnOnce(&agent_core::path::BytePath) -> Result<T, Stop>,
) -> Result<T, Stop> {
    let place = &scene.stage;
    if scene.stack(place)?.is_empty() {
        stage::make_root_directory(&scene.stage_root)?;
        stage::prepare_root(scene)?;
        stage::prepare_place(scene)?;
    }
    mount::attach(tree, place).map_err(|errno| Stop::call(format!("mount at {place}"), errno))?;
    let result = act(place);
    mount::detach(place).map_err(|errno| Stop::call(format!("detach what is at {place}"), errno))?;
    result
}

/// Whether two mounts have the same options, as far as those of one mount go.
pub(super) fn has_same_options(old: &Mount, new: &Mount) -> bool {
    exact(old).set == exact(new).set
}
