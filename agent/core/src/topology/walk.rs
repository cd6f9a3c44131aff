//! Path walks by the table alone: which mount a walk to a path ends on.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::path::BytePath;
use crate::topology::{Mount, MountTable};

/// Walks over one table, which remember where many mounts lie over one another: a `mount` that is repeated leaves
/// thousands at one place, and every walk to or below it would go through them again.
#[derive(Debug)]
pub struct Walks<'a> {
    table: &'a MountTable,
    /// What a walk comes to at a place of several mounts. A walk to a place always comes the same way.
    crossed: BTreeMap<Vec<u8>, Option<&'a Mount>>,
}

impl<'a> Walks<'a> {
    /// Nothing is remembered yet.
    #[must_use]
    pub const fn new(table: &'a MountTable) -> Self {
        Self { table, crossed: BTreeMap::new() }
    }

    /// The mount whose root a path walk to exactly this path ends on. A mount that lies below a directory over
    /// which something was mounted later is in the table, and not visible.
    ///
    /// kernel: `__follow_mount_rcu`, fs/namei.c: the walk crosses whatever is mounted on the current mount.
    pub fn visible_at(&mut self, path: &BytePath) -> Option<&'a Mount> {
        self.walk(path).1
    }

    /// The mount on which a path walk ends: the one at this path, else the one that the path lies in.
    pub fn mount_of(&mut self, path: &BytePath) -> Option<&'a Mount> {
        let (below, found) = self.walk(path);
        found.or(below)
    }

    /// The mount that the last component lies in, and the one that is at exactly this path.
    fn walk(&mut self, path: &BytePath) -> (Option<&'a Mount>, Option<&'a Mount>) {
        let table = self.table;
        let mut current = self.remembered(b"/", |stack| stack.last().copied());
        if path.as_bytes() == b"/" {
            return (None, current);
        }
        for end in component_ends(path.as_bytes()) {
            let prefix = path.as_bytes().get(..end).unwrap_or_default();
            let from = current;
            let found = self.remembered(prefix, |stack| table.crossed(stack, from));
            if end == path.as_bytes().len() {
                return (current, found);
            }
            current = found.or(current);
        }
        (current, None)
    }

    fn remembered(
        &mut self,
        path: &[u8],
        choose: impl FnOnce(&[&'a Mount]) -> Option<&'a Mount>,
    ) -> Option<&'a Mount> {
        if let Some(known) = self.crossed.get(path) {
            return *known;
        }
        let lines = self.table.lines_at(path);
        if lines.len() < 2 {
            return choose(&lines);
        }
        let found = choose(&self.table.in_order_of_standing(lines));
        self.crossed.insert(path.to_vec(), found);
        found
    }
}

/// Where each component of an absolute path ends.
fn component_ends(path: &[u8]) -> impl Iterator<Item = usize> {
    let slashes =
        path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/').map(|(position, _)| position);
    slashes.chain(core::iter::once(path.len()))
}
