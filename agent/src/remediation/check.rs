//! Is the staged mount what it should be? And the pieces of that question which the last check asks again.

use std::os::fd::{AsFd, OwnedFd};

use agent_core::discovery::is_mount_of;
use agent_core::path::{BytePath, escape};
use agent_core::remediation::{Outcome, Refusal};
use agent_core::topology::Mount;
use agent_core::volume::{Identity, Sentinel};
use rustix::io::Errno;

use super::arguments::Invocation;
use super::helper::{self, NoWatch};
use super::redact::Secrets;
use super::scene::{Scene, Stop, core_errno, say};
use super::wire::Step;
use crate::sys::look;
use crate::sys::sentinel::{self, Reading};

/// Words among the options of a superblock that has given up. They do not go away by mounting it again.
///
/// kernel: `_ext4_show_options` (`emergency_ro` and `shutdown`, since 6.15), fs/ext4/super.c; btrfs shows `errors`
/// of its own in no option.
const DEAD_WORDS: [&str; 2] = ["emergency_ro", "shutdown"];

/// What the staged mount must be, as far as it is known.
pub(super) struct Wanted {
    pub(super) sentinel: Option<Sentinel>,
    pub(super) identity: Identity,
    pub(super) source: Option<Vec<u8>>,
    pub(super) fstype: Option<String>,
}

pub(super) fn check_staged(scene: &Scene, wanted: &Wanted) -> Result<Step, Stop> {
    let place = &scene.stage;
    let stack = scene.stack(place)?;
    let Some(mount) = stack.last() else {
        return Err(Stop::Refused(Refusal::NotAMountPoint, format!("nothing is mounted at {place}")));
    };
    refuse_old(scene, mount)?;
    refuse_other(mount, wanted)?;
    let root = hold_root(place)?;
    say(format!("ask the file system at {place}"));
    look::ask(&root).map_err(|errno| sick(format!("the root at {place}"), errno))?;
    check_identity(mount, &root, &wanted.identity)?;
    let mut text = format!("superblock {} at {place} answers", mount.superblock);
    if let Some(sentinel) = &wanted.sentinel {
        match read_sentinel(&root, sentinel) {
            Ok(()) => text.push_str(", the sentinel is right"),
            Err(SentinelFault::Answer(errno)) => {
                return Err(sick(format!("sentinel {}", sentinel.path), errno));
            }
            Err(SentinelFault::Other(what)) => return Err(Stop::Refused(Refusal::OtherVolume, what)),
        }
    }
    Ok(Step::new(Outcome::AlreadySo, text))
}

fn sick(what: String, errno: Errno) -> Stop {
    Stop::Refused(Refusal::StagedSick, format!("{what}: {}", core_errno(errno)))
}

/// Refuses a mount that shows the superblock which is to be replaced.
pub(super) fn refuse_old(scene: &Scene, mount: &Mount) -> Result<(), Stop> {
    if scene.is_old(mount.superblock) {
        let text = format!("{} shows the old superblock {}", mount.mountpoint, mount.superblock);
        return Err(Stop::Refused(Refusal::SameSuperblock, text));
    }
    if scene.is_dead(mount.superblock) {
        let text = format!(
            "{} shows superblock {}, which was replaced before and is still held elsewhere",
            mount.mountpoint, mount.superblock
        );
        return Err(Stop::Refused(Refusal::SameSuperblock, text));
    }
    let dead = DEAD_WORDS.into_iter().find(|word| mount.super_options.has(word));
    let Some(word) = dead else { return Ok(()) };
    let text = format!("superblock {} at {} says `{word}`", mount.superblock, mount.mountpoint);
    let refusal =
        if scene.old == Some(mount.superblock) { Refusal::SameSuperblock } else { Refusal::StagedSick };
    Err(Stop::Refused(refusal, text))
}

/// Refuses a mount that would be the wrong one at the mount point too: by the rules that discovery goes by.
pub(super) fn refuse_other(mount: &Mount, wanted: &Wanted) -> Result<(), Stop> {
    if is_mount_of(wanted.source.as_deref(), wanted.fstype.as_deref(), mount) {
        return Ok(());
    }
    let found = escape(&mount.source);
    let source = wanted.source.as_deref().map_or_else(|| "any source".to_owned(), escape);
    let fstype = wanted.fstype.as_deref().unwrap_or("any type");
    let text = format!("{found} of type {} instead of {source} of type {fstype}", mount.fstype);
    let secrets = Secrets::learn([found.as_str(), source.as_str()]);
    Err(Stop::Refused(Refusal::OtherVolume, secrets.hide(&text)))
}

