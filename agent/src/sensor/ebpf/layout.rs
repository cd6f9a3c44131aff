//! Which fields of kernel structures the programs read, and where this kernel has them.

use std::collections::BTreeMap;

use agent_common::settings::Offsets;

use crate::kernel::btf::{BtfError, KernelTypes};

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
    /// From a `struct filename` to its text.
    Filename,
    /// From an address space to its superblock.
    Mapping,
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
    File "inode" "i_ino" => inode_i_ino;
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
    Filename "filename" "name" => filename_name;
    Mapping "address_space" "host" => address_space_host;
    Mapping "inode" "i_sb" => inode_i_sb;
    Mapping "inode" "i_rdev" => inode_i_rdev;
    Mapping "super_block" "s_dev" => super_block_s_dev;
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
    missing: BTreeMap<Group, String>,
}

impl Layout {
    /// Looks every field up.
    #[must_use]
    pub(super) fn read(types: &mut KernelTypes) -> Self {
        let mut layout = Self { offsets: Offsets::default(), missing: BTreeMap::new() };
        for row in FIELDS.iter().chain(REGISTERS) {
            layout.field(types.offset(row.structure, row.member), row.group, row.store);
        }
        // kernel: `mnt_namespace::ns`, fs/mount.h, since 3.19; `ns_common::inum`, since 3.19.
        let inum = types
            .offset("mnt_namespace", "ns")
            .and_then(|outer| Ok(outer.saturating_add(types.offset("ns_common", "inum")?)));
        layout.field(inum, Group::Task, |offsets, offset| offsets.mnt_namespace_inum = offset);
        layout.finish_registers(types);
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
    fn finish_registers(&mut self, types: &mut KernelTypes) {
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
        let Ok(mut types) = KernelTypes::open(std::path::Path::new(VMLINUX)) else {
            eprintln!("skipped: no type information here");
            return;
        };
        let layout = Layout::read(&mut types);
        assert!(layout.missing.is_empty(), "{:?}", layout.missing);
        assert_ne!(layout.offsets.mnt_namespace_inum, 0);
        assert_ne!(layout.offsets.regs_number, 0);
    }
}
