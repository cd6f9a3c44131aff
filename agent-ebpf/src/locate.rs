//! Which mount a failed call was about: by descriptor exactly, by name as well as the kernel side can.

use agent_common::key::{CounterKey, NAME_BYTES, NameBytes, OTHER_ROOT, RootKey};
use agent_common::settings::{SCRATCH_ROWS, TRACKED_NESTED, TRACKED_SUBVOLUMES};
use agent_common::subvolume;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::bpf_probe_read_user_str;
use aya_ebpf::maps::lpm_trie::Key;

use crate::count::tracked;
use crate::kernel_struct::{self, Address};
use crate::maps::{NAME_KEY, NAMES, ROOT_NAME, ROOTS, host_mnt_ns};
use crate::shape::Shape;

/// `AT_FDCWD`: relative to the working directory. kernel: include/uapi/linux/fcntl.h, since 2.6.16.
pub const AT_FDCWD: i32 = -100;

/// What a name turned out to be.
pub enum Placed {
    /// On this superblock, under this root.
    At(u32, u64),
    /// On nothing that is tracked.
    Elsewhere,
    /// Only the agent can tell. The name starts from this tracked superblock (or 0).
    Unknown(u32),
}

/// A failed call in the making: what is known besides the place.
#[derive(Clone, Copy)]
pub struct Failure {
    /// Whose call.
    pub task: Address,
    /// The error, positive.
    pub errno: u16,
    /// The kind of operation.
    pub op: u8,
}

impl Failure {
    /// The counter for a place that is certain.
    #[inline(always)]
    pub fn key(&self, s_dev: u32, root_ino: u64) -> CounterKey {
        CounterKey { root_ino, s_dev, errno: self.errno, op: self.op, by_name: 0 }
    }
}

/// How many directories above the root of a mount a named root is looked for: a directory that is bound from deeper
/// inside a volume belongs to that volume.
const STEPS: u32 = 16;

/// The place of a `vfsmount`, if its superblock is tracked: superblock, root and flags. The root is 0 when it cannot
/// be read.
#[inline(always)]
pub fn by_mount(vfsmount: Address) -> Option<(u32, u64, u32)> {
    let s_dev = kernel_struct::device_of_mount(vfsmount)?;
    let flags = tracked(s_dev)?;
    let root_ino = kernel_struct::root_of_mount(vfsmount).map_or(0, |entry| root(entry, s_dev, flags));
    Some((s_dev, root_ino, flags))
}

/// Whether the agent has named the root.
#[inline(always)]
fn is_named(root_ino: u64, s_dev: u32) -> bool {
    // SAFETY: only whether there is a row is asked.
    unsafe { ROOTS.get(&RootKey { root_ino, s_dev, reserved: 0 }) }.is_some()
}

/// What stands for the root of a mount: its inode number, but for subvolumes. One that is not named is the first named
/// one above it, and [`OTHER_ROOT`] where there is none. 0 when it cannot be read.
#[inline(always)]
fn root(entry: Address, s_dev: u32, flags: u32) -> u64 {
    let Some(inode) = kernel_struct::inode_of_entry(entry) else { return 0 };
    let own = if is_of_subvolume(inode, flags) { root_by_name(entry) } else { inode };
    if own == 0 || is_named(own, s_dev) { own } else { root_above(entry, s_dev, flags) }
}

/// Whether this is the inode number of every subvolume's root.
#[inline(always)]
fn is_of_subvolume(inode: u64, flags: u32) -> bool {
    flags & TRACKED_SUBVOLUMES != 0 && inode == subvolume::ROOT_INODE
}

/// The first named root above a directory. Above the root of a subvolume nothing is looked for. Once in each program.
///
/// kernel: `dentry::d_parent`, include/linux/dcache.h, all versions; the topmost entry is its own parent.
#[inline(never)]
fn root_above(entry: Address, s_dev: u32, flags: u32) -> u64 {
    let mut below = entry;
    for _ in 0..STEPS {
        let parent = kernel_struct::parent_of_entry(below);
        let Some(parent) = parent.filter(|parent| *parent != below) else { break };
        let Some(inode) = kernel_struct::inode_of_entry(parent) else { break };
        if is_of_subvolume(inode, flags) {
            let root_ino = name_of_root(parent);
            return if is_named(root_ino, s_dev) { root_ino } else { OTHER_ROOT };
        }
        if is_named(inode, s_dev) {
            return inode;
        }
        below = parent;
    }
    OTHER_ROOT
}

/// What stands for the root of a subvolume, 0 when its name cannot be read. Once in each program.
#[inline(never)]
fn root_by_name(entry: Address) -> u64 {
    name_of_root(entry)
}

