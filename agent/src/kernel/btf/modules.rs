//! Types of loaded modules: each has a file of its own, whose types continue those of the kernel.

use std::path::Path;

use btf_rs::Btf;

use super::{BtfError, KernelTypes, format};

/// How a module stands with the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Module {
    /// Loaded and running.
    Loaded,
    /// Part of the kernel itself, or on its way in or out.
    BuiltIn,
    /// Not there.
    Absent,
}

impl Module {
    /// Looks into `/sys/module`. A part of the kernel itself shows there only when it has parameters, so one that
    /// is absent may be built in all the same: try first, and ask only about what failed.
    ///
    /// kernel: `module_sysfs_initialized`, kernel/module/sysfs.c; `initstate`, since 2.6.
    #[must_use]
    pub fn look(sys: &Path, name: &str) -> Self {
        let directory = sys.join("module").join(name);
        match std::fs::read_to_string(directory.join("initstate")) {
            Ok(state) if state.trim() == "live" => Self::Loaded,
            Ok(_) => Self::Absent,
            Err(_) if directory.is_dir() => Self::BuiltIn,
            Err(_) => Self::Absent,
        }
    }
}

impl KernelTypes {
    /// The types of a module on top of these, from the file beside the kernel's own.
    ///
    /// kernel: kernel/bpf/btf.c (`btf_module_notify`), since 5.11.
    ///
    /// # Errors
    /// When the module is not loaded, or the kernel was built without types for modules.
    pub fn module(&self, path: &Path) -> Result<Self, BtfError> {
        let bytes = format::read(path).map_err(|source| BtfError::Read { path: path.to_owned(), source })?;
        let unusable = |detail: String| BtfError::Unusable { path: path.to_owned(), detail };
        // Numbers of types go on where those of the kernel end: with fewer of these, they would mean others.
        if let Some(cut) = &self.cut {
            return Err(unusable(format!("it continues the kernel's own, of which {cut}")));
        }
        let prepared = format::prepare(&bytes).map_err(|detail| unusable(detail.to_owned()))?;
        let btf = Btf::from_split_bytes(&prepared.bytes, &self.btf);
        let btf = btf.map_err(|error| unusable(error.to_string()))?;
        Ok(Self { btf, cut: prepared.cut })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_loaded_built_in_or_absent() {
        let sys = tempfile::tempdir().unwrap();
        let put = |name: &str, state: Option<&str>| {
            let directory = sys.path().join("module").join(name);
            std::fs::create_dir_all(&directory).unwrap();
            if let Some(state) = state {
                std::fs::write(directory.join("initstate"), state).unwrap();
            }
        };
        put("xfs", Some("live\n"));
        put("nfs", Some("coming\n"));
        put("fuse", None);
        let look = |name| Module::look(sys.path(), name);
        assert_eq!(look("xfs"), Module::Loaded);
        assert_eq!(look("nfs"), Module::Absent);
        assert_eq!(look("fuse"), Module::BuiltIn);
        assert_eq!(look("ext4"), Module::Absent);
    }
}
