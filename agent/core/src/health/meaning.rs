//! What an errno says, by what stands behind the mount and by the step that met it.
//!
//! [`crate::errno`] has what a number says in general. Here is where that is wrong: one table, a row for each number
//! and kind of file system, with the reason beside it.

use crate::errno::{Errno, ErrnoClass};
use crate::fstype::FsClass;
use crate::observation::ProbeStep;

/// One exception.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// The number.
    pub errno: Errno,
    /// The file systems on which it says something else.
    pub classes: &'static [FsClass],
    /// What it says there.
    pub says: ErrnoClass,
}

const BLOCK: &[FsClass] = &[FsClass::Block];
const NETWORK: &[FsClass] = &[FsClass::Network];

const fn on(classes: &'static [FsClass], errno: u16, says: ErrnoClass) -> Exception {
    Exception { errno: Errno(errno), classes, says }
}

/// Every exception.
pub const EXCEPTIONS: &[Exception] = &[
    // A disk that does not answer in time. There is no server that could come back.
    //
    // kernel: `blk_errors`, block/blk-core.c: BLK_STS_TIMEOUT, since 4.13.
    on(BLOCK, 110, ErrnoClass::IoError),
    // The transport to a disk (iSCSI, nbd, multipath): the device is what is sick.
    on(BLOCK, 107, ErrnoClass::IoError),
    on(BLOCK, 108, ErrnoClass::IoError),
    on(BLOCK, 112, ErrnoClass::IoError),
    on(BLOCK, 113, ErrnoClass::IoError),
    // A handle without its inode: damage, or somebody's old handle. No server has forgotten anything.
    //
    // kernel: `__ext4_iget`, fs/ext4/inode.c: ESTALE for a handle, EFSCORRUPTED (EUCLEAN) for a name; since 5.0.
    on(BLOCK, 116, ErrnoClass::IoError),
    // Files encrypted by fscrypt, opened without their key: whoever has no key is refused, all day.
    //
    // kernel: `fscrypt_file_open`, `__fscrypt_prepare_link`, `__fscrypt_prepare_rename`, fs/crypto/hooks.c, since 4.15.
    on(BLOCK, 126, ErrnoClass::Refused),
    on(BLOCK, 127, ErrnoClass::Refused),
    on(BLOCK, 128, ErrnoClass::Refused),
    on(BLOCK, 129, ErrnoClass::Refused),
    // The session with the server ended. Unlike a FUSE connection, which never comes back, the client makes a new one
    // by itself: a server that is away, so patience first.
    //
    // kernel: `cifs_reconnect`, fs/smb/client/connect.c; `xprt_force_disconnect`, net/sunrpc/xprt.c.
    on(NETWORK, 103, ErrnoClass::HostDown),
    on(NETWORK, 107, ErrnoClass::HostDown),
    on(NETWORK, 108, ErrnoClass::HostDown),
];

/// A number that only looks meet: nobody's programs cause it on a file, so the kernel does not count it.
#[derive(Clone, Copy, Debug)]
pub struct MetByLooks {
    /// The number.
    pub errno: Errno,
    /// The symbolic name.
    pub name: &'static str,
    /// What it says on network file systems, FUSE, block devices, and elsewhere.
    says: [ErrnoClass; 4],
}

const fn met(errno: u16, name: &'static str, says: [ErrnoClass; 4]) -> MetByLooks {
    MetByLooks { errno: Errno(errno), name, says }
}

impl MetByLooks {
    /// What it says on this kind of file system.
    #[must_use]
    pub const fn says(&self, fs: FsClass) -> ErrnoClass {
        let [network, fuse, block, elsewhere] = self.says;
        match fs {
            FsClass::Network => network,
            FsClass::Fuse => fuse,
            FsClass::Block => block,
            FsClass::Autofs | FsClass::Overlay | FsClass::Memory | FsClass::Pseudo | FsClass::Other => {
                elsewhere
            }
        }
    }
}

/// The other end hung up, once: the client of a server connects anew by itself, as above. A disk has no other end.
const HUNG_UP: [ErrnoClass; 4] =
    [ErrnoClass::HostDown, ErrnoClass::Disconnected, ErrnoClass::IoError, ErrnoClass::Disconnected];
const NOBODY_THERE: [ErrnoClass; 4] =
    [ErrnoClass::HostDown, ErrnoClass::HostDown, ErrnoClass::IoError, ErrnoClass::HostDown];
