//! The one table that classifies error numbers.
//!
//! A number stays an [`Errno`] everywhere else. A new errno is one row here: the kernel programs count what
//! this table lists, metrics print its names, the rules read its classes.

use core::fmt;

/// An error number of the kernel, positive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Errno(pub u16);

/// What an errno says about the file system that answered it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ErrnoClass {
    /// The handle or the export behind the mount is no longer what it was.
    Stale,
    /// Storage answered with an error, or is gone.
    IoError,
    /// The other end of the connection is gone (a FUSE daemon, a session).
    Disconnected,
    /// The server cannot be reached.
    HostDown,
    /// A key or credential is missing, expired or refused.
    Auth,
    /// Writing is refused by the file system.
    Readonly,
    /// No space or no quota: storage works.
    Full,
    /// The caller may not look. Evidence only where looking was allowed before.
    Refused,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct ErrnoRow {
    /// The number on x86-64 and arm64.
    pub errno: Errno,
    /// The symbolic name, the value of the `errno` label.
    pub name: &'static str,
    /// What it says.
    pub class: ErrnoClass,
}

const fn row(number: u16, name: &'static str, class: ErrnoClass) -> ErrnoRow {
    ErrnoRow { errno: Errno(number), name, class }
}

/// Every errno that is counted. `EAGAIN` and `EINTR` are not faults and must never be added.
pub const COUNTED: &[ErrnoRow] = &[
    row(1, "EPERM", ErrnoClass::Refused),
    row(5, "EIO", ErrnoClass::IoError),
    row(6, "ENXIO", ErrnoClass::IoError),
    row(13, "EACCES", ErrnoClass::Refused),
    row(19, "ENODEV", ErrnoClass::IoError),
    row(28, "ENOSPC", ErrnoClass::Full),
    row(30, "EROFS", ErrnoClass::Readonly),
    row(67, "ENOLINK", ErrnoClass::IoError),
    row(74, "EBADMSG", ErrnoClass::IoError),
    row(103, "ECONNABORTED", ErrnoClass::Disconnected),
    row(107, "ENOTCONN", ErrnoClass::Disconnected),
    row(108, "ESHUTDOWN", ErrnoClass::Disconnected),
    row(110, "ETIMEDOUT", ErrnoClass::HostDown),
    row(112, "EHOSTDOWN", ErrnoClass::HostDown),
    row(113, "EHOSTUNREACH", ErrnoClass::HostDown),
    row(116, "ESTALE", ErrnoClass::Stale),
    row(117, "EUCLEAN", ErrnoClass::IoError),
    row(121, "EREMOTEIO", ErrnoClass::IoError),
    row(122, "EDQUOT", ErrnoClass::Full),
    row(123, "ENOMEDIUM", ErrnoClass::IoError),
    row(126, "ENOKEY", ErrnoClass::Auth),
    row(127, "EKEYEXPIRED", ErrnoClass::Auth),
    row(128, "EKEYREVOKED", ErrnoClass::Auth),
    row(129, "EKEYREJECTED", ErrnoClass::Auth),
];

impl ErrnoClass {
    /// The class as a list of one.
    #[must_use]
    pub const fn alone(self) -> &'static [Self] {
        match self {
            Self::Stale => &[Self::Stale],
            Self::IoError => &[Self::IoError],
            Self::Disconnected => &[Self::Disconnected],
            Self::HostDown => &[Self::HostDown],
            Self::Auth => &[Self::Auth],
            Self::Readonly => &[Self::Readonly],
            Self::Full => &[Self::Full],
            Self::Refused => &[Self::Refused],
        }
    }
}

impl Errno {
    /// Stands for numbers outside the table that have no row of their own in a list of totals.
    pub const OTHER: Self = Self(0);

    /// Stands for what nobody has told.
    pub const UNKNOWN: Self = Self(u16::MAX);

    /// The row of a counted errno.
    #[must_use]
    pub fn row(self) -> Option<&'static ErrnoRow> {
        COUNTED.iter().find(|row| row.errno == self)
    }

    /// The class, where the table lists the errno.
    #[must_use]
    pub fn class(self) -> Option<ErrnoClass> {
        self.row().map(|row| row.class)
    }

    /// The bounded label: the symbolic name, `unknown`, or `other`.
    #[must_use]
    pub fn label(self) -> &'static str {
        let unlisted = if self == Self::UNKNOWN { "unknown" } else { "other" };
        self.row().map_or(unlisted, |row| row.name)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.row(), self.0) {
            (Some(row), _) => f.write_str(row.name),
            (None, 0) => f.write_str("other"),
            (None, u16::MAX) => f.write_str("unknown"),
            // Internal to the kernel, without a name in any C library.
            (None, 524) => f.write_str("ENOTSUPP (524)"),
            (None, number) => write!(f, "errno {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_unique() {
        assert!(COUNTED.windows(2).all(|pair| pair[0].errno < pair[1].errno));
    }

    #[test]
    fn retry_codes_are_not_counted() {
        for number in [4, 11, 2] {
            assert_eq!(Errno(number).class(), None);
        }
    }

    #[test]
    fn unknown_numbers_have_a_bounded_label() {
        use alloc::string::ToString;
        assert_eq!(Errno(9999).label(), "other");
        assert_eq!(Errno::UNKNOWN.label(), "unknown");
        assert_eq!(Errno(9999).to_string(), "errno 9999");
        assert_eq!(Errno(524).to_string(), "ENOTSUPP (524)");
    }
}