/// A descriptor of the root of the mount at the place.
pub(super) fn hold_root(place: &BytePath) -> Result<OwnedFd, Stop> {
    let root = look::hold(place).map_err(|errno| Stop::call(format!("look at {place}"), errno))?;
    match look::is_mount_root(&root) {
        Ok(true) => Ok(root),
        Ok(false) => {
            Err(Stop::Refused(Refusal::NotAMountPoint, format!("{place} is not the root of a mount")))
        }
        Err(errno) => Err(Stop::call(format!("look at {place}"), errno)),
    }
}

/// What is wrong with a sentinel.
pub(super) enum SentinelFault {
    /// The file system answered with an error.
    Answer(Errno),
    /// It answered, and what it said belongs to another volume.
    Other(String),
}

/// Reads the sentinel and compares it with what is known.
pub(super) fn read_sentinel(root: &OwnedFd, wanted: &Sentinel) -> Result<(), SentinelFault> {
    let path = &wanted.path;
    say(format!("read the sentinel {path}"));
    let content = match sentinel::read(root.as_fd(), path).map_err(SentinelFault::Answer)? {
        Reading::Content(content) => content,
        Reading::Held => {
            return Err(SentinelFault::Other(format!("somebody holds a lease on the sentinel {path}")));
        }
        Reading::Absent => return Err(SentinelFault::Other(format!("there is no sentinel {path}"))),
        Reading::Unusable => {
            return Err(SentinelFault::Other(format!(
                "the sentinel {path} is not a small regular file of this volume"
            )));
        }
    };
    match &wanted.content {
        Some(expected) if !sentinel::has_content(&content, expected) => {
            Err(SentinelFault::Other(format!("the sentinel {path} has other content")))
        }
        _ => Ok(()),
    }
}

/// Whether the file system is the one that is known by these.
pub(super) fn check_identity(mount: &Mount, root: &OwnedFd, identity: &Identity) -> Result<(), Stop> {
    if let Some(wanted) = &identity.fsid {
        let found = look::fsid(root).map_err(|errno| sick("statfs of the new mount".to_owned(), errno))?;
        if !found.iter().any(|fsid| fsid.eq_ignore_ascii_case(wanted)) {
            let text =
                format!("fsid {} instead of {wanted}", found.first().map_or("unknown", String::as_str));
            return Err(other_volume(text));
        }
    }
    match &identity.uuid {
        Some(wanted) => check_uuid(mount, root, wanted),
        None => Ok(()),
    }
}

/// Of a device that was made anew on purpose, a person says so.
pub(super) fn other_volume(text: String) -> Stop {
    let text = format!("{text}; if that is meant, mount it by hand, or have the volume forgotten");
    Stop::Refused(Refusal::OtherVolume, text)
}

/// By the kernel's own copy, where it tells that one; else by what stands on the device.
fn check_uuid(mount: &Mount, root: &OwnedFd, wanted: &str) -> Result<(), Stop> {
    let told = look::uuid(root).ok();
    let is_wanted = |found: &str| found.eq_ignore_ascii_case(wanted);
    if told.as_deref().is_some_and(is_wanted) {
        return Ok(());
    }
    let other = |found: &str| other_volume(format!("UUID {found} instead of {wanted}"));
    // People write what blkid(8) prints.
    match (read_uuid(&mount.source), told) {
        (Ok(found), _) if is_wanted(&found) => Ok(()),
        (Ok(found), _) | (Err(_), Some(found)) => Err(other(&found)),
        (Err(stop), None) => Err(stop),
    }
}

/// Asks blkid(8) for what stands on the device, past its cache.
pub(super) fn read_uuid(device: &[u8]) -> Result<String, Stop> {
    let shown = format!("blkid of {}", escape(device));
    if !device.starts_with(b"/") {
        return Err(Stop::Refused(Refusal::OtherVolume, format!("{shown}: not a device")));
    }
    let words = ["blkid", "-p", "-o", "value", "-s", "UUID"];
    let mut argv: Vec<Vec<u8>> = words.map(|word| word.as_bytes().to_vec()).to_vec();
    argv.push(device.to_vec());
    say(shown.clone());
    let invocation = Invocation { argv, environment: Vec::new() };
    let ended = helper::run(&invocation, &Secrets::default(), &mut NoWatch)
        .map_err(|error| Stop::helper(&shown, &error))?;
    if ended.code != 0 {
        return Err(Stop::ended(&shown, &ended));
    }
    Ok(ended.output.trim().to_owned())
}