/// A FUSE connection is refused where its daemon went, or failed, before the first request was answered.
///
/// kernel: `fuse_get_req`, fs/fuse/dev.c, `process_init_reply`, fs/fuse/inode.c, since 2.6.14.
const REFUSED: [ErrnoClass; 4] =
    [ErrnoClass::HostDown, ErrnoClass::Disconnected, ErrnoClass::IoError, ErrnoClass::HostDown];

/// Every one of them. A probe that meets one has met the fault.
pub const MET_BY_LOOKS: &[MetByLooks] = &[
    met(32, "EPIPE", HUNG_UP),
    met(62, "ETIME", NOBODY_THERE),
    met(100, "ENETDOWN", NOBODY_THERE),
    met(101, "ENETUNREACH", NOBODY_THERE),
    met(104, "ECONNRESET", HUNG_UP),
    met(111, "ECONNREFUSED", REFUSED),
];

/// What an errno says on this kind of file system; `None` where it is not counted.
#[must_use]
pub fn class_of(errno: Errno, fs: FsClass) -> Option<ErrnoClass> {
    let general = errno.class()?;
    let exception = EXCEPTIONS.iter().find(|row| row.errno == errno && row.classes.contains(&fs));
    Some(exception.map_or(general, |row| row.says))
}

/// What a failed step says.
pub(super) enum Meaning {
    /// A class of the table.
    Class(ErrnoClass),
    /// The agent could not look, for a reason of its own (memory, descriptors, a signal).
    OwnTrouble,
    /// The path does not lead there from where the agent stands.
    NotReachable,
    /// An errno that says nothing certain about the storage.
    Uncertain,
}

pub(super) fn meaning(step: ProbeStep, errno: Errno, fs: FsClass) -> Meaning {
    match (errno.0, step) {
        // EINTR, EAGAIN, ENOMEM, ENFILE, EMFILE.
        (4 | 11 | 12 | 23 | 24, _) => Meaning::OwnTrouble,
        // ENOENT, ENOTDIR.
        (2 | 20, ProbeStep::Identity | ProbeStep::Device) => Meaning::NotReachable,
        // ENODATA: a disk's answer for a sector that it cannot read, past the cache. Elsewhere it only says that an
        // attribute is not there, so nobody counts it.
        // kernel: `blk_errors`, block/blk-core.c: BLK_STS_MEDIUM, since 4.13.
        (61, ProbeStep::Sentinel | ProbeStep::Device) => Meaning::Class(ErrnoClass::IoError),
        // A device node that may not be opened says nothing about the file system.
        (1 | 13, ProbeStep::Device) => Meaning::NotReachable,
        _ => of_look(errno, fs).map_or(Meaning::Uncertain, Meaning::Class),
    }
}

fn of_look(errno: Errno, fs: FsClass) -> Option<ErrnoClass> {
    let row = MET_BY_LOOKS.iter().find(|row| row.errno == errno);
    row.map(|row| row.says(fs)).or_else(|| class_of(errno, fs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exception_says_something_else_and_no_case_has_two() {
        for row in EXCEPTIONS {
            assert_ne!(row.errno.class(), Some(row.says), "{:?}", row.errno);
            assert!(row.errno.row().is_some());
            for fs in row.classes {
                let same = |other: &&Exception| other.errno == row.errno && other.classes.contains(fs);
                assert_eq!(EXCEPTIONS.iter().filter(same).count(), 1, "{:?} {fs:?}", row.errno);
            }
        }
    }

    #[test]
    fn one_errno_says_different_things_of_different_file_systems() {
        use ErrnoClass::{Auth, Disconnected, HostDown, IoError, Refused, Stale};
        let says = |errno| {
            [FsClass::Fuse, FsClass::Network, FsClass::Block].map(|fs| class_of(Errno(errno), fs).unwrap())
        };
        assert_eq!(says(107), [Disconnected, HostDown, IoError], "ENOTCONN");
        assert_eq!(says(103), [Disconnected, HostDown, Disconnected], "ECONNABORTED");
        assert_eq!(says(116), [Stale, Stale, IoError], "ESTALE");
        assert_eq!(says(110), [HostDown, HostDown, IoError], "ETIMEDOUT");
        assert_eq!(says(126), [Auth, Auth, Refused], "ENOKEY");
        assert_eq!(says(19), [IoError, IoError, IoError], "ENODEV");
        assert_eq!(class_of(Errno(2), FsClass::Fuse), None);
    }

    #[test]
    fn what_only_looks_meet_is_counted_nowhere_and_stands_in_one_table() {
        assert!(MET_BY_LOOKS.windows(2).all(|pair| pair[0].errno < pair[1].errno));
        assert!(MET_BY_LOOKS.iter().all(|row| row.errno.row().is_none()));
    }
}
