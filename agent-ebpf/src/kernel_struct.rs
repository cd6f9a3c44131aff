//! Reads of kernel structures through offsets from the running kernel's type information. The only file that
//! follows kernel pointers. Every read can fail and then gives `None`; nothing is ever written.

use aya_ebpf::helpers::bpf_probe_read_kernel;

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

/// Inode number of the root of a `vfsmount`.
#[inline(always)]
pub fn root_inode_of_mount(vfsmount: Address) -> Option<u64> {
    let inode = follow(follow(vfsmount, offset!(vfsmount_mnt_root))?, offset!(dentry_d_inode))?;
    read(inode, offset!(inode_i_ino))
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
