//! The new trees for the places of one namespace, made before anything is moved: each with its own root and the options
//! of the mount that it replaces, and what lies inside another one put into that.

use std::os::fd::OwnedFd;

use agent_core::path::BytePath;
use agent_core::remediation::Refusal;
use agent_core::remediation::consumers::{Bind, inner};
use rustix::io::Errno;

use super::{Base, dress, exchange, nest};
use crate::remediation::kinship;
use crate::remediation::scene::{Scene, Stop, say};
use crate::sys::mount_attributes::Kin;
use crate::sys::mount_exactly;

/// Whether one is mounted somewhere inside another one. Nobody else's lies between them: what has such a one inside
/// stays.
pub(super) fn lies_inside(bind: &Bind, outer: &Bind) -> bool {
    let (path, outer) = (&bind.mount.mountpoint, &outer.mount.mountpoint);
    bind.is_inside && path != outer && path.is_within(outer)
}

/// The one of these that another one lies on.
pub(super) fn around<'a>(
    trees: impl Iterator<Item = (usize, &'a Bind)>,
    bind: &Bind,
) -> Option<(usize, &'a Bind)> {
    trees
        .filter(|(_, outer)| lies_inside(bind, outer))
        .max_by_key(|(_, outer)| outer.mount.mountpoint.as_bytes().len())
}

/// Those that lie inside another one, on a directory that the new file system does not have: they would go with the
/// other one and could not come back.
pub(super) fn without_their_place(trees: &[Tree<'_>]) -> Vec<usize> {
    let has_place = |bind: &Bind| {
        let outer = around(trees.iter().map(|tree| tree.bind).enumerate(), bind);
        let outer = outer.and_then(|(index, _)| trees.get(index));
        outer.is_none_or(|outer| {
            let below = inner(&outer.bind.mount.mountpoint, &bind.mount.mountpoint);
            below.is_some_and(|below| mount_exactly::below(&outer.inner, &below).is_ok())
        })
    };
    let lost = trees.iter().enumerate().filter(|(_, tree)| !has_place(tree.bind));
    lost.map(|(index, _)| index).collect()
}

/// The tree for one place, with those for all places inside it.
pub(super) fn assemble(
    scene: &Scene,
    base: &Base,
    trees: &mut [Tree<'_>],
    index: usize,
) -> Result<Whole, Stop> {
    let binds: Vec<&Bind> = trees.iter().map(|tree| tree.bind).collect();
    let Some(outer) = binds.get(index) else { return Err(exchange::changed()) };
    let members: Vec<usize> = (0..binds.len())
        .filter(|member| binds.get(*member).is_some_and(|bind| lies_inside(bind, outer)))
        .collect();
    let mut take = |index: usize| trees.get_mut(index).ok_or_else(exchange::changed)?.take(scene, base);
    let tree = take(index)?;
    let mut inside = Vec::with_capacity(members.len());
    for &member in &members {
        let Some(&bind) = binds.get(member) else { continue };
        let candidates = members.iter().chain([&index]).filter_map(|at| Some((*at, *binds.get(*at)?)));
        let Some((onto, outer)) = around(candidates, bind) else { continue };
        let path = bind.mount.mountpoint.clone();
        let at = inner(&outer.mount.mountpoint, &path).unwrap_or_else(|| BytePath::from(""));
        let onto = members.iter().position(|member| *member == onto);
        inside.push(nest::Nested { tree: take(member)?, onto, at, path });
    }
    let tree = if inside.is_empty() { tree } else { nest::nest(scene, tree, &inside)? };
    let inner = trees.get(index).map(|tree| tree.inner.try_clone());
    match inner {
        Some(Ok(inner)) => Ok(Whole { inner, tree }),
        _ => Err(Stop::call("keep a descriptor", Errno::MFILE)),
    }
}

/// The new tree for one place, and its root on the new file system.
pub(super) struct Whole {
    pub(super) inner: OwnedFd,
    pub(super) tree: OwnedFd,
}

/// A tree that shows the new file system as a mount showed the old one.
pub(super) struct Tree<'a> {
    pub(super) bind: &'a Bind,
    inner: OwnedFd,
    /// Taken where it went into another one.
    tree: Option<OwnedFd>,
    carries: bool,
}

impl<'a> Tree<'a> {
    pub(super) fn prepare(scene: &Scene, base: &Base, bind: &'a Bind, carries: bool) -> Result<Self, Stop> {
        let (inner, tree) = prepare(scene, base, bind, carries)?;
        Ok(Self { bind, inner, tree: Some(tree), carries })
    }

    /// A new one, where the first went into one that did not find its place.
    fn take(&mut self, scene: &Scene, base: &Base) -> Result<OwnedFd, Stop> {
        match self.tree.take() {
            Some(tree) => Ok(tree),
            None => prepare(scene, base, self.bind, self.carries).map(|(_, tree)| tree),
        }
    }
}

/// `carries`: others are put into it.
fn prepare(scene: &Scene, base: &Base, bind: &Bind, carries: bool) -> Result<(OwnedFd, OwnedFd), Stop> {
    say(format!("find /{} on the new file system", bind.inner));
    let volumes = scene.former.as_ref().and_then(|former| former.shared);
    let kin = kinship::kin(&scene.propagation_of(&bind.mount), volumes);
    // What is put into a peer would appear in the volume.
    let kin = if carries && kin == Kin::Peer { Kin::None } else { kin };
    let (kin, root) = match &base.shared {
        Some(shared) if kin != Kin::None => (kin, shared),
        Some(_) | None => (Kin::None, &base.root),
    };
    let inner = mount_exactly::below(root, &bind.inner).map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV => {
            let text = format!("/{} is not on the new file system", bind.inner);
            Stop::Refused(Refusal::ConsumersLeft, text)
        }
        errno => Stop::call(format!("find /{} on the new file system", bind.inner), errno),
    })?;
    let source = dress::Source { base, inner: &inner, kin };
    let tree = dress::clone(scene, &source, &bind.mount)?;
    Ok((inner, tree))
}
