//! Names of systemd units: the one of a mount point, and the one in which a process runs. Pure.

use alloc::string::String;
use core::fmt::Write as _;

use crate::path::BytePath;

/// The kinds of unit that mount something.
const SUFFIXES: [&str; 2] = [".mount", ".service"];
/// systemd: `UNIT_NAME_MAX`, src/basic/unit-name.h, with its NUL.
const LONGEST: usize = 255;

/// The mount unit of a mount point, as `systemd-escape --path --suffix=mount` gives it.
#[must_use]
pub fn of_mountpoint(mountpoint: &BytePath) -> String {
    let mut name = String::new();
    let parts = mountpoint.as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    for (number, part) in parts.enumerate() {
        if number > 0 {
            name.push('-');
        }
        for (at, byte) in part.iter().enumerate() {
            let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'_');
            let is_leading_dot = number == 0 && at == 0;
            if is_plain || (*byte == b'.' && !is_leading_dot) {
                name.push(char::from(*byte));
            } else {
                // Writing to a string cannot fail.
                let _ = write!(name, "\\x{byte:02x}");
            }
        }
    }
    if name.is_empty() {
        name.push('-');
    }
    name.push_str(".mount");
    name
}

/// Whether this is the full name of a unit that can mount something.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let stem = SUFFIXES.into_iter().find_map(|suffix| name.strip_suffix(suffix));
    stem.is_some_and(|stem| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
        // A dash would be taken for a flag, and only "-.mount" begins with one: the root, which nobody restarts.
        let is_template = stem.ends_with('@');
        !stem.is_empty() && !stem.starts_with(['-', '@']) && !is_template && stem.bytes().all(is_plain)
    }) && name.len() <= LONGEST
}

/// The system's unit in which the process of this cgroup runs, if that unit is for it: the first part of the path
/// that is no slice must be a service or a mount. Sessions, containers and a user's own services are none of ours.
#[must_use]
pub fn of_cgroup(path: &str) -> Option<&str> {
    // Seen from a cgroup namespace of its own, the way begins upwards.
    let mut parts = path.split('/').filter(|part| !matches!(*part, "" | ".."));
    let unit = parts.find(|part| !part.ends_with(".slice"))?;
    // systemd: `cg_escape`, src/basic/cgroup-util.c.
    let unit = unit.strip_prefix('_').unwrap_or(unit);
    (is_name(unit) && !unit.starts_with("user@")).then_some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_have_the_unit_that_systemd_gives_them() {
        for (path, unit) in [
            ("/mnt/models", "mnt-models.mount"),
            ("/", "-.mount"),
            ("/mnt//a-b/", "mnt-a\\x2db.mount"),
            ("/.hidden/.x", "\\x2ehidden-.x.mount"),
            ("/mnt/a b:c_d", "mnt-a\\x20b:c_d.mount"),
        ] {
            assert_eq!(of_mountpoint(&BytePath::from(path)), unit, "{path}");
        }
        assert_eq!(of_mountpoint(&BytePath::new(*b"/caf\xe9")), "caf\\xe9.mount");
    }

    #[test]
    fn only_units_that_mount_are_names() {
        for name in ["mnt-models.mount", "rclone@models.service", "mnt-a\\x2db.mount"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "x", ".service", "--now.service", "a.timer", "a b.service", "a@.service", "-.mount"]
        {
            assert!(!is_name(name), "{name}");
        }
        assert!(!is_name(&alloc::format!("{}.mount", "a".repeat(255))));
    }

    #[test]
    fn a_process_belongs_to_the_units_of_the_system_alone() {
        for (path, unit) in [
            ("/system.slice/rclone.service", Some("rclone.service")),
            ("/system.slice/system-rclone.slice/rclone@a.service/payload", Some("rclone@a.service")),
            ("/../../system.slice/mnt-models.mount", Some("mnt-models.mount")),
            ("/system.slice/_.odd.service", Some(".odd.service")),
            ("/user.slice/user-0.slice/session-1.scope", None),
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/rclone.service", None),
            ("/system.slice/docker-abc.scope/system.slice/rclone.service", None),
            ("/kubepods.slice/kubepods-pod1.slice/cri-containerd-abc.scope", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(of_cgroup(path), unit, "{path}");
        }
    }
}
