//! What a function inside a call knows and the end of the call does not: where it failed.
//!
//! Functions are called again after ESTALE, and by file systems on top of others. So they count nothing: they
//! note the place, the last one wins, and the end of the call counts once.

use agent_common::settings::RECORD_INTERVAL_NANOS;
use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};

use crate::count::tracked;
use crate::kernel_struct::{self, Address, device_of_superblock, follow};
use crate::locate;
use crate::maps::{NOTES, offset};
use crate::programs::calls;

/// A failure on a tracked superblock.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Note {
    /// Inode number of the mount's root, 0 when only the superblock is known.
    pub root_ino: u64,
    /// When.
    ktime: u64,
    /// The superblock.
    pub s_dev: u32,
    /// The error, positive.
    errno: u32,
}

/// Notes a failure on a `vfsmount`.
#[inline(always)]
pub fn on_mount(errno: u16, vfsmount: Option<Address>) {
    if let Some((s_dev, root_ino, _)) = vfsmount.and_then(locate::by_mount) {
        put(errno, s_dev, root_ino);
    }
}

/// Notes a failure at a `struct path`, that of an open file included. Nothing of special files: what fails there may be
/// the device.
#[inline(always)]
pub fn on_path(errno: u16, path: Address) {
    if !kernel_struct::is_special(path) {
        on_mount(errno, follow(path, offset!(path_mnt)));
    }
}

/// Notes a failure on a directory entry: its superblock, whatever mount it was reached through.
#[inline(always)]
pub fn on_dentry(errno: u16, dentry: Address) {
    let s_dev = follow(dentry, offset!(dentry_d_sb)).and_then(device_of_superblock);
    if let Some(s_dev) = s_dev.filter(|s_dev| tracked(*s_dev).is_some()) {
        put(errno, s_dev, 0);
    }
}

#[inline(always)]
fn put(errno: u16, s_dev: u32, root_ino: u64) {
    // SAFETY: takes nothing, returns a number.
    let ktime = unsafe { bpf_ktime_get_ns() };
    let note = Note { root_ino, ktime, s_dev, errno: u32::from(errno) };
    // Without it the call is placed by what it was given.
    let _ = NOTES.insert(bpf_get_current_pid_tgid(), note, u64::from(BPF_ANY));
}

/// The errno that a function's return value stands for, if it counts. The value may be an `int`, of which only
/// the lower half is defined, a long one, or a pointer: the top 4095 addresses are errors.
#[inline(always)]
pub fn errno_of(ret: u64) -> Option<u16> {
    let upper = ret >> 32;
    if upper != 0 && upper != u64::from(u32::MAX) {
        return None;
    }
    calls::counted_errno(i64::from(ret as u32 as i32))
}

/// Takes the note of this thread when it speaks of the call that ends now: the same error, a moment ago. What a
/// call has survived inside leaves a note behind, which nothing else would tell from this call's.
#[inline(always)]
pub fn take(errno: u16) -> Option<Note> {
    let thread = bpf_get_current_pid_tgid();
    // SAFETY: the value is copied at once, and no other thread writes to this row.
    let note = unsafe { NOTES.get(thread) }.copied()?;
    let _ = NOTES.remove(thread);
    // SAFETY: takes nothing, returns a number.
    let now = unsafe { bpf_ktime_get_ns() };
    let own = note.errno == u32::from(errno) && now.wrapping_sub(note.ktime) < RECORD_INTERVAL_NANOS;
    if own { Some(note) } else { None }
}
