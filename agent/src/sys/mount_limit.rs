//! How full a mount namespace may become.

/// How many mounts one mount namespace may have; `None` where the kernel does not say.
///
/// kernel: `sysctl_mount_max` and `count_mounts`, fs/namespace.c, since 4.9.
#[must_use]
pub fn mount_limit() -> Option<u64> {
    std::fs::read_to_string("/proc/sys/fs/mount-max").ok()?.trim().parse().ok()
}
