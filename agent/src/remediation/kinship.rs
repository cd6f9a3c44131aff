//! How mount events travel to and from a mount that takes another one's place: what is mounted inside it appears in its
//! peers and slaves, and what is mounted inside its master appears in it.

use std::os::fd::BorrowedFd;

use agent_core::topology::Propagation;

use crate::sys::mount_attributes::{self, Kin, Sharing};

/// What a new mount can be to the volume's own new mount: the same as the old one was to the volume's old one. To
/// whatever else the old one belonged, the new one cannot: a peer group is one file system's.
///
/// kernel: `do_set_group`, fs/namespace.c, since 5.15: not across superblocks.
pub(super) fn kin(old: &Propagation, volumes: Option<u32>) -> Kin {
    match volumes {
        Some(group) if old.shared == Some(group) => Kin::Peer,
        Some(group) if old.master == Some(group) => Kin::Slave,
        Some(_) | None => Kin::None,
    }
}

/// Undoes what the parent has made of a new mount, as far as the old one was not that, and says what is lost.
///
/// kernel: `attach_recursive_mnt`, fs/namespace.c: under a shared parent whatever is attached becomes shared.
pub(super) fn restore(mount: BorrowedFd<'_>, now: &Propagation, old: &Propagation) -> Option<String> {
    let wanted = wanted(now, old);
    if let Some(Err(errno)) = wanted.map(|sharing| mount_attributes::share(mount, sharing)) {
        return Some(format!("its propagation is another one than before: {errno}"));
    }
    lost(now, old)
}

fn wanted(now: &Propagation, old: &Propagation) -> Option<Sharing> {
    if old.unbindable {
        return (!now.unbindable).then_some(Sharing::Unbindable);
    }
    match (old.shared.is_some(), now.shared.is_some()) {
        (true, false) => Some(Sharing::Shared),
        (false, true) if old.master.is_some() && now.master.is_some() => Some(Sharing::Slave),
        (false, true) => Some(Sharing::Private),
        (true, true) | (false, false) => None,
    }
}

/// What nothing can bring back.
pub(super) fn lost(now: &Propagation, old: &Propagation) -> Option<String> {
    let master = old.master.filter(|_| now.master.is_none())?;
    Some(format!(
        "it receives no more what is mounted inside the mounts of peer group {master}; mount it again there"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn of(shared: Option<u32>, master: Option<u32>) -> Propagation {
        Propagation { shared, master, unbindable: false }
    }

    #[test]
    fn a_mount_is_to_the_new_volume_what_it_was_to_the_old_one() {
        for (old, volumes, expected) in [
            (of(Some(5), None), Some(5), Kin::Peer),
            (of(None, Some(5)), Some(5), Kin::Slave),
            (of(Some(6), Some(5)), Some(5), Kin::Slave),
            (of(Some(6), None), Some(5), Kin::None),
            (of(None, Some(6)), Some(5), Kin::None),
            (of(None, None), None, Kin::None),
            (of(None, Some(5)), None, Kin::None),
        ] {
            assert_eq!(kin(&old, volumes), expected, "{old:?} {volumes:?}");
        }
    }

    #[test]
    fn what_the_parent_made_of_it_is_undone_and_what_is_lost_is_told() {
        for (now, old, expected) in [
            (of(None, None), of(None, None), None),
            (of(Some(8), None), of(Some(5), None), None),
            (of(Some(8), None), of(None, None), Some(Sharing::Private)),
            (of(Some(8), Some(9)), of(None, Some(5)), Some(Sharing::Slave)),
            (of(Some(8), None), of(None, Some(5)), Some(Sharing::Private)),
            (of(None, None), of(Some(5), None), Some(Sharing::Shared)),
        ] {
            assert_eq!(wanted(&now, &old), expected, "{now:?} {old:?}");
        }
        let unbindable = Propagation { unbindable: true, ..of(None, None) };
        assert_eq!(wanted(&of(Some(8), None), &unbindable), Some(Sharing::Unbindable));
        assert_eq!(wanted(&unbindable, &unbindable), None);
        assert_eq!(lost(&of(None, Some(9)), &of(None, Some(5))), None);
        assert_eq!(lost(&of(Some(8), None), &of(Some(5), None)), None);
        assert!(lost(&of(None, None), &of(None, Some(5))).is_some_and(|text| text.contains("group 5")));
    }
}
