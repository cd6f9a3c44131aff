//! Fields of structures that may belong to a module: looked up in the kernel's own types, else in the module's.

use std::path::{Path, PathBuf};

use agent_common::settings::ModuleOffsets;

use super::{Group, KernelTypes, Layout};
use crate::kernel::btf::BtfError;

/// The module, the group that its fields make up, and how to find them.
const MODULES: &[(&str, Group, Reader)] =
    &[("xfs", Group::Xfs, xfs as Reader), ("fuse", Group::Fuse, fuse as Reader)];

type Reader = fn(&KernelTypes, &mut ModuleOffsets) -> Result<(), BtfError>;

impl Layout {
    /// Looks up the fields of every module that is there by now.
    pub(in super::super) fn read_modules(&mut self, types: &KernelTypes) {
        for (module, group, read) in MODULES {
            let found = read(types, &mut self.modules).or_else(|error| match types.module(&file(module)) {
                Ok(types) => read(&types, &mut self.modules),
                // What the kernel's own types lack says more than a file that is not there.
                Err(_) => Err(error),
            });
            match found {
                Ok(()) => drop(self.missing.remove(group)),
                Err(error) => drop(self.missing.insert(*group, error.to_string())),
            }
        }
    }
}

/// kernel: kernel/bpf/btf.c, since 5.11.
fn file(module: &str) -> PathBuf {
    Path::new("/sys/kernel/btf").join(module)
}

fn xfs(types: &KernelTypes, offsets: &mut ModuleOffsets) -> Result<(), BtfError> {
    offsets.xfs_mount_m_super = types.offset("xfs_mount", "m_super")?;
    Ok(())
}

/// kernel: `fuse_req::fm`, fs/fuse/fuse_i.h, since 5.10; `fuse_req::chan`, `fuse_chan::conn` and `connected`, since 7.2.
fn fuse(types: &KernelTypes, offsets: &mut ModuleOffsets) -> Result<(), BtfError> {
    offsets.fuse_req_opcode = types.offset("fuse_req", "in.h.opcode")?;
    offsets.fuse_req_error = types.offset("fuse_req", "out.h.error")?;
    offsets.fuse_req_flags = types.offset("fuse_req", "flags")?;
    offsets.fuse_req_waitq = types.offset("fuse_req", "waitq")?;
    offsets.fuse_conn_mounts = types.offset("fuse_conn", "mounts")?;
    offsets.fuse_mount_fc_entry = types.offset("fuse_mount", "fc_entry")?;
    offsets.fuse_mount_sb = types.offset("fuse_mount", "sb")?;
    match types.offset("fuse_req", "fm") {
        Ok(offset) => {
            offsets.fuse_req_owner = offset;
            offsets.fuse_connected = types.offset("fuse_conn", "connected")?;
        }
        Err(_) => {
            offsets.fuse_req_owner = types.offset("fuse_req", "chan")?;
            offsets.fuse_chan_conn = types.offset("fuse_chan", "conn")?;
            offsets.fuse_connected = types.offset("fuse_chan", "connected")?;
            offsets.fuse_through_chan = 1;
        }
    }
    Ok(())
}

/// Whether the kernel or the module has a structure.
#[cfg(test)]
pub(super) fn is_known(types: &KernelTypes, module: &str, structure: &str) -> bool {
    let has = |types: &KernelTypes| !matches!(types.offset(structure, ""), Err(BtfError::NoStructure { .. }));
    has(types) || types.module(&file(module)).is_ok_and(|types| has(&types))
}
