//! Reads of kernel structures through offsets from the running kernel's type information. The only file that
//! follows kernel pointers. Every read can fail and then gives `None`; nothing is ever written.

use agent_common::subvolume::NameWords;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::bpf_probe_read_kernel_str;

use crate::maps::offset;

/// An address in the kernel.
pub type Address = u64;

/// Reads a field of the structure at `base`.
#[inline(always)]
pub fn read<T>(base: Address, offset: u32) -> Option<T> {
    // SAFETY: the helper checks the address and copies; a bad one gives an error. `T` is an integer or an
    // array of integers, for which every bit pattern is valid.
    unsafe { bpf_probe_read_kernel((base.wrapping_add(u64::from(offset))) as *const T) }.ok()
}

/// Follows a pointer field; null is `None`.
#[inline(always)]
pub fn follow(base: Address, offset: u32) -> Option<Address> {
    read::<u64>(base, offset).filter(|pointer| *pointer != 0)
}

/// An argument of a system call, out of the saved registers.
#[inline(always)]
pub fn argument(regs: Address, number: u8) -> Option<u64> {
    let place = match number {
        0 => offset!(regs_arguments[0]),
        1 => offset!(regs_arguments[1]),
        2 => offset!(regs_arguments[2]),
        3 => offset!(regs_arguments[3]),
        4 => offset!(regs_arguments[4]),
        5 => offset!(regs_arguments[5]),
        _ => return None,
    };
    read(regs, place)
}

/// The open file behind a descriptor of `task`.
#[inline(always)]
pub fn file_of_descriptor(task: Address, descriptor: u32) -> Option<Address> {
    let table = follow(follow(task, offset!(task_files))?, offset!(files_struct_fdt))?;
    if descriptor >= read::<u32>(table, offset!(fdtable_max_fds))? {
        return None;
    }
    let files = follow(table, offset!(fdtable_fd))?;
    follow(files.wrapping_add(u64::from(descriptor) * 8), 0)
}

/// The `vfsmount` of an open file.
#[inline(always)]
pub fn mount_of_file(file: Address) -> Option<Address> {
    follow(file, offset!(file_f_path).wrapping_add(offset!(path_mnt)))
}

/// The `vfsmount` of the working directory of `task`.
#[inline(always)]
pub fn mount_of_cwd(task: Address) -> Option<Address> {
    let fs = follow(task, offset!(task_fs))?;
    follow(fs, offset!(fs_struct_pwd).wrapping_add(offset!(path_mnt)))
}

/// `s_dev` of a superblock.
#[inline(always)]
pub fn device_of_superblock(superblock: Address) -> Option<u32> {
    read(superblock, offset!(super_block_s_dev))
}

/// `s_dev` of the superblock that a `vfsmount` shows.
#[inline(always)]
pub fn device_of_mount(vfsmount: Address) -> Option<u32> {
    device_of_superblock(follow(vfsmount, offset!(vfsmount_mnt_sb))?)
}

/// The directory entry that is the root of a `vfsmount`.
#[inline(always)]
pub fn root_of_mount(vfsmount: Address) -> Option<Address> {
    follow(vfsmount, offset!(vfsmount_mnt_root))
}

/// Inode number of a directory entry.
#[inline(always)]
pub fn inode_of_entry(entry: Address) -> Option<u64> {
    read(follow(entry, offset!(dentry_d_inode))?, offset!(inode_i_ino))
}

/// The directory entry above.
#[inline(always)]
pub fn parent_of_entry(entry: Address) -> Option<Address> {
    follow(entry, offset!(dentry_d_parent))
}

/// Copies the name of a directory entry, with its end mark, into words that are zero; whether that worked. The
/// helper writes nothing behind the end mark.
///
/// kernel: `strncpy_from_kernel_nofault`, mm/maccess.c, since 5.8.
#[inline(always)]
pub fn copy_name(entry: Address, name: &mut NameWords) -> bool {
    let Some(text) = follow(entry, offset!(dentry_name)) else { return false };
    // SAFETY: the row has exactly so many bytes; the helper checks the source and ends the text with NUL.
    let copied = unsafe {
        bpf_probe_read_kernel_str(name.as_mut_ptr().cast(), size_of::<NameWords>() as u32, text as *const _)
    };
    copied > 0
}

