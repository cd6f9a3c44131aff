//! Who still holds what was replaced, for people.

use super::Page;
use crate::export::view::VolumeView;

/// Nothing where nobody holds anything.
pub(super) fn consumers(page: &mut Page, volume: &VolumeView) {
    if volume.stale_mounts == 0 && volume.stale_open_files == 0 {
        return;
    }
    page.heading("Still on what was replaced");
    for (number, mount) in volume.stale.iter().enumerate() {
        let name = if number == 0 { "mounted" } else { "" };
        let inner = if mount.root == "/" { String::new() } else { format!(" (its {})", mount.root) };
        page.pair(name, &format!("{}{inner}", mount.mountpoint));
        let (namespace, comm, pid) = (mount.mount_namespace, &mount.comm, mount.pid);
        page.pair("", &format!("  in mount namespace {namespace} of {comm} (process {pid})"));
    }
    more(page, volume.stale_mounts, volume.stale.len());
    for (number, holder) in volume.stale_holders.iter().enumerate() {
        let name = if number == 0 { "open files" } else { "" };
        page.pair(name, &format!("{} of {} (process {})", holder.files, holder.comm, holder.pid));
        page.pair("", &format!("  such as {}", holder.path));
    }
    let shown: u64 = volume.stale_holders.iter().map(|holder| holder.files).sum();
    if volume.stale_open_files > shown {
        page.pair("", &format!("and {} more", volume.stale_open_files - shown));
    }
}

fn more(page: &mut Page, all: u64, shown: usize) {
    let more = all.saturating_sub(u64::try_from(shown).unwrap_or(u64::MAX));
    if more > 0 {
        page.pair("", &format!("and {more} more"));
    }
}
