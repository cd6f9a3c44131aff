//! The last step of a plan: what is at the mount point now, by superblock and by data.

use agent_core::remediation::{Outcome, Refusal};

use super::check::{
    SentinelFault, Wanted, check_identity, hold_root, read_sentinel, refuse_old, refuse_other,
};
use super::scene::{Scene, Stop, say};
use super::wire::Step;
use crate::sys::look;

pub(super) fn verify(scene: &Scene, wanted: &Wanted) -> Result<Step, Stop> {
    let place = &scene.mountpoint;
    let stack = scene.stack(place)?;
    let Some(top) = stack.last() else {
        return Err(Stop::Refused(Refusal::NotAMountPoint, format!("nothing is mounted at {place}")));
    };
    refuse_old(scene, top)?;
    refuse_other(top, wanted)?;
    // An autofs trap or somebody's older mount may lie below, as before. The old superblock, or two copies of
    // the new one, may not.
    let is_doubled = |superblock| superblock == top.superblock || scene.is_old(superblock);
    if stack.iter().rev().skip(1).any(|below| is_doubled(below.superblock)) {
        let text = format!("{} mounts are stacked at {place}", stack.len());
        return Err(Stop::Refused(Refusal::TableChanged, text));
    }
    let root = hold_root(place)?;
    say(format!("ask the file system at {place}"));
    look::ask(&root).map_err(|errno| Stop::call(format!("ask the file system at {place}"), errno))?;
    check_identity(top, &root, &wanted.identity)?;
    if let Some(sentinel) = &wanted.sentinel {
        match read_sentinel(&root, sentinel) {
            Ok(()) => {}
            Err(SentinelFault::Answer(errno)) => {
                return Err(Stop::call(format!("read the sentinel {}", sentinel.path), errno));
            }
            Err(SentinelFault::Other(what)) => return Err(Stop::Refused(Refusal::OtherVolume, what)),
        }
    }
    let mut text = format!("superblock {} answers at {place}", top.superblock);
    if stack.len() > 1 {
        text.push_str(&format!(", {} deep with what lay there before", stack.len()));
    }
    Ok(Step::new(Outcome::AlreadySo, text))
}