/// Inode number of the mount namespace of `task`; none while it exits.
#[inline(always)]
pub fn mount_namespace(task: Address) -> Option<u32> {
    let namespace = follow(follow(task, offset!(task_nsproxy))?, offset!(nsproxy_mnt_ns))?;
    read(namespace, offset!(mnt_namespace_inum))
}

/// Whether the root directory of `task` is the root of its namespace, as far as it shows: the root of a mount
/// that sits on the root of its parent. A `chroot` into a directory or onto a mount elsewhere does not.
#[inline(always)]
pub fn has_namespace_root(task: Address) -> Option<bool> {
    let fs = follow(task, offset!(task_fs))?;
    let vfsmount = follow(fs, offset!(fs_struct_root).wrapping_add(offset!(path_mnt)))?;
    let dentry = follow(fs, offset!(fs_struct_root).wrapping_add(offset!(path_dentry)))?;
    if dentry != follow(vfsmount, offset!(vfsmount_mnt_root))? {
        return Some(false);
    }
    let mount = vfsmount.wrapping_sub(u64::from(offset!(mount_mnt)));
    let parent = follow(mount, offset!(mount_mnt_parent))?;
    let place = follow(mount, offset!(mount_mnt_mountpoint))?;
    Some(place == follow(parent, offset!(mount_mnt).wrapping_add(offset!(vfsmount_mnt_root)))?)
}

/// Whether a `struct path` ends at a regular file or a directory. Waiting on pipes, sockets and terminals that lie
/// in a file system says nothing about it.
#[inline(always)]
pub fn is_file_or_directory(path: Address) -> Option<bool> {
    const DIRECTORY: u16 = 0o040_000;
    const REGULAR: u16 = 0o100_000;
    let format = format(path)?;
    Some(format == DIRECTORY || format == REGULAR)
}

/// Whether an open file is a socket.
#[inline(always)]
pub fn is_socket(file: Address) -> bool {
    const SOCKET: u16 = 0o140_000;
    format(path_of_file(file)) == Some(SOCKET)
}

/// Whether a `struct path` ends at something that has only its name in the file system: a FIFO, a device node, a
/// socket. What it says of data is said by whatever is behind it.
#[inline(always)]
pub fn is_special(path: Address) -> bool {
    const SPECIAL: u32 = 1 << 0o1 | 1 << 0o2 | 1 << 0o6 | 1 << 0o14;
    format(path).is_some_and(|format| SPECIAL >> (format >> 12) & 1 == 1)
}

/// Where the `struct path` of an open file is.
#[inline(always)]
pub fn path_of_file(file: Address) -> Address {
    file.wrapping_add(u64::from(offset!(file_f_path)))
}

/// What kind of file a `struct path` ends at.
///
/// kernel: `S_IFMT`, include/uapi/linux/stat.h, all versions.
#[inline(always)]
fn format(path: Address) -> Option<u16> {
    const FORMAT: u16 = 0o170_000;
    let inode = follow(follow(path, offset!(path_dentry))?, offset!(dentry_d_inode))?;
    Some(read::<u16>(inode, offset!(inode_i_mode))? & FORMAT)
}

/// The number of a `struct pid` at a depth of nested process id namespaces, 0 when it has none there.
///
/// kernel: `struct pid`, `struct upid`, include/linux/pid.h; 16 bytes each, the number first, since 2.6.24.
#[inline(always)]
pub fn number_of_pid(pid: Address, level: u32) -> Option<u32> {
    if level > read::<u32>(pid, offset!(pid_level))? {
        return Some(0);
    }
    read(pid.wrapping_add(u64::from(level) * 16), offset!(pid_numbers))
}

/// The id of the cgroup (v2) of `task`, the inode number of its directory.
///
/// kernel: `bpf_get_current_cgroup_id`, kernel/bpf/helpers.c, since 4.18; `kernfs_node::id` is one number since 5.5.
#[inline(always)]
pub fn cgroup(task: Address) -> Option<u64> {
    let set = follow(task, offset!(task_cgroups))?;
    let node = follow(follow(set, offset!(css_set_dfl_cgrp))?, offset!(cgroup_kn))?;
    read(node, offset!(kernfs_node_id))
}