#[inline(always)]
fn name_of_root(entry: Address) -> u64 {
    let Some(name) = ROOT_NAME.get_ptr_mut(scratch_row()) else { return 0 };
    // SAFETY: a checked pointer to this processor's own row. A program that interrupts this one here may mix two
    // names: no root is known by that, and the failure counts for every volume on the superblock.
    let name = unsafe { &mut *name };
    for word in &mut *name {
        // SAFETY: a reference is a valid pointer. Volatile, because this would become a call of a function that
        // writes bytes one by one.
        unsafe { core::ptr::write_volatile(word, 0) };
    }
    if kernel_struct::copy_name(entry, name) { subvolume::root_of_name(name) } else { 0 }
}

/// Which scratch rows of this processor the current thread uses: programs of the fexit family can be preempted,
/// and the thread that goes on meanwhile should have others.
#[inline(always)]
pub fn scratch_row() -> u32 {
    bpf_get_current_pid_tgid() as u32 & (SCRATCH_ROWS - 1)
}

/// The scratch row for one name.
#[inline(always)]
pub fn scratch() -> Option<*mut Key<NameBytes>> {
    NAME_KEY.get_ptr_mut(scratch_row())
}

/// Copies a name into the scratch row; its length without the end mark. Names that are longer are cut.
///
/// kernel: `strncpy_from_user_nofault`, mm/maccess.c: an empty text gives 1, with its end mark, since 6.13, and 0
/// before that.
#[inline(always)]
pub fn copy(text: Address, key: *mut Key<NameBytes>) -> Option<u32> {
    let size = NAME_BYTES as u32;
    if text == 0 {
        return Some(0);
    }
    // SAFETY: the row has exactly `NAME_BYTES` bytes; the helper checks the source and ends the text with NUL.
    let copied = unsafe {
        let data = (&raw mut (*key).data).cast();
        bpf_probe_read_user_str(data, size, text as *const _)
    };
    if copied == 0 {
        return Some(0);
    }
    if copied > 0 && copied <= NAME_BYTES as i64 { Some(copied as u32 - 1) } else { None }
}

/// A name in the scratch row, and what it looks like.
pub struct Name {
    /// Its bytes.
    pub key: *mut Key<NameBytes>,
    /// How many there are.
    pub len: u32,
    /// What its components are.
    pub shape: Shape,
}

/// Places a name, relative to the descriptor `dir`.
#[inline(always)]
pub fn by_name(failure: &Failure, dir: i32, name: &Name) -> Option<Placed> {
    let Name { key, len, .. } = *name;
    // SAFETY: `key` is a checked pointer to this processor's own row.
    let absolute = len > 0 && unsafe { (*key).data[0] } == b'/';
    if absolute { by_absolute_name(failure, name) } else { by_base(failure, dir, name) }
}

#[inline(always)]
fn by_base(failure: &Failure, dir: i32, name: &Name) -> Option<Placed> {
    let mount = if dir == AT_FDCWD {
        kernel_struct::mount_of_cwd(failure.task)?
    } else {
        kernel_struct::mount_of_file(kernel_struct::file_of_descriptor(failure.task, dir as u32)?)?
    };
    let Some((s_dev, root_ino, flags)) = by_mount(mount) else {
        // An empty name is the descriptor itself: nothing to look up.
        return Some(if name.len == 0 { Placed::Elsewhere } else { Placed::Unknown(0) });
    };
    if name.len == 0 {
        return Some(Placed::At(s_dev, root_ino));
    }
    if name.shape.climbs() {
        return Some(Placed::Unknown(0));
    }
    let nested = flags & TRACKED_NESTED != 0;
    Some(if nested { Placed::Unknown(s_dev) } else { Placed::At(s_dev, root_ino) })
}

#[inline(always)]
fn by_absolute_name(failure: &Failure, name: &Name) -> Option<Placed> {
    let Name { key, len, shape } = *name;
    let own = kernel_struct::mount_namespace(failure.task) == Some(host_mnt_ns())
        && kernel_struct::has_namespace_root(failure.task) == Some(true);
    if !own || !shape.is_plain() {
        return Some(Placed::Unknown(0));
    }
    // The trie's entries end with a slash, so the name must, too. A name that was cut needs none.
    // The mask comes after the black box, which goes through the stack: the verifier of 5.10 forgets the bounds
    // of what is stored there.
    let end = core::hint::black_box(len) as usize & (NAME_BYTES - 1);
    // SAFETY: `key` is a checked pointer to this processor's own row, and `end` is within it.
    let found = unsafe {
        (*key).data[end] = b'/';
        (*key).prefix_len = (len + 1) * 8;
        NAMES.get(&*key).copied()
    };
    Some(match found {
        Some(value) if value.s_dev != 0 => Placed::At(value.s_dev, value.root_ino),
        Some(_) | None => Placed::Elsewhere,
    })
}

/// The bytes of the name in the scratch row, as words: they begin four bytes into a row that is aligned to eight.
#[inline(always)]
pub fn words(key: *const Key<NameBytes>) -> *const u32 {
    // SAFETY: an address within the row; nothing is read here.
    unsafe { (&raw const (*key).data).cast() }
}
