//! Can the device be mounted afresh? Asked while the old file system is still there: for a device that goes first, and
//! what was still to be read of it is lost for everybody where no new one comes. Reads the device, and changes nothing.

use std::path::Path;

use agent_core::id::SuperblockId;
use agent_core::path::escape;
use agent_core::remediation::consumers::is_guard;
use agent_core::remediation::{Outcome, Refusal};
use agent_core::volume::Identity;
use rustix::io::Errno;

use super::attributes::Former;
use super::check::{other_volume, read_uuid};
use super::scene::{Scene, Stop, say};
use super::stage::{self, Order};
use super::wire::{Step, WireMethod};
use crate::sys::look;

/// Where the kernel tells about block devices.
const DEVICES: &str = "/sys/dev/block";

/// Ways to name a device by what it carries, and where udev has links for them.
const TAGS: [(&[u8], &str); 4] = [
    (b"UUID=", "/dev/disk/by-uuid"),
    (b"LABEL=", "/dev/disk/by-label"),
    (b"PARTUUID=", "/dev/disk/by-partuuid"),
    (b"PARTLABEL=", "/dev/disk/by-partlabel"),
];

/// What is to be mounted, and what it must be.
pub(super) struct Wanted {
    pub(super) method: WireMethod,
    pub(super) source: Vec<u8>,
    pub(super) readonly: bool,
    pub(super) identity: Identity,
}

/// Also says what stands at the place: should the child that takes it away be killed after that, nobody else could.
pub(super) fn check(scene: &Scene, wanted: Wanted) -> Result<Step, Stop> {
    let mut step = check_device(scene, wanted)?;
    let top = scene.stack(&scene.mountpoint)?.pop();
    step.former =
        top.filter(|top| scene.is_old(top.superblock) && !is_guard(top)).map(|top| Former::of(&top));
    Ok(step)
}

fn check_device(scene: &Scene, wanted: Wanted) -> Result<Step, Stop> {
    let Wanted { method, source, readonly, identity } = wanted;
    let order = Order { method, source, fstype: String::new(), options: Vec::new() };
    let order = stage::completed(scene, order)?;
    let readonly = readonly || order.options.iter().any(|option| option == "ro");
    let (name, is_tag) = device_of(&order.source);
    let shown = escape(&name);
    if !name.starts_with(b"/") {
        return Ok(unseen(&shown));
    }
    say(format!("look at {shown}"));
    let number = match look::block_device(&name) {
        Ok(Some(number)) => number,
        Ok(None) => return Ok(unseen(&shown)),
        // Without udev nobody makes these links; mount(8) looks by itself. Some types take several devices.
        Err(_) if is_tag || name.contains(&b':') => return Ok(unseen(&shown)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NXIO) => {
            return Err(Stop::Refused(Refusal::NotPrepared, format!("{shown} is not there")));
        }
        Err(errno) => return Err(Stop::call(format!("look at {shown}"), errno)),
    };
    refuse_protected(scene, (&shown, number), readonly)?;
    let mut text = format!("{shown} is there");
    if let Some(wanted) = &identity.uuid {
        let found = read_uuid(&name)?;
        if !found.eq_ignore_ascii_case(wanted) {
            return Err(other_volume(format!("{shown} has UUID {found} instead of {wanted}")));
        }
        text.push_str(", and is the same volume");
    }
    Ok(Step::new(Outcome::AlreadySo, text))
}

fn unseen(shown: &str) -> Step {
    Step::new(Outcome::AlreadySo, format!("{shown} is no device that could be looked at beforehand"))
}

/// The path of a device, and whether it is made of a tag.
fn device_of(source: &[u8]) -> (Vec<u8>, bool) {
    let of_tag = |(tag, directory): &(&[u8], &str)| {
        let value = source.strip_prefix(*tag)?;
        let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
        Some([directory.as_bytes(), b"/", value].concat())
    };
    match TAGS.iter().find_map(of_tag) {
        Some(path) => (path, true),
        None => (source.to_vec(), false),
    }
}

/// A device that takes no writes gives a file system that takes none, or none at all where its journal has yet to be
/// written back.
fn refuse_protected(
    scene: &Scene,
    (shown, number): (&str, SuperblockId),
    readonly: bool,
) -> Result<(), Stop> {
    if readonly || !is_protected(Path::new(DEVICES), number) {
        return Ok(());
    }
    let top = scene.stack(&scene.mountpoint)?.pop();
    let was_readonly = top.is_none_or(|top| top.super_options.has("ro"));
    if was_readonly && !scene.repairs_readonly {
        return Ok(());
    }
    let text =
        format!("{shown} is write-protected: a new mount could not be written, and perhaps not even be made");
    Err(Stop::Refused(Refusal::NotPrepared, text))
}

/// kernel: `disk_ro_show`, block/genhd.c, and `part_ro_show`, block/partitions/core.c, since 2.6.28.
fn is_protected(devices: &Path, number: SuperblockId) -> bool {
    let said = std::fs::read_to_string(devices.join(number.to_string()).join("ro"));
    said.is_ok_and(|said| said.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_by_a_path_or_by_what_it_carries() {
        let of = |source: &str| {
            let (path, is_tag) = device_of(source.as_bytes());
            (String::from_utf8(path).unwrap(), is_tag)
        };
        assert_eq!(of("/dev/sdb1"), ("/dev/sdb1".to_owned(), false));
        assert_eq!(of("UUID=a-b"), ("/dev/disk/by-uuid/a-b".to_owned(), true));
        assert_eq!(of("LABEL=\"data\""), ("/dev/disk/by-label/data".to_owned(), true));
    }

    #[test]
    fn a_device_says_by_itself_whether_it_is_protected() {
        let sysfs = tempfile::tempdir().unwrap();
        let number = SuperblockId { major: 8, minor: 1 };
        assert!(!is_protected(sysfs.path(), number));
        std::fs::create_dir(sysfs.path().join("8:1")).unwrap();
        for (said, expected) in [("0\n", false), ("1\n", true)] {
            std::fs::write(sysfs.path().join("8:1/ro"), said).unwrap();
            assert_eq!(is_protected(sysfs.path(), number), expected);
        }
    }
}
