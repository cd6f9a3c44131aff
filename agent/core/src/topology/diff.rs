//! From one snapshot to the next: which lines came, went, or changed.

use core::cmp::Ordering;

use alloc::vec::Vec;

use crate::topology::{Mount, MountTable};

/// The lines that are not the same in both tables; a line that changed is given twice, as it was and as it is.
#[must_use]
pub fn changed<'a>(old: &'a MountTable, new: &'a MountTable) -> Vec<&'a Mount> {
    let mut changed = Vec::new();
    let mut before = old.in_id_order().peekable();
    let mut after = new.in_id_order().peekable();
    loop {
        let order = match (before.peek(), after.peek()) {
            (None, None) => return changed,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(was), Some(is)) => was.id.cmp(&is.id),
        };
        match order {
            Ordering::Less => changed.extend(before.next()),
            Ordering::Greater => changed.extend(after.next()),
            Ordering::Equal => {
                let (was, is) = (before.next(), after.next());
                // Lines that stayed are often the same object in both tables.
                let is_same = was.zip(is).is_some_and(|(was, is)| core::ptr::eq(was, is));
                if !is_same && was != is {
                    changed.extend(was);
                    changed.extend(is);
                }
            }
        }
    }
}
