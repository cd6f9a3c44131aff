//! What the kernel calls a block device.

use std::path::Path;

use agent_core::id::SuperblockId;

/// The name of a device below `/dev`; `None` when sysfs does not know it. `by_number` is `/sys/dev/block`.
///
/// kernel: `dev_uevent`, drivers/base/core.c: `DEVNAME`, since 2.6.31.
#[must_use]
pub fn device_name(by_number: &Path, number: SuperblockId) -> Option<String> {
    let text = std::fs::read_to_string(by_number.join(number.to_string()).join("uevent")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("DEVNAME=")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_line_of_what_sysfs_tells() {
        let sysfs = tempfile::tempdir().unwrap();
        let number = SuperblockId { major: 8, minor: 1 };
        assert_eq!(device_name(sysfs.path(), number), None);
        std::fs::create_dir(sysfs.path().join("8:1")).unwrap();
        let event = sysfs.path().join("8:1/uevent");
        std::fs::write(&event, "MAJOR=8\nMINOR=1\nDEVNAME=sda1\nDEVTYPE=partition\n").unwrap();
        assert_eq!(device_name(sysfs.path(), number).as_deref(), Some("sda1"));
        std::fs::write(event, "MAJOR=8\n").unwrap();
        assert_eq!(device_name(sysfs.path(), number), None);
    }
}
