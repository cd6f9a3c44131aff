//! Which fields of kernel structures the programs read, and where this kernel has them.

use std::collections::BTreeMap;

use agent_common::settings::{ModuleOffsets, Offsets};

use crate::kernel::btf::{BtfError, KernelTypes};

mod hooks;
mod modules;

/// What a group of fields makes possible. A program needs groups, not single fields.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Group {
    /// Who the current task is.
    Task,
    /// The arguments of the system call that ends.
    Registers,
    /// From an open file to its superblock.
    File,
    /// From a descriptor to an open file.
    Descriptor,
    /// From a name to the place it is relative to.
    Name,
    /// From a directory entry to its superblock.
    Entry,
    /// From what a rename is about to a directory entry.
    Rename,
    /// From an address space to its superblock.
    Mapping,
    /// From a mapping to the file, and how long that file is.
    Fault,
    /// From an address to the mapping, and to the page of the file.
    Vma,
    /// From what a page fault is about to the mapping, and to the page of the file.
    VmFault,
    /// From a queue of waiters to the first of them.
    Waiter,
    /// From a request for a file's data to the file.
    Kiocb,
    /// From an io_uring's request to its file and operation.
    IoUring,
    /// The tracepoint of io_uring passes the result as a number, after the request.
    IoResult,
    /// The tracepoint of io_uring passes a completion entry, after the request.
    IoEntry,
    /// From a request to a block device to that device.
    Block,
    /// From XFS's own structure to the superblock.
    Xfs,
    /// From a request or connection of FUSE to the superblock.
    Fuse,
    /// What another task than the current one waits for.
    Wait,
}

/// One field and where its offset goes.
pub(super) struct FieldRow {
    group: Group,
    structure: &'static str,
    member: &'static str,
    store: fn(&mut Offsets, u32),
}

macro_rules! rows {
    ($($group:ident $structure:literal $member:literal => $($place:ident)+ $([$index:literal])?;)+) => {
        &[$(FieldRow {
            group: Group::$group,
            structure: $structure,
            member: $member,
            store: |offsets, offset| offsets.$($place)+ $([$index])? = offset,
        }),+]
    };
}

/// The fields that every architecture has.
const FIELDS: &[FieldRow] = rows! {
    Task "task_struct" "tgid" => task_tgid;
    Task "task_struct" "real_parent" => task_real_parent;
    Task "task_struct" "nsproxy" => task_nsproxy;
    Task "nsproxy" "mnt_ns" => nsproxy_mnt_ns;
    File "file" "f_path" => file_f_path;
    File "path" "mnt" => path_mnt;
    File "path" "dentry" => path_dentry;
    File "vfsmount" "mnt_root" => vfsmount_mnt_root;
    File "vfsmount" "mnt_sb" => vfsmount_mnt_sb;
    File "super_block" "s_dev" => super_block_s_dev;
    File "dentry" "d_inode" => dentry_d_inode;
    File "dentry" "d_parent" => dentry_d_parent;
    File "inode" "i_ino" => inode_i_ino;
    File "inode" "i_mode" => inode_i_mode;
    Descriptor "task_struct" "files" => task_files;
    Descriptor "files_struct" "fdt" => files_struct_fdt;
    Descriptor "fdtable" "max_fds" => fdtable_max_fds;
    Descriptor "fdtable" "fd" => fdtable_fd;
    Name "task_struct" "fs" => task_fs;
    Name "fs_struct" "pwd" => fs_struct_pwd;
    Name "fs_struct" "root" => fs_struct_root;
    Name "mount" "mnt" => mount_mnt;
    Name "mount" "mnt_parent" => mount_mnt_parent;
    Name "mount" "mnt_mountpoint" => mount_mnt_mountpoint;
    Entry "dentry" "d_sb" => dentry_d_sb;
    Rename "renamedata" "new_dentry" => renamedata_new_dentry;
    Mapping "address_space" "host" => address_space_host;
    Mapping "inode" "i_sb" => inode_i_sb;
    Mapping "inode" "i_rdev" => inode_i_rdev;
    Mapping "super_block" "s_dev" => super_block_s_dev;
    Fault "file" "f_inode" => file_f_inode;
    Fault "inode" "i_size" => inode_i_size;
    Fault "vm_area_struct" "vm_file" => vma_vm_file;
    Vma "vm_area_struct" "vm_start" => vma_vm_start;
    Vma "vm_area_struct" "vm_pgoff" => vma_vm_pgoff;
    VmFault "vm_fault" "vma" => vm_fault_vma;
    VmFault "vm_fault" "flags" => vm_fault_flags;
    VmFault "vm_fault" "pgoff" => vm_fault_pgoff;
    Waiter "task_struct" "pid" => task_pid;
    Waiter "task_struct" "comm" => task_comm;
    Waiter "wait_queue_head" "head" => wait_queue_head_head;
    Waiter "wait_queue_entry" "entry" => wait_queue_entry_entry;
    Waiter "wait_queue_entry" "private" => wait_queue_entry_private;
    Kiocb "kiocb" "ki_filp" => kiocb_ki_filp;
    Kiocb "kiocb" "ki_flags" => kiocb_ki_flags;
    IoUring "io_kiocb" "file" => io_kiocb_file;
    IoUring "io_kiocb" "opcode" => io_kiocb_opcode;
    Block "request" "bio" => request_bio;
    Block "request" "cmd_flags" => request_cmd_flags;
    Block "gendisk" "major" => gendisk_major;
    Block "gendisk" "first_minor" => gendisk_first_minor;
    Wait "task_struct" "comm" => task_comm;
    Wait "task_struct" "flags" => task_flags;
    Wait "task_struct" "nvcsw" => task_nvcsw;
    Wait "task_struct" "nivcsw" => task_nivcsw;
    Wait "task_struct" "thread_pid" => task_thread_pid;
    Wait "task_struct" "group_leader" => task_group_leader;
    Wait "task_struct" "cgroups" => task_cgroups;
    Wait "task_struct" "nameidata" => task_nameidata;
    Wait "pid" "level" => pid_level;
    Wait "pid" "numbers" => pid_numbers;
    Wait "css_set" "dfl_cgrp" => css_set_dfl_cgrp;
    Wait "cgroup" "kn" => cgroup_kn;
    Wait "kernfs_node" "id" => kernfs_node_id;
    Wait "nameidata" "path" => nameidata_path;
};

