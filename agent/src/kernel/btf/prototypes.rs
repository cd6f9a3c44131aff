//! What tracepoints pass to programs.

use btf_rs::{BtfType as _, Type};

use super::{BtfError, DEEPEST, KernelTypes};

impl KernelTypes {
    /// The types of what a tracepoint passes to a raw program, in order, as C writes them. Their names are not
    /// told.
    ///
    /// kernel: `btf_trace_NAME`, include/trace/bpf_probe.h, since 5.5.
    ///
    /// # Errors
    /// When there is no such tracepoint in these types.
    pub fn tracepoint_arguments(&self, tracepoint: &str) -> Result<Vec<String>, BtfError> {
        let name = format!("btf_trace_{tracepoint}");
        let ids = self.btf.resolve_ids_by_name(&name).unwrap_or_default();
        let prototype = ids.into_iter().find_map(|id| {
            let Ok(Type::Typedef(alias)) = self.btf.resolve_type_by_id(id) else { return None };
            let Ok(Type::Ptr(pointer)) = self.btf.resolve_chained_type(&alias) else { return None };
            match self.btf.resolve_chained_type(&pointer) {
                Ok(Type::FuncProto(prototype)) => Some(prototype),
                _ => None,
            }
        });
        let prototype = prototype.ok_or_else(|| {
            self.absent(tracepoint, || BtfError::NoTracepoint { tracepoint: tracepoint.to_owned() })
        })?;
        // The first one is the kernel's own, and no program sees it.
        Ok(prototype.parameters.iter().skip(1).map(|parameter| self.spell(parameter.get_type_id())).collect())
    }

    /// A type as C writes it, without `const` and the like.
    fn spell(&self, id: Option<u32>) -> String {
        let (mut id, mut stars) = (id.unwrap_or(0), 0);
        for _ in 0..DEEPEST {
            let kind = self.btf.resolve_type_by_id(id).unwrap_or(Type::Void);
            let next = match &kind {
                Type::Ptr(pointer) => {
                    stars += 1;
                    pointer.get_type_id()
                }
                Type::Const(inner) | Type::Volatile(inner) | Type::Restrict(inner) => inner.get_type_id(),
                _ => {
                    let word = match kind {
                        Type::Struct(_) | Type::Fwd(_) => "struct ",
                        Type::Union(_) => "union ",
                        Type::Enum(_) | Type::Enum64(_) => "enum ",
                        _ => "",
                    };
                    let name = kind.as_btf_type().and_then(|kind| self.btf.resolve_name(kind).ok());
                    let space = if stars > 0 { " " } else { "" };
                    let name = name.unwrap_or_else(|| kind.name().to_owned());
                    return format!("{word}{name}{space}{}", "*".repeat(stars));
                }
            };
            // A pointer to nothing in particular has no type.
            id = next.unwrap_or(0);
        }
        "?".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::VMLINUX;
    use super::*;

    #[test]
    fn the_running_kernel_tells_what_its_tracepoints_pass() {
        let types = match KernelTypes::open(Path::new(VMLINUX)) {
            Ok(types) => types,
            Err(error) => {
                eprintln!("skipped: {error}");
                return;
            }
        };
        assert_eq!(types.tracepoint_arguments("sys_exit").unwrap(), ["struct pt_regs *", "long int"]);
        let signal = types.tracepoint_arguments("signal_generate").unwrap();
        assert_eq!(signal[..3], ["int", "struct kernel_siginfo *", "struct task_struct *"]);
        let pointer = types.tracepoint_arguments("io_uring_complete").unwrap();
        assert!(pointer[0].ends_with('*'), "{pointer:?}");
        assert!(types.function("vfs_read").is_ok());
        // A structure's name is not a function's.
        assert!(matches!(types.function("task_struct"), Err(BtfError::NoFunction { .. })));
        assert!(matches!(types.tracepoint_arguments("no_such"), Err(BtfError::NoTracepoint { .. })));
    }

    #[test]
    fn fields_of_fields_add_up() {
        let Ok(types) = KernelTypes::open(Path::new(VMLINUX)) else {
            eprintln!("skipped: no type information here");
            return;
        };
        let path = types.offset("file", "f_path").unwrap();
        let dentry = types.offset("path", "dentry").unwrap();
        assert_eq!(types.offset("file", "f_path.dentry").unwrap(), path + dentry);
        assert_eq!(types.offset("file", "f_path").unwrap(), path);
        assert!(matches!(types.offset("file", "f_path.no"), Err(BtfError::NoMember { .. })));
        assert!(matches!(types.offset("no", "such"), Err(BtfError::NoStructure { .. })));
    }
}
