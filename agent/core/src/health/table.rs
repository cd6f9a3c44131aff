//! What one line of the mount table says about the state of a mount, and what it said before.

use core::time::Duration;

use crate::fstype::is_readonly_by_nature;
use crate::time::Monotonic;
use crate::topology::Mount;
use crate::volume::VolumeSpec;

/// A mount that is to be read-only may be writable at first: it is bound, and made read-only by a second call, by
/// `mount` before util-linux 2.39 and by many who make volumes. That takes no longer.
const MAKING: Duration = Duration::from_secs(5);

/// What the table says about the state of the mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableFacts {
    /// `shutdown` among the superblock's options (ext4, since 6.15; XFS never says it).
    pub shutdown: bool,
    /// `emergency_ro` among the superblock's options (ext4, since 6.15).
    pub emergency_ro: bool,
    /// `ro` on the superblock or the mount.
    pub ro: bool,
    /// It was writable before, in this generation.
    pub was_rw: bool,
    /// Since when the table has said so without a break.
    pub rw_since: Option<Monotonic>,
    /// It was writable for longer than whoever mounts it takes to make it read-only, or was written.
    pub was_kept_rw: bool,
    /// The specification wants it writable.
    pub wants_rw: bool,
    /// The specification wants it read-only.
    pub wants_ro: bool,
    /// An error that the file system finds in itself ends all writing until it is mounted anew (`errors=remount-ro`
    /// of ext4), whatever the table goes on to say: some kernels set the flag `ro` then, others do not.
    ///
    /// kernel: `ext4_handle_error`, fs/ext4/super.c, aborts the journal; without `SB_RDONLY` since 6.12, also in some
    /// older distribution kernels.
    pub error_ends_writes: bool,
    /// The counter in sysfs counts what the file system finds wrong in itself, and nothing else. That of others counts
    /// failed requests as well.
    pub counts_own_errors: bool,
}

impl TableFacts {
    /// Takes what one line says, keeping what was known before.
    pub fn update(&mut self, mount: &Mount, spec: Option<&VolumeSpec>, now: Monotonic) {
        self.keep_rw(now);
        self.shutdown = mount.super_options.has("shutdown");
        self.emergency_ro = mount.super_options.has("emergency_ro");
        self.ro = mount.super_options.has("ro") || mount.options.has("ro");
        self.was_rw |= !self.ro;
        self.rw_since = (!self.ro).then(|| self.rw_since.unwrap_or(now));
        self.counts_own_errors = matches!(mount.fstype.as_str(), "ext2" | "ext3" | "ext4");
        self.error_ends_writes = self.counts_own_errors && mount.super_options.has("errors=remount-ro");
        self.wants_ro = spec.is_some_and(VolumeSpec::wants_readonly);
        // A specification that names neither a source nor options only watches what is there.
        self.wants_rw = spec.is_some_and(|spec| {
            let describes_mount = spec.source.is_some() || !spec.options.is_empty();
            describes_mount && !spec.wants_readonly() && !is_readonly_by_nature(mount)
        });
    }

    /// The mount is older than anybody who could have seen it appear.
    pub fn was_there_before(&mut self) {
        self.was_kept_rw |= self.rw_since.is_some();
    }

    /// Time passes while it is writable.
    pub(super) fn keep_rw(&mut self, now: Monotonic) {
        self.was_kept_rw |= self.rw_since.is_some_and(|since| now.since(since) >= MAKING);
    }

    /// Whether writing should work: then a refusal to write is a fault.
    #[must_use]
    pub const fn should_be_writable(&self) -> bool {
        !self.wants_ro && (self.wants_rw || self.was_kept_rw || !self.ro)
    }
}