/// Where the entry code saves what a system call was given, and which calls are 32-bit ones.
///
/// kernel: `struct pt_regs`, arch/x86/include/asm/ptrace.h, all versions; `TS_COMPAT` (2) of
/// `thread_info::status`, arch/x86/include/asm/thread_info.h, since 2.6.
#[cfg(target_arch = "x86_64")]
const REGISTERS: &[FieldRow] = rows! {
    Registers "pt_regs" "di" => regs_arguments[0];
    Registers "pt_regs" "si" => regs_arguments[1];
    Registers "pt_regs" "dx" => regs_arguments[2];
    Registers "pt_regs" "r10" => regs_arguments[3];
    Registers "pt_regs" "r8" => regs_arguments[4];
    Registers "pt_regs" "r9" => regs_arguments[5];
    Registers "pt_regs" "orig_ax" => regs_number;
    Registers "thread_info" "status" => task_compat;
};
#[cfg(target_arch = "x86_64")]
const COMPAT_MASK: u32 = 2;

/// The first argument is saved apart, because its register carries the return value.
///
/// kernel: `struct pt_regs`, arch/arm64/include/asm/ptrace.h, since 3.7; `TIF_32BIT` (bit 22) of
/// `thread_info::flags`, arch/arm64/include/asm/thread_info.h.
#[cfg(target_arch = "aarch64")]
const REGISTERS: &[FieldRow] = rows! {
    Registers "pt_regs" "orig_x0" => regs_arguments[0];
    Registers "pt_regs" "regs" => regs_arguments[1];
    Registers "pt_regs" "syscallno" => regs_number;
    Registers "thread_info" "flags" => task_compat;
};
#[cfg(target_arch = "aarch64")]
const COMPAT_MASK: u32 = 1 << 22;

/// No other architecture is known: its descriptors cannot be found.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const REGISTERS: &[FieldRow] = rows! {
    Registers "pt_regs" "of an architecture that is not supported" => regs_number;
};
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const COMPAT_MASK: u32 = 0;

/// Offsets of this kernel, and what is missing.
#[derive(Debug)]
pub(super) struct Layout {
    /// For the programs.
    pub offsets: Offsets,
    /// For the programs that look into structures of modules.
    pub modules: ModuleOffsets,
    missing: BTreeMap<Group, String>,
}

impl Layout {
    /// Looks every field up.
    #[must_use]
    pub(super) fn read(types: &KernelTypes) -> Self {
        let mut layout =
            Self { offsets: Offsets::default(), modules: ModuleOffsets::default(), missing: BTreeMap::new() };
        for row in FIELDS.iter().chain(REGISTERS) {
            layout.field(types.offset(row.structure, row.member), row.group, row.store);
        }
        // kernel: `mnt_namespace::ns`, fs/mount.h, since 3.19; `ns_common::inum`, since 3.19.
        let inum = types
            .offset("mnt_namespace", "ns")
            .and_then(|outer| Ok(outer.saturating_add(types.offset("ns_common", "inum")?)));
        layout.field(inum, Group::Task, |offsets, offset| offsets.mnt_namespace_inum = offset);
        // kernel: `dentry::d_name`, include/linux/dcache.h; `qstr::name`, since 2.4.
        let name = types
            .offset("dentry", "d_name")
            .and_then(|outer| Ok(outer.saturating_add(types.offset("qstr", "name")?)));
        layout.field(name, Group::File, |offsets, offset| offsets.dentry_name = offset);
        layout.finish_registers(types);
        layout.finish_hooks(types);
        layout.read_modules(types);
        layout.finish_wait(types);
        layout
    }

    fn field(&mut self, found: Result<u32, BtfError>, group: Group, store: fn(&mut Offsets, u32)) {
        match found {
            Ok(offset) => store(&mut self.offsets, offset),
            Err(error) => {
                self.missing.entry(group).or_insert_with(|| error.to_string());
            }
        }
    }

    /// What the table cannot say: numbered registers, and where in the task the compat word is.
    fn finish_registers(&mut self, types: &KernelTypes) {
        self.offsets.compat_mask = COMPAT_MASK;
        // kernel: `task_struct::thread_info`, with CONFIG_THREAD_INFO_IN_TASK, x86 since 4.9, arm64 since 4.10.
        let in_task = types.offset("task_struct", "thread_info");
        if let Ok(outer) = &in_task {
            self.offsets.task_compat = self.offsets.task_compat.saturating_add(*outer);
        }
        self.field(in_task.map(|_| 0), Group::Registers, |_, _| ());
        if cfg!(target_arch = "aarch64") {
            let [_, base, ..] = self.offsets.regs_arguments;
            for (number, place) in self.offsets.regs_arguments.iter_mut().enumerate().skip(1) {
                *place = base.saturating_add(u32::try_from(number).unwrap_or(0).saturating_mul(8));
            }
        }
    }

    /// What has two names, and what some kernels are built without.
    fn finish_wait(&mut self, types: &KernelTypes) {
        // kernel: `task_struct::__state` since 5.14, `state` before, include/linux/sched.h.
        let state = types.offset("task_struct", "__state").or_else(|_| types.offset("task_struct", "state"));
        self.field(state, Group::Wait, |offsets, offset| offsets.task_state = offset);
        // kernel: `task_struct::start_boottime` since 5.5, `real_start_time` before, include/linux/sched.h. It is what
        // procfs shows.
        let start = types
            .offset("task_struct", "start_boottime")
            .or_else(|_| types.offset("task_struct", "real_start_time"));
        self.field(start, Group::Wait, |offsets, offset| offsets.task_start_boottime = offset);
        // kernel: `task_io_accounting::syscr`, with CONFIG_TASK_XACCT, include/linux/task_io_accounting.h.
        let calls = |member| {
            let inner = types.offset("task_io_accounting", member)?;
            Ok::<u32, BtfError>(types.offset("task_struct", "ioac")?.saturating_add(inner))
        };
        if let (Ok(reads), Ok(writes)) = (calls("syscr"), calls("syscw")) {
            self.offsets.task_reads = reads;
            self.offsets.task_writes = writes;
        }
    }

    /// The first field that one of the groups lacks.
    #[must_use]
    pub(super) fn lacks(&self, groups: &[Group]) -> Option<&str> {
        groups.iter().find_map(|group| self.missing.get(group)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::btf::VMLINUX;

    #[test]
    fn this_kernel_has_every_field() {
        let Ok(types) = KernelTypes::open(std::path::Path::new(VMLINUX)) else {
            eprintln!("skipped: no type information here");
            return;
        };
        let mut layout = Layout::read(&types);
        // The tracepoint has one of two shapes, and modules may not be loaded.
        let shapes = [Group::IoResult, Group::IoEntry];
        assert!(shapes.iter().any(|shape| layout.missing.contains_key(shape)), "both shapes at once");
        for shape in shapes {
            layout.missing.remove(&shape);
        }
        for (module, structure, group) in
            [("xfs", "xfs_mount", Group::Xfs), ("fuse", "fuse_req", Group::Fuse)]
        {
            if !modules::is_known(&types, module, structure) {
                layout.missing.remove(&group);
            }
        }
        for (function, group) in [("bpf_find_vma", Group::Fault), ("bpf_task_pt_regs", Group::Wait)] {
            if types.function(function).is_err() {
                layout.missing.remove(&group);
            }
        }
        assert!(layout.missing.is_empty(), "{:?}", layout.missing);
        assert_ne!(layout.offsets.mnt_namespace_inum, 0);
        assert_ne!(layout.offsets.regs_number, 0);
        assert!(layout.offsets.task_fault_code != 0 && layout.offsets.fault_store_mask != 0);
    }

    /// What programs that trace others rely on: the saved registers of each architecture never move.
    ///
    /// kernel: `struct pt_regs`, arch/x86/include/asm/ptrace.h; arch/arm64/include/asm/ptrace.h.
    #[test]
    fn the_saved_registers_are_those_of_this_architecture() {
        let (arguments, number, mask) = match std::env::consts::ARCH {
            "x86_64" => ([112, 104, 96, 56, 72, 64], 120, 2),
            // The first argument's register carries the return value; a copy lies behind the others.
            "aarch64" => ([272, 8, 16, 24, 32, 40], 280, 1 << 22),
            other => panic!("nobody has said how {other} passes arguments"),
        };
        assert_eq!(COMPAT_MASK, mask);
        let Ok(types) = KernelTypes::open(std::path::Path::new(VMLINUX)) else {
            eprintln!("skipped: no type information here");
            return;
        };
        if types.offset("pt_regs", REGISTERS[0].member).is_err() {
            eprintln!("skipped: emulated, with the type information of another architecture");
            return;
        }
        let offsets = Layout::read(&types).offsets;
        assert_eq!((offsets.regs_arguments, offsets.regs_number), (arguments, number));
    }
}
